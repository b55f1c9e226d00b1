//! Well-known software: which one a file belongs to, and its setting that does what a remedy says.
//!
//! Software is recognised by the file's name, the mapped libraries and the command. The settings come from the programs'
//! manuals; one line is added to the remedy, which stays.

use crate::watch::evidence::{Evidence, MappedFile};
use std::path::Path;

/// The trouble with a file, by which a setting is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// Waits or floods without an order that read-ahead recognises.
    Lookups,
    /// A flood of read-ahead, which MADV_RANDOM ends: the remedy of [`Symptom::Lookups`], whatever the pressure that the flood makes.
    Flood,
    /// A flood that ends by itself, and is harmful only where little of the file is used.
    Load,
    /// Waits without an order, where MADV_RANDOM does not help: nothing is read ahead already, or it would cost hot pages.
    LookupsAlone,
    /// Waits in a scan.
    Scan,
    /// A scan that MADV_RANDOM slows down.
    RandomScan,
    /// Pages evicted and needed again.
    Thrash,
}

/// A known software.
struct Known {
    name: &'static str,
    /// Whether the file belongs to it.
    owns: fn(&Evidence, &MappedFile) -> bool,
    /// Its setting for the symptom, where it has one.
    setting: fn(Symptom) -> Option<&'static str>,
}

/// More exact marks come first.
const KNOWN: &[Known] = &[
    Known { name: "LMDB", owns: is_lmdb, setting: lmdb },
    Known { name: "RocksDB", owns: is_rocksdb, setting: rocksdb },
    Known { name: "llama.cpp", owns: is_llama, setting: llama },
    Known { name: "Elasticsearch", owns: is_elasticsearch, setting: elasticsearch },
    Known { name: "Lucene", owns: is_lucene, setting: lucene },
    Known { name: "SQLite", owns: is_sqlite, setting: sqlite },
    Known { name: "numpy", owns: is_numpy, setting: numpy },
];

/// The setting for the symptom in the software that the file belongs to, where both are known.
pub fn setting(evidence: &Evidence, file: &MappedFile, symptom: Symptom) -> Option<String> {
    let known = KNOWN.iter().find(|known| (known.owns)(evidence, file))?;
    let setting = (known.setting)(narrowed(evidence, file, symptom))?;
    let when = if symptom == Symptom::Load { ", where little is used" } else { "" };
    Some(format!("{}{when}: {setting}", known.name))
}

/// Tells apart the lookups that MADV_RANDOM does not help.
fn narrowed(evidence: &Evidence, file: &MappedFile, symptom: Symptom) -> Symptom {
    let is_no_answer = || !is_read_ahead(evidence, file) || evidence.random_costs_hot_pages();
    match symptom {
        Symptom::Lookups if is_no_answer() => Symptom::LookupsAlone,
        Symptom::Flood | Symptom::Load => Symptom::Lookups,
        other => other,
    }
}

/// Whether more is read than is touched. Without --deep the advice in force shows only by this.
fn is_read_ahead(evidence: &Evidence, file: &MappedFile) -> bool {
    let is_more = evidence.calls.is_none_or(|calls| calls.device_bytes >= file.asked_bytes() * 4);
    is_more && file.random_advice().is_none()
}

fn is_lmdb(evidence: &Evidence, file: &MappedFile) -> bool {
    // MDB_NOSUBDIR names the lock after the file; otherwise both are in a directory of their own.
    is_named(file, "data.mdb")
        || (has_library(evidence, "liblmdb") && has_file(evidence, &format!("{}-lock", file.path)))
}

fn lmdb(symptom: Symptom) -> Option<&'static str> {
    match symptom {
        Symptom::Lookups | Symptom::Flood | Symptom::Load => {
            Some("open the environment with MDB_NORDAHEAD (Python: readahead=False)")
        }
        Symptom::LookupsAlone => Some("look up from many threads, each with its own MDB_RDONLY transaction"),
        Symptom::Scan => None,
        Symptom::RandomScan => Some("open the environment without MDB_NORDAHEAD"),
        Symptom::Thrash => Some("mdb_copy -c shrinks the file to its content; LMDB has no cache to make smaller"),
    }
}

