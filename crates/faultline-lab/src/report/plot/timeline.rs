//! What happened when: small multiples on one time axis, one line for each arm, of its typical run.

use super::{Anchor, Canvas, GRID, INK, Look, Scale, WIDTH, byte_ticks, draw, tick_label, ticks};
use crate::record::Record;
use crate::report::series::{self, Series};
use crate::report::{Group, counters, words};
use faultline::Result;

const LEFT: i32 = 80;
const RIGHT: i32 = 20;
/// Room above a panel for its title.
const TITLE: i32 = 34;
/// Height of the panel that matters most, and of the others.
const HIGH: i32 = 200;
const LOW: i32 = 110;
const BOTTOM: i32 = 48;

/// One panel: what is shown, and how it is read from a record.
struct Kind {
    title: &'static str,
    height: i32,
    of: fn(&Record) -> Series,
    ticks: fn(f64, f64) -> Vec<f64>,
    label: fn(f64) -> String,
}

const KINDS: [Kind; 5] = [
    Kind { title: "throughput, accesses per second", height: HIGH, of: series::throughput, ticks, label: tick_label },
    Kind {
        title: "TLB shootdowns per second, whole machine",
        height: LOW,
        of: |record| series::rate(record, &[counters::SHOOTDOWNS]),
        ticks,
        label: tick_label,
    },
    Kind {
        title: "bytes of the file in the page cache",
        height: LOW,
        of: |record| series::level(record, &[counters::CACHED_BYTES]),
        ticks: byte_ticks,
        label: words::bytes,
    },
    Kind {
        title: "memory charged to the cgroup, bytes",
        height: LOW,
        of: |record| series::level(record, &[counters::CGROUP_BYTES]),
        ticks: byte_ticks,
        label: words::bytes,
    },
    Kind { title: "pages reclaimed per second", height: LOW, of: series::reclaim, ticks, label: tick_label },
];

struct Panel {
    kind: &'static Kind,
    lines: Vec<(Look, Series)>,
}

/// Every panel that some arm has data for. Empty without any.
///
/// Errors: Invalid where the drawing cannot be made.
pub fn panels(group: &Group<'_>) -> Result<String> {
    static SHOWN: &[Kind] = &KINDS;
    let panels: Vec<Panel> =
        SHOWN.iter().map(|kind| panel(kind, group)).filter(|panel| !panel.lines.is_empty()).collect();
    if panels.is_empty() {
        return Ok(String::new());
    }
    let points = panels.iter().flat_map(|panel| &panel.lines).flat_map(|(_, series)| &series.0);
    let seconds = ticks(points.map(|(at, _)| *at).fold(0.0, f64::max), 10.0);
    let time = Scale { largest: seconds[seconds.len() - 1], from: LEFT, to: WIDTH as i32 - RIGHT };
    let height = panels.iter().map(|panel| TITLE + panel.kind.height).sum::<i32>() + BOTTOM;
    draw(height as u32, "timelines of throughput, shootdowns, memory and reclaim", |canvas| {
        let mut top = 0;
        for panel in &panels {
            paint(canvas, panel, top + TITLE, time, &seconds)?;
            top += TITLE + panel.kind.height;
        }
        foot(canvas, height - BOTTOM, time, &seconds)
    })
}

fn panel(kind: &'static Kind, group: &Group<'_>) -> Panel {
    let lines = super::shown(group).into_iter().filter_map(|(arm, look)| Some((look, (kind.of)(arm.typical()?))));
    Panel { kind, lines: lines.filter(|(_, series)| !series.is_empty()).collect() }
}

fn paint(canvas: &Canvas<'_>, panel: &Panel, top: i32, time: Scale, seconds: &[f64]) -> Result<()> {
    let largest = panel.lines.iter().map(|(_, series)| series.peak()).fold(0.0, f64::max);
    let steps = (panel.kind.ticks)(largest, 3.0);
    let scale = Scale { largest: steps[steps.len() - 1], from: top + panel.kind.height, to: top };
    canvas.text(panel.kind.title, (LEFT, top - 14), Anchor::Left, 13)?;
    for second in seconds {
        canvas.rule((time.pixel(*second), top), (time.pixel(*second), top + panel.kind.height), GRID)?;
    }
    for step in &steps {
        let y = scale.pixel(*step);
        canvas.rule((time.from, y), (time.to, y), if *step == 0.0 { INK } else { GRID })?;
        canvas.text(&(panel.kind.label)(*step), (LEFT - 8, y), Anchor::Right, 12)?;
    }
    panel.lines.iter().try_for_each(|(look, series)| {
        let begun = series.0.iter().filter(|(at, _)| *at >= 0.0);
        let points = begun.map(|(at, value)| (time.pixel(*at), scale.pixel(*value))).collect();
        canvas.line(points, *look, 2)
    })
}

fn foot(canvas: &Canvas<'_>, top: i32, time: Scale, seconds: &[f64]) -> Result<()> {
    for second in seconds {
        canvas.text(&tick_label(*second), (time.pixel(*second), top + 14), Anchor::Centre, 12)?;
    }
    canvas.text("seconds since the first access", ((time.from + time.to) / 2, top + 36), Anchor::Centre, 13)
}
