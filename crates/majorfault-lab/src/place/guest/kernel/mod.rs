//! Kernels for guests: what was built here, by name; how one is built.
//!
//! Everything lies below one directory: `sources/` (Debian's, as fetched and as patched), `kernels/NAME/` (image, configuration,
//! log, and `kernel.json`). A build is named by the hash of what went into it, and is not repeated.

mod build;
mod each;
mod recipe;
mod source;
mod stock;

pub use build::{Progress, build};
pub use each::each_patch;
pub use recipe::Variant;
pub use stock::fetch;

use crate::place::guest::architecture::Architecture;
use majorfault::{Error, Missing, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The variable that names another directory than the default one.
pub const ROOT: &str = "MAJORFAULT_KERNELS";

/// Name of a kernel's description beside its image.
const DESCRIPTION: &str = "kernel.json";

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltKernel {
    /// Its name: source, variant, hash.
    pub name: String,
    /// Which patches it has.
    pub variant: String,
    /// The source's package and version.
    pub source: String,
    /// The image.
    pub image: PathBuf,
    /// Seconds since 1970 when it was built.
    pub built_unix_s: u64,
    /// How long that took.
    pub build_seconds: u64,
    /// Modules that the first process loads, in order.
    #[serde(default)]
    pub modules: Vec<PathBuf>,
    /// Those that a file system needs beside them, by name, each with what it depends on before it.
    #[serde(default)]
    pub more: BTreeMap<String, Vec<PathBuf>>,
}

impl BuiltKernel {
    /// What the first process loads in a guest that needs these, too, in order.
    pub fn loads(&self, needed: &[&str]) -> Vec<PathBuf> {
        let more = needed.iter().filter_map(|name| self.more.get(*name)).flatten();
        let mut all: Vec<PathBuf> = Vec::new();
        for module in self.modules.iter().chain(more) {
            if !all.contains(module) {
                all.push(module.clone());
            }
        }
        all
    }
}

impl BuiltKernel {
    /// The series' own test, built with the kernel; `None` for kernels without the series.
    pub fn selftest(&self) -> Option<PathBuf> {
        Some(self.image.with_file_name("madv_strided")).filter(|path| path.is_file())
    }
}

/// The directory that everything lies below: a disk's, because a source takes gigabytes.
pub fn root() -> PathBuf {
    let set = std::env::var_os(ROOT).filter(|value| !value.is_empty());
    set.map_or_else(|| PathBuf::from("/var/tmp/majorfault-kernel"), PathBuf::from)
}

/// Fails where others could have put something below `root`: what lies there is run by make(1), perhaps as root. One that is
/// not there yet is nobody's.
///
/// Errors: Invalid, with what to do.
pub fn trusted(root: &Path) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(root) else { return Ok(()) };
    let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid());
    match meta.is_dir() && is_ours && meta.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "{} is not a directory of yours or root's alone, so that others could change kernels in it; name another directory \
             with {ROOT}",
            root.display()
        ))),
    }
}

/// The kernels built here, the latest first.
///
/// Errors: as [`trusted`].
pub fn list() -> Result<Vec<BuiltKernel>> {
    let root = root();
    trusted(&root)?;
    Ok(list_in(&root))
}

fn list_in(root: &Path) -> Vec<BuiltKernel> {
    let dirs = fs::read_dir(root.join("kernels")).into_iter().flatten().flatten();
    let read = |dir: fs::DirEntry| serde_json::from_slice(&fs::read(dir.path().join(DESCRIPTION)).ok()?).ok();
    let mut kernels: Vec<BuiltKernel> =
        dirs.filter_map(read).filter(|kernel: &BuiltKernel| kernel.image.is_file()).collect();
    kernels.sort_by_key(|kernel| std::cmp::Reverse((kernel.built_unix_s, kernel.name.clone())));
    kernels
}

/// The kernel of this name; the latest of this variant; or the image at this path.
///
/// Errors: Missing, with the command that builds it; Invalid where the file is no image.
pub fn named(text: &str) -> Result<BuiltKernel> {
    named_in(&root(), text)
}

fn named_in(root: &Path, text: &str) -> Result<BuiltKernel> {
    if text.contains('/') {
        return at_path(Path::new(text));
    }
    trusted(root)?;
    let kernels = list_in(root);
    // A variant is one for this machine's processor: those for others are meant by their names.
    let is_for_us = |kernel: &BuiltKernel| {
        Architecture::of_image(&kernel.image).ok().flatten().is_none_or(|it| it == Architecture::HOST)
    };
    let is_it = |kernel: &&BuiltKernel| kernel.name == text || (kernel.variant == text && is_for_us(kernel));
    let found = kernels.iter().find(is_it);
    found.cloned().ok_or_else(|| Error::Missing(missing(text, &kernels)))
}

fn missing(text: &str, kernels: &[BuiltKernel]) -> Missing {
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let here =
        if names.is_empty() { "none is built here".to_owned() } else { format!("here are {}", names.join(", ")) };
    let remedy = match Variant::named(text) {
        _ if text == "stock" => "majorfault kernel fetch".to_owned(),
        Some(variant) => format!("majorfault kernel build {}", variant.name()),
        None => "majorfault kernel build plain, or the path of an image after kernel=".to_owned(),
    };
    Missing::new(format!("kernel \"{text}\""), here, remedy)
}

