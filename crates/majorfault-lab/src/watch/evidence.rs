//! What is known about a watched process: gathered once, plain data, judged by the rules.

use super::grid::{FaultTimeline, Grid};
use crate::watch::files::Descriptor;
use majorfault::Missing;
use majorfault::observe::pattern::{Access, Recognised};
use majorfault::observe::places::FileId;
use majorfault::proc::maps::Vma;
use std::collections::HashMap;
use std::time::Duration;

/// Evicted pages needed again each second that mean memory pressure.
pub const PRESSURE: f64 = 100.0;

/// Everything that a rule may look at. What could not be seen is `None`, with its reason in `missing`.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The process.
    pub target: Watched,
    /// How long it was watched.
    pub watched: Duration,
    /// Its state at the end.
    pub process: Process,
    /// Its read calls and the bytes that devices read for it, during the watch.
    pub calls: Option<Calls>,
    /// Its page faults, one by one.
    pub faults: Option<FaultCounts>,
    /// Its faults over time.
    pub timeline: Option<FaultTimeline>,
    /// The advice it gave, call by call.
    pub advice: Option<AdviceSeen>,
    /// The regular files it has mapped, most faults first.
    pub files: Vec<MappedFile>,
    /// The files that calls read through the page cache, most reads first; empty as well where that is not seen.
    pub reads: Vec<ReadFile>,
    /// The files that it has open.
    pub descriptors: Vec<Descriptor>,
    /// Counters by name: their growth, or their level.
    pub counters: Vec<(&'static str, u64)>,
    /// The cgroup that limits it.
    pub group: Option<Group>,
    /// The machine around it.
    pub machine: MachineState,
    /// Private writable anonymous memory with MADV_HUGEPAGE, and how much of it is in huge pages; only with --deep.
    pub huge: Option<Huge>,
    /// Who faulted in which file, the longest waits first; empty unless asked for.
    pub stacks: Vec<Stack>,
    /// What could not be seen, and why.
    pub missing: Vec<Missing>,
    /// Whether the process ended during the watch.
    pub ended: bool,
}

/// Calls that led to faults in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The file that was touched.
    pub file: FileId,
    /// Its path.
    pub path: String,
    /// The function that touched it first, then who called.
    pub frames: Vec<CodePlace>,
    /// Faults.
    pub faults: u64,
    /// Nanoseconds waited in them.
    pub waited_ns: u64,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodePlace {
    /// Its address in memory.
    pub address: u64,
    /// The file it is in, with the file's path and the offset there; none for code that was made while the program ran.
    pub file: Option<(FileId, String, u64)>,
}

/// The watched process.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Its number.
    pub pid: u32,
    /// Its command's name.
    pub name: String,
    /// Its command line.
    pub command: String,
}

/// /proc/PID/status and the size of /proc/PID/maps.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Threads.
    pub threads: u64,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Of these, anonymous.
    pub anonymous_bytes: u64,
    /// Page tables.
    pub page_table_bytes: u64,
    /// Mappings.
    pub mappings: u64,
    /// Huge pages are off for the whole process: prctl(PR_SET_THP_DISABLE).
    pub huge_pages_off: bool,
}

impl Process {
    /// Adds another process. Memory that both share counts twice.
    pub fn add(&mut self, other: &Process) {
        self.threads += other.threads;
        self.resident_bytes += other.resident_bytes;
        self.anonymous_bytes += other.anonymous_bytes;
        self.page_table_bytes += other.page_table_bytes;
        self.mappings += other.mappings;
    }
}

/// The growth of /proc/PID/io.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// Bytes that read calls returned, from the cache or a device.
    pub read_call_bytes: u64,
    /// Read calls.
    pub read_calls: u64,
    /// Bytes that devices read for the process.
    pub device_bytes: u64,
}

