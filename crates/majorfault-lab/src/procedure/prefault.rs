//! A fresh file, prepared in one of many ways, then written through a mapping in small blocks (SOURCES S3).

use super::memory_file::{self, Backing, MemoryFile, OwnMap};
use super::{Procedure, Stage};
use majorfault::params::{Given, Params, Value};
use majorfault::sys::advice::{Advice, madvise};
use majorfault::sys::map::{Access, HUGE_PAGE, MapOptions, Mapping, Placement};
use majorfault::sys::numa;
use majorfault::{Bytes, Error, Missing, Result};

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "prefault",
    summary: "a fresh file prepared in one of many ways, then written through a mapping in blocks of 128 bytes",
    needs: &[],
    swaps: false,
    params: PrefaultParams::declared,
    run,
};

majorfault::choices! {
    /// How the file is prepared; the first eleven under the source's numbers.
    pub enum How {
        /// 01: mapped, nothing else.
        Plain = "01-plain",
        /// 02: blocks reserved by fallocate(2).
        Fallocate = "02-fallocate",
        /// 03: MAP_POPULATE.
        Populate = "03-populate",
        /// 04: MAP_POPULATE and MADV_WILLNEED.
        PopulateWillneed = "04-populate+willneed",
        /// 05: MAP_POPULATE and MADV_SEQUENTIAL.
        PopulateSequential = "05-populate+sequential",
        /// 06: fallocate and MAP_POPULATE.
        FallocatePopulate = "06-fallocate+populate",
        /// 07: fallocate, MAP_POPULATE and MADV_WILLNEED.
        FallocatePopulateWillneed = "07-fallocate+populate+willneed",
        /// 08: MADV_WILLNEED.
        Willneed = "08-willneed",
        /// 09: MADV_SEQUENTIAL.
        Sequential = "09-sequential",
        /// 10: every byte touched in a loop, then MADV_WILLNEED.
        TouchWillneed = "10-touch+willneed",
        /// 11: every byte touched in a loop.
        Touch = "11-touch",
        /// MADV_POPULATE_WRITE (Linux 5.14).
        PopulateWrite = "populate-write",
        /// The same from one thread for each processor, on its own part.
        PopulateParallel = "populate-parallel",
        /// fallocate, then MADV_POPULATE_WRITE from one thread for each processor.
        FallocateParallel = "fallocate+populate-parallel",
        /// MADV_POPULATE_WRITE, then MADV_COLLAPSE into huge pages (Linux 6.1).
        Collapse = "populate-write+collapse",
    }
}

majorfault::choices! {
    /// Where memory is taken from, seen from the processor that writes.
    enum MemoryNode {
        /// As the kernel likes.
        Any = "any",
        /// The node of the processor.
        Same = "same",
        /// Another one.
        Other = "other",
    }
}

majorfault::params! {
    /// What is prepared, and how.
    struct PrefaultParams {
        /// How the file is prepared.
        how: How = How::Plain,
        /// Where it lies.
        place: Backing = Backing::Tmpfs,
        /// Its bytes; 256 MiB as published.
        size: Bytes = Bytes::mib(256),
        /// The memory's node; the thread then stays on the processors of the first.
        node: MemoryNode = MemoryNode::Any,
    }
}

/// Bytes of one write of the visit, as published.
const BLOCK: usize = 128;

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let params = PrefaultParams::from_given(given)?;
    let size = params.size.0 as usize;
    if size == 0 || !size.is_multiple_of(HUGE_PAGE) {
        return Err(Error::Invalid("size must be a multiple of 2m".to_owned()));
    }
    let node = bound(params.node)?;
    let file = memory_file::make(params.place, stage.dir())?;
    file.set_len(size)?;
    let mut map = stage.phase("prepare", || prepare(file, size, params.how))?;
    stage.phase("visit", || {
        for at in (0..size).step_by(BLOCK) {
            map.bytes_mut(at, BLOCK).fill(at as u8 | 1);
        }
        Ok(())
    })?;
    let wrong = (0..size).step_by(BLOCK).find(|at| map.bytes(*at, BLOCK) != [*at as u8 | 1; BLOCK]);
    if let Some(at) = wrong.or(map.gone()) {
        let how = params.how.text();
        return Err(Error::Invalid(format!("after {how} the byte at {at} is not what was written; is there room?")));
    }
    if let Some(node) = node {
        let (there, elsewhere) = numa::pages_on(map.mapping(), node)?;
        stage.figure("pages_on_node", there);
        stage.figure("pages_elsewhere", elsewhere);
    }
    stage.accessed((size / BLOCK) as u64, size as u64);
    stage.phase("close", || Ok(map.unmap())).map(drop)
}

