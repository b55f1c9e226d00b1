//! The watcher's side of one run: follows the worker phase by phase, samples the counters, fills the record.

use crate::peer;
use crate::place::MemoryLimit;
use crate::place::child::Worker;
use crate::record::{FileState, Outcome, Phase, Record};
use crate::run::message::{Assignment, Ended, Said, Signal};
use crate::run::worker::GRACE;
use crate::run::{Session, page_cache};
use crate::trial::Arm;
use majorfault::observe::{self, HardwareUse, Kind, Observer, Scene, Snapshot};
use majorfault::{Error, Nanos, Result, Target};
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a user's wish to stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// How much longer a peer may take than its trial's time: a part that goes with that time, and one for its start and its end.
const PATIENCE: (u32, Duration) = (10, Duration::from_secs(15));

/// A line of the worker, or the rest of its output once it became a peer.
enum Heard {
    Said(Said),
    Rest(String),
    End,
}

struct Watch<'a> {
    session: &'a Session<'a>,
    worker: Worker,
    heard: Receiver<Heard>,
    observer: Observer,
    /// The reading at the last phase boundary.
    before: Snapshot,
    /// Readings on the timeline.
    samples: Vec<Snapshot>,
    told_to_stop: Option<Instant>,
    /// When a peer should have ended long since.
    overdue: Option<Instant>,
    is_overdue: bool,
}

/// Follows `worker` through `order` and puts what it gives into `record`.
///
/// Errors: Io where the worker cannot be spoken to at all.
pub(super) fn watch(
    order: &Assignment,
    mut worker: Worker,
    limit: Option<&MemoryLimit>,
    session: &Session<'_>,
    record: &mut Record,
) -> Result<()> {
    let heard = listen(&mut worker, order.program.is_empty());
    let scene = Scene {
        pid: Some(worker.pid()),
        with_children: !order.program.is_empty(),
        cgroup: limit.map(MemoryLimit::dir),
        files: order.trial.data.files.clone(),
        hardware: if order.trial.counts_hardware { HardwareUse::Always } else { HardwareUse::WhereCheap },
    };
    tell(&mut worker, order)?;
    let mut observer = Observer::open(&scene);
    record.missing = observer.missing().iter().cloned().map(Into::into).collect();
    let before = observer.read();
    record.files[0] = file_states(&order.trial.data.files);
    let mut watch = Watch {
        session,
        worker,
        heard,
        observer,
        before,
        samples: Vec::new(),
        told_to_stop: None,
        overdue: None,
        is_overdue: false,
    };
    if order.program.is_empty() {
        watch.follow(record);
    } else {
        watch.follow_peer(order, record);
    }
    watch.end(limit, record);
    record.files[1] = file_states(&order.trial.data.files);
    Ok(())
}

/// How long a peer may take whose trial ends after `time`.
fn patience(time: Nanos) -> Duration {
    Duration::from_nanos(time.0).saturating_mul(PATIENCE.0).saturating_add(PATIENCE.1)
}

/// What the files are now; empty where one of them cannot be looked at.
fn file_states(files: &[PathBuf]) -> Vec<FileState> {
    let state = |path: &PathBuf| {
        let meta = std::fs::metadata(path).ok()?;
        let modified_ns = meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec());
        Some(FileState { device: meta.dev(), inode: meta.ino(), size_bytes: meta.size(), modified_ns })
    };
    files.iter().map(state).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// A path with its links resolved; a descriptor's link may lead to a name that is gone.
fn shown_path(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| path.read_link()).unwrap_or_else(|_| path.to_owned())
}

/// One JSON line to the worker.
fn tell(worker: &mut Worker, line: &impl serde::Serialize) -> Result<()> {
    let mut text =
        serde_json::to_string(line).map_err(|why| Error::Invalid(format!("an order cannot be written: {why}")))?;
    text.push('\n');
    let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let sent = worker.input().ok_or_else(gone).and_then(|input| input.write_all(text.as_bytes()));
    sent.map_err(|error| Error::io("speak to the worker", "its standard input", error))
}

