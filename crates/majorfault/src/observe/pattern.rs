//! The order in which a program accesses a file, derived from its page faults.
//!
//! Faults are not accesses: one fault maps the cached pages around it (fault-around, 64 KiB), so a sequential scan faults
//! every 64 KiB, and what is mapped never faults again. A stride of at most 64 KiB looks the same as a scan, and is
//! called one; for read-ahead the difference does not matter.
//!
//! Pure functions of (thread, offset), in order of time.

use std::collections::HashMap;

/// Bytes that one fault maps at most, where the kernel's default is in force (mm/memory.c, fault_around_bytes).
pub const FAULT_AROUND: u64 = 64 << 10;

/// Bytes that one fault maps where the cached file lies in huge folios, as after a long read-ahead (filemap_map_pmd). A
/// stride of exactly this, from one folio's edge to the next, is what a scan looks like there, so it is called one, too.
pub const HUGE_FOLIO: u64 = 2 << 20;

/// Fewer accesses than this have no pattern.
pub const FEWEST: usize = 16;

/// The most streams that one thread may interleave.
const MOST_STREAMS: usize = 16;

/// Share of the steps that must agree before a pattern is named.
const ENOUGH: f64 = 0.6;

/// The same share where the steps are only multiples of a stride.
const HIDDEN: f64 = 0.9;

/// Share by which more streams must explain more steps: a multiple of a stride is a stride as well, and regular noise hides in it.
const CLEARLY_MORE: f64 = 0.15;

/// Share of the accesses that must go to the hottest tenth of the touched blocks.
const HOT: f64 = 0.5;

/// A scan may skip what others have mapped already, up to this many times [`FAULT_AROUND`].
const LONGEST_STEP: u64 = 4;

/// The latest accesses of a thread that are examined; keeps the cost bounded.
const WINDOW: usize = 8192;

/// One fault in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The thread.
    pub thread: u32,
    /// Offset in the file of the byte that was touched.
    pub offset: u64,
}

/// An order of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// From front to end, or in steps of at most [`FAULT_AROUND`].
    Sequential,
    /// From end to front.
    Backward,
    /// One access every so many bytes; negative is backward.
    Strided(i64),
    /// Several strides of equal length in turns, as where several columns of each row are read.
    Interleaved {
        /// Number of streams.
        streams: usize,
        /// Bytes from one access of a stream to its next.
        stride: i64,
    },
    /// No order.
    Random,
    /// No order, but most accesses go to a small part of the file, which does not stay mapped.
    HotSet {
        /// Bytes of the part that gets at least half of the accesses.
        bytes: u64,
    },
    /// Too few accesses to tell.
    Unknown,
}

/// A pattern and its confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recognised {
    /// The pattern.
    pub pattern: Pattern,
    /// Share of the steps that agree with it, from 0 to 1.
    pub confidence: f64,
    /// Threads with accesses that agree with it.
    pub threads: usize,
    /// How often a thread went back by more than half of what it had covered and continued from there: a repeated scan.
    pub repeats: usize,
}

const UNKNOWN: Recognised = Recognised { pattern: Pattern::Unknown, confidence: 0.0, threads: 0, repeats: 0 };

/// Names the order of `accesses` to one file; they are in order of time.
///
/// Each thread is examined alone. The pattern of the threads with the most accesses wins; its confidence is weighted by
/// accesses, and threads that do something else reduce it.
pub fn recognise(accesses: &[Access]) -> Recognised {
    let mut threads: HashMap<u32, Vec<u64>> = HashMap::new();
    for access in accesses {
        threads.entry(access.thread).or_default().push(access.offset);
    }
    let named: Vec<(Recognised, usize)> =
        threads.values().map(|offsets| (of_one(offsets), offsets.len())).filter(|(it, _)| it != &UNKNOWN).collect();
    if named.is_empty() {
        // Each thread alone has too few accesses (a pool of threads that take turns): examine all together.
        let offsets: Vec<u64> = accesses.iter().map(|access| access.offset).collect();
        return Recognised { threads: threads.len(), ..of_one(&offsets) };
    }
    let total: usize = named.iter().map(|(_, count)| count).sum();
    let weight = |pattern: Pattern| -> usize {
        named.iter().filter(|(it, _)| is_same(it.pattern, pattern)).map(|(_, count)| count).sum()
    };
    let Some((best, _)) = named.iter().max_by_key(|(it, count)| (weight(it.pattern), *count)) else { return UNKNOWN };
    let agreeing = || named.iter().filter(|(it, _)| is_same(it.pattern, best.pattern));
    Recognised {
        pattern: best.pattern,
        confidence: agreeing().map(|(it, count)| it.confidence * *count as f64).sum::<f64>() / total as f64,
        threads: agreeing().count(),
        repeats: agreeing().map(|(it, _)| it.repeats).sum(),
    }
}

