//! Records the extents of a run in a file, and reads ahead by it on the next run: for orders without a law that are the
//! same every time, such as the start of a program.
//!
//! The file is text: a line with the version, then `thread offset length stride count` for each run of equal distances,
//! in each thread's order, then `end`. A thread is known by the number of its sibling, the first reader being 0.

use crate::error::{Error, Result};
use crate::files::Extent;
use crate::params::{Given, Params};
use crate::prefetch::{Ahead, By, Policy, Predictor, Scene};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

pub(super) const POLICY: Policy = Policy {
    name: "trace",
    summary: "records the extents of a run in a file, and reads ahead by it on the next run",
    underneath: &[("advice", "random")],
    by: By::Caller,
    budget: Ahead::Bytes(8 << 20),
    params: TraceParams::declared,
    start: Some(start),
};

crate::choices! {
    /// What is done with the file.
    enum Mode {
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
    struct TraceParams {
        /// The trace's path; it must be given, for a trace belongs to one file and one program.
        file: String = String::new(),
        /// Record or replay; by default replay what was recorded before.
        mode: Mode = Mode::Auto,
        /// Extents ahead; 128 saturate a fast disk with room for delays.
        ahead: u32 = 128,
    }
}

/// First line of every trace; another version begins otherwise.
const HEADER: &str = "faultline trace 1";

/// Last line of a trace that was finished.
const END: &str = "end";

/// Extents looked through for the one visited, from where the replay is.
const SEARCHED: usize = 64;

/// Extents of a trace at most: 24 bytes each are held while it is replayed.
const MOST: u64 = 1 << 26;

fn start(scene: &Scene, given: &Given) -> Result<(Box<dyn Predictor>, Given)> {
    let params = TraceParams::from_given(given)?;
    let TraceParams { file, mode, ahead } = &params;
    if file.is_empty() {
        return Err(Error::Invalid("policy=trace needs file=PATH, where the trace is or will be".to_owned()));
    }
    let path = Path::new(file);
    let replays = *mode == Mode::Replay || (*mode == Mode::Auto && path.exists());
    let predictor: Box<dyn Predictor> = match replays {
        true => Box::new(Replay::open(path, scene, *ahead as usize)?),
        false => Box::new(Recording::create(path)?),
    };
    Ok((predictor, params.given()))
}

/// Extents of equal length at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: Extent,
    stride: i64,
    count: u64,
}

impl Run {
    fn of(extent: Extent) -> Run {
        Run { first: extent, stride: 0, count: 1 }
    }

    /// Takes `extent` in, if it continues the run.
    fn takes(&mut self, extent: Extent) -> bool {
        if self.count == 1 {
            self.stride = extent.offset.wrapping_sub(self.first.offset) as i64;
        }
        let goes_on = self.first.length == extent.length && self.at(self.count) == extent.offset;
        self.count += u64::from(goes_on);
        goes_on
    }

    fn at(&self, number: u64) -> u64 {
        self.first.offset.wrapping_add_signed(self.stride.wrapping_mul(number as i64))
    }

    fn extents(self) -> impl Iterator<Item = Extent> {
        (0..self.count).map(move |number| Extent { offset: self.at(number), length: self.first.length })
    }
}

/// The file that all threads of a recording write, under another name until it is complete.
struct Sink {
    path: PathBuf,
    /// Where it is written.
    draft: PathBuf,
    threads: AtomicU32,
    written: Mutex<Written>,
}

struct Written {
    file: BufWriter<fs::File>,
    error: Option<Error>,
}

/// One thread that records.
struct Recording {
    sink: Arc<Sink>,
    thread: u32,
    run: Option<Run>,
}

impl Sink {
    fn line(&self, line: &str) {
        let Ok(mut written) = self.written.lock() else { return };
        let failed = writeln!(written.file, "{line}").err();
        let failed = failed.map(|error| Error::io("write the trace", &self.draft, error));
        written.error = written.error.take().or(failed);
    }
}

impl Drop for Sink {
    /// Completes the trace. Where that fails, there is no trace under its name: the next run records again.
    fn drop(&mut self) {
        self.line(END);
        let Ok(written) = self.written.get_mut() else { return };
        if written.error.is_none() && written.file.flush().is_ok() {
            let _ = fs::rename(&self.draft, &self.path);
        } else {
            let _ = fs::remove_file(&self.draft);
        }
    }
}

impl Recording {
    fn create(path: &Path) -> Result<Recording> {
        let draft = PathBuf::from(format!("{}.{}.draft", path.display(), std::process::id()));
        let file = fs::File::create(&draft).map_err(|error| Error::io("make the trace", &draft, error))?;
        let written = Mutex::new(Written { file: BufWriter::new(file), error: None });
        let sink = Sink { path: path.to_owned(), draft, threads: AtomicU32::new(1), written };
        sink.line(HEADER);
        Ok(Recording { sink: Arc::new(sink), thread: 0, run: None })
    }

