//! Every option of fio that is known here, and what is done with it: one line each.
//!
//! An option sets something of the job, or is left to fio as a peer, or changes nothing that is measured, or is refused. What is in
//! no line is refused, too.

use super::draft::{Draft, Engine, Verify};
use super::values::{self, Amount};
use crate::trial::{EndsWith, JobOrder, Turns};

/// What is done with an option.
#[derive(Clone, Copy)]
pub enum Does {
    /// Sets something of the job; without a value where it is a switch.
    Sets(fn(&mut Draft, Option<&str>) -> Result<(), String>),
    /// Nothing, because it does not change what is measured.
    Nothing,
    /// Nothing here, which is told: this is what is done instead.
    Told(&'static str),
    /// Refused, because the figures would be of something else.
    Refused(&'static str),
}

use Does::{Nothing, Refused, Sets, Told};

/// An option by its names.
pub struct JobOption {
    /// fio's name and its other names.
    pub names: &'static [&'static str],
    /// What is done.
    pub does: Does,
}

const fn option(names: &'static [&'static str], does: Does) -> JobOption {
    JobOption { names, does }
}

const NO_LOG: &str = "no log is written; the records have latencies and the timeline";
const OF_FIO: &str = "of fio's own engine; fio as a peer has it, our methods have settings of their own";
const CONTENT: &str =
    "the bytes written are our own, which neither shrink nor repeat; it matters where a disk or file system compresses";
const VERIFY: &str = "what is read is checked by sums of our own";
const RANDOM: &str = "the random numbers are our own, the same for every method";
const MADE: &str = "missing files are made whole, outside the clock";
const END: &str = "it would end at another moment";
const PRIORITY: &str = "priorities are not set here";
const PROCESSORS: &str = "processors and memory nodes are not chosen here; start us under taskset or numactl";
const ERRORS: &str = "a method that fails has no figure here";

