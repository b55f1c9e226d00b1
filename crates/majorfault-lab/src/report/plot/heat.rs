//! Where something happened when: bins of time across, bins of offsets upward, colour for how often.

use super::timeline::{foot, seconds_on, time_axis};
use super::{Anchor, GRID, HEAT, INK, Look, Scale, byte_ticks, draw};
use crate::report::words;
use majorfault::Result;

/// Height of the field: two and a half units for each of 128 bins.
const FIELD: i32 = 320;
const TOP: i32 = 30;
const BOTTOM: i32 = 48;

/// Counts in bins of time and offset.
#[derive(Clone, Debug)]
pub struct Heat {
    /// Length of the axis of time, which begins at 0.
    pub length_s: f64,
    /// Width of a bin of time.
    pub bin_s: f64,
    /// Length of the axis of offsets, which begins at 0.
    pub length_bytes: f64,
    /// Width of a bin of offsets.
    pub bin_bytes: f64,
    /// Counts by number of the bins of time and offset, in their order; those of 0 may be left out.
    pub cells: Vec<((u64, u64), u64)>,
}

/// A colour and the least count it stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shade {
    /// How it is drawn.
    pub look: Look,
    /// From this count on.
    pub from: u64,
    /// Up to this count.
    pub to: u64,
}

/// Classes of counts from 1 to `most`, each as many times the one before; fewer where counts are small.
pub fn classes(most: u64) -> Vec<Shade> {
    let step = |class: usize| (most as f64 + 1.0).powf(class as f64 / HEAT.len() as f64).ceil() as u64;
    let mut from: Vec<u64> = (0..HEAT.len()).map(step).filter(|from| *from <= most).collect();
    from.dedup();
    let to = from.iter().skip(1).map(|next| next - 1).chain([most]);
    let colours = &HEAT[HEAT.len() - from.len()..];
    let look = |colour| Look { colour, dashed: false };
    from.iter()
        .zip(to)
        .zip(colours)
        .map(|((from, to), colour)| Shade { look: look(*colour), from: *from, to })
        .collect()
}

/// The map. What lies beyond an axis is left out.
///
/// Errors: Invalid where the drawing cannot be made.
pub fn heat_map(heat: &Heat, what: &str, axis: &str) -> Result<String> {
    let classes = classes(heat.cells.iter().map(|(_, count)| *count).max().unwrap_or(0));
    let time = time_axis(heat.length_s);
    let bytes = Scale { largest: heat.length_bytes, from: TOP + FIELD, to: TOP };
    draw((TOP + FIELD + BOTTOM) as u32, what, |canvas| {
        canvas.text("offset in the file", (time.from, TOP - 14), Anchor::Left, 13)?;
        for second in seconds_on(time) {
            canvas.rule((time.pixel(second), TOP), (time.pixel(second), TOP + FIELD), GRID)?;
        }
        for step in byte_ticks(heat.length_bytes, 4.0).into_iter().filter(|step| *step <= heat.length_bytes) {
            let y = bytes.pixel(step);
            canvas.rule((time.from, y), (time.to, y), if step == 0.0 { INK } else { GRID })?;
            canvas.text(&words::bytes(step), (time.from - 8, y), Anchor::Right, 12)?;
        }
        let is_inside = |bar: &Bar<'_>| {
            (bar.times[0] as f64) * heat.bin_s < heat.length_s && bar.place as f64 * heat.bin_bytes < heat.length_bytes
        };
        for bar in bars(heat, &classes).into_iter().filter(is_inside) {
            let from = (time.pixel(bar.times[0] as f64 * heat.bin_s), bytes.pixel(bar.place as f64 * heat.bin_bytes));
            let to =
                (time.pixel(bar.times[1] as f64 * heat.bin_s), bytes.pixel((bar.place + 1) as f64 * heat.bin_bytes));
            // What happened stays visible, however narrow its bin.
            let to = (to.0.max(from.0 + 1), to.1.min(from.1 - 1));
            canvas.bar(from, to, bar.class.look.colour)?;
        }
        foot(canvas, TOP + FIELD, time, axis)
    })
}

/// Neighbouring bins of time with one colour.
struct Bar<'a> {
    place: u64,
    /// First, and first no more.
    times: [u64; 2],
    class: &'a Shade,
}

/// All bars; a page of these is several times smaller than one of single bins.
fn bars<'a>(heat: &Heat, classes: &'a [Shade]) -> Vec<Bar<'a>> {
    let mut cells: Vec<((u64, u64), u64)> = heat.cells.clone();
    cells.sort_by_key(|((time, place), _)| (*place, *time));
    let mut bars: Vec<Bar<'a>> = Vec::new();
    for ((time, place), count) in cells {
        let Some(class) = classes.iter().rev().find(|class| class.from <= count) else { continue };
        match bars.last_mut() {
            Some(last) if last.place == place && last.times[1] == time && last.class == class => last.times[1] += 1,
            _ => bars.push(Bar { place, times: [time, time + 1], class }),
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heat(cells: Vec<((u64, u64), u64)>) -> Heat {
        Heat { length_s: 2.0, bin_s: 0.5, length_bytes: 8192.0, bin_bytes: 4096.0, cells }
    }

    #[test]
    fn classes_hold_every_count_once_and_end_in_the_darkest() {
        for most in [1, 2, 5, 6, 40, 100_000, u64::MAX >> 12] {
            let classes = classes(most);

            assert_eq!((classes[0].from, classes[classes.len() - 1].to), (1, most));
            assert!(classes.windows(2).all(|pair| pair[0].to + 1 == pair[1].from), "{classes:?}");
            assert_eq!(classes[classes.len() - 1].look.colour, HEAT[5]);
        }
        assert_eq!(classes(0), []);
    }

    #[test]
    fn neighbours_of_one_colour_are_one_bar_and_others_are_not() {
        let heat = heat(vec![((0, 0), 1), ((1, 0), 1), ((1, 1), 1), ((2, 0), 9), ((3, 1), 1)]);
        let classes = classes(9);

        let bars: Vec<(u64, [u64; 2], u64)> =
            bars(&heat, &classes).iter().map(|bar| (bar.place, bar.times, bar.class.from)).collect();

        assert_eq!(bars, [(0, [0, 2], 1), (0, [2, 3], 7), (1, [1, 2], 1), (1, [3, 4], 1)]);
    }

    proptest! {
        #[test]
        fn a_map_of_any_counts_can_be_drawn(
            cells in prop::collection::vec(((0..200u64, 0..200u64), any::<u64>()), 0..20), length_s in 0.0..1e6f64
        ) {
            let heat = Heat { length_s, ..heat(cells) };

            prop_assert!(heat_map(&heat, "faults", "seconds").is_ok());
        }
    }
}
