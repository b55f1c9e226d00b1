//! Stages of jobs: the files that they name are found or made, and each stage becomes a comparison.

use crate::command::Bars;
use crate::command::options::{CompareOptions, Memory};
use crate::jobfile::{self, Chosen, Draft, JobFile};
use crate::lineup;
use crate::place::MemoryLimit;
use crate::run;
use crate::scratch::{self, Scratch, Wanted};
use crate::session::Comparison;
use crate::trial::{Arm, CacheState, Choice, Data, Direction, Job, JobOrder, Limits, Trial};
use clap::ArgMatches;
use clap::parser::ValueSource;
use majorfault::{Bytes, Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Our options that a job has, too: the name of ours, of fio's.
const SAME: &[(&str, &str)] = &[
    ("rw", "rw"),
    ("rwmixread", "rwmixread"),
    ("rwmixwrite", "rwmixwrite"),
    ("fsync", "fsync"),
    ("fdatasync", "fdatasync"),
    ("bs", "bs"),
    ("iodepth", "iodepth"),
    ("numjobs", "numjobs"),
    ("randseed", "randseed"),
    ("runtime", "runtime"),
    ("number_ios", "number_ios"),
    ("time_based", "time_based"),
    ("size", "size"),
    ("offset", "offset"),
    ("nrfiles", "nrfiles"),
    ("dir", "directory"),
];

/// Bytes of a page of made files.
const PAGE: u64 = 4096;

/// What a plain mixed run uses where nothing is said.
const USUAL_SIZE: Bytes = Bytes::gib(1);

/// What was typed of the options that a job has.
pub fn typed(matches: &ArgMatches) -> Vec<(String, Option<String>)> {
    let is_typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let value = |id: &str| Some(matches.get_raw(id)?.next_back()?.to_string_lossy().into_owned());
    let typed = SAME.iter().filter(|(own, _)| is_typed(own));
    typed.map(|(own, fio)| ((*fio).to_owned(), value(own).filter(|_| *own != "time_based"))).collect()
}

/// What the user asked for.
pub struct Asked<'a> {
    /// The job file.
    pub job_file: Option<PathBuf>,
    /// The files named; the job file, where it is one.
    pub files: &'a [PathBuf],
    /// Options typed.
    pub typed: &'a [(String, Option<String>)],
    /// All options.
    pub options: &'a CompareOptions,
}

/// What is to be done, before any file is made.
pub struct StagePlan<'a> {
    options: &'a CompareOptions,
    name: String,
    jobs: JobFile,
    /// Each file that a job names: how long it must be where it is missing.
    files: BTreeMap<PathBuf, Wants>,
}

/// What jobs want of a file.
#[derive(Default)]
struct Wants {
    bytes: Option<u64>,
    is_there: bool,
    /// The job that asked last.
    asked_by: String,
    dir: Option<PathBuf>,
}

/// A plan with its files.
pub struct Ready<'a> {
    plan: StagePlan<'a>,
    /// The path by which a file is reached, its length, and whether we made it.
    found: BTreeMap<PathBuf, (PathBuf, u64, bool)>,
    baseline: Option<Arm>,
    _made: Vec<Scratch>,
}

