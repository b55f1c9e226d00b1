//! Medians with their uncertainty: bootstrap intervals, paired ratios, the smallest effect that a session could show.
//!
//! From samples to estimates, nothing else. Everything is deterministic: the same samples give the same interval.

/// Resamples of one bootstrap; the edges of a 95 % interval then rest on 50 resamples each.
const RESAMPLES: usize = 2000;

/// Share of the resampled medians left out on each side: a 95 % interval.
const TAIL: f64 = 0.025;

/// Fixed, so that a report made twice from the same records says the same.
const SEED: u64 = 0x5eed_fa17;

/// A median and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median of the samples.
    pub median: f64,
    /// 95 % percentile-bootstrap interval of the median (Efron 1979); `None` with a single sample, which has no spread.
    ///
    /// With fewer than six samples it is their whole range and covers less than 95 %.
    pub interval: Option<[f64; 2]>,
    /// Samples it rests on.
    pub samples: usize,
}

/// Two arms of one session, compared repetition by repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median of the paired ratios.
    pub ratio: Estimate,
    /// Smallest effect these pairs could have shown, as a share (0.06: 6 %); `None` with a single pair.
    pub detectable: Option<f64>,
}

/// What a comparison tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// They differ: the interval excludes 1, and the effect is above the smallest detectable one.
    Apart,
    /// A difference cannot be told from chance.
    Tie,
    /// There is one pair only, so that chance has not been measured.
    OneRun,
}

/// The middle of `samples`; the mean of both middles where their number is even. `None` of nothing.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = finite(samples);
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

/// Median of `samples` with its bootstrap interval; samples that are not finite are left out.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    let samples = finite(samples);
    let median = median(&samples)?;
    let interval = (samples.len() > 1).then(|| bootstrap(&samples));
    Some(Estimate { median, interval, samples: samples.len() })
}

/// The paired ratios first / second, compared with 1. Pairs without a positive second are left out.
pub fn compare(pairs: &[(f64, f64)]) -> Option<Comparison> {
    let ratios: Vec<f64> =
        pairs.iter().filter(|(_, second)| *second > 0.0).map(|(first, second)| first / second).collect();
    Some(Comparison { ratio: estimate(&ratios)?, detectable: smallest_detectable(&ratios) })
}

/// Smallest relative effect that these paired ratios would show in 80 % of sessions at 5 % significance, two-sided.
///
/// exp(M s / sqrt(n)) - 1 with s the standard deviation of the ratios' logarithms and M = t(0.975, n-1) + t(0.80, n-1):
/// the minimum detectable effect of Bloom (1995), Evaluation Review 19(5), on the log scale. `None` below two ratios.
pub fn smallest_detectable(ratios: &[f64]) -> Option<f64> {
    let logs: Vec<f64> =
        ratios.iter().filter(|ratio| ratio.is_finite() && **ratio > 0.0).map(|ratio| ratio.ln()).collect();
    let freedom = logs.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / freedom as f64;
    let error = (variance / logs.len() as f64).sqrt();
    Some((multiplier(freedom) * error).exp_m1())
}

impl Comparison {
    /// What these pairs tell.
    pub fn told(&self) -> Told {
        let (Some([low, high]), Some(detectable)) = (self.ratio.interval, self.detectable) else {
            return Told::OneRun;
        };
        let excludes_one = low > 1.0 || high < 1.0;
        let above = self.ratio.median.ln().abs() > detectable.ln_1p();
        if excludes_one && above { Told::Apart } else { Told::Tie }
    }
}

/// Bloom's M for this many degrees of freedom; tables of Student's t to 10, beyond it the Cornish-Fisher expansion.
fn multiplier(freedom: usize) -> f64 {
    const T_975: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    const T_80: [f64; 10] = [1.376, 1.061, 0.978, 0.941, 0.920, 0.906, 0.896, 0.889, 0.883, 0.879];
    match freedom {
        0 => f64::INFINITY,
        1..=10 => T_975[freedom - 1] + T_80[freedom - 1],
        _ => student(1.959_964, freedom) + student(0.841_621, freedom),
    }
}

/// Quantile of Student's t from the normal quantile `z` (Abramowitz and Stegun 26.7.5, two terms).
fn student(z: f64, freedom: usize) -> f64 {
    let freedom = freedom as f64;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom * freedom);
    z + (z.powi(3) + z) / (4.0 * freedom) + second
}

fn finite(samples: &[f64]) -> Vec<f64> {
    samples.iter().copied().filter(|sample| sample.is_finite()).collect()
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    // Halves are added, not the sum halved: the sum of two huge samples would overflow.
    Some(if sorted.len() % 2 == 1 { upper } else { sorted[half - 1] / 2.0 + upper / 2.0 })
}