/// A thread that turns the worker's output into messages.
fn listen(worker: &mut Worker, is_method: bool) -> Receiver<Heard> {
    let (sender, receiver) = channel();
    let Some(mut output) = worker.take_output() else { return receiver };
    std::thread::spawn(move || {
        let mut line = String::new();
        while output.read_line(&mut line).is_ok_and(|length| length > 0) {
            let Ok(said) = serde_json::from_str::<Said>(&line) else { break };
            let ready = matches!(said, Said::Ready { .. });
            let _ = sender.send(Heard::Said(said));
            line.clear();
            if ready && !is_method {
                break;
            }
        }
        let _ = output.read_to_string(&mut line);
        let _ = sender.send(Heard::Rest(line));
        let _ = sender.send(Heard::End);
    });
    receiver
}

impl Watch<'_> {
    /// A method's worker, to its end.
    fn follow(&mut self, record: &mut Record) {
        loop {
            match self.hear(record) {
                Heard::Said(Said::Ready { cache, notes }) => {
                    record.cache = cache;
                    record.notes.extend(notes);
                    self.go();
                }
                Heard::Said(Said::Phase { name, began_ns, wall_ns }) => {
                    let mut counters = self.boundary();
                    if name == "visit" {
                        self.after_visit(record);
                        counters.extend(self.mapped(record));
                    }
                    record.phases.push(Phase { name, began_ns, wall_ns, counters });
                    self.go();
                }
                Heard::Said(Said::Done(ended)) => return self.done(*ended, record),
                Heard::Rest(_) => {}
                Heard::End => return,
            }
        }
    }

    /// A peer: prepared by the worker, then on its own until it exits.
    fn follow_peer(&mut self, order: &Assignment, record: &mut Record) {
        let mut began = self.before.at;
        let mut output = String::new();
        loop {
            match self.hear(record) {
                Heard::Said(Said::Ready { cache, notes }) => {
                    record.cache = cache;
                    record.notes.extend(notes);
                    self.go();
                    began = self.before.at;
                    self.overdue = record.trial.longest().and_then(|time| Instant::now().checked_add(patience(time)));
                }
                Heard::Said(Said::Done(ended)) => return self.done(*ended, record),
                Heard::Said(Said::Phase { .. }) => {}
                Heard::Rest(text) => output = text,
                Heard::End => break,
            }
        }
        self.samples.push(self.observer.read());
        self.after_visit(record);
        let counters = self.boundary();
        let Arm::Peer(choice) = &order.trial.arm else { return };
        record.timeline.began_ns = began.0;
        record.outcome = Outcome::Done;
        let read_back = |ended| peer::named(&choice.name).and_then(|peer| (peer.read_back)(&output, ended, record));
        if let Err(error) = self.worker.wait().and_then(read_back) {
            record.outcome = Outcome::Failed(error.to_string());
        }
        for phase in &mut record.phases {
            phase.counters.clone_from(&counters);
        }
    }

    /// Waits for the worker, sampling meanwhile at the trial's interval.
    fn hear(&mut self, record: &Record) -> Heard {
        let interval = Duration::from_nanos(record.trial.interval_ns.max(1_000_000));
        let mut next = Instant::now() + interval;
        loop {
            let patience = next.saturating_duration_since(Instant::now()).min(LOOK);
            match self.heard.recv_timeout(patience) {
                Ok(heard) => return heard,
                Err(RecvTimeoutError::Disconnected) => return Heard::End,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look_for_stop(record);
            if Instant::now() >= next {
                self.samples.push(self.observer.read());
                next += interval;
            }
        }
    }

    fn look_for_stop(&mut self, record: &Record) {
        match self.told_to_stop {
            None if self.session.stop.load(Ordering::Relaxed) => {
                // A method's worker listens to words; a peer does what every program does.
                let _ = tell(&mut self.worker, &Signal::Stop);
                if matches!(record.trial.arm, Arm::Peer(_)) {
                    self.worker.interrupt();
                }
                self.told_to_stop = Some(Instant::now());
            }
            None if self.overdue.is_some_and(|when| Instant::now() > when) => {
                self.worker.interrupt();
                (self.told_to_stop, self.is_overdue) = (Some(Instant::now()), true);
            }
            Some(when) if when.elapsed() > GRACE => self.worker.kill(),
            _ => {}
        }
    }

    /// Reads the counters and lets the worker go on.
    fn go(&mut self) {
        self.before = self.observer.read();
        self.samples.push(self.before.clone());
        // A worker that died meanwhile is noticed when its output ends.
        let _ = tell(&mut self.worker, &Signal::Go);
    }

    /// What each counter grew by since the worker was last let go, or is now.
    fn boundary(&mut self) -> BTreeMap<String, u64> {
        let now = self.observer.read();
        let values = self.before.values.iter().zip(&now.values);
        let counters = self.observer.counters().zip(values).filter_map(|(counter, (before, after))| {
            let value = match counter.kind {
                Kind::Total => (*after)?.saturating_sub((*before)?),
                Kind::Level => (*after)?,
            };
            Some((counter.name.to_owned(), value))
        });
        counters.collect()
    }

    /// What has to be looked at before the worker closes its files.
    fn after_visit(&mut self, record: &mut Record) {
        let target = Target::open(&record.trial.data.files, &record.trial.layout());
        record.cache.resident_after_bytes =
            target.ok().and_then(|target| page_cache::evidence(&target).resident_before_bytes);
    }

    /// The page sizes that the trial's files are mapped by; nothing where none is.
    fn mapped(&self, record: &Record) -> Vec<(String, u64)> {
        // Paths as the kernel shows them: files without a name have one there, too.
        let shown: Vec<String> =
            record.trial.data.files.iter().map(|path| shown_path(path).to_string_lossy().into_owned()).collect();
        match observe::mapped_sizes(self.worker.pid(), |path| shown.iter().any(|own| own == path)) {
            Ok(sizes) if sizes.resident_bytes > 0 => {
                let values = [sizes.resident_bytes, sizes.huge_bytes()];
                observe::MAPPED.iter().map(|counter| counter.name.to_owned()).zip(values).collect()
            }
            _ => Vec::new(),
        }
    }

    fn done(&mut self, ended: Ended, record: &mut Record) {
        let Ended { outcome, settings, notes, threads, timeline, latency, queueing, answer, figures, jobs } = ended;
        record.jobs = jobs;
        record.figures = figures;
        record.outcome = outcome;
        record.settings = settings;
        record.notes.extend(notes);
        record.threads = threads;
        record.timeline = timeline;
        record.latency = latency;
        record.queueing = queueing;
        record.answer = answer;
    }

    /// The worker's end, and the timeline of the counters.
    fn end(mut self, limit: Option<&MemoryLimit>, record: &mut Record) {
        let ended = self.worker.wait();
        let killed_for_memory = limit.is_some_and(|limit| limit.oom_kills() > 0);
        if killed_for_memory {
            let limit = majorfault::Bytes(record.trial.memory_bytes.unwrap_or_default());
            record.outcome = Outcome::Failed(format!(
                "the kernel killed it for want of memory under the limit of {limit}; give --memory more"
            ));
        } else if record.outcome == Outcome::Failed("it did not begin".to_owned()) {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            record.outcome = Outcome::Failed(format!("the worker ended early ({how})"));
        }
        match self.told_to_stop {
            Some(_) if self.is_overdue && !killed_for_memory => {
                record.outcome = Outcome::Failed(
                    "it went on long after its time was over, and was ended; leave it out with --no-peer, or see what it does by itself"
                        .to_owned(),
                );
            }
            Some(_) if !killed_for_memory => record.outcome = Outcome::Interrupted,
            _ => {}
        }
        let began = record.timeline.began_ns as i64;
        record.timeline.at_ns = self.samples.iter().map(|sample| sample.at.0 as i64 - began).collect();
        record.timeline.counters = (0..)
            .zip(self.observer.counters())
            .map(|(index, counter)| {
                let series = self.samples.iter().map(|sample| sample.values.get(index).copied().flatten());
                (counter.name.to_owned(), series.collect())
            })
            .collect();
    }
}
