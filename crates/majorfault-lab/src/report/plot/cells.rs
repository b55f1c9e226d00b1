//! Cells of an experiment as bars from zero, with intervals and samples, and the published value beside each.

use super::{Anchor, COOL, Canvas, GREY, GRID, INK, PAPER, Scale, WIDTH, draw, tick_label, ticks};
use crate::stats::Estimate;
use majorfault::Result;
use plotters::style::Color;

const ROW: i32 = 30;
const TOP: i32 = 10;
const BOTTOM: i32 = 52;
const LEFT: i32 = 330;
/// Room for the value behind the longest bar.
const RIGHT: i32 = 100;

/// One bar.
pub struct Bar {
    /// The cell.
    pub name: String,
    /// Our figure.
    pub found: Estimate,
    /// What it rests on.
    pub samples: Vec<f64>,
    /// What was published.
    pub published: Option<f64>,
}

/// A bar for each cell, in the order given, over an axis named `unit`; published values as grey bars below ours.
///
/// Errors: Invalid where the drawing cannot be made.
pub fn bars(bars: &[Bar], unit: &str, number: fn(f64) -> String) -> Result<String> {
    if bars.is_empty() {
        return Ok(String::new());
    }
    let values =
        bars.iter().flat_map(|bar| [Some(bar.found.median), bar.found.interval.map(|it| it[1]), bar.published]);
    let steps = ticks(values.flatten().fold(0.0, f64::max), 5.0);
    let scale = Scale { largest: steps[steps.len() - 1], from: LEFT, to: WIDTH as i32 - RIGHT };
    let height = TOP + ROW * bars.len() as i32 + BOTTOM;
    draw(height as u32, unit, |canvas| {
        let foot = height - BOTTOM + 4;
        for step in &steps {
            let x = scale.pixel(*step);
            canvas.rule((x, TOP), (x, foot), if *step == 0.0 { INK } else { GRID })?;
            canvas.text(&tick_label(*step), (x, foot + 14), Anchor::Centre, 13)?;
        }
        canvas.text(unit, ((scale.from + scale.to) / 2, foot + 36), Anchor::Centre, 13)?;
        (0..).zip(bars).try_for_each(|(row, bar)| paint(canvas, bar, scale, TOP + ROW * row + ROW / 2, number))
    })
}

fn paint(canvas: &Canvas<'_>, bar: &Bar, scale: Scale, y: i32, number: fn(f64) -> String) -> Result<()> {
    let end = scale.pixel(bar.found.median).max(scale.from + 1);
    canvas.bar((scale.from, y - 9), (end, y + 3), COOL[0])?;
    let mut furthest = end;
    if let Some(published) = bar.published {
        let at = scale.pixel(published);
        canvas.bar((scale.from, y + 5), (at, y + 10), GREY[1])?;
        canvas.text(&number(published), (at + 8, y + 8), Anchor::Left, 11)?;
    }
    if let Some([low, high]) = bar.found.interval {
        let (low, high) = (scale.pixel(low), scale.pixel(high));
        canvas.mark((low, y - 3), (high, y - 3))?;
        furthest = furthest.max(high);
    }
    for sample in &bar.samples {
        canvas.dot((scale.pixel(*sample), y - 3), 3, PAPER.filled())?;
        canvas.dot((scale.pixel(*sample), y - 3), 2, INK.filled())?;
    }
    let name: String = bar.name.chars().take(44).collect();
    canvas.text(&name, (LEFT - 10, y - 3), Anchor::Right, 13)?;
    canvas.text(&number(bar.found.median), (furthest + 8, y - 3), Anchor::Left, 13)
}
