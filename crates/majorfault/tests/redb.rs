//! redb, a database, on our pool: what it does on a file of its own it must do on a pool far smaller than the file.

mod on_pool;

use majorfault::Bytes;
use majorfault::pool::PooledFile;
use on_pool::OnPool;
use redb::{Database, MultimapTableDefinition, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const WORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("words");
const LISTS: MultimapTableDefinition<u64, u64> = MultimapTableDefinition::new("lists");

/// A database on a pool of 256 KiB, with as little cache of its own as it takes.
fn open(path: &Path) -> Database {
    let file = PooledFile::options().memory(Bytes::kib(256)).batch(16).open(path).unwrap();
    Database::builder().set_cache_size(64 << 10).create_with_backend(OnPool(file)).unwrap()
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn random_operations_agree_with_a_map_over_reopening() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("redb");
    let mut expected: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut lists: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut draws = Draws(7);

    for _ in 0..4 {
        let database = open(&path);
        for _ in 0..12 {
            let transaction = database.begin_write().unwrap();
            let is_kept = draws.below(4) > 0;
            let (mut words, mut groups) = (expected.clone(), lists.clone());
            {
                let mut table = transaction.open_table(WORDS).unwrap();
                let mut multimap = transaction.open_multimap_table(LISTS).unwrap();
                for _ in 0..60 {
                    let (key, length) = (draws.below(2000), draws.below(9000) as usize);
                    match draws.below(5) {
                        0 => {
                            let gone = table.remove(key).unwrap().map(|value| value.value().to_vec());
                            assert_eq!(gone, words.remove(&key));
                        }
                        1 => {
                            let value = draws.below(50);
                            multimap.insert(key % 20, value).unwrap();
                            groups.entry(key % 20).or_default().insert(value);
                        }
                        _ => {
                            let value = vec![key as u8; length];
                            table.insert(key, value.as_slice()).unwrap();
                            words.insert(key, value);
                        }
                    }
                }
            }
            if is_kept {
                transaction.commit().unwrap();
                (expected, lists) = (words, groups);
            } else {
                transaction.abort().unwrap();
            }
        }
        check(&database, &expected, &lists);
    }

    let mut database = open(&path);
    assert!(database.check_integrity().unwrap());
    check(&database, &expected, &lists);
    let length = std::fs::metadata(&path).unwrap().len();
    assert!(length > 8 * (256 << 10), "{length} bytes: the pool was not too small for it");
}

fn check(database: &Database, words: &BTreeMap<u64, Vec<u8>>, lists: &BTreeMap<u64, BTreeSet<u64>>) {
    let transaction = database.begin_read().unwrap();
    let table = transaction.open_table(WORDS).unwrap();
    let found: BTreeMap<u64, Vec<u8>> =
        table.iter().unwrap().map(Result::unwrap).map(|(key, value)| (key.value(), value.value().to_vec())).collect();
    assert!(found == *words, "{} entries, {} expected", found.len(), words.len());
    let some = table.range(500..700).unwrap().rev().map(|entry| entry.unwrap().0.value()).collect::<Vec<_>>();
    assert_eq!(some, words.range(500..700).rev().map(|(key, _)| *key).collect::<Vec<_>>());
    let multimap = transaction.open_multimap_table(LISTS).unwrap();
    for (key, values) in lists {
        let found: BTreeSet<u64> = multimap.get(*key).unwrap().map(|value| value.unwrap().value()).collect();
        assert_eq!(found, *values, "list {key}");
    }
}

#[test]
fn a_savepoint_is_restored() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let database = open(&dir.path().join("redb"));
    let put = |from: u64, to: u64| {
        let transaction = database.begin_write().unwrap();
        let savepoint = transaction.ephemeral_savepoint().unwrap();
        {
            let mut table = transaction.open_table(WORDS).unwrap();
            (from..to).for_each(|key| drop(table.insert(key, [key as u8; 5000].as_slice()).unwrap()));
        }
        transaction.commit().unwrap();
        savepoint
    };

    put(0, 200);
    let savepoint = put(100, 400);
    let mut transaction = database.begin_write().unwrap();
    transaction.restore_savepoint(&savepoint).unwrap();
    transaction.commit().unwrap();

    let transaction = database.begin_read().unwrap();
    let table = transaction.open_table(WORDS).unwrap();
    assert_eq!(table.iter().unwrap().count(), 200);
    assert_eq!(table.get(150).unwrap().unwrap().value(), [150; 5000]);
}

#[test]
fn several_threads_read_while_one_writes() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let database = open(&dir.path().join("redb"));
    let write = |turn: u64| {
        let transaction = database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(WORDS).unwrap();
            (0..200).for_each(|key| drop(table.insert(key, [turn as u8; 3000].as_slice()).unwrap()));
        }
        transaction.commit().unwrap();
    };
    write(0);

    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..15 {
                    let transaction = database.begin_read().unwrap();
                    let table = transaction.open_table(WORDS).unwrap();
                    let first = table.get(0).unwrap().unwrap().value()[0];
                    for entry in table.iter().unwrap() {
                        assert_eq!(entry.unwrap().1.value(), [first; 3000], "a snapshot is of one turn");
                    }
                }
            });
        }
        (1..15).for_each(write);
    });
}

#[test]
fn a_pooled_file_is_opened_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let first = PooledFile::open(&path).unwrap();

    let refused = PooledFile::open(&path).unwrap_err().to_string();
    drop(first);

    assert!(refused.contains("is open elsewhere"), "{refused}");
    PooledFile::open(&path).unwrap();
}
