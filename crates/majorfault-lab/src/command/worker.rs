//! `majorfault worker`: the process a trial runs in; started by majorfault itself.

use crate::command::Exit;
use crate::run::worker;
use majorfault::Result;
use std::io::BufReader;

/// Run one trial, told through standard input.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Args {} = args;
    // A thread that panics would leave the others waiting at a barrier for ever.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        std::process::abort();
    }));
    worker::serve(BufReader::new(std::io::stdin()), std::io::stdout().lock());
    Ok(Exit::Ok)
}
