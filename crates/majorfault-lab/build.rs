//! Tells the program which commit it is made from, so that its records can say it.

use std::process::Command;

fn main() {
    println!("cargo::rustc-env=MAJORFAULT_COMMIT={}", commit().unwrap_or_else(|| "unknown commit".to_owned()));
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"]).unwrap_or_default();
    for name in ["HEAD", "logs/HEAD", &branch] {
        // `--git-path` knows work trees, whose HEAD lies elsewhere. A path that does not exist would run this every time.
        let path = git(&["rev-parse", "--git-path", name]).filter(|path| std::path::Path::new(path).is_file());
        path.into_iter().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    }
    // Changes that are not committed make it dirty, and committing them clean.
    for part in ["build.rs", "src", "Cargo.toml", "../majorfault/src", "../majorfault/Cargo.toml"] {
        println!("cargo::rerun-if-changed={part}");
    }
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
