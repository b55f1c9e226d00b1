//! Tracepoints as tracefs describes them: the number for perf, and where each field lies in a sample.

use std::path::{Path, PathBuf};

/// Where tracefs is mounted, newer kernels first.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// One field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, as the tracepoint's `format` file has it.
    pub name: String,
    /// Its first byte.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// A tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number, which perf_event_open(2) takes and every sample begins with.
    pub id: u64,
    /// Its fields, in order.
    pub fields: Vec<Field>,
}

impl Tracepoint {
    /// Reads `events/NAME/format` (`name` is, say, `syscalls/sys_enter_madvise`); none where tracefs is not mounted or not
    /// readable, or the kernel has no such tracepoint.
    pub fn named(name: &str) -> Option<Tracepoint> {
        let path = |mount: &str| PathBuf::from(mount).join("events").join(name).join("format");
        MOUNTS.iter().find_map(|mount| std::fs::read_to_string(path(mount)).ok()).and_then(|text| parse(&text))
    }

    /// The field `name` as an unsigned number; none where the tracepoint or the sample does not have it.
    pub fn value(&self, name: &str, sample: &[u8]) -> Option<u64> {
        let Field { offset, size, .. } = *self.fields.iter().find(|field| field.name == name)?;
        let bytes = sample.get(offset..offset.checked_add(size)?)?;
        match *bytes {
            [a] => Some(u64::from(a)),
            [a, b] => Some(u64::from(u16::from_ne_bytes([a, b]))),
            [a, b, c, d] => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
            _ => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        }
    }
}

/// Whether this user can read tracefs.
pub fn is_readable() -> bool {
    MOUNTS.iter().any(|mount| Path::new(mount).join("events").is_dir())
}

/// Reads a `format` file: lines of `ID: number` and `field:type name; offset:number; size:number; signed:number;`.
fn parse(text: &str) -> Option<Tracepoint> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
    Some(Tracepoint { id, fields: text.lines().filter_map(field).collect() })
}

fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let name = parts.next()?.rsplit([' ', '*']).next()?.to_owned();
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some(Field { name, offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MADVISE: &str = include_str!("data/format-sys_enter_madvise-6.18");

    #[test]
    fn a_format_file_tells_number_and_offsets() {
        let point = parse(MADVISE).unwrap();

        assert_eq!(point.id, 726);
        let place = |name: &str| point.fields.iter().find(|field| field.name == name).map(|it| (it.offset, it.size));
        assert_eq!(place("common_type"), Some((0, 2)));
        assert_eq!(place("start"), Some((16, 8)));
        assert_eq!(place("behavior"), Some((32, 8)));
    }

    #[test]
    fn a_value_is_read_from_its_place_and_never_from_behind_the_end() {
        let point = parse(MADVISE).unwrap();
        let mut sample = vec![0u8; 40];
        sample[24..32].copy_from_slice(&4096u64.to_ne_bytes());

        assert_eq!(point.value("len_in", &sample), Some(4096));
        assert_eq!(point.value("len_in", &sample[..31]), None);
        assert_eq!(point.value("length", &sample), None);
    }

    #[test]
    fn any_text_is_read_without_panic() {
        for text in ["", "ID: x", "ID: 1\nfield:", "ID: 1\nfield:int a; offset:9", "ID: 1\nfield:;;;"] {
            let _ = parse(text);
        }
        let huge = Tracepoint { id: 1, fields: vec![Field { name: "a".to_owned(), offset: usize::MAX, size: 8 }] };
        assert_eq!(huge.value("a", &[0; 16]), None);
    }

    proptest! {
        #[test]
        fn any_format_and_any_sample_are_taken_without_panic(
            text in "\\PC*|ID: ?[0-9]{0,20}\n(\tfield:[a-z *\\[\\]]{0,12}; ?(offset|size):[0-9]{0,20};? ?(size:[0-9]{0,20};)?\n){0,6}",
            sample in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let Some(point) = parse(&text) else { return Ok(()) };
            for field in &point.fields {
                let _ = point.value(&field.name, &sample);
            }
        }

        #[test]
        fn what_the_kernel_prints_of_a_field_reads_back(id: u64, name in "[a-z_]{1,12}", offset in 0usize..512, size in 1usize..9) {
            let text = format!("name: x\nID: {id}\nformat:\n\tfield:unsigned long {name};\toffset:{offset};\tsize:{size};\tsigned:0;\n");

            let point = parse(&text).unwrap();

            prop_assert_eq!(point, Tracepoint { id, fields: vec![Field { name, offset, size }] });
        }
    }
}
