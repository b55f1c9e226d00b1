//! The methods of a comparison when the user names none: each way a program might choose for this workload.

use crate::record::Question;
use crate::trial::{Arm, CacheState, Choice, Data, Direction, Limits, Trial};
use crate::{peer, place};
use majorfault::{Bytes, Error, Given, Nanos, Result, methods, prefetch};
use std::collections::BTreeMap;

/// The usual methods: the control, mmap with each hint, explicit I/O.
pub fn usual(direction: Direction, iodepth: u32) -> Vec<Arm> {
    let mmap = |advice: &str| Choice::plain("mmap").with("advice", advice);
    let uring = |direct: &str| Choice::plain("uring").with("depth", iodepth).with("direct", direct);
    let hints: &[&str] = match direction {
        Direction::Read => &["normal", "random", "sequential", "willneed", "hugepage"],
        Direction::Write => &["normal", "random"],
    };
    let methods = [Choice::plain("null")].into_iter().chain(hints.iter().copied().map(mmap)).chain([
        Choice::plain("pread"),
        Choice::plain("direct"),
        uring("off"),
        uring("on"),
    ]);
    methods.map(Arm::Method).collect()
}

/// Each peer with its defaults.
pub fn peers() -> Vec<Arm> {
    peer::ALL.iter().map(|peer| Arm::Peer(Choice::plain(peer.name))).collect()
}

/// Accesses a second of one thread to pages in memory, at most about so many: a fault that finds its page takes a microsecond.
const IN_MEMORY_PER_S: u64 = 1_000_000;

/// Bytes of a file, and blocks at least, that the first pass goes over: enough for many windows of read-ahead, and so few that every method
/// that reads ahead comes to its end. A pass that is cut off is wrong about these: they pay first (here, 256 MiB through mmap: 180 accesses a
/// second after a quarter of a second, 130 000 when the pass was over).
const PASS: (u64, u64) = (64 << 20, 4096);

/// The questions that random reads of a cold file hold: where they would come to each block of a file that fits `room` more than
/// once, what was called cold would be mostly the cache's speed. Then the first pass over a part of it and the steady state of all of it are
/// asked apart, this one for half of `usual_runtime` where that is what a run takes; else there is one question.
pub fn questions(trial: &Trial, room: Bytes, usual_runtime: Option<Nanos>) -> Vec<(Option<Question>, Trial)> {
    if trial.direction == Direction::Write || !fits(trial, room) || visits_at_most(trial) < 1.0 {
        return vec![(None, trial.clone())];
    }
    let first = Trial {
        workload: Choice::plain("permutation"),
        cache: CacheState::Cold,
        data: Data { size_bytes: pass_bytes(trial), ..trial.data.clone() },
        limits: Limits { time_based: false, ..trial.limits },
        ..trial.clone()
    };
    let runtime_ns = usual_runtime.map(|usual| usual.0 / 2).or(trial.limits.runtime_ns);
    let steady = Trial {
        workload: Choice::plain("uniform"),
        cache: CacheState::Warm,
        limits: Limits { runtime_ns, time_based: true, ..trial.limits },
        ..trial.clone()
    };
    vec![(Some(Question::FirstPass), first), (Some(Question::SteadyState), steady)]
}

fn pass_bytes(trial: &Trial) -> u64 {
    let (bytes, blocks) = PASS;
    trial.data.size_bytes.min(bytes.max(blocks.saturating_mul(trial.block_bytes)))
}

/// Whether the file stays in memory beside the run itself.
fn fits(trial: &Trial, room: Bytes) -> bool {
    let size = trial.data.size_bytes;
    // The kernel begins to take pages back before the last one is used.
    size.saturating_add(size / 8).saturating_add(place::smallest_limit(trial).0) <= room.0
}

/// Visits to each block where every one finds its page in memory.
fn visits_at_most(trial: &Trial) -> f64 {
    let blocks = (trial.data.size_bytes / trial.block_bytes.max(1)).max(1);
    let seconds = trial.limits.runtime_ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
    seconds * (IN_MEMORY_PER_S * u64::from(trial.threads)) as f64 / blocks as f64
}

/// Reads `mmap:advice=random,populate=read`, `mmap:policy=strided,stride=64k` or `fio:engine=libaio`. A method
/// that keeps transfers in flight gets `iodepth` of them where it is given no other number.
///
/// Errors: Invalid, naming what there is.
pub fn arm(text: &str, iodepth: u32) -> Result<Arm> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let given: Given = parameters.parse()?;
    if let Some(peer) = peer::ALL.iter().find(|peer| peer.name == name) {
        given.only(&(peer.params)())?;
        return Ok(Arm::Peer(Choice { name: name.to_owned(), given: given.0 }));
    }
    let method = methods::named(name).map_err(|error| {
        let peers: Vec<&str> = peer::ALL.iter().map(|peer| peer.name).collect();
        Error::Invalid(format!("{error}; peers are {}", peers.join(", ")))
    })?;
    given.only(&prefetch::params(method, &given)?)?;
    let mut choice = Choice { name: name.to_owned(), given: given.0 };
    if let Some(depth) = method.depth.filter(|depth| !choice.given.contains_key(*depth)) {
        choice = choice.with(depth, iodepth);
    }
    Ok(Arm::Method(choice))
}