/// All of them.
pub const ALL: &[JobOption] = &[
    // Which way, in which order.
    option(&["rw", "readwrite"], Sets(|draft, value| draft.direct(needed(value)?))),
    option(&["rwmixread"], Sets(|draft, value| set(&mut draft.reads_percent, values::percent(needed(value)?)))),
    option(
        &["rwmixwrite"],
        Sets(|draft, value| set(&mut draft.reads_percent, values::percent(needed(value)?).map(|share| 100 - share))),
    ),
    option(&["norandommap"], Sets(|draft, value| set(&mut draft.norandommap, values::switch(value)))),
    option(&["random_distribution"], Sets(|draft, value| set(&mut draft.laws, values::law(needed(value)?)))),
    option(&["rw_sequencer"], Sets(sequencer)),
    option(&["percentage_random"], Sets(|_, value| known(value, &["100", "100,100", "100,100,100"]))),
    option(&["file_service_type"], Sets(turns)),
    option(&["randseed"], Sets(|draft, value| set(&mut draft.seed, values::count(needed(value)?).map(Some)))),
    option(&["randrepeat", "allrandrepeat", "random_generator", "softrandommap"], Told(RANDOM)),
    option(
        &["ddir_seq_add", "ddir_seq_nr", "replay_redirect", "read_iolog", "replay_no_stall"],
        Refused("record a trace instead, see `majorfault trace`"),
    ),
    // Lengths and places.
    option(&["bs", "blocksize"], Sets(|draft, value| blocks(draft, value, values::block))),
    option(&["bsrange", "blocksize_range"], Sets(|draft, value| blocks(draft, value, values::block_range))),
    option(&["bssplit"], Sets(|draft, value| blocks(draft, value, values::block_split))),
    option(
        &["blockalign", "ba"],
        Sets(|draft, value| {
            let usual = draft.align;
            set(&mut draft.align, values::pair(needed(value)?, usual, |text| values::size(text).map(Some)))
        }),
    ),
    option(&["bs_unaligned", "blocksize_unaligned"], Refused("lengths here are multiples of the shortest")),
    option(&["size"], Sets(|draft, value| set(&mut draft.size, values::amount(needed(value)?).map(Some)))),
    option(&["filesize"], Sets(|draft, value| set(&mut draft.filesize, values::size(needed(value)?).map(Some)))),
    option(
        &["io_size", "io_limit"],
        Sets(|draft, value| set(&mut draft.io_size, values::amount(needed(value)?).map(Some))),
    ),
    option(&["offset"], Sets(|draft, value| set(&mut draft.offset, values::amount(needed(value)?)))),
    option(
        &["offset_increment"],
        Sets(|draft, value| set(&mut draft.offset_increment, values::amount(needed(value)?))),
    ),
    option(&["offset_align"], Refused("give offset itself")),
    option(&["zonemode"], Sets(|_, value| known(value, &["none"]))),
    option(
        &[
            "zonesize",
            "zonerange",
            "zoneskip",
            "zonecapacity",
            "max_open_zones",
            "read_beyond_wp",
            "zone_reset_threshold",
            "zone_reset_frequency",
        ],
        Refused("zones of a device are not known here"),
    ),
    // Files.
    option(&["filename"], Sets(|draft, value| draft.name_files(needed(value)?))),
    option(&["directory"], Sets(|draft, value| draft.in_directory(needed(value)?))),
    option(
        &["filename_format"],
        Sets(|draft, value| set(&mut draft.filename_format, needed(value).map(str::to_owned))),
    ),
    option(
        &["nrfiles", "nr_files"],
        Sets(|draft, value| set(&mut draft.nrfiles, values::count32(needed(value)?).map(Some))),
    ),
    option(
        &[
            "openfiles",
            "create_serialize",
            "create_fsync",
            "create_on_open",
            "fallocate",
            "allow_file_create",
            "overwrite",
            "fill_fs",
        ],
        Told(MADE),
    ),
    option(
        &["unlink", "unlink_each_loop", "allow_mounted_write"],
        Told("files made here have no name and go with the run; files of yours stay"),
    ),
    option(
        &["fill_device", "file_append", "create_only", "pre_read", "opendir", "lockfile", "unique_filename"],
        Refused("it changes which files there are, or what is in memory; see --cache"),
    ),
    option(&["invalidate"], Sets(|draft, value| set(&mut draft.invalidate, values::switch(value)))),
    // How many, how long.
    option(&["numjobs"], Sets(|draft, value| set(&mut draft.copies, values::count32(needed(value)?)))),
    option(&["iodepth"], Sets(|draft, value| set(&mut draft.iodepth, values::count32(needed(value)?)))),
    option(
        &["runtime", "timeout"],
        Sets(|draft, value| set(&mut draft.runtime, seconds(value).map(|time| (time > 0).then_some(time)))),
    ),
    option(&["time_based"], Sets(|draft, value| set(&mut draft.time_based, values::switch(value)))),
    option(&["ramp_time"], Sets(|draft, value| set(&mut draft.ramp, seconds(value)))),
    option(&["startdelay", "start_delay"], Sets(|draft, value| set(&mut draft.delay, seconds(value)))),
    option(&["loops"], Sets(|draft, value| set(&mut draft.loops, values::count(needed(value)?)))),
    option(
        &["number_ios"],
        Sets(|draft, value| {
            set(&mut draft.number_ios, values::count(needed(value)?).map(|count| (count > 0).then_some(count)))
        }),
    ),
    option(
        &[
            "steadystate",
            "ss",
            "ss_dur",
            "steadystate_duration",
            "ss_ramp",
            "steadystate_ramp_time",
            "ss_interval",
            "steadystate_check_interval",
        ],
        Refused(END),
    ),
    option(
        &["latency_target", "latency_window", "latency_percentile", "latency_run", "max_latency"],
        Refused("a latency is not aimed at here; the table shows p50 and p99 at each depth that is given"),
    ),
    // Durability.
    option(&["fsync"], Sets(|draft, value| commit(draft, value, true))),
    option(&["fdatasync"], Sets(|draft, value| commit(draft, value, false))),
    option(
        &["end_fsync", "fsync_on_close"],
        Sets(|draft, value| set(&mut draft.commits.at_end, values::switch(value))),
    ),
    option(&["sync", "dsync"], Sets(|_, value| known(value, &["0", "none"]))),
    option(
        &["sync_file_range", "write_barrier", "atomic", "trim_backlog", "trim_percentage", "trim_verify_zero"],
        Refused("there is no such durability or deallocation here; fsync=N and fdatasync=N there are"),
    ),
    // Pace.
    option(
        &["rate"],
        Sets(|draft, value| {
            let usual = draft.pace.bytes_per_s;
            set(&mut draft.pace.bytes_per_s, values::pair(needed(value)?, usual, values::size))
        }),
    ),
    option(
        &["rate_iops"],
        Sets(|draft, value| {
            let usual = draft.pace.per_s;
            set(&mut draft.pace.per_s, values::pair(needed(value)?, usual, values::count))
        }),
    ),
    option(
        &["rate_process"],
        Sets(|draft, value| {
            known(value, &["linear", "poisson"]).map(|()| draft.pace.poisson = value.map(str::trim) == Some("poisson"))
        }),
    ),
    option(
        &["rate_min", "ratemin", "rate_iops_min", "rate_cycle", "ratecycle"],
        Told("a job that is slower than its least rate is not ended"),
    ),
    option(&["rate_ignore_thinktime"], Sets(|_, value| known(value, &["0"]))),
    option(&["thinktime"], Sets(|draft, value| set(&mut draft.pace.think_ns, values::time(needed(value)?, 1000)))),
    option(&["thinktime_spin"], Sets(|draft, value| set(&mut draft.pace.spin_ns, values::time(needed(value)?, 1000)))),
    option(&["thinktime_blocks"], Sets(|draft, value| set(&mut draft.pace.think_every, values::count(needed(value)?)))),
    option(&["thinktime_blocks_type"], Sets(|_, value| known(value, &["complete", "issue"]))),
    option(
        &["thinktime_iotime"],
        Refused("thinktime_blocks counts accesses; a time between two thoughts is not known here"),
    ),
    option(&["flow"], Sets(|draft, value| set(&mut draft.pace.flow, values::count32(needed(value)?)))),
    option(&["flow_id"], Sets(|_, value| known(value, &["0"]))),
    option(&["flow_sleep"], Told("a job that is ahead of its share looks again after 100us")),
    option(&["flow_watermark"], Refused("fio itself has it no more")),
    // Jobs together.
    option(&["stonewall", "wait_for_previous"], Sets(|draft, value| set(&mut draft.stonewall, values::switch(value)))),
    option(
        &["wait_for"],
        Sets(|draft, value| set(&mut draft.wait_for, needed(value).map(|name| Some(name.trim().to_owned())))),
    ),
    option(&["new_group"], Sets(|draft, value| set(&mut draft.new_group, values::switch(value)))),
    option(&["exitall"], Sets(|draft, value| set(&mut draft.exitall, values::switch(value)))),
    option(&["exit_what"], Sets(exit_what)),
    option(&["thread", "threads"], Nothing),
    option(&["group_reporting", "name", "description"], Nothing),
    option(&["io_submit_mode"], Told("fio as a peer submits inline: in the mode offload fio 3.33 may never end")),
    // Checks of what was written.
    option(&["verify"], Sets(verify)),
    option(&["do_verify"], Sets(|draft, value| set(&mut draft.do_verify, values::switch(value)))),
    option(
        &[
            "verify_pattern",
            "verify_interval",
            "verify_offset",
            "verify_fatal",
            "verify_dump",
            "verify_async",
            "verify_async_cpus",
            "verify_backlog",
            "verify_backlog_batch",
            "verify_header_seed",
            "verify_sort",
            "verifysort",
            "verify_state_save",
            "verify_write_sequence",
            "verifysort_nr",
        ],
        Told(VERIFY),
    ),
    option(
        &["verify_only", "verify_state_load", "experimental_verify"],
        Refused("what an earlier run wrote is not known here"),
    ),
    // How fio goes about it.
    option(&["ioengine"], Sets(engine)),
    option(&["direct"], Sets(|draft, value| set(&mut draft.is_direct, values::switch(value)))),
    option(
        &["buffered"],
        Sets(|draft, value| set(&mut draft.is_direct, values::switch(value).map(|buffered| !buffered))),
    ),
    option(
        &[
            "iodepth_batch",
            "iodepth_batch_submit",
            "iodepth_batch_complete",
            "iodepth_batch_complete_min",
            "iodepth_batch_complete_max",
            "iodepth_low",
            "serialize_overlap",
            "userspace_reap",
            "registerfiles",
            "fixedbufs",
            "hipri",
            "hipri_percentage",
            "sqthread_poll",
            "sqthread_poll_cpu",
            "nonvectored",
            "uncached",
            "nowait",
            "force_async",
            "mem",
            "iomem",
            "iomem_align",
            "mem_align",
            "hugepage-size",
            "lockmem",
        ],
        Told(OF_FIO),
    ),
    option(
        &["fadvise_hint", "fadvise"],
        Told("of fio's buffered engines; our mmap and pread have their hints in the table"),
    ),
    option(
        &[
            "refill_buffers",
            "scramble_buffers",
            "zero_buffers",
            "buffer_pattern",
            "buffer_compress_percentage",
            "buffer_compress_chunk",
            "dedupe_percentage",
            "dedupe_mode",
            "dedupe_working_set_percentage",
            "dedupe_global",
        ],
        Told(CONTENT),
    ),
    // How results are told.
    option(
        &[
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
            "log_alternate_epoch",
        ],
        Told(NO_LOG),
    ),
    option(
        &[
            "clat_percentiles",
            "lat_percentiles",
            "slat_percentiles",
            "percentile_list",
            "significant_figures",
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw_measurement",
            "disable_bw",
            "gtod_reduce",
            "gtod_cpu",
            "clocksource",
            "unified_rw_reporting",
            "block_error_percentiles",
            "error_dump",
            "unit_base",
            "disk_util",
            "profile",
            "stats",
        ],
        Nothing,
    ),
    option(&["kb_base"], Sets(|_, value| known(value, &["1024"]))),
    // What cannot be had.
    option(&["exec_prerun", "exec_postrun"], Refused("commands of a job file are not run")),
    option(
        &[
            "nice",
            "prio",
            "prioclass",
            "priohint",
            "cmdprio_percentage",
            "cmdprio_class",
            "cmdprio",
            "cmdprio_hint",
            "cmdprio_bssplit",
            "rt",
        ],
        Refused(PRIORITY),
    ),
    option(
        &["cpus_allowed", "cpus_allowed_policy", "cpumask", "numa_cpu_nodes", "numa_mem_policy"],
        Refused(PROCESSORS),
    ),
    option(
        &["continue_on_error", "ignore_error"],
        Sets(|_, value| known(value, &["0", "none"]).map_err(|_| ERRORS.to_owned())),
    ),
    option(
        &["cgroup", "cgroup_weight", "cgroup_nodelete", "uid", "gid"],
        Refused("see --memory; groups and users are not changed here"),
    ),
    option(
        &["sprandom", "spr_op", "spr_num_regions", "nrfiles_dist", "random_sequence_stride"],
        Refused("it is of a later fio"),
    ),
];

