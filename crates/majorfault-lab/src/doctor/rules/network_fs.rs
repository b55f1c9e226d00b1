//! A mapped file on a network file system: a lost connection becomes a SIGBUS, or a thread that cannot be killed.

use crate::doctor::fact::Fact;
use crate::doctor::rule::{Backing, Case, Gain, Part, Proof, Remedy, Rule, Severity, Sight, thresholds};
use crate::watch::evidence::{Evidence, MappedFile};

pub(super) const RULE: Rule = Rule {
    name: "network_fs",
    summary: "a file of a network file system is mapped",
    looks_at: &[Part::MappedFiles],
    thresholds: THRESHOLDS,
    trouble: "a file on {filesystem} is mapped",
    remedies: &[&READ],
    alerts: true,
    gain: Gain::Unknown,
    explains: &[],
    look: Sight::Each(look),
    #[cfg(test)]
    example: tests::example,
};

thresholds! {
    /// Waits for the file that cost noticeable time now: a warning.
    FELT: u64 = 50, Count;
}

const READ: Remedy = Remedy {
    when: "",
    says: "read it with pread, which returns errors, or copy it to a local disk first (SQLite: no WAL on network \
           file systems; LMDB: not supported there)",
    proof: Proof::Command("findmnt -T {path}"),
    symptom: None,
    backing: Backing::Decided,
};

const NETWORK: &[&str] = &["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "afs", "glusterfs", "9p", "gpfs", "beegfs"];

fn is_network(kind: &str) -> bool {
    let remote = ["sshfs", "s3fs", "glusterfs", "gcsfuse", "rclone", "goofys", "mountpoint-s3", "juicefs"];
    NETWORK.contains(&kind)
        || kind.strip_prefix("fuse.").is_some_and(|name| remote.iter().any(|it| name.starts_with(it)))
}

fn look(evidence: &Evidence) -> Vec<Case> {
    evidence.data_files().filter(|file| is_network(&file.filesystem)).map(of_file).collect()
}

fn of_file(file: &MappedFile) -> Case {
    let severity = if file.waits >= FELT { Severity::Warning } else { Severity::Note };
    let facts = vec![
        Fact::seen("{mapped} mapped").bytes("mapped", file.mapped_bytes()),
        Fact::seen("{faults} faults, {waits} of them waited").count("faults", file.faults).count("waits", file.waits),
        Fact::seen("an error of the server becomes a SIGBUS in the thread that touches the page"),
    ];
    Case::of_file(file, severity, &READ).figure("filesystem", &file.filesystem).facts(facts)
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{only, with_file, worst};
    use super::*;

    /// Used by the tests of all rules.
    pub(super) fn example() -> Evidence {
        on("nfs4", 0)
    }

    #[test]
    fn nfs_and_remote_fuse_are_network_and_local_fuse_is_not() {
        for kind in ["nfs4", "fuse.sshfs"] {
            let evidence = with_file(|file| file.filesystem = kind.to_owned());
            assert!(only(&RULE, &evidence).what.contains(kind));
        }
        assert!(look(&with_file(|file| file.filesystem = "fuse.ntfs".to_owned())).is_empty());
    }

    fn on(kind: &str, waits: u64) -> Evidence {
        with_file(|file| {
            file.filesystem = kind.to_owned();
            file.waits = waits;
        })
    }

    #[test]
    fn fifty_waits_make_a_warning_of_the_note() {
        assert_eq!(worst(&RULE, &on("nfs4", 49)), Some(Severity::Note));
        assert_eq!(worst(&RULE, &on("nfs4", 50)), Some(Severity::Warning));
    }

    #[test]
    fn every_network_file_system_that_is_known_is_found_and_local_ones_are_not() {
        let network = "nfs nfs4 cifs smb3 ceph lustre afs glusterfs 9p gpfs beegfs fuse.sshfs fuse.s3fs fuse.glusterfs \
                       fuse.gcsfuse fuse.rclone fuse.goofys fuse.mountpoint-s3 fuse.juicefs";
        for kind in network.split_whitespace() {
            assert_eq!(worst(&RULE, &on(kind, 0)), Some(Severity::Note), "{kind}");
        }
        for kind in ["ext4", "xfs", "btrfs", "tmpfs", "fuse", "fuseblk", "fuse.ntfs-3g", "sshfs", ""] {
            assert_eq!(worst(&RULE, &on(kind, 100)), None, "{kind}");
        }
    }

    #[test]
    fn the_figures_are_reported_with_their_units() {
        let found = only(&RULE, &on("nfs", 7));

        assert_eq!(found.what, "a file on nfs is mapped");
        assert_eq!(found.evidence[..2], ["1.00 GiB mapped", "900 faults, 7 of them waited"]);
    }
}
