//! The command line; see `faultline --help`.

fn main() {}
