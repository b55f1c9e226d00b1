//! Which arms of a race are surely not the best: successive elimination, round by round.
//!
//! The frame is that of Hoeffding races (Maron and Moore, NIPS 1994) and of successive elimination (Even-Dar, Mannor and
//! Mansour, JMLR 2006): all that can still win run in turns, and what is behind by more than chance explains runs no more.
//! Their radius needs samples from a known range, which throughput has not; so chance is counted here instead, as in the
//! sign test: an arm is stopped where it was behind the leader in nearly *all* rounds by more than the *swing* that one
//! pair in ten shows from round to round, and by twice what its own rounds differ. The best arm loses one round by so much with p <= 0.1,
//! whatever the law and its tails; n rounds of n (n - 1 of n from five on) by p^n (n p^(n-1)), so that of K arms it is lost with
//! at most (K - 1) (0.001 + 0.0001 + 0.0005 + …), below 2 % for eleven. The simulation in the tests shows it, with the swing
//! estimated from few rounds, heavy tails and outliers.

use super::{PairedRatio, Told};

/// Runs before which no arm is stopped.
pub const FIRST_STOP: usize = 3;

/// Numbers of runs after which a race asks whether its answer is sure; at the last it ends.
pub const LOOKS: [usize; 5] = [6, 9, 13, 18, 25];

/// The smallest effect of interest: arms nearer to each other are tied for whoever has to choose, and none of them is stopped.
pub const INTEREST: f64 = 0.10;

/// Share of the swings from round to round that are below the common one: in absolute terms eight of ten, and so nine of ten
/// in one direction.
const COMMON: f64 = 0.8;

/// How many times its own range of rounds an arm must be behind: the range of three rounds is short by chance.
const OWN: f64 = 2.0;

/// Rounds for each one that may be an outlier on either side.
const FORGIVEN_ONE_IN: usize = 5;

/// Which arms are surely behind the leader, from the leader's throughput as a multiple of theirs, each round.
///
/// Arms that were stopped before may be among them: their rounds tell of the common swing, too.
pub fn behind(leads: &[Vec<f64>]) -> Vec<bool> {
    let logs: Vec<Vec<f64>> = leads.iter().map(|ratios| logarithms(ratios)).collect();
    let common = quantile(logs.iter().flat_map(|rounds| swings(rounds)).collect(), COMMON);
    logs.into_iter().map(|rounds| is_behind(rounds, common)).collect()
}

/// Whether more runs would change nothing about the leader and this arm: its lead shows, or is surely too small to matter.
pub fn settled(lead: &PairedRatio) -> bool {
    let is_within = |[low, high]: [f64; 2]| low >= 1.0 / (1.0 + INTEREST) && high <= 1.0 + INTEREST;
    match lead.told() {
        Told::Apart => true,
        Told::Tie => lead.ratio.interval.is_some_and(is_within),
        Told::RunMore => false,
    }
}

fn is_behind(mut rounds: Vec<f64>, common: f64) -> bool {
    if rounds.len() < FIRST_STOP {
        return false;
    }
    rounds.sort_by(f64::total_cmp);
    let forgiven = rounds.len() / FORGIVEN_ONE_IN;
    let (least, most) = (rounds[forgiven], rounds[rounds.len() - 1 - forgiven]);
    least > (OWN * (most - least)).max(common).max(INTEREST.ln_1p())
}

fn logarithms(ratios: &[f64]) -> Vec<f64> {
    ratios.iter().filter(|ratio| ratio.is_finite() && **ratio > 0.0).map(|ratio| ratio.ln()).collect()
}

/// How far each two rounds lie apart.
fn swings(rounds: &[f64]) -> Vec<f64> {
    let later = |at: usize| rounds[at + 1..].iter().map(move |other| (rounds[at] - other).abs());
    (0..rounds.len()).flat_map(later).collect()
}

