//! Settings of block devices in /sys, by the numbers of a device.

use std::fs;
use std::path::PathBuf;

/// A setting of the queue of a device (`read_ahead_kb`, `max_sectors_kb`, `rotational`); a partition has its disk's. `None`
/// where there is no block device, or no such setting.
pub fn queue((major, minor): (u32, u32), setting: &str) -> Option<u64> {
    // Resolved first: beside a link, `..` would be the directory of the link.
    let block = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    number(block.join("queue").join(setting)).or_else(|| number(block.parent()?.join("queue").join(setting)))
}

/// read_ahead_kb in force for files on this device: that of its queue, or of its backing device (network file systems).
pub fn read_ahead_kb(device: (u32, u32)) -> Option<u64> {
    let (major, minor) = device;
    let backing = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    queue(device, "read_ahead_kb").or_else(|| number(backing))
}

fn number(path: PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_has_no_settings() {
        assert_eq!(read_ahead_kb((4095, 1_048_575)), None);
        assert_eq!(queue((4095, 1_048_575), "max_sectors_kb"), None);
    }
}
