//! Debian's kernel source: fetched through apt, which checks its signature, and unpacked without root's rights.

use crate::place::guest::kernel::recipe::Recipe;
use majorfault::{Error, Missing, Result};
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// An unpacked source.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// Version of the package.
    pub version: String,
    /// Its directory.
    pub dir: PathBuf,
}

/// The version that apt would fetch now.
///
/// Errors: Missing (no apt, no such package in its lists).
pub fn candidate(package: &str) -> Result<String> {
    let out = said("apt-cache", "apt", Command::new("apt-cache").args(["policy", package]))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let version = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: ")).filter(|it| *it != "(none)");
    version.map(str::to_owned).ok_or_else(|| {
        let remedy = "apt-get update; apt-cache search ^linux-source- lists what there is, for --package";
        Missing::new(package, "apt knows no such package", remedy).into()
    })
}

/// Fetches a package and unpacks it into `work`.
///
/// Errors: Missing (a tool), Invalid (the tool's own words).
pub fn download(package: &str, version: &str, work: &Path) -> Result<()> {
    let wanted = format!("{package}={version}");
    done("apt-get", "apt", Command::new("apt-get").args(["download", &wanted]).current_dir(work))?;
    let deb = only(work, ".deb", "")?;
    done("dpkg-deb", "dpkg", Command::new("dpkg-deb").arg("-x").arg(&deb).arg(work))?;
    fs::remove_file(&deb).map_err(|error| Error::io("remove a package", deb, error))
}

/// The source of a package in a version, fetched and unpacked below `root` unless it is there.
///
/// Errors: Missing (a tool), Io, Invalid (apt's or tar's own words).
pub fn fetch(package: &str, version: &str, root: &Path) -> Result<KernelSource> {
    let sources = root.join("sources");
    let dir = sources.join(format!("{package}_{}", version.replace(['~', ':', '/'], "_")));
    if dir.join("Makefile").is_file() {
        return Ok(KernelSource { version: version.to_owned(), dir });
    }
    let work = sources.join(format!("fetching-{}", std::process::id()));
    let _clean = Removed(work.clone());
    made(&work)?;
    download(package, version, &work)?;
    let archive = only(&work.join("usr/src"), ".tar.xz", "linux")?;
    done("tar", "tar xz-utils", Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&work))?;
    let unpacked = only(&work, "", "linux-source")?;
    fs::rename(&unpacked, &dir).map_err(|error| Error::io("keep the kernel's source", &dir, error))?;
    Ok(KernelSource { version: version.to_owned(), dir })
}

/// A directory with the source as the recipe has it, of the recipe's own.
///
/// Errors: Invalid, naming patch, file and hunk that does not apply; Missing, Io.
pub fn patched(source: &KernelSource, recipe: &Recipe, root: &Path) -> Result<PathBuf> {
    let dir = root.join("sources").join(recipe.name());
    if dir.join("Makefile").is_file() {
        return Ok(dir);
    }
    let work = root.join("sources").join(format!("patching-{}", std::process::id()));
    let _clean = Removed(work.clone());
    copied(source, &work)?;
    recipe.patches.iter().try_for_each(|(name, text)| apply(name, text, &work))?;
    fs::rename(&work, &dir).map_err(|error| Error::io("keep the patched source", &dir, error))?;
    Ok(dir)
}

/// Makes `to` a copy of the source: by links, because patch(1) writes a new file and renames it.
///
/// Errors: Invalid (cp's own words).
pub fn copied(source: &KernelSource, to: &Path) -> Result<()> {
    done("cp", "coreutils", Command::new("cp").arg("-al").arg(&source.dir).arg(to))
}

/// Applies one patch.
///
/// Errors: Invalid, with each file and hunk that does not apply; Missing where patch(1) is not here.
pub fn apply(name: &str, text: &str, dir: &Path) -> Result<()> {
    let mut child = Command::new("patch")
        .args(["-p1", "--forward", "--fuzz=0", "--no-backup-if-mismatch", "--reject-file=-"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Missing::new("patch", error.to_string(), "apt-get install patch"))?;
    if let Some(mut input) = child.stdin.take() {
        // Where it ends early, its own words say why.
        let _ = input.write_all(text.as_bytes());
    }
    let out = child.wait_with_output().map_err(|error| Error::io("wait for patch", name, error))?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let said = failed_hunks(&String::from_utf8_lossy(&out.stdout));
            Err(Error::Invalid(format!(
                "{name} does not apply to this source: {said}; the series is made for linux-source-6.12 \
                 (kernel/series/0000-cover-letter.patch names its base), rebase it for another"
            )))
        }
    }
}

