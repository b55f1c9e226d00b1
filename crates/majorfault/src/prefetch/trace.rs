//! Records the extents of a run in a file, and reads ahead by it on the next run: for orders without a rule that are the
//! same every time, such as the start of a program.
//!
//! [`crate::trace`] describes the file. A thread is known by the number of its sibling; the first reader is
//! number 0.

use crate::error::{Error, Result};
use crate::files::Extent;
use crate::params::Params;
use crate::prefetch::{Ahead, By, Policy, PolicyOptions, Predictor, Scene, start};
use crate::trace::{Run, Trace as Traced, Writer};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

pub(super) const POLICY: Policy = Policy {
    name: "trace",
    summary: "records the extents of a run in a file, and reads ahead by it on the next run",
    underneath: &[("advice", "random")],
    by: By::Caller,
    budget: Ahead::Bytes(8 << 20),
    params: Trace::declared,
    start: Some(start::<Trace>),
};

crate::choices! {
    /// What to do with the file.
    #[non_exhaustive]
    pub enum Mode {
        /// Replayed if it is there, recorded if not.
        Auto = "auto",
        /// Recorded, whether it is there or not.
        Record = "record",
        /// Replayed.
        Replay = "replay",
    }
}

crate::params! {
    /// Where the trace is.
    #[non_exhaustive]
    pub struct Trace {
        /// The trace's path; it has no default, because a trace belongs to one file and one program.
        file: String = String::new(),
        /// Which of the trace's files, by the path it had; by default the one of the same length, or else with the most accesses.
        of: String = String::new(),
        /// Record or replay; by default replay if there is a recording.
        mode: Mode = Mode::Auto,
        /// Extents ahead; 128 saturate a fast disk with room for delays.
        ahead: u32 = 128,
    }
}

/// Extents searched for the visited one, from the position of the replay on.
const SEARCHED: usize = 64;

impl PolicyOptions for Trace {
    const POLICY: &'static Policy = &POLICY;

    fn predictor(&self, scene: &Scene) -> Result<Box<dyn Predictor>> {
        let Trace { file, of, mode, ahead } = self;
        if file.is_empty() {
            return Err(Error::Invalid("policy=trace needs file=PATH, the trace to replay or to record".to_owned()));
        }
        let path = Path::new(file);
        match *mode == Mode::Replay || (*mode == Mode::Auto && path.exists()) {
            true => Ok(Box::new(Replay::open(file, of, scene, *ahead as usize)?)),
            false => Ok(Box::new(Recording::create(path, scene.length)?)),
        }
    }
}

/// The file that all threads of a recording write to.
struct Sink {
    threads: AtomicU32,
    writer: Mutex<Option<Writer>>,
}

/// One thread that records.
struct Recording {
    sink: Arc<Sink>,
    thread: u32,
    run: Option<Run>,
}

impl Drop for Sink {
    /// Completes the trace. Where that fails, no trace has its name: the next run records again.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.get_mut().ok().and_then(Option::take) {
            let _ = writer.finish();
        }
    }
}

impl Recording {
    fn create(path: &Path, length: u64) -> Result<Recording> {
        let mut writer = Writer::create(path)?;
        writer.file(None, length);
        let sink = Sink { threads: AtomicU32::new(1), writer: Mutex::new(Some(writer)) };
        Ok(Recording { sink: Arc::new(sink), thread: 0, run: None })
    }

    fn write(&mut self) {
        let (Some(run), Ok(mut writer)) = (self.run.take(), self.sink.writer.lock()) else { return };
        if let Some(writer) = writer.as_mut() {
            writer.run(0, self.thread, run);
        }
    }
}

impl Predictor for Recording {
    fn observe(&mut self, extent: Extent, _wanted: &mut Vec<Extent>) {
        if self.run.as_mut().is_none_or(|run| !run.takes(extent)) {
            self.write();
            self.run = Some(Run::of(extent));
        }
    }