fn at_path(path: &Path) -> Result<BuiltKernel> {
    if Architecture::of_image(path)?.is_none() {
        let legal: Vec<&str> = Architecture::ALL.iter().map(|it| it.machine().image).collect();
        return Err(Error::Invalid(format!("{} is no kernel image ({})", path.display(), legal.join(", or "))));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(BuiltKernel {
        name,
        variant: "unknown".to_owned(),
        source: path.display().to_string(),
        image: path.to_owned(),
        built_unix_s: 0,
        build_seconds: 0,
        modules: Vec::new(),
        more: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a built kernel for each name, variant and time.
    fn with(kernels: &[(&str, &str, u64)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, variant, built_unix_s) in kernels {
            let dir = root.path().join("kernels").join(name);
            fs::create_dir_all(&dir).unwrap();
            let image = dir.join("bzImage");
            fs::write(&image, "").unwrap();
            let kernel = BuiltKernel {
                name: (*name).to_owned(),
                variant: (*variant).to_owned(),
                source: "linux-source 6.12".to_owned(),
                image,
                built_unix_s: *built_unix_s,
                build_seconds: 300,
                modules: Vec::new(),
                more: BTreeMap::new(),
            };
            fs::write(dir.join(DESCRIPTION), serde_json::to_vec(&kernel).unwrap()).unwrap();
        }
        root
    }

    #[test]
    fn a_variant_is_for_this_processor_and_a_name_for_any() {
        let root = with(&[("6.12-ours", "stock", 5), ("6.12-theirs", "stock", 9)]);
        let other = Architecture::ALL.iter().find(|it| **it != Architecture::HOST).unwrap();
        let (at, magic) = other.machine().magic;
        let image = [vec![0; at as usize], magic.to_vec()].concat();
        fs::write(root.path().join("kernels/6.12-theirs/bzImage"), image).unwrap();

        assert_eq!(named_in(root.path(), "stock").unwrap().name, "6.12-ours");
        assert_eq!(named_in(root.path(), "6.12-theirs").unwrap().name, "6.12-theirs");
    }

    #[test]
    fn a_variant_means_its_latest_build() {
        let root =
            with(&[("6.12-plain-a", "plain", 5), ("6.12-plain-b", "plain", 9), ("6.12-strided-c", "strided", 7)]);

        let name = |text: &str| named_in(root.path(), text).unwrap().name;

        assert_eq!(name("plain"), "6.12-plain-b");
        assert_eq!(name("6.12-plain-a"), "6.12-plain-a");
        assert_eq!(name("strided"), "6.12-strided-c");
    }

    #[test]
    fn a_kernel_that_is_not_here_is_missing_with_the_command_that_builds_it() {
        let root = with(&[("6.12-plain-a", "plain", 5)]);

        let error = named_in(root.path(), "strided").unwrap_err().to_string();

        assert!(error.contains("here are 6.12-plain-a"), "{error}");
        assert!(error.contains("majorfault kernel build strided"), "{error}");
    }

    #[test]
    fn a_directory_that_others_may_change_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = with(&[("6.12-plain-a", "plain", 5)]);
        let refused = |path: &Path| named_in(path, "plain").is_err_and(|error| error.to_string().contains(ROOT));
        let open_to = |mode: u32| fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
        let link = tempfile::tempdir().unwrap();
        symlink(root.path(), link.path().join("link")).unwrap();

        open_to(0o755);
        assert!(named_in(root.path(), "plain").is_ok());
        assert!(refused(&link.path().join("link")), "a link");
        for mode in [0o775, 0o757] {
            open_to(mode);
            assert!(refused(root.path()), "{mode:o}");
        }
        assert!(trusted(&root.path().join("not-there")).is_ok());
        if rustix::process::geteuid().is_root() {
            open_to(0o755);
            std::os::unix::fs::chown(root.path(), Some(65534), None).unwrap();
            assert!(refused(root.path()), "somebody else's");
        }
    }

    #[test]
    fn a_module_that_two_file_systems_need_is_loaded_once_and_after_what_it_depends_on() {
        let [base, below, over] = ["virtio", "crc", "btrfs"].map(PathBuf::from);
        let root = with(&[("a", "stock", 1)]);
        let more = BTreeMap::from([
            ("crc".to_owned(), vec![base.clone(), below.clone()]),
            ("btrfs".to_owned(), vec![below.clone(), over.clone()]),
        ]);
        let kernel = BuiltKernel { modules: vec![base.clone()], more, ..named_in(root.path(), "a").unwrap() };

        assert_eq!(kernel.loads(&["crc", "btrfs", "part_of_the_image"]), [base.clone(), below, over]);
        assert_eq!(kernel.loads(&[]), [base]);
    }

    #[test]
    fn one_whose_image_is_gone_is_not_listed() {
        let root = with(&[("6.12-plain-a", "plain", 5)]);
        fs::remove_file(root.path().join("kernels/6.12-plain-a/bzImage")).unwrap();

        assert_eq!(list_in(root.path()), []);
    }

    #[test]
    fn a_file_that_is_no_image_is_refused() {
        for path in ["/etc/hostname", "/bin/sh"] {
            let error = named(path).unwrap_err().to_string();

            assert!(error.contains(&format!("{path} is no kernel image")), "{error}");
        }
    }
}