/// The sampler's counts.
#[derive(Clone, Debug, Default)]
pub struct FaultCounts {
    /// Faults.
    pub seen: u64,
    /// Of these, those that started a read of a device.
    pub major: u64,
    /// Of these, those that waited: major faults, and faults for a read already under way (longer than 20 us, in a file).
    pub waits: u64,
    /// Nanoseconds waited in them, over all threads.
    pub waited_ns: u64,
    /// In anonymous memory.
    pub anonymous: u64,
    /// In files.
    pub in_files: u64,
    /// At addresses that were unmapped before they were looked up.
    pub unresolved: u64,
    /// Records lost because they did not fit into the rings.
    pub lost: u64,
    /// Processes forked.
    pub forks: u64,
    /// Mappings made.
    pub mapped: u64,
    /// Of these, of files.
    pub mapped_files: u64,
    /// Threads not followed.
    pub unfollowed: usize,
    /// Threads that faulted.
    pub threads: usize,
    /// Nanoseconds waited in files by each thread that waited.
    pub waiting_ns: Vec<u64>,
    /// Share of the time in which faults were sampled; below one for a program that faults so often that seeing all would slow it
    /// down. Its counts are estimates then, but for major faults, which are all seen.
    pub sampled: Option<f64>,
    /// Half the width of the 95 % interval of a part of [`seen`](FaultCounts::seen) as a share of it; none where it is not known.
    pub error: Option<f64>,
    /// Half the width of the 95 % interval of [`waited_ns`](FaultCounts::waited_ns) as a share of it; none where it is not known.
    pub waited_error: Option<f64>,
}

/// Share of the time that is as good as all of it: a first short pause is no reason to distrust the counts.
pub const NEARLY_ALL: f64 = 0.99;

impl FaultCounts {
    /// Whether nearly all faults were seen, so that no count is an estimate.
    pub fn are_all_seen(&self) -> bool {
        self.sampled.is_none_or(|share| share >= NEARLY_ALL)
    }
}

