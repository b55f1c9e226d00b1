//! One line of evidence: named figures with units, and the sentence that shows them.
//!
//! The figures are what is kept; the sentence is made from them, so the two cannot differ.

use super::rule::filled;
use majorfault::{Bytes, Nanos};
use std::fmt;

/// A line of evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The sentence, with names of figures in braces.
    sentence: String,
    /// The figures, in the order in which they were added.
    pub measures: Vec<Measure>,
    /// Whether it was seen or is inferred from what was seen.
    pub source: Certainty,
}

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certainty {
    /// It was counted or read.
    #[default]
    Seen,
    /// It is inferred: a pattern, an estimate, a share of a sum that belongs to several causes.
    Guessed,
}

/// A named figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: MeasureValue,
    /// Its unit.
    pub unit: MeasureUnit,
}

/// The value of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum MeasureValue {
    /// A number in the unit.
    Number(f64),
    /// A word: a path, an order, a setting.
    Word(String),
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureUnit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanos,
    /// A part of a whole.
    Share,
    /// How many times as much.
    Times,
    /// Things each second.
    PerSecond,
    /// Bytes each second.
    BytesPerSecond,
    /// A word, which has no unit.
    Word,
}

impl Certainty {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Certainty::Seen => "seen",
            Certainty::Guessed => "guessed",
        }
    }
}

impl MeasureUnit {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            MeasureUnit::Count => "count",
            MeasureUnit::Bytes => "bytes",
            MeasureUnit::Nanos => "nanoseconds",
            MeasureUnit::Share => "share",
            MeasureUnit::Times => "times",
            MeasureUnit::PerSecond => "per_second",
            MeasureUnit::BytesPerSecond => "bytes_per_second",
            MeasureUnit::Word => "word",
        }
    }
}

impl Fact {
    /// A fact that was seen; `sentence` names its figures in braces.
    pub fn seen(sentence: impl Into<String>) -> Fact {
        Fact { sentence: sentence.into(), measures: Vec::new(), source: Certainty::Seen }
    }

    /// A fact that is inferred.
    pub fn guessed(sentence: impl Into<String>) -> Fact {
        Fact { source: Certainty::Guessed, ..Fact::seen(sentence) }
    }

    /// Adds a number of things.
    pub fn count(self, name: &'static str, value: u64) -> Fact {
        self.number(name, value as f64, MeasureUnit::Count)
    }

    /// Adds bytes.
    pub fn bytes(self, name: &'static str, value: u64) -> Fact {
        self.number(name, value as f64, MeasureUnit::Bytes)
    }

    /// Adds nanoseconds.
    pub fn nanos(self, name: &'static str, value: u64) -> Fact {
        self.number(name, value as f64, MeasureUnit::Nanos)
    }

    /// Adds a number in any unit.
    pub fn number(mut self, name: &'static str, value: f64, unit: MeasureUnit) -> Fact {
        self.measures.push(Measure { name, value: MeasureValue::Number(value), unit });
        self
    }

    /// Adds a word.
    pub fn word(mut self, name: &'static str, value: impl ToString) -> Fact {
        self.measures.push(Measure { name, value: MeasureValue::Word(value.to_string()), unit: MeasureUnit::Word });
        self
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures: Vec<(&'static str, String)> =
            self.measures.iter().map(|measure| (measure.name, measure.to_string())).collect();
        f.write_str(&filled(&self.sentence, &figures))
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match &self.value {
            MeasureValue::Word(word) => return f.write_str(word),
            MeasureValue::Number(value) => *value,
        };
        match self.unit {
            MeasureUnit::Bytes => f.write_str(&Bytes(value as u64).rounded()),
            MeasureUnit::BytesPerSecond => write!(f, "{}/s", Bytes(value as u64).rounded()),
            MeasureUnit::Nanos => Nanos(value as u64).fmt(f),
            MeasureUnit::Share => write!(f, "{:.0} %", value * 100.0),
            MeasureUnit::Times if value < 10.0 => write!(f, "{value:.1}"),
            _ => write!(f, "{value:.0}"),
        }
    }
}

/// Tests compare evidence with the sentences that people read.
#[cfg(test)]
impl PartialEq<&str> for Fact {
    fn eq(&self, says: &&str) -> bool {
        let own = self.to_string();
        own.as_str() == *says
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_shows_the_figures_with_their_units() {
        let fact = Fact::seen("{waits} faults of {path} waited {waited}, {share} of the time, {rate} each second")
            .count("waits", 1000)
            .word("path", "/x")
            .nanos("waited", 4_000_000_000)
            .number("share", 0.2, MeasureUnit::Share)
            .number("rate", 12.4, MeasureUnit::PerSecond);

        assert_eq!(fact, "1000 faults of /x waited 4s, 20 % of the time, 12 each second");
        assert_eq!(fact.measures[2].value, MeasureValue::Number(4e9));
    }

    #[test]
    fn bytes_and_factors_are_rounded_for_people_and_exact_in_the_figure() {
        let fact = Fact::guessed("{bytes}, {speed}, {few} x, {many} x")
            .bytes("bytes", (1 << 20) + 1)
            .number("speed", 2e6, MeasureUnit::BytesPerSecond)
            .number("few", 2.34, MeasureUnit::Times)
            .number("many", 57.3, MeasureUnit::Times);

        assert_eq!(fact, "1.00 MiB, 1.91 MiB/s, 2.3 x, 57 x");
        assert_eq!(fact.measures[0].value, MeasureValue::Number(1_048_577.0));
        assert_eq!((fact.source.word(), Fact::seen("").source.word()), ("guessed", "seen"));
    }
}
