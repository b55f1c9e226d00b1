//! A section's job while it is read: what its options say, before files are looked at.

use super::lines::{Line, Spot};
use super::options::{self, Does, NOTHING};
use super::values::{self, Amount};
use crate::trial::{BlockLength, Commits, EndsWith, Job, Law, Limits, Pace, Turns, WRITES};
use std::path::{Path, PathBuf};

/// fio's usual block.
const USUAL_BLOCK: u64 = 4096;

/// An `ioengine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine(pub String);

/// Whether what was written is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// No.
    Not,
    /// After all is written.
    AtEnd,
}

/// A job as its section says it.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The section.
    pub name: String,
    /// Copies that run at once.
    pub copies: u32,
    /// Whether it begins when all jobs before it have ended.
    pub stonewall: bool,
    /// The job whose end it waits for.
    pub wait_for: Option<String>,
    /// Whether it begins a new group.
    pub new_group: bool,
    /// Whether its end is the end of others.
    pub exitall: bool,
    /// Of which others.
    pub exit_what: EndsWith,
    /// Whether those of later stages are among them.
    pub exits_all: bool,
    /// Whether the page cache is emptied first.
    pub invalidate: bool,
    pub(super) random: bool,
    pub(super) postfix: Option<String>,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) reads_percent: u8,
    pub(super) norandommap: bool,
    pub(super) identical: bool,
    pub(super) laws: [Law; 2],
    pub(super) turns: Turns,
    pub(super) seed: Option<u64>,
    pub(super) blocks: [Vec<BlockLength>; 2],
    pub(super) align: [Option<u64>; 2],
    pub(super) size: Option<Amount>,
    pub(super) filesize: Option<u64>,
    pub(super) io_size: Option<Amount>,
    pub(super) offset: Amount,
    pub(super) offset_increment: Amount,
    pub(super) names: Vec<PathBuf>,
    /// Whether the names were given in [global] and have their directory.
    pub(super) names_are_whole: bool,
    pub(super) directory: Option<PathBuf>,
    pub(super) filename_format: String,
    pub(super) nrfiles: Option<u32>,
    pub(super) iodepth: u32,
    pub(super) runtime: Option<u64>,
    pub(super) time_based: bool,
    pub(super) ramp: u64,
    pub(super) delay: u64,
    pub(super) loops: u64,
    pub(super) number_ios: Option<u64>,
    pub(super) commits: Commits,
    pub(super) pace: Pace,
    pub(super) verify: Verify,
    pub(super) do_verify: bool,
    pub(super) engine: Engine,
    pub(super) is_direct: bool,
    pub(super) words: Vec<(String, Option<String>)>,
}

/// Options whose work is done before fio is called, so that it does not get them.
const DONE: &[&str] = &[
    "filename",
    "directory",
    "filename_format",
    "nrfiles",
    "nr_files",
    "size",
    "filesize",
    "io_size",
    "io_limit",
    "offset",
    "offset_increment",
    "numjobs",
    "stonewall",
    "wait_for_previous",
    "wait_for",
    "invalidate",
    "name",
    "description",
    "thread",
    "threads",
    "group_reporting",
    "new_group",
    "opendir",
    "unlink",
    "unlink_each_loop",
    "randseed",
    "openfiles",
    "create_serialize",
    "create_fsync",
    "create_on_open",
    "fallocate",
    "allow_file_create",
    "overwrite",
    "fill_fs",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "write_hist_log",
    "write_iolog",
    "log_avg_msec",
    "log_hist_msec",
    "log_hist_coarseness",
    "log_max_value",
    "log_offset",
    "log_compression",
    "log_compression_cpus",
    "log_store_compressed",
    "log_unix_epoch",
    "log_prio",
    "log_entries",
    "per_job_logs",
    "bwavgtime",
    "iopsavgtime",
    "gtod_reduce",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "lat_percentiles",
    "clat_percentiles",
    "slat_percentiles",
    "percentile_list",
    "unified_rw_reporting",
    "stats",
    "profile",
    "verify_dump",
    "startdelay",
    "start_delay",
    "end_fsync",
    "io_submit_mode",
    "fsync_on_close",
];

impl Default for Draft {
    fn default() -> Draft {
        let block = BlockLength { bytes: USUAL_BLOCK, to_bytes: USUAL_BLOCK, percent: 100 };
        Draft {
            name: String::new(),
            copies: 1,
            stonewall: false,
            wait_for: None,
            new_group: false,
            exitall: false,
            exit_what: EndsWith::Group,
            exits_all: false,
            invalidate: true,
            random: false,
            postfix: None,
            reads: true,
            writes: false,
            reads_percent: 50,
            norandommap: false,
            identical: false,
            laws: [Law::Uniform, Law::Uniform],
            turns: Turns::RoundRobin(1),
            seed: None,
            blocks: [vec![block], vec![block]],
            align: [None, None],
            size: None,
            filesize: None,
            io_size: None,
            offset: NOTHING,
            offset_increment: NOTHING,
            names: Vec::new(),
            names_are_whole: false,
            directory: None,
            filename_format: "$jobname.$jobnum.$filenum".to_owned(),
            nrfiles: None,
            iodepth: 1,
            runtime: None,
            time_based: false,
            ramp: 0,
            delay: 0,
            loops: 1,
            number_ios: None,
            commits: Commits::default(),
            pace: Pace { think_every: 1, ..Pace::default() },
            verify: Verify::Not,
            do_verify: true,
            engine: Engine("psync".to_owned()),
            is_direct: false,
            words: Vec::new(),
        }
    }
}

