//! Lines of /proc/PID/mountinfo (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the device, as stat(2) gives them for files on it.
    pub device: (u32, u32),
    /// Which directory of the file system is mounted: `/`, or less in a container.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// Options of the file system itself.
    pub options: String,
}

impl Mount {
    /// Whether this word is among the options of the file system.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|own| own == option)
    }
}

/// Every mount of the text, in its order. Lines that are not of this form are left out.
pub fn parse(text: &str) -> impl Iterator<Item = Mount> {
    text.split('\n').filter_map(mount)
}

/// The first mount of this device.
pub fn of_device(text: &str, device: (u32, u32)) -> Option<Mount> {
    parse(text).find(|mount| mount.device == device)
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/sda rw`: optional fields end at the dash.
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let (major, minor) = left.next()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let (root, point) = (path(left.next()?), path(left.next()?));
    let mut right = right.split(' ');
    let kind = right.next()?.to_owned();
    let options = right.nth(1).unwrap_or_default().to_owned();
    Some(Mount { device, root, point, kind, options })
}

/// A path as the kernel writes it: space, tab, newline and backslash as three octal digits behind a backslash.
pub(super) fn path(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| u8::from_str_radix(text, 8).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn a_line_is_read_with_type_and_options_whatever_the_optional_fields() {
        let line = "36 35 0:42 / /mnt/data rw,noatime shared:7 master:1 - nfs4 server:/export rw,vers=4.2,hard\n";

        let mount = parse(line).next().unwrap();

        assert_eq!(
            (mount.device, mount.kind.as_str(), mount.point.as_path()),
            ((0, 42), "nfs4", Path::new("/mnt/data"))
        );
        assert!(mount.has("hard") && !mount.has("har"));
    }

    #[test]
    fn a_mount_point_with_a_space_has_its_space() {
        let line = r"36 35 8:1 / /mnt/my\040data\134x rw - ext4 /dev/sda1 rw";

        assert_eq!(parse(line).next().unwrap().point, Path::new(r"/mnt/my data\x"));
    }

    #[test]
    fn other_lines_are_left_out() {
        assert_eq!(parse("x - y\n1 2 a:b / / rw - ext4 d rw\n\n").next(), None);
    }

    fn escaped(text: &str) -> String {
        text.chars()
            .map(|c| if " \\\t\n".contains(c) { format!("\\{:03o}", u32::from(c)) } else { c.to_string() })
            .collect()
    }

    proptest! {
        #[test]
        fn any_text_is_taken_without_panic(text in "\\PC*|([0-9]{1,4} ?|[a-z/:\\\\]{1,4}|- |\n){0,60}") {
            let _ = parse(&text).count();
        }

        #[test]
        fn what_the_kernel_writes_reads_back(major: u32, minor: u32, root in "/[^\0]{0,12}", point in "/[^\0]{0,12}",
                                             kind in "[a-z0-9.]{1,8}", options in "[a-z=,0-9]{1,12}") {
            let line = format!("1 2 {major}:{minor} {} {} rw shared:1 - {kind} none {options}", escaped(&root), escaped(&point));

            let mount = parse(&line).next().unwrap();

            let expected = Mount { device: (major, minor), root: root.into(), point: point.into(), kind, options };
            prop_assert_eq!(mount, expected);
        }
    }
}
