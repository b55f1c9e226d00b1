//! Queries of DataFusion through `LocalFileSystem` and through `FileStore`, in pairs that take turns: `cargo run --release` in benches/datafusion.
//!
//! A Parquet file in /var/tmp (`--dir FOLDER`) of 8 388 608 rows (`--rows N`): two columns to choose by, 16 of 8 bytes to sum, neither compressed
//! nor in dictionaries, 1.1 GiB. Pages hold 2048 rows, so that they have 16 KiB (`--page-rows N`, a power of two to 65536; the writer's own habit is 20000). Three queries:
//!
//! - `pages`: the page index says that one page of 16 has rows of the chosen bucket; four columns are summed. Many small ranges.
//! - `late`: one row of 16384 has the chosen key; the key's column is read first, then the pages of the rows found (`pushdown_filters`).
//! - `scan`: all 16 columns of all rows are summed.
//!
//! Each runs cold (posix_fadvise takes the file out of the page cache) and warm, eight times each way (`--runs N`), in a session of its own, so that
//! nothing is remembered. Shown are milliseconds, device bytes (`/proc/self/io`), calls and reads of `FileStore`, and the other store's time by ours,
//! pair by pair: median, least and most. Every answer is checked. `-- pages`, `late` or `scan` runs one part, `--direct` reads past the page cache.

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext, col, lit};
use majorfault_object_store::FileStore;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use url::Url;

/// Columns that are summed.
const PAYLOAD: usize = 16;
const BUCKETS: u64 = 16;
const KEYS: u64 = 16384;
/// The bucket and the key that are asked for.
const CHOSEN: i64 = 7;
/// Rows written at once; a row group is a whole number of them.
const BATCH: u64 = 1 << 16;

#[path = "../../../crates/majorfault/benches/rows/mod.rs"]
mod rows;
use rows::{Row, note, number};

struct Made {
    _folder: tempfile::TempDir,
    path: PathBuf,
    rows: u64,
    page_rows: u64,
}

fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

/// Of all rows that share a page.
fn bucket(row: u64, page_rows: u64) -> i64 {
    (mixed(row / page_rows) % BUCKETS) as i64
}

fn key(row: u64) -> i64 {
    (mixed(row ^ 0xA5A5_0000_0000) % KEYS) as i64
}

/// Small whole numbers, whose sums are exact in any order.
fn value(row: u64, column: usize) -> f64 {
    (mixed(row * PAYLOAD as u64 + column as u64) % 1024) as f64
}

fn payload() -> Vec<String> {
    (0..PAYLOAD).map(|column| format!("p{column}")).collect()
}

impl Made {
    fn new(dir: &Path, rows: u64, page_rows: u64) -> Made {
        let folder = tempfile::Builder::new().prefix("majorfault-bench-").tempdir_in(dir);
        let folder = folder.unwrap_or_else(|error| stop(&format!("{}: {error}", dir.display())));
        let path = folder.path().join("rows.parquet");
        let names = ["bucket", "key"].map(|name| Field::new(name, DataType::Int64, false));
        let values = payload().into_iter().map(|name| Field::new(name, DataType::Float64, false));
        let schema = Arc::new(Schema::new(names.into_iter().chain(values).collect::<Vec<_>>()));
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_row_count_limit(page_rows as usize)
            .set_write_batch_size(page_rows as usize)
            .build();
        let file = File::create(&path).expect("a file in a new folder");
        let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).expect("a writer");
        for first in (0..rows).step_by(BATCH as usize) {
            let part = first..rows.min(first + BATCH);
            let mut columns: Vec<ArrayRef> = vec![
                Arc::new(part.clone().map(|row| bucket(row, page_rows)).collect::<Int64Array>()),
                Arc::new(part.clone().map(key).collect::<Int64Array>()),
            ];
            columns.extend((0..PAYLOAD).map(|column| {
                Arc::new(part.clone().map(|row| value(row, column)).collect::<Float64Array>()) as ArrayRef
            }));
            let batch = RecordBatch::try_new(schema.clone(), columns).expect("columns of one length");
            writer.write(&batch).unwrap_or_else(|error| stop(&format!("{}: {error}", path.display())));
        }
        writer.close().unwrap_or_else(|error| stop(&format!("{}: {error}", path.display())));
        File::open(&path).and_then(|file| file.sync_all()).expect("the device");
        Made { _folder: folder, path, rows, page_rows }
    }

    fn cool(&self) {
        let file = File::open(&self.path).expect("the file");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go");
    }

    /// The rows that a query finds, and the sum of the first column over them.
    fn expected(&self, query: Query) -> (i64, f64) {
        let found = (0..self.rows).filter(|row| match query {
            Query::Pages => bucket(*row, self.page_rows) == CHOSEN,
            Query::Late => key(*row) == CHOSEN,
            Query::Scan => true,
        });
        found.fold((0, 0.0), |(rows, sum), row| (rows + 1, sum + value(row, 0)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Query {
    Pages,
    Late,
    Scan,
}

impl Query {
    fn name(self) -> &'static str {
        match self {
            Query::Pages => "pages",
            Query::Late => "late",
            Query::Scan => "scan",
        }
    }

    async fn answer(self, path: &Path, store: Arc<dyn ObjectStore>) -> Result<(i64, f64)> {
        let config =
            SessionConfig::new().set_bool("datafusion.execution.parquet.pushdown_filters", self == Query::Late);
        let context = SessionContext::new_with_config(config);
        context.register_object_store(&Url::parse("file:///").expect("an address"), store);
        let table = context.read_parquet(path.to_str().expect("a plain path"), ParquetReadOptions::default()).await?;
        let (table, columns) = match self {
            Query::Pages => (table.filter(col("bucket").eq(lit(CHOSEN)))?, 4),
            Query::Late => (table.filter(col("key").eq(lit(CHOSEN)))?, 4),
            Query::Scan => (table, PAYLOAD),
        };
        let sums = payload().into_iter().take(columns).map(|name| sum(col(name)));
        let answer =
            table.aggregate(vec![], std::iter::once(count(lit(1_i64))).chain(sums).collect())?.collect().await?;
        let row = &answer[0];
        Ok((row.column(0).as_primitive::<Int64Type>().value(0), row.column(1).as_primitive::<Float64Type>().value(0)))
    }
}

fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("/proc/self/io");
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).expect("read_bytes");
    line.parse().expect("a number")
}

