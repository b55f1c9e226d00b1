//! Whether the bytes of an access are the right ones: against the made content, or as digests to compare between arms.

use crate::data::{MadeContent, mix};
use crate::record::Answer;
use majorfault::Extent;

/// Accesses whose digests are added into one; enough to keep records small.
pub const BUCKET: u64 = 4096;

/// The check of one thread's accesses.
pub enum Check {
    /// Against the content the tool made.
    MadeContent {
        /// The content.
        content: MadeContent,
        /// Accesses whose sum was another.
        wrong: u64,
        /// The first of them.
        first: Option<u64>,
    },
    /// Digests of a user's file: each bucket's sum and how many accesses are in it.
    Digests(Vec<(u64, u64)>),
    /// None, for this reason.
    Nothing(&'static str),
    /// Made, so that it costs what it costs, and not told, for this reason: the control shows bytes of its own.
    Untold(Box<Check>, &'static str),
}

impl Check {
    /// Notes the sum of the words of the `number`-th access of this thread.
    #[inline]
    pub fn note(&mut self, number: u64, extent: Extent, sum: u64) {
        match self {
            Check::MadeContent { content, wrong, first } => {
                if content.sum(extent) != sum {
                    *wrong += 1;
                    first.get_or_insert(extent.offset);
                }
            }
            Check::Digests(buckets) => {
                let bucket = (number / BUCKET) as usize;
                if buckets.len() <= bucket {
                    buckets.resize(bucket + 1, (0, 0));
                }
                let (digest, count) = &mut buckets[bucket];
                // Added, so that the order of accesses in flight together does not matter.
                *digest = digest.wrapping_add(mix(sum ^ mix(extent.offset)));
                *count += 1;
            }
            Check::Nothing(_) => {}
            Check::Untold(check, _) => check.note(number, extent, sum),
        }
    }
}

/// The answer of all threads together.
pub fn answer(checks: &[&Check]) -> Answer {
    let mut wrong_in_all = 0;
    let mut first_of_all = None;
    let mut digests = Vec::new();
    for check in checks {
        match check {
            Check::MadeContent { wrong, first, .. } => {
                wrong_in_all += wrong;
                first_of_all = first_of_all.or(*first);
            }
            // A bucket that was cut short by the end of the run has nothing to be compared with.
            Check::Digests(buckets) => {
                let full = buckets.iter().take_while(|(_, count)| *count == BUCKET);
                digests.push(full.map(|(digest, _)| *digest).collect());
            }
            Check::Nothing(why) | Check::Untold(_, why) => return Answer::Unchecked((*why).to_owned()),
        }
    }
    match first_of_all {
        Some(first_offset) => Answer::Wrong { first_offset, count: wrong_in_all },
        None if digests.is_empty() => Answer::Checked,
        None => Answer::Digests(digests),
    }
}

/// Where two arms that made the same accesses saw different bytes: thread and bucket. `None` where all that both
/// have is equal.
pub fn first_difference(a: &[Vec<u64>], b: &[Vec<u64>]) -> Option<(usize, usize)> {
    a.iter().zip(b).enumerate().find_map(|(thread, (a, b))| {
        let bucket = a.iter().zip(b).position(|(a, b)| a != b)?;
        Some((thread, bucket))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { offset: 8192, length: 4096 };

    #[test]
    fn a_wrong_page_is_named() {
        let content = MadeContent::of(1);
        let mut check = Check::MadeContent { content, wrong: 0, first: None };
        check.note(0, Extent { offset: 0, length: 4096 }, content.page_sum(0));
        check.note(1, EXTENT, content.page_sum(3));

        assert_eq!(answer(&[&check]), Answer::Wrong { first_offset: 8192, count: 1 });
    }

    #[test]
    fn the_controls_check_is_made_and_not_told() {
        let content = MadeContent::of(1);
        let made = Check::MadeContent { content, wrong: 0, first: None };
        let mut check = Check::Untold(Box::new(made), "bytes of its own");

        check.note(0, EXTENT, 0);

        assert_eq!(answer(&[&check]), Answer::Unchecked("bytes of its own".to_owned()));
        let Check::Untold(made, _) = check else { panic!("another check") };
        assert!(matches!(*made, Check::MadeContent { wrong: 1, .. }), "as for every method");
    }

    #[test]
    fn digests_do_not_depend_on_the_order_of_completion() {
        let (mut up, mut down) = (Check::Digests(Vec::new()), Check::Digests(Vec::new()));
        let extent = |number: u64| Extent { offset: number * 4096, length: 4096 };
        for number in 0..BUCKET + 5 {
            up.note(number, extent(number), number);
        }
        for number in (0..BUCKET + 5).rev() {
            down.note(number, extent(number), number);
        }

        let (up, down) = (answer(&[&up]), answer(&[&down]));
        assert_eq!(up, down);
        let Answer::Digests(threads) = up else { panic!("{up:?}") };
        assert_eq!(threads[0].len(), 1, "the bucket cut short is left out");
    }

    #[test]
    fn a_difference_between_arms_is_found_in_what_both_have() {
        assert_eq!(first_difference(&[vec![1, 2]], &[vec![1]]), None);
        assert_eq!(first_difference(&[vec![1], vec![1, 2]], &[vec![1], vec![1, 3]]), Some((1, 1)));
    }
}
