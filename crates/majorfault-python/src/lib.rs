//! The extension module `majorfault._core`: the library's calls for Python objects that have an address.
//!
//! It translates and decides nothing: what Python programs see is written in Python (python/majorfault), and what is done with
//! files in the library. Every call that may wait lets go of the interpreter lock.

mod ahead;
mod errors;
mod extents;
mod load;
mod memory;
mod numbers;
mod take;

use pyo3::prelude::*;

/// The calls below the package; the modules in Python document them.
#[pymodule(gil_used = false)]
mod _core {
    use super::*;
    #[pymodule_export]
    use crate::ahead::Follower;
    #[pymodule_export]
    use crate::load::{free_bytes, load_range};
    #[pymodule_export]
    use crate::memory::{
        Guard, advise, extents, file_of, prefetch, prefetch_ranges, release, release_ranges, residency,
    };
    #[pymodule_export]
    use crate::take::Taker;

    /// Adds what is no function.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
