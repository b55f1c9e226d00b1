//! YCSB's six workloads on redb on the pool, redb on its own file, LMDB and SQLite.
//!
//! Values of 1000 bytes, four threads, keys by Zipf's law of 0.99 (D: the latest by it), scans of 1 to 100 values:
//!
//! A: half reads, half updates; B: 95 % reads, updates; C: reads; D: 95 % reads of the latest, inserts; E: 95 % scans, inserts; F: half reads,
//! half reads with an update of what was read.
//!
//! Each store has a file of its own and runs in a process of its own, in turns, all workloads one after the other. *Inside*: without a
//! limit, everything read once before. *Beyond*: within 160 MiB of memory, of which the pool has 64 MiB (redb's and SQLite's own cache is 16
//! MiB everywhere, LMDB goes without read-ahead), after a second of reads. A write is a transaction of its own; each 500th, and the last, makes all durable, inside
//! the clock. Every value is checked. Shown are medians of operations a second, and of the pool's over each other's, paired by round, with the least
//! and the greatest.

use super::stores::{self, KINDS, Session, Store};
use super::{LIMIT, THREADS, cool, placed, said};
use rand::Rng;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VALUE: usize = 1000;
const GROUP: u64 = 500;
const LONGEST_SCAN: u64 = 100;

/// The pool's part of a run beyond memory: what redb keeps of writes that are not durable yet needs room, too (with 96 MiB the kernel killed it).
const POOL: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    ReadLatest,
    Scan,
    Update,
    Insert,
    Change,
}

/// Name, what most operations are, their percentage, what the others are.
const WORKLOADS: [(&str, Kind, u32, Kind); 6] = [
    ("A", Kind::Read, 50, Kind::Update),
    ("B", Kind::Read, 95, Kind::Update),
    ("C", Kind::Read, 100, Kind::Read),
    ("D", Kind::ReadLatest, 95, Kind::Insert),
    ("E", Kind::Scan, 95, Kind::Insert),
    ("F", Kind::Read, 50, Kind::Change),
];

/// A value: its key, then one byte again and again.
fn value(key: u64, byte: u8) -> Vec<u8> {
    let mut bytes = vec![byte; VALUE];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes
}

fn check(key: u64, bytes: &[u8]) {
    assert_eq!((bytes.len(), &bytes[..8], bytes[8]), (VALUE, &key.to_le_bytes()[..], bytes[VALUE - 1]), "key {key}");
}

/// What the threads of a child share.
struct Shared<'s> {
    store: &'s dyn Store,
    keys: u64,
    /// Where new keys begin, and how many there are.
    base: u64,
    inserted: AtomicU64,
    /// All of these stores have one writer at a time; how many writes there were.
    writes: Mutex<u64>,
}

impl Shared<'_> {
    /// The key that was inserted as the `number`-th.
    fn key(&self, number: u64) -> u64 {
        if number < self.keys { number } else { self.base + number - self.keys }
    }

    fn write(&self, session: &mut dyn Session, key: impl FnOnce() -> u64, byte: u8) {
        let mut writes = self.writes.lock().expect("no writer panicked");
        let key = key();
        session.write(&mut std::iter::once((key, value(key, byte))));
        *writes += 1;
        if (*writes).is_multiple_of(GROUP) {
            self.store.sync();
        }
    }

    fn read(&self, session: &mut dyn Session, key: u64) {
        assert!(session.read(key, &mut |bytes| check(key, bytes)), "key {key} is there");
    }

    fn operation(&self, session: &mut dyn Session, kind: Kind, random: &mut Pcg64, zipf: &Zipf<f64>) {
        let rank = zipf.sample(random) as u64 - 1;
        // The frequent keys lie apart.
        let key = (u128::from(rank) * 11_400_714_785_074_694_791 % u128::from(self.keys)) as u64;
        match kind {
            Kind::Read => self.read(session, key),
            Kind::ReadLatest => {
                let latest = self.keys + self.inserted.load(Ordering::Acquire) - 1;
                self.read(session, self.key(latest - rank));
            }
            Kind::Scan => {
                let (count, mut next, mut seen) = (random.random_range(1..=LONGEST_SCAN), key, 0);
                session.scan(key, count, &mut |key, bytes| {
                    assert!(key >= next, "in order");
                    check(key, bytes);
                    (next, seen) = (key + 1, seen + 1);
                });
                assert!(seen == count || next >= self.keys, "{seen} of {count}");
            }
            Kind::Update => self.write(session, || key, random.random()),
            Kind::Insert => {
                let number = || self.base + self.inserted.load(Ordering::Relaxed);
                let mut writes = self.writes.lock().expect("no writer panicked");
                let key = number();
                session.write(&mut std::iter::once((key, value(key, 1))));
                self.inserted.fetch_add(1, Ordering::Release);
                *writes += 1;
                if (*writes).is_multiple_of(GROUP) {
                    self.store.sync();
                }
            }
            Kind::Change => {
                let mut byte = 0;
                session.read(key, &mut |bytes| {
                    check(key, bytes);
                    byte = bytes[8].wrapping_add(1);
                });
                self.write(session, || key, byte);
            }
        }
    }

    /// Operations a second of a workload.
    fn rate(&self, workload: (&str, Kind, u32, Kind), lasts: Duration) -> f64 {
        let (_, most, percent, others) = workload;
        let began = Instant::now();
        let worked = |thread: u64| {
            let mut session = self.store.session();
            let mut random = Pcg64::seed_from_u64(thread + 1);
            let zipf = Zipf::new(self.keys as f64, 0.99).expect("a law");
            let mut count = 0u64;
            while began.elapsed() < lasts {
                let kind = if random.random_range(0..100) < percent { most } else { others };
                self.operation(session.as_mut(), kind, &mut random, &zipf);
                count += 1;
            }
            count
        };
        let count: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || worked(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a count")).sum()
        });
        if matches!(others, Kind::Update | Kind::Insert | Kind::Change) {
            self.store.sync();
        }
        count as f64 / began.elapsed().as_secs_f64()
    }

    /// Reads everything once.
    fn warm(&self) {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let (from, to) = (self.keys * thread / THREADS, self.keys * (thread + 1) / THREADS);
                    self.store.session().scan(from, to - from, &mut |key, bytes| check(key, bytes));
                });
            }
        });
    }
}