/// The advice calls seen.
#[derive(Clone, Debug, Default)]
pub struct AdviceSeen {
    /// Number of calls by the constant's name.
    pub calls: Vec<(&'static str, u64)>,
    /// The files announced as needed soon, the longest call first.
    pub will_need: Vec<WillNeed>,
    /// Calls for ranges or descriptors that belonged to no known file when they were looked up.
    pub unresolved: u64,
    /// Calls lost because they did not fit into the rings.
    pub lost: u64,
    /// Threads not followed.
    pub unfollowed: usize,
}

/// A file that was announced as needed soon: MADV_WILLNEED, POSIX_FADV_WILLNEED, readahead(2).
#[derive(Clone, Debug, Default)]
pub struct WillNeed {
    /// The file's identity.
    pub id: FileId,
    /// Its path.
    pub path: String,
    /// The advice of the longest call, by its constant's name.
    pub advice: &'static str,
    /// Calls; the first 16384 are examined.
    pub calls: u64,
    /// Bytes of the file that the longest call asked for.
    pub longest_bytes: u64,
    /// Bytes of the median call.
    pub median_bytes: u64,
    /// Calls that asked for more than the kernel reads in one call (see [`WillNeed::cap_bytes`]).
    pub beyond_cap: u64,
    /// read_ahead_kb of its device, now; a file keeps the value that was in force when it was opened.
    pub read_ahead_kb: Option<u64>,
    /// Largest request of its device, max_sectors_kb.
    pub largest_request_kb: Option<u64>,
    /// Size of the file in bytes.
    pub size_bytes: Option<u64>,
    /// Bytes of it in the page cache at the end.
    pub cached_bytes: Option<u64>,
}

/// A regular file that is mapped.
#[derive(Clone, Debug, Default)]
pub struct MappedFile {
    /// The file's identity.
    pub id: FileId,
    /// Its path as the kernel prints it.
    pub path: String,
    /// Whether it no longer has a name.
    pub deleted: bool,
    /// The path by which we reach it, where its own is not valid for us (another mount namespace) or it is gone.
    pub reached: Option<std::path::PathBuf>,
    /// Size in bytes, where it could be read.
    pub size_bytes: Option<u64>,
    /// Size before and after, where it became shorter during the watch.
    pub shrunk: Option<(u64, u64)>,
    /// Type of its file system.
    pub filesystem: String,
    /// Options of its mount.
    pub mount_options: String,
    /// read_ahead_kb of its device.
    pub read_ahead_kb: Option<u64>,
    /// Its mappings, with details where they were requested.
    pub mappings: Vec<FileMapping>,
    /// Bytes of it in the page cache at the end.
    pub cached_bytes: Option<u64>,
    /// Bytes of it that were read into the page cache, from checks every 100 ms; only where faults cannot be seen.
    pub came_bytes: Option<u64>,
    /// Faults in it.
    pub faults: u64,
    /// Of these, those that started a read.
    pub major: u64,
    /// Of these, those that waited (see [`FaultCounts::waits`]).
    pub waits: u64,
    /// Nanoseconds waited.
    pub waited_ns: u64,
    /// Different pages that faulted.
    pub touched_pages: u64,
    /// The order of the faults.
    pub order: Option<Recognised>,
    /// The latest faults.
    pub latest: Vec<Access>,
    /// All faults by time and offset, where there were any.
    pub grid: Option<Grid>,
    /// The latest of MADV_NORMAL, MADV_RANDOM and MADV_SEQUENTIAL seen for a mapping of it.
    pub advised: Option<&'static str>,
    /// Calls of MADV_POPULATE_READ and MADV_POPULATE_WRITE seen for mappings of it.
    pub populate_calls: u64,
}

/// A file that calls read.
#[derive(Clone, Debug, Default)]
pub struct ReadFile {
    /// The file's identity.
    pub id: FileId,
    /// Its path; empty where it was closed before anybody could look.
    pub path: String,
    /// Size in bytes, where it could be read.
    pub size_bytes: Option<u64>,
    /// Bytes of it in the page cache at the end.
    pub cached_bytes: Option<u64>,
    /// Read calls.
    pub calls: u64,
    /// Bytes that they asked for, in whole pages.
    pub bytes: u64,
    /// Different pages that they began at.
    pub begun_pages: u64,
    /// The order of the calls.
    pub order: Option<Recognised>,
    /// The latest of them.
    pub latest: Vec<Access>,
    /// All by time and offset.
    pub grid: Option<Grid>,
}

/// One mapping of a file.
#[derive(Clone, Debug, Default)]
pub struct FileMapping {
    /// The mapping.
    pub vma: Vma,
    /// Advice in force and page sizes; only with --deep.
    pub deep: Option<Deep>,
}

/// What only smaps shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deep {
    /// MADV_RANDOM is in force.
    pub random: bool,
    /// MADV_SEQUENTIAL is in force.
    pub sequential: bool,
    /// MADV_HUGEPAGE is in force.
    pub huge_wanted: bool,
    /// MADV_NOHUGEPAGE is in force.
    pub huge_refused: bool,
    /// Bytes mapped and present.
    pub resident_bytes: u64,
    /// Of these, bytes mapped by huge entries.
    pub huge_bytes: u64,
}

/// Anonymous memory and huge pages; only with --deep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Huge {
    /// Resident anonymous bytes in mappings of at least 2 MiB.
    pub anonymous_bytes: u64,
    /// Of these, in huge pages.
    pub huge_bytes: u64,
    /// Of these, where MADV_HUGEPAGE is in force.
    pub wanted_bytes: u64,
    /// Of these, where MADV_NOHUGEPAGE is in force: the program has decided against huge pages.
    pub refused_bytes: u64,
}

/// The memory cgroup that limits the process.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its directory.
    pub path: String,
    /// Its limit.
    pub limit_bytes: Option<u64>,
}

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct MachineState {
    /// Kernel, as major and minor version.
    pub kernel: (u32, u32),
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Memory available without swapping.
    pub available_bytes: u64,
    /// Processors.
    pub processors: u64,
    /// transparent_hugepage/enabled: the word in force.
    pub huge_pages: String,
    /// vm.max_map_count.
    pub most_mappings: u64,
}

