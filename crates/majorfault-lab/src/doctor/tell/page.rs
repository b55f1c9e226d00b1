//! The findings as a page: one file with everything in it, including what the terminal cannot show: faults over time.
//!
//! This file fills a template (`page.html`) with texts; it formats all numbers, and the template has the layout.

use super::terminal;
use crate::doctor::{Finding, Severity};
use crate::report::plot::{self, Heat, Look, Rates};
use crate::report::series::Series;
use crate::report::{html, words};
use crate::watch::evidence::{Evidence, MappedFile};
use crate::watch::grid::{FaultTimeline, Grid, Moment};
use majorfault::{Bytes, Nanos, Result};
use minijinja::{Value, context};

/// The page with the findings and the results of replays.
///
/// Errors: Invalid where a figure cannot be drawn or the template cannot be filled, which is a bug of majorfault.
pub fn page(evidence: &Evidence, findings: &[Finding], proofs: &[String]) -> Result<String> {
    let target = &evidence.target;
    let listed = terminal::listed(evidence);
    let drawn = listed.iter().filter_map(|file| Some((*file, file.grid.as_ref()?))).take(terminal::MOST_FILES);
    let maps = drawn.map(|(file, grid)| map(evidence, file, grid)).collect::<Result<Vec<Value>>>()?;
    let timeline = evidence.timeline.as_ref().map(|timeline| rates(evidence, timeline)).transpose()?;
    let unseen = evidence.missing.first().filter(|_| evidence.faults.is_none());
    let values = context! {
        title => format!("{} ({})", terminal::safe(&target.name), target.pid),
        counts => counts(findings),
        command => terminal::safe(&target.command),
        watched => Nanos(evidence.watched.as_nanos() as u64).to_string(),
        ended => evidence.ended,
        process => terminal::process_facts(evidence).join(" · "),
        faults => terminal::fault_facts(evidence).map(|facts| facts.join(" · ")),
        findings => findings.iter().map(finding).collect::<Vec<_>>(),
        proofs,
        columns => terminal::COLUMNS,
        files => listed.iter().map(|file| row(file)).collect::<Vec<_>>(),
        timeline, maps,
        looks => context! { all => Look::ALL.hex(), mapped => Look::MAPPED.hex(), wait => Look::WAIT.hex() },
        unseen => unseen.map(|gap| gap.to_string()),
        missing => evidence.missing.iter().map(|gap| gap.to_string()).collect::<Vec<_>>(),
    };
    html::fill("doctor.html", include_str!("page.html"), values)
}

/// `1 critical, 2 warnings`.
fn counts(findings: &[Finding]) -> String {
    let count = |severity: Severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let parts = [
        (count(Severity::Critical), format!("{} critical", count(Severity::Critical))),
        (count(Severity::Warning), plural(count(Severity::Warning), "warning")),
        (count(Severity::Note), plural(count(Severity::Note), "note")),
    ];
    let said: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, says)| says).collect();
    if said.is_empty() { "nothing found".to_owned() } else { said.join(", ") }
}

fn finding(finding: &Finding) -> Value {
    context! {
        rule => finding.rule,
        scope => terminal::safe(&finding.scope),
        what => finding.what,
        remedy => terminal::remedy(finding),
        proof => finding.proof,
        severity => finding.severity.word(),
        is_bad => finding.severity > Severity::Note,
        evidence => terminal::evidence(finding),
        subjects => terminal::subjects(finding),
        consequences => terminal::consequences(finding),
    }
}

fn row(file: &MappedFile) -> Value {
    context! { path => terminal::safe(&file.label()), cells => terminal::cells(file) }
}

/// Faults and waits for each second of the watch.
fn rates(evidence: &Evidence, timeline: &FaultTimeline) -> Result<String> {
    let bin_s = timeline.bin_ns as f64 / 1e9;
    let length_s = evidence.watched.as_secs_f64();
    // The last bin ends with the watch.
    let steps = |value: fn(&Moment) -> f64| {
        let step = |(at, moment): (usize, &Moment)| {
            let from_s = at as f64 * bin_s;
            let to_s = (from_s + bin_s).min(length_s);
            let rate = value(moment) / (to_s - from_s);
            (to_s > from_s).then_some([(from_s, rate), (to_s, rate)])
        };
        Series(timeline.bins.iter().enumerate().filter_map(step).flatten().collect())
    };
    let faults =
        vec![(Look::ALL, steps(|moment| moment.faults as f64)), (Look::MAPPED, steps(|moment| moment.in_files as f64))];
    let waited = vec![(Look::WAIT, steps(|moment| moment.waited_ns as f64 / 1e6))];
    let panels = vec![
        Rates { title: "faults per second", lines: faults },
        Rates { title: "waited in faults, milliseconds per second, summed over threads", lines: waited },
    ];
    plot::rates(panels, "timeline of faults and waits", AXIS, length_s)
}

