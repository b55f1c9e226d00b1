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

#[test]
fn a_stride_is_replayed_with_and_without_the_remedy() {
    let found = majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string());
    if !facility("fault samples", found) {
        return;
    }
    let world = World::new();
    let plant = Plant::start(&world, "column");

    let said = world.majorfault(&["doctor", &plant.pid().to_string(), "--for", "2s", "--prove", "--json"]);

    assert_eq!(said.code, Some(0), "{}", said.errors);
    let json = said.json();
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