impl Draft {
    /// What the options of a section make of this one; what is told of them goes to `told`.
    ///
    /// Errors: a sentence with the option, its place and why.
    pub fn with(mut self, lines: &[Line], told: &mut Vec<String>) -> Result<Draft, String> {
        self.names_are_whole = !self.names.is_empty();
        let mut has_names = false;
        for Line { place, name, value } in lines {
            let at = |why: String| match value {
                Some(value) => format!("{place}: {}={}: {why}", name.trim(), value.trim()),
                None => format!("{place}: {}: {why}", name.trim()),
            };
            if name.trim() == "filename" {
                match (place, std::mem::replace(&mut has_names, true) || self.names_are_whole) {
                    (Spot::Typed, _) => self.names.clear(),
                    (_, true) => {
                        return Err(at(
                            "the name is given twice, and fio takes both; write one, with a colon between them"
                                .to_owned(),
                        ));
                    }
                    _ => {}
                }
                self.names_are_whole = false;
            }
            self.take(name, value.as_deref(), told).map_err(at)?;
            if *place == Spot::Typed && name == "size" {
                (self.filesize, self.io_size) = (None, None);
            }
        }
        if !self.names_are_whole {
            let directory = self.directory.clone();
            self.names = self.names.iter().map(|name| joined(directory.as_deref(), name)).collect();
        }
        Ok(self)
    }

    fn take(&mut self, typed: &str, value: Option<&str>, told: &mut Vec<String>) -> Result<(), String> {
        let name = typed.trim();
        let Some(option) = options::named(name) else {
            let hint = options::nearest(name).map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
            return Err(format!("this option of fio, if it is one, is not understood here{hint}"));
        };
        let is_path = matches!(name, "filename" | "directory");
        if is_path
            && (typed.ends_with(char::is_whitespace)
                || value.is_some_and(|value| value.starts_with(char::is_whitespace)))
        {
            return Err("fio takes a blank around the equals sign for a part of the name; leave it out".to_owned());
        }
        let whole = value.map(values::expanded).transpose()?;
        let value = whole.as_deref().map(str::trim);
        if value.is_some_and(|value| value.contains('$')) && name != "filename_format" {
            return Err("there is nothing that would stand in place of $ here; write it out".to_owned());
        }
        match option.does {
            Does::Sets(sets) => sets(self, value)?,
            Does::Nothing => {}
            Does::Told(says) => {
                let sentence = format!("{name}: {says}");
                if !told.contains(&sentence) {
                    told.push(sentence);
                }
            }
            Does::Refused(why) => return Err(format!("not done here: {why}")),
        }
        if !DONE.contains(&name) {
            self.words.push((name.to_owned(), whole.map(|value| value.trim().to_owned())));
        }
        Ok(())
    }

    pub(super) fn direct(&mut self, text: &str) -> Result<(), String> {
        let (rw, postfix) = text.split_once(':').map_or((text, None), |(rw, postfix)| (rw, Some(postfix)));
        (self.random, self.reads, self.writes) = match rw {
            "read" => (false, true, false),
            "write" => (false, false, true),
            "rw" | "readwrite" => (false, true, true),
            "randread" => (true, true, false),
            "randwrite" => (true, false, true),
            "randrw" => (true, true, true),
            other => {
                return Err(format!(
                    "\"{other}\" is not understood; known are read, write, rw, randread, randwrite, randrw"
                ));
            }
        };
        self.postfix = postfix.map(str::to_owned);
        Ok(())
    }

    pub(super) fn name_files(&mut self, text: &str) -> Result<(), String> {
        let names = parts(text)?;
        if names.iter().any(|name| name == "-") && self.directory.is_none() {
            return Err("\"-\" is a stream, and a stream has no places; name a file".to_owned());
        }
        self.names = names.into_iter().map(PathBuf::from).collect();
        Ok(())
    }

    pub(super) fn in_directory(&mut self, text: &str) -> Result<(), String> {
        match parts(text)?.as_slice() {
            [only] => self.directory = Some(PathBuf::from(only)),
            several => {
                return Err(format!(
                    "it names {} directories, which fio gives to its jobs in turn; name one",
                    several.len()
                ));
            }
        }
        Ok(())
    }

