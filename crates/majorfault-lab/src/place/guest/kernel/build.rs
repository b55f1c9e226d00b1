//! Builds a kernel from its recipe: source, patches, `make tinyconfig` and the fragment, `make bzImage`.

use crate::place::guest::kernel::recipe::{self, Recipe, Variant};
use crate::place::guest::kernel::{BuiltKernel, DESCRIPTION, root, source, trusted};
use crate::scratch;
use majorfault::{Bytes, Error, Missing, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What is needed to build, with the package that has it.
const TOOLS: &[(&str, &str)] =
    &[("make", "make"), ("gcc", "gcc"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc"), ("perl", "perl")];

/// A header that the kernel's own tools are built with; no program tells of it.
const LIBELF: (&str, &str) = ("/usr/include/libelf.h", "libelf-dev");

/// Disk space for a source, a patched one, and the objects of one build.
const ROOM: Bytes = Bytes::gib(4);

/// Where objects go, below the source: then the compiler is told no path of ours, and ccache(1) finds what another variant
/// compiled.
const OBJECTS: &str = "objects";

/// The series' own test, where it is in the source and what it is called beside the image.
const SELFTEST: (&str, &str) = ("tools/testing/selftests/mm", "madv_strided");

/// Lines of the log that an error shows.
const LAST_LINES: usize = 15;

/// What a build tells while it runs.
pub trait Progress {
    /// A step begins.
    fn step(&self, name: &str);
    /// So many files are compiled.
    fn compiled(&self, count: u64);
}

/// The kernel of this variant from Debian's `package`, built unless it is there. `jobs` compilers run at once.
///
/// Errors: Missing (tools, package), Invalid (no room, a patch or option that does not fit, a compiler's error with the log's last
/// lines, the user's stop), Io.
pub fn build(
    package: &str,
    variant: Variant,
    jobs: u32,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<BuiltKernel> {
    let root = root();
    trusted(&root)?;
    let version = source::candidate(package)?;
    let recipe = Recipe::of(&version, variant);
    let home = root.join("kernels").join(recipe.name());
    if let Ok(Ok(kernel)) = fs::read(home.join(DESCRIPTION)).map(|text| serde_json::from_slice(&text)) {
        return Ok(kernel);
    }
    tools()?;
    source::made(&root)?;
    // Again: it may have come meanwhile. From now on nobody else can put another in its place.
    trusted(&root)?;
    scratch::directory(Some(&root), ROOM)?;
    progress.step("fetching the source");
    let source = source::fetch(package, &version, &root)?;
    progress.step("applying the patches");
    let dir = source::patched(&source, &recipe, &root)?;
    let began = Instant::now();
    let work = Work::new(&root, dir, stop)?;
    progress.step("configuring");
    work.configure(&recipe)?;
    progress.step("compiling");
    work.compile(jobs, &[], &["bzImage"], progress)?;
    source::made(&home)?;
    if work.has_selftest() {
        progress.step("compiling the test");
        work.selftest(&home)?;
    }
    let built_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let kernel = BuiltKernel {
        name: recipe.name(),
        variant: variant.name().to_owned(),
        source: format!("{package} {}", source.version),
        image: home.join("bzImage"),
        built_unix_s,
        build_seconds: began.elapsed().as_secs(),
        modules: Vec::new(),
        more: Default::default(),
    };
    work.keep(&home, &kernel)?;
    Ok(kernel)
}

/// Whether a program of this name can be started.
fn is_here(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).is_file())
}

/// Whether everything is here that a build needs; all that is not, in one sentence.
pub(super) fn tools() -> Result<()> {
    let mut lacking: Vec<(&str, &str)> = TOOLS.iter().copied().filter(|(tool, _)| !is_here(tool)).collect();
    if !Path::new(LIBELF.0).exists() {
        lacking.push(LIBELF);
    }
    lacking_tools(&lacking).map_or(Ok(()), |missing| Err(missing.into()))
}

fn lacking_tools(lacking: &[(&str, &str)]) -> Option<Missing> {
    let names: Vec<&str> = lacking.iter().map(|(tool, _)| *tool).collect();
    let packages: Vec<&str> = lacking.iter().map(|(_, package)| *package).collect();
    (!lacking.is_empty()).then(|| {
        let reason = format!("{} not installed", names.join(", "));
        Missing::new("building kernels", reason, format!("apt-get install {}", packages.join(" ")))
    })
}

/// A build that is under way.
pub(super) struct Work<'a> {
    /// Where objects go.
    dir: PathBuf,
    source: PathBuf,
    /// Where ccache(1) keeps what it has, if it is here.
    cache: Option<PathBuf>,
    stop: &'a AtomicBool,
}

impl Work<'_> {
    /// A build of the source in this directory.
    pub(super) fn new<'a>(root: &Path, source: PathBuf, stop: &'a AtomicBool) -> Result<Work<'a>> {
        let work =
            Work { dir: source.join(OBJECTS), source, cache: is_here("ccache").then(|| root.join("ccache")), stop };
        source::made(&work.dir)?;
        Ok(work)
    }

    fn make(&self, jobs: u32, targets: &[&str]) -> Command {
        let mut make = Command::new("make");
        make.arg("-C").arg(&self.source).arg(format!("O={}", self.dir.display())).arg(format!("-j{jobs}"));
        // The same source gives the same image, whoever builds it and when.
        make.args(["KBUILD_BUILD_USER=majorfault", "KBUILD_BUILD_HOST=guest", "KBUILD_BUILD_TIMESTAMP=@0", "LC_ALL=C"]);
        if let Some(cache) = &self.cache {
            make.arg("CC=ccache gcc").env("CCACHE_DIR", cache);
        }
        make.args(targets).stdin(Stdio::null());
        make
    }

    fn configure(&self, recipe: &Recipe) -> Result<()> {
        recipe::check(&recipe.config, &self.configured(&recipe.config)?)
    }

    /// The configuration that comes of these options on top of the least one.
    pub(super) fn configured(&self, options: &str) -> Result<String> {
        self.quiet(self.make(1, &["tinyconfig"]))?;
        let config = self.dir.join(".config");
        let add = || File::options().append(true).open(&config)?.write_all(options.as_bytes());
        add().map_err(|error| Error::io("add options to the configuration", &config, error))?;
        self.quiet(self.make(1, &["olddefconfig"]))?;
        fs::read_to_string(&config).map_err(|error| Error::io("read the configuration", &config, error))
    }

    fn quiet(&self, mut make: Command) -> Result<()> {
        let out = make.output().map_err(|error| Error::io("start make", &self.source, error))?;
        match out.status.success() {
            true => Ok(()),
            false => Err(failed("make", &String::from_utf8_lossy(&out.stderr))),
        }
    }

    /// Whether the source has the series' own test.
    pub(super) fn has_selftest(&self) -> bool {
        self.source.join(SELFTEST.0).join(format!("{}.c", SELFTEST.1)).is_file()
    }

    /// Compiles the series' own test into the directory, so that it needs nothing of the guest.
    pub(super) fn selftest(&self, into: &Path) -> Result<()> {
        self.quiet(self.make(1, &["headers"]))?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-static", "-O2", "-Wall", "-Werror", "-pthread", "-isystem"]).arg(self.dir.join("usr/include"));
        gcc.arg("-isystem").arg(self.source.join("tools/include/uapi")).arg("-o").arg(into.join(SELFTEST.1));
        gcc.args([format!("{}.c", SELFTEST.1).as_str(), "vm_util.c"]).current_dir(self.source.join(SELFTEST.0));
        source::done("gcc", "gcc libc6-dev", &mut gcc)
    }

    /// Makes the targets with these variables, each line into the log.
    pub(super) fn compile(
        &self,
        jobs: u32,
        variables: &[&str],
        targets: &[&str],
        progress: &dyn Progress,
    ) -> Result<()> {
        let path = self.log();
        let log = File::create(&path).map_err(|error| Error::io("write the build's log", &path, error))?;
        let errors = log.try_clone().map_err(|error| Error::io("share the build's log", &path, error))?;
        let mut make = self.make(jobs, targets);
        make.args(variables);
        let started = make.stdout(Stdio::piped()).stderr(errors).spawn();
        let mut make = started.map_err(|error| Error::io("start make", &self.source, error))?;
        let lines = make.stdout.take().map(BufReader::new);
        let mut count = 0;
        for line in lines.into_iter().flat_map(BufRead::lines).map_while(std::result::Result::ok) {
            // The log is a help; make's exit code decides.
            let _ = writeln!(&log, "{line}");
            count += u64::from(line.starts_with("  CC "));
            progress.compiled(count);
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            let _ =
                rustix::process::kill_process(rustix::process::Pid::from_child(&make), rustix::process::Signal::TERM);
        }
        let status = make.wait().map_err(|error| Error::io("wait for make", &self.source, error))?;
        match (self.stop.load(Ordering::Relaxed), status.success()) {
            (true, _) => Err(Error::Invalid("stopped; the next build goes on from there".to_owned())),
            (_, true) => Ok(()),
            _ => Err(failed(
                &format!("make {} ({})", targets.join(" "), path.display()),
                &fs::read_to_string(&path).unwrap_or_default(),
            )),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.join("build.log")
    }

    /// Keeps image, configuration and log; the objects go.
    fn keep(&self, home: &Path, kernel: &BuiltKernel) -> Result<()> {
        let text = serde_json::to_vec_pretty(kernel).map_err(|why| Error::Invalid(why.to_string()))?;
        let keep = || -> std::io::Result<()> {
            fs::copy(self.dir.join("arch/x86/boot/bzImage"), &kernel.image)?;
            fs::copy(self.dir.join(".config"), home.join("config"))?;
            fs::copy(self.log(), home.join("build.log"))?;
            // Last: what has it is whole.
            fs::write(home.join(DESCRIPTION), text)
        };
        keep().map_err(|error| Error::io("keep the kernel", home, error))?;
        let _ = fs::remove_dir_all(&self.dir);
        Ok(())
    }
}

/// What failed, with the last lines of what it said.
fn failed(what: &str, said: &str) -> Error {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
    Error::Invalid(format!("{what} failed; its last lines are\n  {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tools_that_lack_are_named_at_once_with_one_command() {
        let missing = lacking_tools(&[("flex", "flex"), LIBELF]).unwrap();

        assert_eq!(missing.reason, "flex, /usr/include/libelf.h not installed");
        assert_eq!(missing.remedy, "apt-get install flex libelf-dev");
        assert_eq!(lacking_tools(&[]), None);
    }

    #[test]
    fn a_failed_build_shows_the_end_of_its_log() {
        let log: String = (0..100).map(|line| format!("line {line}\n")).collect();

        let error = failed("make bzImage", &log).to_string();

        assert!(error.contains("\n  line 85\n") && error.ends_with("line 99"), "{error}");
        assert!(!error.contains("line 84"), "{error}");
    }
}