/// Which hunks of which files failed, from what patch(1) said.
fn failed_hunks(said: &str) -> String {
    let mut file = "";
    let mut failed = Vec::new();
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("patching file ") {
            file = name;
        } else if line.contains("FAILED") || line.starts_with("can't find file") || line.contains("previously applied")
        {
            failed.push(format!("{file}: {}", line.trim_end_matches('.')));
        }
    }
    if failed.is_empty() { said.trim().replace('\n', "; ") } else { failed.join("; ") }
}

/// A directory that is removed on drop if it is still there.
pub struct Removed(pub PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a directory and those above it, which only their owner can change.
///
/// Errors: Io.
pub fn made(dir: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(|error| {
        let remedy = format!("name a writable directory on a disk with {}", super::ROOT);
        Error::io("make a directory for kernels", dir, error).with_remedy(remedy)
    })
}

/// The member of a directory whose name begins and ends so.
pub fn only(dir: &Path, end: &str, begin: &str) -> Result<PathBuf> {
    let members = fs::read_dir(dir).map_err(|error| Error::io("look at what was fetched", dir, error))?;
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(begin) && name.ends_with(end)
    };
    let found = members.flatten().map(|entry| entry.path()).find(fits);
    found.ok_or_else(|| Error::Invalid(format!("the package holds no {begin}*{end} in {}", dir.display())))
}

/// Runs a tool; what it said.
///
/// Errors: Missing with the package where it is not here.
pub fn said(tool: &str, package: &str, command: &mut Command) -> Result<Output> {
    let out = command.stdin(Stdio::null()).env("LC_ALL", "C").output();
    out.map_err(|error| Missing::new(tool, error.to_string(), format!("apt-get install {package}")).into())
}

/// Runs a tool that must succeed.
///
/// Errors: Missing with the package where it is not here; Invalid with its words.
pub fn done(tool: &str, package: &str, command: &mut Command) -> Result<()> {
    let out = said(tool, package, command)?;
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr).trim().replace('\n', "; ");
    Err(Error::Invalid(format!("{tool} failed ({}): {text}", out.status)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::guest::kernel::recipe::Variant;

    const PATCH: &str = "--- a/mm/file.c\n+++ b/mm/file.c\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n";

    /// A source with one file.
    fn source(dir: &Path, text: &str) -> KernelSource {
        let dir = dir.join("source");
        fs::create_dir_all(dir.join("mm")).unwrap();
        fs::write(dir.join("Makefile"), "").unwrap();
        fs::write(dir.join("mm/file.c"), text).unwrap();
        KernelSource { version: "6.12".to_owned(), dir }
    }

    fn recipe(patch: &str) -> Recipe {
        let patches = vec![("0001-two.patch".to_owned(), patch.to_owned())];
        Recipe { patches, ..Recipe::of("6.12", Variant::Strided) }
    }

    #[test]
    fn a_patched_source_leaves_the_source_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        made(&dir.path().join("sources")).unwrap();
        let source = source(dir.path(), "one\ntwo\nthree\n");

        let patched = match patched(&source, &recipe(PATCH), dir.path()) {
            Err(Error::Missing(missing)) => {
                eprintln!("SKIPPED a_patched_source_leaves_the_source_as_it_was: {missing}");
                return;
            }
            other => other.unwrap(),
        };

        assert_eq!(fs::read_to_string(patched.join("mm/file.c")).unwrap(), "one\nTWO\nthree\n");
        assert_eq!(fs::read_to_string(source.dir.join("mm/file.c")).unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn a_patch_that_does_not_apply_is_told_with_file_and_hunk_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        made(&dir.path().join("sources")).unwrap();
        let source = source(dir.path(), "one\n2\nthree\n");

        let error = match patched(&source, &recipe(PATCH), dir.path()) {
            Err(Error::Missing(missing)) => {
                eprintln!("SKIPPED a_patch_that_does_not_apply: {missing}");
                return;
            }
            other => other.unwrap_err().to_string(),
        };

        assert!(error.contains("0001-two.patch does not apply"), "{error}");
        assert!(error.contains("mm/file.c: Hunk #1 FAILED at 1"), "{error}");
        assert_eq!(fs::read_dir(dir.path().join("sources")).unwrap().count(), 0);
    }

    #[test]
    fn a_patch_whose_surroundings_differ_is_not_applied_by_guessing() {
        let dir = tempfile::tempdir().unwrap();
        made(&dir.path().join("sources")).unwrap();
        let source = source(dir.path(), "one\ntwo\n3\n");

        let applied = patched(&source, &recipe(PATCH), dir.path());

        assert!(applied.is_err(), "{applied:?}");
    }

    #[test]
    fn a_package_that_apt_does_not_know_is_missing_with_the_way_to_find_others() {
        let error = candidate("linux-source-0.0.1-none").unwrap_err();

        let Error::Missing(missing) = &error else { panic!("{error}") };
        assert!(missing.remedy.contains("apt"), "{missing}");
    }
}
