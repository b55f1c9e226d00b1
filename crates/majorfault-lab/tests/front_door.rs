//! What the command line takes and what it must never cost: files that are not its own, outputs, job files, lists.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use world::{Said, World, facility};

/// Measured: see [`Said::measured`], of the last session.
fn is_measured(said: &Said, records: &[serde_json::Value]) {
    let session = records.last().map(|record| record["session"].clone());
    let last = records.iter().filter(|record| Some(&record["session"]) == session.as_ref());
    let last: Vec<serde_json::Value> = last.cloned().collect();

    said.measured(&last);
    assert!(last.iter().any(|record| record["gates"].as_array().is_some_and(|gates| !gates.is_empty())), "no gates");
}

/// Arguments of a short comparison of one method on `file`.
fn short<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = ["compare", file, "-q", "--runs", "1", "--runtime", "20ms", "--method", "pread", "--no-peer"];
    [&usual[..], more].concat()
}

/// The call is refused with the sentence, and no byte of the file changed.
fn is_refused(world: &World, precious: &str, arguments: &[&str], sentence: &str) {
    let before = fs::read(world.path(precious)).unwrap();

    for forced in [&[][..], &["--force"]] {
        let at = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
        let all = [&arguments[..at], forced, &arguments[at..]].concat();
        let said = world.majorfault(&all);
        assert_eq!(said.code, Some(2), "{all:?}\n{}\n{}", said.output, said.errors);
        assert!(said.errors.contains(sentence), "{all:?}: not said: {sentence}\n{}", said.errors);
        assert!(fs::read(world.path(precious)).unwrap() == before, "{all:?} changed {precious}");
    }
}

/// A file of records, from a short comparison.
fn recorded(world: &World) {
    let said = world.small(&["--runs", "1", "--method", "pread", "--no-peer"]);
    is_measured(&said, &world.records());
}

#[test]
fn no_output_of_compare_is_a_file_under_test_by_whatever_name() {
    let world = World::new();
    world.file("data", 4 << 20);
    fs::create_dir(world.path("sub")).unwrap();
    assert!(world.shell("ln data hard && ln -s data soft && ln -s soft softer && ln -s . here && cp data other"));

    for name in ["data", "hard", "soft", "softer", "here/data", "./sub/../data"] {
        for option in ["--report", "--records"] {
            is_refused(&world, "data", &short("data", &[option, name]), "is the file under test data");
        }
    }
    is_refused(&world, "data", &short("soft", &["--report", "hard"]), "is the file under test soft");
    is_refused(&world, "data", &short("other", &["data", "--report", "data"]), "is the file under test data");
}

#[test]
fn no_output_is_the_job_file_the_trace_or_the_running_program() {
    let world = World::new();
    world.file("data", 4 << 20);
    fs::write(world.path("job.fio"), "[j]\nfilename=data\nrw=read\n").unwrap();
    fs::write(world.path("t.flt"), "majorfault trace 2\nfile 0 4194304 data\n0 0 0 4096 4096 9\nend\n").unwrap();
    fs::hard_link(world.path("job.fio"), world.path("other name")).unwrap();
    let program = env!("CARGO_BIN_EXE_majorfault");

    for option in ["--report", "--records"] {
        is_refused(&world, "job.fio", &["compare", "job.fio", option, "job.fio"], "is the job file job.fio");
        is_refused(&world, "job.fio", &["compare", option, "other name", "job.fio"], "is the job file job.fio");
        is_refused(&world, "data", &["compare", "job.fio", option, "data"], "is the file under test data");
        is_refused(&world, "t.flt", &["compare", "--trace", "t.flt", option, "t.flt"], "t.flt, whose content");
        is_refused(&world, program, &short("data", &[option, program]), "is the running program");
    }
}

#[test]
fn no_output_is_a_file_of_records_that_is_read() {
    let world = World::new();
    recorded(&world);
    fs::hard_link(world.path("records.jsonl"), world.path("hard")).unwrap();

    for name in ["records.jsonl", "hard"] {
        let read = "is the file of records records.jsonl";
        is_refused(&world, "records.jsonl", &["report", "records.jsonl", "--report", name], read);
        is_refused(&world, "records.jsonl", &["reproduce", "--from", "records.jsonl", "--csv", name], read);
        is_refused(&world, "records.jsonl", &["reproduce", "--from", "records.jsonl", "--report", name], read);
        let resumed = ["reproduce", "S1", "--dir", ".", "--resume", "records.jsonl", "--csv", name];
        is_refused(&world, "records.jsonl", &resumed, "leads to the same file");
    }
}

