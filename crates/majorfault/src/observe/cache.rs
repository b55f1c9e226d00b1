//! How much of the observed files is in the page cache.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit, unreadable};
use crate::sys::cache::{self, CacheStat};
use crate::sys::clock::monotonic;
use crate::units::Nanos;
use std::fs::File;

pub(super) const SOURCE: Source = Source {
    name: "cache",
    summary: "how much of the files is cached, dirty, or was evicted",
    needs: &[],
    counters: &[
        level(
            "cached_bytes",
            "bytes of the files in the page cache, whoever brought them in (cachestat(2), else mincore(2))",
        ),
        level("dirty_bytes", "of these, changed and not yet being written (cachestat(2))"),
        level("writeback_bytes", "of these, being written (cachestat(2))"),
        level("evicted_bytes", "once cached and evicted since, as far as the kernel remembers (cachestat(2))"),
    ],
    open,
};

const fn level(name: &'static str, doc: &'static str) -> Counter {
    Counter { name, unit: Unit::Bytes, scope: Scope::File, kind: Kind::Level, doc }
}

/// A reading that took a certain time is repeated only after a hundred times that time, so that watching costs at most 1 %.
const SHARE: u64 = 100;

/// What to do where there is no file.
pub(super) const NO_FILE: &str = "watch a process while it has a file mapped";

struct Cache {
    files: Vec<File>,
    page: u64,
    last: [Option<u64>; 4],
    not_before: Nanos,
}

fn open(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let open = |path| File::open(path).map_err(|error| unreadable("residency", "a file that is observed", &error));
    let files = scene.files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let first = files.first().ok_or_else(|| Missing::new("residency", "no file is observed", NO_FILE))?;
    cache::resident(first, 0, 1).map_err(|error| match error {
        crate::Error::Missing(missing) => missing,
        other => {
            Missing::new("residency of the files", other.to_string(), "run as the files' owner, on Linux 6.5 or newer")
        }
    })?;
    let page = rustix::param::page_size() as u64;
    Ok(Box::new(Cache { files, page, last: [None; 4], not_before: Nanos(0) }))
}

impl Cache {
    fn look(&self) -> [Option<u64>; 4] {
        let stats: Result<Vec<CacheStat>, _> = self.files.iter().map(|file| cache::cachestat(file, 0, 0)).collect();
        let Ok(stats) = stats else {
            let resident = |file: &File| cache::mincore(file, 0, file.metadata().ok()?.len()).ok();
            return [self.files.iter().map(resident).sum(), None, None, None];
        };
        let sum = |field: fn(&CacheStat) -> u64| Some(stats.iter().map(field).sum::<u64>() * self.page);
        [sum(|stat| stat.cached), sum(|stat| stat.dirty), sum(|stat| stat.writeback), sum(|stat| stat.evicted)]
    }
}

impl Reading for Cache {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let began = monotonic();
        if began >= self.not_before {
            self.last = self.look();
            let ended = monotonic();
            self.not_before = Nanos(ended.0 + (ended.0 - began.0) * SHARE);
        }
        values.copy_from_slice(&self.last);
    }
}
