//! The order of one job of a stage: which file, which place, how many bytes, read or written.
//!
//! Places follow fio's own rules (io_u.c of fio 3.33, compared in tests with what fio logs); the random numbers are ours.

use super::shuffle::Shuffle;
use crate::data::mix;
use crate::trial::{BlockLength, Job, JobOrder, Law, READS, Turns, WRITES};
use majorfault::{Error, Extent, Result};
use rand::Rng;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

/// One access of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// [`READS`] or [`WRITES`].
    pub side: usize,
    /// Where, in the address space of the job's files, one behind the other.
    pub extent: Extent,
}

/// The accesses of one job, one after the other.
pub struct JobPlan<'a> {
    job: &'a Job,
    files: Vec<Place>,
    draws: [Draw; 2],
    random: Pcg64,
    /// Which file has its turn, and for how many accesses more.
    turn: (usize, u32),
    /// Accesses until the next draw.
    run_left: u32,
    loops_left: u64,
    /// Bytes that this loop has moved.
    moved: u64,
    /// Accesses of the list so far: reads, writes.
    listed: [u64; 2],
    /// Whether writes are read again and nothing else.
    verifying: bool,
    /// Files whose range has begun again, and nobody was told yet.
    again: Vec<usize>,
}

/// Where a job is in one of its files.
struct Place {
    /// Behind the last access: of reads, of writes.
    behind: [u64; 2],
    /// The last access: of reads, of writes.
    last: [Option<u64>; 2],
    shuffle: Shuffle,
    /// Numbers of it that were used.
    taken: u64,
    done: bool,
}

/// A law, ready to draw from.
enum Draw {
    Plain,
    Zipf(Skew),
}

/// Ranks by Zipf's law as fio draws them: the approximation of Gray and others, "Quickly generating billion-record synthetic
/// databases" (SIGMOD 1994).
struct Skew {
    blocks: f64,
    theta: f64,
    /// The sum of all weights.
    sum: f64,
    eta: f64,
}

/// Weights that are added one by one; beyond, it hardly changes.
const SUMMED: u64 = 10_000_000;

impl Skew {
    fn new(blocks: u64, theta: f64) -> Skew {
        let weight = |rank: u64| (rank as f64).powf(-theta);
        let sum: f64 = (1..=blocks.min(SUMMED)).map(weight).sum();
        let all = blocks as f64;
        let eta = (1.0 - (2.0 / all).powf(1.0 - theta)) / (1.0 - (1.0 + weight(2)) / sum);
        Skew { blocks: all, theta, sum, eta }
    }

    /// The rank, from 0, at `number` of the range from 0 to 1.
    fn rank(&self, number: f64) -> u64 {
        let Skew { blocks, theta, sum, eta } = *self;
        match number * sum {
            below if below < 1.0 => 0,
            below if below < 1.0 + 0.5f64.powf(theta) => 1,
            _ => (blocks * (eta * number - eta + 1.0).powf(1.0 / (1.0 - theta))) as u64,
        }
    }
}

impl Place {
    /// The next block in the file's order of its own; none when all were used.
    fn untaken(&mut self) -> Option<u64> {
        let is_left = self.taken < self.shuffle.count();
        self.taken += u64::from(is_left);
        is_left.then(|| self.shuffle.at(self.taken - 1))
    }

    fn begins_again(&mut self) {
        self.taken = 0;
        self.shuffle.again();
    }
}

