//! Records made up for tests: a world in a few words, the same on every run.

use crate::kinds;
use crate::record::{
    Answer, Buckets, CacheEvidence, Cause, FORMAT, Gate, GateFinding, Latency, Machine, MissingFacility, Outcome,
    Phase, Record, ThreadRun, Timeline,
};
use crate::trial::{Arm, CacheState, Choice, Data, Direction, Limits, Trial};
use std::collections::BTreeMap;

/// Length of one interval of made-up timelines.
const INTERVAL_NS: u64 = 250_000_000;

/// A record in the making.
#[derive(Clone)]
pub struct Run(Record);

impl Run {
    /// A run of `mmap` or `mmap advice=random`: 1000 accesses of 4 KiB in one second, done and valid.
    pub fn of(arm: &str) -> Run {
        Run::by(Arm::Method(choice(arm)))
    }

    /// The same by another program.
    pub fn peer(arm: &str) -> Run {
        Run::by(Arm::Peer(choice(arm)))
    }

    fn by(arm: Arm) -> Run {
        Run(record(trial(arm))).accesses(1_000).phases_ms(0, 1_000, 0)
    }

    pub fn record(mut self) -> Record {
        let Record { trial, settings, .. } = &self.0;
        self.0.traits = kinds::traits(trial, settings, self.0.accesses());
        self.0
    }

    pub fn session(mut self, name: &str) -> Run {
        self.0.session = name.to_owned();
        self
    }

    pub fn repetition(mut self, repetition: u32) -> Run {
        self.0.trial.repetition = repetition;
        self
    }

    pub fn block(mut self, bytes: u64) -> Run {
        self.0.trial.block_bytes = bytes;
        let accesses = self.0.accesses();
        self.accesses(accesses)
    }

    pub fn memory(mut self, bytes: u64) -> Run {
        self.0.trial.memory_bytes = Some(bytes);
        self
    }

    pub fn workload(mut self, workload: &str) -> Run {
        self.0.trial.workload = choice(workload);
        self
    }

    pub fn accesses(mut self, accesses: u64) -> Run {
        let bytes = accesses.saturating_mul(self.0.trial.block_bytes);
        self.0.threads = vec![ThreadRun { accesses, bytes, wall_ns: 1_000_000_000 }];
        self
    }

    pub fn phases_ms(mut self, open: u64, visit: u64, close: u64) -> Run {
        let phase = |(name, ms): (&str, u64)| Phase {
            name: name.to_owned(),
            began_ns: 0,
            wall_ns: ms.saturating_mul(1_000_000),
            counters: BTreeMap::new(),
        };
        self.0.phases = [("open", open), ("visit", visit), ("close", close)].map(phase).to_vec();
        self
    }

    /// Grew by this much in the visit; in every phase of a peer, which is watched as one piece.
    pub fn counter(mut self, name: &str, value: u64) -> Run {
        let is_peer = matches!(self.0.trial.arm, Arm::Peer(_));
        for phase in self.0.phases.iter_mut().filter(|phase| is_peer || phase.name == "visit") {
            phase.counters.insert(name.to_owned(), value);
        }
        self
    }

    /// Readings of a counter, one each interval from the start of the visit.
    pub fn sampled(mut self, name: &str, readings: &[u64]) -> Run {
        let timeline = &mut self.0.timeline;
        timeline.at_ns = (0..readings.len() as i64).map(|index| index * INTERVAL_NS as i64).collect();
        timeline.counters.insert(name.to_owned(), readings.iter().copied().map(Some).collect());
        self
    }

    /// Accesses of each interval.
    pub fn timeline(mut self, accesses: &[u64]) -> Run {
        self.0.timeline.accesses = accesses.to_vec();
        self
    }

    /// How long accesses waited until they were sent.
    pub fn queueing(mut self, buckets: &[(u64, u64)]) -> Run {
        self.0.queueing = Latency { timed_one_in: 1, buckets: Buckets(buckets.to_vec()) };
        self
    }

    pub fn latency(mut self, buckets: &[(u64, u64)]) -> Run {
        self.0.latency = Latency { timed_one_in: 1, buckets: Buckets(buckets.to_vec()) };
        self
    }

    pub fn spoiled(mut self, says: &str) -> Run {
        self.0.gates.push(Gate {
            name: "cold".to_owned(),
            finding: GateFinding::Spoiled,
            says: says.to_owned(),
            by: Cause::Setup,
            remedy: "end the programs that use the file".to_owned(),
        });
        self
    }

    pub fn failed(mut self, why: &str) -> Run {
        self.0.outcome = Outcome::Failed(why.to_owned());
        self.without_figures()
    }

    pub fn missing(mut self, what: &str, reason: &str, remedy: &str) -> Run {
        let [what, reason, remedy] = [what, reason, remedy].map(str::to_owned);
        self.0.outcome = Outcome::Missing(MissingFacility { what, reason, remedy });
        self.without_figures()
    }

