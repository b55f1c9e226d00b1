//! The totals of a watch in the OpenMetrics text format, 1.0.0.
//!
//! Every name begins with `majorfault_`; every sample carries the process's number and name.

use super::totals::{FaultTotals, FileTotals, Totals};
use majorfault::{Error, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// The media type of [`render`]'s text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of all metrics; ends with `# EOF`.
///
/// Errors: Invalid where the text cannot be written, which is a bug of majorfault.
pub fn render(totals: &Totals) -> Result<String> {
    let target = &totals.target;
    let labels = [("pid", target.pid.to_string()), ("process", printable(&target.name))];
    let labels = labels.into_iter().map(|(name, value)| (Cow::from(name), Cow::from(value)));
    let mut registry = Registry::with_prefix_and_labels("majorfault", labels);
    registry.register_collector(Box::new(Metrics(totals.clone())));
    let mut written = String::new();
    text::encode(&mut written, &registry)
        .map_err(|_| Error::Invalid("could not write the metrics; this is a bug of majorfault".to_owned()))?;
    Ok(written)
}

/// The same text in the format of Prometheus, 0.0.4, which node_exporter's textfile collector and `promtool check metrics` read: there a
/// counter's name is that of its samples, and there are neither units nor an end.
pub fn plain(text: &str) -> String {
    let counters: HashSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let line = |line: &str| {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), ..) => None,
            (Some("#"), Some(kind), Some(name), Some(rest)) if counters.contains(name) => {
                Some(format!("# {kind} {name}_total {rest}\n"))
            }
            _ => Some(format!("{line}\n")),
        }
    };
    text.lines().filter_map(line).collect()
}

/// Control characters as question marks: not every reader accepts them in a label.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[derive(Debug)]
struct Metrics(Totals);

/// A metric's name and meaning.
pub struct About {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
}

/// About a metric without a unit.
pub const fn about(name: &'static str, help: &'static str) -> About {
    About { name, help, unit: None }
}

/// About a metric with a unit.
pub const fn measured(name: &'static str, unit: Unit, help: &'static str) -> About {
    About { name, help, unit: Some(unit) }
}

/// The labels of a sample.
pub type Labels = Vec<(&'static str, String)>;

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.process(&mut page)?;
        if let Some(faults) = self.0.faults {
            faults_of_process(&mut page, faults)?;
            self.faults_of_files(&mut page)?;
        }
        self.levels_of_files(&mut page)?;
        self.findings(&mut page)
    }
}

impl Metrics {
    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let runs = about("process_running", "Whether the watched process still runs, 1 or 0.");
        page.gauge(&runs, [(Labels::new(), u64::from(self.0.runs))])?;
        let watched = measured("watched", Unit::Seconds, "Time that the process was watched.");
        page.counter(&watched, [(Labels::new(), self.0.watched_seconds)])?;
        let Some(process) = &self.0.process else { return Ok(()) };
        let bytes = |name, help| measured(name, Unit::Bytes, help);
        for (about, level) in [
            (bytes("process_resident", "Resident memory of the process."), process.resident_bytes),
            (bytes("process_anonymous", "Resident anonymous memory of the process."), process.anonymous_bytes),
            (bytes("process_page_table", "Page tables of the process."), process.page_table_bytes),
            (about("process_mappings", "Mappings of the process."), process.mappings),
            (about("process_threads", "Threads of the process."), process.threads),
        ] {
            page.gauge(&about, [(Labels::new(), level)])?;
        }
        Ok(())
    }

    fn faults_of_files(&self, page: &mut Page<'_>) -> fmt::Result {
        let each = |value: fn(&FileTotals) -> u64| {
            self.0.files.iter().map(move |(path, file)| (vec![("file", printable(path))], value(file)))
        };
        let faults = about("file_faults", "Page faults in the mapped file.");
        page.counter(&faults, each(|file| file.faults))?;
        let major = about("file_major_faults", "Page faults in the mapped file that started a read of its device.");
        page.counter(&major, each(|file| file.major))?;
        let waited = measured(
            "file_waited",
            Unit::Seconds,
            "Time that threads waited in faults of the mapped file, summed over threads.",
        );
        page.counter(&waited, each(|file| file.waited_ns).map(|(labels, ns)| (labels, seconds(ns))))
    }

    fn levels_of_files(&self, page: &mut Page<'_>) -> fmt::Result {
        let each = |value: fn(&FileTotals) -> Option<u64>| {
            let known = self.0.files.iter().filter_map(move |(path, file)| Some((path, value(file)?)));
            known.map(|(path, bytes)| (vec![("file", printable(path))], bytes))
        };
        let cached = measured("file_resident", Unit::Bytes, "Bytes of the mapped file in the page cache.");
        page.gauge(&cached, each(|file| file.cached_bytes))?;
        let size = measured("file_size", Unit::Bytes, "Size of the mapped file.");
        page.gauge(&size, each(|file| file.size_bytes))
    }

    fn findings(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut found: Vec<Labels> = self.0.findings.iter().map(labels_of).collect();
        found.sort();
        found.dedup();
        let finding = about("finding", "What the last round found: 1 for each rule, severity and scope.");
        page.gauge(&finding, found.into_iter().map(|labels| (labels, 1u64)))
    }
}