    fn write(&mut self) {
        if let Some(Run { first: Extent { offset, length }, stride, count }) = self.run.take() {
            self.sink.line(&format!("{} {offset} {length} {stride} {count}", self.thread));
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
        let error = self.sink.written.lock().ok().and_then(|mut written| written.error.take());
        error.map_or(Ok(()), Err)
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
struct Trace {
    threads: Vec<Vec<Extent>>,
    next_thread: AtomicU32,
}

/// One thread that replays.
struct Replay {
    trace: Arc<Trace>,
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
    fn open(path: &Path, scene: &Scene, ahead: usize) -> Result<Replay> {
        let text = fs::read_to_string(path).map_err(|error| Error::io("read the trace", path, error))?;
        let threads = parse(&text).map_err(|why| {
            Error::Invalid(format!("{} is no trace that can be replayed: {why}; record it again", path.display()))
        })?;
        let trace = Arc::new(Trace { threads, next_thread: AtomicU32::new(1) });
        Ok(Replay::of(trace, 0, ahead, scene.budget))
    }

    fn of(trace: Arc<Trace>, thread: usize, ahead: usize, budget: u64) -> Replay {
        Replay { trace, thread, ahead, budget, position: 0, edge: 0, bytes: 0 }
    }
}

/// The extents of each thread.
fn parse(text: &str) -> std::result::Result<Vec<Vec<Extent>>, String> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Err(format!("it does not begin with \"{HEADER}\""));
    }
    let (mut threads, mut total) = (Vec::<Vec<Extent>>::new(), 0u64);
    for line in lines {
        if line == END {
            return Ok(threads);
        }
        let (thread, run) = parse_line(line).ok_or_else(|| format!("\"{line}\" is not a line of it"))?;
        total = total.saturating_add(run.count);
        if total > MOST || thread > 1 << 16 {
            return Err(format!("it has more than {MOST} extents, or 65536 threads"));
        }
        if threads.len() <= thread {
            threads.resize_with(thread + 1, Vec::new);
        }
        threads[thread].extend(run.extents());
    }
    Err("it was not finished".to_owned())
}

fn parse_line(line: &str) -> Option<(usize, Run)> {
    let mut words = line.split(' ');
    let thread = words.next()?.parse().ok()?;
    let first = Extent { offset: words.next()?.parse().ok()?, length: words.next()?.parse().ok()? };
    let (stride, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some((thread, Run { first, stride, count }))
}

impl Predictor for Replay {
    fn observe(&mut self, extent: Extent, wanted: &mut Vec<Extent>) {
        let Some(list) = self.trace.threads.get(self.thread) else { return };
        let searched = &list[self.position..list.len().min(self.position + SEARCHED)];
        // An access that was not recorded changes nothing; the replay waits for the next that was.
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
    use proptest::prelude::*;

    fn extent(offset: u64) -> Extent {
        Extent { offset, length: 4096 }
    }

    fn started(path: &Path) -> Box<dyn Predictor> {
        let scene = Scene { length: 1 << 30, budget: 1 << 20, gap: 0 };
        start(&scene, &Given::none().with("file", path.display())).unwrap().0
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
        let trace = Arc::new(Trace { threads: vec![list], next_thread: AtomicU32::new(1) });
        let mut replay = Replay::of(trace, 0, 8, 1 << 20);

        let wanted = follow(&mut replay, &[0, 77, 9 * 4096, 16 * 4096]);

        let expected: Vec<u64> = (1..9).chain(9..12).map(|n| n * n * 4096).collect();
        assert_eq!(wanted, expected);
    }

    #[test]
    fn what_is_no_finished_trace_is_refused() {
        for (text, why) in [
            ("", "does not begin"),
            ("faultline trace 2\nend\n", "does not begin"),
            ("faultline trace 1\n0 0 4096 0 1\n", "not finished"),
            ("faultline trace 1\n0 0 4096 0\nend\n", "not a line"),
            ("faultline trace 1\n0 0 4096 0 99999999999\nend\n", "more than"),
        ] {
            assert!(parse(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn a_trace_without_a_path_is_refused() {
        let scene = Scene { length: 1 << 30, budget: 1 << 20, gap: 0 };

        assert!(start(&scene, &Given::none()).err().unwrap().to_string().contains("file=PATH"));
    }

    proptest! {
        #[test]
        fn every_order_is_read_back_as_it_was(offsets in prop::collection::vec(0u64..6, 0..60)) {
            let extents: Vec<Extent> = offsets.iter().map(|at| extent(at * 4096)).collect();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("trace");
            let mut recording = Recording::create(&path).unwrap();
            extents.iter().for_each(|extent| recording.observe(*extent, &mut Vec::new()));
            drop(recording);

            let threads = parse(&fs::read_to_string(&path).unwrap()).unwrap();

            prop_assert_eq!(threads.into_iter().next().unwrap_or_default(), extents);
        }
    }
}