impl Evidence {
    /// The growth or level of a counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The rate per second of the watch.
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.watched.as_secs_f64().max(1e-3)
    }

    /// The mapped files that hold data.
    pub fn data_files(&self) -> impl Iterator<Item = &MappedFile> {
        self.files.iter().filter(|file| file.is_data())
    }

    /// Evicted file pages needed again each second: the cgroup's where they are counted, otherwise the machine's.
    pub fn refaults(&self) -> Option<(f64, &'static str)> {
        let group = self.group.as_ref().filter(|group| group.limit_bytes.is_some());
        let own = group.and_then(|_| self.counter("cgroup_refault_pages")).map(|count| (self.rate(count), "cgroup"));
        own.or_else(|| {
            let refaults = self.counter("workingset_refault_file")?;
            // The machine's refaults include those in cgroups at their own limits; its evictions do not.
            let evicted = self.counter("pgsteal_kswapd").zip(self.counter("pgsteal_direct"));
            let most = evicted.map_or(u64::MAX, |(kswapd, direct)| kswapd + direct);
            Some((self.rate(refaults.min(most)), "machine"))
        })
    }

    /// Bytes that the page cache may take: the limit without anonymous memory, or what the machine has available.
    pub fn room_bytes(&self) -> Option<u64> {
        let of_limit = self.group.as_ref().and_then(|group| group.limit_bytes).map(|limit| {
            let anonymous = self.counter("cgroup_anon_bytes").unwrap_or(self.process.anonymous_bytes);
            limit.saturating_sub(anonymous)
        });
        let of_machine = Some(self.machine.available_bytes).filter(|bytes| *bytes > 0);
        of_limit.into_iter().chain(of_machine).min()
    }

    /// Whether MADV_RANDOM would do harm now: since Linux 6.3 its pages are not marked as used (vma_has_recency), and memory
    /// is under pressure.
    pub fn random_costs_hot_pages(&self) -> bool {
        self.machine.kernel >= (6, 3) && self.refaults().is_some_and(|(rate, _)| rate >= PRESSURE)
    }
}

impl WillNeed {
    /// The most that the kernel reads in one call: force_page_cache_ra (mm/readahead.c) silently cuts a call to the larger of the
    /// read-ahead window and the device's largest request.
    pub fn cap_bytes(&self) -> Option<u64> {
        Some(self.read_ahead_kb?.max(self.largest_request_kb?) << 10)
    }
}

impl MappedFile {
    /// Whether it holds data: none of its mappings is executable, and it is a file that somebody has named.
    pub fn is_data(&self) -> bool {
        !self.is_memory() && self.mappings.iter().all(|mapping| mapping.vma.rights[2] != b'x')
    }

    /// Whether the kernel only calls it a file: shared anonymous memory, a memfd, System V shared memory, huge pages.
    pub fn is_memory(&self) -> bool {
        let is_kernels = ["/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage", "anon_inode:", "/dev/dri/", "/dmabuf"];
        self.filesystem == "hugetlbfs" || is_kernels.iter().any(|name| self.path.starts_with(name))
    }

    /// Whether its bytes are on a device, where a fault may have to wait for them.
    pub fn is_stored(&self) -> bool {
        !["tmpfs", "ramfs", "devtmpfs", "hugetlbfs"].contains(&self.filesystem.as_str())
    }

    /// Its path as people read it: a file without a name is marked.
    pub fn label(&self) -> String {
        if self.deleted { format!("{} (deleted)", self.path) } else { self.path.clone() }
    }

