//! Kernels as Debian builds them: the package's image, and the few modules that a guest needs.

use crate::place::guest::filesystem::FileSystem;
use crate::place::guest::kernel::source::{Removed, candidate, done, download, made, only, said};
use crate::place::guest::kernel::{BuiltKernel, DESCRIPTION, root, trusted};
use majorfault::{Error, Missing, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a guest's disks and file systems need where it is not part of the image.
/// crc32c comes first: nothing names it, and ext4 does not begin without it.
const WANTED: &[&str] =
    &["crc32c_generic", "virtio_blk", "virtio_console", "virtio_pci", "ext4", "xfs", "virtio_pmem", "nd_pmem"];

/// Fetches a package with a kernel image, or the one that it stands for, and keeps it as a kernel for guests, unless it is there.
///
/// Errors: Missing (apt, no such package, a tool), Invalid (it holds no image), Io.
pub fn fetch(package: &str) -> Result<BuiltKernel> {
    let package = &image_of(package, &depends_on(package)?)?;
    let root = root();
    made(&root)?;
    trusted(&root)?;
    let version = candidate(package)?;
    let name = format!("{}-stock", package.trim_start_matches("linux-image-"));
    let home = root.join("kernels").join(&name);
    let source = format!("{package} {version}");
    let there =
        fs::read(home.join(DESCRIPTION)).ok().and_then(|text| serde_json::from_slice::<BuiltKernel>(&text).ok());
    let is_whole = |kernel: &BuiltKernel| of_file_systems().all(|name| kernel.more.contains_key(name));
    if let Some(kernel) = there.filter(|kernel| kernel.source == source && is_whole(kernel)) {
        return Ok(kernel);
    }
    let work = root.join(format!("fetching-{}", std::process::id()));
    let _clean = Removed(work.clone());
    made(&work)?;
    download(package, &version, &work)?;
    // Since 2026 image and modules have packages of their own.
    for part in parts(package)? {
        download(&part, &candidate(&part)?, &work)?;
    }
    let image = image(&work)?;
    made(&home.join("modules"))?;
    let (from, into) = (modules_dir(&work), home.join("modules"));
    let modules = modules(&from, &into, WANTED)?;
    let more = of_file_systems().map(|name| Ok((name.to_owned(), self::modules(&from, &into, &[name])?)));
    let more = more.collect::<Result<_>>()?;
    let built_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let kept = home.join("bzImage");
    let variant = "stock".to_owned();
    let kernel = BuiltKernel { name, variant, source, image: kept, built_unix_s, build_seconds: 0, modules, more };
    let text = serde_json::to_vec_pretty(&kernel).map_err(|why| Error::Invalid(why.to_string()))?;
    let keep = || fs::copy(&image, &kernel.image).and_then(|_| fs::write(home.join(DESCRIPTION), text));
    keep().map_err(|error| Error::io("keep the kernel", &home, error))?;
    Ok(kernel)
}

/// What a package depends on.
///
/// Errors: Missing (apt).
fn depends_on(package: &str) -> Result<Vec<String>> {
    let out = said("apt-cache", "apt", Command::new("apt-cache").args(["depends", package]))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned).collect())
}

/// The package with an image that this one stands for, or itself, by what it depends on.
///
/// Errors: Missing (no such package).
fn image_of(package: &str, depends: &[String]) -> Result<String> {
    match depends.iter().find(|name| name.starts_with("linux-image-")) {
        Some(meant) => Ok(meant.clone()),
        None if depends.is_empty() => {
            let remedy =
                "apt-get update; apt-cache search ^linux-image lists what there is: majorfault kernel fetch PACKAGE";
            Err(Missing::new(package, "apt knows no such package", remedy).into())
        }
        None => Ok(package.to_owned()),
    }
}

/// The packages that hold what a package with an image no longer holds itself.
fn parts(package: &str) -> Result<Vec<String>> {
    let is_part = |name: &String| ["linux-binary-", "linux-modules-"].iter().any(|begin| name.starts_with(begin));
    Ok(depends_on(package)?.into_iter().filter(is_part).collect())
}

/// Where modules lie in what was unpacked.
fn modules_dir(work: &Path) -> PathBuf {
    let old = work.join("lib/modules");
    if old.is_dir() { old } else { work.join("usr/lib/modules") }
}

/// The image in what was unpacked: in /boot, or since 2026 beside its modules.
fn image(work: &Path) -> Result<PathBuf> {
    let boot = work.join("boot");
    match boot.is_dir() {
        true => only(&boot, "", "vmlinuz"),
        false => only(&only(&modules_dir(work), "", "")?, "", "vmlinuz"),
    }
}

