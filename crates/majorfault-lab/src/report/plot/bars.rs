//! Throughput as bars from zero, best on top, with intervals and every sample.

use super::{Anchor, Canvas, GRID, INK, Look, PAPER, Scale, WIDTH, draw, tick_label, ticks};
use crate::report::{ArmSummary, Group, derive};
use crate::stats::Estimate;
use majorfault::Result;
use plotters::style::Color;

const ROW: i32 = 34;
const TOP: i32 = 10;
const BOTTOM: i32 = 52;
const LEFT: i32 = 270;
/// Room for the value behind the longest bar.
const RIGHT: i32 = 110;

struct Bar<'g, 'a> {
    arm: &'g ArmSummary<'a>,
    look: Look,
    found: Estimate,
}

/// A bar for each arm that figures show. Empty without any.
///
/// Errors: Invalid where the drawing cannot be made.
pub fn throughput(group: &Group<'_>) -> Result<String> {
    let bars: Vec<Bar<'_, '_>> = super::shown(group)
        .into_iter()
        .filter_map(|(arm, look)| Some(Bar { arm, look, found: arm.figure(&derive::THROUGHPUT)? }))
        .collect();
    if bars.is_empty() {
        return Ok(String::new());
    }
    let largest =
        bars.iter().map(|bar| bar.found.interval.map_or(bar.found.median, |[_, high]| high)).fold(0.0, f64::max);
    let steps = ticks(largest, 5.0);
    let scale = Scale { largest: steps[steps.len() - 1], from: LEFT, to: WIDTH as i32 - RIGHT };
    let height = TOP + ROW * bars.len() as i32 + BOTTOM;
    draw(height as u32, "throughput of each method", |canvas| {
        axis(canvas, &steps, scale, height)?;
        bars.iter().enumerate().try_for_each(|(row, bar)| paint(canvas, bar, scale, TOP + ROW * row as i32 + ROW / 2))
    })
}

fn axis(canvas: &Canvas<'_>, steps: &[f64], scale: Scale, height: i32) -> Result<()> {
    let foot = height - BOTTOM + 4;
    for step in steps {
        let x = scale.pixel(*step);
        canvas.rule((x, TOP), (x, foot), if *step == 0.0 { INK } else { GRID })?;
        canvas.text(&tick_label(*step), (x, foot + 14), Anchor::Centre, 13)?;
    }
    let middle = (scale.from + scale.to) / 2;
    canvas.text("accesses per second, setup included", (middle, foot + 36), Anchor::Centre, 13)
}

fn paint(canvas: &Canvas<'_>, bar: &Bar<'_, '_>, scale: Scale, y: i32) -> Result<()> {
    let Bar { arm, look, found } = bar;
    let end = scale.pixel(found.median).max(scale.from + 1);
    canvas.bar((scale.from, y - 9), (end, y + 9), look.colour)?;
    let mut furthest = end;
    if let Some([low, high]) = found.interval {
        let (low, high) = (scale.pixel(low), scale.pixel(high));
        for (from, to) in [((low, y - 5), (low, y + 5)), ((high, y - 5), (high, y + 5)), ((low, y), (high, y))] {
            canvas.mark(from, to)?;
        }
        furthest = end.max(high);
    }
    for sample in arm.used.iter().filter_map(|record| (derive::THROUGHPUT.of)(record)) {
        canvas.dot((scale.pixel(sample), y), 3, PAPER.filled())?;
        canvas.dot((scale.pixel(sample), y), 2, INK.filled())?;
    }
    canvas.text(&label(arm), (LEFT - 12, y), Anchor::Right, 14)?;
    canvas.text(&(derive::THROUGHPUT.number)(found.median), (furthest + 10, y), Anchor::Left, 14)
}

/// The name, cut to what the left margin holds.
fn label(arm: &ArmSummary<'_>) -> String {
    let invalid = if arm.is_measured() { "" } else { " (invalid)" };
    let room = 34 - invalid.len();
    let name: String = arm.name.chars().take(room).collect();
    let cut = if arm.name.chars().count() > room { "…" } else { "" };
    format!("{name}{cut}{invalid}")
}
