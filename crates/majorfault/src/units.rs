//! Quantities with their unit in the type: [`Bytes`] and [`Nanos`], written and read as fio's users write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Reads `4096`, `4k`, `1m`, `2g`, `1t` (steps of 1024, as in fio); prints the shortest exact form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A number of nanoseconds. Reads `10` (seconds, as fio's runtime), `250ms`, `3us`, `5ns`, `2m`; prints three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A text that is not a quantity; says what would be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

const BYTE_STEPS: [(&str, u64); 4] = [("t", 1 << 40), ("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)];

/// Longest suffix first: `ms` must be tried before `s`, and `s` before `m`.
const TIME_STEPS: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000)];

impl Bytes {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// The quantity rounded to three digits with a binary unit, for people: `1.50 GiB`.
    pub fn rounded(self) -> String {
        let (unit, step) = match self.0 {
            n if n >= 1 << 40 => ("TiB", 1u64 << 40),
            n if n >= 1 << 30 => ("GiB", 1 << 30),
            n if n >= 1 << 20 => ("MiB", 1 << 20),
            n if n >= 1 << 10 => ("KiB", 1 << 10),
            n => return format!("{n} B"),
        };
        format!("{} {unit}", three_digits(self.0 as f64 / step as f64))
    }
}

impl Nanos {
    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn secs(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }

    /// The same as seconds and their fraction.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// `value` with three significant digits: `0.123`, `1.23`, `12.3`, `123`.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Between groups of three digits: a space at which no line breaks.
const GROUP: char = '\u{a0}';

/// `value` as a person reads it: three digits below a thousand, whole numbers in groups above: `0.123`, `12.3`, `1 432`.
///
/// A thousand million and more, and what is not finite, in powers of ten.
pub fn grouped(value: f64) -> String {
    if value.abs() < 999.5 {
        return three_digits(value);
    }
    if !value.is_finite() || value.abs() >= 1e9 {
        return format!("{value:.2e}");
    }
    let whole = format!("{value:.0}");
    let (sign, digits) = whole.split_at(usize::from(value < 0.0));
    let ends_group = |at: usize| at > 0 && (digits.len() - at) % 3 == 0;
    let spaced =
        digits.char_indices().flat_map(|(at, digit)| ends_group(at).then_some(GROUP).into_iter().chain([digit]));
    sign.chars().chain(spaced).collect()
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = BYTE_STEPS.iter().find(|(_, step)| self.0 != 0 && self.0 % *step == 0);
        match exact {
            Some((suffix, step)) => write!(f, "{}{suffix}", self.0 / step),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, step) = match self.0 {
            n if n >= 1_000_000_000 => ("s", 1e9),
            n if n >= 1_000_000 => ("ms", 1e6),
            n if n >= 1_000 => ("us", 1e3),
            n => return write!(f, "{n}ns"),
        };
        let text = three_digits(self.0 as f64 / step);
        let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        write!(f, "{short}{unit}")
    }
}

/// Splits `4k` into its number and the step that its suffix stands for.
fn scaled(text: &str, steps: &[(&str, u64)], bare: u64) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let (number, step) = steps
        .iter()
        .find_map(|(suffix, step)| lower.strip_suffix(suffix).map(|n| (n, *step)))
        .unwrap_or((&lower, bare));
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(step);
    }
    let product = number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)? * step as f64;
    (product < u64::MAX as f64).then_some(product as u64)
}

impl FromStr for Bytes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Bytes, ParseError> {
        let lower = text.trim().to_ascii_lowercase();
        let short = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
        scaled(short, &BYTE_STEPS, 1)
            .map(Bytes)
            .ok_or_else(|| ParseError(format!("\"{text}\" is not a size; write bytes or 4k, 16m, 2g (steps of 1024)")))
    }
}

impl FromStr for Nanos {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Nanos, ParseError> {
        scaled(text, &TIME_STEPS, 1_000_000_000)
            .map(Nanos)
            .ok_or_else(|| ParseError(format!("\"{text}\" is not a time; write seconds or 500ms, 20us, 2m")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_fio_reads_them() {
        for (text, bytes) in
            [("4096", 4096), ("4k", 4096), ("4K", 4096), ("1.5m", 1_572_864), ("2GiB", 2 << 30), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "k", "-4k", "4x", "1e400", "99999999t"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_without_a_suffix_are_seconds() {
        for (text, ns) in
            [("10", 10_000_000_000), ("250ms", 250_000_000), ("3us", 3_000), ("5ns", 5), ("1.5s", 1_500_000_000)]
        {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn printing_and_reading_give_the_same_size() {
        for bytes in [0, 1, 4095, 4096, 1 << 20, (1 << 30) + 4096, u64::MAX] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn thousands_stand_in_groups_that_no_line_break_tears() {
        for (value, text) in [
            (0.1234, "0.123"),
            (999.4, "999"),
            (999.6, "1\u{a0}000"),
            (1_432.0, "1\u{a0}432"),
            (-14_320.4, "-14\u{a0}320"),
            (321_785.0, "321\u{a0}785"),
            (1_234_567.0, "1\u{a0}234\u{a0}567"),
            (12_345_678_900.0, "1.23e10"),
        ] {
            assert_eq!(grouped(value), text, "{value}");
        }
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(Bytes(1_572_864).rounded(), "1.50 MiB");
        assert_eq!(Nanos(1_234_567).to_string(), "1.23ms");
        assert_eq!(Nanos::secs(10).to_string(), "10s");
        assert_eq!(Nanos::millis(250).to_string(), "250ms");
    }

    proptest! {
        #[test]
        fn any_text_is_a_quantity_or_an_error(text in "\\PC*|-?[0-9]{0,22}(\\.[0-9]{0,5})?(e[0-9]{1,3})? ?[kKmMgGtTpunsiBh]{0,4}") {
            let _ = (text.parse::<Bytes>(), text.parse::<Nanos>());
        }

        #[test]
        fn any_size_that_is_printed_reads_back(bytes: u64) {
            prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }

        #[test]
        fn any_time_that_is_printed_reads_back_in_three_digits(ns in 0u64..1 << 62) {
            let back: Nanos = Nanos(ns).to_string().parse().unwrap();

            prop_assert!(back.0.abs_diff(ns) <= ns / 150, "{ns} is {}", Nanos(ns));
        }

        #[test]
        fn a_number_in_groups_holds_its_digits(value in -1e9f64..1e9) {
            let plain: String = grouped(value).chars().filter(|c| *c != GROUP).collect();

            prop_assert!((plain.parse::<f64>().unwrap() - value).abs() <= (value.abs() / 150.0).max(0.001), "{plain}");
        }
    }
}