impl<'a> StagePlan<'a> {
    /// Reads the jobs and looks which of their files are there.
    ///
    /// Errors: Invalid, Io; what would destroy a user's file is refused without `--allow-overwrite`.
    pub fn of(asked: &Asked<'a>) -> Result<StagePlan<'a>> {
        let options = asked.options;
        if let Some(path) = asked.files.iter().chain(&options.dir).find(|path| path.to_str().is_none()) {
            return Err(Error::Invalid(format!(
                "the name {} is not UTF-8, and jobs are text; give it a link with a plain name",
                path.display()
            )));
        }
        for (given, name) in [(options.workload.is_some(), "--workload"), (options.trace.is_some(), "--trace")] {
            if given {
                return Err(Error::Invalid(format!(
                    "{name} is not for jobs; a job says its order with rw and random_distribution"
                )));
            }
        }
        let sections = options.section.clone();
        let jobs = match &asked.job_file {
            Some(path) => jobfile::read(path, &Chosen { options: asked.typed.to_vec(), sections })?,
            None => jobfile::typed("compare", &Chosen { options: usual(asked), sections })?,
        };
        let name =
            asked.job_file.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let mut plan = StagePlan { options, name, jobs, files: BTreeMap::new() };
        plan.look()?;
        Ok(plan)
    }

    /// What is done in another way than the job file says.
    pub fn told(&self) -> &[String] {
        &self.jobs.told
    }

    /// The user's own files.
    pub fn existing(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().filter(|(_, wants)| wants.is_there).map(|(path, _)| path)
    }

    fn look(&mut self) -> Result<()> {
        for draft in self.jobs.stages.iter().flatten() {
            for copy in 0..draft.copies {
                for path in draft.files(copy) {
                    let wants = self.files.entry(path.clone()).or_default();
                    wants.bytes = wants.bytes.max(draft.wanted_bytes(copy));
                    wants.is_there = path.exists();
                    wants.asked_by = draft.name.clone();
                    wants.dir = draft.directory().map(Path::to_owned);
                    if wants.is_there && draft.writes() && !self.options.allow_overwrite {
                        return Err(Error::Invalid(format!(
                            "the job {} would destroy the content of {}; name a file that is not there, or say --allow-overwrite",
                            draft.name,
                            path.display()
                        )));
                    }
                }
            }
        }
        self.tell_of_short_files()?;
        let is_bare = |(_, wants): &(&PathBuf, &Wants)| !wants.is_there && wants.bytes.is_none();
        if let Some((path, _)) = self.files.iter().find(is_bare) {
            return Err(Error::Invalid(format!(
                "{} is not there, and no size says how long to make it; give --size",
                path.display()
            )));
        }
        if let Some((path, _)) = self.files.iter().find(|(path, wants)| !wants.is_there && path.starts_with("/dev")) {
            return Err(Error::Invalid(format!(
                "there is no device {}; --set filename=NAME puts a file in its place",
                path.display()
            )));
        }
        Ok(())
    }

    /// What is used of a file that is there and shorter than asked for: it is not made longer, as fio would.
    fn tell_of_short_files(&mut self) -> Result<()> {
        for (path, wants) in self.files.iter().filter(|(_, wants)| wants.is_there) {
            let (Some(asked), there) = (wants.bytes, length(path)?) else { continue };
            if there < asked {
                self.jobs.told.push(format!(
                    "the job {} asks for {} of {}, which holds {}: it runs on those; fio would make the file longer",
                    wants.asked_by,
                    Bytes(asked),
                    path.display(),
                    Bytes(there)
                ));
            }
        }
        Ok(())
    }

    /// Makes what is missing.
    ///
    /// Errors: Io, Invalid (no room).
    pub fn ready(self, stop: &AtomicBool, bars: &Bars) -> Result<Ready<'a>> {
        let (mut found, mut made) = (BTreeMap::new(), Vec::new());
        let missing: u64 = self.files.values().filter(|wants| !wants.is_there).filter_map(|wants| wants.bytes).sum();
        for (path, wants) in &self.files {
            if wants.is_there {
                let own = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                found.insert(path.clone(), (own, length(path)?, false));
                continue;
            }
            let size = Bytes(wants.bytes.unwrap_or(PAGE).max(1).next_multiple_of(PAGE));
            let dir = self.options.dir.as_deref().or(wants.dir.as_deref());
            let dir = scratch::directory(dir, Bytes(missing)).map_err(|error| match dir {
                Some(dir) if !dir.is_dir() => {
                    Error::Invalid(format!("there is no directory {}; name one with --dir", dir.display()))
                }
                _ => error,
            })?;
            let wanted = Wanted { size, files: 1, stripe: Bytes::mib(1), seed: self.options.randseed };
            let bar =
                bars.bytes(size.0, &format!("making {} for {} in {}", size.rounded(), path.display(), dir.display()));
            let scratch = Scratch::make(&dir, &wanted, stop, |written| bar.set_position(written))?;
            bar.finish_and_clear();
            found.insert(path.clone(), (scratch.paths().remove(0), size.0, true));
            made.push(scratch);
        }
        Ok(Ready { plan: self, found, baseline: None, _made: made })
    }
}

