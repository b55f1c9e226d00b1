//! What a kernel is built from: a source, a fragment of configuration, patches; and the hash of these.

use majorfault::{Error, Result};

/// Options on top of `make tinyconfig`.
pub const FRAGMENT: &str = include_str!("../../../../../../kernel/config/guest.config");

/// A patch of `kernel/series/`, name and text.
macro_rules! patch {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../../../kernel/series/", $name)))
    };
}

/// The patches of `kernel/series/`, in order.
pub const SERIES: &[(&str, &str)] = &[
    patch!("0001-mm-add-MADV_STRIDED.patch"),
    patch!("0002-mm-filemap-read-ahead-by-the-stride.patch"),
    patch!("0003-mm-count.patch"),
    patch!("0004-mm-filemap-trace.patch"),
    patch!("0005-Documentation.patch"),
    patch!("0006-selftests-mm.patch"),
];

/// Options on top of [`FRAGMENT`] for a kernel that checks itself.
pub const CHECKING: &str = include_str!("../../../../../../kernel/config/debug.config");

/// Patches on top of the series that ask a question and are not part of it.
pub const AUTOMATIC: &[(&str, &str)] =
    &[("automatic.patch", include_str!("../../../../../../kernel/experiments/automatic.patch"))];

/// The option that the patches bring.
pub const STRIDED_OPTION: &str = "CONFIG_STRIDED_READAHEAD=y\n";

/// Which patches and options a kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// No patches: Debian's source as it is
    Plain,
    /// The series: read-ahead for strided mappings (MADV_STRIDED)
    Strided,
    /// The series in a kernel that checks itself: KASAN, lockdep, assertions
    StridedDebug,
    /// An experiment on top of the series: strides are learned without the advice, too
    StridedAuto,
}

impl Variant {
    /// Each of them.
    pub const ALL: &'static [Variant] =
        &[Variant::Plain, Variant::Strided, Variant::StridedDebug, Variant::StridedAuto];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Plain => "plain",
            Variant::Strided => "strided",
            Variant::StridedDebug => "strided-debug",
            Variant::StridedAuto => "strided-auto",
        }
    }

    /// The variant of this name; what there is, where it is none.
    pub fn read(name: &str) -> std::result::Result<Variant, String> {
        let names: Vec<&str> = Variant::ALL.iter().map(|variant| variant.name()).collect();
        Variant::named(name).ok_or_else(|| format!("\"{name}\" is none; legal are {}", names.join(", ")))
    }

    /// The variant of this name.
    pub fn named(name: &str) -> Option<Variant> {
        Variant::ALL.iter().copied().find(|variant| variant.name() == name)
    }
}

/// What one kernel is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The source's version, as its package has it.
    pub version: String,
    /// Which patches.
    pub variant: Variant,
    /// Options on top of `make tinyconfig`.
    pub config: String,
    /// The patches: name and text.
    pub patches: Vec<(String, String)>,
}

impl Recipe {
    /// The recipe of a variant for a source of this version.
    pub fn of(version: &str, variant: Variant) -> Recipe {
        let (config, patches) = match variant {
            Variant::Plain => (FRAGMENT.to_owned(), Vec::new()),
            Variant::Strided => (format!("{FRAGMENT}{STRIDED_OPTION}"), SERIES.to_vec()),
            Variant::StridedDebug => (format!("{FRAGMENT}{STRIDED_OPTION}{CHECKING}"), SERIES.to_vec()),
            Variant::StridedAuto => (format!("{FRAGMENT}{STRIDED_OPTION}"), [SERIES, AUTOMATIC].concat()),
        };
        let patches = patches.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        Recipe { version: version.to_owned(), variant, config, patches }
    }

    /// What the build is called: `6.12.117-1-strided-91b5f0c3a2d4e6f8`.
    pub fn name(&self) -> String {
        // Debian marks security and backport builds after a plus or a tilde.
        let version = self.version.split(['~', '+']).next().unwrap_or_default();
        format!("{version}-{}-{:016x}", self.variant.name(), self.hash())
    }

    /// A hash of all of it: another source, option or patch is another build.
    fn hash(&self) -> u64 {
        let Recipe { version, variant, config, patches } = self;
        let mut parts = vec![version.as_str(), variant.name(), config];
        parts.extend(patches.iter().flat_map(|(name, text)| [name.as_str(), text]));
        // A length before each part, so that what ends one cannot begin the next.
        parts.iter().fold(FNV_OFFSET, |hash, part| fnv(fnv(hash, &part.len().to_le_bytes()), part.as_bytes()))
    }
}

