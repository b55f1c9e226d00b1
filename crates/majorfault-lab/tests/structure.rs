//! The house: floors, registries, and what may not be anywhere. Reads the sources as syntax.

mod house;

use house::kinds::{Registry, unregistered};
use house::names::{asked, declared};
use house::rooms::{Plan, used};
use house::source::Tree;
use house::uses;
use house::words::twice;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The library's rooms, by floor.
const LIBRARY: Plan = Plan {
    floors: &[
        &["units", "error", "needs", "sys", "params", "files", "proc", "headroom", "trace"],
        &["access", "observe"],
        &["map", "memory", "pool", "prefetch", "small_files"],
        &["methods"],
    ],
    strangers: &[("access", "observe"), ("observe", "access"), ("prefetch", "observe"), ("proc", "files")],
};

/// The lab's rooms, by floor.
const LAB: Plan = Plan {
    floors: &[
        &["data", "trial", "traits", "record", "stats"],
        &["workload", "machine", "place", "scratch", "peer", "procedure", "watch", "outputs"],
        &["kinds"],
        &["run", "lineup"],
        &["experiment", "jobfile"],
        &["session"],
        &["report", "doctor", "assist", "launch", "node"],
        &["prove", "program", "tryout"],
        &["command"],
    ],
    strangers: &[("place", "watch"), ("assist", "doctor"), ("doctor", "assist"), ("report", "doctor")],
};

/// The doctor's parts, by floor: what is found knows nothing of how it is told.
const DOCTOR: &[&[&str]] = &[&["rule", "software", "fact", "patient"], &["gain"], &["rules"], &["doctor"], &["tell"]];

/// Who lists what there is several of.
const REGISTRIES: &[Registry] = &[
    Registry { kind: "Method", files: &["access/mod.rs", "methods.rs"] },
    Registry { kind: "Policy", files: &["prefetch/mod.rs"] },
    Registry { kind: "Source", files: &["observe/mod.rs"] },
    Registry { kind: "Workload", files: &["workload/mod.rs"] },
    Registry { kind: "Peer", files: &["peer/mod.rs"] },
    Registry { kind: "Rule", files: &["doctor/rules/mod.rs"] },
    Registry { kind: "Procedure", files: &["procedure/mod.rs"] },
    Registry { kind: "Experiment", files: &["experiment/mod.rs"] },
    Registry { kind: "Way", files: &["program/ways/mod.rs"] },
];

/// Kinds whose names nobody else may ask for.
const NAMED: &[&str] = &["Method", "Policy", "Workload", "Peer", "Procedure", "Rule"];

