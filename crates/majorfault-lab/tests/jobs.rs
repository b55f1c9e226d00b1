//! fio's job files and mixed runs through the program: what each job moved, committed and waited for, on every method.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use serde_json::Value;
use std::fs;
use std::process::Command;
use world::{World, facility};

/// Methods that write; a facility that one lacks makes its record `missing`.
const WRITERS: [&str; 5] = ["mmap", "pread", "direct", "uring:direct=off", "pool"];

fn count(record: &Value, job: usize, path: [&str; 2]) -> u64 {
    record["jobs"][job][path[0]][path[1]].as_u64().unwrap()
}

/// The last record of each arm in each stage: a run that others disturbed is made again. What could not run here is left out.
fn records(world: &World, words: &[&str]) -> Vec<Value> {
    let usual = ["compare", "-q", "--runs", "1", "--records", "records.jsonl", "--dir", "."];
    world.majorfault(&[&usual[..], words].concat()).ends_with(&[0, 4]);
    let mut last: Vec<Value> = Vec::new();
    for record in world.records().into_iter().filter(|record| record["outcome"].get("missing").is_none()) {
        let is_same = |other: &Value| ["arm", "stage"].iter().all(|key| other["trial"][key] == record["trial"][key]);
        match last.iter_mut().find(|other| is_same(other)) {
            Some(place) => *place = record,
            None => last.push(record),
        }
    }
    last
}

fn methods(names: &[&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["--method", name]).collect()
}

#[test]
fn reads_and_writes_are_made_in_one_run_on_every_method_that_writes_with_their_commits() {
    let world = World::new();
    let mixed =
        ["--rw", "randrw", "--rwmixread", "25", "--fdatasync", "8", "--size", "4m", "--number-ios", "400", "--no-peer"];

    let records = records(&world, &[&mixed[..], &methods(&WRITERS)].concat());

    assert!(records.len() >= 3, "{}", records.len());
    for record in &records {
        let (reads, writes) = (count(record, 0, ["read", "accesses"]), count(record, 0, ["write", "accesses"]));
        let arm = &record["trial"]["arm"];
        assert_eq!((&record["outcome"], &record["answer"]), (&"done".into(), &"checked".into()), "{arm}");
        assert_eq!((reads + writes, count(record, 0, ["commits", "accesses"])), (400, writes / 8), "{arm}");
        assert!((60..140).contains(&reads), "{arm}: {reads}");
        assert_eq!(count(record, 0, ["write", "bytes"]), writes * 4096, "{arm}");
    }
}

