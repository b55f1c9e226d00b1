//! `majorfault kernel`: kernels for guests, and this program in one of them.

use crate::command::{Exit, kernel_test, kernel_try, stop_flag};
use crate::place::guest::kernel::{self, BuiltKernel, Progress, Variant};
use crate::place::guest::{self, FromGuest, Spec};
use crate::tryout::exercise::Exercise;
use crate::tryout::{GuestCase, inside};
use anstream::println;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use majorfault::{Bytes, Error, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Build kernels, list and test them, and run this program in a guest with one of them
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Build a kernel for guests from Debian's source; what is built already is not built again
    Build(Build),
    /// Fetch a kernel as Debian builds it, with the modules that guests need
    Fetch {
        /// The package, such as linux-image-6.12.117+deb12-cloud-amd64 [default: what linux-image-cloud-amd64 stands for]
        package: Option<String>,
    },
    /// List the kernels that are built
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check kernels in guests: a trial on one, the strided read-ahead on another, nothing changed without the advice
    Test(kernel_test::Args),
    /// Try what majorfault can do in guests that differ by kernel, file system, processors, memory and rights: what works where
    Try(kernel_try::Args),
    /// Run any other command of majorfault in a guest; its output and exit code become ours
    Run(Run),
    /// The first process of a guest
    #[command(hide = true)]
    Init,
    /// Run the checks of a case in the guest
    #[command(hide = true)]
    Inside {
        /// The case
        case: String,
        /// Checks; all of the case unless some are named
        checks: Vec<String>,
    },
    /// Use a file or memory in one way
    #[command(hide = true)]
    Exercise {
        #[command(subcommand)]
        what: ExerciseWords,
    },
    /// Become QEMU and die with the process that started us
    #[command(hide = true)]
    Machine {
        #[arg(last = true)]
        words: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Build {
    /// Which patches and options: plain (no patches), strided (the series for MADV_STRIDED), strided-debug (the series with KASAN
    /// and lockdep), strided-auto (an experiment: strides are learned without the advice, too)
    #[arg(value_parser = Variant::read, default_value = "plain")]
    variant: Variant,
    /// Debian's package with the source
    #[arg(long, default_value = "linux-source-6.12")]
    package: String,
    /// Compilers at a time [default: one for each processor]
    #[arg(long, short, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// No kernel: apply the series patch by patch, and look whether each one alone passes checkpatch --strict and compiles
    /// without a warning
    #[arg(long)]
    each_patch: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(clap::Args)]
struct Run {
    /// The guest: guest, or guest:kernel=NAME,cpus=4,...; see docs/kernel.md
    #[arg(long, default_value = "guest")]
    place: Spec,
    /// A file to take along; the guest has it as /brought/NAME, and runs it where the command begins with that
    #[arg(long, value_name = "FILE")]
    bring: Vec<PathBuf>,
    /// The command, after --
    #[arg(last = true, required = true)]
    words: Vec<String>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    match args.what {
        What::Build(args) => build(args),
        What::Fetch { package } => fetch(package),
        What::List { json } => list(json),
        What::Test(args) => kernel_test::run(&args),
        What::Try(args) => kernel_try::run(&args),
        What::Inside { case, checks } => in_case(&case, &checks),
        What::Exercise { what } => {
            println!("{}", Exercise::from(what).run()?);
            Ok(Exit::Ok)
        }
        What::Run(args) => in_guest(&args),
        What::Init => guest::init::live().map(|never| match never {}),
        What::Machine { words } => Err(guest::become_machine(&words)),
    }
}

fn build(args: Build) -> Result<Exit> {
    let Build { variant, package, jobs, each_patch, quiet } = args;
    let processors = || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let shown = Shown::new(quiet);
    let jobs = jobs.unwrap_or_else(processors);
    if each_patch {
        return each(&package, variant, jobs, &shown);
    }
    let kernel = kernel::build(&package, variant, jobs, &*stop_flag()?, &shown)?;
    shown.0.finish_and_clear();
    println!("{}", line(&kernel));
    Ok(Exit::Ok)
}

fn each(package: &str, variant: Variant, jobs: u32, shown: &Shown) -> Result<Exit> {
    if variant != Variant::Strided {
        let name = variant.name();
        return Err(Error::Invalid(format!("--each-patch is for the series; say strided instead of {name}")));
    }
    let are_right = kernel::each_patch(package, jobs, &*stop_flag()?, shown, |(name, found)| {
        shown.0.suspend(|| match found {
            Ok(found) => println!("ok      {name}: {found}"),
            Err(why) => println!("WRONG   {name}: {why}"),
        });
    })?;
    shown.0.finish_and_clear();
    Ok(if are_right { Exit::Ok } else { Exit::No })
}

fn fetch(package: Option<String>) -> Result<Exit> {
    println!("{}", line(&kernel::fetch(package.as_deref().unwrap_or("linux-image-cloud-amd64"))?));
    Ok(Exit::Ok)
}

/// An [`Exercise`] as it is typed.
#[derive(clap::Subcommand)]
enum ExerciseWords {
    /// Fill memory, and read it again from begin to end
    Memory {
        /// How much
        size: Bytes,
        /// How often it is read
        passes: u64,
    },
    /// Read 64 bytes of a mapped file at each step, without read-ahead by the kernel
    Map {
        /// The file
        file: PathBuf,
        /// From one step to the next
        stride: Bytes,
        /// Microseconds of sleep after each
        pause_us: u64,
    },
    /// Read 4 KiB of a file by a call at each step
    Read {
        /// The file
        file: PathBuf,
        /// From one step to the next
        stride: Bytes,
    },
}

impl From<ExerciseWords> for Exercise {
    fn from(words: ExerciseWords) -> Exercise {
        match words {
            ExerciseWords::Memory { size, passes } => Exercise::Memory { size, passes },
            ExerciseWords::Map { file, stride, pause_us } => Exercise::Map { file, stride, pause_us },
            ExerciseWords::Read { file, stride } => Exercise::Read { file, stride },
        }
    }
}

/// The build on standard error.
struct Shown(ProgressBar);

impl Shown {
    fn new(quiet: bool) -> Shown {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Shown(bar)
    }
}

impl Progress for Shown {
    fn step(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    fn compiled(&self, count: u64) {
        self.0.set_message(format!("compiling: {count} files"));
    }
}

fn line(kernel: &BuiltKernel) -> String {
    let BuiltKernel { name, source, build_seconds, image, .. } = kernel;
    format!("{name}  {source}, built in {build_seconds} s  {}", image.display())
}

fn list(json: bool) -> Result<Exit> {
    let kernels = kernel::list()?;
    if json {
        let text = serde_json::to_string_pretty(&kernels).map_err(|why| Error::Invalid(why.to_string()))?;
        println!("{text}");
        return Ok(Exit::Ok);
    }
    kernels.iter().for_each(|kernel| println!("{}", line(kernel)));
    if kernels.is_empty() {
        println!("none is built in {}; majorfault kernel build plain", kernel::root().display());
    }
    Ok(Exit::Ok)
}

fn in_case(name: &str, checks: &[String]) -> Result<Exit> {
    let case = GuestCase::named(name).ok_or_else(|| Error::Invalid(format!("there is no case \"{name}\"")))?;
    inside::run(case, checks, std::io::stdout())?;
    Ok(Exit::Ok)
}

fn in_guest(args: &Run) -> Result<Exit> {
    let Run { place, bring, words } = args;
    let mut is_sound = true;
    let code = guest::run(place, words, bring, &*stop_flag()?, |told| {
        match told {
            FromGuest::Complaint(complaint) => {
                is_sound = false;
                eprintln!("majorfault: {complaint}");
            }
            FromGuest::Out(line) => println!("{line}"),
            FromGuest::Err(line) => eprintln!("{line}"),
            _ => {}
        }
        Ok(())
    })?;
    Ok(match code {
        Some(0) if !is_sound => Exit::No,
        code => code.map_or(Exit::Interrupted, Exit::Program),
    })
}
