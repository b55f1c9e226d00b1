//! Memory of the cgroup that limits the process, version 1 or 2.

use super::{CgroupDir, Counter, Kind, Missing, Reading, Scene, Scope, Source, Unit, unreadable};
use crate::proc::{self, Live};
use std::path::Path;

pub(super) const SOURCE: Source = Source {
    name: "memory",
    summary: "memory charged to the cgroup, and how often it reached its limit",
    needs: &[],
    counters: &[
        level("cgroup_usage_bytes", "memory charged to the group, page cache included"),
        level("cgroup_file_bytes", "of this, page cache"),
        level("cgroup_anon_bytes", "of this, anonymous memory"),
        level("cgroup_mapped_bytes", "of the page cache, mapped by a process"),
        total("cgroup_limit_hits", "times the group reached its limit (v1 failcnt, v2 events max)"),
        total("cgroup_refault_pages", "evicted file pages of the group that were needed again"),
        total(
            "cgroup_reclaimed_pages",
            "pages reclaimed from the group (v2 stat pgsteal; v1 stat pgpgout, which counts what was freed, too, and a \
             large folio once)",
        ),
    ],
    open,
};

const fn level(name: &'static str, doc: &'static str) -> Counter {
    Counter { name, unit: Unit::Bytes, scope: Scope::Cgroup, kind: Kind::Level, doc }
}

const fn total(name: &'static str, doc: &'static str) -> Counter {
    Counter { name, unit: Unit::Count, scope: Scope::Cgroup, kind: Kind::Total, doc }
}

/// The names of the values, by version of the interface.
struct Names {
    usage: &'static str,
    hits: &'static str,
    file: &'static str,
    anon: &'static str,
    mapped: &'static str,
    reclaimed: &'static str,
}

const V1: Names = Names {
    usage: "memory.usage_in_bytes",
    hits: "memory.failcnt",
    file: "total_cache",
    anon: "total_rss",
    mapped: "total_mapped_file",
    reclaimed: "total_pgpgout",
};

const V2: Names = Names {
    usage: "memory.current",
    hits: "memory.events",
    file: "file",
    anon: "anon",
    mapped: "file_mapped",
    reclaimed: "pgsteal",
};

struct Memory {
    usage: Live,
    hits: Live,
    stat: Live,
    names: &'static Names,
}

fn open(scene: &Scene) -> Result<Box<dyn Reading>, Missing> {
    let (dir, names): (&Path, _) = match &scene.cgroup {
        Some(CgroupDir::V1(dir)) => (dir, &V1),
        Some(CgroupDir::V2(dir)) => (dir, &V2),
        None => {
            return Err(Missing::new(
                "memory of the cgroup",
                "the process runs in no cgroup with a memory limit",
                "run it in a memory cgroup with a limit",
            ));
        }
    };
    let live = |file: &str| {
        Live::open(dir.join(file)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => uncontrolled(dir, file),
            _ => unreadable("memory of the cgroup", file, &error),
        })
    };
    Ok(Box::new(Memory { usage: live(names.usage)?, hits: live(names.hits)?, stat: live("memory.stat")?, names }))
}

/// The root of version 2 counts no memory, nor does a group whose parent does not control it.
fn uncontrolled(dir: &Path, file: &str) -> Missing {
    Missing::new(
        "memory of the cgroup",
        format!("{} has no {file}: it is the root of all groups, or its memory is not controlled", dir.display()),
        "run the program in a group of its own (systemd-run --scope), with the memory controller",
    )
}

impl Reading for Memory {
    fn read(&mut self, values: &mut [Option<u64>]) {
        values[0] = self.usage.read().and_then(|text| text.trim().parse().ok());
        let hits = self.hits.read();
        // A plain number in version 1, a row among others in version 2.
        values[4] = hits.and_then(|text| text.trim().parse().ok().or_else(|| proc::number(text, "max")));
        let Some(stat) = self.stat.read() else { return };
        values[1] = proc::number(stat, self.names.file);
        values[2] = proc::number(stat, self.names.anon);
        values[3] = proc::number(stat, self.names.mapped);
        // Version 1 counts the group and those below it as total_; before Linux 5.9 one count covered both kinds.
        let refaults = ["total_workingset_refault_file", "workingset_refault_file", "workingset_refault"];
        values[5] = refaults.iter().find_map(|key| proc::number(stat, key));
        values[6] = proc::number(stat, self.names.reclaimed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_group_that_counts_no_memory_is_told_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let scene = Scene { cgroup: Some(CgroupDir::V2(dir.path().to_owned())), ..Scene::default() };

        let missing = open(&scene).err().unwrap();

        assert!(missing.reason.contains("has no memory.current: it is the root of all groups"), "{missing}");
        assert!(missing.remedy.contains("a group of its own"), "{missing}");
    }

    #[test]
    fn a_group_of_version_2_is_read() {
        let dir = std::env::temp_dir().join(format!("majorfault-memory-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("memory.current"), "8192\n").unwrap();
        fs::write(dir.join("memory.events"), "low 0\nhigh 0\nmax 17\noom 0\noom_kill 0\n").unwrap();
        fs::write(
            dir.join("memory.stat"),
            "anon 1000\nfile 7000\nfile_mapped 3000\nworkingset_refault_file 5\npgsteal 9\n",
        )
        .unwrap();
        let scene = Scene { cgroup: Some(CgroupDir::V2(dir.clone())), ..Scene::default() };
        let mut reading = open(&scene).unwrap();

        let mut values = [None; 7];
        reading.read(&mut values);

        fs::remove_dir_all(dir).unwrap();
        assert_eq!(values, [Some(8192), Some(7000), Some(1000), Some(3000), Some(17), Some(5), Some(9)]);
    }
}