/// Offset basis of FNV-1a, 64 bits (draft-eastlake-fnv).
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The options that a fragment asks for and a finished configuration does not have.
///
/// A dependency that is not met drops an option in silence; the guest would lack it much later.
pub fn dropped(fragment: &str, finished: &str) -> Vec<String> {
    let has = |line: &str| finished.lines().any(|other| other == line);
    let is_set = |name: &str| finished.lines().any(|other| other.starts_with(&format!("{name}=")));
    let is_dropped = |line: &&str| match line.strip_prefix("# ").and_then(|rest| rest.strip_suffix(" is not set")) {
        Some(name) => is_set(name),
        None => line.starts_with("CONFIG_") && !has(line),
    };
    fragment.lines().map(str::trim_end).filter(is_dropped).map(str::to_owned).collect()
}

/// Fails where an option was dropped, naming each.
///
/// Errors: Invalid.
pub fn check(fragment: &str, finished: &str) -> Result<()> {
    let dropped = dropped(fragment, finished);
    if dropped.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "this source does not let itself be configured as guests need it: {} did not stay; \
         its name or what it depends on differs in this version (see kernel/config/guest.config)",
        dropped.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_hash_is_of_source_config_and_patches() {
        let base = Recipe::of("6.12.117-1~deb12u1", Variant::Strided);
        let mut others = vec![base.clone(); 5];
        others[0].version = "6.12.118-1~deb12u1".to_owned();
        others[1].variant = Variant::Plain;
        others[2].config.push('\n');
        others[3].patches.push(("9999-more.patch".to_owned(), String::new()));
        others[4].patches.insert(0, ("a".to_owned(), "b".to_owned()));

        let names: BTreeSet<String> = others.iter().chain([&base]).map(Recipe::name).collect();

        assert_eq!(names.len(), 6, "{names:?}");
        assert!(base.name().starts_with("6.12.117-1-strided-"), "{}", base.name());
        assert_eq!(base.name(), Recipe::of("6.12.117-1~deb12u1", Variant::Strided).name());
    }

    #[test]
    fn the_end_of_one_patch_is_not_the_beginning_of_the_next() {
        let with = |patches: &[(&str, &str)]| {
            let patches = patches.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            Recipe { patches, ..Recipe::of("6.12", Variant::Plain) }.hash()
        };

        assert_ne!(with(&[("ab", "c")]), with(&[("a", "bc")]));
        assert_ne!(with(&[("a", ""), ("b", "")]), with(&[("a", "b")]));
    }

    #[test]
    fn an_option_that_did_not_stay_is_named() {
        let fragment = "# about\nCONFIG_SMP=y\nCONFIG_NR_CPUS=64\n# CONFIG_SLUB_TINY is not set\n";

        assert_eq!(dropped(fragment, "CONFIG_SMP=y\nCONFIG_NR_CPUS=64\n"), Vec::<String>::new());
        assert_eq!(dropped(fragment, "CONFIG_NR_CPUS=64\n# CONFIG_SMP is not set\n"), ["CONFIG_SMP=y"]);
        assert_eq!(dropped(fragment, "CONFIG_SMP=y\nCONFIG_NR_CPUS=8\n"), ["CONFIG_NR_CPUS=64"]);
        let kept = "CONFIG_SMP=y\nCONFIG_NR_CPUS=64\nCONFIG_SLUB_TINY=y\n";
        assert_eq!(dropped(fragment, kept), ["# CONFIG_SLUB_TINY is not set"]);
        assert!(check(fragment, "").unwrap_err().to_string().contains("CONFIG_SMP=y, CONFIG_NR_CPUS=64 did not stay"));
    }

    #[test]
    fn the_fragment_has_every_line_in_a_form_that_is_checked() {
        for line in FRAGMENT.lines().chain(CHECKING.lines()).filter(|line| !line.is_empty()) {
            let is_option = line.starts_with("CONFIG_") && line.contains('=');
            let is_off = line.starts_with("# CONFIG_") && line.ends_with(" is not set");
            let is_comment = line.starts_with("# ") && !line.starts_with("# CONFIG_");
            assert!(is_option || is_off || is_comment, "{line}");
        }
    }

    #[test]
    fn every_patch_of_the_folder_is_in_the_series_in_its_order() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/series");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".patch") && !name.starts_with("0000-"))
            .collect();
        files.sort();

        assert_eq!(SERIES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), files);
    }
}