/// Whether two threads have the same pattern; hot sets may differ a little in size.
fn is_same(left: Pattern, right: Pattern) -> bool {
    left == right || matches!((left, right), (Pattern::HotSet { .. }, Pattern::HotSet { .. }))
}

/// The order of one thread's accesses.
fn of_one(offsets: &[u64]) -> Recognised {
    let offsets = &offsets[offsets.len().saturating_sub(WINDOW)..];
    let blocks = without_echoes(offsets);
    if blocks.len() < FEWEST {
        return UNKNOWN;
    }
    let repeats = repeats(&blocks);
    let found = |pattern, confidence| Recognised { pattern, confidence, threads: 1, repeats };
    let forward = share_of_steps(&blocks, |step| (1..=(LONGEST_STEP * FAULT_AROUND) as i64).contains(&step));
    let backward = share_of_steps(&blocks, |step| (-((LONGEST_STEP * FAULT_AROUND) as i64)..0).contains(&step));
    let strided = stride(&blocks).filter(|(_, _, share)| *share >= ENOUGH);
    match strided {
        Some((1, stride, share)) if stride.unsigned_abs() == HUGE_FOLIO && enters_at_edges(&blocks, stride) => {
            // Rows that begin in small folios and continue in huge ones, which hold several rows.
            return match hidden_stride(&blocks) {
                Some((stride, share)) => found(Pattern::Strided(stride), share),
                None => found(if stride > 0 { Pattern::Sequential } else { Pattern::Backward }, share),
            };
        }
        // Equal steps beyond what one fault maps are a stride, even where they could be a scan's.
        Some((1, stride, share)) if stride.unsigned_abs() > FAULT_AROUND => {
            return found(Pattern::Strided(stride), share);
        }
        Some((streams, stride, share)) if streams > 1 && forward.max(backward) < share.min(ENOUGH) => {
            return found(Pattern::Interleaved { streams, stride }, share);
        }
        _ => {}
    }
    if let Some((stride, share)) = hidden_stride(&blocks) {
        return found(Pattern::Strided(stride), share);
    }
    if forward >= ENOUGH {
        return found(Pattern::Sequential, forward);
    }
    if backward >= ENOUGH {
        return found(Pattern::Backward, backward);
    }
    // Folios of mixed sizes: one fault maps 64 KiB here and 2 MiB there. No random order goes on in one direction like that.
    let far = |sign: i64| share_of_steps(&blocks, |step| (1..=HUGE_FOLIO as i64).contains(&(sign * step)));
    if let Some((pattern, share)) =
        [(Pattern::Sequential, far(1)), (Pattern::Backward, far(-1))].into_iter().find(|(_, share)| *share >= HIDDEN)
    {
        return found(pattern, share);
    }
    let order = forward.max(backward).max(strided_share(&blocks));
    match hot_set(&blocks) {
        Some((bytes, share)) => found(Pattern::HotSet { bytes }, share.min(1.0 - order)),
        None => found(Pattern::Random, 1.0 - order),
    }
}

/// Whether accesses that are a huge folio apart enter each folio where a scan enters it. The column of a matrix enters
/// it anywhere.
fn enters_at_edges(offsets: &[u64], stride: i64) -> bool {
    let entered =
        || offsets.windows(2).filter(|pair| step(pair[0], pair[1]) == stride).map(|pair| pair[1] % HUGE_FOLIO);
    let is_edge = |inside: &u64| match stride > 0 {
        true => *inside < FAULT_AROUND,
        false => *inside >= HUGE_FOLIO - FAULT_AROUND,
    };
    entered().filter(is_edge).count() * 2 >= entered().count()
}

