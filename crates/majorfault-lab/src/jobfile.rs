//! fio job files: a subset of their options, as the words of our own command line.
//!
//! What a job file says is either done, or known not to change what is measured, or an error that names the option;
//! nothing is passed over in silence.

mod places;

use configparser::ini::{Ini, IniDefault};
use majorfault::{Bytes, Error, Result};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// What we do with an option.
#[derive(Clone, Copy)]
enum Becomes {
    /// The option of this name of ours, with the same value.
    Same(&'static str),
    /// A flag of ours; `=0` takes it back.
    Flag(&'static str),
    /// Nothing: what it asks for is done in any case, or does not change what is measured.
    Nothing,
    /// Looked at together with others.
    Looked,
}

use Becomes::{Flag, Looked, Nothing, Same};

/// Every option that is understood, under fio's names.
const OPTIONS: &[(&str, Becomes)] = &[
    ("blocksize", Same("bs")),
    ("bs", Same("bs")),
    ("clat_percentiles", Nothing),
    ("description", Nothing),
    ("direct", Looked),
    ("directory", Looked),
    ("end_fsync", Nothing),
    ("filename", Looked),
    ("group_reporting", Nothing),
    ("invalidate", Looked),
    ("iodepth", Same("iodepth")),
    ("ioengine", Looked),
    ("lat_percentiles", Nothing),
    ("name", Nothing),
    ("norandommap", Nothing),
    ("nrfiles", Same("nrfiles")),
    ("number_ios", Same("number-ios")),
    ("numjobs", Same("numjobs")),
    ("offset", Same("offset")),
    ("random_distribution", Looked),
    ("randseed", Same("randseed")),
    ("readwrite", Looked),
    ("runtime", Same("runtime")),
    ("rw", Looked),
    ("size", Same("size")),
    ("thread", Nothing),
    ("time_based", Flag("time-based")),
];

type Section = HashMap<String, Option<String>>;

/// The words of `majorfault compare` that do what the job file at `path` says.
///
/// Errors: Io; Invalid for what is not a job file, has not exactly one job, or says what is not understood.
pub fn words(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("read the job file", path, error))?;
    translate(&text).map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
}

fn translate(text: &str) -> Result<Vec<String>> {
    let job = job(text)?;
    let mut words = Vec::new();
    let mut names: Vec<&String> = job.keys().collect();
    names.sort_unstable();
    for name in names {
        let value = job[name].as_deref();
        match becomes(name)? {
            Same(own) => {
                let value = value.ok_or_else(|| Error::Invalid(format!("the option {name} needs a value")))?;
                if value.contains('%') {
                    return Err(unsupported(name, value, "sizes, times and counts"));
                }
                words.extend([format!("--{own}"), value.to_owned()]);
            }
            Flag(own) if value != Some("0") => words.push(format!("--{own}")),
            Flag(_) | Nothing | Looked => {}
        }
    }
    let value = |name: &str| job.get(name).and_then(Option::as_deref);
    words.extend(law(&value)?);
    words.extend(peer(&value)?);
    match value("invalidate") {
        None | Some("1") => {}
        Some("0") => words.extend(["--cache".to_owned(), "asis".to_owned()]),
        Some(other) => return Err(unsupported("invalidate", other, "0 and 1")),
    }
    words.extend(places::words(text)?);
    Ok(words)
}

/// The global options with the only job's over them.
fn job(text: &str) -> Result<Section> {
    let mut format = IniDefault::default();
    format.case_sensitive = true;
    format.comment_symbols = vec!['#', ';'];
    // fio ends a line at the first of them, with or without a blank before.
    format.inline_comment_symbols = Some(vec!['#', ';']);
    format.delimiters = vec!['='];
    let sections = Ini::new_from_defaults(format)
        .read(text.to_owned())
        .map_err(|why| Error::Invalid(format!("it is not a job file: {why}")))?;
    if sections.get("default").is_some_and(|outside| !outside.is_empty()) {
        return Err(Error::Invalid(
            "there are options before the first section; begin with [global] or a job".to_owned(),
        ));
    }
    let is_job = |name: &&String| !matches!(name.as_str(), "global" | "default");
    let mut jobs: Vec<&String> = sections.keys().filter(is_job).collect();
    jobs.sort_unstable();
    let [only] = jobs.as_slice() else {
        return Err(Error::Invalid(format!(
            "it has {} jobs ({}), and one is compared at a time; make a file of each",
            jobs.len(),
            jobs.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        )));
    };
    let mut job = sections.get("global").cloned().unwrap_or_default();
    job.extend(sections[*only].clone());
    Ok(job)
}

fn becomes(name: &str) -> Result<Becomes> {
    let found = OPTIONS.iter().find(|(known, _)| *known == name);
    found.map(|(_, becomes)| *becomes).ok_or_else(|| {
        let (nearest, _) = OPTIONS
            .iter()
            .map(|(known, _)| (*known, strsim::jaro(known, name)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, likeness)| *likeness > 0.8)
            .unzip();
        let hint: String = nearest.map(|nearest: &str| format!("did you mean {nearest}? ")).unwrap_or_default();
        let known: Vec<&str> = OPTIONS.iter().map(|(known, _)| *known).collect();
        Error::Invalid(format!("the option \"{name}\" is not understood; {hint}known are {}", known.join(", ")))
    })
}

fn unsupported(name: &str, value: &str, legal: &str) -> Error {
    Error::Invalid(format!("{name}={value} is not understood; known are {legal}"))
}

/// Direction and order.
fn law<'a>(value: &impl Fn(&str) -> Option<&'a str>) -> Result<Vec<String>> {
    let rw = value("rw").or_else(|| value("readwrite")).unwrap_or("read");
    let (rw, skip) = rw.split_once(':').map_or((rw, None), |(rw, skip)| (rw, Some(skip)));
    if !matches!(rw, "read" | "write" | "randread" | "randwrite") {
        return Err(unsupported("rw", rw, "read, write, randread, randwrite"));
    }
    let mut words = vec!["--rw".to_owned(), rw.to_owned()];
    if let Some(skip) = skip {
        // There it is a number of accesses between two jumps, not a hole.
        if rw.starts_with("rand") {
            return Err(unsupported("rw", &format!("{rw}:{skip}"), "rw=read:HOLE and rw=write:HOLE"));
        }
        let bytes = |text: &str| text.parse::<Bytes>().map_err(Error::from);
        let block = value("bs").or_else(|| value("blocksize")).unwrap_or("4k");
        let stride = bytes(skip)?.0 + bytes(block)?.0;
        words.extend(["--workload".to_owned(), format!("strided:stride={}", Bytes(stride))]);
    }
    match value("random_distribution").map(|law| law.split_once(':').unwrap_or((law, ""))) {
        None | Some(("random", "")) => {}
        Some(("zipf", theta)) => {
            let theta = if theta.is_empty() { String::new() } else { format!(":theta={theta}") };
            words.extend(["--workload".to_owned(), format!("zipf{theta}")]);
        }
        Some((law, _)) => return Err(unsupported("random_distribution", law, "random, zipf:THETA")),
    }
    Ok(words)
}

