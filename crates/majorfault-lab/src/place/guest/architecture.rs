//! Processors that guests may have, and what QEMU has for each.

use majorfault::{Error, Missing, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

majorfault::choices! {
    /// A processor.
    pub enum Architecture {
        /// 64-bit x86.
        X86_64 = "x86_64",
        /// 64-bit ARM.
        Aarch64 = "aarch64",
    }
}

/// What is different for guests with another processor.
pub struct GuestMachine {
    /// QEMU's program.
    pub program: &'static str,
    /// The package that has it.
    pub package: &'static str,
    /// The board.
    pub board: &'static str,
    /// The processor where it is emulated: with all that QEMU knows and that is not slow.
    pub emulated: &'static str,
    /// Arguments of its kernel: the console, and time from the counter without calibration.
    pub kernel: &'static str,
    /// Where its images of kernels have a magic number, and which.
    pub magic: (u64, &'static [u8; 4]),
    /// What such an image is called.
    pub image: &'static str,
    /// The number in its programs (e_machine of elf(5)).
    elf: u16,
}

impl Architecture {
    /// This machine's.
    pub const HOST: Architecture =
        if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 };

    /// What is different with it.
    pub const fn machine(self) -> &'static GuestMachine {
        match self {
            Architecture::X86_64 => &GuestMachine {
                program: "qemu-system-x86_64",
                package: "qemu-system-x86",
                board: "q35",
                emulated: "max",
                kernel: "console=ttyS0 tsc=reliable",
                magic: (0x202, b"HdrS"),
                image: "a bzImage for x86",
                elf: 62,
            },
            Architecture::Aarch64 => &GuestMachine {
                program: "qemu-system-aarch64",
                package: "qemu-system-arm",
                board: "virt,gic-version=3",
                emulated: "max,pauth-impdef=on",
                kernel: "console=ttyAMA0",
                magic: (0x38, b"ARM\x64"),
                image: "an Image for 64-bit ARM",
                elf: 183,
            },
        }
    }

    /// That of a program, by its first bytes; `None` for a script, and for a processor that we have no guests for.
    pub fn of_program(program: &[u8]) -> Option<Architecture> {
        let number = program.get(18..20).filter(|_| program.starts_with(b"\x7fELF\x02\x01"))?;
        let number = u16::from_le_bytes([number[0], number[1]]);
        Architecture::ALL.iter().copied().find(|it| it.machine().elf == number)
    }

    /// That of a kernel's image at this path; `None` where it is none that we know.
    ///
    /// Errors: Io.
    pub fn of_image(path: &Path) -> Result<Option<Architecture>> {
        let unread = |error| Error::io("open the kernel's image", path, error);
        let file = File::open(path).map_err(|error| unread(error).with_remedy("majorfault kernel list has names"))?;
        let is_it = |it: &Architecture| {
            let (at, magic) = it.machine().magic;
            let mut found = [0; 4];
            file.read_exact_at(&mut found, at).is_ok() && found == *magic
        };
        Ok(Architecture::ALL.iter().copied().find(is_it))
    }

    /// The version of QEMU that emulates it.
    ///
    /// Errors: why there is none, with the package.
    pub fn emulator(self) -> std::result::Result<String, Missing> {
        let GuestMachine { program, package, .. } = self.machine();
        let out = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
        out.map(|out| String::from_utf8_lossy(&out.stdout).lines().next().unwrap_or_default().to_owned()).map_err(
            |error| {
                let reason = match error.kind() {
                    std::io::ErrorKind::NotFound => format!("{program} is not installed"),
                    _ => format!("{program} does not start: {error}"),
                };
                Missing::new("guests", reason, format!("apt-get install {package}"))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use majorfault::params::Value;

    fn program(number: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(number.to_le_bytes());
        bytes
    }

    #[test]
    fn a_program_says_its_processor() {
        assert_eq!(Architecture::of_program(&std::fs::read("/proc/self/exe").unwrap()), Some(Architecture::HOST));
        assert_eq!(Architecture::of_program(&program(62)), Some(Architecture::X86_64));
        assert_eq!(Architecture::of_program(&program(183)), Some(Architecture::Aarch64));
        assert_eq!(Architecture::of_program(&program(243)), None);
        assert_eq!(Architecture::of_program(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn an_image_says_its_processor() {
        let dir = tempfile::tempdir().unwrap();
        for it in Architecture::ALL {
            let (at, magic) = it.machine().magic;
            let path = dir.path().join(it.text());
            let mut image = vec![0; at as usize];
            image.extend(magic);
            std::fs::write(&path, &image).unwrap();
            assert_eq!(Architecture::of_image(&path).unwrap(), Some(*it));
            std::fs::write(&path, &image[..image.len() - 1]).unwrap();
            assert_eq!(Architecture::of_image(&path).unwrap(), None);
        }
    }
}
