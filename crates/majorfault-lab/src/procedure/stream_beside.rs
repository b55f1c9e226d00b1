//! A hot part of a file, used through a mapping, while the rest streams through the page cache beside it: who is evicted.
//!
//! Since Linux 6.3 accesses through a mapping with MADV_RANDOM or MADV_SEQUENTIAL do not count as use when pages are
//! reclaimed, so that the hint that avoids read-ahead also gives the hot part away.

use super::{Procedure, Stage};
use crate::data::mix;
use majorfault::params::{Given, Params};
use majorfault::sys::advice::{Advice, madvise};
use majorfault::sys::cache::{self, FileAdvice};
use majorfault::sys::fault::Guarded;
use majorfault::sys::map::{MapOptions, Mapping};
use majorfault::{Bytes, Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "stream-beside",
    summary: "a hot part used through a mapping while the rest streams through the page cache",
    needs: &[],
    swaps: false,
    params: StreamBesideParams::declared,
    run,
};

majorfault::choices! {
    /// What the kernel is told of the mapping.
    enum Hint {
        /// Nothing.
        Normal = "normal",
        /// MADV_RANDOM.
        Random = "random",
    }
}

majorfault::params! {
    /// What is hot.
    struct StreamBesideParams {
        /// What the kernel is told of the mapping.
        advice: Hint = Hint::Normal,
        /// Bytes at the front that are hot; the rest streams.
        hot: Bytes = Bytes::mib(64),
    }
}

const PAGE: usize = 4096;

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let params = StreamBesideParams::from_given(given)?;
    let path = stage.dir().to_owned();
    let file = File::open(&path).map_err(|error| Error::io("open the data file", &path, error))?;
    let length = file.metadata().map_err(|error| Error::io("look at the data file", &path, error))?.len();
    let hot = params.hot.0 as usize;
    if hot == 0 || !hot.is_multiple_of(PAGE) || hot as u64 >= length {
        return Err(Error::Invalid("hot must be whole pages and shorter than the file".to_owned()));
    }
    cache::fadvise(&file, 0, length, FileAdvice::DontNeed)?;
    let map = stage.phase("open", || {
        let map = Guarded::new(Mapping::new(&file, 0, hot, &MapOptions::default())?);
        if params.advice == Hint::Random {
            madvise(map.mapping(), 0, hot, Advice::Random)?;
        }
        Ok(map)
    })?;
    let pages = (hot / PAGE) as u64;
    let touch = |number: u64| u64::from(map.view((mix(number) % pages) as usize * PAGE, 1).get(0).unwrap_or(0));
    // Used many times over, so that it is surely hot.
    let sum = stage.phase("warm", || Ok((0..pages * 20).map(touch).sum::<u64>()))?;
    std::hint::black_box(sum);
    let ended = AtomicBool::new(false);
    let touches = stage.phase("visit", || {
        std::thread::scope(|scope| {
            let user = scope.spawn(|| {
                let mut number = pages * 20;
                while !ended.load(Ordering::Relaxed) {
                    std::hint::black_box(touch(number));
                    number += 1;
                }
                number - pages * 20
            });
            let streamed = stream(&file, hot as u64, length);
            ended.store(true, Ordering::Relaxed);
            let touches = user.join().expect("a thread that panics ends the process");
            streamed.map(|()| touches).map_err(|error| Error::io("stream the data file", &path, error))
        })
    })?;
    let (resident, _) = cache::resident(&file, 0, hot as u64)?;
    stage.figure("hot_bytes", hot as u64);
    stage.figure("hot_resident_bytes", resident);
    stage.figure("hot_touches", touches);
    stage.accessed(touches, touches);
    Ok(())
}

fn stream(file: &File, mut at: u64, end: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    while at < end {
        let length = buffer.len().min((end - at) as usize);
        file.read_exact_at(&mut buffer[..length], at)?;
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::procedure::tests::run;

    #[test]
    fn without_a_limit_the_hot_part_stays() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![1; 8 << 20]).unwrap();
        for advice in ["normal", "random"] {
            let (phases, told) = run("stream-beside", &format!("advice={advice},hot=1m"), &path).unwrap();

            assert_eq!(phases, ["open", "warm", "visit"]);
            assert_eq!(told.figures["hot_resident_bytes"], 1 << 20);
        }
    }
}
