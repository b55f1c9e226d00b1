//! A watch that continues, round after round, until SIGINT or the end of the process: a live screen, and metrics.

use super::{Judged, several};
use crate::doctor::Severity;
use crate::doctor::tell::endpoint::Endpoint;
use crate::doctor::tell::openmetrics;
use crate::doctor::tell::totals::Totals;
use crate::outputs;
use crate::watch::gather::{WatchOptions, Watcher};
use crate::watch::has_ended;
use crate::watch::target::WatchTarget;
use majorfault::{Error, Result};
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cursor home, then clear to the end: what was there before stays in the scrollback.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Where the rounds are written.
#[derive(Debug)]
pub struct LiveOutputs {
    /// The screen after each round, on standard output.
    pub watch: bool,
    /// The address that serves metrics.
    pub openmetrics: Option<SocketAddr>,
    /// The file that metrics are written to after each round.
    pub textfile: Option<outputs::Output>,
}

impl LiveOutputs {
    /// Whether any output is wanted.
    pub fn is_any(&self) -> bool {
        self.watch || self.openmetrics.is_some() || self.textfile.is_some()
    }
}

/// Watches the target, whose processes are one service where they belong `together`, until it ends or `stop` is raised; returns the worst severity that any round found.
///
/// Errors: those of [`Watcher::open`], and Io where an output cannot be opened or written.
pub fn run(
    target: WatchTarget,
    options: WatchOptions,
    outputs: LiveOutputs,
    together: bool,
    stop: &AtomicBool,
) -> Result<Option<Severity>> {
    let pid = target.named();
    let mut watcher = Watcher::open(target)?;
    let mut totals = Totals::of(watcher.target());
    let sinks = Sinks::open(outputs, &totals)?;
    let (mut worst, mut is_first) = (None, true);
    while totals.runs && !stop.load(Ordering::Relaxed) {
        match watcher.round(options, stop) {
            // An incomplete round would replace the result of a complete one.
            Ok(_) if stop.load(Ordering::Relaxed) && !is_first => break,
            Ok(all) => {
                let judged = super::judged(all, together);
                worst = worst.max(super::worst(&judged));
                totals.add_all(&judged);
                sinks.show(&judged, together)?;
            }
            Err(_) if pid.is_none_or(has_ended) => totals.end(),
            Err(error) => return Err(error),
        }
        sinks.write(&totals)?;
        is_first = false;
    }
    if !totals.runs {
        let who = pid.map_or("the last process".to_owned(), |pid| format!("process {pid}"));
        eprintln!("majorfault: {who} has ended; it was watched for {:.1} s", totals.watched_seconds);
    }
    Ok(worst)
}

/// The outputs, open.
struct Sinks {
    watch: bool,
    endpoint: Option<Endpoint>,
    textfile: Option<outputs::Output>,
}

impl Sinks {
    /// Opens the outputs and writes them once, so that an output that is not possible is reported at once.
    fn open(outputs: LiveOutputs, totals: &Totals) -> Result<Sinks> {
        let LiveOutputs { watch, openmetrics, textfile } = outputs;
        let serve = |address| Endpoint::open(address, openmetrics::render(totals)?);
        let endpoint = openmetrics.map(serve).transpose()?;
        if let Some(endpoint) = &endpoint {
            eprintln!("majorfault: metrics at http://{}/metrics until SIGINT", endpoint.address());
        }
        let sinks = Sinks { watch, endpoint, textfile };
        sinks.write(totals)?;
        Ok(sinks)
    }

    fn show(&self, judged: &[Judged], together: bool) -> Result<()> {
        if !self.watch {
            return Ok(());
        }
        let mut text = Vec::new();
        let is_screen = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb");
        let begin: &[u8] = if is_screen { CLEAR } else { b"\n" };
        let written = several::print(judged, together, &mut text)
            // Not through anstream, which removes all sequences where NO_COLOR is set.
            .and_then(|()| io::stdout().write_all(begin))
            .and_then(|()| anstream::stdout().write_all(&text))
            .and_then(|()| io::stdout().flush());
        written.map_err(|error| Error::io("write the findings", "standard output", error))
    }

    fn write(&self, totals: &Totals) -> Result<()> {
        let text = openmetrics::render(totals)?;
        if let Some(textfile) = &self.textfile {
            textfile.write(&text)?;
        }
        if let Some(endpoint) = &self.endpoint {
            endpoint.publish(text);
        }
        Ok(())
    }
}
