//! /proc/interrupts: the TLB row.

/// Interrupts sent to make other processors flush their TLBs, over all processors. `None` on architectures that flush
/// without an interrupt (arm64) and have no such row.
pub fn tlb(text: &str) -> Option<u64> {
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix("TLB:"))?;
    let counts = row.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    Some(counts.fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_row_is_added_up_over_all_processors() {
        assert_eq!(tlb("           CPU0       CPU1\n TLB:        739        637   TLB shootdowns\n"), Some(1376));
        assert!(tlb(include_str!("data/interrupts-6.18")).is_some());
        assert_eq!(tlb("           CPU0\nIPI0:  5  Rescheduling interrupts\n"), None);
    }

    proptest! {
        #[test]
        fn what_the_kernel_prints_of_all_processors_adds_up(counts in prop::collection::vec(0u64..1 << 40, 1..64)) {
            let words: Vec<String> = counts.iter().map(|count| format!("{count:>10}")).collect();

            let found = tlb(&format!("  CPU0\n  0:  5 timer\nTLB: {}   TLB shootdowns\n", words.join(" ")));

            prop_assert_eq!(found, Some(counts.iter().sum()));
        }
    }
}