/// The options of one job that no file says: those typed, over our own defaults.
fn usual(asked: &Asked<'_>) -> Vec<(String, Option<String>)> {
    let is_typed = |name: &str| asked.typed.iter().any(|(typed, _)| typed == name);
    let mut options = vec![("iodepth".to_owned(), Some(asked.options.iodepth.to_string()))];
    options.push(("norandommap".to_owned(), None));
    if asked.files.is_empty() && !is_typed("size") {
        options.push(("size".to_owned(), Some(USUAL_SIZE.0.to_string())));
    }
    if !is_typed("number_ios") && !is_typed("runtime") {
        options.push(("runtime".to_owned(), Some("1".to_owned())));
    }
    if asked.options.is_random() && !is_typed("number_ios") {
        options.push(("time_based".to_owned(), None));
    }
    if asked.files.is_empty() {
        // Copies share it, as the threads of one workload do.
        options.push(("filename".to_owned(), Some("made".to_owned())));
    } else {
        let names: Vec<String> = asked.files.iter().map(|path| path.to_string_lossy().replace(':', "\\:")).collect();
        options.push(("filename".to_owned(), Some(names.join(":"))));
    }
    options.extend(asked.typed.iter().filter(|(name, _)| name != "directory").cloned());
    options
}

fn length(path: &Path) -> Result<u64> {
    let layout = majorfault::Layout::default();
    Ok(majorfault::Target::open(&[path.to_owned()], &layout)?.len())
}