/// The stride where only some rows fault, because one fault maps several: the greatest common divisor of nearly all steps
/// in one direction, if it is larger than the windows in which a scan faults.
fn hidden_stride(offsets: &[u64]) -> Option<(i64, f64)> {
    let steps: Vec<i64> = offsets.windows(2).map(|pair| step(pair[0], pair[1])).collect();
    let up = steps.iter().filter(|step| **step > 0).count();
    let sign = if 2 * up >= steps.len() { 1 } else { -1 };
    let forward = || steps.iter().map(|step| (sign * step) as u64 & !4095).filter(|step| (1..1 << 40).contains(step));
    // Taken from a sample, so that a single foreign step does not spoil it.
    let mut shortest: Vec<u64> = forward().collect();
    shortest.sort_unstable();
    let cut = shortest.len() / 20;
    let divisor = shortest[cut..shortest.len() - cut].iter().fold(0, |left, right| divisor(left, *right));
    if divisor <= FAULT_AROUND || divisor % HUGE_FOLIO == 0 {
        return None;
    }
    let share = forward().filter(|step| step % divisor == 0).count() as f64 / steps.len().max(1) as f64;
    (share >= HIDDEN).then_some((sign * divisor as i64, share))
}

/// The greatest common divisor; that of 0 and a number is the number.
fn divisor(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

/// The accesses without those in the same block as the previous one: an object that crosses a page, or a page that was
/// not yet cached when its neighbours were mapped.
fn without_echoes(offsets: &[u64]) -> Vec<u64> {
    let mut kept: Vec<u64> = Vec::with_capacity(offsets.len());
    for offset in offsets {
        if kept.last().is_none_or(|last| last / FAULT_AROUND != offset / FAULT_AROUND) {
            kept.push(*offset);
        }
    }
    kept
}

fn share_of_steps(offsets: &[u64], is: impl Fn(i64) -> bool) -> f64 {
    let steps = offsets.len().saturating_sub(1).max(1);
    offsets.windows(2).filter(|pair| is(step(pair[0], pair[1]))).count() as f64 / steps as f64
}

fn step(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

/// The fewest streams that have equal distances between their accesses: how many, how far, and the share of steps that agree.
fn stride(offsets: &[u64]) -> Option<(usize, i64, f64)> {
    let mut best: Option<(usize, i64, f64)> = None;
    for streams in 1..=MOST_STREAMS.min(offsets.len() / 4) {
        let Some((distance, share)) = most_common(offsets, streams) else { continue };
        if distance != 0 && best.is_none_or(|(_, _, least)| share > least + CLEARLY_MORE) {
            best = Some((streams, distance, share));
        }
    }
    best
}

/// The most common distance between accesses that are `lag` apart, and its share. The touched byte may differ within a
/// page, so distances are compared in pages; the exact distance is returned where it is the more common one.
fn most_common(offsets: &[u64], lag: usize) -> Option<(i64, f64)> {
    const PAGE: u64 = 4096;
    let mut counts: HashMap<i64, usize> = HashMap::new();
    for (index, to) in offsets.iter().enumerate().skip(lag) {
        *counts.entry(step(offsets[index - lag], *to)).or_default() += 1;
    }
    let exact = best_of(counts)?;
    let mut counts: HashMap<i64, usize> = HashMap::new();
    for (index, to) in offsets.iter().enumerate().skip(lag) {
        let pages = step(offsets[index - lag] / PAGE, to / PAGE);
        *counts.entry(pages.wrapping_mul(PAGE as i64)).or_default() += 1;
    }
    let rounded = best_of(counts)?;
    let steps = (offsets.len() - lag) as f64;
    let (distance, count) = if rounded.1 > exact.1 { rounded } else { exact };
    Some((distance, count as f64 / steps))
}

/// The largest count; of equal counts the shortest distance, so that the answer does not depend on chance.
fn best_of(counts: HashMap<i64, usize>) -> Option<(i64, usize)> {
    counts.into_iter().max_by_key(|(distance, count)| (*count, std::cmp::Reverse(distance.unsigned_abs()), *distance))
}

fn strided_share(offsets: &[u64]) -> f64 {
    stride(offsets).map_or(0.0, |(_, _, share)| share)
}

/// Bytes of the hottest tenth of the touched blocks and their share of the accesses, where that share is large. Blocks
/// touched once each have no hot part.
fn hot_set(offsets: &[u64]) -> Option<(u64, f64)> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for offset in offsets {
        *counts.entry(offset / FAULT_AROUND).or_default() += 1;
    }
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|left, right| right.cmp(left));
    let tenth = counts.len().div_ceil(10);
    let hot: usize = counts[..tenth].iter().sum();
    let share = hot as f64 / offsets.len() as f64;
    // Too few accesses for each block: chance alone could make some look hot.
    (share >= HOT && hot >= 4 * tenth).then_some((tenth as u64 * FAULT_AROUND, share))
}