fn stop(what: &str) -> ! {
    eprintln!("{what}");
    std::process::exit(2)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str| words.iter().position(|word| word == name).map(|at| at + 1);
    let dir =
        after("--dir").map_or("/var/tmp", |at| words.get(at).map_or_else(|| stop("--dir FOLDER"), String::as_str));
    let (rows, page_rows) = (number("--rows", 1 << 23) as u64, number("--page-rows", 2048) as u64);
    let runs = number("--runs", 8);
    if rows == 0 || runs == 0 {
        stop("--rows and --runs: at least 1");
    }
    // Pages of all columns then begin at the same rows, also where a row group begins.
    if !page_rows.is_power_of_two() || page_rows > BATCH {
        stop(&format!("--page-rows {page_rows}: a power of two to {BATCH}"));
    }
    let all = [Query::Pages, Query::Late, Query::Scan];
    let is_any = all.iter().any(|query| words.iter().any(|word| word == query.name()));
    let asked = all.into_iter().filter(|query| !is_any || words.iter().any(|word| word == query.name()));
    let options = FileStore::options().direct(words.iter().any(|word| word == "--direct"));
    let ours = options.over(LocalFileSystem::new()).unwrap_or_else(|error| stop(&error.to_string()));
    let arms: [(&str, Arc<dyn ObjectStore>); 2] =
        [("LocalFileSystem", Arc::new(LocalFileSystem::new())), ("FileStore", Arc::new(ours.clone()))];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let made = Made::new(Path::new(dir), rows, page_rows);
    let size = std::fs::metadata(&made.path).expect("the file").len();
    println!("{rows} rows, {page_rows} a page, {:.2} GiB", size as f64 / f64::from(1 << 30));
    let mut table: Vec<Row> = Vec::new();
    for query in asked {
        let expected = made.expected(query);
        for state in ["cold", "warm"] {
            let mut took = [Vec::new(), Vec::new()];
            for turn in 0..runs {
                for index in [turn % 2, 1 - turn % 2] {
                    let (name, store) = &arms[index];
                    let answer = || runtime.block_on(query.answer(&made.path, store.clone()));
                    match state {
                        "cold" => made.cool(),
                        _ => drop(answer()),
                    }
                    let (before, counts, began) = (read_bytes(), ours.counts(), Instant::now());
                    let found = answer().unwrap_or_else(|error| stop(&format!("{}: {error}", query.name())));
                    let ms = began.elapsed().as_secs_f64() * 1e3;
                    assert_eq!(found, expected, "{name}, {}: a wrong answer", query.name());
                    took[index].push(ms);
                    let title = format!("{}, {state}: {name}", query.name());
                    let mib = (read_bytes() - before) as f64 / f64::from(1 << 20);
                    note(&mut table, title.clone(), "ms", ms);
                    note(&mut table, format!("{title}, device"), "MiB", mib);
                    if index == 1 {
                        let now = ours.counts();
                        note(&mut table, format!("{title}, visits"), "calls", (now.visits - counts.visits) as f64);
                        note(&mut table, format!("{title}, in these"), "reads", (now.reads - counts.reads) as f64);
                    }
                }
            }
            for (local, ours) in took[0].iter().zip(&took[1]) {
                note(&mut table, format!("{}, {state}: LocalFileSystem / FileStore", query.name()), "x", local / ours);
            }
        }
    }
    rows::print(&table);
    if let Some(refusal) = ours.refusal() {
        println!("{refusal}");
    }
}