    /// Bytes mapped, over all mappings.
    pub fn mapped_bytes(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.vma.len()).sum()
    }

    /// Bytes of pages that were read because a thread touched them; a page that was dropped meanwhile counts again.
    pub fn asked_bytes(&self) -> u64 {
        self.touched_pages.max(self.major) * 4096
    }

    /// Share of the faults that the same thread follows by one in the next page: accesses that span several pages.
    pub fn neighbour_share(&self) -> f64 {
        let mut last: HashMap<u32, u64> = HashMap::new();
        let mut next = |access: &Access| {
            let page = access.offset / 4096;
            last.insert(access.thread, page).is_some_and(|before| before + 1 == page)
        };
        self.latest.iter().filter(|access| next(access)).count() as f64 / self.latest.len().max(1) as f64
    }

    /// How MADV_RANDOM is known to be in force: from smaps, or without smaps from a call that was seen; none where it is not.
    pub fn random_advice(&self) -> Option<&'static str> {
        match self.mappings.iter().any(|mapping| mapping.deep.is_some()) {
            true => self.any(|deep| deep.random).then_some("advice random in force (VmFlags rr)"),
            false => {
                (self.advised == Some("MADV_RANDOM")).then_some("advice random given during the watch (MADV_RANDOM)")
            }
        }
    }

    /// Whether any mapping of it has this, according to smaps.
    pub fn any(&self, is: impl Fn(&Deep) -> bool) -> bool {
        self.mappings.iter().filter_map(|mapping| mapping.deep.as_ref()).any(is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::scenes::{count, healthy, with_file};

    fn watched(length: Duration) -> Evidence {
        Evidence { watched: length, ..Evidence::default() }
    }

    #[test]
    fn a_rate_is_of_a_second_and_a_watch_of_a_moment_counts_as_a_millisecond() {
        assert_eq!(watched(Duration::from_millis(2500)).rate(500), 200.0);
        assert_eq!(watched(Duration::from_micros(500)).rate(1), 1000.0);
        assert_eq!(watched(Duration::ZERO).rate(1), 1000.0);
    }

    #[test]
    fn the_refaults_of_a_cgroup_with_a_limit_go_before_those_of_the_machine() {
        let mut evidence = healthy();
        count(&mut evidence, "cgroup_refault_pages", 100);
        count(&mut evidence, "workingset_refault_file", 5000);
        assert_eq!(evidence.refaults(), Some((20.0, "cgroup")));

        evidence.group.as_mut().unwrap().limit_bytes = None;
        assert_eq!(evidence.refaults(), Some((1000.0, "machine")));
    }

    #[test]
    fn a_machine_has_no_more_refaults_than_evictions() {
        let mut evidence = healthy();
        evidence.group = None;
        count(&mut evidence, "workingset_refault_file", 5000);
        count(&mut evidence, "pgsteal_kswapd", 1000);
        assert_eq!(evidence.refaults(), Some((1000.0, "machine")), "one count alone says nothing");

        count(&mut evidence, "pgsteal_direct", 500);
        assert_eq!(evidence.refaults(), Some((300.0, "machine")));
    }

    #[test]
    fn without_a_count_there_are_no_refaults() {
        assert_eq!(watched(Duration::from_secs(1)).refaults(), None);
        assert!(!watched(Duration::from_secs(1)).random_costs_hot_pages());
    }

    #[test]
    fn the_kernel_reads_the_larger_of_window_and_request_for_one_call() {
        let cap = |read_ahead_kb, largest_request_kb| {
            WillNeed { read_ahead_kb, largest_request_kb, ..WillNeed::default() }.cap_bytes()
        };

        assert_eq!(cap(Some(128), Some(1280)), Some(1_310_720));
        assert_eq!(cap(Some(4096), Some(1280)), Some(4 << 20));
        assert_eq!((cap(None, Some(1280)), cap(Some(128), None)), (None, None));
    }

    #[test]
    fn a_file_with_one_executable_mapping_is_no_data() {
        let mut evidence = with_file(|file| file.mappings.push(file.mappings[0].clone()));
        assert_eq!(evidence.data_files().count(), 1);
        assert_eq!(evidence.files[0].mapped_bytes(), 2 << 30);

        evidence.files[0].mappings[1].vma.rights = *b"r-xp";
        assert_eq!(evidence.data_files().count(), 0);
    }

    #[test]
    fn pages_that_waited_again_are_asked_for_again() {
        let asked = |touched_pages, major| MappedFile { touched_pages, major, ..MappedFile::default() }.asked_bytes();

        assert_eq!(asked(10, 3), 40_960);
        assert_eq!(asked(10, 11), 45_056);
    }

    #[test]
    fn advice_in_force_on_one_of_two_mappings_is_in_force() {
        let mut evidence = with_file(|file| file.mappings.push(file.mappings[0].clone()));
        assert_eq!(evidence.files[0].random_advice(), None);

        evidence.files[0].mappings[1].deep = Some(Deep { random: true, ..Deep::default() });
        assert_eq!(evidence.files[0].random_advice(), Some("advice random in force (VmFlags rr)"));
        assert!(!evidence.files[0].any(|deep| deep.sequential));
    }
}
