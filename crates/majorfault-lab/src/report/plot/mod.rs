//! Figures as inline SVG: throughput bars, timelines, latency curves, all on the same small canvas.
//!
//! Colours in the SVG are names for the page's style sheet as much as colours: it selects them by value and gives each
//! its light and its dark form ([`STYLE_COLOURS`]).

mod bars;
mod cells;
mod heat;
mod latency;
mod timeline;

pub use bars::throughput;
pub use cells::{Bar, bars};
pub use heat::{Heat, classes, heat_map};
pub use latency::curves;
pub use timeline::{Rates, panels, rates};

use super::{ArmSummary, Group, Role, words};
use crate::traits::Class;
use majorfault::{Error, Result};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Width of every figure in its own units; the page scales it.
pub const WIDTH: u32 = 1000;

/// Text and axes.
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// The page itself: a halo that keeps marks readable on bars.
const PAPER: RGBColor = RGBColor(0xfd, 0xfd, 0xfb);
/// Grid lines.
const GRID: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);

/// Mapped files: warm colours. Okabe and Ito (2008) and Tol's muted set, told apart by colour-blind readers.
const WARM: [RGBColor; 5] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x99, 0x99, 0x33),
];
/// Explicit I/O: cool colours, from the same sets.
const COOL: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x44, 0xaa, 0x99),
];
/// Peers and the control: greys.
const GREY: [RGBColor; 2] = [RGBColor(0x55, 0x55, 0x55), RGBColor(0x99, 0x99, 0x99)];

/// Few to many, as more ink: ColorBrewer's OrRd. On a dark page many is bright.
const HEAT: [RGBColor; 6] = [
    RGBColor(0xfd, 0xd4, 0x9e),
    RGBColor(0xfd, 0xbb, 0x84),
    RGBColor(0xfc, 0x8d, 0x59),
    RGBColor(0xef, 0x65, 0x48),
    RGBColor(0xd7, 0x30, 0x1f),
    RGBColor(0x99, 0x00, 0x00),
];

/// Every colour that a figure uses, with its form on a dark page, for the style sheet.
pub const STYLE_COLOURS: [(&str, &str); 21] = [
    ("#FDFDFB", "#17191c"),
    ("#222222", "#e4e4e0"),
    ("#E2E2E2", "#3a3d42"),
    ("#D55E00", "#f28238"),
    ("#E69F00", "#f0b63c"),
    ("#CC79A7", "#de98c0"),
    ("#882255", "#c95f95"),
    ("#999933", "#bcbc55"),
    ("#0072B2", "#4aa8e6"),
    ("#56B4E9", "#8fd0f7"),
    ("#009E73", "#2cc596"),
    ("#332288", "#9a8cf0"),
    ("#44AA99", "#6fd0c0"),
    ("#555555", "#b8b8b8"),
    ("#999999", "#8a8a8a"),
    ("#FDD49E", "#6e3d20"),
    ("#FDBB84", "#8b4723"),
    ("#FC8D59", "#b35823"),
    ("#EF6548", "#d9702b"),
    ("#D7301F", "#f59b4e"),
    ("#990000", "#ffd9a8"),
];

/// How an arm is drawn, in every figure of its group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    colour: RGBColor,
    /// The palette came round: the same colour again, in dashes.
    dashed: bool,
}

impl Look {
    /// What is counted in all.
    pub const ALL: Look = Look { colour: GREY[0], dashed: false };
    /// What mapped files do.
    pub const MAPPED: Look = Look { colour: WARM[0], dashed: false };
    /// What threads wait for.
    pub const WAIT: Look = Look { colour: WARM[3], dashed: false };

    /// The colour as the SVG writes it.
    pub fn hex(&self) -> String {
        let RGBColor(red, green, blue) = self.colour;
        format!("#{red:02X}{green:02X}{blue:02X}")
    }

    /// Whether lines are dashed.
    pub fn is_dashed(&self) -> bool {
        self.dashed
    }
}