/// The sample below which so large a share of them lies; 0 of none.
fn quantile(mut samples: Vec<f64>, share: f64) -> f64 {
    let Some(last) = samples.len().checked_sub(1) else { return 0.0 };
    let at = ((samples.len() as f64 * share) as usize).min(last);
    *samples.select_nth_unstable_by(at, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{self, Looks};

    /// Draws by a linear congruence (Knuth's MMIX constants), in (0, 1).
    struct Draws(u64);

    impl Draws {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        /// Box and Muller (1958).
        fn normal(&mut self) -> f64 {
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
        }

        /// Student's t with two degrees of freedom, whose variance is infinite.
        fn heavy(&mut self) -> f64 {
            let number = self.uniform();
            (2.0 * number - 1.0) / (2.0 * number * (1.0 - number)).sqrt()
        }
    }

    /// Laws of one run's deviation, on the logarithmic scale.
    #[derive(Clone, Copy, Debug)]
    enum Law {
        Normal(f64),
        Heavy(f64),
        /// Now and then so many times slower, besides a little noise.
        Outliers(f64, f64),
        /// As the first arm's own noise; all others are calm.
        OneIsWild(f64),
    }

    fn noise(law: Law, arm: usize, draws: &mut Draws) -> f64 {
        match law {
            Law::Normal(spread) => spread * draws.normal(),
            Law::Heavy(spread) => spread * draws.heavy(),
            Law::Outliers(share, factor) => {
                let slow = if draws.uniform() < share { -factor.ln() } else { 0.0 };
                slow + 0.03 * draws.normal()
            }
            Law::OneIsWild(spread) if arm == 0 => spread * draws.normal(),
            Law::OneIsWild(_) => 0.02 * draws.normal(),
        }
    }

    /// A race of arms with these true levels; what each round gave, by arm, and how often each arm ran.
    fn raced(levels: &[f64], law: Law, baseline: usize, draws: &mut Draws) -> Vec<Vec<f64>> {
        let mut runs: Vec<Vec<f64>> = vec![Vec::new(); levels.len()];
        let mut stopped = vec![false; levels.len()];
        for round in 1..=LOOKS[LOOKS.len() - 1] {
            // All arms of a round have the machine's mood in common.
            let mood = 0.3 * draws.normal();
            for arm in (0..levels.len()).filter(|arm| !stopped[*arm]) {
                runs[arm].push((levels[arm].ln() + mood + noise(law, arm, draws)).exp());
            }
            let leader = leader(&runs, &stopped);
            let leads: Vec<Vec<f64>> = runs.iter().map(|own| ratios(&runs[leader], own)).collect();
            for (arm, is_behind) in behind(&leads).into_iter().enumerate() {
                stopped[arm] |= is_behind && arm != baseline;
            }
            let is_settled =
                |arm: &usize| *arm == leader || stopped[*arm] || settled(&compared(&runs[leader], &runs[*arm]));
            if LOOKS.contains(&round) && (0..levels.len()).all(|arm| is_settled(&arm)) {
                return runs;
            }
        }
        runs
    }

    fn leader(runs: &[Vec<f64>], stopped: &[bool]) -> usize {
        let median = |arm: &usize| stats::median(&runs[*arm]).unwrap();
        let racing = (0..runs.len()).filter(|arm| !stopped[*arm]);
        racing.max_by(|one, other| median(one).total_cmp(&median(other))).unwrap()
    }

    fn ratios(first: &[f64], second: &[f64]) -> Vec<f64> {
        first.iter().zip(second).map(|(first, second)| first / second).collect()
    }

    fn compared(first: &[f64], second: &[f64]) -> PairedRatio {
        let pairs: Vec<(f64, f64)> = first.iter().copied().zip(second.iter().copied()).collect();
        stats::compare_at(&pairs, Looks::Repeated).unwrap()
    }

    const LAWS: [Law; 10] = [
        Law::Normal(0.02),
        Law::Normal(0.1),
        Law::Normal(0.5),
        Law::Heavy(0.02),
        Law::Heavy(0.2),
        Law::Outliers(0.05, 4.0),
        Law::Outliers(0.1, 10.0),
        Law::Outliers(0.25, 3.0),
        Law::OneIsWild(0.1),
        Law::OneIsWild(0.5),
    ];

    /// Races of each kind; more where somebody asks (`MAJORFAULT_RACES=4000 cargo test --release -p majorfault-lab --lib stats::race`).
    fn races() -> usize {
        std::env::var("MAJORFAULT_RACES").ok().and_then(|text| text.parse().ok()).unwrap_or(120)
    }

    /// Says how often something was so, where somebody asked for more races, and gives it back as a share.
    fn share(count: usize, what: &str) -> f64 {
        let all = races();
        if std::env::var_os("MAJORFAULT_RACES").is_some() {
            eprintln!("{what}: {count} of {all}");
        }
        count as f64 / all as f64
    }

    /// Three standard deviations of the share that is seen in so many races where it is one in twenty.
    fn chance() -> f64 {
        3.0 * (0.05 * 0.95 / races() as f64).sqrt()
    }

    /// Levels of so many arms: the first is the best, and the others are that near to it.
    fn field(arms: usize, others: f64) -> Vec<f64> {
        (0..arms).map(|arm| if arm == 0 { 1.0 } else { others }).collect()
    }

    #[test]
    fn the_best_arm_is_stopped_in_fewer_than_one_race_in_twenty_whatever_the_noise() {
        let (mut draws, mut wrong) = (Draws(2006), Vec::new());
        for law in LAWS {
            for (arms, others) in [(3, 1.0), (11, 1.0), (11, 0.9)] {
                let levels = field(arms, others);
                // The baseline is the last arm, so that the best one is not protected.
                let is_lost = |runs: &Vec<Vec<f64>>| runs[0].len() < runs[arms - 1].len();
                let lost = (0..races()).map(|_| raced(&levels, law, arms - 1, &mut draws)).filter(is_lost).count();

                let what = format!("{law:?}, {arms} arms, the others at {others}: lost");
                wrong.extend((share(lost, &what) >= 0.05).then(|| format!("{what} {lost}")));
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn the_interval_of_two_arms_holds_their_true_ratio_in_nineteen_races_of_twenty_wherever_the_race_ends() {
        let (mut draws, mut wrong) = (Draws(1994), Vec::new());
        for law in LAWS {
            for others in [1.0, 0.85] {
                let levels = field(4, others);
                // An arm that was stopped early claims no more than its few runs cover.
                let holds = |runs: &Vec<Vec<f64>>| {
                    let [low, high] = compared(&runs[0], &runs[3]).ratio.interval.unwrap();
                    runs[0].len() < stats::LEAST || (low..=high).contains(&(1.0 / others))
                };
                let held = (0..races()).map(|_| raced(&levels, law, 3, &mut draws)).filter(holds).count();

                let what = format!("{law:?}, 4 arms, the others at {others}: the interval held");
                wrong.extend((share(held, &what) < 0.95 - chance()).then(|| format!("{what} {held}")));
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn who_is_clearly_behind_runs_three_times() {
        let mut draws = Draws(7);

        let runs = raced(&[1.0, 0.98, 0.4, 0.05, 0.001], Law::Normal(0.03), 4, &mut draws);

        assert_eq!([runs[2].len(), runs[3].len()], [3, 3]);
        assert!(runs[0].len() >= 6 && runs[1].len() == runs[0].len() && runs[4].len() == runs[0].len());
    }

    #[test]
    fn whoever_was_near_the_leader_once_among_four_is_not_stopped_and_once_among_five_is() {
        let near = |rounds: &[f64]| behind(&[rounds.to_vec()])[0];

        assert!(near(&[4.0, 4.1, 4.0]) && !near(&[4.0, 4.1]));
        assert!(!near(&[4.0, 4.1, 4.0, 1.05]));
        assert!(near(&[4.0, 4.1, 4.0, 1.05, 4.1]));
    }

    #[test]
    fn what_swings_as_far_as_it_is_behind_is_not_stopped_nor_is_what_nobody_would_care_about() {
        let near = |rounds: &[f64]| behind(&[rounds.to_vec()])[0];

        assert!(!near(&[2.0, 4.0, 8.0]), "behind by a factor of 2, which is less than it swings");
        assert!(!near(&[1.09, 1.09, 1.09]), "behind by 9 %");
        assert!(near(&[1.11, 1.11, 1.11]));
    }

    #[test]
    fn what_others_swing_counts_for_all() {
        let calm = vec![1.3, 1.3, 1.3];
        let wild: Vec<Vec<f64>> = (0..4).map(|_| vec![1.0, 2.0, 0.5]).collect();

        assert!(behind(std::slice::from_ref(&calm))[0]);
        assert!(!behind(&[&wild[..], &[calm]].concat())[4]);
    }

    #[test]
    fn ratios_that_are_no_numbers_are_no_rounds() {
        assert!(!behind(&[vec![4.0, f64::INFINITY, 4.0, 0.0]])[0]);
        assert!(behind(&[]).is_empty());
    }

    #[test]
    fn a_lead_is_settled_where_it_shows_or_where_nobody_would_care() {
        let told = |ratios: [f64; 6]| settled(&compared(&ratios, &[1.0; 6]));

        assert!(told([2.0, 2.1, 2.0, 1.9, 2.0, 2.0]));
        assert!(told([1.02, 0.97, 1.04, 0.99, 1.01, 0.98]), "within a tenth");
        assert!(!told([1.2, 0.97, 1.04, 0.99, 1.01, 0.98]));
        assert!(!settled(&compared(&[2.0; 5], &[1.0; 5])));
    }
}
