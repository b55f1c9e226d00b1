//! Loading files as a whole.

use crate::errors::raised;
use majorfault::{MappedFile, memory};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Bytes that can be read into the page cache before something else is evicted.
#[pyfunction]
pub(crate) fn free_bytes(py: Python<'_>) -> u64 {
    py.detach(memory::free_bytes)
}

/// Reads the bytes `begin` to `end` of the file into the page cache, from several threads. Returns the bytes read, and those left
/// out because memory would not hold them.
#[pyfunction]
pub(crate) fn load_range(py: Python<'_>, path: PathBuf, begin: u64, end: u64) -> PyResult<(u64, u64)> {
    py.detach(|| {
        let map = MappedFile::options().range(begin..end).open(&path).map_err(|error| raised(&error))?;
        let report = map.load(&mut |_, _| ()).map_err(|error| raised(&error))?;
        Ok((report.loaded_bytes, report.left_bytes))
    })
}
