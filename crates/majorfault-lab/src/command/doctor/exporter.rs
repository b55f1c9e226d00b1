//! One exporter for a node: looks at the machine again and again, and shows its groups' losses as metrics.

use super::live::LiveOutputs;
use crate::doctor::tell::endpoint::Endpoint;
use crate::doctor::tell::openmetrics::plain;
use crate::doctor::{self, Finding, Severity};
use crate::node::group;
use crate::node::metrics::NodeTotals;
use crate::node::survey::{Picture, Survey};
use crate::outputs;
use majorfault::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most processes whose faults are sampled.
const SAMPLED: usize = 10;

/// Looks at the processes that are wanted until `stop` is raised; returns the worst severity that any look found.
///
/// Errors: Io where an output cannot be opened or written.
pub fn run(
    wanted: impl Fn(u32) -> bool,
    length: Duration,
    outputs: LiveOutputs,
    with_files: bool,
    stop: &AtomicBool,
) -> Result<Option<Severity>> {
    let mut totals = NodeTotals::new(with_files);
    let sinks = Sinks::open(outputs, &totals)?;
    let mut survey = Survey::new(wanted, SAMPLED);
    let mut worst = None;
    while !stop.load(Ordering::Relaxed) {
        let picture = survey.next(length, stop);
        let found = found(&picture);
        worst = worst.max(found.iter().map(|(_, finding)| finding.severity).max());
        totals.add(&picture, &found);
        sinks.write(&totals)?;
    }
    Ok(worst)
}

/// What was found, by the group of the process that it was found in.
fn found(picture: &Picture) -> Vec<(String, Finding)> {
    let of = |pid: u32| group::of(pid).map_or("(unknown)".to_owned(), |path| group::label(&path));
    let judged = picture
        .evidence
        .iter()
        .map(|evidence| (of(evidence.target.pid), doctor::examine(std::slice::from_ref(evidence))));
    judged.flat_map(|(group, findings)| findings.into_iter().map(move |finding| (group.clone(), finding))).collect()
}

/// The outputs, open.
struct Sinks {
    endpoint: Option<Endpoint>,
    textfile: Option<outputs::Output>,
}

impl Sinks {
    /// Opens the outputs and writes them once, so that an output that is not possible is reported at once.
    fn open(outputs: LiveOutputs, totals: &NodeTotals) -> Result<Sinks> {
        let LiveOutputs { openmetrics, textfile, .. } = outputs;
        let endpoint = openmetrics.map(|address| Endpoint::open(address, totals.render()?)).transpose()?;
        if let Some(endpoint) = &endpoint {
            eprintln!("majorfault: metrics at http://{}/metrics until SIGINT", endpoint.address());
        }
        let sinks = Sinks { endpoint, textfile };
        sinks.write(totals)?;
        Ok(sinks)
    }

    fn write(&self, totals: &NodeTotals) -> Result<()> {
        let text = totals.render()?;
        if let Some(textfile) = &self.textfile {
            textfile.write(plain(&text))?;
        }
        if let Some(endpoint) = &self.endpoint {
            endpoint.publish(text);
        }
        Ok(())
    }
}
