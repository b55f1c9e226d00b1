//! What the machine does to free memory: scans, reclaim, stalls, refaults, swap.

use super::{Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit, unreadable};
use crate::proc::{self, Live};

pub(super) const SOURCE: Source = Source {
    name: "reclaim",
    summary: "pages scanned, freed, read again and swapped on this machine",
    needs: &[],
    counters: &[
        total("pgscan_kswapd", "pages that kswapd scanned (/proc/vmstat)"),
        total("pgsteal_kswapd", "pages that kswapd freed"),
        total("pgscan_direct", "pages that allocating threads scanned themselves, for cgroup limits too"),
        total("pgsteal_direct", "pages that allocating threads freed themselves"),
        total("allocstall", "times an allocating thread had to free pages first"),
        total("workingset_refault_file", "evicted file pages that were needed again"),
        total("workingset_refault_anon", "evicted anonymous pages that were needed again"),
        total("workingset_activate_file", "of the refaulted file pages, those so hot that they were protected at once"),
        total("swap_in_pages", "pages read from swap (pswpin)"),
        total("swap_out_pages", "pages written to swap (pswpout)"),
    ],
    open,
};

const fn total(name: &'static str, doc: &'static str) -> Counter {
    Counter { name, unit: Unit::Count, scope: Scope::Machine, kind: Kind::Total, doc }
}

struct Reclaim(Live);

fn open(_: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let live = Live::open("/proc/vmstat").map_err(|error| unreadable("reclaim", "/proc/vmstat", &error))?;
    Ok(Box::new(Reclaim(live)))
}

impl Reading for Reclaim {
    fn read(&mut self, values: &mut [Option<u64>]) {
        let Some(text) = self.0.read() else { return };
        for (value, counter) in values.iter_mut().zip(SOURCE.counters) {
            *value = match counter.name {
                "allocstall" => proc::sum_of(text, "allocstall_"),
                "swap_in_pages" => proc::number(text, "pswpin"),
                "swap_out_pages" => proc::number(text, "pswpout"),
                name => proc::number(text, name),
            };
        }
    }
}
