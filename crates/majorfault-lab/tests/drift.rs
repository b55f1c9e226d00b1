//! `majorfault report --drift` over files of records, as a user calls it.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use world::World;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The runs of S0's first two cells in the first whole session.
static REAL: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let path = project().join("records/linux-6.18-standard-1.jsonl.gz");
    let records = majorfault_lab::session::load(&[path]).unwrap();
    let is_one = |record: &majorfault_lab::record::Record| {
        let cell = record.cell.as_ref().unwrap();
        cell.experiment == "S0" && ["mmap", "buffer"].contains(&cell.name.as_str())
    };
    records.iter().filter(|record| is_one(record)).map(|record| serde_json::to_value(record).unwrap()).collect()
});

/// A file with a session of another machine, on which mapping takes so many times as long as reading into buffers.
fn host(world: &World, name: &str, kernel: &str, slower: f64) {
    let mut text = String::new();
    for record in REAL.iter() {
        let mut record = record.clone();
        record["session"] = name.into();
        record["machine"]["kernel"] = kernel.into();
        let is_mapped = record["cell"]["name"] == "mmap";
        for phase in record["phases"].as_array_mut().unwrap() {
            phase["wall_ns"] = ((1e8 * if is_mapped { slower } else { 1.0 }) as u64).into();
        }
        text.push_str(&format!("{record}\n"));
    }
    fs::write(world.path(name), text).unwrap();
}

fn hosts() -> World {
    let world = World::new();
    fs::create_dir_all(world.path("records/rack")).unwrap();
    host(&world, "records/a.jsonl", "6.9.7", 2.0);
    host(&world, "records/rack/b.jsonl", "6.12.1", 0.5);
    fs::write(world.path("records/notes.txt"), "no records").unwrap();
    world
}

#[test]
fn a_verdict_that_flips_is_the_first_that_is_said_and_in_all_forms() {
    let world = hosts();

    let words = ["report", "--drift", "records", "--csv", "claims.csv", "--report", "drift.html"];
    let said = world.majorfault(&words);
    let document = world.majorfault(&["report", "--drift", "records", "--json"]).json();

    assert_eq!(said.code, Some(0), "{}", said.errors);
    let flip = "FLIPS  S0.faster: does not hold here on kernel 6.12.1 (vd, ext4), holds here on 6.9.7";
    assert!(said.output.lines().nth(1).unwrap().starts_with(flip), "{}", said.output);
    assert!(said.output.lines().all(|line| line.chars().count() <= 100), "{}", said.output);
    assert_eq!((&document["flips"], &document["files"], &document["sessions"]), (&1.into(), &2.into(), &2.into()));
    assert!(world.text("drift.html").contains("<b>FLIPS from kernel 6.9.7"));
    let table = world.text("claims.csv");
    assert!(table.starts_with("time,branch,figure,claim,"));
    assert!(table.contains(",2,S0.faster,S0,holds here,") && table.contains(",0.5,S0.faster,S0,does not hold here,"));
    // Written over, as it is ours.
    assert_eq!(world.majorfault(&words).code, Some(0));
}

#[test]
fn the_document_is_as_its_schema_says() {
    let world = hosts();
    let document = world.majorfault(&["report", "--drift", "records", "--json"]).json();

    let schema: Value =
        serde_json::from_str(&fs::read_to_string(project().join("docs/drift.schema.json")).unwrap()).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("drift.json", schema).unwrap();
    let index = compiler.compile("drift.json", &mut schemas).unwrap();

    assert!(schemas.validate(&document, index).is_ok(), "{:#}", schemas.validate(&document, index).unwrap_err());
}

#[test]
fn verdicts_are_those_of_reproduce() {
    let world = hosts();
    let document = world.majorfault(&["report", "--drift", "records/a.jsonl", "--json"]).json();
    let ledger = world.majorfault(&["reproduce", "--from", "records/a.jsonl", "--json"]).json();

    let claims = document["claims"].as_array().unwrap();
    assert!(claims.len() >= 2);
    for claim in claims {
        let same = |row: &&Value| row["id"] == claim["id"];
        let row = ledger["claims"].as_array().unwrap().iter().find(same).unwrap();
        assert_eq!(claim["sides"][0]["verdict"], row["verdict"], "{}", claim["id"]);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_and_the_others_are_judged() {
    let world = hosts();
    fs::write(world.path("records/c.jsonl"), "{\"format\":").unwrap();
    let mut short = fs::read(project().join("records/linux-6.18-standard-1.jsonl.gz")).unwrap();
    short.truncate(100_000);
    fs::write(world.path("records/d.jsonl.gz"), short).unwrap();

    let said = world.majorfault(&["report", "--drift", "records"]);

    said.fails(2, "2 of 4 files could not be read");
    assert!(said.output.starts_with("1 flips, of "), "{}", said.output);
    assert!(
        said.output.contains("records/c.jsonl: ") && said.output.contains("records/d.jsonl.gz: "),
        "{}",
        said.output
    );
    world.majorfault(&["report", "--drift", "records/c.jsonl"]).fails(2, "none of 1 files of records can be read");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let world = hosts();
    fs::create_dir(world.path("empty")).unwrap();

    world.majorfault(&["report", "--drift", "empty"]).fails(2, "there is no file of records below empty");
    world.majorfault(&["report", "records/a.jsonl", "--csv", "x.csv"]).fails(2, "--drift");
    world.majorfault(&["report", "--drift", "records", "--baseline", "mmap"]).fails(2, "--baseline");
    world
        .majorfault(&["report", "--drift", "records", "--csv", "records/a.jsonl"])
        .fails(2, "whose content would be lost");
    world.majorfault(&["report", "--drift", "nowhere.jsonl"]).fails(2, "nowhere.jsonl");
}
