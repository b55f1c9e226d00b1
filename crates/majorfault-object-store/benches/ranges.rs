//! 5 000 ranges of 16 KiB by `get_ranges`, beside `LocalFileSystem`, in pairs that take turns: `cargo bench -p majorfault-object-store --bench ranges`.
//!
//! A file of 1 GiB in /var/tmp (`--mib N`), ranges shuffled (`--ranges N`, `--kib N`); cold (posix_fadvise takes the file out of the page cache) and warm.
//! Shown are milliseconds and device bytes of each way (`/proc/self/io`), and the other store's time by ours, pair by pair: median, least and most
//! of eight (`--runs N`). Every answer is summed, and each way must find the same sum. `-- shuffled`, `few`, `gaps`, `at-once` or `knobs` runs one part.

#[path = "../../majorfault/benches/rows/mod.rs"]
mod rows;

use bytes::Bytes;
use futures_util::future::join_all;
use majorfault_object_store::FileStore;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use rows::{Row, note, number, print};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// A way to answer, under the name that the table has.
type Arm = (String, Arc<dyn ObjectStore>);

struct Bench {
    runtime: Runtime,
    folder: tempfile::TempDir,
    length: u64,
    rows: Vec<Row>,
    runs: usize,
}

fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("/proc/self/io");
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).expect("read_bytes");
    line.parse().expect("a number")
}

fn sum(answers: &[Vec<Bytes>]) -> u64 {
    let word = |bytes: &Bytes| {
        bytes.as_chunks::<8>().0.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)))
    };
    answers.iter().flatten().map(word).fold(0, u64::wrapping_add)
}

/// The same order in each run.
fn shuffled(mut all: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for index in (1..all.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.swap(index, (state % (index as u64 + 1)) as usize);
    }
    all
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir_in("/var/tmp").expect("room in /var/tmp");
        let length = (number("--mib", 1024) as u64) << 20;
        let mut file = File::create(folder.path().join("file")).expect("a file");
        for mib in 0..length >> 20 {
            let words =
                (0..1u64 << 17).flat_map(|word| (mib << 17 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
            file.write_all(&words.collect::<Vec<u8>>()).expect("room in /var/tmp");
        }
        file.sync_all().expect("the device");
        let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
        Bench { runtime, folder, length, rows: Vec::new(), runs: number("--runs", 8) }
    }

    fn local(&self) -> Arm {
        let local = LocalFileSystem::new_with_prefix(self.folder.path()).expect("the folder");
        ("LocalFileSystem".to_owned(), Arc::new(local))
    }

    fn ours(&self, name: &str, options: majorfault_object_store::Options) -> Arm {
        (name.to_owned(), Arc::new(options.open(self.folder.path()).expect("the folder")))
    }

    fn cool(&self) {
        let file = File::open(self.folder.path().join("file")).expect("the file");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
    }

    /// Each way once in each turn, begun with another one each time; each `calls` at once.
    fn turns(&mut self, title: &str, state: &str, arms: &[Arm], calls: &[Vec<Range<u64>>]) {
        let wanted: u64 = calls.iter().flatten().map(|range| range.end - range.start).sum();
        let path = Path::from("file");
        let mut expected = None;
        for turn in 0..self.runs {
            for index in 0..arms.len() {
                let (name, store) = &arms[(index + turn) % arms.len()];
                let answer = || {
                    let all = calls.iter().map(|ranges| store.get_ranges(&path, ranges));
                    self.runtime
                        .block_on(join_all(all))
                        .into_iter()
                        .map(|answer| answer.expect("bytes"))
                        .collect::<Vec<_>>()
                };
                if state == "cold" {
                    self.cool();
                } else {
                    drop(answer());
                }
                let (began, before) = (Instant::now(), read_bytes());
                let answers = answer();
                let took = began.elapsed().as_secs_f64() * 1e3;
                let device = (read_bytes() - before) as f64 / f64::from(1 << 20);
                let found = sum(&answers);
                assert_eq!(*expected.get_or_insert(found), found, "{name}: a wrong byte");
                note(&mut self.rows, format!("{title}, {state}: {name}"), "ms", took);
                if state == "cold" {
                    let wanted = wanted as f64 / f64::from(1 << 20);
                    note(
                        &mut self.rows,
                        format!("{title}, {state}: {name}, device ({wanted:.1} wanted)"),
                        "MiB",
                        device,
                    );
                }
            }
        }
        let (base, others) = arms.split_first().expect("a way to compare with");
        for (name, _) in others {
            let of = |name: &str| rows::runs(&self.rows, &format!("{title}, {state}: {name}")).to_vec();
            for (other, took) in of(&base.0).into_iter().zip(of(name)) {
                note(&mut self.rows, format!("{title}, {state}: {} / {name}", base.0), "x", other / took);
            }
        }
    }

    /// `count` ranges of `length` bytes with `gap` bytes between, ascending.
    fn spread(&self, count: usize, length: u64, gap: u64) -> Vec<Range<u64>> {
        let fits = (self.length / (length + gap)) as usize;
        (0..count.min(fits) as u64).map(|row| row * (length + gap)..row * (length + gap) + length).collect()
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts = ["shuffled", "few", "gaps", "at-once", "knobs"];
    let is_asked = |part: &str| {
        let named = parts.iter().any(|part| words.iter().any(|word| word == part));
        if named { words.iter().any(|word| word == part) } else { part != "knobs" && part != "gaps" }
    };
    let mut bench = Bench::new();
    let (count, length) = (number("--ranges", 5000), (number("--kib", 16) as u64) << 10);
    let all =
        |bench: &Bench| shuffled((0..bench.length / length).map(|row| row * length..(row + 1) * length).collect());
    let some = all(&bench)[..count].to_vec();
    let (local, ours) = (bench.local(), bench.ours("FileStore", FileStore::options()));
    for state in ["cold", "warm"] {
        if is_asked("shuffled") {
            let direct = bench.ours("FileStore direct", FileStore::options().direct(true));
            bench.turns(
                &format!("{count} of {} KiB", length >> 10),
                state,
                &[local.clone(), ours.clone(), direct],
                std::slice::from_ref(&some),
            );
        }
        if is_asked("few") {
            for few in [2, 8, 64] {
                bench.turns(
                    &format!("{few} of {} KiB", length >> 10),
                    state,
                    &[local.clone(), ours.clone()],
                    &[some[..few].to_vec()],
                );
            }
        }
        if is_asked("at-once") {
            let calls: Vec<_> = some.chunks(count.div_ceil(8)).map(<[_]>::to_vec).collect();
            bench.turns("8 calls at once", state, &[local.clone(), ours.clone()], &calls);
        }
        if is_asked("gaps") {
            for gap in [4u64, 8, 16, 64] {
                let ranges = bench.spread(count, length, gap << 10);
                let joined = bench.ours("FileStore, gaps read", FileStore::options().gap(gap << 10));
                let ours = bench.ours("FileStore, gaps left out", FileStore::options().gap(0));
                bench.turns(&format!("gaps of {gap} KiB"), state, &[local.clone(), ours.clone(), joined], &[ranges]);
            }
        }
        if is_asked("knobs") {
            let arms = [
                ours.clone(),
                bench.ours("depth 16", FileStore::options().depth(16)),
                bench.ours("depth 32", FileStore::options().depth(32)),
                bench.ours("depth 128", FileStore::options().depth(128)),
                bench.ours("depth 256", FileStore::options().depth(256)),
            ];
            bench.turns("knobs", state, &arms, std::slice::from_ref(&some));
        }
    }
    print(&bench.rows);
}
