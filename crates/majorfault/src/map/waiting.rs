//! Mapped files for asynchronous programs. A fault would block the thread that runs a hundred tasks, so another thread faults
//! in what is not in memory, and the task waits.

use super::{MappedFile, TryGet, View};
use crate::error::{Error, Result};
use crate::sys::cache::{self, FileAdvice};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

/// A mapped file for tasks that wait for ranges of it; works with any runtime.
///
/// Costs one thread, and for each range one system call that asks whether it is in memory. The reads of all ranges requested
/// at one moment are started before the first is waited for, so that the device has a queue.
pub struct AsyncMap {
    map: Arc<MappedFile>,
    /// None only while it is dropped.
    asks: Option<Sender<Arc<Ask>>>,
    loader: Option<JoinHandle<()>>,
}

/// A range that a task waits for.
struct Ask {
    range: Range<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outcome: Option<Result<()>>,
    waker: Option<Waker>,
}

/// A future that ends once the range is in memory.
#[must_use = "nothing is read before it is polled"]
pub struct Waiting<'m> {
    map: &'m AsyncMap,
    range: Range<usize>,
    ask: Option<Arc<Ask>>,
}

impl AsyncMap {
    /// Starts the thread that faults in ranges of `map`.
    ///
    /// Errors: Io (the thread cannot be started).
    pub fn new(map: MappedFile) -> Result<AsyncMap> {
        let map = Arc::new(map);
        let (asks, asked) = channel();
        let own = Arc::clone(&map);
        let loader = std::thread::Builder::new().name("map loader".to_owned()).spawn(move || load(&own, &asked));
        let loader = loader.map_err(|error| Error::io("start the thread that reads ahead of tasks", "clone", error))?;
        Ok(AsyncMap { map, asks: Some(asks), loader: Some(loader) })
    }

    /// The bytes of `range` once they are in memory; at once if they are already. They may be evicted again before they are
    /// read, under memory pressure; reading them then blocks, as it always may. For slices, wait, and then use
    /// [`map`](AsyncMap::map) with the promise of [`MappedFile::assume_stable`].
    ///
    /// Errors: Invalid (outside the mapping), Truncated (the file is shorter now, or a page cannot be read).
    pub fn get(&self, range: Range<usize>) -> Waiting<'_> {
        Waiting { map: self, range, ask: None }
    }

    /// The mapped file, for calls that do not wait.
    pub fn map(&self) -> &MappedFile {
        &self.map
    }
}

impl Drop for AsyncMap {
    fn drop(&mut self) {
        // Nobody can request any more; the thread ends after the last request.
        self.asks = None;
        if let Some(loader) = self.loader.take() {
            let _ = loader.join();
        }
    }
}

impl<'m> Future for Waiting<'m> {
    type Output = Result<View<'m>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let map = self.map;
        let Some(ask) = &self.ask else {
            match map.map.try_get(self.range.clone()) {
                Ok(TryGet::Ready(bytes)) => return Poll::Ready(Ok(bytes)),
                Ok(TryGet::NotResident) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let state = State { outcome: None, waker: Some(context.waker().clone()) };
            let ask = Arc::new(Ask { range: self.range.clone(), state: Mutex::new(state) });
            let sent = map.asks.as_ref().is_some_and(|asks| asks.send(Arc::clone(&ask)).is_ok());
            self.ask = Some(ask);
            return match sent {
                true => Poll::Pending,
                false => Poll::Ready(Err(Error::Invalid("the reader thread ended; map the file again".to_owned()))),
            };
        };
        let mut state = ask.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.outcome.take() {
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            Some(Ok(())) => Poll::Ready(map.map.unseen(&self.range)),
        }
    }
}

/// Serves requests until nobody can make one.
fn load(map: &MappedFile, asked: &Receiver<Arc<Ask>>) {
    while let Ok(first) = asked.recv() {
        let asks: Vec<Arc<Ask>> = std::iter::once(first).chain(asked.try_iter()).collect();
        for ask in &asks {
            let (from, length) = (map.start + (map.lead + ask.range.start) as u64, ask.range.len() as u64);
            // Only a hint: a read that is not started here happens at its turn.
            let _ = cache::fadvise(&map.file, from, length, FileAdvice::WillNeed);
        }
        for ask in asks {
            let outcome = map.get(ask.range.clone()).map(drop);
            let mut state = ask.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.outcome = Some(outcome);
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Harmless;
    use crate::test_files::{PAGE, TestFile};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread::Thread;

    struct Unpark(Thread, AtomicUsize);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.unpark();
        }
    }

    /// Runs futures to completion on this thread; returns how often they had to wait.
    fn all<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> (Vec<T>, usize) {
        let unpark = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&unpark));
        let mut context = Context::from_waker(&waker);
        let mut done = Vec::new();
        while !futures.is_empty() {
            let mut left = Vec::new();
            for mut future in futures {
                match future.as_mut().poll(&mut context) {
                    Poll::Ready(outcome) => done.push(outcome),
                    Poll::Pending => left.push(future),
                }
            }
            futures = left;
            if !futures.is_empty() {
                std::thread::park();
            }
        }
        (done, unpark.1.load(Ordering::Relaxed))
    }

    fn cold(file: &TestFile) -> AsyncMap {
        file.file().sync_all().unwrap();
        cache::fadvise(file.file(), 0, 0, FileAdvice::DontNeed).unwrap();
        AsyncMap::new(MappedFile::options().advice(Harmless::Random).open(file.path()).unwrap()).unwrap()
    }

    #[test]
    fn many_ranges_are_waited_for_at_once_and_then_are_there() {
        let file = TestFile::on_disk(256 * PAGE);
        let map = cold(&file);
        let range = |page: usize| page * PAGE..(page + 2) * PAGE;
        let ask = |page: usize| Box::pin(map.get(range(page))) as Pin<Box<dyn Future<Output = _> + '_>>;

        let (found, waits) = all((0..64).map(|turn| ask(turn * 4)).collect());
        let total: usize = found.into_iter().map(|view: Result<View<'_>>| view.unwrap().len()).sum();
        let (again, no_waits) = all((0..64).map(|turn| ask(turn * 4)).collect());

        assert_eq!((total, waits, no_waits), (64 * 2 * PAGE, 64, 0));
        for (turn, view) in again.into_iter().enumerate() {
            assert_eq!(view.unwrap().to_vec(), &file.content()[range(turn * 4)]);
        }
    }

    #[test]
    fn what_is_gone_or_outside_is_an_error_and_an_unfinished_wait_harms_nobody() {
        let file = TestFile::on_disk(64 * PAGE);
        let map = cold(&file);
        let mut context = Context::from_waker(Waker::noop());

        let mut unfinished = Box::pin(map.get(0..PAGE));
        assert!(unfinished.as_mut().poll(&mut context).is_pending());
        drop(unfinished);
        let (outside, _) = all(vec![Box::pin(map.get(0..65 * PAGE)) as Pin<Box<dyn Future<Output = _> + '_>>]);
        file.file().set_len(PAGE as u64).unwrap();
        let (gone, _) = all(vec![Box::pin(map.get(32 * PAGE..33 * PAGE)) as Pin<Box<dyn Future<Output = _> + '_>>]);

        assert!(matches!(outside[0], Err(Error::Invalid(_))));
        assert!(matches!(gone[0], Err(Error::Truncated { .. })));
    }
}