impl<'a> JobPlan<'a> {
    /// The order of `job` from its beginning.
    ///
    /// Errors: Invalid where its range has no room for one access, or a distribution cannot be drawn.
    pub fn new(job: &'a Job) -> Result<JobPlan<'a>> {
        let shortest = |side: usize| job.blocks[side].iter().map(|block| block.bytes).min().unwrap_or(0);
        let sides = [(READS, job.reads_percent > 0), (WRITES, job.writes())];
        for (side, _) in sides.into_iter().filter(|(_, used)| *used) {
            if shortest(side) == 0 || shortest(side) > job.range_bytes {
                return Err(Error::Invalid(format!(
                    "the job {} has {} bytes of each file and accesses of {}; give it more --size",
                    job.name,
                    job.range_bytes,
                    shortest(side)
                )));
            }
        }
        let blocks = |side: usize| (job.range_bytes / job.align_bytes[side].max(1)).max(1);
        let place = |number: u64| Place {
            behind: [job.offset_bytes; 2],
            last: [None; 2],
            shuffle: Shuffle::new(blocks(if job.writes() { WRITES } else { READS }), mix(job.seed ^ mix(number))),
            taken: 0,
            done: false,
        };
        let draw = |side: usize| match &job.order {
            JobOrder::Draws { laws, .. } => Draw::new(&laws[side], blocks(side)),
            JobOrder::Steps { .. } => Draw::Plain,
        };
        Ok(JobPlan {
            job,
            files: (0..job.files.len() as u64).map(place).collect(),
            draws: [draw(READS), draw(WRITES)],
            random: Pcg64::seed_from_u64(job.seed),
            turn: (0, job.turns.length()),
            // The first access is drawn.
            run_left: 1,
            loops_left: job.loops.max(1),
            moved: 0,
            listed: [0; 2],
            verifying: false,
            again: Vec::new(),
        })
    }

    /// The same order once more, with the writes read and nothing else.
    ///
    /// Errors: as [`JobPlan::new`].
    pub fn verifying(job: &'a Job) -> Result<JobPlan<'a>> {
        Ok(JobPlan { verifying: true, ..JobPlan::new(job)? })
    }

    /// The files whose range the next access begins again, or an access since the last call did.
    pub fn began_again(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.again)
    }

    fn planned(&mut self) -> Option<Access> {
        if self.moved >= self.job.io_bytes && !self.next_loop() {
            return None;
        }
        let side = self.side();
        for attempt in 0..2 {
            while let Some(file) = self.file() {
                if let Some((offset, length)) = self.place(file, side) {
                    return Some(self.taken(file, side, offset, length));
                }
                self.files[file].done = true;
                self.turn.1 = 0;
            }
            if attempt == 1 || !self.next_loop() {
                break;
            }
        }
        None
    }

    /// Begins the next loop, where there is one.
    fn next_loop(&mut self) -> bool {
        self.loops_left = self.loops_left.saturating_sub(u64::from(!self.job.limits.time_based));
        if self.loops_left == 0 {
            return false;
        }
        self.moved = 0;
        for place in &mut self.files {
            place.behind = [self.job.offset_bytes; 2];
            place.done = false;
            place.begins_again();
        }
        self.again = (0..self.files.len()).collect();
        true
    }

    fn side(&mut self) -> usize {
        match self.job.reads_percent {
            100 => READS,
            0 => WRITES,
            percent if self.random.random_range(1..=100) <= percent => READS,
            _ => WRITES,
        }
    }

    /// The file whose turn it is; none where all are done.
    fn file(&mut self) -> Option<usize> {
        let count = self.files.len();
        let (now, left) = self.turn;
        if left > 0 && !self.files[now].done {
            self.turn.1 = left - u32::from(self.job.turns != Turns::Sequential);
            return Some(now);
        }
        let first = match self.job.turns {
            Turns::Drawn(_) => self.random.random_range(0..count),
            // The first access is of the first file.
            Turns::RoundRobin(_) if left == 0 => (now + 1) % count,
            Turns::RoundRobin(_) | Turns::Sequential => now,
        };
        let found = (0..count).map(|more| (first + more) % count).find(|file| !self.files[*file].done)?;
        self.turn = (found, self.job.turns.length() - u32::from(self.job.turns != Turns::Sequential));
        Some(found)
    }

    /// Where the next access to `file` lies in its range, and its length.
    fn place(&mut self, file: usize, side: usize) -> Option<(u64, u64)> {
        let offset = match &self.job.order {
            JobOrder::Steps { hole_bytes } => self.step(file, side, *hole_bytes)?,
            JobOrder::Draws { identical, .. } => self.drawn(file, side, *identical)?,
        };
        let room = self.job.range_bytes.checked_sub(offset)?;
        Some((offset, self.length(side, room)?))
    }

    /// The place behind the last one, `hole` further on; see fio's `get_next_seq_offset`.
    fn step(&mut self, file: usize, side: usize, hole: i64) -> Option<u64> {
        let Job { offset_bytes: begin, range_bytes: range, file_bytes, .. } = *self.job;
        let rewinds = self.job.limits.time_based && self.files.len() == 1 || self.writes_round();
        let behind = &mut self.files[file].behind[side];
        if *behind >= begin + range && rewinds {
            *behind = begin;
            self.again.push(file);
        }
        if *behind >= file_bytes {
            return None;
        }
        let end = range.min(file_bytes);
        if *behind == begin && begin > 0 && hole < 0 {
            *behind = end;
        }
        let place = behind.checked_sub(begin)?;
        if place == 0 || hole == 0 {
            return (place < range).then_some(place);
        }
        let place = match place.checked_add_signed(hole) {
            Some(place) if place < file_bytes => place,
            _ if hole > 0 => begin,
            _ => end.checked_add_signed(hole)?,
        };
        (place < range).then_some(place)
    }

    /// Whether more is written than the range holds.
    fn writes_round(&self) -> bool {
        self.job.writes() && self.job.io_bytes > self.job.range_bytes * self.files.len() as u64
    }

    fn drawn(&mut self, file: usize, side: usize, identical: bool) -> Option<u64> {
        self.run_left -= 1;
        if self.run_left == 0 {
            self.run_left = self.job.run();
            return self.draw(file, side);
        }
        match identical {
            true => Some(self.files[file].last[side].map_or(0, |last| last - self.job.offset_bytes)),
            false => self.step(file, side, 0).or_else(|| self.draw(file, side)),
        }
    }

    fn draw(&mut self, file: usize, side: usize) -> Option<u64> {
        let JobOrder::Draws { laws, once, .. } = &self.job.order else { return None };
        let align = self.job.align_bytes[side].max(1);
        let blocks = (self.job.range_bytes / align).max(1);
        // Blocks of several lengths overlap, so that there is no "each once".
        if *once && laws[side] == Law::Uniform && self.job.has_one_length() {
            let place = &mut self.files[file];
            if place.taken >= place.shuffle.count() && self.job.limits.time_based {
                place.begins_again();
                self.again.push(file);
            }
            return place.untaken().map(|block| block * align);
        }
        let shortest = self.job.blocks[side].iter().map(|block| block.bytes).min()?;
        // The last places may have no room for the shortest access.
        for _ in 0..64 {
            let place = self.block(side, blocks, &laws[side], align) * align;
            if place + shortest <= self.job.range_bytes {
                return Some(place);
            }
        }
        Some(0)
    }

    /// The number of a block by the law.
    fn block(&mut self, side: usize, blocks: u64, law: &Law, align: u64) -> u64 {
        let random = &mut self.random;
        match law {
            Law::Uniform => random.random_range(0..blocks),
            Law::Zipf(_) => match &self.draws[side] {
                Draw::Zipf(zipf) => scattered(zipf.rank(random.random()), blocks),
                Draw::Plain => random.random_range(0..blocks),
            },
            Law::Pareto(share) => {
                let power = share.ln() / (1.0 - share).ln();
                scattered(((blocks - 1) as f64 * random.random::<f64>().powf(power)) as u64, blocks)
            }
            Law::Normal(percent) => {
                let sum: u64 = (0..12).map(|_| random.random_range(0..=blocks)).sum();
                let most = ((blocks as f64 * percent / 100.0).ceil()).min(blocks as f64 / 2.0);
                let moved = (sum.div_ceil(12) as f64 + most * (random.random::<f64>() - 0.5)).max(0.0) as u64;
                scattered(moved.min(blocks - 1), blocks)
            }
            Law::Zoned(zones) => {
                let (from, to) = zone(random.random_range(1..=100), zones.iter().map(|(n, of)| (*n, u64::from(*of))));
                let (begin, length) = (from * blocks / 100, (blocks * (to - from) / 100).max(1));
                (begin + random.random_range(0..length)).min(blocks - 1)
            }
            Law::ZonedBytes(zones) => {
                let (from, to) = zone(random.random_range(1..=100), zones.iter().copied());
                let (begin, end) = ((from / align).min(blocks - 1), (to / align).min(blocks));
                random.random_range(begin..end.max(begin + 1))
            }
            Law::Listed(list) => {
                let number = self.listed[side];
                self.listed[side] += 1;
                list[(number % list.len().max(1) as u64) as usize].min(blocks - 1)
            }
        }
    }

    /// A length that has room.
    fn length(&mut self, side: usize, room: u64) -> Option<u64> {
        let blocks = &self.job.blocks[side];
        if let [BlockLength { bytes, to_bytes, .. }] = blocks.as_slice()
            && bytes == to_bytes
        {
            return (*bytes <= room).then_some(*bytes);
        }
        let least = blocks.iter().map(|block| block.bytes).min()?;
        if least > room {
            return None;
        }
        for _ in 0..1000 {
            let length = drawn_length(&mut self.random, blocks);
            if length <= room {
                return Some(length);
            }
        }
        Some(least)
    }

    fn taken(&mut self, file: usize, side: usize, offset: u64, length: u64) -> Access {
        let begin = self.job.offset_bytes + offset;
        self.files[file].last[side] = Some(begin);
        self.files[file].behind[side] = begin + length;
        self.moved += length;
        let offset = file as u64 * self.job.file_bytes + begin;
        Access { side, extent: Extent { offset, length: length as usize } }
    }
}

impl Iterator for JobPlan<'_> {
    type Item = Access;