fn bootstrap(samples: &[f64]) -> [f64; 2] {
    let mut random = SplitMix(SEED);
    let mut medians: Vec<f64> = (0..RESAMPLES).filter_map(|_| resampled_median(samples, &mut random)).collect();
    medians.sort_by(f64::total_cmp);
    let edge = (RESAMPLES as f64 * TAIL) as usize;
    [medians[edge], medians[RESAMPLES - 1 - edge]]
}

fn resampled_median(samples: &[f64], random: &mut SplitMix) -> Option<f64> {
    let mut drawn: Vec<f64> = samples.iter().map(|_| samples[random.below(samples.len())]).collect();
    drawn.sort_by(f64::total_cmp);
    middle(&drawn)
}

/// SplitMix64 (Steele, Lea, Flood 2014): eight lines, and enough to draw from a handful of samples.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_single_sample_has_a_median_and_no_interval() {
        let only = estimate(&[42.0]).unwrap();

        assert_eq!((only.median, only.interval, only.samples), (42.0, None, 1));
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn the_interval_of_three_samples_is_their_range() {
        assert_eq!(estimate(&[3.0, 1.0, 2.0]).unwrap().interval, Some([1.0, 3.0]));
    }

    #[test]
    fn one_outlier_among_nine_does_not_move_the_median_nor_its_interval_far() {
        let samples = [10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.1, 9.9, 1000.0];

        let found = estimate(&samples).unwrap();

        assert_eq!(found.median, 10.0);
        assert!(found.interval.unwrap()[1] < 10.3, "{found:?}");
    }

    #[test]
    fn ratios_are_of_pairs_so_a_drift_common_to_both_arms_cancels() {
        let drifting = [(50.0, 100.0), (25.0, 50.0), (5.0, 10.0)];

        let found = compare(&drifting).unwrap();

        assert_eq!(found.ratio.median, 0.5);
        assert_eq!(found.ratio.interval, Some([0.5, 0.5]));
        assert_eq!(found.told(), Told::Apart);
    }

    #[test]
    fn the_smallest_detectable_effect_of_three_ratios_with_two_percent_spread_is_six_percent() {
        // s of (-0.02, 0, 0.02) is 0.02; M is 4.303 + 1.061; 5.364 * 0.02 / sqrt(3) = 0.0619.
        let ratios = [(-0.02f64).exp(), 1.0, 0.02f64.exp()];

        let effect = smallest_detectable(&ratios).unwrap();

        assert!((effect - 0.0639).abs() < 0.0001, "{effect}");
    }

    #[test]
    fn the_multiplier_falls_to_bloom_s_two_point_eight() {
        let multipliers: Vec<f64> = (1..2000).map(multiplier).collect();

        assert!(multipliers.windows(2).all(|pair| pair[1] <= pair[0] + 1e-3));
        assert!((multipliers[1998] - 2.80).abs() < 0.01);
    }

    #[test]
    fn a_difference_inside_the_spread_is_a_tie_and_one_run_is_said_to_be_one() {
        assert_eq!(compare(&[(1.02, 1.0), (0.97, 1.0), (1.04, 1.0)]).unwrap().told(), Told::Tie);
        assert_eq!(compare(&[(5.0, 1.0)]).unwrap().told(), Told::OneRun);
        assert_eq!(compare(&[(1.0, 0.0)]), None);
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_median_and_lies_within_the_samples(
            samples in prop::collection::vec(0.0f64..1e18, 2..40)
        ) {
            let found = estimate(&samples).unwrap();
            let [low, high] = found.interval.unwrap();

            prop_assert!(low <= found.median && found.median <= high);
            prop_assert!(samples.iter().any(|sample| *sample <= low) && samples.iter().any(|sample| *sample >= high));
        }

        #[test]
        fn the_same_samples_give_the_same_estimate(samples in prop::collection::vec(-1e9f64..1e9, 1..20)) {
            prop_assert_eq!(estimate(&samples), estimate(&samples));
        }

        #[test]
        fn exchanging_the_arms_inverts_the_ratio(pairs in prop::collection::vec((0.1f64..10.0, 0.1f64..10.0), 1..6)) {
            let odd = if pairs.len() % 2 == 0 { &pairs[1..] } else { &pairs[..] };
            let back: Vec<(f64, f64)> = odd.iter().map(|(first, second)| (*second, *first)).collect();

            let (there, back) = (compare(odd).unwrap().ratio.median, compare(&back).unwrap().ratio.median);

            prop_assert!((there * back - 1.0).abs() < 1e-9);
        }

        #[test]
        fn samples_that_are_not_numbers_are_left_out(count in 0usize..5) {
            let mut samples = vec![f64::NAN; count];
            samples.extend([f64::INFINITY, 7.0]);

            prop_assert_eq!(estimate(&samples).unwrap().median, 7.0);
        }
    }
}
