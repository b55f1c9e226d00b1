//! The outcome of a run as a page: one file with everything in it, with what the sentences leave out: memory over time, phases, places.

use super::call_sites::FunctionOfRun;
use super::diary::{DiaryBin, RunPhase};
use super::outcome::{RunOutcome, nearness, sentences};
use super::whereabouts::HelpedPlace;
use crate::report::plot::{self, Look, Rates};
use crate::report::series::Series;
use crate::report::{html, words};
use majorfault::{Bytes, Nanos, Result};
use minijinja::{Value, context};
use std::ffi::OsString;

/// The page about a run of `program`.
///
/// Errors: Invalid where a figure cannot be drawn or the template not be filled, which is a mistake of ours.
pub fn page(outcome: &RunOutcome, program: &[OsString]) -> Result<String> {
    let supervised = &outcome.supervised;
    let name = |word: &OsString| word.to_string_lossy().into_owned();
    let command: Vec<String> = program.iter().map(name).collect();
    let values = context! {
        title => format!("{}, within {}", command.first().cloned().unwrap_or_default(), outcome.limit.rounded()),
        command => shlex::try_join(command.iter().map(String::as_str)).unwrap_or_default(),
        sentences => sentences(outcome),
        nearness => nearness(outcome),
        unhelped => outcome.unhelped,
        timeline => timeline(outcome)?,
        bin => Nanos(supervised.diary.bin_ns()).to_string(),
        limit => outcome.limit.rounded(),
        phases => outcome.phases().iter().map(phase).collect::<Vec<_>>(),
        places => supervised.by_waits().into_iter().map(place).collect::<Vec<_>>(),
        functions => supervised.functions.iter().map(function).collect::<Vec<_>>(),
        remarks => outcome.remarks.iter().map(|it| context! { found => it.found, remedy => it.remedy }).collect::<Vec<_>>(),
        looks => context! { all => Look::ALL.hex(), mapped => Look::MAPPED.hex(), wait => Look::WAIT.hex() },
    };
    html::fill("run.html", include_str!("page.html"), values)
}

fn pages(count: u64) -> String {
    Bytes(count * rustix::param::page_size() as u64).rounded()
}

fn phase(phase: &RunPhase) -> Value {
    let RunPhase { from_ns, to_ns, kind, sum } = phase;
    context! {
        from => Nanos(*from_ns).to_string(),
        to => Nanos(*to_ns).to_string(),
        says => kind.says(),
        waits => words::count(sum.waits as f64),
        used => pages(sum.used),
        swapped => Bytes(sum.swapped).rounded(),
    }
}

fn place((process, mapping, place): (&str, &str, HelpedPlace)) -> Value {
    let HelpedPlace { waits_before, waits_after, advised } = place;
    context! {
        process, mapping,
        before => words::count(waits_before as f64),
        after => words::count(waits_after as f64),
        streams => advised.streams,
        fetched => pages(advised.fetched),
        used => pages(advised.used),
        paged_out => pages(advised.paged_out),
    }
}

fn function(it: &FunctionOfRun) -> Value {
    let HelpedPlace { waits_before, waits_after, advised } = it.place;
    context! {
        process => it.process, function => it.function,
        before => words::count(waits_before as f64),
        after => words::count(waits_after as f64),
        fetched => pages(advised.fetched),
        used => pages(advised.used),
    }
}

/// Memory, waits and help over time; empty where nothing was noted.
fn timeline(outcome: &RunOutcome) -> Result<String> {
    let diary = &outcome.supervised.diary;
    if diary.bins().is_empty() {
        return Ok(String::new());
    }
    let bin_s = diary.bin_ns() as f64 / 1e9;
    let steps = |value: &dyn Fn(&DiaryBin) -> f64| {
        let step = |(at, bin): (usize, &DiaryBin)| {
            let from_s = at as f64 * bin_s;
            [(from_s, value(bin)), (from_s + bin_s, value(bin))]
        };
        Series(diary.bins().iter().enumerate().flat_map(step).collect())
    };
    const MIB: f64 = 1_048_576.0;
    let memory =
        vec![(Look::ALL, steps(&|bin| bin.usage as f64 / MIB)), (Look::MAPPED, steps(&|bin| bin.swapped as f64 / MIB))];
    let panels = vec![
        Rates { title: "memory and swap, MiB", lines: memory },
        Rates {
            title: "faults that waited, per second",
            lines: vec![(Look::WAIT, steps(&|bin| bin.waits as f64 / bin_s))],
        },
        Rates {
            title: "pages read in ahead and used, per second",
            lines: vec![(Look::ALL, steps(&|bin| bin.used as f64 / bin_s))],
        },
    ];
    let length_s = diary.bins().len() as f64 * bin_s;
    plot::rates(panels, "timeline of memory, waits and help", "seconds since the program began", length_s)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::outcome;
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_page_has_the_sentences_the_phases_the_places_and_a_figure() {
        let page = page(&outcome(), &words(&["sort", "-n", "a b"])).unwrap();

        for part in [
            "sort, within 128 MiB",
            "sort -n &#x27;a b&#x27;",
            "[heap]",
            "merge_runs",
            "streams, read in ahead",
            "<svg role=\"img\"",
            "swap",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        assert!(!page.contains("<script"));
    }

    #[test]
    fn what_a_program_is_called_is_no_markup() {
        let page = page(&outcome(), &words(&["<b>"])).unwrap();

        assert!(!page.contains("<b>, within") && page.contains("&lt;b&gt;, within"));
    }

    #[test]
    fn a_run_of_which_nothing_was_noted_is_a_page() {
        assert!(page(&RunOutcome::default(), &[]).unwrap().contains("majorfault run"));
    }
}
