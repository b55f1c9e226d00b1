//! The doctor before planted defects: one small program for each, and healthy ones that must raise nothing.
//!
//! The programs are this very test binary, started again with MAJORFAULT_PLANT set.
#![allow(unsafe_code, reason = "the planted programs map, advise and fork as C programs do")]

mod plants;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use majorfault::observe::advice_calls::ADVICE_CALLS;
use majorfault_lab::place::MemoryLimit;
use plants::Plant;
use serde_json::Value;
use world::{Said, World, facility};

/// Not a test: the planted program, when it is started as one.
#[test]
fn plant() {
    plants::grow();
}

/// What the doctor says of a planted program after two seconds.
fn doctor(world: &World, plant: &Plant, more: &[&str]) -> Said {
    doctor_for("2s", world, plant, more)
}

fn doctor_for(length: &str, world: &World, plant: &Plant, more: &[&str]) -> Said {
    let pid = plant.pid().to_string();
    let mut arguments = vec!["doctor", pid.as_str(), "--for", length, "--json"];
    arguments.extend(more);
    world.majorfault(&arguments)
}

/// What the doctor says where the rule finds something. Beside busy neighbours a program does too little in two seconds to
/// be judged; then it is watched for longer.
fn found(rule: &str, world: &World, plant: &Plant, more: &[&str]) -> Said {
    let said = doctor(world, plant, more);
    let is_found = rules(&said).iter().any(|found| found == rule);
    if is_found { said } else { doctor_for("20s", world, plant, more) }
}

fn rules(said: &Said) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    said.json()["findings"].as_array().unwrap().iter().map(|finding| text(&finding["rule"])).collect()
}

fn finds(rule: &str, name: &str) {
    let world = World::new();
    let plant = Plant::start(&world, name);

    let said = found(rule, &world, &plant, &["--deep"]);

    assert!(rules(&said).iter().any(|found| found == rule), "{rule} is not found:\n{:#}", said.json());
    assert!(plant.runs(), "the program was harmed");
}

/// The same where the program runs below a memory limit.
fn finds_below(rule: &str, name: &str, limit_bytes: u64) {
    let limit = match MemoryLimit::create(majorfault::Bytes(limit_bytes)) {
        Ok(limit) => limit,
        Err(missing) => {
            facility("a memory limit", Err(missing.to_string()));
            return;
        }
    };
    let world = World::new();
    let plant = Plant::start_in(&world, name, |pid| limit.add(pid).unwrap());

    let said = found(rule, &world, &plant, &["--deep"]);

    assert!(rules(&said).iter().any(|found| found == rule), "{rule} is not found:\n{:#}", said.json());
    assert!(plant.runs(), "the program was harmed");
}

/// Raises nothing, not even a note, though everything was looked at (advice call by call, where that is possible); `is_seen`
/// says by the report that what the program does was among it. Where faults cannot be seen, to raise nothing would be no news.
fn raises_nothing(name: &str, is_seen: fn(&Value) -> bool) {
    if !samples() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, name);

    let advice: &[&str] = if ADVICE_CALLS.met().is_ok() { &["--advice"] } else { &[] };
    let said = doctor(&world, &plant, &[&["--deep", "--fail-on", "note"], advice].concat());

    let report = said.json();
    assert_eq!(report["advice_calls"].is_null(), advice.is_empty(), "{report:#}");
    assert!(is_complete(&report) && is_seen(&report), "not all was seen: {report:#}");
    assert_eq!(rules(&said), [] as [String; 0], "{report:#}");
    assert_eq!(said.code, Some(0));
    assert!(plant.runs(), "the program was harmed");
}

/// Whether the report is of a whole watch with faults, calls, advice and smaps, and nothing of it lost.
fn is_complete(report: &Value) -> bool {
    let none_lost = |of: &str| report[of]["lost"] == 0 && report[of]["unfollowed_threads"] == 0;
    let is_told = |key: &str| !report[key].is_null();
    let lacks_smaps =
        report["missing"].as_array().unwrap().iter().any(|gap| gap["what"] == "advice in force and page sizes");
    none_lost("faults")
        && (report["advice_calls"].is_null() || none_lost("advice_calls"))
        && is_told("calls")
        && !lacks_smaps
        && report["watched_ns"].as_u64() >= Some(1_900_000_000)
        && report["target"]["ended"] == false
}

/// The planted program's file.
fn data(report: &Value) -> Option<&Value> {
    report["files"].as_array()?.iter().find(|file| file["path"].as_str().is_some_and(|path| path.ends_with("/data")))
}

