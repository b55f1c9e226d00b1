//! redb on our pool beside redb on its own file: `cargo bench -p majorfault-lab --bench redb`.
//!
//! Random gets of 1000 bytes from a database of 600 MiB by four threads, in a process of its own each time, cold, in turns:
//! with memory for all of it, and within a limit of 160 MiB, of which the pool has 96 MiB (its own cache is 16 MiB in both).
//! Prints the ratios of the rounds.

#[path = "../../majorfault/tests/on_pool/mod.rs"]
mod on_pool;

use majorfault::Bytes;
use majorfault::pool::PooledFile;
use majorfault_lab::place::MemoryLimit;
use on_pool::OnPool;
use redb::{Database, ReadableDatabase, TableDefinition};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const VALUES: TableDefinition<u64, &[u8]> = TableDefinition::new("values");
const KEYS: u64 = 500_000;
const VALUE: usize = 1000;
const GETS: u64 = 10_000;
const THREADS: u64 = 4;
const ROUNDS: usize = 5;
const CACHE: usize = 16 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(kind), Some(path), Some(budget)) => get(&kind, Path::new(&path), budget.parse().expect("bytes")),
        _ => compare(),
    }
}

/// The child: waits until it is placed, then gets.
fn get(kind: &str, path: &Path, budget: u64) {
    std::io::stdin().read_line(&mut String::new()).expect("a word from the parent");
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    let database = match kind {
        "file" => builder.open(path).expect("the database"),
        _ => {
            let file = PooledFile::options().memory(Bytes(budget)).open(path).expect("the database's file");
            builder.create_with_backend(OnPool(file)).expect("the database")
        }
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let database = &database;
            scope.spawn(move || {
                let transaction = database.begin_read().expect("a snapshot");
                let table = transaction.open_table(VALUES).expect("the table");
                let mut state = thread + 1;
                for _ in 0..GETS {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let key = (state >> 33) % KEYS;
                    let value = table.get(key).expect("a read").expect("a value");
                    assert_eq!(value.value(), [key as u8; VALUE]);
                }
            });
        }
    });
    println!("{}", (THREADS * GETS) as f64 / began.elapsed().as_secs_f64());
}

fn compare() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = dir.path().join("redb");
    make(&path);
    let length = std::fs::metadata(&path).expect("the file just made").len();
    println!("database of {} MiB", length >> 20);
    for (name, limit, budget) in [("inside", None, length), ("beyond", Some(160 << 20), 96 << 20)] {
        let mut ratios = Vec::new();
        for round in 0..ROUNDS {
            let order = if round % 2 == 0 { ["file", "pool"] } else { ["pool", "file"] };
            let mut rates = order.map(|kind| (kind, child(kind, &path, budget, limit)));
            rates.sort_unstable_by_key(|(kind, _)| *kind);
            println!("{name}: file {:.0} gets/s, pool {:.0} gets/s", rates[0].1, rates[1].1);
            ratios.push(rates[1].1 / rates[0].1);
        }
        ratios.sort_by(f64::total_cmp);
        println!("{name}: pool / file {:.2} [{:.2}-{:.2}]", ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
    }
}

fn make(path: &Path) {
    let database = Database::builder().create(path).expect("a database");
    for from in (0..KEYS).step_by(50_000) {
        let transaction = database.begin_write().expect("a transaction");
        {
            let mut table = transaction.open_table(VALUES).expect("a table");
            for key in from..from + 50_000 {
                table.insert(key, [key as u8; VALUE].as_slice()).expect("room on the disk");
            }
        }
        transaction.commit().expect("room on the disk");
    }
}

/// Gets a second, cold.
fn child(kind: &str, path: &PathBuf, budget: u64, limit: Option<u64>) -> f64 {
    let file = std::fs::File::open(path).expect("the database's file");
    file.sync_all().expect("data on the disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
    let place = limit.map(|bytes| MemoryLimit::create(Bytes(bytes)).expect("the right to limit memory"));
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([kind, &path.display().to_string(), &budget.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    if let Some(place) = &place {
        place.add(child.id()).expect("a place for the child");
    }
    child.stdin.take().expect("piped").write_all(b"go\n").expect("a child that listens");
    let said = child.wait_with_output().expect("a child that ends");
    String::from_utf8_lossy(&said.stdout).trim().parse().expect("gets a second")
}