/// How often the accesses go back by more than half of what they covered and then continue as before.
fn repeats(offsets: &[u64]) -> usize {
    let Some((low, high)) = offsets.iter().min().zip(offsets.iter().max()) else { return 0 };
    let half = ((high - low) / 2).max(FAULT_AROUND) as i64;
    let far = |sign: i64| offsets.windows(2).filter(|pair| sign * step(pair[0], pair[1]) >= half).count();
    let (up, down) = (far(1), far(-1));
    // Random accesses jump both ways.
    if up * 2 > down && down * 2 > up { 0 } else { up.max(down) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn by_one(offsets: impl IntoIterator<Item = u64>) -> Vec<Access> {
        offsets.into_iter().map(|offset| Access { thread: 1, offset }).collect()
    }

    /// A pseudo-random sequence without a crate: the same everywhere.
    fn scatter(count: u64, range: u64, seed: u64) -> Vec<u64> {
        let mut state = seed | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % range
        };
        std::iter::repeat_with(next).take(count as usize).collect()
    }

    #[test]
    fn too_few_accesses_have_no_pattern() {
        assert_eq!(recognise(&[]).pattern, Pattern::Unknown);
        assert_eq!(recognise(&by_one((0..10).map(|n| n * MIB))).pattern, Pattern::Unknown);
    }

    #[test]
    fn a_repeated_scan_is_sequential_and_says_how_often() {
        let found = recognise(&by_one((0..4).flat_map(|_| (0..100).map(|n| n * 64 * KIB))));

        assert_eq!((found.pattern, found.repeats), (Pattern::Sequential, 3));
        assert!(found.confidence > 0.95);
    }

    #[test]
    fn threads_that_scan_their_own_parts_are_sequential() {
        let accesses: Vec<Access> = (0..100)
            .flat_map(|n| {
                (0..4).map(move |part| Access { thread: part, offset: u64::from(part) * 512 * MIB + n * 64 * KIB })
            })
            .collect();

        let found = recognise(&accesses);

        assert_eq!((found.pattern, found.threads), (Pattern::Sequential, 4));
    }

    #[test]
    fn many_short_lived_threads_are_seen_together() {
        let accesses: Vec<Access> = (0..64).map(|n| Access { thread: n, offset: u64::from(n) * MIB }).collect();

        assert_eq!(recognise(&accesses).pattern, Pattern::Strided(MIB as i64));
    }

    #[test]
    fn what_does_not_stay_mapped_and_is_needed_again_is_a_hot_set() {
        let cold = scatter(500, 16 << 30, 3);
        let hot = scatter(1500, 20, 5).into_iter().map(|block| block * 731 * MIB / 3);
        let mixed =
            hot.zip(cold.iter().cycle()).enumerate().map(|(n, (hot, cold))| if n % 4 == 0 { *cold } else { hot });

        let found = recognise(&by_one(mixed));

        assert!(matches!(found.pattern, Pattern::HotSet { bytes } if bytes < 8 * MIB), "{found:?}");
    }

    #[test]
    fn a_scan_over_huge_folios_is_sequential() {
        assert_eq!(recognise(&by_one((0..100).map(|n| n * 2 * MIB))).pattern, Pattern::Sequential);
    }

    /// Seen with plain scans of every page, and of every 64 KiB: read-ahead leaves folios of all sizes, and each maps as a whole.
    #[test]
    fn a_scan_over_folios_of_mixed_sizes_is_sequential() {
        let steps = [64 * KIB, 2 * MIB, 512 * KIB, MIB, 2 * MIB];
        let scan: Vec<u64> =
            (0..200).map(|n| (0..n).map(|before| steps[before * before * 7919 % 101 % 5]).sum()).collect();

        assert_eq!(recognise(&by_one(scan.iter().copied())).pattern, Pattern::Sequential);
        assert_eq!(recognise(&by_one(scan.iter().rev().copied())).pattern, Pattern::Backward);

        // One step of eight goes elsewhere: that is no scan any more.
        let torn = scan.iter().enumerate().map(|(n, at)| if n % 8 == 0 { at + 100 * MIB } else { *at });
        assert_eq!(recognise(&by_one(torn)).pattern, Pattern::Random);
    }

    /// Seen with numpy under 8 MiB of read-ahead: a column of rows of 1 MiB faults every 2 MiB, and was called a scan.
    #[test]
    fn a_column_over_huge_folios_is_a_stride() {
        let column = 300 * KIB;

        assert_eq!(recognise(&by_one((0..100).map(|n| n * 2 * MIB + column))).pattern, Pattern::Strided(2 << 20));
        assert_eq!(recognise(&by_one((0..100).rev().map(|n| n * 2 * MIB + 2 * MIB - 8))).pattern, Pattern::Backward);
    }

    #[test]
    fn a_stride_of_which_half_the_rows_are_hidden_is_one_and_a_scan_is_none() {
        let mut state = 7u64;
        let mut draw = |from: u64, to: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            from + (state >> 33) % (to - from)
        };
        let rows = (0..200).scan(0u64, |at, _| {
            *at += draw(1, 9) * 256 * KIB;
            Some(*at)
        });
        let rows: Vec<u64> = rows.collect();
        let scan = (0..200).scan(0u64, |at, _| {
            *at += if draw(0, 3) == 0 { 2 * MIB } else { 64 * KIB };
            Some(*at)
        });
        let scan: Vec<u64> = scan.collect();

        assert_eq!(recognise(&by_one(rows)).pattern, Pattern::Strided(256 * KIB as i64));
        assert_ne!(recognise(&by_one(scan)).pattern, Pattern::Strided(64 * KIB as i64));
        // As seen on Linux 6.18 with 8 MiB of read-ahead, at a stride of 256 KiB.
        let growing = (0..129).map(|row| row * 256 * KIB).chain((0..8).map(|row| (33 + row) * MIB));
        let growing: Vec<u64> = growing.chain((0..235).map(|folio| (42 + 2 * folio) * MIB)).collect();
        assert_eq!(recognise(&by_one(growing)).pattern, Pattern::Strided(256 * KIB as i64));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_scan_is_sequential_whatever_the_kernel_maps_at_once(
            steps in prop::collection::vec(1u64..=4, 40..400), start in 0u64..1 << 40,
        ) {
            let mut at = start;
            let offsets = steps.iter().map(|step| { at += step * 16 * KIB; at });

            let found = recognise(&by_one(offsets));

            prop_assert_eq!(found.pattern, Pattern::Sequential);
            prop_assert!(found.confidence > 0.9);
        }

        #[test]
        fn a_stride_is_named_exactly_despite_noise(
            stride in 65u64..100_000, count in 40u64..400, start in 0u64..1 << 30, noise in 8usize..100,
        ) {
            let stride = stride * KIB + 8;
            let jumps = scatter(count, 1 << 40, start);
            let offset = |n: u64| if (n + 1) % (noise as u64) == 0 { jumps[n as usize] } else { start + n * stride };

            let found = recognise(&by_one((0..count).map(offset)));

            prop_assert_eq!(found.pattern, Pattern::Strided(stride as i64));
            prop_assert!(found.confidence > 0.6);
        }

        #[test]
        fn a_stride_backward_is_negative(stride in 65u64..10_000, count in 40u64..200) {
            let found = recognise(&by_one((0..count).rev().map(|n| n * stride * KIB)));

            prop_assert_eq!(found.pattern, Pattern::Strided(-((stride * KIB) as i64)));
        }

        #[test]
        fn strides_in_turns_are_counted(streams in 2u64..=6, stride in 1u64..64, rows in 40u64..200, seed in 1u64..99) {
            // Columns of a table: in each row at fixed, uneven distances.
            let stride = stride * 8 * MIB;
            let columns: Vec<u64> = (0..streams).map(|column| column * (1 << 34) + seed * column * column * 4096).collect();
            let offsets = (0..rows).flat_map(|row| columns.iter().map(move |column| column + row * stride));

            let found = recognise(&by_one(offsets));

            prop_assert_eq!(found.pattern, Pattern::Interleaved { streams: streams as usize, stride: stride as i64 });
        }

        #[test]
        fn scattered_accesses_are_random(count in 64u64..2000, seed in 1u64..u64::MAX) {
            let found = recognise(&by_one(scatter(count, 64 << 30, seed)));

            prop_assert_eq!(found.pattern, Pattern::Random);
            prop_assert!(found.confidence > 0.8, "{:?}", found);
        }

        #[test]
        fn any_accesses_are_taken_and_the_confidence_is_a_share(
            accesses in prop::collection::vec((0u32..4, any::<u64>()), 0..200),
        ) {
            let accesses: Vec<Access> = accesses.into_iter().map(|(thread, offset)| Access { thread, offset }).collect();

            let found = recognise(&accesses);

            prop_assert!((0.0..=1.0).contains(&found.confidence), "{:?}", found);
        }
    }
}
