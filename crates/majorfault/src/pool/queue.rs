//! Two queues for the batches of all threads, and a system call for whatever is single: what a file behind a pool is read and
//! written by.
//!
//! A ring belongs to the thread that made it, and its buffers to nobody's budget, so threads that come and go do not get one
//! each. The thread that flushes keeps the ring; where another one comes, the ring is made anew. A buffer is as long as the
//! longest extent: short extents have a deep queue of their own, long ones saturate a device with few in flight.

use crate::access::{DirectOptions, Filler, MethodOptions, Reader, UringOptions, Visitor};
use crate::error::Result;
use crate::files::{Extent, Target};
use crate::sys::ring::IO_URING;
use std::sync::{Arc, Mutex};

/// The longest extent that counts as short: with this the buffers of the deep queue take 9 MiB.
const SHORT: usize = 64 << 10;

/// Short transfers in flight: single pages need as many as devices take to be written as fast as the kernel's write-back does.
const DEEP: u32 = 128;

/// The reader of one thread.
struct Batched {
    single: Box<dyn Reader>,
    queues: Arc<Queues>,
}

struct Queues {
    short: Mutex<Box<dyn Reader>>,
    long: Mutex<Box<dyn Reader>>,
}

impl Queues {
    /// None without io_uring.
    fn open(target: &Arc<Target>) -> Option<Queues> {
        IO_URING.met().ok()?;
        let queue = |options: UringOptions| Some(Mutex::new(options.open_target(Arc::clone(target)).ok()?.reader));
        Some(Queues {
            short: queue(UringOptions::default().depth(DEEP).batch(DEEP / 4))?,
            long: queue(UringOptions::default())?,
        })
    }

    /// The queue for these extents.
    fn of(&self, extents: &[Extent]) -> &Mutex<Box<dyn Reader>> {
        if extents.iter().all(|extent| extent.length <= SHORT) { &self.short } else { &self.long }
    }
}

/// A reader past the page cache; without io_uring all goes by system calls.
///
/// Errors: as opening the target with O_DIRECT.
pub(super) fn batched(target: &Arc<Target>) -> Result<Box<dyn Reader>> {
    let single = DirectOptions::default().open_target(Arc::clone(target))?.reader;
    Ok(match Queues::open(target) {
        Some(queues) => Box::new(Batched { single, queues: Arc::new(queues) }),
        None => single,
    })
}

impl Batched {
    /// Acts by the queue where there are several extents, nobody else is at it, and nobody left it by a panic.
    fn with<T>(&mut self, extents: &[Extent], act: impl FnOnce(&mut dyn Reader) -> T) -> T {
        let Batched { single, queues } = self;
        match (extents.len() > 1).then(|| queues.of(extents).try_lock()) {
            Some(Ok(mut queue)) => act(queue.as_mut()),
            _ => act(single.as_mut()),
        }
    }
}

impl Reader for Batched {
    fn visit(&mut self, extents: &[Extent], visitor: &mut dyn Visitor) -> Result<()> {
        self.with(extents, |reader| reader.visit(extents, visitor))
    }

    fn update(&mut self, extents: &[Extent], filler: &mut dyn Filler) -> Result<()> {
        self.with(extents, |reader| reader.update(extents, filler))
    }

    fn check_update(&self, extent: Extent) -> Result<()> {
        self.single.check_update(extent)
    }

    fn sync(&mut self) -> Result<()> {
        self.single.sync()
    }