#[test]
fn a_job_files_stages_run_one_after_the_other_and_each_job_does_what_it_says() {
    let world = World::new();
    fs::write(
        world.path("job.fio"),
        "[global]\nsize=64k\nfilename=f\n[fill]\nrw=write\nfsync=4\n[again]\nstonewall\nrw=randread\nnumjobs=2\nloops=3\n[back]\nrw=read:-8k\nbs=8k\n",
    )
    .unwrap();

    let records = records(&world, &["job.fio", "--method", "mmap", "--method", "pread", "--no-peer"]);

    let stages: Vec<&str> = records.iter().map(|record| record["trial"]["stage"].as_str().unwrap()).collect();
    let (first, second) = ("job.fio, stage 1 of 2", "job.fio, stage 2 of 2");
    assert_eq!(stages, [first, first, second, second]);
    for record in &records[..2] {
        assert_eq!((count(record, 0, ["write", "accesses"]), count(record, 0, ["commits", "accesses"])), (16, 4));
        assert_eq!(record["answer"], "checked", "a sample was read again");
    }
    for record in &records[2..] {
        let names: Vec<&str> =
            record["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["again", "again", "back"]);
        let reads = [0, 1, 2].map(|job| count(record, job, ["read", "accesses"]));
        assert_eq!((reads, &record["answer"]), ([48, 48, 8], &"checked".into()));
    }
    assert!(!world.path("f").exists(), "what we made has no name");
}

#[test]
fn rates_thoughts_and_delays_hold_a_job_back_and_a_ramp_is_not_counted() {
    let world = World::new();
    let job = |lines: &str| {
        fs::write(world.path("job.fio"), format!("[job]\nsize=256k\nfilename=f\nnumber_ios=20\n{lines}\n")).unwrap();
        let _ = fs::remove_file(world.path("records.jsonl"));
        records(&world, &["job.fio", "--method", "pread", "--no-peer"]).remove(0)
    };
    let lasted = |record: &Value| record["jobs"][0]["wall_ns"].as_u64().unwrap();

    // The first access is due at once, so that 19 gaps lie between 20 accesses.
    assert!(lasted(&job("rate_iops=200")) >= 19 * 5_000_000);
    assert!(lasted(&job("rate=400k")) >= 19 * 10_000_000);
    assert!(lasted(&job("thinktime=10ms\nthinktime_blocks=5")) >= 30_000_000);
    let delayed = job("startdelay=100ms");
    assert!(
        delayed["phases"].as_array().unwrap().iter().any(|phase| phase["wall_ns"].as_u64().unwrap() >= 100_000_000)
    );
    let ramped = job("ramp_time=50ms\ntime_based\nruntime=1s");
    assert_eq!((count(&ramped, 0, ["read", "accesses"]), &ramped["phases"][1]["name"]), (20, &"warm".into()));
    assert!(ramped["phases"][1]["wall_ns"].as_u64().unwrap() >= 50_000_000);
}

#[test]
fn shares_of_a_flow_are_kept() {
    let world = World::new();
    let text = "[global]\nsize=4m\nfilename=f\nrw=randread\n[one]\nflow=1\nexitall\nexit_what=stonewall\nnumber_ios=100\n[eight]\nflow=8\n";
    fs::write(world.path("job.fio"), text).unwrap();

    let record = records(&world, &["job.fio", "--method", "pread", "--no-peer"]).remove(0);

    let (one, eight) = (count(&record, 0, ["read", "accesses"]), count(&record, 1, ["read", "accesses"]));
    assert_eq!(one, 100);
    // The job that ends gives its share back, so that the other may finish.
    assert!((700..=1024).contains(&eight), "{eight}");
}

#[test]
fn a_users_file_is_written_with_consent_only() {
    let world = World::new();
    world.file("mine", 1 << 20);
    let before = fs::read(world.path("mine")).unwrap();
    fs::write(world.path("job.fio"), "[look]\nfilename=mine\nrw=read\n[change]\nstonewall\nfilename=mine\nrw=randrw\n")
        .unwrap();
    let call =
        ["compare", "job.fio", "-q", "--runs", "1", "--records", "records.jsonl", "--method", "pread", "--no-peer"];

    world.majorfault(&call).fails(2, "the job change would destroy the content of mine");
    assert!(fs::read(world.path("mine")).unwrap() == before);
    world.majorfault(&[&call[..], &["--section", "look"]].concat()).ends_with(&[0, 4]);
    assert!(fs::read(world.path("mine")).unwrap() == before);
    world.majorfault(&[&call[..], &["--allow-overwrite"]].concat()).ends_with(&[0, 4]);

    assert!(fs::read(world.path("mine")).unwrap() != before);
    assert_eq!(world.records()[0]["answer"].as_object().map(|answer| answer.contains_key("digests")), Some(true));
}

#[test]
fn what_cannot_be_done_names_option_section_and_line_before_anything_is_made() {
    let world = World::new();
    fs::write(world.path("job.fio"), "[global]\nsize=64k\n[slow]\nlatency_target=5ms\n").unwrap();

    world.majorfault(&["compare", "job.fio"]).fails(2, "job.fio: line 4 [slow]: latency_target=5ms: not done here");
    world.majorfault(&["compare", "job.fio", "--section", "fast"]).fails(2, "there is no such section");
    fs::write(world.path("job.fio"), "[a]\nfilename=nowhere\n").unwrap();
    world.majorfault(&["compare", "job.fio"]).fails(2, "nowhere is not there, and no size says how long to make it");
    world.majorfault(&["compare", "job.fio", "--workload", "zipf"]).fails(2, "--workload is not for jobs");
    fs::write(world.path("job.fio"), "[a]\nsize=64k\ndirectory=/no/such\n").unwrap();
    world.majorfault(&["compare", "job.fio"]).fails(2, "there is no directory /no/such; name one with --dir");
    fs::write(world.path("job.fio"), "[a]\nsize=64k\nfilename=/dev/no-such\n").unwrap();
    world.majorfault(&["compare", "job.fio"]).fails(2, "there is no device /dev/no-such");
}

/// Pages that came from the device during the accesses, for each arm.
fn brought(records: &[Value]) -> Vec<(String, u64)> {
    let visit = |record: &Value| {
        let phases = record["phases"].as_array().unwrap();
        let counters = &phases.iter().find(|phase| phase["name"] == "visit").unwrap()["counters"];
        counters["process_read_bytes"].as_u64().unwrap() / 4096
    };
    records.iter().map(|record| (record["trial"]["arm"].to_string(), visit(record))).collect()
}

#[test]
fn a_file_leaves_the_page_cache_before_each_pass_unless_the_job_says_otherwise() {
    let world = World::new();
    let text = "[j]\nrw=randread\nsize=2m\nloops=3\nfadvise_hint=random\n";
    fs::write(world.path("job.fio"), text).unwrap();
    let arms = methods(&["mmap:advice=random", "pread:advice=random", "uring:direct=off"]);
    let peer = ["--peer", "fio:engine=psync,direct=off,hint=random"];

    let dropped = records(&world, &[&["job.fio"][..], &arms, &peer].concat());
    fs::remove_file(world.path("records.jsonl")).unwrap();
    let kept =
        records(&world, &[&["job.fio", "--no-peer", "--set", "invalidate=0", "--cache", "cold"][..], &arms].concat());

    for (arm, pages) in brought(&dropped) {
        assert!((3 * 512..4 * 512).contains(&pages), "{arm}: {pages} pages, three passes over 512");
    }
    for (arm, pages) in brought(&kept) {
        assert!(pages < 2 * 512, "{arm}: {pages} pages, and only the first pass is to wait");
    }
}

#[test]
fn a_users_file_that_is_shorter_than_asked_for_is_told_and_not_made_longer() {
    let world = World::new();
    fs::write(world.path("own"), vec![7; 64 << 10]).unwrap();
    let text = |size: &str| format!("[j]\nfilename=own\nrw=read\nsize={size}\n");
    let run = |size: &str| {
        fs::write(world.path("job.fio"), text(size)).unwrap();
        world.majorfault(&[
            "compare",
            "job.fio",
            "--runs",
            "1",
            "--method",
            "pread",
            "--no-peer",
            "--records",
            "r.jsonl",
        ])
    };

    let (short, enough) = (run("128k"), run("64k"));

    let told = "the job j asks for 128k of own, which holds 64k: it runs on those";
    assert!(short.errors.contains(told), "{}", short.errors);
    assert!(!enough.errors.contains("which holds"), "{}", enough.errors);
    assert_eq!(fs::metadata(world.path("own")).unwrap().len(), 64 << 10);
}

#[test]
fn fio_takes_part_in_every_job_and_what_it_wrote_is_made_again() {
    let found = Command::new("fio").arg("--version").output().map(drop).map_err(|error| error.to_string());
    if !facility("fio", found) {
        return;
    }
    let world = World::new();
    let text = "[global]\nsize=256k\nfilename=f\n[w]\nrw=write\nfsync=8\n[r]\nstonewall\nrw=randrw\nrwmixread=50\nioengine=libaio\niodepth=4\n";
    fs::write(world.path("job.fio"), text).unwrap();

    let records = records(&world, &["job.fio", "--runs", "2", "--method", "pread"]);

    let is_peer = |record: &&Value| record["trial"]["arm"]["peer"].is_object();
    for record in &records {
        assert_eq!(record["outcome"], "done", "{}", record["trial"]["arm"]);
    }
    for record in records.iter().filter(is_peer) {
        let moved = count(record, 0, ["read", "bytes"]) + count(record, 0, ["write", "bytes"]);
        assert_eq!(moved, 256 << 10, "{}", record["trial"]["stage"]);
    }
    // Our method ran after fio, which writes bytes of its own, and found what it expects.
    for record in records.iter().filter(|record| !is_peer(record)) {
        assert_eq!(record["answer"], "checked", "{}", record["trial"]["stage"]);
    }
    let engines: Vec<&str> =
        records.iter().filter(is_peer).map(|record| record["settings"]["engine"].as_str().unwrap()).collect();
    assert_eq!(engines, ["psync", "libaio"]);
}

/// The shape that fio's tools/fio_jsonplus_clat2csv reads: three directions, each with three latencies, `bins` where something was timed.
#[test]
fn results_in_fios_shape_have_every_direction_and_its_bins() {
    let world = World::new();
    let mixed = ["--rw", "randrw", "--size", "1m", "--number-ios", "200", "--method", "pread", "--no-peer"];
    records(&world, &mixed);

    let document = world.majorfault(&["report", "records.jsonl", "--output-format", "fio-json"]).json();

    let job = &document["jobs"][0];
    let timed = |way: &str| -> u64 {
        job[way]["clat_ns"]["bins"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
    };
    for way in ["read", "write", "trim"] {
        for latency in ["slat_ns", "clat_ns", "lat_ns"] {
            assert!(job[way][latency]["N"].is_u64(), "{way} {latency}");
        }
    }
    assert_eq!(timed("read") + timed("write"), 200);
    assert!(job["trim"]["clat_ns"].get("bins").is_none(), "an empty one makes the tool fail");
    assert_eq!((&job["job options"]["rw"], &job["jobname"]), (&"randrw".into(), &"compare (pread)".into()));
}
