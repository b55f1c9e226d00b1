//! The page: one file with everything in it, no script, no network; figures first, every sample after.
//!
//! This fills a template (`page.html`) with texts; all numbers are formatted here, all layout is there.

use super::plot::{self, Look};
use super::verdict::Standing;
use super::{
    ArmSummary, Group, Role, State, Summary, Trouble, conditions, derive, question, race, stage, terminal, words,
};
use crate::record::{Buckets, GateFinding, Record};
use majorfault::{Error, Result};
use minijinja::{Environment, Value, context};
use std::collections::BTreeSet;

/// The page about `summary`.
///
/// Errors: Invalid where a figure cannot be drawn or the template not be filled, which is a mistake of ours.
pub fn page(summary: &Summary<'_>) -> Result<String> {
    let groups = summary.groups.iter().map(group).collect::<Result<Vec<Value>>>()?;
    let formulas: Vec<Value> =
        derive::ALL.iter().map(|formula| context! { name => formula.title, says => formula.says }).collect();
    fill("page.html", include_str!("page.html"), context! { groups, formulas })
}

/// The template `text` with the common style sheet, filled with `values`.
///
/// Errors: Invalid where it cannot be filled, which is a mistake of ours.
pub fn fill(name: &str, text: &str, values: Value) -> Result<String> {
    let colours: Vec<Value> =
        plot::STYLE_COLOURS.iter().map(|(light, dark)| context! { light => light, dark => dark }).collect();
    let mut environment = Environment::new();
    let filled = environment
        .add_template("style.html", include_str!("style.html"))
        .and_then(|()| environment.add_template(name, text))
        .and_then(|()| environment.get_template(name)?.render(context! { colours, ..values }));
    filled.map_err(|why| Error::Invalid(format!("could not fill the page: {why:#}")))
}

fn group(group: &Group<'_>) -> Result<Value> {
    let looks = plot::looks(group);
    let arms: Vec<Value> = group.arms.iter().zip(&looks).map(|(arm, look)| arm_row(arm, *look)).collect();
    let shown: Vec<Value> = plot::shown(group)
        .into_iter()
        .map(|(arm, look)| context! { name => arm.name, look => look_of(look) })
        .collect();
    Ok(context! {
        session => group.session,
        title => title(group),
        answer => group.verdict.answer.says,
        is_judged => group.verdict.standing == Standing::Judged,
        rank => group.verdict.answer.rank,
        basis => group.verdict.answer.basis,
        heading => question::heading(group),
        cut_short => race::cut_short(group),
        remark => question::remark(group),
        troubles => sentences(&group.troubles, group.runs()),
        noted => sentences(&group.noted, group.runs()),
        evidence => group.verdict.evidence,
        advice => group.advice.iter().map(|advice| context! { says => advice.says, because => advice.because }).collect::<Vec<_>>(),
        machine => pairs(conditions::machine(group)),
        workload => pairs(conditions::workload(group)),
        remarks => group.machine.remarks,
        conditions => one_line(group),
        arms => arms,
        job_titles => stage::TITLES,
        jobs => stage::rows(group),
        queues => group.arms.iter().any(|arm| !arm.queueing.0.is_empty()),
        legend => shown,
        bars => plot::throughput(group)?,
        bars_caption => bars_caption(group),
        timeline => plot::panels(group)?,
        phases => phases(group),
        curves => plot::curves(group)?,
        curves_caption => curves_caption(group),
        figures => figures(group),
        runs => group.arms.iter().flat_map(|arm| arm.records.iter().map(|record| run(arm, record))).collect::<Vec<_>>(),
        gates => gates(group),
        missing => missing(group),
        notes => notes(group),
        command => conditions::command(group),
    })
}

fn title(group: &Group<'_>) -> String {
    let workload = conditions::workload(group);
    let word = |name| conditions::named(&workload, name);
    format!("{}, blocks of {}, {}", word("workload"), word("bs"), word("size"))
}