    /// None at the end of the order.
    fn next(&mut self) -> Option<Access> {
        loop {
            let access = self.planned()?;
            match (self.verifying, access.side) {
                (true, READS) => {}
                (true, _) => return Some(Access { side: READS, ..access }),
                (false, _) => return Some(access),
            }
        }
    }
}

impl Draw {
    fn new(law: &Law, blocks: u64) -> Draw {
        match law {
            Law::Zipf(theta) => Draw::Zipf(Skew::new(blocks, *theta)),
            _ => Draw::Plain,
        }
    }
}

/// Knuth's multiplier for hashing, the golden ratio of 64 bits: the one of fio, because what falls together decides how skewed it is.
const GOLDEN: u64 = 0x61c8_8646_80b5_83eb;

/// Ranks on blocks that lie apart; some fall on the same block, as in fio.
fn scattered(rank: u64, blocks: u64) -> u64 {
    rank.wrapping_mul(GOLDEN) % blocks
}

/// Where the zone of the `number`-th percent of the accesses begins and ends.
fn zone(number: u8, zones: impl Iterator<Item = (u8, u64)>) -> (u64, u64) {
    let (mut accesses, mut begin) = (0u8, 0);
    for (percent, of) in zones {
        accesses = accesses.saturating_add(percent);
        if number <= accesses {
            return (begin, begin + of);
        }
        begin += of;
    }
    (0, begin)
}