    fn check(&mut self) -> Result<()> {
        let Ok(mut writer) = self.sink.writer.lock() else { return Ok(()) };
        writer.as_mut().map_or(Ok(()), Writer::check)
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        let thread = self.sink.threads.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Recording { sink: Arc::clone(&self.sink), thread, run: None }))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.write();
    }
}

/// What was recorded, by thread.
struct Recorded {
    threads: Vec<Vec<Extent>>,
    next_thread: AtomicU32,
}

/// One thread that replays.
struct Replay {
    trace: Arc<Recorded>,
    thread: usize,
    ahead: usize,
    budget: u64,
    /// The first extent not yet visited, and the first not yet wanted.
    position: usize,
    edge: usize,
    /// Bytes between these two.
    bytes: u64,
}

impl Replay {
    fn open(trace: &str, path: &str, scene: &Scene, ahead: usize) -> Result<Replay> {
        let trace = Traced::read(Path::new(trace))?;
        let threads = trace.file((!path.is_empty()).then_some(path), Some(scene.length))?.extents();
        let trace = Arc::new(Recorded { threads, next_thread: AtomicU32::new(1) });
        Ok(Replay::of(trace, 0, ahead, scene.budget))
    }

    fn of(trace: Arc<Recorded>, thread: usize, ahead: usize, budget: u64) -> Replay {
        Replay { trace, thread, ahead, budget, position: 0, edge: 0, bytes: 0 }
    }
}

