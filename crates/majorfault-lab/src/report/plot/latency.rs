//! Latency curves: which share of accesses had ended within which time, both axes stretched where it matters.

use super::{Anchor, Canvas, GRID, INK, Scale, WIDTH, draw};
use crate::record::Buckets;
use crate::report::{Group, words};
use majorfault::Result;

const LEFT: i32 = 80;
const RIGHT: i32 = 30;
const TOP: i32 = 34;
const PANEL: i32 = 300;
const BOTTOM: i32 = 48;

/// Shares shown on the axis; each nine has the same width: -log10(1 - share).
const SHARES: [(f64, &str); 6] =
    [(0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

/// Nines on the axis.
const NINES: f64 = 4.3;

/// One curve for each arm that figures show and whose accesses were timed. Empty without any.
///
/// Errors: Invalid where the drawing cannot be made.
pub fn curves(group: &Group<'_>) -> Result<String> {
    let timed: Vec<_> = super::shown(group).into_iter().filter(|(arm, _)| !arm.latency.0.is_empty()).collect();
    let edges = || timed.iter().flat_map(|(arm, _)| &arm.latency.0).map(|(edge, _)| decade(*edge));
    if timed.is_empty() {
        return Ok(String::new());
    }
    let lowest = edges().fold(f64::INFINITY, f64::min).floor();
    let highest = edges().fold(0.0, f64::max).ceil().max(lowest + 1.0);
    let shares = Scale { largest: NINES, from: LEFT, to: WIDTH as i32 - RIGHT };
    let times = Scale { largest: highest - lowest, from: TOP + PANEL, to: TOP };
    draw((TOP + PANEL + BOTTOM) as u32, "latency of accesses by percentile", |canvas| {
        axes(canvas, shares, times, lowest, highest)?;
        timed.iter().try_for_each(|(arm, look)| {
            let curve = points(&arm.latency).into_iter();
            canvas.line(curve.map(|(nines, ns)| (shares.pixel(nines), times.pixel(ns - lowest))).collect(), *look, 2)
        })
    })
}

/// Decade of a time: the logarithm of nanoseconds, at least one.
fn decade(ns: u64) -> f64 {
    (ns.max(1) as f64).log10()
}

fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

/// Steps of a cumulative histogram, to the last share that the number of accesses can tell.
fn points(buckets: &Buckets) -> Vec<(f64, f64)> {
    let total: f64 = buckets.0.iter().map(|(_, count)| *count as f64).sum();
    let last = nines(1.0 - 1.0 / total.max(1.0));
    let (mut ended, mut points) = (0.0, Vec::new());
    for (edge, count) in &buckets.0 {
        points.push((nines(ended / total).min(last), decade(*edge)));
        ended += *count as f64;
        points.push((nines(ended / total).min(last), decade(*edge)));
    }
    points.retain(|(nines, _)| *nines <= NINES);
    points
}

fn axes(canvas: &Canvas<'_>, shares: Scale, times: Scale, lowest: f64, highest: f64) -> Result<()> {
    canvas.text("latency of one access (logarithmic: no zero)", (LEFT, TOP - 16), Anchor::Left, 13)?;
    for power in lowest as i32..=highest as i32 {
        let y = times.pixel(f64::from(power) - lowest);
        canvas.rule((shares.from, y), (shares.to, y), GRID)?;
        canvas.text(&words::nanos(10f64.powi(power)), (LEFT - 8, y), Anchor::Right, 12)?;
    }
    for (share, label) in SHARES {
        let x = shares.pixel(nines(share));
        canvas.rule((x, TOP), (x, TOP + PANEL), GRID)?;
        canvas.text(label, (x, TOP + PANEL + 14), Anchor::Centre, 12)?;
    }
    canvas.rule((shares.from, TOP + PANEL), (shares.to, TOP + PANEL), INK)?;
    let middle = ((shares.from + shares.to) / 2, TOP + PANEL + 36);
    canvas.text("share of accesses that had ended", middle, Anchor::Centre, 13)
}
