//! stub
use crate::command::Exit;
/// Show what this machine and your rights allow
#[derive(clap::Args)]
pub struct Args {}
pub fn run(_a: Args) -> faultline::Result<Exit> {
    Ok(Exit::Ok)
}