/// What every caption ends with.
fn one_line(group: &Group<'_>) -> String {
    let (machine, workload) = (conditions::machine(group), conditions::workload(group));
    let of = |name: &str| format!("{name} {}", conditions::named(&workload, name));
    let memory = format!("memory limit {}", conditions::named(&machine, "memory limit"));
    let window = format!("read_ahead_kb {}", conditions::named(&machine, "read_ahead_kb"));
    let kernel = format!("kernel {}", group.machine.kernel);
    [of("workload"), of("bs"), of("cache"), memory, of("threads"), of("iodepth"), window, kernel, of("repetitions")]
        .join(" · ")
}

fn look_of(look: Look) -> Value {
    context! { hex => look.hex(), dashed => look.is_dashed() }
}

fn pairs(conditions: Vec<(&'static str, String)>) -> Vec<Value> {
    conditions.into_iter().map(|(name, value)| context! { name => name, value => value }).collect()
}

fn arm_row(arm: &ArmSummary<'_>, look: Look) -> Value {
    let figure = |formula: &derive::Formula| arm.median(formula).map_or_else(unknown, formula.number);
    let quantile =
        |found: &Buckets, at| derive::percentile(found, at).map_or_else(unknown, |ns| words::nanos(ns as f64));
    let latency = |at| quantile(&arm.latency, at);
    let (word, reasons) = state(arm);
    let stopped = arm.stopped.map(|rounds| format!("stopped after {rounds}"));
    context! {
        name => arm.name,
        look => look_of(look),
        state => word,
        stopped => stopped,
        reasons => reasons,
        drawn => arm.is_measured() && arm.role != Role::Control,
        throughput => figure(&derive::THROUGHPUT),
        bandwidth => figure(&derive::BANDWIDTH),
        ratio => arm.ratio.as_ref().map_or_else(unknown, terminal::ratio),
        p50 => latency(0.5),
        p90 => latency(0.9),
        p99 => latency(0.99),
        p999 => latency(0.999),
        max => latency(1.0),
        queueing => (!arm.queueing.0.is_empty()).then(|| [0.5, 0.99].map(|at| quantile(&arm.queueing, at)).join(" / ")),
        settings => arm.typical().map(settings).unwrap_or_default(),
    }
}

fn sentences(troubles: &[Trouble], all: usize) -> Vec<String> {
    troubles.iter().map(|trouble| trouble.sentence(all)).collect()
}

fn unknown() -> String {
    words::UNKNOWN.to_owned()
}

fn state(arm: &ArmSummary<'_>) -> (&'static str, Vec<String>) {
    match &arm.state {
        State::Measured(_) => {
            let word = match arm.role {
                Role::Control => "control",
                Role::Peer => "peer",
                Role::Method => "",
            };
            (word, Vec::new())
        }
        State::Invalid(_) => ("invalid", Vec::new()),
        State::Missing(why) => ("not here", vec![why.clone()]),
        State::Failed(why) => ("failed", vec![why.clone()]),
    }
}

fn settings(record: &Record) -> String {
    let pairs: Vec<String> = record.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}

fn bars_caption(group: &Group<'_>) -> String {
    let rate = |arm: &ArmSummary<'_>| arm.median(&derive::THROUGHPUT);
    let says = |arm: &ArmSummary<'_>| Some(format!("{} makes {}", arm.name, words::per_second(rate(arm)?)));
    let (best, slowest) = (group.best(), group.methods().last());
    let extremes = match (best.and_then(says), slowest.and_then(says)) {
        (Some(best), Some(slowest)) if best != slowest => format!("{best}, {slowest}."),
        (Some(only), _) => format!("{only}."),
        _ => "No method has valid figures.".to_owned(),
    };
    let control = group.control().and_then(rate);
    let control =
        control.map(|rate| format!(" The null control, which reads nothing, makes {}.", words::per_second(rate)));
    format!("{extremes}{}", control.unwrap_or_default())
}

fn phases(group: &Group<'_>) -> Vec<Value> {
    let found = group.arms.iter().filter_map(|arm| Some((&arm.name, arm.phases.as_ref()?)));
    found.map(|(name, says)| context! { name => name, says => says }).collect()
}

fn curves_caption(group: &Group<'_>) -> String {
    let tail = |arm: &ArmSummary<'_>| derive::percentile(&arm.latency, 0.99);
    let timed =
        || group.arms.iter().filter(|arm| arm.role != Role::Control && arm.is_measured() && tail(arm).is_some());
    let says = |arm: &ArmSummary<'_>| format!("{} with {}", words::nanos(tail(arm).unwrap_or(0) as f64), arm.name);
    match (timed().min_by_key(|arm| tail(arm)), timed().max_by_key(|arm| tail(arm))) {
        (Some(calm), Some(wild)) if calm.name != wild.name => {
            format!("99 % of accesses end within {}, within {}.", says(calm), says(wild))
        }
        (Some(only), _) => format!("99 % of accesses end within {}.", says(only)),
        _ => "No accesses of valid runs were timed.".to_owned(),
    }
}

/// Columns of one table of figures: more would not fit the page with their intervals.
const COLUMNS: usize = 7;

/// Tables of every formula that some arm has a value for: medians with intervals.
fn figures(group: &Group<'_>) -> Vec<Value> {
    let arms: Vec<&ArmSummary<'_>> = group.arms.iter().filter(|arm| arm.is_measured()).collect();
    let known = |formula: &&derive::Formula| arms.iter().any(|arm| arm.median(formula).is_some());
    let formulas: Vec<&derive::Formula> = derive::ALL.iter().copied().filter(known).collect();
    let row = |arm: &ArmSummary<'_>, formulas: &[&derive::Formula]| {
        let cells: Vec<Value> = formulas.iter().map(|formula| figure_cell(arm, formula)).collect();
        context! { name => arm.name, cells => cells }
    };
    let table = |formulas: &[&derive::Formula]| {
        let titles: Vec<&str> = formulas.iter().map(|formula| formula.title).collect();
        context! { titles => titles, rows => arms.iter().map(|arm| row(arm, formulas)).collect::<Vec<_>>() }
    };
    formulas.chunks(COLUMNS).map(table).collect()
}