fn samples() -> bool {
    facility("fault samples", majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

#[test]
fn threads_that_wait_in_faults_are_found_with_their_stride() {
    if !samples() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "strided");

    let said = found("fault_stall", &world, &plant, &[]);

    let findings = said.json()["findings"].clone();
    let stall = findings.as_array().unwrap().iter().find(|finding| finding["rule"] == "fault_stall");
    let stall = stall.unwrap_or_else(|| panic!("not found:\n{:#}", said.json()));
    assert!(stall["remedy"].as_str().unwrap().contains("i * 1048576"), "{stall:#}");
    let file = &said.json()["files"][0];
    assert_eq!(file["order"]["pattern"]["stride_bytes"], 1 << 20, "{file:#}");
}

#[test]
fn random_faults_that_read_whole_windows_are_found() {
    if samples() {
        finds("read_ahead_flood", "flood");
    }
}

#[test]
fn a_scan_under_random_advice_is_found() {
    if samples() {
        finds("random_scan", "random_scan");
    }
}

#[test]
fn a_scan_under_random_advice_that_is_seen_given_needs_no_look_at_smaps() {
    if !samples() || !advice_calls() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "random_scan");

    let said = found("random_scan", &world, &plant, &["--advice"]);

    assert!(rules(&said).iter().any(|found| found == "random_scan"), "not found:\n{:#}", said.json());
}

#[test]
fn populating_after_random_advice_is_found() {
    if samples() {
        finds("populate_after_random", "populate");
    }
}

fn advice_calls() -> bool {
    facility("advice calls", ADVICE_CALLS.met().map_err(|missing| missing.to_string()))
}

#[test]
fn advice_for_more_than_the_kernel_reads_is_found_with_the_bytes_it_reads() {
    if !advice_calls() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "will_need");

    let said = doctor(&world, &plant, &["--advice"]);

    let asked = said.json()["advice_calls"]["will_need"][0].clone();
    assert_eq!(asked["longest_bytes"], 64 << 20, "{:#}", said.json());
    let cap = asked["cap_bytes"].as_u64().ok_or_else(|| "the test's directory is on no block device".to_owned());
    if facility("a cap below 64 MiB", cap.and_then(|cap| if cap < 64 << 20 { Ok(()) } else { Err(cap.to_string()) })) {
        assert!(rules(&said).iter().any(|found| found == "will_need_cap"), "not found:\n{:#}", said.json());
    }
    assert!(plant.runs(), "the program was harmed");
}

#[test]
fn advice_in_small_pieces_raises_nothing() {
    if !advice_calls() {
        return;
    }
    raises_nothing("healthy_will_need", |report| {
        report["advice_calls"]["calls"]["MADV_WILLNEED"].as_u64() >= Some(512)
    });
}

#[test]
fn churn_of_mappings_is_found() {
    if samples() {
        finds("map_churn", "churn");
    }
}

#[test]
fn forks_with_much_memory_are_found() {
    if samples() {
        finds("fork_large", "fork");
    }
}

#[test]
fn a_skewed_mapping_that_wants_huge_pages_is_found() {
    finds("misaligned_huge", "skewed");
}

#[test]
fn small_pages_for_large_memory_are_found() {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let is_usual = if setting.contains("[madvise]") { Ok(()) } else { Err(format!("the setting is {setting}")) };
    if facility("huge pages by advice", is_usual) {
        finds("huge_off", "small_pages");
    }
}

#[test]
fn large_page_tables_are_found() {
    finds("page_tables", "sparse");
}

#[test]
fn many_mappings_are_found() {
    finds("map_count", "many_mappings");
}

#[test]
fn a_file_that_shrinks_is_found() {
    finds("truncated", "truncated");
}

#[test]
fn reading_the_cache_again_and_again_is_found() {
    finds("double_buffering", "double_buffering");
}

#[test]
fn misaligned_direct_reads_are_found() {
    finds("direct_misaligned", "misaligned_direct");
}

#[test]
fn a_working_set_beyond_the_limit_is_found() {
    finds_below("thrash", "scan_again", 64 << 20);
}

#[test]
fn random_advice_under_pressure_is_found() {
    if samples() {
        finds_below("random_recency", "hot_under_random", 64 << 20);
    }
}

#[test]
fn a_limit_full_of_anonymous_memory_is_found() {
    finds_below("headroom", "full", 64 << 20);
}

