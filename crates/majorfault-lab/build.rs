//! Tells the program which commit it is made from, so that its records can say it; and compiles the libraries that it carries, to be
//! preloaded: the agent (`agent/lib.rs`), blocks in files (`spill/lib.rs`), and a policy for mappings (`policy/lib.rs`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    carry("agent", &[]);
    // Its handlers of fork(2) are to be the first.
    carry("spill", &["-Wl,-z,initfirst"]);
    carry("policy", &[]);
    println!("cargo::rustc-env=MAJORFAULT_COMMIT={}", commit().unwrap_or_else(|| "unknown commit".to_owned()));
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"]).unwrap_or_default();
    for name in ["HEAD", "logs/HEAD", &branch] {
        // `--git-path` knows work trees, whose HEAD lies elsewhere. A path that does not exist would run this every time.
        let path = git(&["rev-parse", "--git-path", name]).filter(|path| std::path::Path::new(path).is_file());
        path.into_iter().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    }
    // Changes that are not committed make it dirty, and committing them clean.
    for part in
        ["build.rs", "agent", "policy", "spill", "src", "Cargo.toml", "../majorfault/src", "../majorfault/Cargo.toml"]
    {
        println!("cargo::rerun-if-changed={part}");
    }
}

/// Puts a library into the build's folder; an empty file where there is none for this processor, which the program then says.
fn carry(name: &str, arguments: &[&str]) {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let library = PathBuf::from(variable("OUT_DIR")).join(format!("{name}.so"));
    let is_known = variable("CARGO_CFG_TARGET_ARCH") == "x86_64" && variable("CARGO_CFG_TARGET_OS") == "linux";
    // Without the former one: what was not built must not be taken.
    let _ = std::fs::remove_file(&library);
    if !is_known || !compile(name, arguments, &library) {
        println!("cargo::warning=the library {name} of `majorfault run` could not be built for {}", variable("TARGET"));
        std::fs::write(&library, "").expect("the build's folder can be written to");
    }
}

/// Whether rustc made the library. It stands alone: no standard library, no C library, nothing that unwinds.
fn compile(name: &str, arguments: &[&str], library: &Path) -> bool {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition", "2024", "--crate-name", &format!("majorfault_{name}"), "--crate-type", "cdylib"]);
    rustc.arg(format!("{name}/lib.rs"));
    for option in ["opt-level=s", "panic=abort", "lto=fat", "strip=symbols", "target-feature=-crt-static"] {
        rustc.args(["-C", option]);
    }
    for argument in ["-nostdlib", "-nostartfiles"].iter().chain(arguments) {
        rustc.arg(format!("-Clink-arg={argument}"));
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={}", linker.to_string_lossy()));
    }
    let target = env::var("TARGET").unwrap_or_default();
    rustc.args(["--target", &target]).arg("-o").arg(library).status().is_ok_and(|status| status.success())
}

/// The short name of the commit, `-dirty` where tracked files differ; `None` in an archive without git.
fn commit() -> Option<String> {
    // In an archive that lies within another project, the commit would be that one's.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let name = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { name } else { format!("{name}-dirty") })
}

fn git(words: &[&str]) -> Option<String> {
    let said = Command::new("git").args(words).output().ok().filter(|said| said.status.success())?;
    String::from_utf8(said.stdout).ok().map(|text| text.trim().to_owned())
}
