//! How the turns stand: medians, ratios to the program as it is, and what may be said.

use super::Ran;
use super::ways;
use crate::run::gates;
use crate::stats::{self, Estimate, PairedRatio, Told};

/// What is known of a turn.
#[derive(Clone, Debug)]
pub struct TurnResult {
    /// The turn's name.
    pub name: String,
    /// Its runs, those that count.
    pub runs: Vec<Ran>,
    /// Runs that others disturbed.
    pub disturbed: Vec<Ran>,
    /// Seconds.
    pub seconds: Option<Estimate>,
    /// How many times as fast as the first turn, in the repetitions that both have.
    pub lead: Option<PairedRatio>,
    /// Why it cannot be had.
    pub refused: Option<String>,
}

/// What is known of all turns, in their order; the first is the program as it is.
#[derive(Clone, Debug)]
pub struct Standings {
    /// The turns.
    pub all: Vec<TurnResult>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// A way is faster than the program as it is, by more than chance.
    Fastest(usize),
    /// None is.
    NothingHelps,
    /// Too few runs that count.
    RunMore,
    /// Others disturbed too many runs.
    NotValid,
    /// The program as it is fails, or prints something else each time, so that there is nothing to compare with.
    NoMeasure(String),
}

impl Standings {
    /// Of these runs, by the names of the turns in their order.
    pub fn of(names: &[String], ran: &[Ran], refused: &[(String, String)]) -> Standings {
        let first: Vec<&Ran> = ran.iter().filter(|run| Some(&run.turn) == names.first()).collect();
        let standing = |name: &String| {
            let mut own = ran.iter().filter(|run| run.turn == *name);
            let not_here = refused.iter().find(|(other, _)| other == name).map(|(_, why)| why.clone());
            let refused = not_here.or_else(|| own.find_map(|run| differs(&first, run)));
            TurnResult { refused, ..TurnResult::of(name, ran, &first) }
        };
        Standings { all: names.iter().map(standing).collect() }
    }

    /// The same of commands that differ in their parameters, and may print what they like.
    pub fn between(names: &[String], ran: &[Ran]) -> Standings {
        let first: Vec<&Ran> = ran.iter().filter(|run| Some(&run.turn) == names.first()).collect();
        Standings { all: names.iter().map(|name| TurnResult::of(name, ran, &first)).collect() }
    }

    /// Whether the runs tell which way is fastest, or that none helps.
    pub fn is_answered(&self) -> bool {
        matches!(self.answer(), Decision::Fastest(_) | Decision::NothingHelps)
    }

    /// The answer.
    pub fn answer(&self) -> Decision {
        let Some(first) = self.all.first() else { return Decision::RunMore };
        if let Some(why) = &first.refused {
            return Decision::NoMeasure(why.clone());
        }
        let others: Vec<(usize, &TurnResult)> =
            self.all.iter().enumerate().skip(1).filter(|(_, standing)| standing.refused.is_none()).collect();
        if self.all.iter().any(|standing| standing.refused.is_none() && standing.runs.len() < stats::LEAST) {
            let is_disturbed = self.all.iter().any(|standing| !standing.disturbed.is_empty());
            return if is_disturbed { Decision::NotValid } else { Decision::RunMore };
        }
        let speed = |standing: &TurnResult| standing.lead.map_or(0.0, |lead| lead.ratio.median);
        let best = others.into_iter().max_by(|(_, one), (_, other)| speed(one).total_cmp(&speed(other)));
        match best {
            Some((index, best)) if best.lead.is_some_and(|lead| is_faster(&lead)) => Decision::Fastest(index),
            _ => Decision::NothingHelps,
        }
    }
}

fn is_faster(lead: &PairedRatio) -> bool {
    lead.told() == Told::Apart && lead.ratio.median > 1.0
}

impl TurnResult {
    /// The figures of the runs of this name beside the `first` turn's.
    fn of(name: &str, ran: &[Ran], first: &[&Ran]) -> TurnResult {
        let (runs, disturbed): (Vec<&Ran>, Vec<&Ran>) =
            ran.iter().filter(|run| run.turn == name).partition(|run| counts(run));
        let pairs: Vec<(f64, f64)> = runs
            .iter()
            .filter_map(|run| {
                let other = first.iter().find(|other| other.repetition == run.repetition && counts(other))?;
                Some((other.wall_ns as f64, run.wall_ns as f64))
            })
            .collect();
        let shown = if runs.is_empty() { &disturbed } else { &runs };
        let seconds: Vec<f64> = shown.iter().map(|run| run.wall_ns as f64 / 1e9).collect();
        TurnResult {
            name: name.to_owned(),
            refused: None,
            disturbed: disturbed.into_iter().cloned().collect(),
            seconds: stats::estimate(&seconds),
            lead: stats::compare(&pairs),
            runs: runs.into_iter().cloned().collect(),
        }
    }

