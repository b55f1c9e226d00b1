//! The command line as its users meet it: what it says and leaves behind when things go wrong.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use world::{World, facility};

#[test]
fn a_missing_file_is_named() {
    let world = World::new();

    let said = world.majorfault(&["compare", "no-such-file"]);

    said.fails(2, "could not open the file (no-such-file: no such file or directory); check the name");
}

#[test]
fn an_empty_file_a_directory_and_a_fifo_are_refused_in_words() {
    let world = World::new();
    world.file("empty", 0);
    world.shell("mkfifo pipe");

    world.majorfault(&["compare", "empty"]).fails(2, "is empty");
    world.majorfault(&["compare", "."]).fails(2, "is a directory");
    world.majorfault(&["compare", "pipe"]).fails(2, "is a FIFO");
}

#[test]
fn a_file_shorter_than_a_block_is_refused() {
    let world = World::new();
    world.file("short", 100);

    world.majorfault(&["compare", "short"]).fails(2, "too short");
}

#[test]
fn an_unreadable_file_is_named() {
    let world = World::new();
    world.file("secret", 8192);
    fs::set_permissions(world.path("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let Some(said) = world.as_nobody(&["compare", "secret"]) else { return };

    said.fails(2, "permission denied); reading needs read permission");
}

#[test]
fn an_unknown_method_workload_or_parameter_lists_those_there_are() {
    let world = World::new();

    world.majorfault(&["compare", "--method", "nmap"]).fails(2, "there are null, mmap, pread, direct, uring");
    world.majorfault(&["compare", "--workload", "sequentail"]).fails(2, "there are sequential, uniform");
    world
        .majorfault(&["compare", "--method", "mmap:advise=random"])
        .fails(2, "no parameter \"advise\" here; legal are");
    world
        .majorfault(&["compare", "--method", "mmap:policy=learnt"])
        .fails(2, "there are none, window, whole, populate");
    world.majorfault(&["compare", "--method", "uring:policy=learned"]).fails(2, "uring takes no policy");
    world.majorfault(&["compare", "--method", "mmap:policy=window,stride=4k"]).fails(2, "legal are");
}

#[test]
fn a_limit_too_small_to_run_in_is_refused_with_the_least_that_works() {
    let world = World::new();

    world.small(&["--memory", "64k"]).fails(2, "needs at least");
}

#[test]
fn writing_to_a_users_file_has_to_be_asked_for() {
    let world = World::new();
    world.file("precious", 1 << 20);
    let before = fs::read(world.path("precious")).unwrap();

    world.majorfault(&["compare", "precious", "--rw", "randwrite"]).fails(2, "would destroy the content");

    assert_eq!(fs::read(world.path("precious")).unwrap(), before);
}

#[test]
fn a_users_file_is_only_read() {
    let world = World::new();
    world.file("data", 4 << 20);
    fs::set_permissions(world.path("data"), fs::Permissions::from_mode(0o444)).unwrap();
    let before = fs::metadata(world.path("data")).unwrap().modified().unwrap();

    let words =
        ["compare", "data", "--runs", "1", "--runtime", "50ms", "--no-peer", "-q", "--records", "records.jsonl"];
    world.majorfault(&words).measured(&world.records());

    assert_eq!(fs::metadata(world.path("data")).unwrap().modified().unwrap(), before);
}

#[test]
fn the_table_fits_100_columns_and_has_no_colour_in_a_pipe() {
    let world = World::new();

    let said = world.small(&["--runs", "2"]);

    said.measured(&world.records());
    for line in said.output.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    for arm in ["null", "mmap", "pread", "direct", "uring"] {
        assert!(said.output.contains(arm), "no {arm} in\n{}", said.output);
    }
}

#[test]
fn what_the_user_has_now_takes_part_and_is_kept_with_every_record() {
    let world = World::new();

    world.small(&["--runs", "1", "--method", "mmap", "--no-peer", "--baseline", "pread"]).measured(&world.records());

    let records = world.records();
    let names: Vec<&serde_json::Value> =
        records.iter().map(|record| &record["trial"]["arm"]["method"]["name"]).collect();
    assert!(names.iter().any(|name| **name == "pread"), "{names:?}");
    assert!(records.iter().all(|record| record["baseline"]["method"]["name"] == "pread"));
    let verdict = |more: &[&str]| {
        let call = [&["report", "records.jsonl", "--json"], more].concat();
        world.majorfault(&call).json()["summaries"][0]["verdict"].clone()
    };
    assert_eq!(verdict(&[])["baseline"]["arm"], "pread");
    assert_eq!(verdict(&["--baseline", "mmap"])["baseline"]["arm"], "mmap");
    world.majorfault(&["report", "records.jsonl", "--baseline", "direct"]).fails(2, "no record is of it");
}

/// A short race of two methods over the file, as JSON.
fn raced(world: &World, more: &[&str]) -> serde_json::Value {
    let usual = ["compare", "-q", "--json", "--records", "race.jsonl", "--runtime", "20ms", "--no-peer"];
    let said = world.majorfault(&[&usual[..], &["-m", "null", "-m", "mmap", "-m", "pread", "data"], more].concat());
    said.ends_with(&[0, 4]);
    said.json()
}

#[test]
fn random_reads_of_a_small_file_are_two_questions_with_a_verdict_each() {
    let world = World::new();
    world.file("data", 4 << 20);

    let told = raced(&world, &["--time", "100ms"]);

    let groups = told["summaries"].as_array().unwrap();
    let of = |name: &str| groups.iter().map(|group| group[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("question"), ["first_pass", "steady_state"]);
    assert_eq!(groups.iter().map(|group| group["trial"]["cache"].clone()).collect::<Vec<_>>(), ["cold", "warm"]);
    assert_eq!(groups[0]["visits_per_block"], serde_json::json!([1.0, 1.0]));
    assert!(groups.iter().all(|group| !group["verdict"]["answer"].as_str().unwrap().is_empty()), "{told}");
    let heading = groups[0]["heading"].as_str().unwrap();
    assert_eq!(
        heading,
        "First pass, cold: each block of 4.00 MiB once, in random order (1.00 visits to each block reached, of 1\u{a0}024)"
    );
}

#[test]
fn what_is_said_of_the_cache_the_order_or_the_number_is_one_question() {
    let world = World::new();
    world.file("data", 4 << 20);

    for said in [&["--cache", "cold"][..], &["--workload", "uniform"], &["--time-based"], &["--number-ios", "100"]] {
        let told = raced(&world, &[said, &["--runs", "1", "--force"]].concat());

        assert_eq!(told["summaries"].as_array().unwrap().len(), 1, "{said:?}");
        assert!(told["summaries"][0]["question"].is_null() && told["summaries"][0]["race"].is_null(), "{said:?}");
    }
}

#[test]
fn a_cold_figure_that_is_mostly_the_caches_is_told_as_such() {
    let world = World::new();
    world.file("data", 1 << 20);

    let told = raced(&world, &["--cache", "cold", "--number-ios", "20000", "--runtime", "60s", "--runs", "1"]);

    let group = &told["summaries"][0];
    assert!(group["remark"].as_str().unwrap().starts_with("cold is the first visit only: "), "{group}");
    let heading = group["heading"].as_str().unwrap();
    assert_eq!(heading, "uniform read, cache cold (78.1 visits to each block reached, of 256)");
}

#[test]
fn a_race_has_a_run_of_each_however_short_its_time_and_its_report_says_the_same() {
    let world = World::new();
    world.file("data", 4 << 20);

    let told = raced(&world, &["--time", "1ms", "--cache", "cold"]);

    let records = world.records_of("race.jsonl");
    let repetitions = |record: &serde_json::Value| record["trial"]["repetition"].as_u64();
    assert!(records.iter().all(|record| repetitions(record) == Some(0) && record["race"]["time_ns"] == 1_000_000));
    assert!(records.len() >= 3);
    let report = world.majorfault(&["report", "race.jsonl", "--json"]).json();
    assert_eq!(report["summaries"], told["summaries"]);
    let answer = told["summaries"][0]["verdict"]["answer"].as_str().unwrap();
    assert!(answer.contains("1 run of each method in the time given") || answer.contains("NOT VALID"), "{answer}");
}

#[test]
fn a_number_of_runs_is_no_race_and_excludes_a_time() {
    let world = World::new();
    world.file("data", 4 << 20);

    raced(&world, &["--runs", "2"]);

    let records = world.records_of("race.jsonl");
    let of = |question: &str| -> Vec<u64> {
        let own = records
            .iter()
            .filter(|record| record["question"] == question && record["trial"]["arm"]["method"]["name"] == "null");
        own.map(|record| record["trial"]["repetition"].as_u64().unwrap()).collect()
    };
    assert_eq!([of("first_pass"), of("steady_state")], [[0, 1], [0, 1]]);
    assert!(records.iter().all(|record| record["race"].is_null()));
    world.majorfault(&["compare", "data", "--runs", "2", "--time", "5s"]).fails(2, "cannot be used with");
}

#[test]
fn a_race_says_one_line_where_no_terminal_reads_it() {
    let world = World::new();
    world.file("data", 4 << 20);
    let call =
        ["compare", "data", "--records", "race.jsonl", "--runtime", "20ms", "--no-peer", "-m", "null", "-m", "pread"];

    let said = world.majorfault(&[&call[..], &["--cache", "cold", "--time", "60s"]].concat());

    said.ends_with(&[0, 4]);
    let lines: Vec<&str> = said.errors.lines().collect();
    assert_eq!(lines.len(), 2, "{}", said.errors);
    assert!(lines[0].starts_with("after one run of each: pread leads with "), "{}", said.errors);
    assert!(lines[1].starts_with("records: "), "{}", said.errors);
}

#[test]
fn an_interrupted_first_table_shows_what_there_is() {
    let world = World::new();
    world.file("data", 4 << 20);
    let running = world.start(&[
        "compare",
        "data",
        "-q",
        "--runtime",
        "2s",
        "--cache",
        "cold",
        "-m",
        "pread",
        "-m",
        "mmap",
        "--no-peer",
    ]);
    world.wait_for("a record", || !world.text_or_empty("records.jsonl").is_empty());

    running.signal("INT");
    let said = running.finish();

    assert_eq!(said.code, Some(130), "{}", said.errors);
    assert!(said.output.lines().any(|line| line.starts_with("pread ")), "{}", said.output);
    assert!(said.output.contains("Measured on"), "{}", said.output);
}

#[test]
fn a_file_of_any_name_is_measured_and_its_records_read_back() {
    let world = World::new();
    for name in
        [&b"caf\xe9"[..], b"with blank", b"qu'o\"te", b"line\nbreak", b" lead", b"a:b", b"$HOME", b"back\\slash", b"%s"]
    {
        let name = OsStr::from_bytes(name);
        fs::write(world.path(".").join(name), vec![7u8; 1 << 20]).unwrap();
        let usual =
            ["compare", "-q", "--runs", "1", "--runtime", "20ms", "--cache", "cold", "--records", "named.jsonl"];
        let more = ["-m", "mmap", "-m", "pread", "--peer", "fio", "--report", "page.html"];
        let _ = fs::remove_file(world.path("named.jsonl"));
        let words = usual.iter().chain(&more).map(OsStr::new);

        let said = world.majorfault_os(&words.chain([name]).collect::<Vec<_>>());

        said.measured(&world.records_of("named.jsonl"));
        let records = majorfault_lab::session::load(&[world.path("named.jsonl")]).unwrap();
        assert!(
            records
                .iter()
                .all(|record| record.trial.data.files == [world.path(".").join(name).canonicalize().unwrap()]),
            "{name:?}"
        );
        for record in &records {
            let is_peer = matches!(record.trial.arm, majorfault_lab::trial::Arm::Peer(_));
            let is_done = record.outcome == majorfault_lab::record::Outcome::Done;
            let is_missing = matches!(record.outcome, majorfault_lab::record::Outcome::Missing(_));
            assert!(is_done || is_peer && is_missing, "{name:?} {}: {:?}", record.trial.arm, record.outcome);
            assert!(!is_peer || is_missing || record.bytes() > 0, "{name:?}");
        }
        world.majorfault(&["report", "named.jsonl", "--json"]).json();
    }
}

#[test]
fn short_runs_are_sampled_more_often_unless_the_user_says() {
    let world = World::new();
    let interval = |more: &[&str]| {
        world.small(&[&["--runs", "1", "--method", "pread", "--no-peer"], more].concat()).ends_with(&[0, 4]);
        world.records().last().unwrap()["trial"]["interval_ns"].as_u64().unwrap()
    };

    assert_eq!(interval(&[]), 100_000_000, "runs of 100 ms");
    assert_eq!(interval(&["--interval", "7ms"]), 7_000_000);
    assert_eq!(interval(&["--number-ios", "10", "--runtime", "60s"]), 250_000_000);
}

#[test]
fn directories_for_striped_data_lie_on_devices_of_their_own() {
    let world = World::new();
    for name in ["one", "two"] {
        std::fs::create_dir(world.path(name)).unwrap();
    }

    let said = world.majorfault(&["reproduce", "S2.seq10", "--dir", "one", "--dir", "two", "--records", "r.jsonl"]);

    said.fails(2, "--dir one and two lie on the same device");
    assert!(!world.path("r.jsonl").exists() || world.text("r.jsonl").is_empty());
}

#[test]
fn data_are_made_in_a_directory_of_any_name() {
    let world = World::new();
    let dir = OsStr::from_bytes(b"d\xefr \"x\"");
    fs::create_dir(world.path(".").join(dir)).unwrap();
    let words = [
        "compare",
        "-q",
        "--size",
        "1m",
        "--runs",
        "1",
        "--runtime",
        "20ms",
        "--cache",
        "cold",
        "-m",
        "pread",
        "--no-peer",
    ];
    let words = words.iter().chain(&["--records", "made.jsonl", "--dir"]).map(OsStr::new);

    let said = world.majorfault_os(&words.chain([dir]).collect::<Vec<_>>());

    said.measured(&world.records_of("made.jsonl"));
    assert_eq!(world.records_of("made.jsonl")[0]["outcome"], "done");
}

#[test]
fn a_name_that_jobs_or_a_trace_cannot_say_is_refused_before_anything_is_made() {
    let world = World::new();
    let name = OsStr::from_bytes(b"caf\xe9");
    fs::write(world.path(".").join(name), vec![7u8; 1 << 20]).unwrap();
    let call = |words: &[&str]| {
        let words = words.iter().map(|word| if *word == "NAME" { name } else { OsStr::new(*word) });
        world.majorfault_os(&words.collect::<Vec<_>>())
    };

    call(&["compare", "NAME", "--rw", "randrw", "--allow-overwrite"]).fails(2, "is not UTF-8, and jobs are text");
    call(&["compare", "--dir", "NAME", "--rw", "randrw"]).fails(2, "is not UTF-8, and jobs are text");
    call(&["compare", "--trace", "NAME"]).fails(2, "");
}

#[test]
fn every_arm_saw_the_right_bytes() {
    let world = World::new();

    world.small(&["--runs", "1"]).measured(&world.records());

    for record in world.records() {
        let arm = &record["trial"]["arm"];
        assert_eq!(record["outcome"], "done", "{arm}");
        if arm["method"].is_object() && arm["method"]["name"] != "null" {
            assert_eq!(record["answer"], "checked", "{arm}");
        }
    }
}

#[test]
fn each_repetition_has_its_number() {
    let world = World::new();

    world.small(&["--runs", "2", "--method", "pread", "--no-peer"]).measured(&world.records());

    let mut repetitions: Vec<u64> =
        world.records().iter().map(|record| record["trial"]["repetition"].as_u64().unwrap()).collect();
    repetitions.dedup();
    assert_eq!(repetitions, [0, 1]);
}

#[test]
fn a_record_keeps_defaults_that_nobody_typed() {
    let world = World::new();

    world.small(&["--runs", "1", "--method", "mmap", "--method", "uring"]).measured(&world.records());

    let records = world.records();
    assert_eq!(records[0]["settings"]["advice"], "normal");
    assert_eq!(records[1]["settings"]["direct"], "on");
    assert_eq!(records[1]["settings"]["depth"], "32");
}

#[test]
fn writes_reach_the_file() {
    let world = World::new();

    world.small(&["--runs", "1", "--rw", "randwrite", "--no-peer"]).measured(&world.records());

    let records = world.records();
    assert!(records.len() >= 5);
    for record in records.iter().filter(|record| record["trial"]["arm"]["method"]["name"] != "null") {
        assert_eq!(record["outcome"], "done", "{}", record["trial"]["arm"]);
        assert_eq!(record["answer"], "checked", "{}", record["trial"]["arm"]);
    }
}

#[test]
fn a_warm_pool_reads_nothing_and_half_a_hot_one_the_other_half() {
    let world = World::new();
    let pools = ["-m", "pool:memory=16m", "-m", "uffd:memory=16m"];
    let usual = ["--size", "8m", "--dir", ".", "--rw", "read", "--memory", "none", "--runs", "1", "--no-peer", "-q"];
    let visit_bytes = |cache: &str, method: &str| -> Vec<u64> {
        let kept = format!("{method}-{cache}.jsonl");
        let call = [&["compare", "--cache", cache, "--records", &kept][..], &usual, &pools].concat();
        world.majorfault(&call).measured(&world.records_of(&kept));
        let of = |record: &serde_json::Value| {
            let phases = record["phases"].as_array().unwrap();
            let named = |name| phases.iter().find(|phase| phase["name"] == name);
            assert_eq!(named("warm").is_some(), cache != "cold", "{record:#}");
            named("visit").unwrap()["counters"]["process_read_bytes"].as_u64().unwrap()
        };
        let mut bytes: Vec<u64> = world
            .records_of(&kept)
            .iter()
            .filter(|record| record["trial"]["arm"]["method"]["name"] == method)
            .map(of)
            .collect();
        // A run that others disturbed was made again.
        bytes.dedup();
        bytes
    };

    assert_eq!(visit_bytes("cold", "pool"), [8 << 20]);
    assert_eq!(visit_bytes("hot:0.5", "pool"), [4 << 20]);
    assert_eq!(visit_bytes("warm", "pool"), [0]);
    assert_eq!(visit_bytes("warm", "uffd"), [0]);
}

#[test]
fn every_workload_runs_through_every_kind_of_method() {
    let world = World::new();
    for workload in ["sequential", "uniform", "zipf", "strided:stride=64k", "chase", "gather"] {
        let kept = format!("{}.jsonl", workload.split(':').next().unwrap());

        world.small_into(&kept, &["--runs", "1", "--workload", workload]).measured(&world.records_of(&kept));

        for record in world.records_of(&kept) {
            let peer_declines = record["trial"]["arm"]["peer"].is_object() && record["outcome"] != "done";
            assert!(
                record["outcome"] == "done" || peer_declines,
                "{workload}: {} {}",
                record["trial"]["arm"],
                record["outcome"]
            );
        }
    }
}

#[test]
fn every_policy_shows_the_right_bytes_and_the_settings_it_chose() {
    let world = World::new();
    let policies = ["window", "whole", "populate", "strided,stride=64k", "learned", "thread", "learned,by=helper"];
    let arms = policies.map(|policy| format!("mmap:policy={policy}"));
    let methods = arms.iter().flat_map(|arm| ["--method", arm.as_str()]);
    let args: Vec<&str> = ["--runs", "1", "--no-peer", "--numjobs", "2"].into_iter().chain(methods).collect();

    world.small(&args).measured(&world.records());

    for record in world.records() {
        assert_eq!(record["outcome"], "done", "{}", record["trial"]["arm"]);
        assert_eq!(record["answer"], "checked", "{}", record["trial"]["arm"]);
        let populates = record["settings"]["policy"] == "populate";
        let expected = if populates { ["normal", "read"] } else { ["random", "none"] };
        assert_eq!([&record["settings"]["advice"], &record["settings"]["populate"]], expected);
    }
}

#[test]
fn striped_files_are_one_address_space() {
    let world = World::new();

    world.small(&["--runs", "1", "--nrfiles", "4", "--stripe", "64k", "--no-peer"]).measured(&world.records());

    for record in world.records() {
        assert_eq!(record["trial"]["data"]["files"].as_array().unwrap().len(), 4);
        assert_eq!(record["outcome"], "done", "{}", record["trial"]["arm"]);
    }
}

#[test]
fn the_page_is_made_again_from_records_alone() {
    let world = World::new();
    world.small(&["--runs", "2", "--report", "first.html"]).measured(&world.records());

    world.majorfault(&["report", "records.jsonl", "--report", "again.html"]).ends_with(&[0]);

    let (first, again) = (world.text("first.html"), world.text("again.html"));
    assert!(first.contains("<svg"), "pictures are inside");
    assert!(!first.contains("http://") || !first.contains("src=\"http"), "nothing is fetched");
    assert_eq!(first, again);
}

#[test]
fn json_and_fio_json_are_json() {
    let world = World::new();
    world.small(&["--runs", "1"]).measured(&world.records());

    let own = world.majorfault(&["report", "records.jsonl", "--json"]).json();
    let fio = world.majorfault(&["report", "records.jsonl", "--output-format", "fio-json"]).json();

    assert!(own["records"].as_array().is_some_and(|records| !records.is_empty()));
    let job = &fio["jobs"][0];
    for key in ["io_bytes", "bw_bytes", "iops", "clat_ns"] {
        assert!(!job["read"][key].is_null(), "no read.{key}");
    }
}

#[test]
fn a_file_that_is_not_records_is_refused_by_line() {
    let world = World::new();
    fs::write(world.path("other.jsonl"), "{}\n").unwrap();

    world.majorfault(&["report", "other.jsonl"]).fails(2, "line 1 is not a record");
}

#[test]
fn a_truncation_under_the_mapping_is_that_methods_error() {
    let world = World::new();
    world.file("shrinking", 64 << 20);
    let running = world.start(&[
        "compare",
        "shrinking",
        "-q",
        "--runs",
        "1",
        "--runtime",
        "60",
        "--method",
        "mmap:advice=random",
        "--cache",
        "asis",
    ]);
    world.wait_for("the mapping", || world.has_worker(|worker| worker.maps("shrinking")));

    fs::File::options().write(true).open(world.path("shrinking")).unwrap().set_len(4096).unwrap();
    let said = running.finish();

    assert_eq!(said.code, Some(1), "{}\n{}", said.output, said.errors);
    assert!(said.output.contains("shortened"), "{}\n{}", said.output, said.errors);
}

#[test]
fn an_interrupt_keeps_the_records_and_leaves_nothing_behind() {
    let world = World::new();
    let mut arguments = vec!["compare", "-q", "--size", "64m", "--runs", "100", "--runtime", "100ms", "--dir", "."];
    arguments.extend(["--no-peer", "--method", "pread"]);
    let running = world.start(&arguments);
    world.wait_for("two records", || world.text_or_empty("records.jsonl").lines().count() >= 2);

    running.signal("INT");
    let said = running.finish();

    assert_eq!(said.code, Some(130), "{}", said.errors);
    assert!(said.output.contains("pread"), "what was measured is shown\n{}", said.output);
    assert!(world.records().len() >= 2);
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_kill_leaves_no_file_and_its_cgroup_goes_with_the_next_start() {
    let world = World::new();
    let running = world.start(&["compare", "-q", "--size", "64m", "--runs", "100", "--dir", ".", "--no-peer"]);
    world.wait_for("a record", || !world.text_or_empty("records.jsonl").is_empty());

    running.signal("KILL");
    running.finish();
    world.wait_for("the worker's end", || !world.has_worker(|_| true));
    world.small_into("next.jsonl", &["--runs", "1", "--method", "null"]).measured(&world.records_of("next.jsonl"));

    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn two_runs_at_once_do_not_disturb_each_other() {
    let world = World::new();
    let arguments = |records| {
        vec![
            "compare",
            "-q",
            "--size",
            "64m",
            "--runs",
            "1",
            "--runtime",
            "200ms",
            "--dir",
            ".",
            "--no-peer",
            "--records",
            records,
        ]
    };

    let (one, other) = (world.start_plain(&arguments("one.jsonl")), world.start_plain(&arguments("other.jsonl")));

    one.finish().measured(&world.records_of("one.jsonl"));
    other.finish().measured(&world.records_of("other.jsonl"));
    for kept in ["one.jsonl", "other.jsonl"] {
        assert!(world.records_of(kept).iter().all(|record| record["outcome"] == "done"), "{kept}");
    }
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_full_disk_is_an_error_before_anything_is_measured() {
    let world = World::new();
    if !facility("a loop mount", world.mount_small_disk("disk", 16 << 20)) {
        return;
    }

    let said = world.majorfault(&["compare", "--size", "1g", "--dir", "disk"]);

    said.fails(2, "has only");
}

#[test]
fn an_ordinary_user_gets_figures_and_is_told_what_is_missing() {
    let world = World::new();
    let Some(said) =
        world.as_nobody(&["compare", "-q", "--size", "32m", "--runs", "1", "--runtime", "100ms", "--dir", "."])
    else {
        return;
    };

    said.measured(&world.records());
    assert!(said.output.contains("uring"), "{}", said.output);
    assert!(said.output.contains("ran under no limit instead of"), "says that there is no limit\n{}", said.output);
}

#[test]
fn a_file_in_memory_has_no_cold_state() {
    let world = World::new();
    let path = format!("/dev/shm/majorfault-test-{}", std::process::id());
    fs::write(&path, vec![1u8; 1 << 20]).unwrap();

    let said = world.majorfault(&["compare", &path, "--runs", "1", "--runtime", "50ms"]);

    fs::remove_file(&path).unwrap();
    said.fails(2, "lies in memory (tmpfs)");
}

#[test]
fn without_io_uring_its_arm_says_so_and_the_others_run() {
    let world = World::new();

    let said = world.without_io_uring(&[
        "compare",
        "-q",
        "--size",
        "32m",
        "--runs",
        "1",
        "--runtime",
        "100ms",
        "--dir",
        ".",
        "--no-peer",
    ]);

    said.measured(&world.records());
    assert!(said.output.contains("io_uring_setup"), "{}", said.output);
    assert!(
        world
            .records()
            .iter()
            .any(|record| record["outcome"] == "done" && record["trial"]["arm"]["method"]["name"] == "direct")
    );
}

#[test]
fn completions_and_manual_pages_are_made_from_the_same_definitions() {
    let world = World::new();

    for shell in ["bash", "zsh", "fish"] {
        let said = world.majorfault(&["completions", shell]);
        assert!(said.output.contains("--iodepth") || said.output.contains("iodepth"), "{shell}");
    }
    world.majorfault(&["man", "manual"]).ends_with(&[0]);
    assert!(world.text("manual/majorfault-compare.1").contains("iodepth"));
}

#[test]
fn an_unknown_experiment_is_answered_with_its_neighbour() {
    let world = World::new();

    world.majorfault(&["reproduce", "S2.colapse"]).fails(2, "did you mean S2.collapse?");
}

#[test]
fn every_claim_is_listed_without_running_anything() {
    let world = World::new();

    let said = world.majorfault(&["reproduce", "--list"]);

    said.ends_with(&[0]);
    for id in ["S0.tlb", "S1.hint", "S2.collapse", "S3.11", "S4.readahead"] {
        assert!(said.output.contains(id), "no {id} in\n{}", said.output);
    }
    assert!(!world.path("state").exists());
}

#[test]
fn a_verdict_is_the_same_from_the_records_alone() {
    let world = World::new();
    let run = ["reproduce", "S1", "-q", "--dir", ".", "--json", "--records", "s1.jsonl"];

    let first = world.majorfault(&run);
    let again = world.majorfault(&["reproduce", "S1", "--json", "--from", "s1.jsonl"]);

    first.ends_with(&[0]);
    assert_eq!(first.output, again.output);
    let told: serde_json::Value = serde_json::from_str(&first.output).unwrap();
    let hint = told["claims"].as_array().unwrap().iter().find(|claim| claim["id"] == "S1.hint").unwrap();
    assert_eq!(hint["verdict"], "holds here", "{hint}");
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn an_interrupted_session_is_resumed_from_its_records() {
    let world = World::new();
    let running = world.start_plain(&["reproduce", "S1", "-q", "--dir", ".", "--records", "s1.jsonl"]);
    world.wait_for("three records", || world.text_or_empty("s1.jsonl").lines().count() >= 3);
    running.signal("INT");
    running.finish();
    let before = world.text("s1.jsonl");

    world.majorfault(&["reproduce", "S1", "-q", "--dir", ".", "--resume", "s1.jsonl"]).ends_with(&[0]);

    let after = world.text("s1.jsonl");
    assert!(after.starts_with(&before) && after.len() > before.len());
    assert_eq!(made_twice(&after), Vec::<String>::new(), "nothing that stands was run twice");
    assert_eq!(sessions_of(&world, "s1.jsonl").len(), 1);

    // What a guest is told: the same, but the new records are apart. They may be of runs that others disturbed.
    world
        .majorfault(&["reproduce", "S1", "-q", "--dir", ".", "--earlier", "s1.jsonl", "--records", "rest.jsonl"])
        .ends_with(&[0]);
    let both = after.clone() + &world.text_or_empty("rest.jsonl");
    assert_eq!(made_twice(&both), Vec::<String>::new(), "runs that the earlier records have were made");
    assert_eq!(world.text("s1.jsonl"), after);
}

/// Runs in a text of records that stand more than once. What others disturbed is made again.
fn made_twice(text: &str) -> Vec<String> {
    let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let stands = |record: &serde_json::Value| {
        let is_whole = record["gates"].as_array().unwrap().iter().all(|gate| gate["finding"] != "spoiled");
        record["outcome"] == "done" && is_whole
    };
    let name = |record: serde_json::Value| format!("{} {}", record["cell"]["name"], record["trial"]["repetition"]);
    let mut seen = std::collections::BTreeSet::new();
    records.filter(stands).map(name).filter(|name| !seen.insert(name.clone())).collect()
}

/// The names of the sessions in a file of records, in their order, each once.
fn sessions_of(world: &World, name: &str) -> Vec<String> {
    let mut names: Vec<String> =
        world.records_of(name).iter().map(|record| record["session"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    names
}

#[test]
fn sessions_that_are_whole_stay_and_those_that_are_missing_are_made_and_judged_with_them() {
    let world = World::new();
    let made =
        |words: &[&str]| world.majorfault(&[&["reproduce", "S4.dimmap", "-q", "--dir", ".", "--json"], words].concat());

    made(&["--records", "runs-1.jsonl"]);
    let first = world.text("runs-1.jsonl");
    let both = made(&["--sessions", "2", "--resume", "runs.jsonl"]);

    assert!(!world.path("runs.jsonl").exists());
    let names = ["runs-1.jsonl", "runs-2.jsonl"].map(|name| sessions_of(&world, name));
    assert!(names.iter().all(|names| names.len() == 1) && names[0] != names[1], "{names:?}");
    let whole = world.text("runs-1.jsonl");
    assert!(whole.starts_with(&first));
    assert_eq!(made_twice(&whole), Vec::<String>::new(), "runs that stand were made again");
    assert_eq!(both.json()["claims"][0]["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn agreement_of_one_session_is_refused_before_it_is_made() {
    let world = World::new();

    let said = world.majorfault(&["reproduce", "S1", "--dir", ".", "--agreement", "--records", "runs.jsonl"]);

    said.fails(2, "or make them with --sessions");
    assert!(!world.path("runs.jsonl").exists());
}

#[test]
fn a_scale_without_room_is_refused_before_it_starts() {
    let world = World::new();
    if !facility("a loop mount", world.mount_small_disk("disk", 64 << 20)) {
        return;
    }

    let said = world.majorfault(&["reproduce", "S2", "--dir", "disk"]);

    said.fails(2, "has only");
}
