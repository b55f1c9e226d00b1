//! Records made up for tests: a world in a few words, the same on every run.

use crate::record::{
    Answer, Buckets, CacheEvidence, FORMAT, Finding, Gate, Latency, Machine, MissingFacility, Outcome, Phase, Record,
    ThreadRun, Timeline,
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

    pub fn record(self) -> Record {
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

    pub fn latency(mut self, buckets: &[(u64, u64)]) -> Run {
        self.0.latency = Latency { timed_one_in: 1, buckets: Buckets(buckets.to_vec()) };
        self
    }

    pub fn spoiled(mut self, says: &str) -> Run {
        self.0.gates.push(Gate { name: "cold".to_owned(), finding: Finding::Spoiled, says: says.to_owned() });
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
            files: vec!["/data/faultline.0".into()],
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
    }
}

fn record(trial: Trial) -> Record {
    Record {
        format: FORMAT,
        tool: "faultline 0.1.0".to_owned(),
        session: "1763683200-42".to_owned(),
        began_unix_s: 1_763_683_200,
        settings: trial_settings(&trial.arm),
        trial,
        machine: machine(),
        outcome: Outcome::Done,
        phases: Vec::new(),
        threads: Vec::new(),
        timeline: Timeline { interval_ns: INTERVAL_NS, ..Timeline::default() },
        latency: Latency::default(),
        answer: Answer::Checked,
        cache: CacheEvidence {
            resident_before_bytes: Some(0),
            resident_after_bytes: None,
            source: "cachestat".to_owned(),
        },
        gates: Vec::new(),
        missing: Vec::new(),
        notes: Vec::new(),
    }
}

fn trial_settings(arm: &Arm) -> BTreeMap<String, String> {
    match arm {
        Arm::Method(choice) | Arm::Peer(choice) => choice.given.clone(),
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
        swap_bytes: [0, 0],
        remarks: Vec::new(),
    }
}