impl Predictor for Replay {
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>) {
        let Some(list) = self.trace.threads.get(self.thread) else { return };
        let searched = &list[self.position..list.len().min(self.position + SEARCHED)];
        // An access that was not recorded changes nothing; the replay waits for the next recorded one.
        let Some(found) = searched.iter().position(|recorded| *recorded == extent) else { return };
        for recorded in &list[self.position..=self.position + found] {
            if self.position < self.edge {
                self.bytes -= recorded.length as u64;
            }
            self.position += 1;
        }
        self.edge = self.edge.max(self.position);
        let until = list.len().min(self.position + self.ahead);
        if until.saturating_sub(self.edge) < self.ahead.div_ceil(4) && until < list.len() {
            return;
        }
        while self.edge < until && self.bytes + list[self.edge].length as u64 <= self.budget {
            wanted.push(list[self.edge]);
            self.bytes += list[self.edge].length as u64;
            self.edge += 1;
        }
    }

    fn sibling(&self) -> Result<Box<dyn Predictor>> {
        let thread = self.trace.next_thread.fetch_add(1, Ordering::Relaxed) as usize;
        Ok(Box::new(Replay::of(Arc::clone(&self.trace), thread, self.ahead, self.budget)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Given;

    fn extent(offset: u64) -> Extent {
        Extent { offset, length: 4096 }
    }

    fn started(path: &Path) -> Box<dyn Predictor> {
        let scene = Scene { length: 1 << 30, budget: 1 << 20, gap: 0 };
        start::<Trace>(&scene, &Given::none().with("file", path.display())).unwrap().0
    }

    fn follow(predictor: &mut dyn Predictor, offsets: &[u64]) -> Vec<u64> {
        let mut wanted = Vec::new();
        offsets.iter().for_each(|offset| predictor.observe(extent(*offset), &mut wanted));
        wanted.iter().map(|extent| extent.offset).collect()
    }

    #[test]
    fn the_second_run_wants_what_the_first_visited_by_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let (mine, theirs) = ([70_000, 3, 70_000, 900_000, 5], [8192, 16384, 24576, 32768]);
        let mut first = started(&path);
        let mut other = first.sibling().unwrap();
        assert!(follow(first.as_mut(), &mine).is_empty() && follow(other.as_mut(), &theirs).is_empty());
        drop((first, other));

        let mut first = started(&path);
        let mut other = first.sibling().unwrap();

        assert_eq!(follow(first.as_mut(), &mine[..2]), mine[1..]);
        assert_eq!(follow(other.as_mut(), &theirs[..1]), theirs[1..]);
    }

    #[test]
    fn accesses_left_out_or_added_do_not_lose_the_replay() {
        let list: Vec<Extent> = (0..100).map(|n| extent(n * n * 4096)).collect();
        let trace = Arc::new(Recorded { threads: vec![list], next_thread: AtomicU32::new(1) });
        let mut replay = Replay::of(trace, 0, 8, 1 << 20);

        let wanted = follow(&mut replay, &[0, 77, 9 * 4096, 16 * 4096]);

        let expected: Vec<u64> = (1..9).chain(9..12).map(|n| n * n * 4096).collect();
        assert_eq!(wanted, expected);
    }

    #[test]
    fn a_trace_without_a_path_is_refused() {
        let scene = Scene { length: 1 << 30, budget: 1 << 20, gap: 0 };

        assert!(start::<Trace>(&scene, &Given::none()).err().unwrap().to_string().contains("file=PATH"));
    }

    fn replay(ahead: usize, budget: u64, extents: u64) -> Replay {
        let list: Vec<Extent> = (0..extents).map(|n| extent(n * 65_536)).collect();
        let trace = Arc::new(Recorded { threads: vec![list], next_thread: AtomicU32::new(1) });
        Replay::of(trace, 0, ahead, budget)
    }

    #[test]
    fn a_replay_goes_on_by_quarters_within_its_budget_and_to_the_end() {
        let wanted = |mut replay: Replay, visits: u64| -> Vec<usize> {
            (0..visits).map(|n| follow(&mut replay, &[n * 65_536]).len()).collect()
        };

        assert_eq!(wanted(replay(8, 1 << 20, 16), 16), [8, 0, 2, 0, 2, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(wanted(replay(8, 3 * 4096, 8), 8), [3, 1, 1, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn an_access_is_looked_for_among_the_next_64() {
        assert_eq!(follow(&mut replay(4, 1 << 20, 200), &[64 * 65_536]), []);
        assert_eq!(follow(&mut replay(4, 1 << 20, 200), &[63 * 65_536]), [64, 65, 66, 67].map(|n| n * 65_536));
    }

    #[test]
    fn a_thread_that_was_not_recorded_wants_nothing() {
        let first = replay(4, 1 << 20, 100);

        let wanted = follow(first.sibling().unwrap().as_mut(), &[0, 65_536]);

        assert_eq!(wanted, []);
    }

    #[test]
    fn a_recording_tells_once_that_its_trace_could_not_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = Recording::create(&dir.path().join("trace"), 1 << 30).unwrap();
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        recording.check().unwrap();

        recording.sink.writer.lock().unwrap().as_mut().unwrap().fail(Error::io("write the trace", "a full disk", full));

        assert_eq!(recording.check().unwrap_err().errno(), Some(libc::ENOSPC));
        recording.check().unwrap();
    }

    #[test]
    fn a_trace_is_recorded_or_replayed_as_it_is_there_unless_told_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let scene = Scene { length: 1 << 30, budget: 1 << 20, gap: 0 };
        let begin = |mode: &str| {
            let given = Given::none().with("file", path.display()).with("mode", mode);
            start::<Trace>(&scene, &given).map(|(predictor, _)| predictor)
        };
        let wanted = |mode: &str, offsets: &[u64]| follow(begin(mode).unwrap().as_mut(), offsets);

        assert!(matches!(begin("replay").err(), Some(Error::Io { .. })), "there is none yet");
        assert_eq!(wanted("auto", &[0, 8192]), []);
        assert_eq!(wanted("replay", &[0]), [8192]);
        assert_eq!(wanted("auto", &[0]), [8192]);
        assert_eq!(wanted("record", &[0, 65_536]), []);
        assert_eq!(wanted("auto", &[0]), [65_536], "recorded anew");
    }
}
