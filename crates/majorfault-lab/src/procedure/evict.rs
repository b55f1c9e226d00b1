//! One long mapping whose pages are dropped here and there: one madvise(2) each, or many in one process_madvise(2).

use super::{Company, Procedure, Stage};
use crate::data::mix;
use majorfault::params::{Given, Params, Switch};
use majorfault::sys::advice::{Advice, madvise, process_madvise_dont_need};
use majorfault::sys::map::Mapping;
use majorfault::{Error, Missing, Result};

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "evict",
    summary: "pages of one long mapping dropped here and there, by a call each or many in one call",
    needs: &[],
    swaps: false,
    params: EvictParams::declared,
    run,
};

majorfault::choices! {
    /// How pages are dropped.
    enum How {
        /// madvise(MADV_DONTNEED) for each page.
        Each = "each",
        /// process_madvise(MADV_DONTNEED) for 512 pages at a time.
        Vectored = "vectored",
    }
}

majorfault::params! {
    /// What is dropped.
    struct EvictParams {
        /// How pages are dropped.
        how: How = How::Each,
        /// Pages of the mapping.
        pages: u64 = 65_536,
        /// Of these, pages dropped, in random order.
        dropped: u64 = 32_768,
        /// Another thread of the process that only runs, for flushes to interrupt.
        company: Switch = Switch::On,
    }
}

const PAGE: usize = 4096;
const BATCH: usize = 512;

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let params = EvictParams::from_given(given)?;
    if params.dropped > params.pages || params.pages == 0 {
        return Err(Error::Invalid("dropped must be at most pages".to_owned()));
    }
    let company = params.company.is_on().then(Company::start);
    let mapping = stage.phase("open", || {
        let mapping = Mapping::anonymous(params.pages as usize * PAGE)?;
        madvise(&mapping, 0, mapping.length(), Advice::NoHugePage)?;
        madvise(&mapping, 0, mapping.length(), Advice::PopulateWrite)?;
        Ok(mapping)
    })?;
    let mut order: Vec<usize> = (0..params.pages as usize).collect();
    order.sort_by_key(|page| mix(*page as u64));
    let ranges: Vec<(usize, usize)> =
        order.iter().take(params.dropped as usize).map(|page| (page * PAGE, PAGE)).collect();
    stage.phase("visit", || match params.how {
        How::Each => ranges.iter().try_for_each(|(at, length)| madvise(&mapping, *at, *length, Advice::DontNeed)),
        How::Vectored => ranges.chunks(BATCH).try_for_each(|batch| {
            let dropped = process_madvise_dont_need(&mapping, batch).map_err(|error| {
                let remedy = "Linux 6.14 or later can do this to the calling process";
                Error::from(Missing::new("vectored process_madvise", error.to_string(), remedy))
            })?;
            if dropped == batch.len() * PAGE { Ok(()) } else { Err(Error::Invalid(format!("only {dropped} dropped"))) }
        }),
    })?;
    drop(company);
    stage.accessed(params.dropped, params.dropped * PAGE as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::procedure::tests::run;
    use majorfault::Error;
    use std::path::Path;

    #[test]
    fn both_ways_drop_as_many_pages() {
        for how in ["each", "vectored"] {
            match run("evict", &format!("how={how},pages=1024,dropped=600"), Path::new("/")) {
                Ok((phases, told)) => {
                    assert_eq!(phases, ["open", "visit"]);
                    assert_eq!(told.threads[0].accesses, 600);
                }
                Err(Error::Missing(missing)) => eprintln!("SKIPPED both_ways_drop_as_many_pages {how}: {missing}"),
                Err(error) => panic!("{how}: {error}"),
            }
        }
    }
}
