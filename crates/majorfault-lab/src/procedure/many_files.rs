//! Many small files, each reached for a few values and left again (SOURCES S0): by mapping and unmapping, or by reading it
//! into a buffer.

use super::{Company, Procedure, Stage};
use crate::data::mix;
use majorfault::params::{Given, Params, Switch};
use majorfault::sys::advice::{Advice, madvise};
use majorfault::sys::clock::monotonic;
use majorfault::sys::map::{MapOptions, Mapping};
use majorfault::{Bytes, Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "many-files",
    summary: "many small files, each reached for some values and left again, by mapping or by buffers",
    needs: &[],
    swaps: false,
    params: ManyFilesParams::declared,
    run,
};

majorfault::choices! {
    /// How a file is reached.
    enum How {
        /// Mapped, read, unmapped.
        Mmap = "mmap",
        /// Read into a buffer as a whole.
        Buffer = "buffer",
    }
}

majorfault::choices! {
    /// When mappings go.
    enum Unmap {
        /// Each at once.
        Each = "each",
        /// 64 at a time.
        Batch = "batch",
        /// All at the end, inside the clock.
        End = "end",
    }
}

majorfault::params! {
    /// What is read, and how.
    struct ManyFilesParams {
        /// How each file is reached.
        how: How = How::Mmap,
        /// Files; 50 000 is the published number.
        files: u64 = 50_000,
        /// Bytes of each file.
        length: Bytes = Bytes::kib(16),
        /// Values of 16 bytes read from each file.
        reads: u64 = 100,
        /// Threads that share the files.
        threads: u64 = 12,
        /// Whether the whole file is faulted in by one call after mapping it.
        populate: Switch = Switch::Off,
        /// When mappings go.
        unmap: Unmap = Unmap::Each,
        /// Another thread of the process that only runs, for flushes to interrupt.
        company: Switch = Switch::Off,
    }
}

/// Bytes of a value, as of a UUID.
pub const VALUE: u64 = 16;

/// The value at `slot` of file number `file`: two words that tell both.
pub fn value(file: u64, slot: u64) -> [u64; 2] {
    let first = mix(file << 32 | slot);
    [first, mix(first)]
}

/// The name of a file.
pub fn name(file: u64) -> String {
    format!("data-{file}")
}

/// Makes the files in `dir`, each full of values, and makes them durable as a whole.
///
/// Errors: Io (full disk).
pub fn make(dir: &Path, files: u64, length: Bytes) -> Result<()> {
    let failed = |error| {
        Error::io("make the data files", dir, error).with_remedy("free space, or name another directory with --dir")
    };
    let mut bytes = Vec::with_capacity(length.0 as usize);
    for file in 0..files {
        bytes.clear();
        for slot in 0..length.0 / VALUE {
            bytes.extend(value(file, slot).iter().flat_map(|word| word.to_le_bytes()));
        }
        std::fs::write(dir.join(name(file)), &bytes).map_err(failed)?;
    }
    File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?)).map_err(failed)
}

/// Nanoseconds of one thread by what they went into.
#[derive(Default)]
struct Spent {
    open: u64,
    map: u64,
    read: u64,
    unmap: u64,
}

/// Adds the time since `since` to `sum` and begins anew.
fn lap(sum: &mut u64, since: &mut u64) {
    let now = monotonic().0;
    *sum += now - *since;
    *since = now;
}

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let params = ManyFilesParams::from_given(given)?;
    if params.threads == 0 || params.length.0 < VALUE || !params.length.0.is_multiple_of(VALUE) {
        return Err(Error::Invalid("threads must be 1 or more, length a multiple of 16".to_owned()));
    }
    let dir = stage.dir().to_owned();
    let company = params.company.is_on().then(Company::start);
    let spent = stage.phase("visit", || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..params.threads)
                .map(|thread| {
                    let (params, dir) = (&params, dir.as_path());
                    scope.spawn(move || share(params, dir, thread))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread that panics ends the process"))
                .collect::<Result<Vec<Spent>>>()
        })
    })?;
    drop(company);
    let sum = |part: fn(&Spent) -> u64| spent.iter().map(part).sum();
    stage.figure("open_ns", sum(|spent| spent.open));
    stage.figure("map_ns", sum(|spent| spent.map));
    stage.figure("read_ns", sum(|spent| spent.read));
    stage.figure("unmap_ns", sum(|spent| spent.unmap));
    stage.accessed(params.files, params.files * params.reads * VALUE);
    Ok(())
}