/// The child: kind, path, pool, keys, base, milliseconds, `inside` or `beyond` (or `make`), workloads.
pub fn child(words: &[&str]) {
    let [kind, path, budget, keys, base, lasts, place, names @ ..] = words else { panic!("{words:?}") };
    placed();
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let (keys, lasts) = (number(keys), Duration::from_millis(number(lasts)));
    let Some(store) = stores::open(kind, Path::new(path), number(budget), *place == "beyond") else { return };
    if *place == "make" {
        let mut session = store.session();
        for from in (0..keys).step_by(50_000) {
            session.write(&mut (from..keys.min(from + 50_000)).map(|key| (key, value(key, key as u8))));
            store.sync();
        }
        return println!("made");
    }
    let (inserted, writes) = (AtomicU64::new(0), Mutex::new(0));
    let shared = Shared { store: store.as_ref(), keys, base: number(base), inserted, writes };
    match *place {
        "inside" => shared.warm(),
        _ => _ = shared.rate(WORKLOADS[2], Duration::from_secs(1)),
    }
    for workload in WORKLOADS.into_iter().filter(|(name, ..)| names.contains(name)) {
        println!("{}", shared.rate(workload, lasts));
    }
}

/// Runs the workloads that are named, or all, and prints what was found.
pub fn compare(words: &[&str]) {
    let value = |name: &str, default: u64| {
        let at = words.iter().position(|word| *word == name);
        at.map_or(default, |at| words[at + 1].parse().expect("a number"))
    };
    let (seconds, rounds, keys) = (value("--for", 2), value("--rounds", 3), value("--keys", 500_000));
    let beyond = value("--pool", POOL >> 20) << 20;
    let named: Vec<&str> = WORKLOADS.iter().map(|(name, ..)| *name).filter(|name| words.contains(name)).collect();
    let named = if named.is_empty() { WORKLOADS.map(|(name, ..)| name).to_vec() } else { named };
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp");
    let path = |kind: &str| dir.path().join(kind);
    let told = |kind: &str, budget: u64, base: u64, place: &str, limit| {
        let numbers = [budget, keys, base, seconds * 1000].map(|number| number.to_string());
        let (path, [budget, keys, base, lasts]) = (path(kind).display().to_string(), numbers.each_ref());
        let mut words = vec!["workloads", kind, &path, budget, keys, base, lasts, place];
        words.extend(&named);
        said(&words, limit)
    };
    let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| told(kind, beyond, 0, "make", None) == "made\n").collect();
    let length = |kind: &str| std::fs::metadata(path(kind)).map_or(0, |file| file.len());
    for kind in &kinds {
        println!("{kind}: a file of {} MiB", length(kind) >> 20);
    }
    for (place, limit) in [("inside", None), ("beyond", Some(LIMIT))] {
        // Of each round, of each kind: operations a second by workload.
        let mut found: Vec<Vec<Vec<f64>>> = Vec::new();
        for round in 0..rounds {
            let mut rates = vec![Vec::new(); kinds.len()];
            for turn in 0..kinds.len() {
                let at = (turn + round as usize) % kinds.len();
                cool(&path(kinds[at]));
                let budget = if limit.is_some() { beyond } else { length("pool") + (256 << 20) };
                let base = keys + (round + 1 + if limit.is_some() { rounds } else { 0 }) * 100_000_000;
                let said = told(kinds[at], budget, base, place, limit);
                rates[at] = said.lines().map(|line| line.parse().expect("operations a second")).collect();
            }
            found.push(rates);
        }
        for (index, name) in named.iter().enumerate() {
            let median = |mut all: Vec<f64>| {
                all.sort_unstable_by(f64::total_cmp);
                (all[all.len() / 2], all[0], all[all.len() - 1])
            };
            let (ours, ..) = median(found.iter().map(|round| round[0][index]).collect());
            let mut line = format!("{place} {name}: pool {ours:.0}/s; it over");
            for (at, kind) in kinds.iter().enumerate().skip(1) {
                let (middle, least, most) =
                    median(found.iter().map(|round| round[0][index] / round[at][index]).collect());
                line += &format!(" {kind} {middle:.2} [{least:.2}-{most:.2}]");
            }
            println!("{line}");
        }
    }
}