#[test]
fn records_read_from_standard_input_are_no_output_either() {
    let world = World::new();
    recorded(&world);
    let before = world.text("records.jsonl");

    let program = env!("CARGO_BIN_EXE_majorfault");
    let did = world.shell(&format!("{program} report - --force --report records.jsonl <records.jsonl >said 2>&1"));

    assert!(!did && world.text("said").contains("is standard input"), "{}", world.text("said"));
    assert_eq!(world.text("records.jsonl"), before);
}

#[test]
fn no_output_is_a_file_of_the_program_that_is_watched() {
    let world = World::new();
    world.file("data", 1 << 20);
    assert!(world.shell("cp /bin/sleep nap"));
    let mut child =
        Command::new(world.path("nap")).arg("60").stdin(fs::File::open(world.path("data")).unwrap()).spawn().unwrap();
    let pid = child.id().to_string();
    world.wait_for("the program", || {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == world.path("nap"))
    });

    for option in ["--report", "--textfile"] {
        is_refused(&world, "data", &["doctor", &pid, option, "data"], "is the program's file /proc/");
        is_refused(&world, "nap", &["doctor", &pid, option, "nap"], "is the program /proc/");
        is_refused(&world, "data", &["doctor", option, "data", "--", "cat", "data"], "is the program's file data");
        is_refused(&world, "nap", &["doctor", option, "nap", "--", "./nap", "0"], "is the program ./nap");
    }
    is_refused(&world, "data", &["trace", &pid, "-o", "data"], "is the program's file /proc/");
    is_refused(&world, "data", &["trace", "-o", "data", "--", "cat", "data"], "is the program's file data");

    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn two_outputs_are_two_files() {
    let world = World::new();
    world.file("data", 1 << 20);
    fs::write(world.path("empty"), "").unwrap();
    assert!(world.shell("ln -s new link && cp data untouched"));
    let same = "leads to the same file";

    is_refused(&world, "untouched", &short("data", &["--report", "new", "--records", "new"]), same);
    is_refused(&world, "untouched", &short("data", &["--report", "link", "--records", "./new"]), same);
    is_refused(&world, "empty", &short("data", &["--report", "empty", "--records", "empty"]), same);
    is_refused(&world, "untouched", &["reproduce", "S1", "--csv", "new", "--report", "new"], same);
    assert!(!world.path("new").exists());
}

#[test]
fn what_we_did_not_write_is_replaced_only_where_force_says_so() {
    let world = World::new();
    world.file("data", 1 << 20);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../records/linux-6.18-standard-1.jsonl.gz");
    let notes = "my notes\n";
    let calls: [(&str, Vec<&str>); 5] = [
        ("a page of majorfault", short("data", &["--report", "notes"])),
        ("a file of majorfault's records", short("data", &["--records", "notes"])),
        ("a table of majorfault", vec!["reproduce", "S1", "-q", "--from", source, "--csv", "notes"]),
        (
            "a file of majorfault's metrics",
            vec!["doctor", "--for", "50ms", "--textfile", "notes", "--", "sleep", "0.3"],
        ),
        ("a page of majorfault", vec!["reproduce", "S1", "-q", "--from", source, "--report", "notes"]),
    ];
    for (kind, call) in calls {
        fs::write(world.path("notes"), notes).unwrap();

        world.majorfault(&call).fails(2, &format!("notes exists and is not {kind}; name another file, or add --force"));
        assert_eq!(world.text("notes"), notes, "{call:?}");
        let at = call.iter().position(|word| *word == "--").unwrap_or(call.len());
        let forced = world.majorfault(&[&call[..at], &["--force"], &call[at..]].concat());

        forced.ends_with(&[0, 4]);
        assert!(!world.text("notes").is_empty() && !world.text("notes").contains("my notes"), "{call:?}");
        world.majorfault(&call).ends_with(&[0, 4]);
    }
}