/// Where the same word names another thing: file, word, what it is there.
const OTHER_THINGS: &[(&str, &str, &str)] = &[
    ("command/compare.rs", "fio", "how the name of a job file ends"),
    ("command/options.rs", "none", "no memory limit"),
    ("jobfile/options.rs", "none", "a verify of fio"),
    ("jobfile/options.rs", "sequential", "a file_service_type of fio"),
    ("jobfile/values.rs", "zipf", "a random_distribution of fio"),
    ("peer/fio.rs", "mmap", "an ioengine of fio"),
    ("peer/fio/stage.rs", "direct", "an option of fio"),
    ("report/advice.rs", "populate", "a parameter of mmap"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn library() -> Tree {
    Tree::read(&crates().join("majorfault/src"))
}

fn lab() -> Tree {
    Tree::read(&crates().join("majorfault-lab/src"))
}

#[test]
fn no_arrow_points_up() {
    let wrong = [LIBRARY.violations(&library()), LAB.violations(&lab())].concat();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file of the room uses one of those that it may not know.
fn knows(room: &str, forbidden: &[&str]) -> Vec<String> {
    let tree = lab();
    let of_room = used(&tree).into_iter().filter(|(file, _)| file.room() == room);
    let wrong = of_room.flat_map(|(file, rooms)| {
        let known = rooms.into_iter().filter(|other| forbidden.contains(&other.as_str()));
        known.map(|other| format!("{} uses {other}", file.path.display())).collect::<Vec<_>>()
    });
    wrong.collect()
}

#[test]
fn the_report_never_runs_anything() {
    assert_eq!(knows("report", &["run", "place", "peer", "scratch", "session", "outputs"]), Vec::<String>::new());
}

#[test]
fn the_doctor_only_watches() {
    let others = ["run", "peer", "scratch", "session", "workload", "trial", "record", "outputs"];

    assert_eq!(knows("doctor", &others), Vec::<String>::new());
}

/// Files of the doctor that use a part of it on a floor above their own, or are of a part on no floor.
fn climbing(tree: &Tree) -> Vec<String> {
    // What the folder's first file declares or shows is of that file.
    let part = |path: &[String]| {
        let is_part = |name: &&String| DOCTOR.concat().contains(&name.as_str());
        path.get(1).filter(is_part).map_or("doctor", String::as_str).to_owned()
    };
    let floor = |part: &str| DOCTOR.iter().position(|parts| parts.contains(&part)).unwrap();
    let own = tree.code().filter(|file| file.room() == "doctor");
    let wrong = own.flat_map(|file| {
        let own = part(&file.module);
        let is_known = file.module.len() < 2 || own != "doctor";
        let used = uses::of(file).into_iter().filter(|path| path.first().is_some_and(|room| room == "doctor"));
        let above = used.map(|path| part(&path)).filter(|other| floor(other) > floor(&own)).collect::<BTreeSet<_>>();
        let above = above.into_iter().map(|other| format!("{} uses {other}", file.path.display()));
        let unknown = (!is_known).then(|| format!("{} is on no floor", file.path.display()));
        above.chain(unknown).collect::<Vec<_>>()
    });
    wrong.collect()
}

#[test]
fn what_the_doctor_finds_knows_nothing_of_how_it_is_told() {
    assert_eq!(climbing(&lab()), Vec::<String>::new());
}

#[test]
fn every_member_of_a_kind_is_listed() {
    let (library, lab) = (library(), lab());
    let wrong: Vec<String> = REGISTRIES
        .iter()
        .flat_map(|registry| [unregistered(&library, registry), unregistered(&lab, registry)].concat())
        .collect();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]

fn a_kinds_name_is_asked_for_nowhere_else() {
    let (library, lab) = (library(), lab());
    let names = declared(&[&library, &lab], NAMED);
    let is_other =
        |file: &Path, name: &str| OTHER_THINGS.iter().any(|(other, word, _)| file == Path::new(other) && *word == name);
    let found = [asked(&library, &names), asked(&lab, &names)].concat();
    let wrong: Vec<String> = found
        .into_iter()
        .filter(|(file, _, name)| !is_other(file, name))
        .map(|(file, line, name)| format!("{}:{line} asks for \"{name}\"", file.display()))
        .collect();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_word_that_names_another_thing_is_still_there() {
    let (library, lab) = (library(), lab());
    let names = declared(&[&library, &lab], NAMED);
    let found = [asked(&library, &names), asked(&lab, &names)].concat();

    for (file, word, thing) in OTHER_THINGS {
        let is_there = found.iter().any(|(other, _, name)| *other == Path::new(file) && name == word);
        assert!(is_there, "{file} does not say \"{word}\" ({thing}) any more: take it out of the list");
    }
}

/// Unsafe code that is not below `sys`: where a promise is taken from a caller, or taken up by lending bytes in place.
const PROMISES: &[(&str, &str)] = &[
    ("majorfault/src", "access/mmap.rs"),
    ("majorfault/src", "files.rs"),
    ("majorfault/src", "map/memmap2.rs"),
    ("majorfault/src", "map/stable.rs"),
    ("majorfault/src", "memory/mod.rs"),
    ("majorfault/src", "pool/pointers.rs"),
    ("majorfault/src", "pool/uffd.rs"),
    ("majorfault-lab/src", "procedure/memory_file.rs"),
    ("majorfault-lab/src", "run/worker.rs"),
];

#[test]
fn unsafe_code_stays_below_sys_and_where_promises_are() {
    let mut found = Vec::new();
    for (root, tree, own) in [("majorfault/src", library(), "sys"), ("majorfault-lab/src", lab(), "")] {
        for file in tree.files.iter().filter(|file| file.room() != own) {
            let text = fs::read_to_string(crates().join(root).join(&file.path)).unwrap();
            if text.contains("allow(unsafe_code") {
                found.push((root.to_owned(), file.path.display().to_string()));
            }
        }
    }
    found.sort();

    let mut listed: Vec<_> = PROMISES.iter().map(|(root, path)| ((*root).to_owned(), (*path).to_owned())).collect();
    listed.sort();
    assert_eq!(found, listed);
}

/// Names that two public types share, with the reason. Anything else gets a name of its own (docs/design.md, Words).
const SHARED: &[(&str, &str)] = &[
    ("Args", "each subcommand has its own, and none is seen outside its file"),
    ("Class", "the lab keeps the library's class of a method in its records, with classes of its own"),
    ("Access", "protection of a mapping in sys, a fault in a file in observe"),
    ("Group", "arms that may be compared in a report, a cgroup in the doctor's evidence"),
    ("Hints", "what a method takes and what a policy gives"),
    ("Kind", "of a counter, and of an output"),
    ("MappedFile", "the library's front door, and a file that a watched process maps"),
    ("Mount", "parsed in proc, and as the doctor's evidence keeps it"),
    ("Scene", "of a counter and of a policy when they open"),
    ("Seen", "of a page's state, and of a sampler's round"),
];

#[test]
fn no_word_names_two_types() {
    let found = twice(&[&library(), &lab()]);
    let is_known = |name: &String| SHARED.iter().any(|(shared, _)| shared == name);
    let wrong: Vec<String> = found
        .iter()
        .filter(|(name, _)| !is_known(name))
        .map(|(name, files)| {
            format!("{name}: {}", files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", "))
        })
        .collect();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_shared_word_is_still_shared() {
    let found = twice(&[&library(), &lab()]);

    let stale: Vec<&str> = SHARED.iter().map(|(name, _)| *name).filter(|name| !found.contains_key(*name)).collect();

    assert!(stale.is_empty(), "{} name one type now: take them out of the list", stale.join(", "));
}

/// Whether a source text takes anything of clap's.
fn uses_clap(text: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|word| word == "clap")
}

#[test]
fn the_command_line_is_read_in_command_alone() {
    let tree = lab();
    let text = |file: &Path| fs::read_to_string(crates().join("majorfault-lab/src").join(file)).unwrap();
    let outside = tree.files.iter().filter(|file| file.room() != "command" && uses_clap(&text(&file.path)));
    let wrong: Vec<String> = outside.map(|file| file.path.display().to_string()).collect();

    assert!(wrong.is_empty(), "{} use clap", wrong.join(", "));
}

#[test]
fn the_library_stays_small() {
    let manifest = fs::read_to_string(crates().join("majorfault/Cargo.toml")).unwrap();
    let table = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names: Vec<&str> =
        table.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty()).collect();

    assert_eq!(names, ["io-uring", "libc", "rustix"]);
}

/// The same checks on made-up sources: what they must find, and what they must let pass.
mod planted {
    use super::*;

    const PLAN: Plan =
        Plan { floors: &[&["low", "odd"], &["middle", "other"], &["high"]], strangers: &[("low", "odd")] };

    /// What the plan says of this text in the file, beside rooms that are in order.
    fn told(path: &str, text: &str) -> Vec<String> {
        let rooms = [
            ("lib.rs", "mod low; mod odd; mod middle; mod other; mod high; pub use high::Tower; pub use low::Stone;"),
            ("high.rs", "pub struct Tower;"),
            ("middle/mod.rs", "mod inner; #[cfg(test)] mod trials; #[cfg(all(test, unix))] mod more;"),
            ("other.rs", "#[macro_export] macro_rules! build { () => {} }"),
        ];
        let files: Vec<(&str, &str)> =
            rooms.into_iter().filter(|(other, _)| *other != path).chain([(path, text)]).collect();
        PLAN.violations(&Tree::made_up(&files))
    }

    #[test]
    fn an_upward_use_is_found_wherever_it_stands() {
        for text in [
            "use crate::high;",
            "use crate::high::Tower as T;",
            "#[cfg(test)] use crate::low; use crate::high;",
            "#[cfg(test)] mod tests { use super::*; } fn after() { crate::high::build() }",
            "#[cfg(test)]\nfn helper() {}\nuse crate::{low, high::{self, Tower}};",
            "use crate::{low::{self, Stone}, {odd, {high}}};",
            "use super::super::high;",
            "use super::super::{low, high::Tower};",
            "mod deeper { use super::super::super::high; }",
            "mod deeper { fn look() { super::super::super::high::build(); } }",
            "fn look() { let tower = super::super::high::Tower; }",
            "fn look() -> crate::high::Tower { todo!() }",
            "fn look(value: u8) { match value { crate::high::TOP => {} _ => {} } }",
            "impl crate::high::Climb for u8 {}",
            "fn look<T: crate::high::Climb>() {}",
            "fn look() { println!(\"{}\", crate::high::height()); }",
            "fn look() { vec![vec![(1, super::super::high::Tower)]]; }",
            "macro_rules! make { () => { $crate::high::Tower }; }",
            "macro_rules! make { () => { use $crate::{low, high::Tower}; }; }",
            "macro_rules! make { () => { use $crate::{low::{Stone}, high}; }; }",
            "#[arg(value_parser = crate::high::parse)] struct Args;",
            "struct Args { #[arg(value_parser = crate::high::parse)] field: u8 }",
            "use crate::Tower;",
            "fn look() -> crate::Tower { todo!() }",
            "#[cfg(not(test))] use crate::high;",
            "#[cfg(any(test, unix))] use crate::high;",
            "pub(crate) use crate::high::Tower;",
            "unsafe extern \"C\" { fn look() -> crate::high::Tower; }",
        ] {
            assert_eq!(told("middle/inner.rs", text), ["middle/inner.rs uses high"], "{text}");
        }
    }

    #[test]
    fn an_upward_use_is_found_in_a_rooms_first_file() {
        assert_eq!(
            told("middle/mod.rs", "#[cfg(test)] mod a; mod inner; use super::high;"),
            ["middle/mod.rs uses high"]
        );
        assert_eq!(told("low.rs", "fn look() { self::super::middle::build() }"), ["low.rs uses middle"]);
        assert_eq!(told("low.rs", "fn look() { crate::build!() }"), ["low.rs uses other"]);
    }

    #[test]
    fn what_is_in_order_passes() {
        for text in [
            "use crate::low; use super::super::odd; use crate::other;",
            "use super::*; use self::deeper::Thing; mod deeper { pub struct Thing; use super::super::*; }",
            "use crate::Stone; fn look() { crate::build!() }",
            "use high::Tower; use std::collections::high; fn look() { high::build(); majorfault::high::build(); }",
            "#[cfg(test)] mod tests { use crate::high; }",
            "#[cfg(test)] use crate::high;",
            "#[cfg(all(test, feature = \"async\"))] mod tests { use super::super::super::high; }",
            "#[test] fn a_test() { crate::high::build() }",
            "struct Wall; impl Wall { #[cfg(test)] fn look() { crate::high::build() } }",
            "/// See [`crate::high::Tower`].\nfn look() {}",
            "fn look() { println!(\"crate::high::Tower\") } // crate::high",
            "pub(in crate::middle) fn look() {}",
        ] {
            assert_eq!(told("middle/inner.rs", text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn tests_and_specs_in_files_of_their_own_may_look_up() {
        for path in ["middle/trials.rs", "middle/trials/deeper.rs", "middle/more.rs", "middle/spec.rs"] {
            assert_eq!(told(path, "use crate::high;"), Vec::<String>::new(), "{path}");
        }
        assert_eq!(told("middle/tests.rs", "use crate::high;"), ["middle/tests.rs uses high"], "declared by nobody");
    }

    #[test]
    fn a_room_on_no_floor_and_a_stranger_are_found() {
        assert_eq!(told("attic.rs", "fn look() {}"), ["attic.rs is on no floor"]);
        assert_eq!(told("middle/inner.rs", "use crate::attic;"), ["middle/inner.rs uses attic, which is on no floor"]);
        assert_eq!(told("middle/inner.rs", "use crate::*;"), ["middle/inner.rs uses *, which is on no floor"]);
        assert_eq!(told("low.rs", "use crate::odd;"), ["low.rs uses odd"]);
        assert_eq!(told("odd.rs", "use crate::low;"), Vec::<String>::new());
    }

    #[test]
    fn a_part_of_the_doctor_that_uses_one_above_it_is_found() {
        let told = |path: &str, text: &str| climbing(&Tree::made_up(&[(path, text)]));

        for (path, text, part) in [
            ("doctor/rules/thrash.rs", "use crate::doctor::tell::words;", "tell"),
            ("doctor/rules/thrash.rs", "fn look() { super::super::tell::print() }", "tell"),
            ("doctor/rules/thrash.rs", "use crate::doctor::{Finding, examine};", "doctor"),
            ("doctor/rules/mod.rs", "use super::examine;", "doctor"),
            ("doctor/rule.rs", "use super::rules::ALL;", "rules"),
            ("doctor/gain.rs", "use crate::doctor;", "doctor"),
            ("doctor/mod.rs", "pub use self::tell::print;", "tell"),
        ] {
            assert_eq!(told(path, text), [format!("{path} uses {part}")], "{text}");
        }
        for (path, text) in [
            ("doctor/rules/thrash.rs", "use crate::doctor::rule::Rule; use crate::watch::order; use super::scenes;"),
            ("doctor/rules/thrash.rs", "#[cfg(test)] mod tests { use crate::doctor::tell::print; }"),
            ("doctor/mod.rs", "pub mod tell; use self::rules::ALL;"),
            ("doctor/tell/json.rs", "use crate::doctor::{Finding, rules}; use super::describe;"),
        ] {
            assert_eq!(told(path, text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(told("doctor/other.rs", ""), ["doctor/other.rs is on no floor"]);
    }

    #[test]
    fn a_type_name_that_is_taken_is_found() {
        let texts = [
            (
                "a.rs",
                "pub struct Stone; struct Own; #[cfg(test)] pub struct Trial; pub mod inner { pub(crate) enum Wall {} }",
            ),
            ("b.rs", "pub enum Stone {} struct Own; pub struct Trial; pub(super) trait Wall {}"),
        ];

        let found = twice(&[&Tree::made_up(&texts)]);

        assert_eq!(found.keys().collect::<Vec<_>>(), ["Stone", "Wall"]);
    }

    #[test]
    fn clap_is_found_however_it_is_written() {
        for text in ["use clap::Args;", "#[derive(clap::ValueEnum)]", "use clap as c;", "pub use {clap, libc};"] {
            assert!(uses_clap(text), "{text}");
        }
        for text in ["// clap::Args", "//! clap", "let clapped = 1;", "use overclap::Args;"] {
            assert!(!uses_clap(text), "{text}");
        }
    }

    const REGISTRY: Registry = Registry { kind: "Tool", files: &["tools/mod.rs", "all.rs"] };
    const SAW: &str = "pub const TOOL: Tool = Tool { name: \"saw\" };";

    fn forgotten(list: &str, saw: &str) -> Vec<String> {
        let files = [("tools/mod.rs", list), ("tools/saw.rs", saw), ("shed/mod.rs", "pub use axe::TOOL as AXE;")];
        unregistered(&Tree::made_up(&files), &REGISTRY)
    }

    #[test]
    fn a_member_that_nobody_lists_is_found() {
        let wrong = ["tools/saw.rs declares TOOL, a Tool that is not listed"];

        assert_eq!(forgotten("const ALL: &[&Tool] = &[];", SAW), wrong);
        assert_eq!(forgotten("const ALL: &[&Tool] = &[&axe::TOOL];", SAW), wrong);
        assert_eq!(forgotten("use saw::TOOL; const ALL: &[&Tool] = &[];", SAW), wrong);
        assert_eq!(forgotten("// &saw::TOOL\nconst ALL: &[&Tool] = &[];", SAW), wrong);
        assert_eq!(forgotten("#[cfg(test)] const ALL: &[&Tool] = &[&saw::TOOL];", SAW), wrong);
        let two = "pub const TOOL: Tool = Tool { name: \"a\" }; pub const OTHER: super::Tool = Tool { name: \"b\" };";
        let other = ["tools/saw.rs declares OTHER, a Tool that is not listed"];
        assert_eq!(forgotten("const ALL: &[&Tool] = &[&saw::TOOL];", two), other);
    }

    #[test]
    fn a_member_that_is_listed_passes_also_under_another_name() {
        assert_eq!(forgotten("const ALL: &[&Tool] = &[&saw::TOOL];", SAW), Vec::<String>::new());
        assert_eq!(forgotten("static ALL: [&Tool; 1] = [&self::saw::TOOL];", SAW), Vec::<String>::new());
        for (shed, list) in
            [("pub use axe::TOOL as AXE;", "shed::AXE"), ("mod axe; pub use axe::{TOOL};", "shed::TOOL")]
        {
            let list = format!("const BUILT: &[&Tool] = &[&{list}];");
            let files = [("all.rs", list.as_str()), ("shed/mod.rs", shed), ("shed/axe.rs", SAW)];
            assert_eq!(unregistered(&Tree::made_up(&files), &REGISTRY), Vec::<String>::new());
        }
    }

    /// Lines of `path` that ask for a tool's name.
    fn asking(path: &str, text: &str) -> Vec<(usize, String)> {
        let tree = Tree::made_up(&[("tools/saw.rs", SAW), (path, text)]);
        let names = declared(&[&tree], &["Tool"]);
        asked(&tree, &names).into_iter().map(|(_, line, name)| (line, name)).collect()
    }

    #[test]
    fn a_name_that_is_asked_for_elsewhere_is_found() {
        for text in [
            "fn f() { name == \"saw\" }",
            "fn f() { \"saw\" != *name }",
            "fn f() { name.as_deref() == Some(\"saw\") }",
            "fn f() { (kind, name) == (1, \"saw\") }",
            "fn f() { name == \"saw\".to_owned() }",
            "fn f() { match name { \"saw\" => 1, _ => 2 } }",
            "fn f() { match (kind, name) { (1, \"axe\" | \"saw\") => 1, _ => 2 } }",
            "fn f() { match choice { Choice { name: Some(\"saw\") } => 1, _ => 2 } }",
            "fn f() { if let Some(\"saw\") = name {} }",
            "fn f() { let \"saw\" = name else { return }; }",
            "fn f() { matches!(name, \"axe\" | \"saw\") }",
            "fn f() { matches!(tool, Tool(it) if it.name == \"saw\") }",
            "fn f() { [\"axe\", \"saw\"].contains(&name) }",
            "fn f() { !(&[\"saw\"]).contains(&name) }",
            "fn f() { name.starts_with(\"saw\") || name.eq(\"saw\") == false }",
            "fn f() { all.iter().any(|it| it.name == \"saw\") }",
            "fn f() { assert!(name == \"saw\") }",
            "const IS: fn(&str) -> bool = |name| name == \"saw\";",
        ] {
            assert!(asking("house.rs", text).contains(&(1, "saw".to_owned())), "{text}");
        }
        assert_eq!(asking("house.rs", "\n\nfn f() { name == \"saw\" }"), [(3, "saw".to_owned())]);
    }

    #[test]
    fn choosing_by_name_other_words_and_the_own_folder_pass() {
        for text in [
            "fn f() { Choice::plain(\"saw\") }",
            "fn f() { lineup(&[\"saw\", \"axe\"]); let names = [\"saw\"]; }",
            "fn f() { let name = match kind { 1 => \"saw\", _ => \"axe\" }; }",
            "fn f() { println!(\"saw\") }",
            "fn f() { name == \"sawdust\" }",
            "#[cfg(test)] mod tests { fn f() { name == \"saw\" } }",
            "#[test] fn a_test() { assert_eq!(name, \"saw\"); name == \"saw\" }",
        ] {
            assert_eq!(asking("house.rs", text), [], "{text}");
        }
        assert_eq!(asking("tools/mod.rs", "fn f() { name == \"saw\" }"), []);
        assert_eq!(asking("tools/deeper/axe.rs", "fn f() { name == \"saw\" }"), []);
    }
}

/// The former name is in the history and where its files are read; everything else has one name.
#[test]
fn the_former_name_is_left_only_where_its_files_are_read() {
    let (root, former) = (crates().parent().unwrap().to_owned(), concat!("fault", "line"));
    let listed = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let has_it = |name: &&str| {
        let text = fs::read(root.join(name)).unwrap_or_default();
        name.contains(former) || String::from_utf8_lossy(&text).to_lowercase().contains(former)
    };
    let found: Vec<&str> = listed.split('\0').filter(|name| !name.is_empty()).filter(has_it).collect();
    assert_eq!(found, ["CHANGELOG.md", "crates/majorfault-lab/src/outputs/former.rs"]);
}
