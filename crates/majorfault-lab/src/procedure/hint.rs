//! An address asked of mmap(2) is only a hint (SOURCES S1.hint): what the kernel grants of it, without a word.

use super::{Procedure, Stage, unnamed_in};
use majorfault::params::{Given, Params};
use majorfault::sys::map::{HUGE_PAGE, MapOptions, Mapping, Placement};
use majorfault::{Bytes, Error, Result};

pub(super) const PROCEDURE: Procedure = Procedure {
    name: "hint",
    summary: "addresses asked for that are occupied, or too near the end of user space",
    needs: &[],
    swaps: false,
    params: HintParams::declared,
    run,
};

majorfault::params! {
    /// It has no settings of its own.
    struct HintParams {}
}

/// The address of the source, 2 MiB-aligned, near the end of 47 bits of user space.
const NEAR_THE_END: usize = 0x7ff7_0000_0000;

fn run(given: &Given, stage: &mut Stage<'_>) -> Result<()> {
    let HintParams {} = HintParams::from_given(given)?;
    let file = unnamed_in(stage.dir())?;
    // Sparse: nothing is written, and mapping it for reading takes no memory.
    let long = Bytes::gib(200).0;
    file.set_len(long).map_err(|error| {
        Error::io("make a sparse file of 200 GiB", stage.dir(), error).with_remedy("use a file system that allows it")
    })?;
    let options = |placement| MapOptions { placement, ..MapOptions::default() };
    let first = Mapping::new(&file, 0, 2 * HUGE_PAGE, &options(Placement::Congruent))?;
    let taken = first.as_ptr() as usize;
    let tries =
        [("occupied", taken, 2 * HUGE_PAGE as u64), ("far", NEAR_THE_END, long), ("near", NEAR_THE_END, long / 10)];
    let found = stage.phase("visit", || {
        let grant = |&(name, address, length): &(&'static str, usize, u64)| {
            let map = Mapping::new(&file, 0, length as usize, &options(Placement::Hint(address)))?;
            Ok((name, map.as_ptr() as usize == address, map.is_congruent(), map.misplaced(Placement::Hint(address))))
        };
        tries.iter().map(grant).collect::<Result<Vec<_>>>()
    })?;
    for (name, granted, congruent, told) in found {
        stage.figure(&format!("{name}_granted"), u64::from(granted));
        stage.figure(&format!("{name}_congruent"), u64::from(congruent));
        stage.figure(&format!("{name}_told"), u64::from(told.is_some()));
        told.into_iter().for_each(|says| stage.note(format!("{name}: {says}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::procedure::tests::run;
    use std::path::Path;

    #[test]
    fn an_occupied_address_is_not_granted_and_that_is_told() {
        let (_, told) = run("hint", "", Path::new("/var/tmp")).unwrap();

        assert_eq!((told.figures["occupied_granted"], told.figures["occupied_told"]), (0, 1));
        assert_eq!(told.figures["far_granted"], 0, "200 GiB do not fit before the end");
    }
}
