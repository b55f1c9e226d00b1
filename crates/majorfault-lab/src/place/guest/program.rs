//! Our own program as a guest's first process: its file, and where it is not linked statically the libraries it needs.

use crate::place::guest::architecture::Architecture;
use crate::place::guest::archive::Archive;
use crate::place::guest::kernel::BuiltKernel;
use crate::place::guest::line::{BROUGHT, Errand, MODULES, ORDER};
use crate::place::guest::spec::Spec;
use majorfault::params::Value;
use majorfault::{Error, Missing, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories that the first process mounts on.
const MOUNT_POINTS: &[&str] = &["dev", "proc", "sys", "tmp", "run", "var/tmp", "pmem", "root"];

/// Our own program: this very one, or what was built for the guest's processor.
///
/// Errors: Io (it cannot be found).
pub fn own(spec: &Spec) -> Result<PathBuf> {
    match spec.program.is_empty() {
        true => std::env::current_exe().map_err(|error| Error::io("find the own program", "/proc/self/exe", error)),
        false => Ok(PathBuf::from(&spec.program)),
    }
}

/// The processor that this program and this kernel are for.
///
/// Errors: Io, Invalid (no program), Missing (they are for different ones).
pub fn architecture(program: &Path, kernel: &BuiltKernel) -> Result<Architecture> {
    let whole = fs::read(program).map_err(|error| Error::io("read what goes to the guest", program, error))?;
    let of_program = Architecture::of_program(&whole).ok_or_else(|| {
        Error::Invalid(format!(
            "{} is no program for a processor that guests can have: {}",
            program.display(),
            Architecture::legal()
        ))
    })?;
    match Architecture::of_image(&kernel.image)? {
        Some(of_kernel) if of_kernel != of_program => Err(Missing::new(
            format!("our program for {}", of_kernel.text()),
            format!("{} is for {}, and the kernel {} is not", program.display(), of_program.text(), kernel.name),
            format!(
                "build it by cargo build --release -p majorfault-lab --target {0}-unknown-linux-musl, which needs a linker for it \
                 (cargo-zigbuild has one), and name it: program=FILE in a place, --program FILE of kernel try",
                of_kernel.text()
            ),
        )
        .into()),
        _ => Ok(of_program),
    }
}

/// The archive with our program `own`, its libraries, the kernel's modules and the order, in a file without a name.
///
/// Errors: Io (no room, our own program cannot be read), Invalid (a program for another processor needs libraries).
pub fn archive(own: &Path, order: &Errand, modules: &[PathBuf], brought: &[PathBuf], into: File) -> Result<File> {
    let mut files = libraries(own)?;
    for program in brought {
        files.extend(libraries(program)?);
    }
    files.sort();
    files.dedup();
    let order =
        serde_json::to_vec(order).map_err(|why| Error::Invalid(format!("an order cannot be written: {why}")))?;
    let program = without_symbols(own)?;
    let read = |path: &Path| fs::read(path).map_err(|error| Error::io("read what goes to the guest", path, error));
    let modules = modules.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let brought = brought.iter().map(|path| Ok((path, read(path)?))).collect::<Result<Vec<_>>>()?;
    let write = || -> io::Result<File> {
        let mut archive = Archive::new(BufWriter::new(into));
        MOUNT_POINTS.iter().try_for_each(|dir| archive.directory(dir))?;
        archive.file("/init", &program)?;
        archive.file(ORDER, &order)?;
        for (number, module) in (0..).zip(modules) {
            archive.file(&format!("{MODULES}/{number:03}.ko"), &module)?;
        }
        for (file, bytes) in brought {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            archive.file(&format!("{BROUGHT}/{name}"), &bytes)?;
        }
        for library in files {
            archive.file(&library.to_string_lossy(), &fs::read(&library)?)?;
        }
        archive.end()?.into_inner().map_err(|error| error.into_error())
    };
    write().map_err(|error| Error::io("pack the program for the guest", own, error))
}

/// What the loader maps for a program, by the names that it looks for. None for a static one, and for what is no program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let whole = fs::read(program).map_err(|error| Error::io("read what goes to the guest", program, error))?;
    // Only the loader lists instead of starting.
    if !has_loader(&whole) {
        return Ok(Vec::new());
    }
    if Architecture::of_program(&whole) != Some(Architecture::HOST) {
        return Err(Error::Invalid(format!(
            "{} is for another processor and linked dynamically: its libraries are not here; link it statically \
             (--target aarch64-unknown-linux-musl)",
            program.display()
        )));
    }
    let listed = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| Error::io("list the libraries of a program", program, error))?;
    Ok(listed_libraries(&String::from_utf8_lossy(&listed.stdout)))
}