fn drawn_length(random: &mut Pcg64, blocks: &[BlockLength]) -> u64 {
    let number = random.random_range(1..=100u8);
    let mut sum = 0u8;
    let mut chosen = blocks[0];
    for block in blocks.iter().filter(|block| block.percent > 0) {
        chosen = *block;
        sum = sum.saturating_add(block.percent);
        if number <= sum {
            break;
        }
    }
    let BlockLength { bytes, to_bytes, .. } = chosen;
    random.random_range(1..=(to_bytes / bytes).max(1)) * bytes
}

impl Job {
    /// Accesses for each draw.
    fn run(&self) -> u32 {
        match self.order {
            JobOrder::Draws { run, .. } => run.max(1),
            JobOrder::Steps { .. } => 1,
        }
    }

    /// Whether all its accesses are equally long.
    pub fn has_one_length(&self) -> bool {
        let mut lengths = self.blocks.iter().flatten().flat_map(|block| [block.bytes, block.to_bytes]);
        let first = lengths.next();
        lengths.all(|length| Some(length) == first)
    }
}

impl Turns {
    /// Accesses of one turn.
    fn length(self) -> u32 {
        match self {
            Turns::RoundRobin(count) | Turns::Drawn(count) => count.max(1),
            Turns::Sequential => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{BlockLength, Commits, EndsWith, Limits, Pace};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::process::Command;

    const PAGE: u64 = 4096;

    /// Reads of 4 KiB in order, in one file of so many pages.
    fn job(pages: u64) -> Job {
        let block = BlockLength { bytes: PAGE, to_bytes: PAGE, percent: 100 };
        Job {
            name: "j".to_owned(),
            files: vec![0],
            file_bytes: pages * PAGE,
            offset_bytes: 0,
            range_bytes: pages * PAGE,
            io_bytes: pages * PAGE,
            loops: 1,
            reads_percent: 100,
            order: JobOrder::Steps { hole_bytes: 0 },
            turns: Turns::RoundRobin(1),
            blocks: [vec![block], vec![block]],
            align_bytes: [PAGE; 2],
            iodepth: 1,
            limits: Limits { runtime_ns: None, accesses: None, time_based: false },
            commits: Commits::default(),
            pace: Pace::default(),
            delay_ns: 0,
            ramp_ns: 0,
            seed: 7,
            verify: false,
            group: 0,
            ends_with: EndsWith::None,
            drops_cache: false,
            words: Vec::new(),
        }
    }

    fn draws(laws: Law, run: u32, once: bool) -> JobOrder {
        JobOrder::Draws { laws: [laws.clone(), laws], run, identical: false, once }
    }

    fn all(job: &Job) -> Vec<Access> {
        JobPlan::new(job).unwrap().take(100_000).collect()
    }

    /// The pages of the accesses.
    fn pages(job: &Job) -> Vec<u64> {
        all(job).iter().map(|access| access.extent.offset / PAGE).collect()
    }

    #[test]
    fn a_plain_job_reads_each_block_once_in_order() {
        assert_eq!(pages(&job(5)), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_hole_is_left_out_and_the_order_goes_round_until_all_bytes_are_moved() {
        let order = JobOrder::Steps { hole_bytes: PAGE as i64 };

        assert_eq!(pages(&Job { order, ..job(6) }), [0, 2, 4, 0, 2, 4]);
    }

    /// Before which accesses the plan says that a file is begun again, and which file.
    fn restarts(job: &Job, accesses: usize) -> Vec<(usize, Vec<usize>)> {
        let mut plan = JobPlan::new(job).unwrap();
        let told = (0..accesses).filter_map(|number| plan.next().map(|_| (number, plan.began_again())));
        told.filter(|(_, again)| !again.is_empty()).collect()
    }

    #[test]
    fn who_passes_over_a_file_again_is_told_before_the_first_access_of_the_pass() {
        let timed = Limits { runtime_ns: Some(1), accesses: None, time_based: true };
        let forever = Job { limits: timed, io_bytes: u64::MAX, ..job(4) };
        let shuffled = Job { order: draws(Law::Uniform, 1, true), ..forever.clone() };

        assert_eq!(restarts(&job(4), 10), []);
        assert_eq!(restarts(&Job { loops: 3, ..job(4) }, 12), [(4, vec![0]), (8, vec![0])]);
        assert_eq!(restarts(&forever, 10), [(4, vec![0]), (8, vec![0])]);
        assert_eq!(restarts(&shuffled, 10), [(4, vec![0]), (8, vec![0])]);
        let drawn = Job { order: draws(Law::Uniform, 1, false), ..forever };
        assert_eq!(restarts(&drawn, 100), [], "who may come anywhere at any time never begins again");
    }

    #[test]
    fn backwards_begins_in_front_and_comes_from_the_end() {
        let order = JobOrder::Steps { hole_bytes: -2 * PAGE as i64 };

        assert_eq!(pages(&Job { order, ..job(5) }), [0, 3, 2, 1, 0]);
    }

    #[test]
    fn random_blocks_come_once_each_where_there_is_a_map() {
        for count in [1, 2, 3, 64, 1000] {
            let once = pages(&Job { order: draws(Law::Uniform, 1, true), ..job(count) });

            assert_eq!(once.len() as u64, count);
            assert_eq!(once.iter().collect::<BTreeSet<_>>().len() as u64, count, "each once");
            assert!(count < 64 || once.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 30, "{once:?}");
        }
        let often = pages(&Job { order: draws(Law::Uniform, 1, false), ..job(1000) });
        let distinct = often.iter().collect::<BTreeSet<_>>().len();
        assert!((580..680).contains(&distinct), "{distinct} of 1000 draws; 632 are expected");
    }

    #[test]
    fn a_run_goes_on_behind_each_draw() {
        let pages = pages(&Job { order: draws(Law::Uniform, 4, false), ..job(4000) });

        let breaks: Vec<usize> = (1..pages.len()).filter(|at| pages[*at] != pages[at - 1] + 1).collect();
        assert!(breaks.iter().filter(|at| *at % 4 == 0).count() * 100 > breaks.len() * 98, "{:?}", &breaks[..20]);
        assert!((900..1010).contains(&breaks.len()), "{}", breaks.len());
    }

    #[test]
    fn an_identical_run_stays_where_it_is() {
        let laws = [Law::Uniform, Law::Uniform];
        let order = JobOrder::Draws { laws, run: 4, identical: true, once: false };
        let pages = pages(&Job { order, ..job(4000) });

        let moves = pages.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((950..=1000).contains(&moves), "{moves}");
    }

    #[test]
    fn reads_and_writes_are_mixed_as_asked_each_with_a_place_of_its_own() {
        let mixed = all(&Job { reads_percent: 70, ..job(4000) });
        let places = |side: usize| -> Vec<u64> {
            mixed.iter().filter(|access| access.side == side).map(|access| access.extent.offset / PAGE).collect()
        };

        assert!((2700..2900).contains(&places(READS).len()), "{}", places(READS).len());
        assert_eq!(mixed.len(), 4000);
        assert!(places(READS).iter().zip(0..).all(|(page, number)| *page == number));
        assert!(places(WRITES).iter().zip(0..).all(|(page, number)| *page == number));
    }

    #[test]
    fn files_take_turns() {
        let of_files = |turns: Turns| {
            let job = Job { files: vec![0, 1], turns, io_bytes: 6 * PAGE, ..job(3) };
            pages(&job)
        };

        assert_eq!(of_files(Turns::RoundRobin(1)), [0, 3, 1, 4, 2, 5]);
        assert_eq!(of_files(Turns::RoundRobin(2)), [0, 1, 3, 4, 2, 5]);
        assert_eq!(of_files(Turns::Sequential), [0, 1, 2, 3, 4, 5]);
        let mut drawn = of_files(Turns::Drawn(1));
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn loops_begin_again_and_a_job_for_a_time_never_ends() {
        assert_eq!(pages(&Job { loops: 2, ..job(3) }), [0, 1, 2, 0, 1, 2]);
        let limits = Limits { runtime_ns: Some(1), accesses: None, time_based: true };
        for order in [JobOrder::Steps { hole_bytes: 0 }, draws(Law::Uniform, 1, true)] {
            assert_eq!(all(&Job { order, limits, ..job(3) }).len(), 100_000);
        }
        let mut ended = Job { order: draws(Law::Uniform, 1, true), ..job(3) };
        ended.io_bytes = 100 * PAGE;
        let mut plan = JobPlan::new(&ended).unwrap();
        assert_eq!((0..10).filter(|_| plan.next().is_some()).count(), 3, "asked again after its end, it stays there");
    }

    #[test]
    fn what_was_written_is_read_again_and_nothing_else() {
        let job = Job { reads_percent: 50, ..job(200) };
        let read: Vec<Access> = JobPlan::verifying(&job).unwrap().collect();

        let written: Vec<Extent> =
            all(&job).into_iter().filter(|access| access.side == WRITES).map(|access| access.extent).collect();
        assert!(read.iter().all(|access| access.side == READS));
        assert_eq!(read.iter().map(|access| access.extent).collect::<Vec<_>>(), written);
    }

    #[test]
    fn lengths_come_as_often_as_their_shares() {
        let length = |bytes, to_bytes, percent| BlockLength { bytes, to_bytes, percent };
        let blocks =
            [vec![length(4096, 4096, 60), length(8192, 8192, 30), length(512, 512, 10)], vec![length(4096, 4096, 100)]];
        let job = Job { blocks, order: draws(Law::Uniform, 1, false), io_bytes: 1 << 40, ..job(1000) };
        let many: Vec<Access> = JobPlan::new(&job).unwrap().take(10_000).collect();
        let count = |bytes: usize| many.iter().filter(|access| access.extent.length == bytes).count();

        assert!((5800..6200).contains(&count(4096)) && (2800..3200).contains(&count(8192)), "{}", count(4096));
        assert!((900..1100).contains(&count(512)));
        let ranged = [vec![length(4096, 16384, 100)], vec![length(4096, 4096, 100)]];
        let lengths: BTreeSet<usize> =
            all(&Job { blocks: ranged, ..job }).iter().map(|access| access.extent.length).collect();
        assert_eq!(lengths, [4096, 8192, 12288, 16384].into());
    }

    #[test]
    fn zones_get_their_shares_of_the_accesses() {
        let share = |law: Law, below: u64| {
            let job = Job { order: draws(law, 1, false), io_bytes: 10_000 * PAGE, ..job(1000) };
            pages(&job).iter().filter(|page| **page < below).count()
        };

        assert!((4800..5200).contains(&share(Law::Zoned(vec![(50, 5), (30, 15), (20, 80)]), 50)));
        assert!((7800..8200).contains(&share(Law::Zoned(vec![(50, 5), (30, 15), (20, 80)]), 200)));
        assert!((5800..6200).contains(&share(Law::ZonedBytes(vec![(60, 10 * PAGE), (40, 90 * PAGE)]), 10)));
        assert_eq!(share(Law::ZonedBytes(vec![(60, 10 * PAGE), (40, 90 * PAGE)]), 100), 10_000);
    }

    /// How often the most frequent one, ten and hundred of 1000 blocks were accessed, from counts.
    fn of_the_top(mut counts: Vec<usize>) -> [usize; 3] {
        counts.sort_unstable_by(|one, other| other.cmp(one));
        [1, 10, 100].map(|most| counts.iter().take(most).sum())
    }

    fn counted(pages: impl Iterator<Item = u64>) -> Vec<usize> {
        let mut counts = vec![0; 1000];
        pages.for_each(|page| counts[page as usize] += 1);
        counts
    }

    /// The offsets that fio logs for a job of these options, in bytes; none where fio is not here.
    fn logged(options: &[&str]) -> Option<Vec<u64>> {
        let world = tempfile::tempdir().unwrap();
        let log = world.path().join("log");
        let said = Command::new("fio")
            .args([
                "--name=j",
                "--filename=f",
                "--bs=4k",
                "--ioengine=psync",
                "--allow_file_create=1",
                "--log_offset=0",
            ])
            .arg(format!("--write_iolog={}", log.display()))
            .args(options)
            .current_dir(&world)
            .output()
            .ok()?;
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let text = std::fs::read_to_string(log).unwrap();
        let offset = |line: &str| {
            let mut words = line.split_whitespace().skip_while(|word| !matches!(*word, "read" | "write")).skip(1);
            words.next()?.parse().ok()
        };
        Some(text.lines().filter_map(offset).collect())
    }

    #[test]
    fn fio_goes_to_the_same_places() {
        let steps = |hole| JobOrder::Steps { hole_bytes: hole };
        let wide = |job: Job, offset: u64, range: u64| Job {
            offset_bytes: offset,
            range_bytes: range,
            io_bytes: range,
            ..job
        };
        for (options, job) in [
            (&["--rw=read", "--size=64k"][..], job(16)),
            (&["--rw=read:4k", "--size=64k"], Job { order: steps(4096), ..job(16) }),
            (&["--rw=read:12k", "--size=64k"], Job { order: steps(12288), ..job(16) }),
            (&["--rw=read:-8k", "--size=64k"], Job { order: steps(-8192), ..job(16) }),
            (&["--rw=read:-12k", "--size=64k"], Job { order: steps(-12288), ..job(16) }),
            (&["--rw=write:4k", "--size=64k"], Job { order: steps(4096), reads_percent: 0, ..job(16) }),
            (&["--rw=read", "--size=64k", "--loops=2"], Job { loops: 2, ..job(16) }),
            (&["--rw=write", "--size=32k", "--io_size=64k"], Job { reads_percent: 0, io_bytes: 65536, ..job(8) }),
            (&["--rw=read", "--size=32k", "--offset=16k", "--filesize=64k"], wide(job(16), 16384, 32768)),
        ] {
            let Some(theirs) = logged(options) else {
                return eprintln!("SKIPPED fio_goes_to_the_same_places: fio is not installed");
            };
            let ours: Vec<u64> = all(&job).iter().map(|access| access.extent.offset).collect();

            assert_eq!(ours, theirs, "{options:?}");
        }
    }

    #[test]
    fn runs_are_as_long_as_fios() {
        let Some(theirs) = logged(&["--rw=randread:8", "--size=4000k", "--norandommap"]) else {
            return eprintln!("SKIPPED runs_are_as_long_as_fios: fio is not installed");
        };
        let ours: Vec<u64> = all(&Job { order: draws(Law::Uniform, 8, false), ..job(1000) })
            .iter()
            .map(|access| access.extent.offset)
            .collect();
        let jumps = |places: &[u64]| -> Vec<usize> {
            (1..places.len()).filter(|at| places[*at] != places[at - 1] + PAGE).collect()
        };

        let at_turn = |places: &[u64]| jumps(places).iter().filter(|at| **at % 8 == 0).count();

        assert_eq!(ours.len(), theirs.len());
        // The end of the file may cut a run short, and two runs may meet.
        for places in [&ours, &theirs] {
            assert!(at_turn(places) >= 122 && jumps(places).len() <= 127, "{:?}", jumps(places));
        }
    }

    #[test]
    fn skewed_laws_are_as_skewed_as_fios() {
        for (text, law) in [
            ("random", Law::Uniform),
            ("zipf:1.2", Law::Zipf(1.2)),
            ("zipf:0.8", Law::Zipf(0.8)),
            ("pareto:0.2", Law::Pareto(0.2)),
            ("normal:5", Law::Normal(5.0)),
            ("zoned:50/5:30/15:20/80", Law::Zoned(vec![(50, 5), (30, 15), (20, 80)])),
        ] {
            let options = ["--rw=randread", "--size=4000k", "--norandommap", "--loops=10"];
            let distribution = format!("--random_distribution={text}");
            let Some(theirs) = logged(&[&options[..], &[distribution.as_str()]].concat()) else {
                return eprintln!("SKIPPED skewed_laws_are_as_skewed_as_fios: fio is not installed");
            };
            let ours = pages(&Job { order: draws(law, 1, false), loops: 10, ..job(1000) });
            let top = |pages: &mut dyn Iterator<Item = u64>| of_the_top(counted(pages));
            let (ours, theirs) = (top(&mut ours.into_iter()), top(&mut theirs.into_iter().map(|offset| offset / PAGE)));

            let is_alike = |(one, other): (&usize, &usize)| one.abs_diff(*other) < 500;
            assert!(ours.iter().zip(&theirs).all(is_alike), "{text}: {ours:?} of ours, {theirs:?} of fio's 10000");
        }
    }

    #[test]
    fn a_range_too_short_for_one_access_is_refused() {
        let error = JobPlan::new(&Job { range_bytes: 100, ..job(1) }).err().unwrap().to_string();

        assert!(error.contains("the job j has 100 bytes of each file and accesses of 4096"), "{error}");
    }

    proptest! {
        #[test]
        fn every_access_lies_in_its_range(
            pages in 4u64..300, offset in 0u64..4, percent in 0u8..=100, run in 1u32..9, hole in -5i64..5, kind in 0usize..8,
            lengths in 1u64..4, count in 1usize..4,
        ) {
            let order = match kind {
                0 => JobOrder::Steps { hole_bytes: hole * 4096 },
                1 => draws(Law::Uniform, run, true),
                2 => draws(Law::Uniform, run, false),
                3 => draws(Law::Zipf(1.1), run, false),
                4 => draws(Law::Pareto(0.3), run, false),
                5 => draws(Law::Normal(10.0), run, false),
                6 => draws(Law::Zoned(vec![(60, 10), (40, 90)]), run, false),
                _ => draws(Law::Listed(vec![2, 0, 9]), run, false),
            };
            let block = BlockLength { bytes: PAGE, to_bytes: lengths * PAGE, percent: 100 };
            let whole = Job {
                order, reads_percent: percent, files: (0..count).collect(), blocks: [vec![block], vec![block]],
                offset_bytes: offset * PAGE, range_bytes: pages * PAGE, file_bytes: (pages + offset) * PAGE,
                io_bytes: pages * PAGE * count as u64, ..job(1)
            };
            let (begin, end) = (whole.offset_bytes, whole.offset_bytes + whole.range_bytes);

            for Access { extent, .. } in all(&whole) {
                let within = extent.offset % whole.file_bytes;
                prop_assert!(begin <= within && within + extent.length as u64 <= end, "{extent:?}");
                prop_assert!(extent.offset / whole.file_bytes < count as u64);
            }
        }
    }
}
