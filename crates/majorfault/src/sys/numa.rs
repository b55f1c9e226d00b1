//! Nodes of a machine with several memories (NUMA): which processors and which memory are near each other, and where pages lie.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::sys::map::Mapping;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::path::Path;

/// Where the kernel lists them.
const NODES: &str = "/sys/devices/system/node";

/// Bytes of a page; on machines with larger ones a page is asked for more than once.
const PAGE: usize = 4096;

/// Pages that are asked for in one call.
const AT_ONCE: usize = 1 << 14;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// The processors near its memory; none in a node of memory alone.
    pub processors: Vec<usize>,
}

/// The nodes of this machine, by their numbers; empty where the kernel knows none (CONFIG_NUMA=n).
pub fn nodes() -> Vec<Node> {
    nodes_in(Path::new(NODES))
}

fn nodes_in(dir: &Path) -> Vec<Node> {
    let node = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let list = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
        Some(Node { number, processors: numbers(&list)? })
    };
    let mut nodes: Vec<Node> = std::fs::read_dir(dir).into_iter().flatten().flatten().filter_map(node).collect();
    nodes.sort_by_key(|node| node.number);
    nodes
}

/// The numbers of a list as the kernel writes it: `0-3,8`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// Lets the calling thread run on the node's processors only.
///
/// Errors: Io (none of them may be used by this process).
pub fn run_on(node: &Node) -> Result<()> {
    let mut set = CpuSet::new();
    node.processors.iter().filter(|number| **number < CpuSet::MAX_CPU).for_each(|number| set.set(*number));
    sched_setaffinity(None, &set)
        .map_err(|error| Error::io("run on the processors of a node", format!("node {}", node.number), error))
}

/// Takes the memory of the calling thread from this node alone from now on, that of files in memory as well (set_mempolicy with
/// MPOL_BIND).
///
/// Errors: Invalid (a number that no kernel has), Io (no such node, a filter of system calls).
pub fn bind_memory(node: u32) -> Result<()> {
    let bit = 1u64
        .checked_shl(node)
        .ok_or_else(|| Error::Invalid(format!("node {node}: only nodes 0 to 63 can be bound to")))?;
    // SAFETY: the mask is live and has the bits given; the kernel wants one more than there are.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, &raw const bit, u64::BITS + 1) };
    match done {
        0 => Ok(()),
        _ => Err(Error::io("bind memory to a node", format!("node {node}"), std::io::Error::last_os_error())),
    }
}

/// Of the pages of `mapping` that are in this process's page tables, how many lie on the node, and how many elsewhere (move_pages
/// without a destination). Costs some 0.2 us a page.
///
/// Errors: Io (a filter of system calls).
pub fn pages_on(mapping: &Mapping, node: u32) -> Result<(u64, u64)> {
    let (mut there, mut elsewhere) = (0, 0);
    let begin = mapping.as_ptr();
    let all: Vec<*const u8> = (0..mapping.length()).step_by(PAGE).map(|at| begin.wrapping_add(at)).collect();
    for pages in all.chunks(AT_ONCE) {
        let mut found = vec![0 as libc::c_int; pages.len()];
        let none = std::ptr::null::<libc::c_int>();
        // SAFETY: both lists are live and have the length given; without destinations no page is moved.
        let done =
            unsafe { libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), none, found.as_mut_ptr(), 0) };
        if done < 0 {
            return Err(Error::io("ask on which node pages lie", "move_pages", std::io::Error::last_os_error()));
        }
        let is_there = |status: &libc::c_int| u32::try_from(*status).map(|number| number == node);
        // A negative status: not in the page tables.
        for is_there in found.iter().filter_map(|status| is_there(status).ok()) {
            *if is_there { &mut there } else { &mut elsewhere } += 1;
        }
    }
    Ok((there, elsewhere))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::map::MapOptions;

    #[test]
    fn nodes_are_read_with_their_processors() {
        let dir = tempfile::tempdir().unwrap();
        for (name, list) in [("node10", "\n"), ("node0", "0-1,4\n"), ("node1", "2-3\n"), ("nodes", "5\n")] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("cpulist"), list).unwrap();
        }

        let found = nodes_in(dir.path());

        let processors: Vec<(u32, Vec<usize>)> = found.into_iter().map(|node| (node.number, node.processors)).collect();
        assert_eq!(processors, [(0, vec![0, 1, 4]), (1, vec![2, 3]), (10, vec![])]);
        assert!(nodes_in(&dir.path().join("none")).is_empty());
        assert_eq!(numbers("0-x"), None);
    }

    #[test]
    fn pages_are_counted_where_they_lie() {
        let Some(node) = nodes().into_iter().find(|node| !node.processors.is_empty()) else {
            eprintln!("SKIPPED pages_are_counted_where_they_lie: the kernel knows no nodes");
            return;
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * PAGE as u64).unwrap();
        std::thread::spawn(move || {
            bind_memory(node.number).unwrap();
            run_on(&node).unwrap();
            let mapping = Mapping::new(&file, 0, 64 * PAGE, &MapOptions::default()).unwrap();
            assert_eq!(pages_on(&mapping, node.number).unwrap(), (0, 0), "nothing was touched");
            crate::sys::advice::madvise(&mapping, 0, 10 * PAGE, crate::sys::advice::Advice::PopulateRead).unwrap();

            let (there, elsewhere) = pages_on(&mapping, node.number).unwrap();

            assert!(there >= 10 && elsewhere == 0, "{there} there, {elsewhere} elsewhere");
            assert_eq!(pages_on(&mapping, node.number + 1).unwrap(), (0, there));
        })
        .join()
        .unwrap();
        assert!(bind_memory(64).is_err());
    }
}