    /// The runs that figures are shown of: those that count, else those that others disturbed.
    pub fn shown(&self) -> &[Ran] {
        if self.runs.is_empty() { &self.disturbed } else { &self.runs }
    }
}

/// Whether a run's time says something.
pub fn counts(run: &Ran) -> bool {
    run.others.is_none_or(|share| share < gates::BUSY.1)
}

/// Why a run is not one of the same program with the same result.
fn differs(first: &[&Ran], run: &Ran) -> Option<String> {
    let usual = first.first()?;
    if run.is_killed {
        return Some("the kernel killed it for want of memory; give --memory more".to_owned());
    }
    if run.code != usual.code {
        return Some(format!("it ends with {} instead of {}: {}", run.code, usual.code, last_line(&run.errors)));
    }
    if run.output != usual.output {
        let whose = if run.turn == usual.turn { "each run" } else { "it" };
        return Some(format!(
            "{whose} prints something else ({} bytes, and {} in the first run of {})",
            run.output.0, usual.output.0, usual.turn
        ));
    }
    None
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().next_back().unwrap_or("it says nothing")
}

/// The name of what others are compared with.
pub fn usual() -> &'static str {
    ways::ALL[0].name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(turn: &str, repetition: u32, seconds: f64) -> Ran {
        Ran {
            turn: turn.to_owned(),
            repetition,
            wall_ns: (seconds * 1e9) as u64,
            code: 0,
            output: (3, 77),
            errors: String::new(),
            counters: Default::default(),
            others: Some(0.0),
            is_killed: false,
        }
    }

    fn series(turn: &str, seconds: f64, count: u32) -> Vec<Ran> {
        (0..count).map(|repetition| ran(turn, repetition, seconds * (1.0 + f64::from(repetition % 3) * 0.01))).collect()
    }

    fn standings(ran: &[Ran]) -> Standings {
        Standings::of(&["untouched", "assist", "load"].map(str::to_owned), ran, &[])
    }

    fn three(assist: f64, load: f64) -> Vec<Ran> {
        [series("untouched", 3.0, 6), series("assist", assist, 6), series("load", load, 6)].concat()
    }

    #[test]
    fn the_fastest_way_is_named_with_its_lead() {
        let found = standings(&three(1.0, 2.0));

        assert_eq!(found.answer(), Decision::Fastest(1));
        assert!((found.all[1].lead.unwrap().ratio.median - 3.0).abs() < 1e-9);
    }

    #[test]
    fn ways_that_are_slower_or_equal_do_not_help() {
        assert_eq!(standings(&three(3.0, 6.0)).answer(), Decision::NothingHelps);
        assert_eq!(standings(&three(3.1, 3.2)).answer(), Decision::NothingHelps);
    }

    #[test]
    fn five_runs_are_too_few() {
        let five: Vec<Ran> = three(1.0, 2.0).into_iter().filter(|run| run.repetition < 5).collect();

        assert_eq!(standings(&five).answer(), Decision::RunMore);
    }

    #[test]
    fn a_disturbed_run_does_not_count_and_forbids_an_answer() {
        let with = |share| {
            let mut runs = three(1.0, 2.0);
            runs[7].others = Some(share);
            standings(&runs)
        };

        assert_eq!(with(0.249).answer(), Decision::Fastest(1));
        assert_eq!((with(0.25).answer(), with(0.25).all[1].disturbed.len()), (Decision::NotValid, 1));
    }

    #[test]
    fn a_way_that_changes_the_result_is_refused() {
        let changed = |change: fn(&mut Ran)| {
            let mut runs = three(1.0, 2.0);
            change(&mut runs[8]);
            let found = standings(&runs);
            (found.answer(), found.all[1].refused.clone().unwrap())
        };

        let (answer, why) = changed(|run| run.output = (4, 78));
        assert_eq!(
            (answer, why.as_str()),
            (Decision::Fastest(2), "it prints something else (4 bytes, and 3 in the first run of untouched)")
        );
        let (_, why) = changed(|run| (run.code, run.errors) = (1, "a\nno file\n".to_owned()));
        assert_eq!(why, "it ends with 1 instead of 0: no file");
        assert_eq!(
            changed(|run| run.is_killed = true).1,
            "the kernel killed it for want of memory; give --memory more"
        );
    }

    #[test]
    fn a_program_that_prints_something_else_each_time_is_no_measure() {
        let mut runs = three(1.0, 2.0);
        runs[1].output = (4, 78);

        let Decision::NoMeasure(why) = standings(&runs).answer() else { panic!() };
        assert!(why.starts_with("each run prints something else"), "{why}");
    }
}
