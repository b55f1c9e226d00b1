//! The order of one job of a stage: which file, which place, how many bytes, read or written.
//!
//! Places follow fio's own rules (io_u.c of fio 3.33, compared in tests with what fio logs); the random numbers are ours.

use super::SCATTER;
use crate::data::mix;
use crate::trial::{Block, Job, JobOrder, Law, READS, Turns, WRITES};
use majorfault::{Error, Extent, Result};
use rand::Rng;
use rand_distr::{Distribution, Zipf};
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
}

/// Where a job is in one of its files.
struct Place {
    /// Behind the last access: of reads, of writes.
    behind: [u64; 2],
    /// The last access: of reads, of writes.
    last: [Option<u64>; 2],
    shuffle: Shuffle,
    done: bool,
}

/// A law, ready to draw from.
enum Draw {
    Plain,
    Zipf(Zipf<f64>),
}

/// The numbers below `count` in an order of its own, each once: a Feistel network of four rounds, walked until the number is below.
struct Shuffle {
    count: u64,
    next: u64,
    key: u64,
}

impl Shuffle {
    fn next(&mut self) -> Option<u64> {
        if self.next >= self.count {
            return None;
        }
        let half = (64 - self.count.leading_zeros()).div_ceil(2).max(1);
        let mut number = self.round_trip(self.next, half);
        while number >= self.count {
            number = self.round_trip(number, half);
        }
        self.next += 1;
        Some(number)
    }

    fn round_trip(&self, number: u64, half: u32) -> u64 {
        let mask = (1 << half) - 1;
        let (left, right) = (0..4).fold((number >> half, number & mask), |(left, right), round| {
            (right, left ^ (mix(self.key ^ right ^ (round << 60)) & mask))
        });
        left << half | right
    }

    fn again(&mut self) {
        self.next = 0;
        self.key = mix(self.key);
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
            shuffle: Shuffle {
                count: blocks(if job.writes() { WRITES } else { READS }),
                next: 0,
                key: mix(job.seed ^ mix(number)),
            },
            done: false,
        };
        let draw = |side: usize| match &job.order {
            JobOrder::Draws { laws, .. } => Draw::new(&laws[side], blocks(side)),
            JobOrder::Steps { .. } => Ok(Draw::Plain),
        };
        Ok(JobPlan {
            job,
            files: (0..job.files.len() as u64).map(place).collect(),
            draws: [draw(READS)?, draw(WRITES)?],
            random: Pcg64::seed_from_u64(job.seed),
            turn: (0, job.turns.length()),
            run_left: job.run(),
            loops_left: job.loops.max(1),
            moved: 0,
            listed: [0; 2],
            verifying: false,
        })
    }

    /// The same order once more, with the writes read and nothing else.
    ///
    /// Errors: as [`JobPlan::new`].
    pub fn verifying(job: &'a Job) -> Result<JobPlan<'a>> {
        Ok(JobPlan { verifying: true, ..JobPlan::new(job)? })
    }

    /// The next access; none at the end of the order.
    pub fn next(&mut self) -> Option<Access> {
        loop {
            let access = self.planned()?;
            match (self.verifying, access.side) {
                (true, READS) => {}
                (true, _) => return Some(Access { side: READS, ..access }),
                (false, _) => return Some(access),
            }
        }
    }

    fn planned(&mut self) -> Option<Access> {
        if self.moved >= self.job.io_bytes && !self.began_again() {
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
            if attempt == 1 || !self.began_again() {
                break;
            }
        }
        None
    }

    /// Begins the next loop, where there is one.
    fn began_again(&mut self) -> bool {
        self.loops_left -= u64::from(!self.job.limits.time_based);
        if self.loops_left == 0 {
            return false;
        }
        self.moved = 0;
        for place in &mut self.files {
            place.behind = [self.job.offset_bytes; 2];
            place.done = false;
            place.shuffle.again();
        }
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
            let shuffle = &mut self.files[file].shuffle;
            let found = shuffle.next();
            if found.is_none() && self.job.limits.time_based {
                shuffle.again();
                return shuffle.next().map(|block| block * align);
            }
            return found.map(|block| block * align);
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
                Draw::Zipf(zipf) => scattered(zipf.sample(random) as u64 - 1, blocks),
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
        if let [Block { bytes, to_bytes, .. }] = blocks.as_slice() {
            if bytes == to_bytes {
                return (*bytes <= room).then_some(*bytes);
            }
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

impl Draw {
    fn new(law: &Law, blocks: u64) -> Result<Draw> {
        match law {
            Law::Zipf(theta) => Zipf::new(blocks as f64, *theta)
                .map(Draw::Zipf)
                .map_err(|why| Error::Invalid(format!("random_distribution: {why}"))),
            _ => Ok(Draw::Plain),
        }
    }
}

/// Ranks one to one on blocks that lie apart.
fn scattered(rank: u64, blocks: u64) -> u64 {
    (u128::from(rank) * SCATTER % u128::from(blocks)) as u64
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

fn drawn_length(random: &mut Pcg64, blocks: &[Block]) -> u64 {
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
    let Block { bytes, to_bytes, .. } = chosen;
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