/// The look of each arm, in the order of `group.arms`. It follows from the order of the records, not from the ranking.
pub fn looks(group: &Group<'_>) -> Vec<Look> {
    let family = |arm: &ArmSummary<'_>| match arm.role {
        Role::Method if arm.class() == Some(Class::Mapped) => WARM.as_slice(),
        Role::Method => COOL.as_slice(),
        Role::Peer | Role::Control => GREY.as_slice(),
    };
    let look = |arm: &ArmSummary<'_>| {
        let palette = family(arm);
        let place = group.arms.iter().filter(|other| family(other) == palette && other.order < arm.order).count();
        Look { colour: palette[place % palette.len()], dashed: place >= palette.len() || arm.role == Role::Peer }
    };
    group.arms.iter().map(look).collect()
}

/// The arms that figures show, with their looks: those with valid figures, all that ran where there is none; never the
/// control, whose rate is of another world.
pub(super) fn shown<'g, 'a>(group: &'g Group<'a>) -> Vec<(&'g ArmSummary<'a>, Look)> {
    let ran = |(arm, _): &(&ArmSummary<'_>, Look)| arm.role != Role::Control && !arm.used.is_empty();
    let all: Vec<_> = group.arms.iter().zip(looks(group)).filter(ran).collect();
    let valid: Vec<_> = all.iter().copied().filter(|(arm, _)| arm.is_measured()).collect();
    if valid.is_empty() { all } else { valid }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A drawing in the making.
struct Canvas<'a>(Area<'a>);

/// Where a text stands against its point.
#[derive(Clone, Copy)]
enum Anchor {
    Left,
    Centre,
    Right,
}

/// Draws on a canvas of `height` and gives the SVG, sized by its container and named for screen readers.
///
/// Errors: Invalid where the drawing cannot be made.
fn draw(height: u32, title: &str, paint: impl FnOnce(&Canvas<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let canvas = Canvas(SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area());
        paint(&canvas)?;
        canvas.0.present().map_err(|why| undrawable(&why))?;
    }
    let fixed = format!("<svg width=\"{WIDTH}\" height=\"{height}\"");
    let title: String = title.chars().filter(|c| !"<>&\"".contains(*c)).collect();
    Ok(svg.replacen(&fixed, &format!("<svg role=\"img\" aria-label=\"{title}\""), 1))
}

fn undrawable(why: &dyn std::fmt::Display) -> Error {
    Error::Invalid(format!("could not draw a figure: {why}"))
}

impl Canvas<'_> {
    fn element<'b>(&self, element: &'b impl PointsAndDrawable<'b>) -> Result<()> {
        element.put(&self.0)
    }

    fn line(&self, points: Vec<(i32, i32)>, look: Look, width: u32) -> Result<()> {
        let style = look.colour.stroke_width(width);
        if look.dashed {
            self.element(&DashedPathElement::new(points, 5, 4, style))
        } else {
            self.element(&PathElement::new(points, style))
        }
    }

    fn rule(&self, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Result<()> {
        self.element(&PathElement::new(vec![from, to], colour.stroke_width(1)))
    }

    /// A rule with a halo, to be read on any colour.
    fn mark(&self, from: (i32, i32), to: (i32, i32)) -> Result<()> {
        self.element(&PathElement::new(vec![from, to], PAPER.stroke_width(3)))?;
        self.rule(from, to, INK)
    }

    fn bar(&self, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Result<()> {
        self.element(&Rectangle::new([from, to], colour.filled()))
    }

    fn dot(&self, at: (i32, i32), radius: i32, style: ShapeStyle) -> Result<()> {
        self.element(&Circle::new(at, radius, style))
    }

    fn text(&self, text: &str, at: (i32, i32), anchor: Anchor, size: i32) -> Result<()> {
        let side = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Centre => HPos::Center,
            Anchor::Right => HPos::Right,
        };
        // plotters divides sizes by 1.24 on the way to SVG.
        let style =
            TextStyle::from(("sans-serif", f64::from(size) * 1.24)).color(&INK).pos(Pos::new(side, VPos::Center));
        self.element(&Text::new(text.to_owned(), at, style))
    }
}

/// What plotters can draw on our backend; spares every caller the two bounds.
trait PointsAndDrawable<'b> {
    fn put(&'b self, area: &Area<'_>) -> Result<()>;
}

impl<'b, E> PointsAndDrawable<'b> for E
where
    E: 'b,
    &'b E: plotters::element::PointCollection<'b, (i32, i32)>,
    for<'a> E: plotters::element::Drawable<SVGBackend<'a>>,
{
    fn put(&'b self, area: &Area<'_>) -> Result<()> {
        area.draw(self).map_err(|why| undrawable(&why))
    }
}

