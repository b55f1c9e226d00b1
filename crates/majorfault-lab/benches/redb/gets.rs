//! Random gets of 1000 bytes from a database of 600 MiB by four threads, in a process of its own each time, cold, in turns:
//! with memory for all of it, and within a limit of 160 MiB, of which the pool has 96 MiB (its own cache is 16 MiB in both).
//! Prints the ratios of the rounds.

use super::on_pool::OnPool;
use super::{CACHE, LIMIT, POOL, THREADS, cool, placed, said};
use majorfault::Bytes;
use majorfault::pool::PooledFile;
use redb::{Database, ReadableDatabase, TableDefinition};
use std::path::Path;
use std::time::Instant;

const VALUES: TableDefinition<u64, &[u8]> = TableDefinition::new("values");
const KEYS: u64 = 500_000;
const VALUE: usize = 1000;
const GETS: u64 = 10_000;
const ROUNDS: usize = 5;

/// The child: waits until it is placed, then gets.
pub fn child(kind: &str, path: &Path, budget: u64) {
    placed();
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

pub fn compare() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = dir.path().join("redb");
    make(&path);
    let length = std::fs::metadata(&path).expect("the file just made").len();
    println!("database of {} MiB", length >> 20);
    for (name, limit, budget) in [("inside", None, length), ("beyond", Some(LIMIT), POOL)] {
        let mut ratios = Vec::new();
        for round in 0..ROUNDS {
            let order = if round % 2 == 0 { ["file", "pool"] } else { ["pool", "file"] };
            let mut rates = order.map(|kind| (kind, rate(kind, &path, budget, limit)));
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
fn rate(kind: &str, path: &Path, budget: u64, limit: Option<u64>) -> f64 {
    cool(path);
    said(&["gets", kind, &path.display().to_string(), &budget.to_string()], limit)
        .trim()
        .parse()
        .expect("gets a second")
}