/// Keeps this thread on the first node's processors and takes memory from the node that is wanted; its number.
fn bound(wanted: MemoryNode) -> Result<Option<u32>> {
    if wanted == MemoryNode::Any {
        return Ok(None);
    }
    let nodes = numa::nodes();
    let here = nodes.iter().find(|node| !node.processors.is_empty());
    let other = here.and_then(|here| nodes.iter().find(|node| node.number != here.number));
    let (Some(here), Some(other)) = (here, other) else {
        let remedy =
            "run it on a machine with several; where pages lie is counted in a guest, too: --place guest:cpus=4,numa=2";
        return Err(Missing::new("a second NUMA node", "this machine has one memory for all processors", remedy).into());
    };
    let node = if wanted == MemoryNode::Same { here.number } else { other.number };
    numa::run_on(here)?;
    numa::bind_memory(node)?;
    Ok(Some(node))
}

fn prepare(file: MemoryFile, size: usize, how: How) -> Result<OwnMap> {
    use How::*;
    if matches!(how, Fallocate | FallocatePopulate | FallocatePopulateWillneed | FallocateParallel) {
        file.reserve(size)?;
    }
    let populate =
        matches!(how, Populate | PopulateWillneed | PopulateSequential | FallocatePopulate | FallocatePopulateWillneed);
    let options = MapOptions { access: Access::Write, placement: Placement::Anywhere, populate };
    let mut map = file.map(0, size, &options)?;
    if matches!(how, Touch | TouchWillneed) {
        (0..size).for_each(|at| map.bytes_mut(at, 1).fill(0));
    }
    let whole = |advice| madvise(map.mapping(), 0, size, advice);
    match how {
        PopulateWillneed | FallocatePopulateWillneed | Willneed | TouchWillneed => whole(Advice::WillNeed)?,
        PopulateSequential | Sequential => whole(Advice::Sequential)?,
        PopulateWrite => whole(Advice::PopulateWrite)?,
        PopulateParallel | FallocateParallel => populate_parallel(map.mapping(), size)?,
        Collapse => {
            whole(Advice::PopulateWrite)?;
            whole(Advice::Collapse)?;
        }
        Plain | Fallocate | Populate | FallocatePopulate | Touch => {}
    }
    Ok(map)
}

fn populate_parallel(map: &Mapping, size: usize) -> Result<()> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let part = size.div_ceil(count).next_multiple_of(HUGE_PAGE);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .step_by(part)
            .map(|at| scope.spawn(move || madvise(map, at, part.min(size - at), Advice::PopulateWrite)))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that panics ends the process"))
    })
}

#[cfg(test)]
mod tests {
    use super::How;
    use crate::procedure::tests::run;
    use majorfault::Error;
    use majorfault::params::Value;
    use std::path::Path;

    #[test]
    fn memory_of_a_node_lies_there_or_the_machine_has_one_node() {
        let of = |node: &str| {
            let given = format!("how=03-populate,place=tmpfs,size=4m,node={node}");
            // The thread stays bound.
            std::thread::spawn(move || run("prefault", &given, Path::new("/var/tmp"))).join().unwrap()
        };

        assert!(!of("any").unwrap().1.figures.contains_key("pages_elsewhere"));
        for node in ["same", "other"] {
            match of(node) {
                Ok((_, told)) => {
                    assert_eq!((told.figures["pages_on_node"], told.figures["pages_elsewhere"]), (1024, 0))
                }
                Err(Error::Missing(missing)) => assert!(missing.remedy.contains("numa=2"), "{missing}"),
                Err(error) => panic!("{node}: {error}"),
            }
        }
    }

    #[test]
    fn every_way_ends_with_the_bytes_written() {
        for how in How::ALL {
            for place in ["tmpfs", "disk"] {
                let given = format!("how={},place={place},size=4m", how.text());
                match run("prefault", &given, Path::new("/var/tmp")) {
                    Ok((phases, _)) => assert_eq!(phases, ["prepare", "visit", "close"], "{given}"),
                    // Huge pages of a file need a file system, a setting, and memory for them.
                    Err(error) if *how == How::Collapse => eprintln!("SKIPPED every_way {given}: {error}"),
                    Err(error) => panic!("{given}: {error}"),
                }
            }
        }
    }
}