/// One thread's files.
fn share(params: &ManyFilesParams, dir: &Path, thread: u64) -> Result<Spent> {
    let mut spent = Spent::default();
    let mut since = monotonic().0;
    let mut kept: Vec<Mapping> = Vec::new();
    let mut buffer = vec![0; params.length.0 as usize];
    let slots = params.length.0 / VALUE;
    for file in (thread..params.files).step_by(params.threads as usize) {
        let path = dir.join(name(file));
        let opened = File::open(&path).map_err(|error| Error::io("open a data file", &path, error))?;
        lap(&mut spent.open, &mut since);
        let read_slot = |number: u64| mix(file ^ number << 40) % slots;
        match params.how {
            How::Mmap => {
                let mapping = Mapping::new(&opened, 0, params.length.0 as usize, &MapOptions::default())?;
                if params.populate.is_on() {
                    madvise(&mapping, 0, mapping.length(), Advice::PopulateRead)?;
                }
                lap(&mut spent.map, &mut since);
                for number in 0..params.reads {
                    let slot = read_slot(number);
                    let at = (slot * VALUE) as usize;
                    check(&path, file, slot, [mapping.word(at), mapping.word(at + 8)])?;
                }
                lap(&mut spent.read, &mut since);
                kept.push(mapping);
                let full = match params.unmap {
                    Unmap::Each => true,
                    Unmap::Batch => kept.len() == 64,
                    Unmap::End => false,
                };
                if full {
                    kept.clear();
                }
                lap(&mut spent.unmap, &mut since);
            }
            How::Buffer => {
                opened.read_exact_at(&mut buffer, 0).map_err(|error| Error::io("read a data file", &path, error))?;
                lap(&mut spent.map, &mut since);
                let (words, _) = buffer.as_chunks::<8>();
                for number in 0..params.reads {
                    let slot = read_slot(number);
                    let at = slot as usize * 2;
                    check(&path, file, slot, [at, at + 1].map(|word| u64::from_le_bytes(words[word])))?;
                }
                lap(&mut spent.read, &mut since);
            }
        }
    }
    drop(kept);
    lap(&mut spent.unmap, &mut since);
    Ok(spent)
}

fn check(path: &Path, file: u64, slot: u64, found: [u64; 2]) -> Result<()> {
    if found.map(u64::from_le) == value(file, slot) {
        return Ok(());
    }
    Err(Error::Invalid(format!("{} has a wrong value at {}", path.display(), slot * VALUE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedure::tests::run;

    #[test]
    fn every_way_reads_the_same_values() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        make(dir.path(), 40, Bytes::kib(16)).unwrap();
        for how in ["how=buffer", "how=mmap", "how=mmap,unmap=end", "how=mmap,unmap=batch,populate=on,company=on"] {
            let (phases, told) = run("many-files", &format!("files=40,threads=3,{how}"), dir.path()).unwrap();

            assert_eq!(phases, ["visit"]);
            assert_eq!(told.threads[0].accesses, 40);
            assert!(told.figures["read_ns"] > 0, "{how}");
        }
    }

    #[test]
    fn a_wrong_value_fails_the_run() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        make(dir.path(), 2, Bytes::kib(16)).unwrap();
        std::fs::copy(dir.path().join("data-0"), dir.path().join("data-1")).unwrap();

        let error = run("many-files", "files=2,threads=1", dir.path()).err().unwrap();

        assert!(error.to_string().contains("has a wrong value"), "{error}");
    }
}
