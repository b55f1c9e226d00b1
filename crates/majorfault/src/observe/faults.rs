//! Page faults of the process.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit, live_of_process};
use crate::proc::{Live, stat};

pub(super) const SOURCE: Source = Source {
    name: "faults",
    summary: "page faults of the process, all threads",
    needs: &[],
    counters: &[
        Counter {
            name: "minor_faults",
            unit: Unit::Count,
            scope: Scope::Process,
            kind: Kind::Total,
            doc: "faults served from memory; one may map up to 16 pages (fault-around) or a large folio (proc(5), stat)",
        },
        Counter {
            name: "major_faults",
            unit: Unit::Count,
            scope: Scope::Process,
            kind: Kind::Total,
            doc: "faults that had to start a read; waiting for one already under way counts as minor (proc(5), stat)",
        },
    ],
    open,
};

struct Faults(Live);

fn open(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    Ok(Box::new(Faults(live_of_process(scene, "stat", "page faults")?)))
}

impl Reading for Faults {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let stat = self.0.read().and_then(stat::process);
        values[0] = stat.map(|stat| stat.minor_faults);
        values[1] = stat.map(|stat| stat.major_faults);
    }
}
