//! The ledger in the documentation is what the records say.

use faultline_lab::{experiment, report, session};
use std::fs;
use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_of_claims_is_fresh() {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(project().join("records")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    paths.sort();
    let records = session::load(&paths).unwrap();

    let made = report::ledger::markdown(&experiment::ledger(&records, &[]), &records);

    let kept = fs::read_to_string(project().join("docs/claims.md")).unwrap();
    assert!(made == kept, "make it again: faultline reproduce --from records/*.jsonl --markdown >docs/claims.md");
}