/// Median and, where three digits show a difference, the interval.
fn figure_cell(arm: &ArmSummary<'_>, formula: &derive::Formula) -> Value {
    let found = arm.figure(formula);
    let median = found.map_or_else(unknown, |found| (formula.number)(found.median));
    let edges = found.and_then(|found| found.interval).map(|interval| interval.map(formula.number));
    let interval =
        edges.filter(|edges| edges.iter().any(|edge| *edge != median)).map(|[low, high]| format!("{low} – {high}"));
    context! { median => median, interval => interval }
}

/// One run as it was seen.
fn run(arm: &ArmSummary<'_>, record: &Record) -> Value {
    let wall = |name: &str| record.phase(name).map_or_else(unknown, |phase| words::nanos(phase.wall_ns as f64));
    let rate = (derive::THROUGHPUT.of)(record).map_or_else(unknown, words::per_second);
    let outcome = match (&record.outcome, record.is_valid()) {
        (_, true) => "valid",
        (crate::record::Outcome::Done, false) => "spoiled",
        (crate::record::Outcome::Missing(_), _) => "not here",
        (crate::record::Outcome::Failed(_), _) => "failed",
        (crate::record::Outcome::Interrupted, _) => "interrupted",
    };
    context! {
        name => arm.name,
        repetition => record.trial.repetition.saturating_add(1),
        outcome => outcome,
        accesses => record.accesses(),
        bytes => words::bytes(record.bytes() as f64),
        open => wall("open"),
        visit => wall("visit"),
        close => wall("close"),
        throughput => rate,
        cached => record.cache.resident_before_bytes.map_or_else(unknown, |bytes| words::bytes(bytes as f64)),
    }
}