fn is_rocksdb(evidence: &Evidence, file: &MappedFile) -> bool {
    let is_numbered = stem(file).bytes().all(|byte| byte.is_ascii_digit());
    extension(file) == "sst" && (is_numbered || has_library(evidence, "librocksdb"))
}

fn rocksdb(symptom: Symptom) -> Option<&'static str> {
    Some(match symptom {
        Symptom::Lookups | Symptom::Flood | Symptom::Load => {
            "allow_mmap_reads=false with use_direct_reads=true and a larger block cache, and MultiGet with async_io; where \
             files stay mapped, advise_random_on_open=true"
        }
        Symptom::LookupsAlone => {
            "allow_mmap_reads=false with use_direct_reads=true and a larger block cache, and MultiGet with async_io"
        }
        Symptom::Scan => "allow_mmap_reads=false, and ReadOptions::readahead_size=2 MiB for the iterator",
        Symptom::RandomScan => {
            "advise_random_on_open=false, or allow_mmap_reads=false with ReadOptions::readahead_size"
        }
        Symptom::Thrash => "allow_mmap_reads=false with use_direct_reads=true and a block cache below the limit",
    })
}

fn is_llama(evidence: &Evidence, file: &MappedFile) -> bool {
    extension(file) == "gguf" || (has_library(evidence, "libllama") && extension(file) == "bin")
}

fn llama(symptom: Symptom) -> Option<&'static str> {
    Some(match symptom {
        Symptom::Thrash => {
            "a smaller quantisation or more memory; --no-mmap and --mlock both need room for all weights"
        }
        _ => "--no-mmap reads the weights by large calls at the start; --mlock reads them then and keeps them",
    })
}

/// Extensions of index files that Lucene maps: terms, postings, doc values, norms, stored fields, points, vectors.
const LUCENE: &[&str] = &[
    "cfs", "tim", "tip", "tmd", "doc", "pos", "pay", "dvd", "dvm", "nvd", "nvm", "fdt", "fdx", "kdd", "kdi", "vec",
    "vex", "veq", "veb", "tvd",
];

fn is_lucene(evidence: &Evidence, file: &MappedFile) -> bool {
    LUCENE.contains(&extension(file)) && has_library(evidence, "libjvm")
}

fn lucene(symptom: Symptom) -> Option<&'static str> {
    Some(match symptom {
        Symptom::Lookups | Symptom::Flood | Symptom::Load => {
            "MMapDirectory.setReadAdvice with ReadAdvice.RANDOM for this extension (Lucene 10.3)"
        }
        Symptom::LookupsAlone => "MMapDirectory.setPreload for this extension, where such files fit into memory",
        Symptom::Scan | Symptom::RandomScan => "-Dorg.apache.lucene.store.defaultReadAdvice=normal (Lucene 10)",
        Symptom::Thrash => "a smaller -Xmx leaves the page cache more; keep what is not hot out of MMapDirectory",
    })
}

fn is_elasticsearch(evidence: &Evidence, file: &MappedFile) -> bool {
    let names = ["org.elasticsearch", "org.opensearch"];
    is_lucene(evidence, file) && names.iter().any(|name| evidence.target.command.contains(name))
}

fn elasticsearch(symptom: Symptom) -> Option<&'static str> {
    Some(match symptom {
        Symptom::Lookups | Symptom::LookupsAlone | Symptom::Flood | Symptom::Load => {
            "index.store.preload: [\"nvd\", \"dvd\"] and this extension, where such files fit into memory; index.store.type: \
             hybridfs maps only what is looked up"
        }
        Symptom::Scan | Symptom::RandomScan => "-Dorg.apache.lucene.store.defaultReadAdvice=normal in jvm.options",
        Symptom::Thrash => "index.store.type: hybridfs, fewer shards on this node, and at most half of memory as heap",
    })
}

fn is_sqlite(evidence: &Evidence, file: &MappedFile) -> bool {
    let is_known = evidence.target.name.starts_with("sqlite3") || has_library(evidence, "libsqlite3");
    let is_usual = ["db", "db3", "sqlite", "sqlite3"].contains(&extension(file));
    (is_known && is_usual) || has_file(evidence, &format!("{}-shm", file.path))
}

