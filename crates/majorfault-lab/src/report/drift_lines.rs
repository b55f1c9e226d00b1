//! Every judged claim as a line of comma-separated values, in the order of time: for databases, and for detectors of change points
//! (Apache Otava, whose importer reads a file from its first line to its last, wants a number in each line, and chooses lines by `branch`).

use super::drift::JudgedClaim;
use crate::experiment;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

/// The columns.
const COLUMNS: [&str; 17] = [
    "time",
    "branch",
    "figure",
    "claim",
    "experiment",
    "verdict",
    "reason",
    "ours",
    "runs",
    "session",
    "source",
    "commit",
    "kernel",
    "filesystem",
    "device",
    "scale",
    "machine",
];

/// The lines, kept in a file until all are there: memory holds 24 bytes for each.
pub struct DriftLines {
    kept: BufWriter<File>,
    end: u64,
    /// When the session began; where its line is, and how long.
    places: Vec<(u64, u64, u32)>,
}

impl DriftLines {
    /// None yet.
    ///
    /// Errors: no file for them can be made.
    pub fn new() -> io::Result<DriftLines> {
        Ok(DriftLines { kept: BufWriter::new(tempfile::tempfile()?), end: 0, places: Vec::new() })
    }

    /// Adds one.
    ///
    /// Errors: Io.
    pub fn add(&mut self, it: &JudgedClaim<'_>) -> io::Result<()> {
        let judged = &it.said.judged;
        let figure = judged.followed.filter(|figure| figure.is_finite());
        let ground = it.ground;
        let machine = format!("{} {}", experiment::host(it.machine), series_mark(it));
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let line = [
            it.began_unix_s.to_string(),
            // Without a figure it is of no branch: a detector would stop at the empty field.
            figure.map(|_| branch(it)).unwrap_or_default(),
            figure.map(|figure| figure.to_string()).unwrap_or_default(),
            it.row.id.to_owned(),
            it.experiment.to_owned(),
            judged.verdict.words().to_owned(),
            judged.verdict.reason(),
            judged.shown.ours.clone(),
            judged.n.to_string(),
            it.said.name.clone(),
            it.source.to_owned(),
            it.tool.to_owned(),
            text(&ground.kernel),
            text(&ground.filesystem),
            text(&ground.device),
            it.scale.to_owned(),
            machine,
        ];
        let bytes = written(&line)?;
        self.kept.write_all(&bytes)?;
        self.places.push((it.began_unix_s, self.end, bytes.len() as u32));
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes all of them, the oldest first.
    ///
    /// Errors: Io.
    pub fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.kept.flush()?;
        self.places.sort_unstable();
        out.write_all(&written(&COLUMNS)?)?;
        let mut line = Vec::new();
        for (_, at, length) in &self.places {
            line.resize(*length as usize, 0);
            self.kept.get_ref().read_exact_at(&mut line, *at)?;
            out.write_all(&line)?;
        }
        Ok(())
    }
}

fn written(fields: &[impl AsRef<[u8]>]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields)?;
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// What one line of figures is over time: the claim, where, at which scale, and which machine; the kernel and our own commit may change.
fn branch(it: &JudgedClaim<'_>) -> String {
    let known = |part: &Option<String>| part.clone().unwrap_or_else(|| super::drift::UNKNOWN.to_owned());
    let place = format!("{}/{}", known(&it.ground.filesystem), known(&it.ground.device));
    format!("{} {place} {} {}", it.row.id, it.scale, series_mark(it))
}

/// Six digits that stand for the machine without its kernel: FNV-1a of its description, so that every build says the same.
fn series_mark(it: &JudgedClaim<'_>) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = experiment::host(it.machine).bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{:06x}", hash & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drift::Drift;
    use crate::report::drift::tests::{HOLDS, kernel, session};

    fn table(sessions: &[Vec<crate::record::Record>]) -> Vec<Vec<String>> {
        let (mut drift, mut lines) = (Drift::default(), DriftLines::new().unwrap());
        for (number, records) in sessions.iter().enumerate() {
            drift.add(&format!("host{number}"), records.clone(), |it| lines.add(it)).unwrap();
        }
        let mut text = Vec::new();
        lines.write(&mut text).unwrap();
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_slice());
        reader.records().map(|line| line.unwrap().iter().map(str::to_owned).collect()).collect()
    }

    fn column<'t>(table: &'t [Vec<String>], name: &str) -> Vec<&'t str> {
        let at = COLUMNS.iter().position(|column| *column == name).unwrap();
        table[1..].iter().filter(|line| line[3] == "S0.faster").map(|line| line[at].as_str()).collect()
    }

    #[test]
    fn lines_are_in_the_order_of_time_and_a_machine_keeps_its_branch_over_kernels() {
        let at = |name: &str, began: u64, release: &str| {
            let mut records = session(name, HOLDS, kernel(release));
            records.iter_mut().for_each(|record| record.began_unix_s = began);
            records
        };
        let found = table(&[at("b", 2_000, "6.9.1"), at("a", 1_000, "6.8.1"), at("c", 3_000, "6.12.1")]);

        assert_eq!(found[0], COLUMNS);
        assert_eq!(column(&found, "time"), ["1000", "2000", "3000"]);
        assert_eq!(column(&found, "source"), ["host1", "host0", "host2"]);
        assert_eq!(column(&found, "kernel"), ["6.8.1", "6.9.1", "6.12.1"]);
        assert_eq!(column(&found, "figure"), ["2"; 3]);
        let branches = column(&found, "branch");
        assert!(branches[0].starts_with("S0.faster ext4/vd standard "), "{branches:?}");
        assert_eq!(branches, [branches[0]; 3]);
    }

    #[test]
    fn another_machine_is_another_branch() {
        let found = table(&[session("a", HOLDS, kernel("6.9.1")), session("b", HOLDS, |machine| machine.cpus = 999)]);

        let branches = column(&found, "branch");
        assert_ne!(branches[0], branches[1]);
    }

    #[test]
    fn a_claim_without_a_figure_is_of_no_branch() {
        let mut records = session("a", HOLDS, kernel("6.9.1"));
        records.retain(|record| record.cell.as_ref().unwrap().name == "mmap" || record.trial.repetition > 9);
        records.push({
            let mut failed = records[0].clone();
            failed.outcome = crate::record::Outcome::Failed("it broke".to_owned());
            failed.cell.as_mut().unwrap().name = "buffer".to_owned();
            failed
        });
        let found = table(&[records]);

        assert_eq!(column(&found, "branch"), [""]);
        assert_eq!(column(&found, "figure"), [""]);
        assert_eq!(column(&found, "verdict"), ["cannot be tested here"]);
    }
}