/// The option of this name.
pub fn named(name: &str) -> Option<&'static JobOption> {
    ALL.iter().find(|option| option.names.contains(&name))
}

/// The name that is most alike.
pub fn nearest(name: &str) -> Option<&'static str> {
    let names = ALL.iter().flat_map(|option| option.names);
    let likeness = names.map(|known| (*known, strsim::jaro(known, name)));
    likeness
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .filter(|(_, likeness)| *likeness > 0.8)
        .map(|(known, _)| known)
}

fn needed(value: Option<&str>) -> Result<&str, String> {
    value.filter(|value| !value.trim().is_empty()).ok_or_else(|| "it needs a value".to_owned())
}

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn known(value: Option<&str>, legal: &[&str]) -> Result<(), String> {
    let value = needed(value)?.trim();
    match legal.contains(&value) {
        true => Ok(()),
        false => Err(format!("\"{value}\" is not understood; known are {}", legal.join(", "))),
    }
}

fn seconds(value: Option<&str>) -> Result<u64, String> {
    values::time(needed(value)?, 1_000_000_000)
}

fn blocks(
    draft: &mut Draft,
    value: Option<&str>,
    read: fn(&str) -> Result<Vec<crate::trial::BlockLength>, String>,
) -> Result<(), String> {
    draft.blocks = values::pair(needed(value)?, draft.blocks.clone(), read)?;
    Ok(())
}

