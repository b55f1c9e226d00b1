//! Programs that use a block of memory in one way each: what is measured beyond memory, and tested with smaller blocks.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_distr::Distribution;
use rand_pcg::Pcg64Mcg;
use std::time::Instant;

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// A way of using memory.
pub struct Pattern {
    pub name: &'static str,
    pub summary: &'static str,
    work: fn(&mut Vec<u64>, &mut Pcg64Mcg) -> u64,
}

pub const ALL: &[Pattern] = &[
    Pattern { name: "seqread", summary: "three passes of reads", work: |block, _| passes(block, 3) },
    Pattern { name: "seqrmw", summary: "three passes of updates", work: |block, _| updates(block, 3) },
    Pattern { name: "backwards", summary: "three passes of reads from the end", work: |block, _| backwards(block, 3) },
    Pattern { name: "merge", summary: "sixteen sorted runs read in turns", work: |block, _| merge(block, 16) },
    Pattern { name: "grow", summary: "a vector doubled by copying, then read twice", work: |block, _| grow(block) },
    Pattern {
        name: "stride",
        summary: "8 bytes of each 32 KiB, 200 times: what is used fits",
        work: |block, _| stride(block),
    },
    Pattern { name: "loop", summary: "ten passes over 45 % of the block: it fits", work: |block, _| small_loop(block) },
    Pattern {
        name: "hot",
        summary: "updates, 95 % of them in 30 % of the block",
        work: |block, draw| hot(block, draw),
    },
    Pattern { name: "zipf", summary: "updates of pages after Zipf's law (1.0)", work: |block, draw| zipf(block, draw) },
    Pattern { name: "randread", summary: "reads of random pages", work: |block, draw| random(block, draw, 0) },
    Pattern { name: "randrmw", summary: "updates of random pages", work: |block, draw| random(block, draw, 1) },
    Pattern {
        name: "blocks",
        summary: "random blocks of 64 KiB read from begin to end",
        work: |block, draw| blocks(block, draw),
    },
];

/// Fills a block of so many bytes and uses it; prints a sum over what was read, and the seconds of both.
pub fn run(name: &str, bytes: usize) -> Option<()> {
    let pattern = ALL.iter().find(|pattern| pattern.name == name)?;
    let began = Instant::now();
    let mut block: Vec<u64> = vec![0; bytes / 8];
    // One word of each 64 bytes: no page is like another, and filling takes no longer than it must.
    block
        .iter_mut()
        .step_by(8)
        .enumerate()
        .for_each(|(at, word)| *word = (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let filled = began.elapsed();
    let mut draw = Pcg64Mcg::new(1);
    let sum = (pattern.work)(&mut block, &mut draw);
    println!("{sum} {} {}", filled.as_secs_f64(), (began.elapsed() - filled).as_secs_f64());
    Some(())
}

fn pages(block: &[u64]) -> usize {
    block.len() / WORDS
}

/// What a read of a page takes: 64 bytes of every 512.
fn read(page: &[u64]) -> u64 {
    page.iter().step_by(64).fold(0, |sum, word| sum.wrapping_mul(31).wrapping_add(*word))
}

fn update(page: &mut [u64]) {
    page.iter_mut().step_by(64).for_each(|word| *word = word.wrapping_mul(3).wrapping_add(1));
}

fn passes(block: &[u64], count: usize) -> u64 {
    (0..count).flat_map(|_| block.chunks(WORDS)).fold(0, |sum: u64, page| sum.wrapping_add(read(page)))
}

fn backwards(block: &[u64], count: usize) -> u64 {
    (0..count).flat_map(|_| block.chunks(WORDS).rev()).fold(0, |sum: u64, page| sum.wrapping_add(read(page)))
}

fn updates(block: &mut [u64], count: usize) -> u64 {
    (0..count).for_each(|_| block.chunks_mut(WORDS).for_each(update));
    block[block.len() / 2]
}

fn merge(block: &[u64], runs: usize) -> u64 {
    let length = pages(block) / runs;
    let page = |number: usize| &block[number * WORDS..(number + 1) * WORDS];
    let turns = (0..length).flat_map(|at| (0..runs).map(move |run| run * length + at));
    turns.fold(0, |sum: u64, number| sum.wrapping_add(read(page(number))))
}

fn grow(block: &mut Vec<u64>) -> u64 {
    let mut grown: Vec<u64> = Vec::with_capacity(block.len() / 8);
    for page in block.chunks(WORDS) {
        grown.extend_from_slice(page);
    }
    *block = Vec::new();
    passes(&grown, 2)
}

fn stride(block: &[u64]) -> u64 {
    let turns = (0..200).flat_map(|_| (0..block.len()).step_by(8 * WORDS));
    turns.fold(0, |sum: u64, at| sum.wrapping_mul(31).wrapping_add(std::hint::black_box(block[at])))
}

fn small_loop(block: &[u64]) -> u64 {
    passes(&block[..block.len() / 100 * 45], 10)
}

/// Accesses of random pages: some seconds where each waits for a disk.
fn accesses(block: &[u64]) -> usize {
    pages(block) / 3
}

fn hot(block: &mut [u64], draw: &mut Pcg64Mcg) -> u64 {
    let (count, all) = (accesses(block) * 4, pages(block));
    for _ in 0..count {
        let number =
            if draw.random_bool(0.95) { draw.random_range(0..all * 3 / 10) } else { draw.random_range(0..all) };
        update(&mut block[number * WORDS..(number + 1) * WORDS]);
    }
    block[block.len() / 8]
}

fn zipf(block: &mut [u64], draw: &mut Pcg64Mcg) -> u64 {
    let mut order: Vec<u32> = (0..pages(block) as u32).collect();
    order.shuffle(draw);
    let law = rand_distr::Zipf::new(order.len() as f64, 1.0).expect("a law for a number of pages");
    for _ in 0..accesses(block) * 4 {
        let number = order[law.sample(draw) as usize - 1] as usize;
        update(&mut block[number * WORDS..(number + 1) * WORDS]);
    }
    block[block.len() / 8]
}

fn random(block: &mut [u64], draw: &mut Pcg64Mcg, updated: usize) -> u64 {
    let mut sum = 0u64;
    for _ in 0..accesses(block) {
        let number = draw.random_range(0..pages(block));
        let page = &mut block[number * WORDS..(number + 1) * WORDS];
        sum = sum.wrapping_add(read(page));
        if updated > 0 {
            update(page);
        }
    }
    sum
}

fn blocks(block: &mut [u64], draw: &mut Pcg64Mcg) -> u64 {
    let count = accesses(block) / 8;
    let all = pages(block) / 16;
    let turns = (0..count).map(|_| draw.random_range(0..all) * 16 * WORDS);
    turns.fold(0, |sum: u64, at| sum.wrapping_add(passes(&block[at..at + 16 * WORDS], 1)))
}