#[test]
fn a_trace_replaces_a_trace_and_nothing_else() {
    let world = World::new();
    world.file("data", 1 << 20);
    fs::write(world.path("notes"), "my notes\n").unwrap();
    fs::write(world.path("old.flt"), "majorfault trace 2\nend\n").unwrap();

    let refused = world.majorfault(&["trace", "-o", "notes", "--", "sh", "-c", "touch started"]);
    let own = world.majorfault(&["trace", "-o", "old.flt", "--", "true"]);

    refused.fails(2, "notes exists and is not a trace of majorfault");
    assert!(!world.path("started").exists(), "the program was started all the same");
    assert_eq!(world.text("notes"), "my notes\n");
    own.ends_with(&[0]);
}

#[test]
fn outputs_that_cannot_be_had_are_told_before_anything_is_done() {
    let world = World::new();
    fs::create_dir(world.path("folder")).unwrap();
    let far = ["compare", "-q", "--size", "1g", "--dir", ".", "--report"];

    world.majorfault(&[&far[..], &["no/such/page.html"]].concat()).fails(2, "no/such must exist and be writable");
    world.majorfault(&[&far[..], &["folder"]].concat()).fails(2, "is a directory; name a file");
    world.majorfault(&["reproduce", "S1", "--csv", "no/such.csv"]).fails(2, "no must exist and be writable");
    world.majorfault(&["trace", "-o", "no/t.flt", "--", "touch", "started"]).fails(2, "no must exist and be writable");
    world
        .majorfault(&["doctor", "--report", "no/p", "--", "touch", "started"])
        .fails(2, "no must exist and be writable");
    assert!(!world.path("started").exists());
    assert!(world.shell("test -z \"$(find state -type f)\""), "records were begun");
}

#[test]
fn devices_and_pipes_are_written_and_stay_what_they_are() {
    let world = World::new();
    recorded(&world);
    assert!(world.shell("mkfifo pipe && cat pipe >piped &"));
    world.wait_for("the pipe", || world.path("pipe").exists());

    let standard = world.majorfault(&["report", "records.jsonl", "--report", "/dev/stdout"]);
    world.majorfault(&["report", "records.jsonl", "--report", "pipe"]).ends_with(&[0]);
    world.majorfault(&["report", "records.jsonl", "--report", "/dev/null"]).ends_with(&[0]);
    world.majorfault(&["trace", "-o", "/dev/null", "--", "true"]).ends_with(&[0]);
    world.majorfault(&short("records.jsonl", &["--records", "/dev/null"])).ends_with(&[0, 4]);

    assert!(standard.output.contains("pread") && standard.output.contains("<!doctype html>"), "{}", standard.output);
    world.wait_for("the page", || world.text_or_empty("piped").trim_end().ends_with("</html>"));
    assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(fs::symlink_metadata("/dev/stdout").unwrap().file_type().is_symlink());
    assert!(fs::symlink_metadata(world.path("pipe")).unwrap().file_type().is_fifo());
}

#[test]
fn standard_output_in_a_file_takes_table_and_page() {
    let world = World::new();
    recorded(&world);
    let program = env!("CARGO_BIN_EXE_majorfault");

    assert!(world.shell(&format!("{program} report records.jsonl --report /dev/stdout >both")));
    let twice = world.shell(&format!("{program} report records.jsonl --report same >same 2>said"));

    let both = world.text("both");
    assert!(both.find("pread").unwrap() < both.find("<!doctype html>").unwrap());
    assert!(!twice && world.text("said").contains("standard output leads to the same file"), "{}", world.text("said"));
}

#[test]
fn a_link_stays_a_link_and_its_file_is_replaced() {
    let world = World::new();
    recorded(&world);
    fs::create_dir(world.path("pages")).unwrap();
    assert!(world.shell("ln -s pages/real.html link.html"));

    for _ in 0..2 {
        world.majorfault(&["report", "records.jsonl", "--report", "link.html"]).ends_with(&[0]);
    }

    assert!(fs::symlink_metadata(world.path("link.html")).unwrap().file_type().is_symlink());
    assert!(world.text("pages/real.html").starts_with("<!doctype html>"));
    assert_eq!(fs::read_dir(world.path("pages")).unwrap().count(), 1, "a draft was left");
}

