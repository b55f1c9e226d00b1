//! What happened when: small multiples on one time axis, one line for each arm, of its typical run.

use super::{Anchor, Canvas, GRID, INK, Look, Scale, WIDTH, byte_ticks, draw, tick_label, ticks};
use crate::record::Record;
use crate::report::series::{self, Series};
use crate::report::{Group, counters, words};
use majorfault::Result;

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

/// Rates over one time axis, for [`rates`].
pub struct Rates {
    /// What the axis shows, with its unit.
    pub title: &'static str,
    /// Values at seconds, with their looks.
    pub lines: Vec<(Look, Series)>,
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
    title: &'static str,
    height: i32,
    ticks: fn(f64, f64) -> Vec<f64>,
    label: fn(f64) -> String,
    lines: Vec<(Look, Series)>,
}

/// Every panel that some arm has data for. Empty without any.
///
/// Errors: Invalid where the drawing cannot be made.
pub fn panels(group: &Group<'_>) -> Result<String> {
    let panels: Vec<Panel> =
        KINDS.iter().map(|kind| panel(kind, group)).filter(|panel| !panel.lines.is_empty()).collect();
    if panels.is_empty() {
        return Ok(String::new());
    }
    let points = panels.iter().flat_map(|panel| &panel.lines).flat_map(|(_, series)| &series.0);
    let seconds = ticks(points.map(|(at, _)| *at).fold(0.0, f64::max), 10.0);
    let time = time_axis(seconds[seconds.len() - 1]);
    let what = "timelines of throughput, shootdowns, memory and reclaim";
    stacked(&panels, what, "seconds since the first access", time)
}

/// A panel for each, the first one high, over one axis of `length_s` seconds.
///
/// Errors: Invalid where the drawing cannot be made.
pub fn rates(rates: Vec<Rates>, what: &str, axis: &str, length_s: f64) -> Result<String> {
    let heights = std::iter::once(HIGH).chain(std::iter::repeat(LOW));
    let panel = |(Rates { title, lines }, height)| Panel { title, height, ticks, label: tick_label, lines };
    let panels: Vec<Panel> = rates.into_iter().zip(heights).map(panel).collect();
    stacked(&panels, what, axis, time_axis(length_s))
}

/// The axis of time that figures have in common.
pub(super) fn time_axis(length_s: f64) -> Scale {
    Scale { largest: length_s, from: LEFT, to: WIDTH as i32 - RIGHT }
}

/// Round seconds on an axis of time.
pub(super) fn seconds_on(time: Scale) -> Vec<f64> {
    let mut seconds = ticks(time.largest, 10.0);
    seconds.retain(|second| *second <= time.largest * (1.0 + 1e-9));
    seconds
}

fn stacked(panels: &[Panel], what: &str, axis: &str, time: Scale) -> Result<String> {
    let seconds = seconds_on(time);
    let height = panels.iter().map(|panel| TITLE + panel.height).sum::<i32>() + BOTTOM;
    draw(height as u32, what, |canvas| {
        let mut top = 0;
        for panel in panels {
            paint(canvas, panel, top + TITLE, time, &seconds)?;
            top += TITLE + panel.height;
        }
        foot(canvas, height - BOTTOM, time, axis)
    })
}

fn panel(kind: &Kind, group: &Group<'_>) -> Panel {
    let lines = super::shown(group).into_iter().filter_map(|(arm, look)| Some((look, (kind.of)(arm.typical()?))));
    let Kind { title, height, ticks, label, .. } = *kind;
    Panel { title, height, ticks, label, lines: lines.filter(|(_, series)| !series.is_empty()).collect() }
}

fn paint(canvas: &Canvas<'_>, panel: &Panel, top: i32, time: Scale, seconds: &[f64]) -> Result<()> {
    let largest = panel.lines.iter().map(|(_, series)| series.peak()).fold(0.0, f64::max);
    let steps = (panel.ticks)(largest, 3.0);
    let scale = Scale { largest: steps[steps.len() - 1], from: top + panel.height, to: top };
    canvas.text(panel.title, (LEFT, top - 14), Anchor::Left, 13)?;
    for second in seconds {
        canvas.rule((time.pixel(*second), top), (time.pixel(*second), top + panel.height), GRID)?;
    }
    for step in &steps {
        let y = scale.pixel(*step);
        canvas.rule((time.from, y), (time.to, y), if *step == 0.0 { INK } else { GRID })?;
        canvas.text(&(panel.label)(*step), (LEFT - 8, y), Anchor::Right, 12)?;
    }
    panel.lines.iter().try_for_each(|(look, series)| {
        let begun = series.0.iter().filter(|(at, _)| *at >= 0.0);
        let points = begun.map(|(at, value)| (time.pixel(*at), scale.pixel(*value))).collect();
        canvas.line(points, *look, 2)
    })
}

/// The seconds below a figure, and what they are counted from.
pub(super) fn foot(canvas: &Canvas<'_>, top: i32, time: Scale, axis: &str) -> Result<()> {
    for second in seconds_on(time) {
        canvas.text(&tick_label(second), (time.pixel(second), top + 14), Anchor::Centre, 12)?;
    }
    canvas.text(axis, ((time.from + time.to) / 2, top + 36), Anchor::Centre, 13)
}
