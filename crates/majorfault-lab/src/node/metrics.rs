//! What a machine's groups lost since the beginning, for Prometheus: one exporter for each node.
//!
//! Series are named by group (a container or unit), not by process, whose numbers would make new series all the time; files have series
//! only where that is asked for. Groups are summed under `(others)` from 256 on.

use super::group::label;
use super::loss::Loss;
use super::survey::{FileLoss, Picture};
use crate::doctor::Finding;
use crate::doctor::tell::openmetrics::{Labels, Page, about, measured, printable, seconds};
use crate::doctor::tell::totals::OTHERS;
use majorfault::{Error, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::{Registry, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most groups, and the most files, with series of their own.
const MOST_GROUPS: usize = 256;
const MOST_FILES: usize = 256;

/// Sums since the beginning, and what the last look found.
#[derive(Clone, Debug, Default)]
pub struct NodeTotals {
    /// Whether files have series.
    with_files: bool,
    groups: BTreeMap<String, Loss>,
    files: BTreeMap<String, FileLoss>,
    findings: BTreeSet<Labels>,
    stalled_io_ns: Option<u64>,
    stalled_memory_ns: Option<u64>,
    own_cpu_ns: u64,
    processes: u64,
}

impl NodeTotals {
    /// Nothing yet; files have series of their own only where `with_files` says so.
    pub fn new(with_files: bool) -> NodeTotals {
        NodeTotals { with_files, ..NodeTotals::default() }
    }

    /// Adds a picture, and what was found in it, by the group that it was found in.
    pub fn add(&mut self, picture: &Picture, found: &[(String, Finding)]) {
        for group in &picture.groups {
            add_loss(sum_of(&mut self.groups, &label(&group.path), MOST_GROUPS), &group.sum);
        }
        for file in picture.files.iter().filter(|_| self.with_files) {
            let sum = sum_of(&mut self.files, &file.path, MOST_FILES);
            (sum.waited_ns, sum.major) = (sum.waited_ns + file.waited_ns, sum.major + file.major);
        }
        let grown = |sum: &mut Option<u64>, more: Option<u64>| *sum = more.map(|more| sum.unwrap_or(0) + more).or(*sum);
        grown(&mut self.stalled_io_ns, picture.pressure.io_ns);
        grown(&mut self.stalled_memory_ns, picture.pressure.memory_ns);
        self.own_cpu_ns += picture.own_cpu_ns;
        self.processes = picture.processes.len() as u64;
        self.findings = found.iter().map(|(group, finding)| labels_of(group, finding)).collect();
    }

    /// The text of all metrics; ends with `# EOF`.
    ///
    /// Errors: Invalid where the text cannot be written, which is a bug of majorfault.
    pub fn render(&self) -> Result<String> {
        let mut registry = Registry::with_prefix("majorfault");
        registry.register_collector(Box::new(NodeMetrics(self.clone())));
        let mut written = String::new();
        text::encode(&mut written, &registry)
            .map_err(|_| Error::Invalid("could not write the metrics; this is a bug of majorfault".to_owned()))?;
        Ok(written)
    }
}

/// The sum of this name, or that of the others.
fn sum_of<'s, T: Default>(sums: &'s mut BTreeMap<String, T>, name: &str, most: usize) -> &'s mut T {
    let is_told_apart = sums.contains_key(name) || sums.len() < most;
    sums.entry(if is_told_apart { name } else { OTHERS }.to_owned()).or_default()
}

fn add_loss(sum: &mut Loss, loss: &Loss) {
    sum.device_ns += loss.device_ns;
    sum.fault_ns = loss.fault_ns.map(|ns| sum.fault_ns.unwrap_or(0) + ns).or(sum.fault_ns);
    sum.major += loss.major;
    sum.read_bytes = loss.read_bytes.map(|bytes| sum.read_bytes.unwrap_or(0) + bytes).or(sum.read_bytes);
}

fn labels_of(group: &str, finding: &Finding) -> Labels {
    let severity = finding.severity.word().to_owned();
    vec![("groupname", printable(group)), ("rule", finding.rule.to_owned()), ("severity", severity)]
}

#[derive(Debug)]
struct NodeMetrics(NodeTotals);

impl Collector for NodeMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.machine(&mut page)?;
        self.groups(&mut page)?;
        self.files(&mut page)?;
        let finding = about("finding", "What was found in the last look at a group: 1 for each rule and severity.");
        page.gauge(&finding, self.0.findings.iter().map(|labels| (labels.clone(), 1u64)))
    }
}

impl NodeMetrics {
    fn machine(&self, page: &mut Page<'_>) -> fmt::Result {
        let own = measured("own_cpu", Unit::Seconds, "Processor time of the exporter.");
        page.counter(&own, [(Labels::new(), seconds(self.0.own_cpu_ns))])?;
        let processes = about("processes", "Processes of the machine in the last look.");
        page.gauge(&processes, [(Labels::new(), self.0.processes)])?;
        let stalled =
            measured("stalled", Unit::Seconds, "Time in which some task of the machine waited for the resource.");
        let known = [("io", self.0.stalled_io_ns), ("memory", self.0.stalled_memory_ns)];
        let known =
            known.into_iter().filter_map(|(name, ns)| Some((vec![("resource", name.to_owned())], seconds(ns?))));
        page.counter(&stalled, known)
    }

