//! `doctor --prove`: what was seen of a planted program is replayed with and without the remedy.
#![allow(unsafe_code, reason = "the planted programs map and advise as C programs do")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod plants;
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use plants::Plant;
use world::{World, facility};

/// Not a test: the planted program, when it is started as one.
#[test]
fn plant() {
    plants::grow();
}

/// Watches that a disk of changing speed gets until one of them is replayed as it was.
const WATCHES: usize = 4;

/// The two rates of a replay that was refused because it was not what the program does.
fn far_apart(why: &str) -> Option<[f64; 2]> {
    let mut rates = why
        .strip_prefix("the replay is not what the program does: ")?
        .split("/s")
        .filter_map(|part| part.trim_end_matches(" faults").rsplit(' ').next()?.parse().ok());
    Some([rates.next()?, rates.next()?])
}

#[test]
fn a_stride_is_replayed_with_and_without_the_remedy() {
    let found = majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string());
    if !facility("fault samples", found) {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "column");

    let prove = || {
        let said = world.majorfault(&["doctor", &plant.pid().to_string(), "--for", "2s", "--prove", "--json"]);
        assert_eq!(said.code, Some(0), "{}", said.errors);
        said.json()
    };
    let mut json = prove();
    for _ in 1..WATCHES {
        let Some([program, replay]) = json["proofs"][0]["not_proved"].as_str().and_then(far_apart) else { break };
        // The disk's speed changed between the watch and its replay; no proof is right then, and another watch may have one.
        assert!(replay > 3.0 * program || program > 3.0 * replay, "{json:#}");
        json = prove();
    }
    let proof = &json["proofs"][0];
    assert_eq!(
        (&proof["rule"], &proof["remedy"]),
        (&"read_ahead_flood".into(), &"mmap:policy=learned".into()),
        "{json:#}"
    );
    assert!(proof["gain"]["accesses"].as_u64().is_some_and(|count| count >= 256), "{proof:#}");
    assert_eq!(proof["gain"]["accesses_per_second"].as_array().unwrap().len(), 2);
    let [low, high] = [0, 1].map(|end| proof["gain"]["ratio_interval"][end].as_f64().unwrap());
    if low > 1.0 || high < 1.0 {
        // A later watch shows the result without replaying anything.
        let later = world.majorfault(&["doctor", &plant.pid().to_string(), "--for", "2s", "--json"]).json();
        assert_eq!(later["proofs"], serde_json::Value::Null);
        assert_eq!(later["findings"][0]["backing"]["kind"], "measured", "{later:#}");
        assert_eq!(later["findings"][0]["backing"]["times"], proof["gain"]["ratio"], "{later:#}");
    }
    assert!(plant.runs());
    let left = std::fs::read_dir("/var/tmp").unwrap().flatten().map(|entry| entry.file_name());
    assert!(
        !left
            .into_iter()
            .any(|name| name.to_string_lossy().starts_with(".majorfault-") && name.to_string_lossy().ends_with(".flt"))
    );
}