/// The arm without a number of transfers in flight: each job has its own.
///
/// Errors: Invalid for an unknown name.
pub fn without_depth(arm: Arm) -> Result<Arm> {
    let Arm::Method(mut choice) = arm else { return Ok(arm) };
    if let Some(depth) = methods::named(&choice.name)?.depth {
        choice.given.remove(depth);
    }
    Ok(Arm::Method(choice))
}

/// Of what a limit leaves beside a trial's own needs, the part that a method may keep pages in: transfers and the kernel's share need room.
const KEPT: (u64, u64) = (3, 4);

const MIB: u64 = 1 << 20;

/// The arm with the memory that it keeps pages in inside the trial's memory limit: less than usual where nothing was said.
///
/// Errors: Invalid where more was said than the limit has room for.
pub fn within(arm: Arm, trial: &Trial) -> Result<Arm> {
    let (Some(limit), Arm::Method(choice)) = (trial.memory_bytes, &arm) else { return Ok(arm) };
    let Some(budget) = methods::named(&choice.name)?.budget else { return Ok(arm) };
    let room = limit.saturating_sub(place::smallest_limit(trial).0) / KEPT.1 * KEPT.0;
    let room = room / MIB * MIB;
    let settled: Bytes = match settings(&arm)?.1.get(budget).map(|text| text.parse()) {
        Some(Ok(bytes)) => bytes,
        _ => return Ok(arm),
    };
    if settled.0 <= room {
        return Ok(arm);
    }
    if choice.given.contains_key(budget) {
        return Err(Error::Invalid(format!(
            "{arm}: {budget}={settled} does not fit into the memory limit of {}, which has room for {}; give less, or more --memory",
            Bytes(limit),
            Bytes(room)
        )));
    }
    Ok(Arm::Method(choice.clone().with(budget, Bytes(room.max(MIB)))))
}

/// The peers that take part in jobs: with the engine that each job names.
pub fn peers_of_jobs() -> Vec<Arm> {
    let of_job =
        |peer: &&peer::Peer| peer.of_job.map(|(key, value)| Arm::Peer(Choice::plain(peer.name).with(key, value)));
    peer::ALL.iter().filter_map(of_job).collect()
}

/// The one of `arms` that does the same as `wanted`, whether its defaults were typed or not; where none does, it joins them.
///
/// Errors: Invalid for a name or parameter that nothing has.
pub fn join(arms: &mut Vec<Arm>, wanted: Arm) -> Result<Arm> {
    let settled = settings(&wanted)?;
    for arm in arms.iter() {
        if settings(arm)? == settled {
            return Ok(arm.clone());
        }
    }
    arms.push(wanted.clone());
    Ok(wanted)
}