#[test]
fn an_interrupted_session_leaves_an_earlier_page_as_it_was() {
    let world = World::new();
    recorded(&world);
    world.majorfault(&["report", "records.jsonl", "--report", "page.html"]).ends_with(&[0]);
    let before = world.text("page.html");
    let endless = ["compare", "-q", "--size", "64m", "--runs", "100", "--runtime", "50ms", "--dir", ".", "--no-peer"];
    let named = ["--method", "pread", "--records", "second.jsonl", "--report", "page.html"];

    let running = world.start_plain(&[&endless[..], &named].concat());
    world.wait_for("a record", || !world.text_or_empty("second.jsonl").is_empty());
    running.signal("INT");
    let said = running.finish();

    assert_eq!(said.code, Some(130), "{}", said.errors);
    assert!(said.errors.contains("page.html is left as it was"), "{}", said.errors);
    assert_eq!(world.text("page.html"), before);
}

#[test]
fn a_session_without_a_record_leaves_no_file_of_records() {
    let world = World::new();

    world.majorfault(&["compare", "no-such-file", "--records", "records.jsonl"]).fails(2, "no-such-file");

    assert!(!world.path("records.jsonl").exists());
}

#[test]
fn records_are_added_to_records() {
    let world = World::new();
    recorded(&world);
    let before = world.text("records.jsonl");

    recorded(&world);

    let after = world.text("records.jsonl");
    assert!(after.starts_with(&before) && after.len() > before.len());
}

fn at_home(world: &World, home: &str, state: Option<&str>, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_majorfault"));
    command.args(arguments).current_dir(world.path(".")).stdin(Stdio::null()).env_remove("XDG_STATE_HOME");
    command.env("HOME", home).env("TMPDIR", world.path("tmp"));
    command.envs(state.map(|state| ("XDG_STATE_HOME", world.path(state))));
    Said::from(command.output().unwrap())
}

#[test]
fn without_a_home_records_go_to_the_temporary_directory() {
    let world = World::new();
    world.file("data", 1 << 20);
    fs::create_dir(world.path("tmp")).unwrap();
    let arguments: Vec<&str> = short("data", &[]).into_iter().filter(|word| *word != "-q").collect();

    let said = at_home(&world, "/nonexistent", None, &arguments);

    said.ends_with(&[0, 4]);
    assert!(said.errors.contains("records: ") && said.errors.contains("/tmp/majorfault-"), "{}", said.errors);
    assert!(!Path::new("/nonexistent").exists());
}

#[test]
fn a_state_directory_that_cannot_be_written_is_told_at_once() {
    let world = World::new();
    world.file("state", 9);

    let said = at_home(&world, "/", Some("state"), &["compare", "--size", "1g", "--dir", "."]);

    said.fails(2, "could not keep the records");
    assert!(said.errors.contains("name a writable file with --records"), "{}", said.errors);
    assert_eq!(said.output, "");
}

#[test]
fn allowed_overwriting_writes_to_the_file_named_and_to_no_other() {
    let world = World::new();
    world.file("data", 1 << 20);
    world.file("other", 1 << 20);
    let (data, other) = (fs::read(world.path("data")).unwrap(), fs::read(world.path("other")).unwrap());

    let write = ["--rw", "write", "--allow-overwrite", "--records", "records.jsonl"];
    let said = world.majorfault(&short("data", &write));

    is_measured(&said, &world.records());
    let after = fs::read(world.path("data")).unwrap();
    assert!(after != data && after.len() == data.len());
    assert!(fs::read(world.path("other")).unwrap() == other);
}

