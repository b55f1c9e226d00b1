//! The threads that read. A ring belongs to a thread, and a runtime's threads must not wait: so calls go to threads of our own, which come
//! when they are needed and end when they had nothing to do for a while.

use crate::Settings;
use crate::visit::{Kept, Outcome, visit};
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a thread waits for the next call, with its ring and the last file open, before it ends. The space of a file that was deleted
/// meanwhile is given back no later.
const LINGER: Duration = Duration::from_millis(500);

/// A call that a thread is to answer.
struct Job {
    path: PathBuf,
    ranges: Vec<Range<u64>>,
    answer: oneshot::Sender<Outcome>,
}

/// The front of the threads; they end when it goes.
#[derive(Debug)]
pub(crate) struct Workers(Arc<Shared>);

struct Shared {
    settings: Settings,
    /// Calls whose answer nobody waited for any more.
    cancelled: AtomicU64,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Workers {
    pub(crate) fn new(settings: Settings) -> Workers {
        Workers(Arc::new(Shared {
            settings,
            cancelled: AtomicU64::new(0),
            state: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// Reads `ranges` of the file; a future that is dropped stops the reading, whose memory stays the thread's until the last read has ended.
    pub(crate) async fn read(&self, path: PathBuf, ranges: Vec<Range<u64>>) -> Outcome {
        let (answer, answered) = oneshot::channel();
        if let Err(error) = self.0.take(Job { path, ranges, answer }) {
            return Outcome::Refused(format!("no thread could be started: {error}"));
        }
        answered.await.unwrap_or(Outcome::Odd)
    }

    /// Threads that there are now.
    pub(crate) fn threads(&self) -> usize {
        self.0.lock().threads
    }

    /// Calls whose answer nobody waited for any more.
    pub(crate) fn cancelled(&self) -> u64 {
        self.0.cancelled.load(Ordering::Relaxed)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.wake.notify_all();
    }
}

impl Shared {
    /// Nothing is left half done when a thread panics: the state is right whenever the lock is free.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Shared>, job: Job) -> std::io::Result<()> {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle || state.threads >= self.settings.threads {
            self.wake.notify_one();
            return Ok(());
        }
        let shared = Arc::clone(self);
        let started = thread::Builder::new().name("majorfault-read".to_owned()).spawn(move || shared.work());
        match started {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                state.jobs.pop_back();
                return Err(error);
            }
            Err(_) => self.wake.notify_one(),
        }
        Ok(())
    }

    /// The life of a thread.
    fn work(&self) {
        let mut kept: Option<Kept> = None;
        while let Some(Job { path, ranges, answer }) = self.next() {
            // Asking is cheap: it is one load.
            let is_wanted = || !answer.is_closed();
            let visited =
                catch_unwind(AssertUnwindSafe(|| visit(&mut kept, &self.settings, &path, &ranges, is_wanted)));
            let outcome = visited.unwrap_or_else(|_| {
                // A mistake of ours, told on standard error by the panic; the reader's state is not known.
                kept = None;
                Outcome::Odd
            });
            if answer.send(outcome).is_err() {
                self.cancelled.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The next call, or none when it is time to end.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                if job.answer.is_closed() {
                    self.cancelled.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                return Some(job);
            }
            if state.is_closed {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let (back, waited) = self.wake.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            // Counted out before the lock is free: the next call then starts another.
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}
