//! Brings the page cache into the state a trial starts from, and proves it.
//!
//! Runs in the worker, so that what is warmed is charged to the place the trial is limited in.

use crate::record::CacheEvidence;
use crate::trial::CacheState;
use majorfault::files::TargetFile;
use majorfault::sys::{cache, read};
use majorfault::{Error, Extent, Result, Target};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

/// Pieces that a range is read in when warmed from front to end.
const PIECE: usize = 1 << 20;

/// Pages read in random order when warmed page by page.
const PAGE: usize = 4096;

/// Drops what is cached of `target`, then reads what `state` asks for. The evidence, and what could not be done.
///
/// Errors: Io where the file cannot be read.
pub fn prepare(target: &Target, state: CacheState) -> Result<(CacheEvidence, Vec<String>)> {
    let mut notes = Vec::new();
    if state != CacheState::AsFound {
        for file in target.files() {
            notes.extend(dropped(file));
        }
    }
    match state {
        CacheState::Cold | CacheState::AsFound => {}
        CacheState::Warm => read_through(target, 1.0)?,
        CacheState::Hot(fraction) => {
            read_through(target, fraction)?;
            drop_from(target, (target.len() as f64 * fraction) as u64);
        }
        CacheState::WarmPages => read_pages(target)?,
    }
    Ok((evidence(target), notes))
}

/// What the page cache holds of the target's range now.
pub fn evidence(target: &Target) -> CacheEvidence {
    let mut source = "";
    let mut resident = 0;
    for file in target.files() {
        match cache::resident(&file.file, file.start, file.length) {
            Ok((bytes, how)) => {
                resident += bytes;
                source = how;
            }
            Err(error) => {
                return CacheEvidence {
                    resident_before_bytes: None,
                    resident_after_bytes: None,
                    source: error.to_string(),
                };
            }
        }
    }
    CacheEvidence { resident_before_bytes: Some(resident), resident_after_bytes: None, source: source.to_owned() }
}

/// Writes back and drops the file's pages; a sentence where that was refused. Tries again where some stay: read-ahead of the run before
/// may still be under way.
fn dropped(file: &TargetFile) -> Option<String> {
    // Dirty pages cannot be dropped; a file that we may only read has none of ours, so a refusal is no loss.
    let _ = file.file.sync_data();
    let mut refusal = None;
    patiently(|| {
        let advised = cache::fadvise(&file.file, file.start, file.length, cache::FileAdvice::DontNeed);
        refusal = advised.err().map(|error| error.to_string());
        refusal.is_some() || cache::resident(&file.file, file.start, file.length).map_or(true, |(bytes, _)| bytes == 0)
    });
    refusal
}

/// Pages that are still being read cannot be dropped: tries until it is `done`, for a quarter of a second at most; what is left then is
/// seen by the gate.
fn patiently(mut done: impl FnMut() -> bool) {
    for _ in 0..25 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn read_through(target: &Target, fraction: f64) -> Result<()> {
    let mut buffer = vec![0; PIECE];
    let end = (target.len() as f64 * fraction) as u64;
    let piece = PIECE.min(target.stripe() as usize);
    let mut offset = 0;
    while offset < end {
        let length = piece.min((target.len() - offset) as usize);
        read_at(target, Extent { offset, length }, &mut buffer)?;
        offset += length as u64;
    }
    Ok(())
}

/// Drops what read-ahead brought of the range from `begin` on.
fn drop_from(target: &Target, begin: u64) {
    let piece = |offset: u64| {
        let length = (PIECE as u64).min(target.stripe() - offset % target.stripe()).min(target.len() - offset);
        (offset, length)
    };
    let pieces: Vec<(u64, u64)> =
        std::iter::successors((begin < target.len()).then(|| piece(begin)), |(offset, length)| {
            let next = offset + length;
            (next < target.len()).then(|| piece(next))
        })
        .collect();
    let dropped = |(offset, length): &(u64, u64)| {
        let Ok((index, at)) = target.locate(Extent { offset: *offset, length: *length as usize }) else { return true };
        let file = &target.files()[index].file;
        // A refusal was noted when the whole range was dropped.
        let _ = cache::fadvise(file, at, *length, cache::FileAdvice::DontNeed);
        cache::resident(file, at, *length).map_or(true, |(bytes, _)| bytes == 0)
    };
    patiently(|| pieces.iter().filter(|piece| !dropped(piece)).count() == 0);
}

/// Each page alone and in random order, without read-ahead: small folios.
fn read_pages(target: &Target) -> Result<()> {
    for file in target.files() {
        cache::fadvise(&file.file, file.start, file.length, cache::FileAdvice::Random)?;
    }
    let mut pages: Vec<u64> = (0..target.len() / PAGE as u64).collect();
    pages.shuffle(&mut Pcg64::seed_from_u64(0));
    let mut buffer = vec![0; PAGE];
    for page in pages {
        read_at(target, Extent { offset: page * PAGE as u64, length: PAGE }, &mut buffer)?;
    }
    Ok(())
}

fn read_at(target: &Target, extent: Extent, buffer: &mut [u8]) -> Result<()> {
    let (index, offset) = target.locate(extent)?;
    let file = &target.files()[index];
    read::pread_exact(&file.file, &mut buffer[..extent.length], offset).map_err(|error| {
        Error::io(format!("read {} bytes at {offset} to warm the cache", extent.length), &file.path, error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::Layout;
    use majorfault::sys::cache::FileAdvice;

    #[test]
    fn what_is_still_being_read_ahead_is_dropped_too() {
        const LENGTH: u64 = 64 << 20;
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![1; LENGTH as usize]).unwrap();
        let target = Target::open(&[path], &Layout::default()).unwrap();
        let file = &target.files()[0].file;
        for round in 0..5 {
            prepare(&target, CacheState::Cold).unwrap();
            for begin in (0..LENGTH).step_by(4 << 20) {
                cache::fadvise(file, begin, 4 << 20, FileAdvice::WillNeed).unwrap();
            }

            let (evidence, _) = prepare(&target, CacheState::Cold).unwrap();

            assert_eq!(evidence.resident_before_bytes, Some(0), "round {round}");
        }
    }
}