/// What every gate found: the sentences that are not simply fine with their runs, the fine ones counted.
fn gates(group: &Group<'_>) -> Vec<Value> {
    let records = || group.arms.iter().flat_map(|arm| arm.records.iter().map(move |record| (arm, record)));
    let names: BTreeSet<&str> =
        records().flat_map(|(_, record)| &record.gates).map(|gate| gate.name.as_str()).collect();
    let of = |name: &str| {
        let found: Vec<_> = records()
            .flat_map(|(arm, record)| record.gates.iter().map(move |gate| (arm, record, gate)))
            .filter(|(_, _, gate)| gate.name == name)
            .collect();
        let fine = found.iter().filter(|(_, _, gate)| gate.finding == GateFinding::Fine).count();
        let others =
            found.iter().filter(|(_, _, gate)| gate.finding != GateFinding::Fine).map(|(arm, record, gate)| {
                let word = if gate.finding == GateFinding::Spoiled { "spoiled" } else { "noted" };
                let run = format!("{}, repetition {}", arm.name, record.trial.repetition.saturating_add(1));
                context! { finding => word, run => run, says => gate.says }
            });
        context! { name => name, fine => fine, all => found.len(), others => others.collect::<Vec<_>>() }
    };
    names.into_iter().map(of).collect()
}

fn missing(group: &Group<'_>) -> Vec<Value> {
    let records = group.arms.iter().flat_map(|arm| &arm.records);
    let gaps: BTreeSet<(&str, &str, &str)> = records
        .flat_map(|record| &record.missing)
        .map(|gap| (gap.what.as_str(), gap.reason.as_str(), gap.remedy.as_str()))
        .collect();
    gaps.into_iter()
        .map(|(what, reason, remedy)| context! { what => what, reason => reason, remedy => remedy })
        .collect()
}

fn notes(group: &Group<'_>) -> Vec<String> {
    let noted = |arm: &ArmSummary<'_>| -> BTreeSet<String> {
        let notes = arm.records.iter().flat_map(|record| &record.notes);
        notes.map(|note| format!("{}: {note}", arm.name)).collect()
    };
    group.arms.iter().flat_map(noted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{Run, repeated, story};

    #[test]
    fn an_answer_that_is_open_does_not_look_like_one_that_is_given() {
        let of = |runs: u32| {
            let records = [repeated("mmap", 1_000, runs), repeated("direct", 4_000, runs)].concat();
            page(&Summary::of(&records)).unwrap()
        };

        assert!(of(6).contains("<p class=\"verdict\">direct is fastest"));
        assert!(of(5).contains("<p class=\"verdict open\">NO VERDICT YET"));
    }

    #[test]
    fn the_page_is_one_file_that_asks_nobody_for_anything() {
        let records = story();

        let page = page(&Summary::of(&records)).unwrap();

        for forbidden in ["<script", "src=", "@import", "url(", "<link", "href=\"http"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert_eq!(page.matches("<svg role=").count(), 3);
        if let Some(path) = std::env::var_os("MAJORFAULT_STORY_PAGE") {
            std::fs::write(path, page).unwrap();
        }
    }

    #[test]
    fn what_comes_from_outside_is_text_and_never_markup() {
        let run = Run::of("mmap").failed("<b>no</b> & <script>alert(1)</script>");
        let run = run.edit(|record| record.machine.cpu = "<i>cpu</i>".to_owned());

        let page = page(&Summary::of(&[run.record()])).unwrap();

        assert!(!page.contains("<script") && !page.contains("<i>cpu") && !page.contains("<b>no"));
        assert!(page.contains("&lt;i&gt;cpu"));
    }

    #[test]
    fn every_run_is_in_the_table_of_samples() {
        let records = repeated("pread", 1_000, 7);

        let page = page(&Summary::of(&records)).unwrap();

        assert_eq!(page.matches("<td class=\"run\">").count(), 7);
    }

    #[test]
    fn twenty_arms_and_none_both_make_a_page() {
        let many: Vec<Record> =
            (1..=20).flat_map(|depth| repeated(&format!("uring depth={depth}"), depth * 900, 2)).collect();

        assert!(page(&Summary::of(&many)).is_ok());
        assert!(page(&Summary::of(&[])).unwrap().contains("no records"));
    }
}