    pub fn edit(mut self, edit: impl FnOnce(&mut Record)) -> Run {
        edit(&mut self.0);
        self
    }

    fn without_figures(mut self) -> Run {
        self.0.phases.clear();
        self.0.threads.clear();
        self.0.timeline = Timeline::default();
        self
    }
}

/// `repetitions` runs of `arm` at about `per_second`, with a spread of two percent that is common to all arms.
pub fn repeated(arm: &str, per_second: u64, repetitions: u32) -> Vec<Record> {
    repeated_by(&Run::of(arm), per_second, repetitions)
}

/// The same from a run that is given.
pub fn repeated_by(run: &Run, per_second: u64, repetitions: u32) -> Vec<Record> {
    let turn = |repetition: u32| {
        let moods = [100, 98, 102, 99, 101];
        let accesses = per_second / 100 * moods[repetition as usize % moods.len()];
        run.clone().accesses(accesses).repetition(repetition).record()
    };
    (0..repetitions).map(turn).collect()
}

fn choice(text: &str) -> Choice {
    let mut words = text.split(' ');
    let name = Choice::plain(words.next().unwrap_or_default());
    words.filter_map(|word| word.split_once('=')).fold(name, |choice, (key, value)| choice.with(key, value))
}

fn trial(arm: Arm) -> Trial {
    Trial {
        data: Data {
            files: vec!["/data/majorfault.0".into()],
            offset_bytes: 0,
            size_bytes: 1 << 30,
            stripe_bytes: 1 << 20,
            content_seed: Some(7),
        },
        workload: Choice::plain("uniform"),
        direction: Direction::Read,
        arm,
        block_bytes: 4096,
        threads: 1,
        iodepth: 32,
        limits: Limits { runtime_ns: Some(10_000_000_000), accesses: None, time_based: true },
        memory_bytes: None,
        cache: CacheState::Cold,
        seed: 7,
        interval_ns: INTERVAL_NS,
        repetition: 0,
        counts_hardware: false,
        jobs: Vec::new(),
        stage: String::new(),
    }
}

fn record(trial: Trial) -> Record {
    Record {
        format: FORMAT,
        tool: "majorfault 0.1.0".to_owned(),
        session: "1763683200-42".to_owned(),
        began_unix_s: 1_763_683_200,
        traits: None,
        settings: trial_settings(&trial.arm),
        trial,
        machine: machine(),
        outcome: Outcome::Done,
        phases: Vec::new(),
        threads: Vec::new(),
        timeline: Timeline { interval_ns: INTERVAL_NS, ..Timeline::default() },
        latency: Latency::default(),
        queueing: Latency::default(),
        answer: Answer::Checked,
        cache: CacheEvidence {
            resident_before_bytes: Some(0),
            resident_after_bytes: None,
            source: "cachestat".to_owned(),
        },
        files: Default::default(),
        gates: Vec::new(),
        missing: Vec::new(),
        notes: Vec::new(),
        figures: BTreeMap::new(),
        jobs: Vec::new(),
        cell: None,
        baseline: None,
        question: None,
        race: None,
        command: None,
    }
}

fn trial_settings(arm: &Arm) -> BTreeMap<String, String> {
    match arm {
        Arm::Method(choice) | Arm::Peer(choice) | Arm::Procedure(choice) => choice.given.clone(),
    }
}

fn machine() -> Machine {
    Machine {
        kernel: "6.18.0".to_owned(),
        architecture: "x86_64".to_owned(),
        cpu: "Made-up 9000".to_owned(),
        cpus: 2,
        memory_bytes: 8 << 30,
        filesystem: "ext4".to_owned(),
        device: "vda".to_owned(),
        read_ahead_kb: Some(8192),
        max_sectors_kb: Some(1280),
        rotational: Some(false),
        thp: "madvise".to_owned(),
        lru: "classic".to_owned(),
        cgroup: "v2".to_owned(),
        hypervisor: "kvm".to_owned(),
        in_memory: None,
        swap_bytes: [0, 0],
        remarks: Vec::new(),
    }
}

