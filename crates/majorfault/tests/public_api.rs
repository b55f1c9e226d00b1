//! What users see of this library is `docs/public-api.txt`: every change of it is seen in review.
//!
//! Made by rustdoc of the toolchain at hand and the crate public-api; nothing is fetched.
//! After a change that is meant: `MAJORFAULT_PUBLIC_API=write cargo test -p majorfault --test public_api`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The library as rustdoc sees it, in JSON; in a folder of its own, for RUSTC_BOOTSTRAP is another build.
fn described() -> PathBuf {
    let target = root().join("target/public-api");
    let made = Command::new(env!("CARGO"))
        .args([
            "rustdoc",
            "--package",
            "majorfault",
            "--lib",
            "--features",
            "async",
            "--locked",
            "--offline",
            "--quiet",
        ])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format=json", "--cap-lints=allow"])
        // The format is not stable; the toolchain is, and says which version of it it writes.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root())
        .output()
        .unwrap();
    assert!(made.status.success(), "rustdoc failed:\n{}", String::from_utf8_lossy(&made.stderr));
    target.join("doc/majorfault.json")
}

fn listing() -> String {
    let builder = public_api::Builder::from_rustdoc_json(described());
    let listed = builder.omit_blanket_impls(true).omit_auto_trait_impls(true).omit_auto_derived_impls(true).build().unwrap_or_else(|error| {
        panic!(
            "{error}\nThe crate public-api does not read the JSON of this toolchain's rustdoc (it is made for nightlies from {}, \
             and the stable Rust of their time). Take one that fits: cargo update -p public-api, or another Rust",
            public_api::MINIMUM_NIGHTLY_RUST_VERSION
        )
    });
    listed.items().map(|item| format!("{item}\n")).collect()
}

#[test]
fn the_public_face_is_the_one_that_is_listed() {
    let path = root().join("docs/public-api.txt");
    let found = listing();
    if std::env::var("MAJORFAULT_PUBLIC_API").is_ok_and(|word| word == "write") {
        std::fs::write(&path, &found).unwrap();
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();

    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (new, old) = (lines(&found), lines(&listed));
    let changes = new.difference(&old).map(|line| format!("+ {line}\n"));
    let changes: String = changes.chain(old.difference(&new).map(|line| format!("- {line}\n"))).collect();
    assert!(
        found == listed,
        "the public face is not that of docs/public-api.txt:\n{changes}If it shall be so: \
         MAJORFAULT_PUBLIC_API=write cargo test -p majorfault --test public_api"
    );
}

#[test]
fn system_calls_and_parsers_are_no_part_of_it() {
    let listed = std::fs::read_to_string(root().join("docs/public-api.txt")).unwrap();

    for module in ["majorfault::sys", "majorfault::proc"] {
        assert!(!listed.contains(&format!("pub mod {module}")), "{module} is public");
    }
    assert!(listed.contains("pub mod majorfault::access"), "the listing is of this library");
}
