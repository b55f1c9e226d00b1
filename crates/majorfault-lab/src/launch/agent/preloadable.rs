//! Whether a program takes a preloaded library at all, said before it starts.

use elf::ElfStream;
use elf::abi::PT_INTERP;
use elf::endian::NativeEndian;
use majorfault::Missing;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Scripts name programs that may be scripts, as deep as the kernel follows them.
const DEEPEST: u32 = 5;

/// That the program in this file takes a library, as far as its file tells.
///
/// Errors: what is in the way. A file that cannot be looked at is none: its start will tell.
pub fn check(path: &Path) -> Result<(), Missing> {
    check_below(path, DEEPEST)
}

fn check_below(path: &Path, left: u32) -> Result<(), Missing> {
    if let Some(interpreter) = interpreter(path).filter(|_| left > 0) {
        return check_below(&interpreter, left - 1);
    }
    let missing = |what: &str, remedy: &str| {
        Missing::new("the agent within the program", format!("{} {what}", path.display()), remedy)
    };
    let from_outside = "run majorfault as root, or give it the right: setcap cap_sys_nice,cap_perfmon=ep majorfault";
    if changes_rights(path) {
        return Err(missing(
            "changes its user or rights when it starts, and then nothing is preloaded",
            "run majorfault as root",
        ));
    }
    let Some(file) = File::open(path).ok() else { return Ok(()) };
    let Ok(elf) = ElfStream::<NativeEndian, _>::open_stream(file) else {
        return if is_elf(path) { Err(missing("is for another processor", from_outside)) } else { Ok(()) };
    };
    let is_ours = elf.ehdr.e_machine == elf::abi::EM_X86_64 && elf.ehdr.class == elf::file::Class::ELF64;
    let is_dynamic = elf.segments().iter().any(|segment| segment.p_type == PT_INTERP);
    match () {
        () if !is_ours => Err(missing("is for another processor", from_outside)),
        () if !is_dynamic => Err(missing("is a static program, which loads no library", from_outside)),
        () => Ok(()),
    }
}

fn is_elf(path: &Path) -> bool {
    let mut first = [0; 4];
    File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut first)).is_ok()
        && first == *b"\x7fELF"
}

/// The program that a script names in its first line.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = File::open(path).ok()?;
    std::io::Read::take(BufReader::new(file), 256).read_until(b'\n', &mut line).ok()?;
    let text = std::str::from_utf8(line.strip_prefix(b"#!")?).ok()?;
    text.split_ascii_whitespace().next().map(PathBuf::from)
}

/// Whether the loader will distrust it: it becomes another user or group, or gets capabilities by its file.
fn changes_rights(path: &Path) -> bool {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let is_set = fs::metadata(path)
        .is_ok_and(|meta| becomes_another(meta.mode(), [meta.uid(), meta.gid()], [user.as_raw(), group.as_raw()]));
    is_set || !user.is_root() && rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok()
}

/// By a file's mode and owners, and ours.
fn becomes_another(mode: u32, owners: [u32; 2], ours: [u32; 2]) -> bool {
    mode & 0o4000 != 0 && owners[0] != ours[0] || mode & 0o2000 != 0 && owners[1] != ours[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_the_way(path: &Path) -> String {
        check(path).err().map_or(String::new(), |missing| missing.to_string())
    }

    /// A program that is its own headers: of this class and machine, with or without a loader.
    fn program(dir: &Path, class: u8, machine: u8, segment: u8) -> PathBuf {
        let mut bytes = vec![0; 64 + 56];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        (bytes[16], bytes[18], bytes[20]) = (3, machine, 1);
        // The table of segments: where, how large, one.
        (bytes[32], bytes[52], bytes[54], bytes[56]) = (64, 64, 56, 1);
        bytes[64] = segment;
        let path = dir.join(format!("program-{class}-{machine}-{segment}"));
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn dynamic_programs_take_it_and_static_and_foreign_ones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let told = |class, machine, segment| in_the_way(&program(dir.path(), class, machine, segment));

        assert_eq!(told(2, 62, 3), "");
        assert!(told(2, 62, 1).contains("static program"));
        assert!(told(2, 183, 3).contains("another processor"));
        assert_eq!(in_the_way(Path::new("/bin/sh")), "");
        assert_eq!(in_the_way(Path::new("/nowhere")), "");
    }

    #[test]
    fn a_script_is_as_the_program_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let fixed = program(dir.path(), 2, 62, 1);
        let script = dir.path().join("script");

        fs::write(&script, format!("#! {} -x\n", fixed.display())).unwrap();
        assert!(in_the_way(&script).contains("program-2-62-1 is a static program"));
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(in_the_way(&script), "");
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert_eq!(in_the_way(&script), "");
    }

    #[test]
    fn a_program_that_becomes_another_user_or_group_does_not_take_it() {
        assert!(becomes_another(0o104_755, [0, 5], [7, 5]) && becomes_another(0o102_755, [7, 0], [7, 5]));

        assert!(!becomes_another(0o104_755, [7, 0], [7, 5]) && !becomes_another(0o102_755, [0, 5], [7, 5]));
        assert!(!becomes_another(0o100_755, [0, 0], [7, 5]));
    }
}