/// A linear scale from values that begin at zero to pixels.
#[derive(Clone, Copy)]
struct Scale {
    largest: f64,
    from: i32,
    to: i32,
}

impl Scale {
    fn pixel(&self, value: f64) -> i32 {
        let share = (value / self.largest).clamp(0.0, 1.0);
        self.from + (f64::from(self.to - self.from) * if share.is_finite() { share } else { 0.0 }).round() as i32
    }
}

/// Zero and round steps (1, 2 or 5 times a power of `base`'s tens) up to at least `largest`, about `steps` of them.
fn ticks(largest: f64, steps: f64) -> Vec<f64> {
    if !(largest.is_finite() && largest > 0.0) {
        return vec![0.0, 1.0];
    }
    let rough = largest / steps;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|digit| digit * power).find(|step| *step >= rough).unwrap_or(rough);
    let count = (largest / step - 1e-9).ceil().max(1.0) as u32;
    (0..=count).map(|index| f64::from(index) * step).collect()
}

/// The same for bytes: steps of powers of two, so that labels are whole.
fn byte_ticks(largest: f64, steps: f64) -> Vec<f64> {
    if !(largest.is_finite() && largest > 0.0) {
        return vec![0.0, 1.0];
    }
    let step = 2f64.powf((largest / steps).log2().ceil());
    let count = (largest / step - 1e-9).ceil().max(1.0) as u32;
    (0..=count).map(|index| f64::from(index) * step).collect()
}

/// `10`, `2.5`, `50 k`: a tick without the digits that all ticks share.
fn tick_label(value: f64) -> String {
    let text = words::count(value);
    let (digits, unit) = text.split_at(text.find(' ').unwrap_or(text.len()));
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Summary;
    use crate::report::synthetic::{Run, repeated};
    use proptest::prelude::*;

    #[test]
    fn ticks_begin_at_zero_and_reach_the_largest_value() {
        assert_eq!(ticks(95_900.0, 5.0), [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0]);
        assert_eq!(byte_ticks(300.0 * 1024.0, 4.0), [0.0, 131_072.0, 262_144.0, 393_216.0]);
        assert_eq!(
            (tick_label(20_000.0), tick_label(0.5), tick_label(200.0)),
            ("20 k".into(), "0.5".into(), "200".into())
        );
    }

    #[test]
    fn a_method_keeps_its_colour_whatever_its_rank() {
        let slow_first = [repeated("pread", 10, 1), repeated("direct", 900, 1)].concat();
        let fast_first = [repeated("pread", 900, 1), repeated("direct", 100, 1)].concat();
        let colour = |records: &[crate::record::Record], name: &str| {
            let summary = Summary::of(records);
            let place = summary.groups[0].arms.iter().position(|arm| arm.name == name).unwrap();
            looks(&summary.groups[0])[place]
        };

        assert_eq!(colour(&slow_first, "pread"), colour(&fast_first, "pread"));
        assert_ne!(colour(&slow_first, "pread"), colour(&slow_first, "direct"));
    }

    #[test]
    fn every_colour_of_a_figure_has_its_dark_form() {
        let palettes = WARM.iter().chain(&COOL).chain(&GREY).chain(&HEAT).chain([&INK, &GRID, &PAPER]);

        for colour in palettes {
            let hex = Look { colour: *colour, dashed: false }.hex();
            assert!(STYLE_COLOURS.iter().any(|(light, _)| *light == hex), "{hex}");
        }
    }

    proptest! {
        #[test]
        fn figures_of_any_numbers_can_be_drawn(
            values in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u32>().prop_map(u64::from)], 0..12)
        ) {
            let run = Run::of("mmap <&>").accesses(values.first().copied().unwrap_or(0) / 4);
            let run = run.timeline(&values).sampled("tlb_shootdowns", &values);
            let buckets: Vec<(u64, u64)> = values.iter().map(|value| (*value, *value)).collect();
            let records = [run.latency(&buckets).record()];
            let summary = Summary::of(&records);
            let group = &summary.groups[0];

            prop_assert!(throughput(group).is_ok() && panels(group).is_ok() && curves(group).is_ok());
        }
    }
}
