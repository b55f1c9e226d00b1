//! redb on our pool beside redb on its own file, LMDB and SQLite: `cargo bench -p majorfault-lab --bench redb`.
//!
//! Without a word random gets: see `gets.rs`. `-- ycsb` runs the six workloads of YCSB (Cooper et al., SoCC 2010) instead; `-- ycsb
//! A C` some of them, `--for SECONDS` (2) each, `--rounds N` (3), `--keys N` (500 000), `--pool MIB` (64, beyond memory); see `ycsb.rs`. LMDB and SQLite are the system's libraries
//! (Debian: liblmdb0, libsqlite3-0), opened while it runs; where one is not there it is left out with a sentence.
#![allow(unsafe_code, reason = "the other stores are C libraries")]

mod gets;
#[path = "../../../majorfault/tests/on_pool/mod.rs"]
mod on_pool;
mod stores;
mod ycsb;

use majorfault::Bytes;
use majorfault_lab::place::MemoryLimit;
use std::io::Write;
use std::process::{Command, Stdio};

/// What redb and SQLite may cache themselves.
const CACHE: usize = 16 << 20;

/// Memory of a run beyond memory, and the pool's part of it.
const LIMIT: u64 = 160 << 20;
const POOL: u64 = 96 << 20;

const THREADS: u64 = 4;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["gets", kind, path, budget] => gets::child(kind, path.as_ref(), budget.parse().expect("bytes")),
        ["workloads", ref order @ ..] => ycsb::child(order),
        ["ycsb", ref asked @ ..] => ycsb::compare(asked),
        _ => gets::compare(),
    }
}

/// What a child of ours with these words says, within a memory limit where one is given: it begins when it is in its place.
fn said(words: &[&str], limit: Option<u64>) -> String {
    let place = limit.map(|bytes| MemoryLimit::create(Bytes(bytes)).expect("the right to limit memory"));
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    if let Some(place) = &place {
        place.add(child.id()).expect("a place for the child");
    }
    child.stdin.take().expect("piped").write_all(b"go\n").expect("a child that listens");
    let said = child.wait_with_output().expect("a child that ends");
    assert!(said.status.success(), "{words:?}: {}", said.status);
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// The child's side: waits until it is placed.
fn placed() {
    std::io::stdin().read_line(&mut String::new()).expect("a word from the parent");
}

/// Takes a file out of the page cache.
fn cool(path: &std::path::Path) {
    let file = std::fs::File::open(path).expect("the database's file");
    file.sync_all().expect("data on the disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
}
