//! Medians with their uncertainty: exact intervals, paired ratios, the smallest effect that a session could show.
//!
//! From samples to estimates, nothing else. Everything is deterministic: the same samples give the same interval.

pub mod race;

/// Share of sessions in which an interval must hold the median before a verdict rests on it.
pub const WANTED: f64 = 0.95;

/// Samples from which on an interval covers [`WANTED`]: with six all lie on one side of the median in 3 % of sessions.
pub const LEAST: usize = 6;

/// Samples up to which binomial terms are added; beyond, 0.5^n leaves the range of doubles.
const EXACT: usize = 1000;

/// Quantile 0.975 of the normal distribution.
const NORMAL_975: f64 = 1.959_964;

/// A median and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median of the samples.
    pub median: f64,
    /// Two of the samples that hold the median of what they were drawn from, see [`coverage`](Self::coverage); `None` with a
    /// single sample, which has no spread.
    ///
    /// The order statistics k and n + 1 - k (Thompson 1936; David and Nagaraja, Order Statistics, 7.1): no assumption about
    /// the law of the samples but that they are independent. k is the largest that covers 95 %; below six samples none
    /// does, and the interval is their range.
    pub interval: Option<[f64; 2]>,
    /// Share of sessions in which such an interval holds the median: 1 - 2 P(Binomial(n, 1/2) < k). 0 without an interval.
    pub coverage: f64,
    /// Samples it rests on.
    pub samples: usize,
}

/// Mean and standard deviation, as many sources give them. No verdict of ours rests on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation; ours is that of a sample, with n - 1. `None` of a single sample, or where a source gives none.
    pub deviation: Option<f64>,
}

/// Two arms of one session, compared repetition by repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
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
    /// Too few pairs for an interval that covers 95 %: nothing is told.
    RunMore,
}

/// How often one looks at samples before one stops taking more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Looks {
    /// Once: their number was fixed before.
    #[default]
    Once,
    /// After each number of runs in [`race::LOOKS`], and when time is up.
    Repeated,
}

/// Where a ratio lies beside a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Above it, by more than chance.
    Above,
    /// Below it, by more than chance.
    Below,
    /// On neither side for sure.
    Between,
    /// Too few pairs to tell.
    RunMore,
}

/// The middle of `samples`; the mean of both middles where their number is even. `None` of nothing.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = finite(samples);
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

/// Mean of `samples` with their standard deviation; samples that are not finite are left out. `None` of nothing.
pub fn spread(samples: &[f64]) -> Option<Spread> {
    let samples = finite(samples);
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let deviation = (samples.len() > 1).then(|| (squares / (samples.len() - 1) as f64).sqrt());
    (!samples.is_empty()).then_some(Spread { mean, deviation })
}

/// Median of `samples` with its interval; samples that are not finite are left out.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    estimate_at(samples, Looks::Once)
}

/// The same of samples that were looked at so often: the interval is wide enough that all looks together hold the median
/// in [`WANTED`] of sessions.
pub fn estimate_at(samples: &[f64], looks: Looks) -> Option<Estimate> {
    let mut sorted = finite(samples);
    sorted.sort_by(f64::total_cmp);
    let median = middle(&sorted)?;
    let (outer, coverage) = order(sorted.len(), looks.wanted(sorted.len()));
    let interval = (sorted.len() > 1).then(|| [sorted[outer], sorted[sorted.len() - 1 - outer]]);
    Some(Estimate { median, interval, coverage, samples: sorted.len() })
}

/// The paired ratios first / second, compared with 1. Pairs without a positive second are left out.
pub fn compare(pairs: &[(f64, f64)]) -> Option<PairedRatio> {
    compare_at(pairs, Looks::Once)
}

/// The same of pairs that were looked at so often.
pub fn compare_at(pairs: &[(f64, f64)], looks: Looks) -> Option<PairedRatio> {
    let ratios = ratios(pairs);
    Some(PairedRatio { ratio: estimate_at(&ratios, looks)?, detectable: smallest_detectable(&ratios) })
}

