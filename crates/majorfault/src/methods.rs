//! Every access method by its name: those that need only system calls, and those built on other parts of the library.

use crate::access::{self, Method};
use crate::error::{Error, Result};
use crate::pool;

/// Methods built on other methods.
const BUILT: &[&Method] = &[&pool::METHOD, &pool::UFFD];

/// Every access method, the control first.
pub fn all() -> impl Iterator<Item = &'static Method> {
    access::PLAIN.iter().chain(BUILT).copied()
}

/// The method of this name.
///
/// Errors: Invalid, which lists the known names.
pub fn named(name: &str) -> Result<&'static Method> {
    all().find(|method| method.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|method| method.name).collect();
        Error::Invalid(format!("there is no access method \"{name}\"; there are {}", names.join(", ")))
    })
}
