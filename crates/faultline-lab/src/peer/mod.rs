//! stub
use crate::record::Record;
use crate::trial::{Choice, Trial};
use faultline::{Error, Result, params::Param};
use std::process::ExitStatus;
pub struct Peer {
    pub name: &'static str,
    pub summary: &'static str,
    pub params: fn() -> Vec<Param>,
    pub command: fn(&Trial, &Choice) -> Result<Vec<String>>,
    pub read_back: fn(&Trial, &str, ExitStatus, &mut Record) -> Result<()>,
}
pub const ALL: &[&Peer] = &[];
pub fn named(_n: &str) -> Result<&'static Peer> {
    Err(Error::Invalid("stub".into()))
}
