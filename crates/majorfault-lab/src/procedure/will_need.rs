//! A cold file of which the kernel is told that all of it will be needed: how much it then reads.

use super::{Procedure, Stage};
use majorfault::params::{Given, Params, Switch};
use majorfault::sys::advice::{Advice, madvise};
use majorfault::sys::cache::{self, FileAdvice};
use majorfault::sys::map::{MapOptions, Mapping};
use majorfault::{Error, Result};
use std::fs::File;
use std::time::Duration;

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "will-need",
    summary: "a cold file announced as a whole by MADV_WILLNEED or posix_fadvise: how much of it the kernel reads",
    needs: &[],
    swaps: false,
    params: WillNeedParams::declared,
    run,
};

majorfault::choices! {
    /// How it is told.
    enum How {
        /// madvise(MADV_WILLNEED) on a mapping.
        Madvise = "madvise",
        /// posix_fadvise(POSIX_FADV_WILLNEED).
        Fadvise = "fadvise",
        /// madvise(MADV_POPULATE_READ), which also maps.
        Populate = "populate",
    }
}

majorfault::params! {
    /// How it is told.
    struct WillNeedParams {
        /// How it is told.
        how: How = How::Madvise,
        /// MADV_RANDOM before that.
        random: Switch = Switch::Off,
    }
}

/// Reads that were started may still be under way.
const SETTLE: Duration = Duration::from_millis(300);

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let params = WillNeedParams::from_given(given)?;
    let path = stage.dir().to_owned();
    let file = File::open(&path).map_err(|error| Error::io("open the data file", &path, error))?;
    let length = file.metadata().map_err(|error| Error::io("look at the data file", &path, error))?.len();
    cache::fadvise(&file, 0, length, FileAdvice::DontNeed)?;
    let map = stage.phase("open", || Mapping::new(&file, 0, length as usize, &MapOptions::default()))?;
    if params.random.is_on() {
        madvise(&map, 0, map.length(), Advice::Random)?;
    }
    stage.phase("visit", || match params.how {
        How::Madvise => madvise(&map, 0, map.length(), Advice::WillNeed),
        How::Fadvise => cache::fadvise(&file, 0, length, FileAdvice::WillNeed),
        How::Populate => madvise(&map, 0, map.length(), Advice::PopulateRead),
    })?;
    std::thread::sleep(SETTLE);
    let (resident, _) = cache::resident(&file, 0, length)?;
    stage.figure("asked_bytes", length);
    stage.figure("resident_bytes", resident);
    stage.accessed(1, length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::procedure::tests::run;

    #[test]
    fn a_populated_file_is_resident_as_a_whole() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();

        let (_, told) = run("will-need", "how=populate,random=on", &path).unwrap();

        assert_eq!((told.figures["asked_bytes"], told.figures["resident_bytes"]), (1 << 20, 1 << 20));
    }
}