fn commit(draft: &mut Draft, value: Option<&str>, metadata: bool) -> Result<(), String> {
    let every = values::count(needed(value)?)?;
    // As in fio, fsync goes before fdatasync where both are given.
    if every > 0 && (metadata || draft.commits.every == 0 || !draft.commits.metadata) {
        draft.commits.every = every;
        draft.commits.metadata = metadata;
    }
    Ok(())
}

fn sequencer(draft: &mut Draft, value: Option<&str>) -> Result<(), String> {
    known(value, &["sequential", "identical"])?;
    draft.identical = needed(value)?.trim() == "identical";
    Ok(())
}

fn turns(draft: &mut Draft, value: Option<&str>) -> Result<(), String> {
    let text = needed(value)?.trim();
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let count = values::count32(count)?;
    draft.turns = match name {
        "roundrobin" => Turns::RoundRobin(count),
        "sequential" => Turns::Sequential,
        "random" => Turns::Drawn(count),
        other => return Err(format!("\"{other}\" is not understood; known are roundrobin, sequential, random")),
    };
    Ok(())
}

fn exit_what(draft: &mut Draft, value: Option<&str>) -> Result<(), String> {
    draft.exit_what = match needed(value)?.trim() {
        "group" => EndsWith::Group,
        "stonewall" | "all" => EndsWith::Stage,
        other => return Err(format!("\"{other}\" is not understood; known are group, stonewall, all")),
    };
    draft.exits_all = needed(value)?.trim() == "all";
    Ok(())
}