#[test]
fn a_job_file_writes_where_fio_would() {
    let world = World::new();
    fs::create_dir(world.path("dd")).unwrap();
    world.file("f1.bin", 1 << 20);
    world.file("dd/f1.bin", 1 << 20);
    let before = fs::read(world.path("f1.bin")).unwrap();
    fs::write(
        world.path("job.fio"),
        "[job]\ndirectory=dd\nfilename=f1.bin\nrw=randwrite\nnumber_ios=64\nioengine=psync\n",
    )
    .unwrap();
    let call = ["compare", "job.fio", "--method", "pread", "--runs", "1", "-q", "--records", "records.jsonl"];

    world.majorfault(&call).fails(2, "would destroy the content");
    assert!(fs::read(world.path("dd/f1.bin")).unwrap() == before);
    let said = world.majorfault(&[&call[..], &["--allow-overwrite", "--cache", "asis"]].concat());

    is_measured(&said, &world.records());
    assert!(fs::read(world.path("f1.bin")).unwrap() == before, "the file in the wrong place was written");
    assert!(fs::read(world.path("dd/f1.bin")).unwrap() != before);
    let files = &world.records()[0]["trial"]["data"]["files"];
    assert_eq!(files.as_array().unwrap().len(), 1, "{files}");
    assert_eq!(files[0], world.path("dd/f1.bin").to_str().unwrap());
}

#[test]
fn words_after_a_job_file_win_and_its_name_is_no_file_under_test() {
    let world = World::new();
    world.file("a", 1 << 20);
    world.file("b", 1 << 20);
    fs::write(world.path("job.fio"), "[global]\nbs=8k\n[job]\nfilename=a:b\nrw=read\nruntime=20ms\n").unwrap();

    let options = ["--runs", "1", "--method", "pread", "--no-peer"];
    let both = [&["compare", "--bs", "16k", "job.fio", "-q", "--records", "records.jsonl"], &options[..4]].concat();
    let said = world.majorfault(&both);

    said.ends_with(&[0, 4]);
    let trial = &world.records()[0]["trial"];
    assert_eq!(trial["block_bytes"], 16384);
    let names: Vec<&str> =
        trial["data"]["files"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names, [world.path("a").to_str().unwrap(), world.path("b").to_str().unwrap()]);
}

#[test]
fn files_of_a_user_are_striped_as_asked() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.file(name, 256 << 10);
    }

    // One pass, which no time cuts short.
    let usual = ["compare", "a", "b", "c", "-q", "--runs", "1", "--runtime", "1m", "--method", "pread", "--no-peer"];
    let more = ["--stripe", "64k", "--rw", "read", "--bs", "4k", "--records", "records.jsonl"];
    let said = world.majorfault(&[&usual[..], &more].concat());

    is_measured(&said, &world.records());
    let record = &world.records()[0];
    assert_eq!(record["trial"]["data"]["size_bytes"], 768 << 10);
    assert_eq!(record["trial"]["data"]["stripe_bytes"], 64 << 10);
    assert_eq!(record["trial"]["data"]["files"].as_array().unwrap().len(), 3);
    let visited: u64 =
        record["threads"].as_array().unwrap().iter().map(|thread| thread["accesses"].as_u64().unwrap()).sum();
    assert_eq!(visited, 192, "each block once");
}

#[test]
fn every_list_names_its_kinds_in_both_forms() {
    let world = World::new();
    for (kind, names) in [
        ("methods", &["null", "mmap", "pread", "direct", "uring", "pool", "uffd"][..]),
        ("policies", &["window", "whole", "populate", "strided", "learned", "thread"]),
        ("workloads", &["sequential", "uniform", "zipf", "strided", "chase", "gather", "trace"]),
        ("peers", &["fio"]),
        ("counters", &["minor_faults", "device_read_bytes", "machine_busy_ns"]),
    ] {
        let text = world.majorfault(&["list", kind]);
        let json = world.majorfault(&["list", kind, "--json"]);

        text.ends_with(&[0]);
        let listed: Vec<String> =
            json.json().as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect();
        for name in names {
            assert!(listed.iter().any(|listed| listed == name), "no {name} in {listed:?}");
            assert!(text.output.lines().any(|line| line.trim().starts_with(name)), "no {name} in\n{}", text.output);
        }
    }
    world.majorfault(&["list", "method"]).fails(2, "methods");
}