#[test]
fn lookups_in_a_cached_file_raise_nothing() {
    raises_nothing("healthy_lookups", |report| data(report).is_some_and(|file| file["cached_bytes"] == 64 << 20));
}

#[test]
fn a_scan_of_a_cached_file_raises_nothing() {
    raises_nothing("healthy_scan", |report| data(report).is_some_and(|file| file["faults"].as_u64() >= Some(100)));
}

#[test]
fn work_on_the_heap_raises_nothing() {
    raises_nothing("healthy_heap", |report| report["faults"]["anonymous"].as_u64() > Some(0));
}

#[test]
fn a_program_that_sleeps_raises_nothing() {
    raises_nothing("healthy_sleep", |report| report["process"]["mappings"].as_u64() > Some(0));
}

#[test]
fn a_sparse_map_longer_than_its_file_raises_nothing() {
    raises_nothing("healthy_reserve", |report| data(report).is_some_and(|file| file["mapped_bytes"] == 1 << 30));
}

#[test]
fn the_text_fits_a_terminal_and_names_the_remedy() {
    let world = World::new();
    let plant = Plant::start(&world, "many_mappings");

    let said = world.majorfault(&["doctor", &plant.pid().to_string(), "--for", "500ms"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(said.output.contains("sysctl -w vm.max_map_count="), "{}", said.output);
    assert!(said.output.lines().all(|line| line.chars().count() <= 100), "{}", said.output);
    assert!(said.output.lines().count() <= 40, "{}", said.output);
}

#[test]
fn fail_on_is_exit_code_1_from_its_severity_on() {
    let world = World::new();
    let plant = Plant::start(&world, "many_mappings");
    let pid = plant.pid().to_string();
    let code = |least| world.majorfault(&["doctor", &pid, "--for", "200ms", "--fail-on", least]).code;

    assert_eq!((code("warning"), code("critical")), (Some(1), Some(0)));
}

#[test]
fn who_cannot_be_watched_is_told_in_words() {
    let world = World::new();
    let says = |pid: &str, sentence: &str| world.majorfault(&["doctor", pid, "--for", "100ms"]).fails(2, sentence);

    says("4194303", "there is no process 4194303");
    says("2", "kernel thread");
    world.majorfault(&["doctor"]).fails(2, "required");
    world.majorfault(&["doctor", "--", "no-such-program"]).fails(2, "could not start the program");
    world.majorfault(&["doctor", "1", "--for", "0"]).fails(2, "watch for 1s or more");
}

#[test]
fn a_process_of_another_user_needs_rights() {
    let world = World::new();
    let Some(said) = world.as_nobody(&["doctor", &std::process::id().to_string(), "--for", "100ms"]) else { return };

    said.fails(
        3,
        "it belongs to user 0, and majorfault runs as user 65534; run as its user, or as root: sudo majorfault",
    );
}

#[test]
fn without_perf_the_cache_is_looked_at_and_the_gap_is_told() {
    let world = World::new();
    let plant = Plant::start(&world, "cold_scan");

    let said = world.without_perf(&["doctor", &plant.pid().to_string(), "--for", "2s", "--json"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    let json = said.json();
    assert_eq!(json["faults"], Value::Null);
    assert!(json["missing"][0]["reason"].as_str().unwrap().contains("perf_event_open(2) was refused"), "{json:#}");
    let file = json["files"].as_array().unwrap().iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
    assert!(file.unwrap()["came_bytes"].as_u64().unwrap() > 8 << 20, "{json:#}");
}

#[test]
fn a_process_that_ends_while_it_is_watched_is_told_with_what_was_seen() {
    let world = World::new();
    let mut child = std::process::Command::new("sleep").arg("0.5").spawn().unwrap();
    let running = world.start_plain(&["doctor", &child.id().to_string(), "--for", "20s"]);
    child.wait().unwrap();

    let said = running.finish();

    said.fails(2, "of watching; the findings cover that time");
    assert!(said.output.contains("sleep ("), "{}", said.output);
}

#[test]
fn a_command_is_watched_to_its_end() {
    let world = World::new();

    let said = world.majorfault(&["doctor", "--json", "--for", "20s", "--", "sh", "-c", "sleep 0.3; echo hello"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert_eq!(said.json()["target"]["ended"], true);
    assert!(said.errors.contains("hello"), "{}", said.errors);
}

#[test]
fn an_ordinary_user_sees_the_faults_of_a_program_of_his_own() {
    let world = World::new();
    world.file("data", 8 << 20);
    let script = "import mmap,time\nf=open('data','rb');m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
                  while True:\n  s=sum(m[i] for i in range(0,len(m),65536)); m.close(); \
                  m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); time.sleep(.001)\n";
    std::fs::write(world.path("scan.py"), script).unwrap();
    let found = if world.shell("python3 -c 1") { Ok(()) } else { Err("no python3".to_owned()) };
    if !facility("python3", found) {
        return;
    }
    let Some(said) = world.as_nobody(&[
        "doctor",
        "--for",
        "1500ms",
        "--json",
        "--",
        "sh",
        "-c",
        "exec python3 scan.py >/dev/null 2>&1",
    ]) else {
        return;
    };
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let json = said.json();
    let _ = std::process::Command::new("kill").arg(json["target"]["pid"].to_string()).status();

    if paranoid.trim().parse::<i32>().is_ok_and(|level| level > 2) {
        assert!(json["missing"][0]["remedy"].as_str().unwrap().contains("kernel.perf_event_paranoid=2"), "{json:#}");
        return;
    }
    let file = json["files"].as_array().unwrap().iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
    assert_eq!(file.unwrap()["order"]["pattern"]["name"], "sequential", "{json:#}");
}

/// A program that maps `data` as it is after this command, in a mount namespace of its own; none (listed as skipped) where there
/// can be none.
fn in_a_namespace(world: &World, mounts: &str) -> Option<std::process::Child> {
    let script = "import mmap,time\nf=open('data','rb');m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
                  s=sum(m[i] for i in range(0,len(m),4096));open('ready','w').close()\nwhile True: time.sleep(1)\n";
    std::fs::write(world.path("map.py"), script).unwrap();
    let may = world.shell(&format!("unshare -m sh -ec '{mounts}; python3 -c 1' 2>/dev/null"));
    if !facility("mount namespaces", if may { Ok(()) } else { Err("unshare -m was refused".to_owned()) }) {
        return None;
    }
    let shell = format!("{mounts}; exec python3 map.py");
    let mut command = std::process::Command::new("unshare");
    let child = command.args(["-m", "sh", "-ec", &shell]).current_dir(world.path(".")).spawn().unwrap();
    world.wait_for("the program", || world.path("ready").exists());
    Some(child)
}

/// The file `data` as the doctor reports it.
fn mapped(world: &World, mut child: std::process::Child) -> Value {
    let report = world.majorfault(&["doctor", &child.id().to_string(), "--for", "300ms", "--json"]).json();
    child.kill().unwrap();
    child.wait().unwrap();
    data(&report).unwrap_or_else(|| panic!("no file: {report:#}")).clone()
}

#[test]
fn a_file_of_another_mount_namespace_is_not_taken_for_ours() {
    let world = World::new();
    world.file("data", 8 << 20);
    world.file("other", 4 << 20);
    let Some(child) = in_a_namespace(&world, "mount --bind other data") else { return };
    let root = format!("/proc/{}/root/", child.id());

    let file = mapped(&world, child);

    assert_eq!(file["size_bytes"], 4 << 20, "{file:#}");
    assert!(file["reached"].as_str().is_some_and(|path| path.starts_with(&root)), "{file:#}");
}

#[test]
fn what_is_cached_of_a_file_on_overlayfs_is_counted() {
    let world = World::new();
    ["low", "up", "work", "merged"].iter().for_each(|dir| std::fs::create_dir(world.path(dir)).unwrap());
    world.file("low/data", 8 << 20);
    let mounts = "mount -t overlay overlay -o lowerdir=low,upperdir=up,workdir=work merged; ln -sf merged/data data";
    let Some(child) = in_a_namespace(&world, mounts) else { return };

    let file = mapped(&world, child);

    assert_eq!((&file["filesystem"], &file["cached_bytes"]), (&"overlay".into(), &(8 << 20).into()), "{file:#}");
}

#[test]
fn two_doctors_at_once_and_an_interrupted_one_leave_the_program_running() {
    let world = World::new();
    let plant = Plant::start(&world, "healthy_lookups");
    let pid = plant.pid().to_string();

    let first = world.start_plain(&["doctor", &pid, "--for", "60s", "--json"]);
    let second = world.majorfault(&["doctor", &pid, "--for", "1s", "--json"]);
    first.signal("INT");
    let first = first.finish();

    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}{}", first.errors, second.errors);
    assert!(first.json()["watched_ns"].as_u64().unwrap() < 50_000_000_000);
    assert!(plant.runs());
}