    fn groups(&self, page: &mut Page<'_>) -> fmt::Result {
        let each = |value: fn(&Loss) -> Option<u64>| {
            let known = self.0.groups.iter().filter_map(move |(name, loss)| Some((name, value(loss)?)));
            known.map(|(name, value)| (vec![("groupname", printable(name))], value))
        };
        let in_seconds = |(labels, ns)| (labels, seconds(ns));
        let waited = measured(
            "group_fault_waited",
            Unit::Seconds,
            "Time that sampled threads of the group waited in faults of files.",
        );
        page.counter(&waited, each(|loss| loss.fault_ns).map(in_seconds))?;
        let device = measured(
            "group_device_waited",
            Unit::Seconds,
            "Time that threads of the group waited for devices (delay accounting).",
        );
        page.counter(&device, each(|loss| Some(loss.device_ns)).map(in_seconds))?;
        let major = about("group_major_faults", "Page faults of the group that started a read of a device.");
        page.counter(&major, each(|loss| Some(loss.major)))?;
        let read = measured("group_read", Unit::Bytes, "Bytes that devices read for the group.");
        page.counter(&read, each(|loss| loss.read_bytes))
    }

    fn files(&self, page: &mut Page<'_>) -> fmt::Result {
        if !self.0.with_files {
            return Ok(());
        }
        let each = |value: fn(&FileLoss) -> u64| {
            self.0.files.iter().map(move |(path, file)| (vec![("file", printable(path))], value(file)))
        };
        let waited = measured("file_waited", Unit::Seconds, "Time that sampled threads waited in faults of the file.");
        page.counter(&waited, each(|file| file.waited_ns).map(|(labels, ns)| (labels, seconds(ns))))?;
        let major = about("file_major_faults", "Page faults in the file that started a read of its device.");
        page.counter(&major, each(|file| file.major))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::tell::openmetrics::plain;
    use crate::node::group::GroupLoss;
    use crate::node::pass::Pressure;

    fn picture() -> Picture {
        let sum =
            Loss { fault_ns: Some(1_500_000_000), device_ns: 5, major: 7, read_bytes: Some(4096), ..Loss::default() };
        let files = vec![FileLoss { path: "/data/a".to_owned(), pid: 3, waited_ns: 2_000_000_000, major: 7 }];
        let groups = vec![GroupLoss { path: "/system.slice/db.service".to_owned(), processes: 2, sum }];
        let pressure = Pressure { io_ns: Some(500_000_000), memory_ns: None };
        Picture { groups, files, pressure, ..Picture::default() }
    }

    fn totals(with_files: bool) -> NodeTotals {
        let finding = Finding { rule: "fault_stall", severity: Severity::Critical, ..Finding::default() };
        let mut totals = NodeTotals { with_files, ..NodeTotals::default() };
        (0..2).for_each(|_| totals.add(&picture(), &[("db.service".to_owned(), finding.clone())]));
        totals
    }

    #[test]
    fn series_are_named_by_group_and_files_have_none_unless_asked_for() {
        let text = totals(false).render().unwrap();

        for line in [
            r#"majorfault_group_fault_waited_seconds_total{groupname="db.service"} 3.0"#,
            r#"majorfault_group_major_faults_total{groupname="db.service"} 14"#,
            r#"majorfault_group_read_bytes_total{groupname="db.service"} 8192"#,
            r#"majorfault_stalled_seconds_total{resource="io"} 1.0"#,
            r#"majorfault_finding{groupname="db.service",rule="fault_stall",severity="critical"} 1"#,
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}\n{text}");
        }
        assert!(!text.contains("pid") && !text.contains("/data/a") && !text.contains("memory"), "{text}");
        let text = totals(true).render().unwrap();
        assert!(text.contains(r#"majorfault_file_waited_seconds_total{file="/data/a"} 4.0"#), "{text}");
    }

    #[test]
    fn groups_that_come_and_go_make_no_new_series_all_the_time() {
        let mut totals = NodeTotals::default();
        for number in 0..1000 {
            let mut picture = picture();
            picture.groups[0].path = format!("/job-{number}.service");
            totals.add(&picture, &[]);
        }

        assert_eq!((totals.groups.len(), totals.groups[OTHERS].major), (257, 744 * 7));
    }

    #[test]
    fn promtool_finds_nothing_wrong() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let started =
            Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut promtool) = started else {
            eprintln!("SKIPPED promtool_finds_nothing_wrong: promtool is not installed (Debian: prometheus)");
            return;
        };
        let text = plain(&totals(true).render().unwrap());

        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();

        let output = promtool.wait_with_output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}\n{text}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