#[test]
fn a_probe_tells_of_each_facility_whether_it_is_here_and_what_to_do() {
    let world = World::new();

    let text = world.majorfault(&["probe"]);
    let json = world.majorfault(&["probe", "--json"]).json();

    text.ends_with(&[0]);
    let facilities = json["facilities"].as_array().unwrap();
    assert!(facilities.len() > 10, "{facilities:#?}");
    for facility in facilities {
        let name = facility["name"].as_str().unwrap();
        assert!(text.output.contains(name), "no {name} in\n{}", text.output);
        assert!(facility["found"].as_str().is_some_and(|found| !found.is_empty()), "{facility}");
        assert!(facility["here"] == true || facility["remedy"].is_string(), "{facility}");
    }
    assert!(json["machine"]["cpus"].as_u64().unwrap() > 0 && json["rights"].is_object());
}

#[test]
fn without_perf_a_probe_says_so() {
    let world = World::new();

    let json = world.without_perf(&["probe", "--json"]).json();

    let missing = json["facilities"].as_array().unwrap().iter().filter(|facility| facility["here"] == false);
    assert!(missing.filter(|facility| facility["found"].to_string().contains("perf_event_open")).count() > 0, "{json}");
}

#[test]
fn a_table_of_runs_has_one_line_for_each_run_of_a_cell() {
    let world = World::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../records/linux-6.18-standard-1.jsonl.gz");
    let runs = majorfault_lab::session::load(&[source.into()]).unwrap().len();

    for _ in 0..2 {
        world.majorfault(&["reproduce", "S1", "-q", "--from", source, "--csv", "runs.csv"]).ends_with(&[0]);
    }

    let table = world.text("runs.csv");
    let header =
        "experiment,cell,repetition,seed,seconds,accesses,bytes,gb_per_s,valid,visit_seconds,visit_gb_per_s,session";
    assert_eq!(table.lines().next(), Some(header));
    assert_eq!(table.lines().count(), runs + 1);
    for line in table.lines().skip(1) {
        let (before, name) = line.split_once('"').unwrap();
        let (_, after) = name.split_once('"').unwrap();
        assert_eq!(before.matches(',').count() + after.matches(',').count(), 11, "{line}");
    }
}

#[test]
fn fio_is_run_for_a_job_that_names_its_engine() {
    let found = Command::new("fio").arg("--version").output().map(drop).map_err(|error| error.to_string());
    if !facility("fio", found) {
        return;
    }
    let world = World::new();
    world.file("data", 4 << 20);
    fs::write(world.path("job.fio"), "[job]\nfilename=data\nrw=randread\nioengine=psync\nruntime=100ms\n").unwrap();

    let call = ["compare", "job.fio", "--method", "pread", "--runs", "1", "-q", "--records", "records.jsonl"];
    world.majorfault(&call).ends_with(&[0, 4]);

    let records = world.records();
    let peer = records.iter().find(|record| record["trial"]["arm"]["peer"].is_object()).expect("no peer took part");
    assert_eq!((&peer["outcome"], &peer["settings"]["engine"]), (&"done".into(), &"psync".into()));
}

#[test]
fn a_peer_that_never_ends_is_ended_and_told() {
    let world = World::new();
    world.file("data", 4 << 20);
    let script =
        "#!/bin/sh\n[ \"$1\" = --version ] && { echo fio-3.33; exit; }\ntrap '' INT\nwhile :; do sleep 1; done\n";
    fs::create_dir(world.path("bin")).unwrap();
    fs::write(world.path("bin/fio"), script).unwrap();
    assert!(world.shell("chmod +x bin/fio"));
    let search = format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap());
    let call = ["compare", "data", "--rw", "randread", "--method", "pread", "--peer", "fio:engine=psync"];
    let call = [&call[..], &["--runs", "1", "--runtime", "100ms", "-q", "--records", "records.jsonl"]].concat();

    world.majorfault_with(&call, &[("PATH", &search)]).ends_with(&[4]);

    let records = world.records();
    let peer = records.iter().find(|record| record["trial"]["arm"]["peer"].is_object()).expect("no peer took part");
    let why = peer["outcome"]["failed"].as_str().unwrap_or_else(|| panic!("{:?}", peer["outcome"]));
    assert!(why.contains("it went on long after its time was over"), "{why}");
    let method = records.iter().find(|record| record["trial"]["arm"]["method"].is_object()).unwrap();
    assert_eq!(method["outcome"], "done");
}