    fn sibling(&self) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Batched { single: self.single.sibling()?, queues: Arc::clone(&self.queues) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::test_files::{PAGE, TestFile};
    use std::ops::ControlFlow;

    /// Every page of the file in an order of its own.
    fn pages(file: &TestFile, step: usize) -> Vec<Extent> {
        let count = file.length() / PAGE;
        let offset = |turn: usize| (turn * step % count * PAGE) as u64;
        (0..count).map(|turn| Extent { offset: offset(turn), length: PAGE }).collect()
    }

    struct Fills(u8);

    impl Filler for Fills {
        fn fill(&mut self, _: usize, bytes: &mut [u8]) -> ControlFlow<()> {
            bytes.fill(self.0);
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn threads_that_share_a_queue_each_see_the_bytes_of_what_they_asked_for() {
        let file = TestFile::on_disk(64 * PAGE);
        let reader = batched(&file.target(true)).unwrap();

        std::thread::scope(|scope| {
            for step in [1, 3, 5] {
                let (mut reader, extents, file) = (reader.sibling().unwrap(), pages(&file, step), &file);
                scope.spawn(move || {
                    for _ in 0..20 {
                        let mut seen = 0;
                        let mut see = |index: usize, bytes: &[u8]| {
                            let at = extents[index].offset as usize;
                            assert!(*bytes == file.content()[at..at + PAGE]);
                            seen += 1;
                        };
                        reader.visit(&extents, &mut see).unwrap();
                        assert_eq!(seen, 64);
                    }
                });
            }
        });
    }

    #[test]
    fn batches_and_single_pages_are_written_where_they_belong() {
        let file = TestFile::on_disk(8 * PAGE);
        let mut reader = batched(&file.target(true)).unwrap();
        let all = pages(&file, 1);

        reader.update(&all[2..5], &mut Fills(7)).unwrap();
        reader.update(&all[6..7], &mut Fills(9)).unwrap();
        reader.sync().unwrap();

        let mut expected = file.content().to_vec();
        expected[2 * PAGE..5 * PAGE].fill(7);
        expected[6 * PAGE..7 * PAGE].fill(9);
        assert!(std::fs::read(file.path()).unwrap() == expected);
    }

    #[test]
    fn batches_have_the_queue_for_their_length_and_single_pages_leave_both_to_others() {
        let file = TestFile::on_disk(64 * PAGE);
        let [single, short, long] =
            [(); 3].map(|()| DirectOptions::default().open_target(file.target(true)).unwrap().reader);
        let queues = Arc::new(Queues { short: Mutex::new(short), long: Mutex::new(long) });
        let mut reader = Batched { single, queues: Arc::clone(&queues) };
        let all = pages(&file, 1);
        let half = |number: u64| Extent { offset: number * 32 * PAGE as u64, length: 32 * PAGE };
        let mut in_use = |extents: &[Extent]| {
            let mut seen = Vec::new();
            reader
                .visit(extents, &mut |_: usize, _: &[u8]| {
                    seen.push([&queues.short, &queues.long].map(|queue| queue.try_lock().is_err()))
                })
                .unwrap();
            seen
        };

        assert_eq!(in_use(&all[..2]), [[true, false]; 2]);
        assert_eq!(in_use(&[half(0), half(1)]), [[false, true]; 2]);
        assert_eq!(in_use(&all[..1]), [[false, false]]);
    }

    #[test]
    fn a_batch_is_read_by_its_queue_and_a_single_page_by_a_call_of_its_own() {
        let files = [(); 3].map(|()| TestFile::on_disk(64 * PAGE));
        let [single, short, long] =
            files.each_ref().map(|file| DirectOptions::default().open_target(file.target(true)).unwrap().reader);
        let mut reader =
            Batched { single, queues: Arc::new(Queues { short: Mutex::new(short), long: Mutex::new(long) }) };
        let mut by = |length: usize, count: usize| {
            let extents: Vec<Extent> =
                (0..count).map(|turn| Extent { offset: (turn * length) as u64, length }).collect();
            let mut shown = Vec::new();
            reader.visit(&extents, &mut |_: usize, bytes: &[u8]| shown.push(bytes.to_vec())).unwrap();
            files.iter().position(|file| file.content()[..length] == shown[0])
        };

        assert_eq!((by(SHORT, 2), by(SHORT + PAGE, 2), by(PAGE, 1)), (Some(1), Some(2), Some(0)));
    }

    #[test]
    fn there_are_queues_wherever_there_is_io_uring() {
        let file = TestFile::on_disk(PAGE);

        assert_eq!(Queues::open(&file.target(true)).is_some(), IO_URING.met().is_ok());
    }

    /// A device that cannot keep what was written.
    struct Forgetful;

    impl Reader for Forgetful {
        fn visit(&mut self, _: &[Extent], _: &mut dyn Visitor) -> Result<()> {
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            Err(Error::Ended("no power".to_owned()))
        }

        fn sibling(&self) -> Result<Box<dyn Reader>> {
            Ok(Box::new(Forgetful))
        }
    }

    #[test]
    fn a_sync_that_fails_is_told() {
        let queue = || Mutex::new(Box::new(Forgetful) as Box<dyn Reader>);
        let queues = Arc::new(Queues { short: queue(), long: queue() });

        let told = Batched { single: Box::new(Forgetful), queues }.sync();

        assert!(matches!(told, Err(Error::Ended(_))), "{told:?}");
    }

    #[test]
    fn a_file_for_reading_is_not_changed_by_a_queue_either() {
        let file = TestFile::on_disk(8 * PAGE);
        let (reading, writing) = (batched(&file.target(false)).unwrap(), batched(&file.target(true)).unwrap());
        let page = pages(&file, 1)[3];

        assert!(reading.check_update(page).is_err() && writing.check_update(page).is_ok());
    }

    #[test]
    fn a_queue_that_was_left_by_a_panic_or_is_in_use_is_done_without() {
        let file = TestFile::on_disk(64 * PAGE);
        let mut reader = batched(&file.target(true)).unwrap();
        let (mut other, all) = (reader.sibling().unwrap(), pages(&file, 1));
        let mut seen = [0, 0];

        let mut inside = |_: usize, _: &[u8]| {
            seen[0] += 1;
            other.visit(&all, &mut |_: usize, _: &[u8]| seen[1] += 1).unwrap();
        };
        reader.visit(&all, &mut inside).unwrap();
        assert_eq!(seen, [64, 64 * 64], "while another thread has it");

        let panics = std::panic::AssertUnwindSafe(|| reader.visit(&all, &mut |_: usize, _: &[u8]| panic!("seen")));
        assert!(std::panic::catch_unwind(panics).is_err());
        let mut after = 0;
        reader.visit(&all, &mut |_: usize, _: &[u8]| after += 1).unwrap();
        assert_eq!(after, 64);
    }
}