    /// The files of copy number `copy`.
    pub fn files(&self, copy: u32) -> Vec<PathBuf> {
        if !self.names.is_empty() {
            return self.names.clone();
        }
        let made = |file: u32| {
            let name = self.filename_format.replace("$jobname", &self.name);
            let name = name.replace("$jobnum", &copy.to_string()).replace("$filenum", &file.to_string());
            joined(self.directory.as_deref(), Path::new(&name))
        };
        (0..self.nrfiles.unwrap_or(1)).map(made).collect()
    }

    /// Where files that are missing are made, where that is said.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Bytes that each file must have where it is missing; none where nothing says.
    pub fn wanted_bytes(&self, copy: u32) -> Option<u64> {
        let count = self.files(copy).len() as u64;
        let Some(Amount::Of(size)) = self.size else { return self.filesize };
        let each = self.filesize.unwrap_or(size / count);
        // The offset is beyond the size in fio, too.
        Some(each + self.start(each, copy))
    }

    fn start(&self, file: u64, copy: u32) -> u64 {
        self.offset.bytes(file) + self.offset_increment.bytes(file) * u64::from(copy)
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether reads and writes have rates, thoughts and shares of their own.
    pub fn ramp_ns(&self) -> u64 {
        self.ramp
    }

    /// Copy number `copy`, whose files are those numbered `files`, each of `file_bytes`.
    ///
    /// Errors: a sentence.
    pub fn job(&self, copy: u32, files: Vec<usize>, file_bytes: u64, seed: u64) -> Result<Job, String> {
        let count = files.len() as u64;
        let offset_bytes = self.start(file_bytes, copy);
        let room = file_bytes.checked_sub(offset_bytes).filter(|room| *room > 0);
        let room = room
            .ok_or_else(|| format!("the job {} begins at {offset_bytes} of files of {file_bytes} bytes", self.name))?;
        let range_bytes = match (self.size, self.filesize) {
            (_, Some(each)) => each.min(room),
            (Some(Amount::Of(size)), None) => (size / count).min(room),
            (Some(percent), None) => percent.bytes(file_bytes).min(room),
            (None, None) => room,
        };
        let reads_percent = match (self.reads, self.writes) {
            (true, true) => self.reads_percent,
            (reads, _) => {
                if reads {
                    100
                } else {
                    0
                }
            }
        };
        let all = range_bytes * count;
        let shortest = |side: usize| self.blocks[side].iter().map(|block| block.bytes).min().unwrap_or(USUAL_BLOCK);
        let align = |side: usize| self.align[side].filter(|align| *align > 0).unwrap_or(shortest(side));
        let size = match self.size {
            Some(Amount::Of(size)) => size,
            _ => all,
        };
        let job = Job {
            name: self.name.clone(),
            files,
            file_bytes,
            offset_bytes,
            range_bytes,
            io_bytes: self.io_size.map_or(size, |amount| amount.bytes(all)),
            loops: self.loops.max(1),
            reads_percent,
            order: options::order(self)?,
            turns: self.turns,
            blocks: self.blocks.clone(),
            align_bytes: [align(0), align(WRITES)],
            iodepth: self.iodepth,
            limits: Limits {
                runtime_ns: self.runtime,
                accesses: self.number_ios,
                time_based: self.time_based && self.runtime.is_some(),
            },
            commits: self.commits,
            pace: self.pace,
            delay_ns: self.delay,
            ramp_ns: self.ramp,
            seed: self.seed.unwrap_or(seed).wrapping_add(u64::from(copy) << 32),
            verify: self.verify == Verify::AtEnd && self.do_verify && self.writes,
            group: 0,
            ends_with: if self.exitall { self.exit_what } else { EndsWith::None },
            drops_cache: self.invalidate && !self.is_direct,
            words: self.words_for_fio(),
        };
        if job.writes() && !job.is_made_of(8) {
            return Err(format!("the job {} writes in pieces that are not made of whole words of 8 bytes", self.name));
        }
        if job.longest_block() > range_bytes {
            return Err(format!(
                "the job {} makes accesses of up to {} bytes in a range of {range_bytes} bytes; give it more with --size",
                self.name,
                job.longest_block()
            ));
        }
        Ok(job)
    }

    fn words_for_fio(&self) -> Vec<(String, Option<String>)> {
        let mut words = self.words.clone();
        words.extend((self.delay > 0).then(|| ("startdelay".to_owned(), Some(format!("{}us", self.delay / 1000)))));
        words
    }
}

fn joined(directory: Option<&Path>, name: &Path) -> PathBuf {
    match directory {
        // Joined even where the name begins with a slash.
        Some(directory) => PathBuf::from(format!("{}/{}", directory.display(), name.display())),
        None => name.to_owned(),
    }
}

/// What colons separate; a backslash before a colon makes it a part of a name.
fn parts(value: &str) -> Result<Vec<String>, String> {
    let hidden = value.replace("\\:", "\0");
    let parts: Vec<String> =
        hidden.split(':').filter(|part| !part.is_empty()).map(|part| part.replace('\0', ":")).collect();
    match parts.is_empty() {
        true => Err("it names nothing; give a name, or leave it out".to_owned()),
        false => Ok(parts),
    }
}
