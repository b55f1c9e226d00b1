//! One file, written or read through a mapping from front to end (SOURCES S1): placed so that huge pages can be used, or
//! not.

use super::memory_file::{self, Backing, OwnMap};
use super::{Procedure, Stage};
use majorfault::params::{Given, Params};
use majorfault::sys::map::{Access, HUGE_PAGE, MapOptions, Placement};
use majorfault::{Bytes, Error, Result, observe};

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "write-mapped",
    summary: "one file written or read through a mapping that huge pages fit, or do not fit",
    needs: &[],
    swaps: false,
    params: WriteMappedParams::declared,
    run,
};

majorfault::choices! {
    /// What is done with the bytes.
    enum Op {
        /// Each is written.
        Write = "write",
        /// Each is read.
        Read = "read",
    }
}

majorfault::choices! {
    /// What is off.
    enum Skew {
        /// Nothing: address and offset are multiples of 2 MiB.
        None = "none",
        /// The address, by 4 KiB, against the offset: no huge page fits.
        Address = "address",
        /// Address and offset, by the same 4 KiB: huge pages fit everywhere but at both ends.
        Both = "both",
    }
}

majorfault::params! {
    /// What is mapped, and where to.
    struct WriteMappedParams {
        /// Where the file lies.
        place: Backing = Backing::TmpfsHuge,
        /// What is done with the bytes.
        op: Op = Op::Write,
        /// What is off.
        skew: Skew = Skew::None,
        /// Bytes of the mapping.
        size: Bytes = Bytes::gib(1),
    }
}

const PAGE: usize = 4096;

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let params = WriteMappedParams::from_given(given)?;
    let size = params.size.0 as usize;
    if size == 0 || !size.is_multiple_of(HUGE_PAGE) {
        return Err(Error::Invalid("size must be a multiple of 2m".to_owned()));
    }
    if matches!(params.place, Backing::Tmpfs | Backing::TmpfsHuge) {
        // A hypervisor gives memory when it is first touched, which would be on the clock of whoever comes first.
        memory_file::make(params.place, stage.dir())?.fill(size + HUGE_PAGE)?;
    }
    let file = memory_file::make(params.place, stage.dir())?;
    // As long as needed where the offset is off, and a whole huge page more.
    file.set_len(size + HUGE_PAGE)?;
    if params.op == Op::Read {
        file.fill(size + HUGE_PAGE)?;
    }
    let (offset, placement) = match params.skew {
        Skew::None => (0, Placement::Congruent),
        Skew::Address => (0, Placement::Skewed(PAGE)),
        Skew::Both => (PAGE as u64, Placement::Congruent),
    };
    let mut map = stage.phase("open", || {
        let access = if params.op == Op::Write { Access::Write } else { Access::Read };
        file.map(offset, size, &MapOptions { access, placement, populate: false })
    })?;
    let sum = stage.phase("visit", || Ok(visit(&mut map, params.op)))?;
    if params.op == Op::Read && sum != (size / PAGE) as u64 {
        return Err(Error::Invalid(format!("read {sum} pages of ones, not {}", size / PAGE)));
    }
    if let Some(gone) = map.gone() {
        return Err(Error::Invalid(format!("the page at {gone} could not be allocated; is there room for the file?")));
    }
    let shown = map.shown();
    let wanted =
        |path: &str| path.contains(&shown) || path.contains("memfd:majorfault") || path.contains("anon_hugepage");
    if let Ok(sizes) = observe::mapped_sizes(std::process::id(), wanted) {
        stage.figure("huge_bytes", sizes.huge_bytes());
        stage.figure("resident_bytes", sizes.resident_bytes);
    }
    stage.figure("congruent", u64::from(map.mapping().is_congruent()));
    stage.accessed((size / PAGE) as u64, size as u64);
    Ok(())
}

/// Every byte of every page; pages that are all ones are counted.
fn visit(map: &mut OwnMap, op: Op) -> u64 {
    let pages = (0..map.mapping().length()).step_by(PAGE);
    match op {
        Op::Write => {
            pages.for_each(|at| map.bytes_mut(at, PAGE).fill(1));
            0
        }
        Op::Read => pages.filter(|at| map.bytes(*at, PAGE).iter().all(|byte| *byte == 1)).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use crate::procedure::tests::run;
    use majorfault::Error;
    use std::path::Path;

    #[test]
    fn every_place_and_skew_gives_the_bytes() {
        for place in ["tmpfs", "tmpfs-huge", "disk", "hugetlb"] {
            for rest in ["op=write", "op=read", "op=write,skew=address", "op=read,skew=both"] {
                if place == "hugetlb" && rest.contains("skew") {
                    continue;
                }
                let given = format!("place={place},size=4m,{rest}");
                match run("write-mapped", &given, Path::new("/var/tmp")) {
                    Ok((phases, told)) => {
                        assert_eq!(phases, ["open", "visit"], "{given}");
                        assert_eq!(told.figures["congruent"], u64::from(!rest.contains("skew=address")), "{given}");
                    }
                    Err(Error::Missing(missing)) => eprintln!("SKIPPED every_place_and_skew {place}: {missing}"),
                    Err(error) => panic!("{given}: {error}"),
                }
            }
        }
    }
}
