//! Pressure stall information: how long tasks waited for a resource.

/// Nanoseconds in which `some` or all (`full`) tasks waited.
pub fn total(text: &str, which: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(' '))?;
    let micros: u64 = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()?;
    Some(micros.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn totals_are_told_apart() {
        let text =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=77\n";

        assert_eq!((total(text, "some"), total(text, "full")), (Some(12_345_000), Some(77_000)));
        assert_eq!(total("", "some"), None);
    }

    proptest! {
        #[test]
        fn what_the_kernel_prints_reads_back(some in 0u64..1 << 50, full in 0u64..1 << 50) {
            let line = |which: &str, total: u64| format!("{which} avg10=0.12 avg60=1.00 avg300=0.00 total={total}\n");
            let text = line("some", some) + &line("full", full);

            prop_assert_eq!((total(&text, "some"), total(&text, "full")), (Some(some * 1000), Some(full * 1000)));
        }
    }
}