/// An arm's name, and its settings with the defaults filled in.
fn settings(arm: &Arm) -> Result<(&str, BTreeMap<String, String>)> {
    let (Arm::Method(choice) | Arm::Peer(choice) | Arm::Procedure(choice)) = arm;
    let declared = match arm {
        Arm::Method(_) => prefetch::params(methods::named(&choice.name)?, &choice.given())?,
        Arm::Peer(_) => (peer::named(&choice.name)?.params)(),
        Arm::Procedure(_) => Vec::new(),
    };
    let mut settings: BTreeMap<String, String> =
        declared.into_iter().map(|param| (param.name.to_owned(), param.default)).collect();
    settings.extend(choice.given.clone());
    Ok((&choice.name, settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::Run;

    /// The arm within a limit, by one thread with nothing in flight: 16.27 MiB are its own needs.
    fn limited(text: &str, memory: Option<u64>) -> Result<String> {
        let record = Run::of("mmap").record();
        let trial = Trial { memory_bytes: memory, threads: 1, iodepth: 1, block_bytes: 4096, ..record.trial };
        within(arm(text, 1)?, &trial).map(|arm| arm.to_string())
    }

    #[test]
    fn what_a_method_keeps_pages_in_is_part_of_the_memory_limit() {
        let mib = |mib: u64| Some(mib << 20);

        assert_eq!(limited("pool", None).unwrap(), "pool depth=1");
        assert_eq!(limited("pool", mib(102)).unwrap(), "pool depth=1", "64 MiB are three quarters of 85.73");
        assert_eq!(limited("pool", mib(101)).unwrap(), "pool depth=1 memory=63m");
        assert_eq!(limited("uffd", mib(48)).unwrap(), "uffd memory=23m");
        assert_eq!(limited("mmap", mib(48)).unwrap(), "mmap");
    }

    #[test]
    fn more_memory_than_the_limit_has_room_for_is_refused_with_what_there_is() {
        assert_eq!(limited("pool:memory=23m", Some(48 << 20)).unwrap(), "pool depth=1 memory=23m");

        let error = limited("pool:memory=24m", Some(48 << 20)).unwrap_err().to_string();

        assert!(
            error.contains("memory=24m does not fit into the memory limit of 48m, which has room for 23m"),
            "{error}"
        );
    }
    use proptest::prelude::*;

    #[test]
    fn an_arm_that_is_there_joins_once_however_it_is_typed() {
        let mut arms = usual(Direction::Read, 32);
        let all = arms.len();

        for (typed, found) in [
            ("mmap", "mmap advice=normal"),
            ("mmap:advice=random", "mmap advice=random"),
            ("uring", "uring depth=32 direct=on"),
            ("pread", "pread"),
        ] {
            assert_eq!(join(&mut arms, arm(typed, 32).unwrap()).unwrap().to_string(), found);
        }
        assert_eq!(arms.len(), all);
    }

    #[test]
    fn an_arm_that_is_not_there_joins_as_the_last() {
        let mut arms = usual(Direction::Read, 32);

        join(&mut arms, arm("uring", 1).unwrap()).unwrap();

        assert_eq!(arms.last().unwrap().to_string(), "uring depth=1");
    }

    fn random_reads(size: Bytes) -> Trial {
        let mut trial = crate::report::synthetic::Run::of("mmap").record().trial;
        trial.data.size_bytes = size.0;
        trial.limits.runtime_ns = Some(500_000_000);
        trial
    }

    #[test]
    fn a_file_that_fits_memory_and_is_read_over_and_over_has_two_questions() {
        let asked = questions(&random_reads(Bytes::mib(256)), Bytes::gib(8), Some(Nanos::millis(500)));

        let told: Vec<String> = asked
            .iter()
            .map(|(question, trial)| {
                let (limits, size) = (trial.limits, Bytes(trial.data.size_bytes));
                let ends = format!("{:?} {}", limits.runtime_ns, limits.time_based);
                format!("{question:?} {} {} {size} {ends}", trial.workload, trial.cache)
            })
            .collect();
        let first = "Some(FirstPass) permutation cold 64m Some(500000000) false";
        assert_eq!(told, [first, "Some(SteadyState) uniform warm 256m Some(250000000) true"]);
    }

    #[test]
    fn the_first_pass_has_thousands_of_blocks_and_no_more_than_there_are() {
        let bytes = |size: Bytes, block: Bytes| {
            let mut trial = random_reads(size);
            trial.block_bytes = block.0;
            Bytes(pass_bytes(&trial)).to_string()
        };

        assert_eq!(bytes(Bytes::mib(16), Bytes::kib(4)), "16m");
        assert_eq!(bytes(Bytes::gib(1), Bytes::kib(4)), "64m");
        assert_eq!(bytes(Bytes::gib(1), Bytes::kib(64)), "256m");
    }

    #[test]
    fn a_time_that_was_given_is_each_questions() {
        let asked = questions(&random_reads(Bytes::mib(256)), Bytes::gib(8), None);

        assert!(asked.iter().all(|(_, trial)| trial.limits.runtime_ns == Some(500_000_000)), "{asked:?}");
    }

    #[test]
    fn what_does_not_fit_or_is_longer_than_a_run_reaches_or_is_written_has_one() {
        let one = |trial: &Trial, room| questions(trial, room, None) == [(None, trial.clone())];
        let mut written = random_reads(Bytes::mib(256));
        written.direction = Direction::Write;

        // Half a second reaches half a million blocks: 1.9 GiB.
        assert!(one(&random_reads(Bytes::gib(2)), Bytes::gib(64)));
        assert!(!one(&random_reads(Bytes::mib(1900)), Bytes::gib(64)));
        assert!(one(&random_reads(Bytes::mib(256)), Bytes::mib(288)), "no room for the run itself");
        assert!(one(&written, Bytes::gib(8)));
    }

    /// Arms of the registry with their own parameters set to what their defaults are, so that each is legal.
    fn any_arm() -> impl Strategy<Value = Arm> {
        let all: Vec<(&str, Vec<(String, String)>)> = methods::all()
            .map(|method| {
                let params = (method.params)();
                (method.name, params.into_iter().map(|param| (param.name.to_owned(), param.default)).collect())
            })
            .collect();
        prop::sample::select(all).prop_flat_map(|(name, params)| {
            let kept = prop::sample::subsequence(params.clone(), 0..=params.len());
            kept.prop_map(move |given| {
                Arm::Method(Choice { name: name.to_owned(), given: given.into_iter().collect() })
            })
        })
    }

    proptest! {
        #[test]
        fn any_text_is_an_arm_or_an_error(text in "\\PC*|(mmap|uring|fio|pool):?([a-z]{1,8}=[a-z0-9=,]{0,6},?){0,4}", depth: u32) {
            let _ = arm(&text, depth);
        }

        #[test]
        fn an_arm_as_the_command_line_prints_it_reads_back(wanted in any_arm()) {
            let found = arm(&crate::report::conditions::typed(&wanted), 32).unwrap();

            prop_assert_eq!(settings(&found).unwrap().0, settings(&wanted).unwrap().0);
            let (found, wanted) = (settings(&found).unwrap().1, settings(&wanted).unwrap().1);
            prop_assert!(wanted.iter().all(|(key, value)| key == "depth" || found.get(key) == Some(value)), "{found:?}");
        }
    }
}
