//! Who takes part in a comparison when nobody was named: each way a program might choose for this workload.

use crate::peer;
use crate::trial::{Arm, Choice, Direction};
use majorfault::{Error, Given, Result, methods, prefetch};

/// The usual methods: the control, mmap with each hint, explicit I/O.
pub fn usual(direction: Direction, iodepth: u32) -> Vec<Arm> {
    let mmap = |advice: &str| Choice::plain("mmap").with("advice", advice);
    let uring = |direct: &str| Choice::plain("uring").with("depth", iodepth).with("direct", direct);
    let hints: &[&str] = match direction {
        Direction::Read => &["normal", "random", "sequential", "willneed", "hugepage"],
        Direction::Write => &["normal", "random"],
    };
    let methods = [Choice::plain("null")].into_iter().chain(hints.iter().copied().map(mmap)).chain([
        Choice::plain("pread"),
        Choice::plain("direct"),
        uring("off"),
        uring("on"),
    ]);
    methods.map(Arm::Method).collect()
}

/// Each peer with its defaults.
pub fn peers() -> Vec<Arm> {
    peer::ALL.iter().map(|peer| Arm::Peer(Choice::plain(peer.name))).collect()
}

/// Reads `mmap:advice=random,populate=read`, `mmap:policy=strided,stride=64k` or `fio:engine=libaio`. A method
/// that keeps transfers in flight gets `iodepth` of them where it is given no other number.
///
/// Errors: Invalid, naming what there is.
pub fn arm(text: &str, iodepth: u32) -> Result<Arm> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let given: Given = parameters.parse()?;
    if let Some(peer) = peer::ALL.iter().find(|peer| peer.name == name) {
        given.only(&(peer.params)())?;
        return Ok(Arm::Peer(Choice { name: name.to_owned(), given: given.0 }));
    }
    let method = methods::named(name).map_err(|error| {
        let peers: Vec<&str> = peer::ALL.iter().map(|peer| peer.name).collect();
        Error::Invalid(format!("{error}; peers are {}", peers.join(", ")))
    })?;
    given.only(&prefetch::params(method, &given)?)?;
    let mut choice = Choice { name: name.to_owned(), given: given.0 };
    if let Some(depth) = method.depth.filter(|depth| !choice.given.contains_key(*depth)) {
        choice = choice.with(depth, iodepth);
    }
    Ok(Arm::Method(choice))
}