/// The engine that the job names takes part as it is named; the access methods are what it is compared with.
fn peer<'a>(value: &impl Fn(&str) -> Option<&'a str>) -> Result<Vec<String>> {
    let engine = match value("ioengine") {
        // fio's own default on Linux.
        None | Some("psync" | "sync" | "pvsync" | "pvsync2") => "psync",
        Some(engine @ ("io_uring" | "libaio" | "mmap")) => engine,
        Some(other) => {
            return Err(unsupported("ioengine", other, "io_uring, libaio, psync, sync, pvsync, pvsync2, mmap"));
        }
    };
    let direct = match value("direct") {
        None | Some("0") => "off",
        Some("1") => "on",
        Some(other) => return Err(unsupported("direct", other, "0 and 1")),
    };
    Ok(vec!["--peer".to_owned(), format!("fio:engine={engine},direct={direct}")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_job_becomes_our_own_words() {
        let text = "; a comment\n[global]\nbs=8k\nioengine=io_uring\ndirect=1\n\n[job]\nrw=randread\nbs=4k\ntime_based\n\
                    filename=/data/a\\:b:/data/c\n";

        let words = translate(text).unwrap().join(" ");

        assert_eq!(words, "--bs 4k --time-based --rw randread --peer fio:engine=io_uring,direct=on /data/a:b /data/c");
    }

    #[test]
    fn a_hole_after_each_block_is_a_stride() {
        let words = translate("[rows]\nrw=read:252k\nbs=4k\n").unwrap().join(" ");

        assert!(words.contains("--workload strided:stride=256k"), "{words}");
    }

    #[test]
    fn an_option_that_is_not_understood_is_named_with_its_neighbour() {
        let error = translate("[job]\niodept=4\n").unwrap_err().to_string();

        assert!(error.contains("\"iodept\"") && error.contains("did you mean iodepth?"), "{error}");
    }

    #[test]
    fn values_that_would_be_measured_otherwise_are_refused() {
        for line in ["rw=randrw", "ioengine=rbd", "direct=yes", "random_distribution=pareto:0.9", "invalidate=2"] {
            let error = translate(&format!("[job]\n{line}\n")).unwrap_err().to_string();

            assert!(error.contains("is not understood"), "{line}: {error}");
        }
    }

    /// Our words for a job of these lines.
    fn job_of(lines: &str) -> String {
        translate(&format!("[job]\n{lines}\n")).unwrap().join(" ")
    }

    fn refusal_of(lines: &str) -> String {
        translate(&format!("[job]\n{lines}\n")).unwrap_err().to_string()
    }

    #[test]
    fn a_job_that_says_nothing_reads_in_order_through_the_page_cache_as_fio_would() {
        assert_eq!(job_of(""), "--rw read --peer fio:engine=psync,direct=off");
        assert_eq!(job_of("readwrite=randwrite"), "--rw randwrite --peer fio:engine=psync,direct=off");
    }

    #[test]
    fn the_engine_and_direct_are_those_of_the_job() {
        let peer = |lines: &str| job_of(lines).split_once("--peer ").unwrap().1.to_owned();

        for same in ["psync", "sync", "pvsync", "pvsync2"] {
            assert_eq!(peer(&format!("ioengine={same}")), "fio:engine=psync,direct=off");
        }
        for own in ["io_uring", "libaio", "mmap"] {
            assert_eq!(peer(&format!("ioengine={own}\ndirect=0")), format!("fio:engine={own},direct=off"));
        }
        assert_eq!(peer("direct=1"), "fio:engine=psync,direct=on");
    }

    #[test]
    fn a_cache_that_is_not_to_be_dropped_stays_as_it_is() {
        assert!(job_of("invalidate=0").contains("--cache asis"));
        assert_eq!(job_of("invalidate=1"), job_of(""));
    }

    #[test]
    fn time_based_is_a_flag_that_0_takes_back() {
        assert!(job_of("time_based").starts_with("--time-based "));
        assert!(job_of("time_based=1").starts_with("--time-based "));
        assert_eq!(job_of("time_based=0"), job_of(""));
    }

    #[test]
    fn the_distribution_of_the_job_is_its_workload() {
        assert!(job_of("random_distribution=zipf:1.2").contains("--workload zipf:theta=1.2 "));
        assert!(job_of("random_distribution=zipf").contains("--workload zipf "));
        assert_eq!(job_of("random_distribution=random"), job_of(""));
        assert!(refusal_of("random_distribution=random:7").contains("random_distribution=random is not understood"));
    }

    #[test]
    fn a_hole_is_added_to_the_block_whatever_its_option_is_called() {
        assert!(job_of("rw=write:12k\nblocksize=8k").contains("--rw write --workload strided:stride=20k "));
        assert!(job_of("rw=read:4k").contains("--workload strided:stride=8k "), "fio's own block is 4k");
        assert!(refusal_of("rw=randread:8").contains("rw=randread:8 is not understood"));
    }

    #[test]
    fn a_size_in_percent_and_an_option_without_its_value_are_refused() {
        assert!(refusal_of("size=50%").contains("size=50% is not understood; known are sizes, times and counts"));
        assert!(refusal_of("size").contains("the option size needs a value"));
    }

    #[test]
    fn what_changes_nothing_that_is_measured_is_passed_over() {
        assert_eq!(job_of("group_reporting\nthread=1\nname=x\nnorandommap"), job_of(""));
    }

    #[test]
    fn an_option_like_no_other_gets_no_guess() {
        let error = refusal_of("zonemode=zbd");

        assert!(error.contains("\"zonemode\" is not understood; known are blocksize, bs, "), "{error}");
    }

    #[test]
    fn options_outside_a_section_are_refused() {
        let error = translate("rw=read\n[job]\nbs=4k\n").unwrap_err().to_string();

        assert!(error.contains("before the first section"), "{error}");
    }

    #[test]
    fn the_job_file_is_read_from_its_path_which_errors_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.fio");
        fs::write(&path, "[job]\nbs=16k\n").unwrap();

        let read = words(&path).unwrap();

        assert_eq!(read.join(" "), "--bs 16k --rw read --peer fio:engine=psync,direct=off");
        fs::write(&path, "[job]\ndirect=2\n").unwrap();
        let error = words(&path).unwrap_err().to_string();
        assert!(error.contains("rows.fio: direct=2 is not understood"), "{error}");
    }

    #[test]
    fn two_jobs_are_one_too_many() {
        let error = translate("[a]\nrw=read\n[b]\nrw=read\n").unwrap_err().to_string();

        assert!(error.contains("2 jobs (a, b)"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_taken_without_panic(text in "(\\[[a-z]{0,3}\\]|[a-z_]{1,9}|=|[0-9]{1,3}[kmg]?|:|\\\\|\n|;|#| ){0,60}") {
            let _ = translate(&text);
        }
    }
}
