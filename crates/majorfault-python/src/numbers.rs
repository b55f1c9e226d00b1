//! Arrays of 64-bit numbers from Python: rows, and places in files.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

/// A copy of the numbers, so that nobody changes them while they are used.
pub(crate) struct Numbers(pub Vec<i64>);

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = PyErr;

    fn extract(array: Borrowed<'_, 'py, PyAny>) -> PyResult<Numbers> {
        let buffer = PyUntypedBuffer::get(&array)?;
        // An empty array may lie anywhere, where no number could.
        if buffer.len_bytes() == 0 {
            return Ok(Numbers(Vec::new()));
        }
        buffer.into_typed::<i64>()?.to_vec(array.py()).map(Numbers)
    }
}