/// A whole session with everything that can happen in it: the shapes of CIDR 2022, a missing, a failed and a spoiled arm.
pub fn story() -> Vec<Record> {
    let methods = [
        ("uring depth=32 direct=on", 96_000),
        ("direct", 13_500),
        ("pread", 13_000),
        ("uring depth=32 direct=off", 88_000),
    ];
    let explicit = methods.iter().flat_map(|(arm, rate)| told(&Run::of(arm), *rate, |_| 1.0));
    let fio = told(&Run::peer("fio ioengine=io_uring"), 95_000, |_| 1.0);
    let random = told(&Run::of("mmap advice=random"), 45_000, |second| match second {
        second if second < 3.0 => 1.0,
        second if second < 4.0 => 0.02,
        _ => 0.43,
    });
    let normal = told(&Run::of("mmap advice=normal"), 2_600, |_| 1.0);
    let mut records: Vec<Record> = explicit.chain(fio).chain(random).chain(normal).collect();
    records.extend(repeated_by(&Run::of("null").memory(256 << 20), 90_000_000, 6));
    let spoiled = Run::of("uring depth=32 direct=off")
        .accesses(300_000)
        .repetition(6)
        .spoiled("600 MiB of 1.00 GiB were cached when the clock started");
    let missing =
        Run::of("mmap populate=write").missing("MADV_POPULATE_WRITE", "kernel 5.10 is too old", "use 5.14 or newer");
    let failed =
        Run::of("mmap advice=willneed").failed("SIGBUS at offset 4096: the file became shorter while it was mapped");
    records.extend([spoiled, missing, failed].map(|run| run.memory(256 << 20).record()));
    records
}

/// Six runs of ten seconds whose rate follows `shape`, with the counters that go with a cache of 256 MiB.
fn told(run: &Run, rate: u64, shape: impl Fn(f64) -> f64) -> Vec<Record> {
    let is_mapped = run.0.trial.arm.to_string().starts_with("mmap");
    let is_direct = run.0.trial.arm.to_string().contains("direct=on") || run.0.trial.arm.to_string() == "direct";
    let amplification = if run.0.trial.arm.to_string().contains("normal") { 34 } else { 1 };
    let turn = |repetition: u32| {
        let mood = [1.0, 0.97, 1.02][repetition as usize % 3];
        let ripple = |index: u64| 1.0 + 0.04 * ((index * 7 + u64::from(repetition) * 3) % 5) as f64 / 5.0 - 0.02;
        let second = |index: u64| (index as f64 + 0.5) / 4.0;
        let counts: Vec<u64> =
            (0..40).map(|index| (rate as f64 / 4.0 * mood * ripple(index) * shape(second(index))) as u64).collect();
        let accesses: u64 = counts.iter().sum();
        let fill = |index: u64| {
            if is_direct || !is_mapped && amplification == 0 { 8 << 20 } else { (index * 22).min(256) << 20 }
        };
        let evicted =
            |each: u64| (0..41u64).map(|index| 50_000 + index.saturating_sub(12) * each).collect::<Vec<u64>>();
        let per_interval = if is_direct { 0 } else { rate / 12 };
        let mut run = run
            .clone()
            .memory(256 << 20)
            .phases_ms(3, 10_000, 1)
            .accesses(accesses)
            .timeline(&counts)
            .repetition(repetition);
        run = run
            .counter("process_read_bytes", accesses * 4096 * amplification)
            .counter("device_read_bytes", accesses * 4096 * amplification);
        run = run.counter("minor_faults", 500).counter("major_faults", if is_mapped { accesses } else { 0 });
        run = run
            .counter("user_ns", accesses * 900)
            .counter("system_ns", accesses * if is_mapped { 14_000 } else { 4_200 });
        run = run.counter("tlb_shootdowns", if is_mapped { accesses / 20 } else { 30 });
        run = run.latency(&latencies(1_000_000_000 / rate.max(1)));
        run.sampled("cgroup_usage_bytes", &(0..41).map(fill).collect::<Vec<u64>>())
            .sampled("cached_bytes", &(0..41).map(|index| fill(index) * 9 / 10).collect::<Vec<u64>>())
            .sampled("tlb_shootdowns", &evicted(if is_mapped { per_interval / 8 } else { 3 }))
            .sampled("pgsteal_kswapd", &evicted(per_interval * 2))
            .sampled("pgsteal_direct", &evicted(per_interval / 3))
            .edit(|record| {
                record.gates.push(Gate {
                    name: "cold".to_owned(),
                    finding: GateFinding::Fine,
                    says: "0 B of 1.00 GiB were cached".to_owned(),
                    by: Cause::Setup,
                    remedy: String::new(),
                });
                record.missing.push(MissingFacility {
                    what: "hardware counters".to_owned(),
                    reason: "perf_event_open: no such event (a guest without a PMU)".to_owned(),
                    remedy: "run on the host, or give the guest a virtual PMU".to_owned(),
                });
            })
            .record()
    };
    (0..6).map(turn).collect()
}

fn latencies(typical_ns: u64) -> Vec<(u64, u64)> {
    let shape = [
        (0.5, 400),
        (0.8, 40_000),
        (1.0, 30_000),
        (1.4, 20_000),
        (2.5, 9_000),
        (6.0, 800),
        (20.0, 90),
        (90.0, 12),
        (400.0, 1),
    ];
    shape.iter().map(|(factor, count)| ((typical_ns as f64 * factor) as u64, *count)).collect()
}