/// What some file system needs of a kernel.
fn of_file_systems() -> impl Iterator<Item = &'static str> {
    FileSystem::ALL.iter().flat_map(|kind| kind.making().modules.iter().copied())
}

/// Unpacks those wanted, each after what it depends on, into `into`; in the order in which they are loaded.
fn modules(from: &Path, into: &Path, wanted: &[&str]) -> Result<Vec<PathBuf>> {
    let mut unpacking = Unpacking { files: files(from), into, seen: BTreeSet::new(), order: Vec::new() };
    wanted.iter().try_for_each(|name| unpacking.with_those_below(name))?;
    Ok(unpacking.order)
}

/// Modules on their way out of a package.
struct Unpacking<'a> {
    files: BTreeMap<String, PathBuf>,
    into: &'a Path,
    seen: BTreeSet<String>,
    order: Vec<PathBuf>,
}

impl Unpacking<'_> {
    fn with_those_below(&mut self, name: &str) -> Result<()> {
        // One that is part of the image has no file.
        let Some(file) = self.files.get(name).cloned() else { return Ok(()) };
        if !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let unpacked = unpack(&file, self.into)?;
        let bytes = fs::read(&unpacked).map_err(|error| Error::io("read a module", &file, error))?;
        depends(&bytes).iter().try_for_each(|below| self.with_those_below(below))?;
        self.order.push(unpacked);
        Ok(())
    }
}

/// The files of modules below a directory, by the name that others depend on.
fn files(dir: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().replace('-', "_"));
            match name.split_once(".ko") {
                _ if path.is_dir() => open.push(path),
                Some((name, _)) => drop(found.insert(name.to_owned(), path)),
                None => {}
            }
        }
    }
    found
}

/// A module as it is loaded.
fn unpack(file: &Path, into: &Path) -> Result<PathBuf> {
    let name = file.file_name().unwrap_or_default();
    let copy = into.join(name);
    fs::copy(file, &copy).map_err(|error| Error::io("keep a module", &copy, error))?;
    match copy.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => done("xz", "xz-utils", Command::new("xz").args(["-d", "-f"]).arg(&copy))?,
        Some("zst") => done("zstd", "zstd", Command::new("zstd").args(["-d", "-f", "-q", "--rm"]).arg(&copy))?,
        _ => return Ok(copy),
    }
    Ok(copy.with_extension(""))
}

/// The names in a module's `depends=` (a text in its section .modinfo).
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else { return Vec::new() };
    let text = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(text).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_content_stands_for_the_one_with_the_image() {
        let of = |package: &str, depends: &[&str]| {
            image_of(package, &depends.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };

        assert_eq!(of("linux-image-amd64", &["linux-image-6.1.0-56-amd64"]).unwrap(), "linux-image-6.1.0-56-amd64");
        assert_eq!(of("linux-image-6.1.0-56-amd64", &["kmod", "linux-base"]).unwrap(), "linux-image-6.1.0-56-amd64");
        assert!(matches!(of("linux-image-none", &[]), Err(Error::Missing(_))));
    }

    #[test]
    fn an_image_is_found_in_old_and_new_packages() {
        let image_of = |path: &str| {
            let work = tempfile::tempdir().unwrap();
            let file = work.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            image(work.path()).unwrap() == file
        };

        assert!(image_of("boot/vmlinuz-6.12.1-amd64"));
        assert!(image_of("usr/lib/modules/7.2.13-amd64/vmlinuz"));
    }

    /// A tree of modules: name and what it depends on.
    fn tree(modules: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("6.12/kernel/drivers")).unwrap();
        for (name, depends) in modules {
            let text = format!("\x7fELF\0license=GPL\0depends={depends}\0name=x\0");
            fs::write(dir.path().join(format!("6.12/kernel/drivers/{name}.ko")), text).unwrap();
        }
        dir
    }

    fn loaded(modules_of: &[(&str, &str)]) -> Vec<String> {
        let (from, into) = (tree(modules_of), tempfile::tempdir().unwrap());
        let order = modules(from.path(), into.path(), WANTED).unwrap();
        order.iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_module_comes_after_all_that_it_depends_on() {
        let order = loaded(&[
            ("nd_pmem", "libnvdimm,nd-btt"),
            ("nd-btt", "libnvdimm"),
            ("libnvdimm", ""),
            ("virtio_blk", ""),
            ("sound", ""),
        ]);

        assert_eq!(order, ["virtio_blk", "libnvdimm", "nd-btt", "nd_pmem"]);
    }

    #[test]
    fn what_is_part_of_the_image_is_no_module() {
        assert_eq!(loaded(&[("xfs", "libcrc32c,built_in"), ("libcrc32c", "")]), ["libcrc32c", "xfs"]);
        assert_eq!(loaded(&[]), Vec::<String>::new());
    }
}