fn labels_of(finding: &crate::doctor::Finding) -> Labels {
    let severity = finding.severity.word().to_owned();
    vec![("rule", finding.rule.to_owned()), ("severity", severity), ("scope", printable(&finding.scope))]
}

fn faults_of_process(page: &mut Page<'_>, faults: FaultTotals) -> fmt::Result {
    for (about, count) in [
        (about("faults", "Page faults of the process."), faults.seen),
        (about("major_faults", "Page faults of the process that started a read of a device."), faults.major),
        (
            about("lost_samples", "Samples of faults that were lost; the counts of faults are too low by this number."),
            faults.lost,
        ),
    ] {
        page.counter(&about, [(Labels::new(), count)])?;
    }
    let waited = measured("waited", Unit::Seconds, "Time that threads waited in faults of files, summed over threads.");
    page.counter(&waited, [(Labels::new(), seconds(faults.waited_ns))])
}

/// Nanoseconds as seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The text being written.
pub struct Page<'a>(pub DescriptorEncoder<'a>);

impl Page<'_> {
    /// Writes a counter with its samples.
    pub fn counter<V: EncodeCounterValue>(
        &mut self,
        about: &About,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        self.family(about, MetricType::Counter, samples, |value, encoder| ConstCounter::new(value).encode(encoder))
    }

    /// Writes a gauge with its samples.
    pub fn gauge<V: EncodeGaugeValue>(
        &mut self,
        about: &About,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        self.family(about, MetricType::Gauge, samples, |value, encoder| ConstGauge::new(value).encode(encoder))
    }

    fn family<V>(
        &mut self,
        about: &About,
        kind: MetricType,
        samples: impl IntoIterator<Item = (Labels, V)>,
        write: impl Fn(V, MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(about.name, about.help, about.unit.as_ref(), kind)?;
        for (labels, value) in samples {
            write(value, family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Finding, Severity};
    use crate::watch::evidence::{Evidence, FaultCounts, MappedFile, Process, Watched};
    use std::time::Duration;

    fn busy() -> Totals {
        let file = |path: &str| MappedFile {
            path: path.to_owned(),
            faults: 7,
            major: 2,
            waited_ns: 1_500_000_000,
            size_bytes: Some(1 << 20),
            cached_bytes: Some(4096),
            ..MappedFile::default()
        };
        let evidence = Evidence {
            files: vec![file("/data/a b"), file("/data/\"quoted\"\n\\x")],
            faults: Some(FaultCounts { seen: 20, lost: 3, ..FaultCounts::default() }),
            process: Process { resident_bytes: 5 << 20, mappings: 44, ..Process::default() },
            watched: Duration::from_millis(2500),
            ..Evidence::default()
        };
        let finding = Finding {
            rule: "fault_stall",
            severity: Severity::Critical,
            scope: "/data/a b".to_owned(),
            ..Finding::default()
        };
        let mut totals = Totals::of(Watched { pid: 42, name: "serve\"r".to_owned(), command: String::new() });
        totals.add(&evidence, &[finding.clone(), finding]);
        totals
    }

    #[test]
    fn the_samples_are_written_with_units_and_labels() {
        let text = render(&busy()).unwrap();

        let who = r#"pid="42",process="serve\"r""#;
        for line in [
            format!(r#"majorfault_file_waited_seconds_total{{{who},file="/data/a b"}} 1.5"#),
            format!(r#"majorfault_file_faults_total{{{who},file="/data/\"quoted\"?\\x"}} 7"#),
            format!(r#"majorfault_file_resident_bytes{{{who},file="/data/a b"}} 4096"#),
            format!(r#"majorfault_lost_samples_total{{{who}}} 3"#),
            format!(r#"majorfault_process_mappings{{{who}}} 44"#),
            format!(r#"majorfault_finding{{{who},rule="fault_stall",severity="critical",scope="/data/a b"}} 1"#),
        ] {
            assert_eq!(text.lines().filter(|found| **found == line).count(), 1, "{line}\n{text}");
        }
        assert!(text.contains("# UNIT majorfault_file_waited_seconds seconds\n"), "{text}");
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn in_the_plain_format_a_counter_is_called_as_its_samples_are() {
        let text = "# HELP m_faults Page faults.\n# TYPE m_faults counter\nm_faults_total{a=\"# x\"} 1\n# HELP m_size_bytes Size.\n\
                    # TYPE m_size_bytes gauge\n# UNIT m_size_bytes bytes\nm_size_bytes 2\n# EOF\n";

        let expected = "# HELP m_faults_total Page faults.\n# TYPE m_faults_total counter\nm_faults_total{a=\"# x\"} 1\n\
                        # HELP m_size_bytes Size.\n# TYPE m_size_bytes gauge\nm_size_bytes 2\n";
        assert_eq!(plain(text), expected);
    }

    #[test]
    fn where_faults_cannot_be_seen_there_are_no_counts_of_them() {
        let mut totals = busy();
        totals.faults = None;

        let text = render(&totals).unwrap();

        assert!(!text.contains("_faults") && text.contains("majorfault_file_size_bytes{"), "{text}");
    }

    #[test]
    fn before_the_first_round_the_text_is_whole() {
        let text = render(&Totals::of(Watched::default())).unwrap();

        assert!(text.contains("majorfault_process_running{") && text.ends_with("# EOF\n"), "{text}");
    }
}