/// The paired ratios first / second, without pairs that have no positive second.
pub fn ratios(pairs: &[(f64, f64)]) -> Vec<f64> {
    pairs.iter().filter(|(_, second)| *second > 0.0).map(|(first, second)| first / second).collect()
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

impl Estimate {
    /// Whether its interval covers what a verdict needs.
    pub fn is_enough(&self) -> bool {
        self.coverage >= WANTED
    }
}

impl PairedRatio {
    /// What these pairs tell.
    pub fn told(&self) -> Told {
        match self.beside(1.0) {
            Beside::Above | Beside::Below => Told::Apart,
            Beside::Between => Told::Tie,
            Beside::RunMore => Told::RunMore,
        }
    }

    /// Where the ratio lies beside `threshold`, which is positive: the whole interval must lie on one side, and the median
    /// farther away than the smallest effect that these pairs could have shown.
    pub fn beside(&self, threshold: f64) -> Beside {
        let (true, Some([low, high]), Some(detectable)) =
            (self.ratio.is_enough(), self.ratio.interval, self.detectable)
        else {
            return Beside::RunMore;
        };
        let is_far = (self.ratio.median / threshold).ln().abs() > detectable.ln_1p();
        match () {
            () if is_far && low > threshold => Beside::Above,
            () if is_far && high < threshold => Beside::Below,
            () => Beside::Between,
        }
    }
}

impl Looks {
    /// Share of sessions that the interval of so many samples must cover.
    ///
    /// Looks spend the twentieth that may miss: six runs spend 3.1 % (their range); a race that time ends at seven or eight has
    /// 1.6 % more at most, and one that goes on 0.47 % at each of the four looks that follow, of which none spends all, and when time is up.
    fn wanted(self, count: usize) -> f64 {
        match (self, count) {
            (Looks::Once, _) | (Looks::Repeated, ..=LEAST) => WANTED,
            (Looks::Repeated, 7 | 8) => 0.98,
            (Looks::Repeated, _) => 0.9953,
        }
    }
}

/// How many of `count` sorted samples lie outside the interval on each side so that it covers `wanted`, and the share of
/// sessions it then covers.
fn order(count: usize, wanted: f64) -> (usize, f64) {
    if count > EXACT {
        // The binomial is normal to three digits here.
        let outer = count as f64 / 2.0 - NORMAL_975 * (count as f64).sqrt() / 2.0 - 1.0;
        return (outer as usize, WANTED);
    }
    let mut term = 0.5f64.powi(count as i32);
    let mut tail = term;
    let mut found = (0, (1.0 - 2.0 * tail).max(0.0));
    for outer in 1..count / 2 {
        term *= (count + 1 - outer) as f64 / outer as f64;
        tail += term;
        let coverage = 1.0 - 2.0 * tail;
        if coverage < wanted {
            break;
        }
        found = (outer, coverage);
    }
    found
}

/// Bloom's M for one degree of freedom or more; tables of Student's t to 10, beyond it the Cornish-Fisher expansion.
fn multiplier(freedom: usize) -> f64 {
    const T_975: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    const T_80: [f64; 10] = [1.376, 1.061, 0.978, 0.941, 0.920, 0.906, 0.896, 0.889, 0.883, 0.879];
    match freedom {
        1..=10 => T_975[freedom - 1] + T_80[freedom - 1],
        _ => student(NORMAL_975, freedom) + student(0.841_621, freedom),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_single_sample_has_a_median_and_no_interval() {
        let only = estimate(&[42.0]).unwrap();

        assert_eq!((only.median, only.interval, only.coverage, only.samples), (42.0, None, 0.0, 1));
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn the_median_is_the_middle_of_the_finite_samples_in_order() {
        assert_eq!(median(&[9.0, 1.0, f64::NAN, 5.0]), Some(5.0));
        assert_eq!(median(&[8.0, 2.0]), Some(5.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // Squares of the differences from 5: 9, 1, 1, 1, 0, 0, 4, 16, in all 32; 32 / 7.
        let found = spread(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, f64::NAN]).unwrap();

        assert_eq!(found, Spread { mean: 5.0, deviation: Some((32.0f64 / 7.0).sqrt()) });
        assert_eq!(spread(&[3.0]), Some(Spread { mean: 3.0, deviation: None }));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn the_interval_of_few_samples_is_their_range_and_says_what_it_covers() {
        let covered = |count: usize| {
            let samples: Vec<f64> = (1..=count).map(|sample| sample as f64).collect();
            let found = estimate(&samples).unwrap();
            assert_eq!(found.interval, Some([1.0, count as f64]));
            found.coverage
        };

        assert_eq!([2, 3, 4, 5, 6].map(covered), [0.5, 0.75, 0.875, 0.9375, 0.96875]);
    }

    #[test]
    fn the_interval_is_that_of_the_published_tables() {
        // Ranks of the 95 % interval of a median: n = 8 (1, 8), 9 (2, 8), 12 (3, 10), 17 (5, 13), 20 (6, 15), 50 (18, 33).
        let ranks = |count: usize| {
            let (outer, _) = order(count, WANTED);
            (outer + 1, count - outer)
        };

        assert_eq!([8, 9, 12].map(ranks), [(1, 8), (2, 8), (3, 10)]);
        assert_eq!([17, 20, 50].map(ranks), [(5, 13), (6, 15), (18, 33)]);
        assert_eq!(format!("{:.4}", order(9, WANTED).1), "0.9609");
        assert_eq!(format!("{:.4}", order(20, WANTED).1), "0.9586");
    }

    #[test]
    fn all_looks_of_a_race_together_miss_less_often_than_one_in_twenty() {
        let missed = |count: usize| 1.0 - order(count, Looks::Repeated.wanted(count)).1;

        // A race ends when time is up, after any number of runs: that is one look more.
        for ends in LEAST..=race::LOOKS[race::LOOKS.len() - 1] {
            let looks = race::LOOKS.iter().filter(|look| **look < ends).chain([&ends]);
            let all: f64 = looks.map(|count| missed(*count)).sum();

            assert!(all < 1.0 - WANTED, "{all} after {ends} runs");
        }
    }

    #[test]
    fn the_interval_of_nine_runs_of_a_race_is_their_range_and_else_leaves_out_one_on_each_side() {
        let samples: Vec<f64> = (1..=9).map(f64::from).collect();

        assert_eq!(estimate_at(&samples, Looks::Repeated).unwrap().interval, Some([1.0, 9.0]));
        assert_eq!(estimate(&samples).unwrap().interval, Some([2.0, 8.0]));
    }

    #[test]
    fn six_is_the_least_number_of_samples_for_a_verdict() {
        let is_enough = |count: usize| estimate(&vec![1.0; count]).unwrap().is_enough();

        assert_eq!((is_enough(LEAST - 1), is_enough(LEAST)), (false, true));
    }

    #[test]
    fn the_interval_of_thousands_goes_on_where_that_of_a_thousand_ended() {
        let (exact, counted) = order(EXACT, WANTED);
        let (normal, coverage) = order(EXACT + 1, WANTED);

        assert!(exact.abs_diff(normal) <= 1, "{exact} and {normal}");
        assert!(counted > WANTED, "{counted}");
        assert_eq!(coverage, WANTED);
    }

    #[test]
    fn the_interval_of_thousands_is_that_of_the_binomial_law_to_one_rank() {
        // Counted exactly from the binomial coefficients: 469, 955 and 4 901 samples lie outside on each side.
        let outer = |count: usize| order(count, WANTED).0;

        assert_eq!([1001, 2000, 10_000].map(outer), [468, 955, 4901]);
    }

    /// Draws by a linear congruence (Knuth's MMIX constants), in (0, 1).
    fn draws() -> impl FnMut() -> f64 {
        let mut state = 1u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }
    }

    #[test]
    fn intervals_hold_the_true_median_as_often_as_they_say_also_of_a_skewed_law() {
        let mut draw = draws();
        for count in [2, 3, 5, 6, 8, 9, 15] {
            let held = (0..4000)
                .filter(|_| {
                    let samples: Vec<f64> = (0..count).map(|_| -draw().ln()).collect();
                    let [low, high] = estimate(&samples).unwrap().interval.unwrap();
                    // The median of an exponential law.
                    (low..=high).contains(&2f64.ln())
                })
                .count();
            let (_, says) = order(count, WANTED);

            assert!((held as f64 / 4000.0 - says).abs() < 0.02, "{count}: {held} of 4000, said {says}");
        }
    }

    #[test]
    fn the_smallest_detectable_effect_of_three_ratios_with_two_percent_spread_is_six_percent() {
        // s of (-0.02, 0, 0.02) is 0.02; M is 4.303 + 1.061; 5.364 * 0.02 / sqrt(3) = 0.0619.
        let ratios = [(-0.02f64).exp(), 1.0, 0.02f64.exp()];

        let effect = smallest_detectable(&ratios).unwrap();

        assert!((effect - 0.0639).abs() < 0.0001, "{effect}");
    }

    #[test]
    fn one_ratio_shows_no_smallest_effect_and_what_has_no_logarithm_is_left_out() {
        let both = smallest_detectable(&[2.0, 8.0]).unwrap();

        assert_eq!(smallest_detectable(&[2.0]), None);
        assert_eq!(smallest_detectable(&[2.0, 0.0, 8.0, -1.0, f64::INFINITY]), Some(both));
    }

    #[test]
    fn the_multiplier_beyond_the_table_is_the_expansion_of_both_quantiles() {
        // Abramowitz and Stegun 26.7.5, computed apart; the published tables have 3.077 and 2.946.
        assert!((multiplier(11) - 3.074_469).abs() < 1e-6, "{}", multiplier(11));
        assert!((multiplier(20) - 2.945_596).abs() < 1e-6, "{}", multiplier(20));
    }

    #[test]
    fn the_multiplier_falls_to_bloom_s_two_point_eight() {
        let multipliers: Vec<f64> = (1..2000).map(multiplier).collect();

        assert!(multipliers.windows(2).all(|pair| pair[1] <= pair[0] + 1e-3));
        assert!((multipliers[1998] - 2.80).abs() < 0.01);
    }

    #[test]
    fn a_difference_inside_the_spread_is_a_tie() {
        let around_one = [1.02, 0.97, 1.04, 0.99, 1.01, 0.98].map(|ratio| (ratio, 1.0));

        assert_eq!(compare(&around_one).unwrap().told(), Told::Tie);
        assert_eq!(compare(&[(1.0, 0.0)]), None);
    }

    #[test]
    fn five_pairs_tell_nothing_however_far_apart_and_six_do() {
        assert_eq!(compare(&[(50.0, 1.0); 5]).unwrap().told(), Told::RunMore);
        assert_eq!(compare(&[(50.0, 1.0); 6]).unwrap().told(), Told::Apart);
        assert_eq!(compare(&[(5.0, 1.0)]).unwrap().told(), Told::RunMore);
    }

    #[test]
    fn an_effect_below_the_smallest_detectable_one_is_a_tie_though_the_interval_excludes_one() {
        let all_above = [1.001, 1.001, 1.001, 1.001, 1.001, 1.9].map(|ratio| (ratio, 1.0));

        let found = compare(&all_above).unwrap();

        assert!(found.ratio.interval.unwrap()[0] > 1.0);
        assert_eq!(found.told(), Told::Tie);
    }

    #[test]
    fn a_ratio_lies_beside_any_threshold() {
        let found = compare(&[2.0, 2.02, 1.98, 2.01, 1.99, 2.0].map(|ratio| (ratio, 1.0))).unwrap();

        assert_eq!(found.beside(1.5), Beside::Above);
        assert_eq!(found.beside(2.005), Beside::Between);
        assert_eq!(found.beside(3.0), Beside::Below);
        assert_eq!(compare(&[(2.0, 1.0); 3]).unwrap().beside(1.0), Beside::RunMore);
    }

    #[test]
    fn an_interval_that_touches_the_threshold_lies_on_neither_side() {
        let beside =
            |ratios: [f64; 6], threshold: f64| compare(&ratios.map(|ratio| (ratio, 1.0))).unwrap().beside(threshold);

        assert_eq!(beside([1.0, 2.0, 2.0, 2.0, 2.0, 2.0], 1.0), Beside::Between);
        assert_eq!(beside([0.5, 0.5, 0.5, 0.5, 0.5, 1.0], 1.0), Beside::Between);
        assert_eq!(beside([1.01, 2.0, 2.0, 2.0, 2.0, 2.0], 1.0), Beside::Above);
        assert_eq!(beside([2.0; 6], 0.5), Beside::Above);
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