fn sqlite(symptom: Symptom) -> Option<&'static str> {
    match symptom {
        Symptom::Lookups | Symptom::LookupsAlone | Symptom::Flood | Symptom::Load => {
            Some("PRAGMA mmap_size=0 with PRAGMA cache_size=-262144 (256 MiB) reads the pages it needs by calls")
        }
        Symptom::Scan => Some("PRAGMA mmap_size=0: calls in order are read ahead without waits at each window"),
        Symptom::RandomScan => None,
        Symptom::Thrash => Some("PRAGMA mmap_size=0, and a cache_size that holds the inner pages of the trees"),
    }
}

/// Files with readers of their own, which a program with numpy may map as well.
const NOT_NUMPY: &[&str] = &["arrow", "feather", "parquet", "safetensors", "so", "pt", "mo", "ttf"];

fn is_numpy(evidence: &Evidence, file: &MappedFile) -> bool {
    has_library(evidence, "_multiarray_umath") && !NOT_NUMPY.contains(&extension(file))
}

fn numpy(symptom: Symptom) -> Option<&'static str> {
    Some(match symptom {
        Symptom::Lookups | Symptom::Flood | Symptom::Load => {
            "m._mmap.madvise(mmap.MADV_RANDOM) for a memmap m; np.fromfile for what is needed as a whole"
        }
        Symptom::LookupsAlone => "np.fromfile(file, dtype, count, offset=at) from several threads for what is needed",
        Symptom::Scan => "np.fromfile(file, dtype) in large parts, or np.load without mmap_mode",
        Symptom::RandomScan => "m._mmap.madvise(mmap.MADV_SEQUENTIAL) for a memmap m before the scan",
        Symptom::Thrash => {
            "work on blocks of rows, all steps on one before the next, instead of passes over the memmap"
        }
    })
}

fn extension(file: &MappedFile) -> &str {
    Path::new(&file.path).extension().and_then(|end| end.to_str()).unwrap_or_default()
}

