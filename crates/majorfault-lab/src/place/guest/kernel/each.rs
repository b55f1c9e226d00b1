//! Whether each patch of the series stands alone: checkpatch has nothing to say, and what it touches compiles without a warning,
//! with the option and without, before the next one is applied.

use crate::place::guest::kernel::build::{Progress, Work, tools};
use crate::place::guest::kernel::recipe::{FRAGMENT, SERIES, STRIDED_OPTION, dropped};
use crate::place::guest::kernel::source::{self, Removed};
use crate::place::guest::kernel::{root, trusted};
use majorfault::{Error, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Where checkpatch asks whether MAINTAINERS needs a line for a new file: mm/, Documentation/admin-guide/mm/ and
/// tools/testing/selftests/mm/ are listed there as a whole.
const ANSWERED: &str = "FILE_PATH_CHANGES";

/// What a patch is found to be: its name, and a sentence, which is the error where it does not stand alone.
pub type Stands = (String, std::result::Result<String, String>);

/// Applies the series to Debian's `package` patch by patch, and looks at each; given to `told` as they come.
///
/// Errors: as [`build`](super::build()); a patch that is not right is none.
pub fn each_patch(
    package: &str,
    jobs: u32,
    stop: &AtomicBool,
    progress: &dyn Progress,
    mut told: impl FnMut(&Stands),
) -> Result<bool> {
    let root = root();
    trusted(&root)?;
    tools()?;
    source::made(&root)?;
    let version = source::candidate(package)?;
    progress.step("fetching the source");
    let source = source::fetch(package, &version, &root)?;
    // Always the same, so that ccache(1) and a look at the log find it.
    let dir = root.join("sources").join("each-patch");
    let _ = fs::remove_dir_all(&dir);
    let _clean = Removed(dir.clone());
    source::copied(&source, &dir)?;
    let work = Work::new(&root, dir.clone(), stop)?;
    let mut are_right = true;
    for (name, text) in SERIES {
        progress.step(name);
        let found = match looked_at(name, text, &dir) {
            Ok(()) => compiled(text, &work, jobs, stop, progress)?,
            Err(why) => Err(why),
        };
        are_right &= found.is_ok();
        told(&((*name).to_owned(), found));
    }
    Ok(are_right)
}

/// Applies a patch and asks checkpatch.
fn looked_at(name: &str, text: &str, dir: &Path) -> std::result::Result<(), String> {
    source::apply(name, text, dir).map_err(|error| error.to_string())?;
    let file = dir.join(name);
    fs::write(&file, text).map_err(|error| error.to_string())?;
    let mut checkpatch = Command::new("perl");
    checkpatch.args(["scripts/checkpatch.pl", "--strict", "--terse", "--ignore", ANSWERED]).arg(&file).current_dir(dir);
    let out = source::said("perl", "perl", &mut checkpatch).map_err(|error| error.to_string())?;
    match out.status.success() {
        true => Ok(()),
        false => {
            Err(format!("checkpatch --strict: {}", String::from_utf8_lossy(&out.stdout).trim().replace('\n', "; ")))
        }
    }
}

/// Compiles what a patch touches, with its option and without.
fn compiled(
    text: &str,
    work: &Work<'_>,
    jobs: u32,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<std::result::Result<String, String>> {
    let targets = targets(text);
    let mut said = vec!["checkpatch --strict says nothing".to_owned()];
    if !targets.is_empty() {
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        for options in [FRAGMENT.to_owned(), format!("{FRAGMENT}{STRIDED_OPTION}")] {
            let finished = work.configured(&options)?;
            let dropped = dropped(&options, &finished);
            if !dropped.is_empty() {
                return Ok(Err(format!("{} did not stay", dropped.join(", "))));
            }
            if let Err(error) = work.compile(jobs, &["KCFLAGS=-Werror"], &targets, progress) {
                // A stop is not the patch's fault.
                let is_stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
                return if is_stopped { Err(error) } else { Ok(Err(error.to_string())) };
            }
        }
        said.push(format!("{} compile with the option and without", targets.join(" ")));
    }
    if work.has_selftest() {
        let into = tempfile::tempdir().map_err(|error| Error::io("make a directory for the test", "/tmp", error))?;
        if let Err(error) = work.selftest(into.path()) {
            return Ok(Err(error.to_string()));
        }
        said.push("its test compiles".to_owned());
    }
    Ok(Ok(said.join("; ")))
}

/// What make(1) is to make for a patch: the folder of memory management for whatever the kernel is compiled from, and each other
/// object whose source the patch touches; nothing for documents and tests.
fn targets(text: &str) -> BTreeSet<String> {
    let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    let is_kernel = |file: &&str| !file.starts_with("Documentation/") && !file.starts_with("tools/");
    files
        .filter(is_kernel)
        .map(|file| match file.strip_suffix(".c") {
            Some(stem) if !file.starts_with("mm/") => format!("{stem}.o"),
            _ => "mm/".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_patch_touches_is_compiled_and_documents_are_not() {
        let of = |files: &[&str]| {
            let text: String = files.iter().map(|file| format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n")).collect();
            targets(&text).into_iter().collect::<Vec<_>>()
        };

        assert_eq!(of(&["mm/strided.c", "kernel/fork.c"]), ["kernel/fork.o", "mm/"]);
        assert_eq!(of(&["include/linux/mm.h", "fs/proc/task_mmu.c"]), ["fs/proc/task_mmu.o", "mm/"]);
        assert_eq!(of(&["Documentation/a.rst", "tools/testing/selftests/mm/a.c"]), Vec::<String>::new());
    }

    #[test]
    fn every_patch_of_code_is_compiled() {
        let with_code = SERIES.iter().filter(|(_, text)| !targets(text).is_empty()).count();

        assert_eq!(with_code, 4, "the documents and the test are the others");
    }
}