const AXIS: &str = "seconds since the watch began";

/// The heat map of a file, with its caption.
fn map(evidence: &Evidence, file: &MappedFile, grid: &Grid) -> Result<Value> {
    let touched = grid.cells.keys().map(|(_, place)| place + 1).max().unwrap_or(1).saturating_mul(grid.bin_bytes);
    // The whole file where that still shows something; otherwise its beginning, up to the last fault.
    let whole = file.size_bytes.filter(|size| *size / 4 <= touched);
    let length = whole.unwrap_or(touched);
    let heat = Heat {
        length_s: evidence.watched.as_secs_f64(),
        bin_s: grid.bin_ns as f64 / 1e9,
        length_bytes: length as f64,
        bin_bytes: grid.bin_bytes as f64,
        cells: grid.cells.iter().map(|(cell, count)| (*cell, *count)).collect(),
    };
    let most = grid.cells.values().copied().max().unwrap_or(0);
    let legend = plot::classes(most).into_iter().map(|class| {
        let says =
            if class.from == class.to { class.from.to_string() } else { format!("{} – {}", class.from, class.to) };
        context! { hex => class.look.hex(), says }
    });
    let beyond = match (whole, file.size_bytes) {
        (None, Some(size)) => format!(" No faults above {} of {}.", words::bytes(length as f64), Bytes(size).rounded()),
        _ => String::new(),
    };
    let order = file.order.as_ref().map_or("unknown".to_owned(), terminal::order);
    Ok(context! {
        path => terminal::safe(&file.path),
        svg => plot::heat_map(&heat, "faults by time and offset", AXIS)?,
        legend => legend.collect::<Vec<_>>(),
        caption => format!(
            "{} faults, {} of them waited, {} in all; order: {order}.{beyond}",
            file.faults, file.waits, Nanos(file.waited_ns)
        ),
        bins => format!("{} by {}", Nanos(grid.bin_ns), Bytes(grid.bin_bytes).rounded()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::evidence::{FaultCounts, Watched};
    use majorfault::Missing;
    use std::time::Duration;

    const LENGTH: Duration = Duration::from_secs(1);

    fn busy() -> Evidence {
        let mut grid = Grid::new(LENGTH);
        grid.add(0, 0);
        grid.add(600_000_000, 1 << 20);
        let mut timeline = FaultTimeline::new(LENGTH);
        timeline.at(600_000_000).faults = 2;
        let file = MappedFile {
            path: "/data/<b>bold</b>".to_owned(),
            faults: 2,
            size_bytes: Some(1 << 30),
            grid: Some(grid),
            ..MappedFile::default()
        };
        Evidence {
            target: Watched { pid: 42, name: "<i>server</i>".to_owned(), command: "server & co".to_owned() },
            watched: LENGTH,
            faults: Some(FaultCounts::default()),
            timeline: Some(timeline),
            files: vec![file],
            ..Evidence::default()
        }
    }

    #[test]
    fn what_comes_from_the_program_is_text_and_never_markup() {
        let page = page(&busy(), &[], &[]).unwrap();

        assert!(!page.contains("<b>bold") && !page.contains("<i>server"), "{page}");
        assert!(page.contains("&lt;b&gt;bold") && page.contains("nothing found"));
    }

    #[test]
    fn of_a_large_file_the_part_with_faults_is_shown_and_that_is_said() {
        let page = page(&busy(), &[], &[]).unwrap();

        assert!(page.contains("No faults above 1.02 MiB of 1.00 GiB."), "{page}");
    }

    #[test]
    fn where_faults_cannot_be_seen_the_page_says_why() {
        let gap = Missing::new("fault samples", "perf is forbidden", "set kernel.perf_event_paranoid=2");
        let evidence = Evidence { faults: None, timeline: None, missing: vec![gap], ..busy() };

        let page = page(&evidence, &[], &[]).unwrap();

        assert!(page.contains("Faults could not be seen") && page.contains("kernel.perf_event_paranoid"), "{page}");
        assert!(!page.contains("Faults over time"));
    }
}