fn stem(file: &MappedFile) -> &str {
    Path::new(&file.path).file_stem().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_named(file: &MappedFile, name: &str) -> bool {
    Path::new(&file.path).file_name().is_some_and(|found| found == name)
}

fn has_file(evidence: &Evidence, path: &str) -> bool {
    evidence.files.iter().any(|file| file.path == path)
}

/// Whether a library with a name that begins so is mapped.
fn has_library(evidence: &Evidence, name: &str) -> bool {
    let file_name = |file: &MappedFile| file.path.rsplit('/').next().is_some_and(|found| found.starts_with(name));
    evidence.files.iter().any(|file| file_name(file) && file.path.contains(".so"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::examine;
    use crate::watch::evidence::Deep;
    use crate::watch::scenes::{advise, count, order, with_file};
    use majorfault::observe::pattern::Pattern;

    /// A file of this name with waits in lookups, in a process that has this library mapped.
    fn waits(path: &str, library: &str) -> Evidence {
        let mut evidence = with_file(|file| {
            file.path = path.to_owned();
            // Half as much is touched as makes a flood.
            (file.waits, file.major, file.touched_pages) = (10_000, 1, 60_000);
            file.waited_ns = 16_000_000_000;
        });
        evidence.files.push(MappedFile { path: library.to_owned(), ..MappedFile::default() });
        evidence.calls.as_mut().unwrap().device_bytes = 1 << 30;
        evidence
    }

    /// The remedy of the only finding.
    fn remedy(evidence: &Evidence) -> String {
        let found = examine(std::slice::from_ref(evidence));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].remedy.clone()
    }

    #[test]
    fn lmdb_gets_the_flag_that_it_lacks_and_threads_where_it_has_the_flag() {
        let mut evidence = waits("/data/base/data.mdb", "");
        assert!(
            remedy(&evidence).ends_with("; LMDB: open the environment with MDB_NORDAHEAD (Python: readahead=False)")
        );

        evidence.calls.as_mut().unwrap().device_bytes = 4 << 20;
        assert!(remedy(&evidence).contains("LMDB: look up from many threads"));

        evidence.calls.as_mut().unwrap().device_bytes = 1 << 30;
        advise(&mut evidence, Deep { random: true, ..Deep::default() });
        assert!(remedy(&evidence).contains("LMDB: look up from many threads"));

        (evidence.files[0].major, evidence.files[0].waits) = (900, 0);
        evidence.files[0].order = Some(order(Pattern::Sequential));
        assert!(remedy(&evidence).ends_with("; LMDB: open the environment without MDB_NORDAHEAD"));
    }

    #[test]
    fn files_that_fit_name_the_setting_for_where_little_is_used() {
        let evidence = waits("/data/base/data.mdb", "");
        let told = setting(&evidence, &evidence.files[0], Symptom::Load).unwrap();

        assert!(told.starts_with("LMDB, where little is used: open the environment with MDB_NORDAHEAD"), "{told}");
    }

    #[test]
    fn lmdb_without_a_directory_is_known_by_its_lock() {
        let mut evidence = waits("/data/base", "/usr/lib/liblmdb.so.0.0.0");
        assert!(!remedy(&evidence).contains("LMDB"));

        evidence.files.push(MappedFile { path: "/data/base-lock".to_owned(), ..MappedFile::default() });
        assert!(remedy(&evidence).contains("MDB_NORDAHEAD"));
    }

    #[test]
    fn rocksdb_is_advised_to_bypass_the_cache() {
        assert!(remedy(&waits("/data/000123.sst", "")).contains("RocksDB: allow_mmap_reads=false"));
        assert!(remedy(&waits("/data/x.sst", "/usr/lib/librocksdb.so.8.9")).contains("advise_random_on_open=true"));
        assert!(!remedy(&waits("/data/sea-surface.sst", "")).contains("RocksDB"));
    }

    #[test]
    fn sqlite_gets_its_pragmas_also_where_it_is_linked_into_the_program() {
        assert!(
            remedy(&waits("/data/a.db", "/usr/lib/libsqlite3.so.0.8.6")).contains("SQLite: PRAGMA mmap_size=0 with")
        );
        assert!(remedy(&waits("/data/a", "/data/a-shm")).contains("PRAGMA cache_size=-262144"));
        assert!(!remedy(&waits("/data/a.db", "")).contains("SQLite"));
    }

    #[test]
    fn lucene_gets_its_advice() {
        let mut evidence = waits("/data/_3.dvd", "/usr/lib/jvm/lib/server/libjvm.so");
        assert!(remedy(&evidence).contains("Lucene: MMapDirectory.setReadAdvice with ReadAdvice.RANDOM"));

        evidence.files[0].order = Some(order(Pattern::Sequential));
        assert!(remedy(&evidence).contains("-Dorg.apache.lucene.store.defaultReadAdvice=normal"));
    }

    #[test]
    fn elasticsearch_gets_its_index_settings() {
        let mut evidence = waits("/data/_3.dvd", "/usr/lib/jvm/lib/server/libjvm.so");
        evidence.target.command = "java -Xms4g org.elasticsearch.bootstrap.Elasticsearch".to_owned();

        assert!(remedy(&evidence).contains("Elasticsearch: index.store.preload: [\"nvd\", \"dvd\"]"));
    }

    #[test]
    fn llama_cpp_gets_its_options() {
        assert!(remedy(&waits("/models/q4.gguf", "")).contains("llama.cpp: --no-mmap"));
    }

    #[test]
    fn numpy_gets_the_advice_for_its_memmap_and_files_with_other_readers_do_not() {
        let library = "/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so";
        assert!(remedy(&waits("/data/matrix.bin", library)).contains("numpy: m._mmap.madvise(mmap.MADV_RANDOM)"));
        assert!(!remedy(&waits("/data/table.arrow", library)).contains("numpy"));
        assert!(remedy(&waits("/data/base/data.mdb", library)).contains("LMDB"));
    }

    #[test]
    fn thrashing_gets_the_setting_of_the_file_that_waits_most() {
        let mut evidence = waits("/models/q4.gguf", "");
        evidence.files[0].waited_ns = 1_500_000_000;
        count(&mut evidence, "cgroup_refault_pages", 100_000);

        assert!(remedy(&evidence).contains("llama.cpp: a smaller quantisation"));
    }

    #[test]
    fn random_advice_is_not_told_where_it_would_cost_hot_pages() {
        let mut evidence = waits("/data/base/data.mdb", "");
        count(&mut evidence, "cgroup_refault_pages", 800);

        assert!(!remedy(&evidence).contains("MDB_NORDAHEAD"));
    }
}