impl Ready<'_> {
    /// The arm that the user has now.
    pub fn baseline(&self) -> Option<&Arm> {
        self.baseline.as_ref()
    }

    /// One comparison for each stage.
    ///
    /// Errors: Invalid.
    pub fn stages(&self) -> Result<Vec<Comparison>> {
        let stages = &self.plan.jobs.stages;
        (1..).zip(stages).map(|(number, drafts)| self.stage(number, stages.len(), drafts)).collect()
    }

    fn stage(&self, number: usize, all: usize, drafts: &[Draft]) -> Result<Comparison> {
        let options = self.plan.options;
        let names: Vec<PathBuf> = self.names(drafts);
        let mut jobs = Vec::new();
        let mut group = 0;
        for draft in drafts {
            group += u32::from(draft.new_group);
            for copy in 0..draft.copies {
                jobs.push(Job { group, ..self.job(draft, copy, &names)? });
            }
        }
        let found: Vec<&(PathBuf, u64, bool)> = names.iter().map(|name| &self.found[name]).collect();
        let stripe = found.iter().map(|(_, bytes, _)| bytes / PAGE * PAGE).min().unwrap_or(PAGE).max(PAGE);
        let writes = jobs.iter().any(Job::writes);
        let ordered = jobs.iter().all(|job| matches!(job.order, JobOrder::Steps { .. }));
        let stage = match all {
            1 => self.plan.name.clone(),
            _ => format!("{}, stage {number} of {all}", self.plan.name),
        };
        let mut trial = Trial {
            data: Data {
                files: found.iter().map(|(path, _, _)| path.clone()).collect(),
                offset_bytes: 0,
                size_bytes: if found.len() == 1 { found[0].1 } else { stripe * found.len() as u64 },
                stripe_bytes: stripe,
                content_seed: found.iter().all(|(_, _, made)| *made).then_some(options.randseed),
            },
            workload: Choice::plain(if ordered { "sequential" } else { "uniform" }),
            direction: if writes { Direction::Write } else { Direction::Read },
            arm: Arm::Method(Choice::plain("")),
            block_bytes: jobs.iter().map(Job::longest_block).max().unwrap_or(PAGE),
            threads: jobs.len() as u32,
            iodepth: jobs.iter().map(|job| job.iodepth).max().unwrap_or(1),
            limits: Limits {
                runtime_ns: jobs.iter().map(|job| job.limits.runtime_ns).max().flatten(),
                accesses: None,
                time_based: jobs.iter().all(|job| job.limits.time_based),
            },
            memory_bytes: None,
            cache: self.cache(drafts),
            seed: options.randseed,
            interval_ns: options.interval_ns(jobs.iter().map(|job| job.limits.runtime_ns).max().flatten()),
            repetition: 0,
            counts_hardware: options.hardware_counters,
            jobs,
            stage,
        };
        trial.memory_bytes = memory(options)?;
        run::check_jobs(&trial)?;
        let arms =
            self.arms(&trial)?.into_iter().map(|arm| lineup::within(arm, &trial)).collect::<Result<Vec<Arm>>>()?;
        trial.arm = arms.first().cloned().ok_or_else(|| Error::Invalid("nothing to compare".to_owned()))?;
        Ok(Comparison { trial, arms, repetitions: options.runs() })
    }

    /// The files of the drafts, each once.
    fn names(&self, drafts: &[Draft]) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = Vec::new();
        for name in drafts.iter().flat_map(|draft| (0..draft.copies).flat_map(|copy| draft.files(copy))) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn job(&self, draft: &Draft, copy: u32, names: &[PathBuf]) -> Result<Job> {
        let own = draft.files(copy);
        let numbers = own.iter().filter_map(|name| names.iter().position(|other| other == name)).collect();
        let lengths: Vec<u64> = own.iter().map(|name| self.found[name].1).collect();
        let mut bytes = lengths.iter().copied().min().unwrap_or(0);
        if own.len() > 1 {
            // Several files lie one behind the other in one space, in whole pages.
            bytes = bytes / PAGE * PAGE;
        }
        draft.job(copy, numbers, bytes, self.plan.options.randseed).map_err(Error::Invalid)
    }

    fn cache(&self, drafts: &[Draft]) -> CacheState {
        let asked = self.plan.options.cache();
        if asked == CacheState::Cold && drafts.iter().all(|draft| !draft.invalidate) {
            CacheState::AsFound
        } else {
            asked
        }
    }

    fn arms(&self, trial: &Trial) -> Result<Vec<Arm>> {
        let options = self.plan.options;
        let named = |texts: &[String]| {
            let arm = |text: &String| {
                let arm = lineup::arm(text, trial.iodepth)?;
                if text.contains("depth=") { Ok(arm) } else { lineup::without_depth(arm) }
            };
            texts.iter().map(arm).collect::<Result<Vec<_>>>()
        };
        let methods = match options.method.as_slice() {
            [] => lineup::usual(trial.direction, trial.iodepth)
                .into_iter()
                .map(lineup::without_depth)
                .collect::<Result<_>>()?,
            texts => named(texts)?,
        };
        let peers = match options.peer.as_slice() {
            [] => lineup::peers_of_jobs(),
            texts => named(texts)?,
        };
        let stays = |arm: &Arm| !options.no_peer || matches!(arm, Arm::Method(_));
        Ok(methods.into_iter().chain(peers).filter(stays).collect())
    }
}

/// The limit asked for; a job file says none.
fn memory(options: &CompareOptions) -> Result<Option<u64>> {
    match options.memory {
        Some(Memory::Limit(limit)) => MemoryLimit::create(limit).map(|_| Some(limit.0)).map_err(Error::Missing),
        Some(Memory::Unlimited) | None => Ok(None),
    }
}
