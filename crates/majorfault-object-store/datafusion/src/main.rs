//! A query of DataFusion on a Parquet file, with `FileStore` beside `LocalFileSystem`, in pairs that take turns:
//! `cargo run --release` in this folder [-- --mib 1024 --percent 5 --runs 8].
//!
//! A column of keys and one of 16 KiB a row, a page for each row. The query wants a share of the rows, spread by chance, and filters are pushed down:
//! DataFusion reads the keys, and of the other column the pages of the rows that it selected, by `get_ranges`. Cold: before each run the file
//! is dropped from the page cache. Shown are milliseconds and device bytes (`/proc/self/io`) of each, and `LocalFileSystem`'s time by ours, pair by pair.
//! Every answer must be the same.

use datafusion::arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use majorfault_object_store::FileStore;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use url::Url;

type Done<T> = Result<T, Box<dyn Error>>;

const ROW: usize = 16 << 10;
const ROWS_A_GROUP: usize = 8192;

fn number(name: &str, usual: usize) -> usize {
    let words: Vec<String> = std::env::args().collect();
    let given = words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    given.map_or(usual, |word| word.parse().unwrap_or_else(|_| panic!("{name} takes a number, not {word}")))
}

/// Numbers by chance, the same in each run.
fn chance(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn make(path: &Path, rows: usize) -> Done<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_write_batch_size(1)
        .set_data_page_row_count_limit(1)
        .set_max_row_group_size(ROWS_A_GROUP)
        .build();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut writer = None;
    for begin in (0..rows).step_by(1024) {
        let count = 1024.min(rows - begin);
        let keys: Vec<i64> = (0..count).map(|_| (chance(&mut state) % 100) as i64).collect();
        let contents: Vec<Vec<u8>> =
            (0..count).map(|_| (0..ROW / 8).flat_map(|_| chance(&mut state).to_le_bytes()).collect()).collect();
        let columns: [(&str, ArrayRef); 2] =
            [("key", Arc::new(Int64Array::from(keys))), ("content", Arc::new(BinaryArray::from_iter_values(contents)))];
        let batch = RecordBatch::try_from_iter(columns)?;
        if writer.is_none() {
            writer = Some(ArrowWriter::try_new(File::create(path)?, batch.schema(), Some(properties.clone()))?);
        }
        writer.as_mut().expect("made above").write(&batch)?;
    }
    writer.ok_or("no rows")?.close()?;
    File::open(path)?.sync_all()?;
    Ok(())
}

fn drop_cache(path: &Path) -> Done<()> {
    let file = File::open(path)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error).into()),
    }
}

fn read_bytes() -> Done<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    Ok(text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).ok_or("read_bytes")?.parse()?)
}

struct Ran {
    seconds: f64,
    bytes: u64,
    answer: String,
}

/// A query in a context of its own, so that nothing of an earlier one is kept.
async fn query(path: &Path, store: Arc<dyn ObjectStore>, percent: usize, is_cold: bool) -> Done<Ran> {
    let config = SessionConfig::new()
        .set_bool("datafusion.execution.parquet.pushdown_filters", true)
        .set_bool("datafusion.execution.parquet.enable_page_index", true);
    let context = SessionContext::new_with_config(config);
    context.register_object_store(&Url::parse("file:///")?, store);
    if is_cold {
        drop_cache(path)?;
    }
    let (before, began) = (read_bytes()?, Instant::now());
    context.register_parquet("data", path.to_str().ok_or("a path in UTF-8")?, ParquetReadOptions::default()).await?;
    let wanted =
        format!("SELECT count(*) AS rows, min(content) AS least, max(content) AS most FROM data WHERE key < {percent}");
    let batches = context.sql(&wanted).await?.collect().await?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = read_bytes()? - before;
    Ok(Ran { seconds, bytes, answer: pretty_format_batches(&batches)?.to_string() })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

fn main() -> Done<()> {
    let (mib, percent, runs) = (number("--mib", 1024), number("--percent", 5), number("--runs", 8));
    let folder = tempfile::tempdir_in("/var/tmp")?;
    let path = folder.path().join("rows.parquet");
    make(&path, (mib << 20) / ROW)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ours = Arc::new(FileStore::new("/")?);
    if let Some(reason) = ours.refusal() {
        println!("io_uring is not used: {reason}");
    }
    let stores: [(&str, Arc<dyn ObjectStore>); 2] =
        [("FileStore", ours.clone()), ("LocalFileSystem", Arc::new(LocalFileSystem::new()))];
    println!(
        "{mib} MiB in Parquet, pages of 16 KiB, {percent} % of the rows; {runs} pairs; load {}",
        std::fs::read_to_string("/proc/loadavg")?.trim()
    );
    for is_cold in [true, false] {
        let mut found: [Vec<Ran>; 2] = Default::default();
        for turn in 0..runs {
            for which in [turn % 2, 1 - turn % 2] {
                found[which].push(runtime.block_on(query(&path, stores[which].1.clone(), percent, is_cold))?);
            }
        }
        let answers: Vec<&String> = found.iter().flatten().map(|ran| &ran.answer).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]), "the answers differ");
        println!("{}", if is_cold { "cold" } else { "warm" });
        for ((name, _), ran) in stores.iter().zip(&found) {
            let ms = median(ran.iter().map(|ran| ran.seconds * 1e3).collect());
            let read = median(ran.iter().map(|ran| ran.bytes as f64 / 1048576.0).collect());
            println!("  {name:<16} {ms:>8.1} ms {read:>8.1} MiB from the device");
        }
        let mut pairs: Vec<f64> =
            found[1].iter().zip(&found[0]).map(|(local, own)| local.seconds / own.seconds).collect();
        pairs.sort_by(f64::total_cmp);
        println!(
            "  LocalFileSystem takes {:.2} x [{:.2}–{:.2}] of FileStore's time",
            median(pairs.clone()),
            pairs[0],
            pairs[pairs.len() - 1]
        );
    }
    println!("{:?}", ours.counts());
    Ok(())
}
