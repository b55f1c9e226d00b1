//! Who waits: the stacks of calls of a program that keeps frame pointers, as the viewers of profiles read them.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use std::io::Read;
use world::{World, facility};

/// Touches each MiB of a cold file, in a function that another one calls.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#define MIB (1 << 20)
static volatile char sum;
__attribute__((noinline)) void touch_rows(const char *map) { for (int i = 0; i < 32; i++) sum += map[(size_t)i * MIB]; }
__attribute__((noinline)) void scan_table(const char *map) { touch_rows(map); sum++; }
int main(int count, char **words) {
    int file = open(words[count - 1], O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    char *map = mmap(0, 32 * MIB, PROT_READ, MAP_PRIVATE, file, 0);
    madvise(map, 32 * MIB, MADV_RANDOM);
    scan_table(map);
    return sum == 77 ? 77 : 0;
}
"#;

/// A world with the program and its file, where it can be built and watched.
fn world() -> Option<World> {
    let samples = majorfault::observe::sampler::FAULT_SAMPLES.met().map_err(|missing| missing.to_string());
    if !facility("fault samples", samples) {
        return None;
    }
    let world = World::new();
    std::fs::write(world.path("scan.c"), PROGRAM).unwrap();
    world.file("data", 32 << 20);
    // What is not written yet cannot be dropped from the page cache.
    assert!(world.shell("sync data"));
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O0", "-fno-omit-frame-pointer", "-o", "scan", "scan.c"]).current_dir(world.path(""));
    let built = compiler.status().map_err(|error| error.to_string());
    let built = built.and_then(|status| if status.success() { Ok(()) } else { Err(status.to_string()) });
    facility("a C compiler", built).then_some(world)
}

fn watch(world: &World, stacks: &str) -> world::Said {
    let said = world.majorfault(&["doctor", "--for", "60s", "--stacks", stacks, "--", "./scan", "data"]);
    assert_eq!(said.code, Some(0), "{}", said.errors);
    said
}

#[test]
fn functions_and_the_file_that_they_wait_for_are_on_one_line() {
    let Some(world) = world() else { return };

    let said = watch(&world, "waits.folded");

    let leaf = format!(";main;scan_table;touch_rows;fault in {} ", world.path("data").display());
    let text = world.text("waits.folded");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(&leaf)).collect();
    let [line] = lines[..] else { panic!("{text}") };
    assert!(line.starts_with("scan;"), "{line}");
    assert!(line.rsplit(' ').next().unwrap().parse::<u64>().unwrap() > 0, "{line}");
    assert!(said.errors.contains("are in waits.folded"), "{}", said.errors);
    // A file of ours may be replaced, another one not.
    watch(&world, "waits.folded");
    std::fs::write(world.path("notes.folded"), "my own notes\n").unwrap();
    let refused = world.majorfault(&["doctor", "--stacks", "notes.folded", "--", "./scan", "data"]);
    assert_eq!((refused.code, world.text("notes.folded").as_str()), (Some(2), "my own notes\n"), "{}", refused.errors);
}

#[test]
fn a_profile_for_pprof_names_the_same_functions() {
    let Some(world) = world() else { return };

    watch(&world, "waits.pb.gz");

    let mut bytes = Vec::new();
    let packed = std::fs::File::open(world.path("waits.pb.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    for name in ["touch_rows", "scan_table", "main", "nanoseconds", "/data"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    watch(&world, "waits.pb.gz");
}

#[test]
fn another_name_is_refused_with_those_that_are_known() {
    let said = World::new().majorfault(&["doctor", "--stacks", "waits.svg", "1"]);

    assert_eq!(said.code, Some(2));
    assert!(said.errors.contains("end it with .folded (for flame graphs) or .pb.gz (for pprof)"), "{}", said.errors);
}
