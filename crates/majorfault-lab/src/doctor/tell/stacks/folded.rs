//! Stacks as text, a line each (the format of flamegraph.pl).

use super::NamedStack;
use std::collections::BTreeMap;

/// What stands before the path of the file, as the innermost frame.
const LEAF: &str = "fault in ";

/// The stacks that waited, each with its microseconds; of one that waited less than one, 1.
pub fn encode(stacks: &[NamedStack]) -> String {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.waited_ns > 0) {
        let outer = std::iter::once(&stack.process).chain(&stack.names).map(|name| frame(name));
        let frames: Vec<String> = outer.chain([LEAF.to_owned() + &frame(&stack.file)]).collect();
        *sums.entry(frames.join(";")).or_default() += stack.waited_ns;
    }
    sums.into_iter().map(|(frames, waited_ns)| format!("{frames} {}\n", waited_ns.div_ceil(1000))).collect()
}

/// A frame without the characters that end one.
fn frame(name: &str) -> String {
    name.replace([';', '\n', '\r'], "_")
}

#[cfg(test)]
mod tests {
    use super::super::stack;
    use super::*;

    #[test]
    fn a_line_has_process_functions_file_and_microseconds() {
        let stacks = [
            stack("/data/a b", &["main", "scan"], 3, 2_500_000),
            stack("/data/a b", &["main", "scan"], 1, 500_000),
            stack("/data/c", &["main"], 9, 0),
            stack("/data/c;\n1", &["f<a;b>"], 1, 1),
        ];

        assert_eq!(encode(&stacks), "db;f<a_b>;fault in /data/c__1 1\ndb;main;scan;fault in /data/a b 3000\n");
    }
}