/// The paths in the loader's list: `name => /path (0x7f...)`, `/path (0x7f...)`.
fn listed_libraries(listed: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let (place, _) = line.trim().rsplit_once(" (0x")?;
        let path = place.rsplit_once(" => ").map_or(place, |(_, path)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    listed.lines().filter_map(path).collect()
}

/// The program's bytes without what only debuggers read: a debug build is ten times as large.
fn without_symbols(program: &Path) -> Result<Vec<u8>> {
    let whole = fs::read(program).map_err(|error| Error::io("read the own program", program, error))?;
    Ok(loaded_part(&whole).unwrap_or(whole))
}

/// The part of a 64-bit little-endian program that the kernel and the loader read: up to the end of its last segment,
/// with no table of sections (elf(5)). `None` where it is another kind of file.
fn loaded_part(whole: &[u8]) -> Option<Vec<u8>> {
    let segments = segments(whole)?;
    let end = segments.iter().map(|segment| segment.end).max()?;
    let mut part = whole.get(..end)?.to_vec();
    // e_shoff; e_shnum and e_shstrndx.
    part[40..48].fill(0);
    part[60..64].fill(0);
    Some(part)
}

/// Whether a program is started by a loader (ld.so).
fn has_loader(whole: &[u8]) -> bool {
    segments(whole).is_some_and(|segments| segments.iter().any(|segment| segment.kind == PT_INTERP))
}

/// The segment that names the loader.
const PT_INTERP: usize = 3;

/// A part of a program that is loaded, or tells how.
struct Segment {
    kind: usize,
    /// Where it ends in the file; its own entry in the table counts, too.
    end: usize,
}

fn segments(whole: &[u8]) -> Option<Vec<Segment>> {
    let field = |at: usize, length: usize| {
        let bytes = whole.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0usize, |value, byte| value << 8 | usize::from(*byte)))
    };
    if !whole.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    // e_phoff, e_phentsize, e_phnum; of each segment p_type, p_offset, p_filesz.
    let (table, entry, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    let segment = |number: usize| {
        let at = table + number * entry;
        let end = field(at + 8, 8)?.checked_add(field(at + 32, 8)?)?;
        Some(Segment { kind: field(at, 4)?, end: end.max(at + entry) })
    };
    (0..count).map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_loaders_list() {
        let listed = "\tlinux-vdso.so.1 (0x00007fc13e0d7000)\n\
                      \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007fc13dfc5000)\n\
                      \tlibgone.so => not found\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007fc13e0d9000)\n";

        let found = listed_libraries(listed);

        assert_eq!(found, [Path::new("/lib/x86_64-linux-gnu/libm.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]);
        assert_eq!(listed_libraries("majorfault 0.1.0 (abc)\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_program_still_runs_from_its_loaded_part() {
        let whole = fs::read("/bin/true").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");

        let part = loaded_part(&whole).unwrap();

        assert!(part.len() < whole.len(), "{} of {}", part.len(), whole.len());
        fs::copy("/bin/true", &path).unwrap();
        fs::write(&path, part).unwrap();
        assert!(Command::new(&path).status().unwrap().success());
        assert_eq!(loaded_part(b"#!/bin/sh\n"), None);
        assert_eq!(loaded_part(&whole[..50]), None);
    }

    #[test]
    fn a_program_linked_dynamically_needs_its_loader() {
        let shell = libraries(Path::new("/bin/sh")).unwrap();

        assert!(shell.iter().any(|path| path.to_string_lossy().contains("ld-")), "{shell:?}");
        assert!(shell.iter().all(|path| path.is_file()), "{shell:?}");
    }
}
