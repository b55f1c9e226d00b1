//! /proc/diskstats: traffic of a block device.

/// Bytes of a sector in this file, whatever the device's own.
const SECTOR: u64 = 512;

/// One device's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskStat {
    /// Requests for reading that ended.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Requests for writing that ended.
    pub writes: u64,
    /// Bytes that they wrote.
    pub write_bytes: u64,
    /// Milliseconds in which at least one request was in flight.
    pub busy_ms: u64,
}

/// The row of the device with this number.
pub fn row(text: &str, major: u32, minor: u32) -> Option<DiskStat> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let found = words.next()?.parse() == Ok(major) && words.next()?.parse() == Ok(minor);
        if !found {
            return None;
        }
        let numbers: Vec<u64> = words.skip(1).map_while(|word| word.parse().ok()).collect();
        let [reads, _, read_sectors, _, writes, _, write_sectors, _, _, busy_ms, ..] = numbers[..] else { return None };
        let (read_bytes, write_bytes) = (read_sectors.saturating_mul(SECTOR), write_sectors.saturating_mul(SECTOR));
        Some(DiskStat { reads, read_bytes, writes, write_bytes, busy_ms })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_device_is_found_by_its_number() {
        let text = " 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n 254 0 vda 27770 10526 2106650 5225 5191 5837 313992 1431 0 2680 6803 0 0 0 0 138 238\n";

        let stat = row(text, 254, 0).unwrap();

        assert_eq!((stat.reads, stat.read_bytes), (27_770, 2_106_650 * 512));
        assert_eq!((stat.writes, stat.write_bytes, stat.busy_ms), (5191, 313_992 * 512, 2680));
        assert_eq!(row(text, 8, 0), None);
    }

    #[test]
    fn a_saved_table_is_read() {
        assert!(row(include_str!("data/diskstats-6.18"), 254, 0).is_some());
    }

    proptest! {
        #[test]
        fn what_the_kernel_prints_of_a_device_reads_back(device: (u32, u32), name in "[a-z0-9]{1,8}", counts in prop::array::uniform10(0u64..1 << 50)) {
            let words: Vec<String> = counts.iter().map(u64::to_string).collect();
            let text = format!(" 7 0 loop0 1 1\n {} {} {name} {} 0\n", device.0, device.1, words.join(" "));
            prop_assume!(device != (7, 0));

            let stat = row(&text, device.0, device.1).unwrap();

            prop_assert_eq!((stat.reads, stat.read_bytes, stat.writes), (counts[0], counts[2] * 512, counts[4]));
            prop_assert_eq!((stat.write_bytes, stat.busy_ms), (counts[6] * 512, counts[9]));
        }
    }
}