fn verify(draft: &mut Draft, value: Option<&str>) -> Result<(), String> {
    let kind = needed(value)?.trim().split(':').next().unwrap_or_default().to_owned();
    draft.verify = if matches!(kind.as_str(), "0" | "none") { Verify::Not } else { Verify::AtEnd };
    Ok(())
}

/// Engines that reach a file as our methods do.
const ENGINES: &[&str] =
    &["sync", "psync", "vsync", "pvsync", "pvsync2", "io_uring", "libaio", "posixaio", "mmap", "splice"];

fn engine(draft: &mut Draft, value: Option<&str>) -> Result<(), String> {
    let name = needed(value)?.trim();
    if !ENGINES.contains(&name) {
        return Err(format!(
            "the engine {name} does not read and write files as ours do; known are {}",
            ENGINES.join(", ")
        ));
    }
    draft.engine = Engine(name.to_owned());
    Ok(())
}

/// The order that the job's options make.
pub fn order(draft: &Draft) -> Result<JobOrder, String> {
    let postfix = draft.postfix.as_deref();
    if !draft.random {
        let hole = |text: &str| match text.strip_prefix('-') {
            Some(back) => values::size(back).map(|bytes| -(bytes as i64)),
            None => values::size(text).map(|bytes| bytes as i64),
        };
        return Ok(JobOrder::Steps { hole_bytes: postfix.map_or(Ok(0), hole)? });
    }
    let run = postfix.map_or(Ok(1), values::count32)?;
    Ok(JobOrder::Draws { laws: draft.laws.clone(), run, identical: draft.identical, once: !draft.norandommap })
}

/// The amount that is nothing.
pub const NOTHING: Amount = Amount::Of(0);

/// The options as a table of Markdown: what is done with each.
pub fn markdown() -> String {
    let mut text = "| option | what is done with it |\n| --- | --- |\n".to_owned();
    for JobOption { names, does } in ALL {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let says = match does {
            Sets(_) => "as fio".to_owned(),
            Nothing => "nothing; it changes nothing that is measured".to_owned(),
            Told(says) => format!("told: {says}"),
            Refused(why) => format!("refused: {why}"),
        };
        text.push_str(&format!("| {} | {} |\n", names.join(", "), says.replace('|', "\\|")));
    }
    text
}
