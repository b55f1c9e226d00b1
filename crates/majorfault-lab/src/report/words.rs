//! Numbers as people read them: three digits and a unit, for any value.

use crate::stats::Estimate;
use majorfault::units::{grouped, three_digits};
use majorfault::{Bytes, Nanos};

/// Printed in place of a figure that is not known.
pub const UNKNOWN: &str = "–";

const STEPS: [(&str, f64); 6] = [("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];

/// Three digits and a decimal prefix: `95.9 k`, `0.43`, `12`.
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    // From 999.5 on, three digits would be 1000: the next unit takes over.
    match STEPS.iter().find(|(_, step)| value.abs() >= step * 0.9995) {
        Some((_, step)) if value.abs() >= step * 1e4 => format!("{value:.2e}"),
        Some((prefix, step)) => format!("{} {prefix}", three_digits(value / step)),
        None if value.fract() == 0.0 => format!("{value:.0}"),
        None if value.abs() < 0.0005 => format!("{value:.1e}"),
        None => three_digits(value),
    }
}

/// `95.9 k/s`.
pub fn per_second(value: f64) -> String {
    format!("{}/s", count(value))
}

/// `1.50 GiB`.
pub fn bytes(value: f64) -> String {
    if value.is_finite() { Bytes(value.max(0.0) as u64).rounded() } else { UNKNOWN.to_owned() }
}

/// `1.50 GiB/s`.
pub fn bytes_per_second(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// `85.2 us`, from nanoseconds.
pub fn nanos(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let text = Nanos(value.max(0.0) as u64).to_string();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// `3.1 s`, from seconds, to a tenth as the timeline knows it.
pub fn seconds(value: f64) -> String {
    format!("{value:.1} s")
}

/// `41 %`, from a share; below ten percent with one digit more.
pub fn percent(share: f64) -> String {
    let hundredths = share * 100.0;
    match hundredths.abs() {
        _ if !hundredths.is_finite() => UNKNOWN.to_owned(),
        value if value > 0.0 && value < 0.05 => "< 0.1 %".to_owned(),
        value if value >= 9.95 => format!("{hundredths:.0} %"),
        _ => format!("{} %", format!("{hundredths:.1}").trim_end_matches(".0")),
    }
}

/// `0.43 [0.41–0.46]`; the median alone where there was a single sample.
pub fn with_interval(estimate: &Estimate, number: fn(f64) -> String) -> String {
    match estimate.interval {
        Some([low, high]) => format!("{} [{}–{}]", number(estimate.median), number(low), number(high)),
        None => number(estimate.median),
    }
}

/// `1 run`, `3 runs`.
pub fn runs(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

/// `2.31 x [2.20–2.45]`, and what the interval covers where that is less than 95 %.
pub fn factor(estimate: &Estimate) -> String {
    let interval =
        estimate.interval.map(|[low, high]| format!(" [{}–{}{}]", ratio(low), ratio(high), coverage(estimate)));
    format!("{} x{}", ratio(estimate.median), interval.unwrap_or_default())
}

/// `, 3 runs: 75 %` of an interval that covers less than 95 %.
fn coverage(estimate: &Estimate) -> String {
    match estimate.is_enough() {
        true => String::new(),
        false => format!(", {} runs: {}", estimate.samples, percent(estimate.coverage)),
    }
}

/// How sure a factor is: `97 % interval 398–470 x, 6 runs of each`.
pub fn sure(estimate: &Estimate) -> String {
    // 99.6 % is not 100 %.
    let covered = match estimate.coverage {
        nearly if nearly >= 0.995 => format!("{:.1} %", (nearly * 1000.0).floor() / 10.0),
        coverage => percent(coverage),
    };
    let range = |[low, high]: [f64; 2]| format!("{covered} interval {}–{} x, ", ratio(low), ratio(high));
    format!("{}{} of each", estimate.interval.map(range).unwrap_or_default(), runs(estimate.samples))
}

/// `1 430 x`.
pub fn times(value: f64) -> String {
    format!("{} x", ratio(value))
}

/// A ratio as a person reads it: `0.043`, `0.43`, `4.30`, `43.0`, `1 430`.
pub fn ratio(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => UNKNOWN.to_owned(),
        size if size >= 999.5 => {
            let step = 10f64.powf(size.log10().floor() - 2.0);
            grouped((value / step).round() * step)
        }
        size if size >= 0.9995 || size == 0.0 => grouped(value),
        size if size >= 0.0995 => format!("{value:.2}"),
        size if size >= 0.0005 => format!("{value:.3}"),
        _ => format!("{value:.0e}"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_enough_for_any_size() {
        for (value, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.4321, "0.432"),
            (95_912.0, "95.9 k"),
            (999_600.0, "1.00 M"),
            (1e23, "1.00e23"),
            (1e-9, "1.0e-9"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(count(value), text, "{value}");
        }
    }

    #[test]
    fn shares_are_percent_and_times_have_units() {
        assert_eq!(
            (percent(0.41).as_str(), percent(0.0196).as_str(), percent(0.0213).as_str()),
            ("41 %", "2 %", "2.1 %")
        );
        assert_eq!(percent(0.0002), "< 0.1 %");
        assert_eq!(nanos(85_200.0), "85.2 us");
        assert_eq!(nanos(f64::INFINITY), "–");
    }

    #[test]
    fn a_ratio_shows_its_interval_where_it_has_one() {
        let known = Estimate { median: 0.43, interval: Some([0.41, 0.46]), coverage: 0.97, samples: 6 };

        assert_eq!(with_interval(&known, ratio), "0.43 [0.41–0.46]");
        assert_eq!(with_interval(&Estimate { interval: None, samples: 1, ..known }, ratio), "0.43");
    }

    #[test]
    fn an_interval_that_covers_less_than_95_percent_says_so() {
        let six = Estimate { median: 2.0, interval: Some([1.5, 2.5]), coverage: 0.96875, samples: 6 };
        let three = Estimate { coverage: 0.75, samples: 3, ..six };

        assert_eq!(factor(&six), "2.00 x [1.50–2.50]");
        assert_eq!(factor(&three), "2.00 x [1.50–2.50, 3 runs: 75 %]");
        assert_eq!(sure(&six), "97 % interval 1.50–2.50 x, 6 runs of each");
        assert_eq!(sure(&Estimate { interval: None, samples: 1, ..three }), "1 run of each");
    }

    #[test]
    fn a_ratio_is_written_as_a_person_reads_it() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.000_04, "4e-5"),
            (0.0432, "0.043"),
            (0.432, "0.43"),
            (4.321, "4.32"),
            (43.21, "43.2"),
            (1_432.0, "1\u{a0}430"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(ratio(value), text, "{value}");
        }
    }
}
