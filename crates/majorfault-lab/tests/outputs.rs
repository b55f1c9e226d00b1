//! What the doctor gives besides its screen: a live screen, metrics by HTTP and in a file, and a page.
#![allow(unsafe_code, reason = "the planted programs map, advise and fork as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod plants;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use plants::Plant;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use world::{Running, World, facility};

/// Not a test: the planted program, when it is started as one.
#[test]
fn plant() {
    plants::grow();
}

fn samples() -> bool {
    facility("fault samples", majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string()))
}

/// The body that the endpoint of a running doctor answers with.
fn scraped(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    body.to_owned()
}

/// The address that a doctor says it serves at.
fn address_of(running: &mut Running) -> String {
    let line = running.next_error();
    let address = line.strip_prefix("majorfault: metrics at http://").and_then(|rest| rest.split('/').next());
    address.unwrap_or_else(|| panic!("no address: {line}")).to_owned()
}

/// Names and values of all samples, each line judged by the grammar of OpenMetrics 1.0.0.
fn parsed(text: &str) -> Vec<(String, f64)> {
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
    let (mut family, mut samples, mut seen) = ((String::new(), String::new()), Vec::new(), HashSet::new());
    for line in body.lines() {
        if let Some(about) = line.strip_prefix("# ") {
            let [word, name, rest] = about.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
            match word {
                "HELP" => assert!(seen.insert(name.to_owned()), "twice: {line}"),
                "TYPE" => family = (name.to_owned(), rest.to_owned()),
                "UNIT" => assert!(name == family.0 && name.ends_with(&format!("_{rest}")), "{line}"),
                _ => panic!("neither HELP, TYPE nor UNIT: {line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap();
        let end = if family.1 == "counter" { "_total" } else { "" };
        assert_eq!(name, format!("{}{end}", family.0), "{line}");
        assert!(labels.starts_with("pid=\"") && labels.ends_with("\"}"), "{line}");
        assert!(seen.insert(series.to_owned()), "twice: {line}");
        samples.push((series.to_owned(), value.parse().unwrap()));
    }
    samples
}

fn value(samples: &[(String, f64)], name: &str, label: &str) -> f64 {
    value_if_any(samples, name, label).unwrap_or_else(|| panic!("no {name} with {label}: {samples:#?}"))
}

fn value_if_any(samples: &[(String, f64)], name: &str, label: &str) -> Option<f64> {
    let found = samples.iter().find(|(series, _)| series.starts_with(&format!("{name}{{")) && series.contains(label));
    found.map(|(_, value)| *value)
}

#[test]
fn the_endpoint_answers_while_the_watch_goes_on_and_its_counters_grow() {
    if !samples() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "healthy_scan");
    let mut running = world.start_plain(&["doctor", &plant.pid().to_string(), "--for", "200ms", "--openmetrics", "0"]);
    let address = address_of(&mut running);
    let rounds = |text: &str| value(&parsed(text), "majorfault_watched_seconds_total", "") / 0.2;

    world.wait_for("a round", || rounds(&scraped(&address)) >= 0.9);
    world.wait_for("two more", || rounds(&scraped(&address)) >= 2.9);
    // The scan rests between its passes and is seen in windows: a round of 200 ms may have seen none of it.
    let faults = |samples: &[_]| value_if_any(samples, "majorfault_file_faults_total", "/data\"").unwrap_or(0.0);
    let mut counts = vec![0.0];
    world.wait_for("a counter that grows, twice", || {
        let count = faults(&parsed(&scraped(&address)));
        assert!(count >= counts[counts.len() - 1], "a counter went from {counts:?} to {count}");
        counts.extend(Some(count).filter(|count| *count > counts[counts.len() - 1]));
        counts.len() > 2
    });
    let second = parsed(&scraped(&address));
    running.signal("INT");
    let said = running.finish();

    assert!(address.starts_with("127.0.0.1:"), "{address}");
    assert_eq!(value(&second, "majorfault_file_size_bytes", "/data\""), f64::from(64 << 20));
    assert_eq!(value(&second, "majorfault_process_running", ""), 1.0);
    assert!(value(&second, "majorfault_process_resident_bytes", "") > 0.0);
    assert_eq!((said.code, said.output.as_str()), (Some(0), ""), "{}", said.errors);
    assert!(plant.runs());
}

#[test]
fn the_textfile_is_whole_at_any_time_and_replaced_each_round() {
    let world = World::new();
    let plant = Plant::start(&world, "many_mappings");
    let file = world.path("metrics.prom");
    let running =
        world.start_plain(&["doctor", &plant.pid().to_string(), "--for", "100ms", "--textfile", "metrics.prom"]);
    let (mut texts, mut inodes, mut last) = (HashSet::new(), HashSet::new(), String::new());

    world.wait_for("the first text", || file.exists());
    while texts.len() < 4 {
        inodes.insert(file.metadata().unwrap().ino());
        last = world.text("metrics.prom");
        parsed(&last);
        texts.insert(last.clone());
    }
    running.signal("INT");
    let said = running.finish();

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert_eq!(value(&parsed(&last), "majorfault_finding", "rule=\"map_count\""), 1.0);
    assert!(inodes.len() > 1, "the file was written in place");
    assert!(!world.path("metrics.prom.part").exists());
}

#[test]
fn a_process_that_ends_leaves_its_counters_and_no_levels() {
    let world = World::new();

    let said =
        world.majorfault(&["doctor", "--for", "100ms", "--textfile", "metrics.prom", "--", "sh", "-c", "sleep 0.5"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(said.errors.contains("has ended; it was watched for"), "{}", said.errors);
    let samples = parsed(&world.text("metrics.prom"));
    assert_eq!(value(&samples, "majorfault_process_running", "process="), 0.0);
    assert!(value(&samples, "majorfault_watched_seconds_total", "") > 0.0);
    assert!(!world.text("metrics.prom").contains("resident_bytes{"));
}

#[test]
fn the_live_view_prints_round_after_round_where_there_is_no_terminal() {
    let world = World::new();

    let said = world.majorfault(&["doctor", "--for", "300ms", "--watch", "--", "sh", "-c", "sleep 0.8"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    let rounds: Vec<&str> = said.output.split("\n\nsh (").collect();
    assert!(said.output.starts_with("\nsh (") && rounds.len() >= 2, "{}", said.output);
    assert!(!said.output.contains('\x1b'), "{}", said.output);
    assert!(said.errors.contains("has ended; it was watched for"), "{}", said.errors);
}

#[test]
fn the_live_view_ends_in_peace_by_sigint() {
    let world = World::new();
    let plant = Plant::start(&world, "healthy_sleep");
    let mut running = world.start_plain(&["doctor", &plant.pid().to_string(), "--for", "100ms", "--watch"]);

    while running.next_line().is_empty() {}
    running.signal("INT");
    let said = running.finish();

    assert_eq!((said.code, said.errors.as_str()), (Some(0), ""), "{}", said.output);
    assert!(plant.runs());
}

#[test]
fn the_live_view_on_a_terminal_is_drawn_over_the_last() {
    let found = if World::new().shell("script --version >/dev/null") { Ok(()) } else { Err("no script".to_owned()) };
    if !facility("a terminal", found) {
        return;
    }
    let world = World::new();
    let majorfault = env!("CARGO_BIN_EXE_majorfault");
    let watch = format!("env TERM=xterm {majorfault} doctor --for 200ms --watch -- sh -c 'sleep 0.7'");

    assert!(world.shell(&format!("script -qefc \"{watch}\" typescript >/dev/null")));

    let seen = world.text("typescript");
    assert!(seen.matches("\x1b[H\x1b[2J").count() >= 2, "{seen}");
}

#[test]
fn the_report_shows_the_faults_of_a_planted_file_by_time_and_offset() {
    if !samples() {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "strided");

    let said = world.majorfault(&["doctor", &plant.pid().to_string(), "--for", "2s", "--report", "report.html"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    assert!(said.errors.contains("the report is report.html") && said.output.contains("/data"), "{}", said.errors);
    let page = world.text("report.html");
    let path = world.path("data").display().to_string().replace('/', "&#x2f;");
    let (_, map) = page.split_once(&format!("<h3>{path}</h3>")).expect("no heat map of the file");
    let darkest = map.split("</figure>").next().unwrap().matches("fill=\"#990000\"").count();
    assert!(map.contains("aria-label=\"faults by time and offset\"") && darkest > 1, "{darkest}");
    assert!(page.contains("aria-label=\"timeline of faults and waits\"") && page.contains("fault_stall"));
    for forbidden in ["<script", "src=", "@import", "url(", "<link", "href="] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn outputs_that_cannot_be_had_are_told_before_the_watch() {
    let world = World::new();
    let own = std::process::id().to_string();
    let says = |arguments: &[&str], sentence: &str| {
        let all = [&["doctor", &own, "--for", "60s"], arguments].concat();
        world.majorfault(&all).fails(2, sentence);
    };

    says(&["--textfile", "no/such/metrics.prom"], "no/such must exist and be writable");
    says(&["--openmetrics", "localhost"], "write a port (9464) or an address (127.0.0.1:9464)");
    says(&["--openmetrics", "192.0.2.1:9464"], "listen for HTTP");
    says(&["--openmetrics", "0", "--json"], "cannot be used with");
    says(&["--watch", "--json"], "cannot be used with");
    says(&["--watch", "--report", "report.html"], "cannot be used with");
    says(&["--watch", "--prove"], "cannot be used with");
}
