//! The library's errors as Python's: the classes are in `majorfault/_errors.py`, one for each kind.

use majorfault::{Error, ErrorKind};
use pyo3::prelude::*;

/// The exception of an error.
pub(crate) fn raised(error: &Error) -> PyErr {
    Python::attach(|py| made(py, error, class(error.kind())).unwrap_or_else(|failure| failure))
}

/// What cannot be used as given.
pub(crate) fn invalid(sentence: impl Into<String>) -> PyErr {
    raised(&Error::Invalid(sentence.into()))
}

/// Memory that shows no file.
pub(crate) fn not_mapped(error: &Error) -> PyErr {
    let class = if error.kind() == ErrorKind::Invalid { "NotMapped" } else { class(error.kind()) };
    Python::attach(|py| made(py, error, class).unwrap_or_else(|failure| failure))
}

fn made(py: Python<'_>, error: &Error, class: &str) -> PyResult<PyErr> {
    let class = py.import("majorfault._errors")?.getattr(class)?;
    let exception = class.call1((error.to_string(),))?;
    if let Error::Missing(missing) = error {
        exception.setattr("reason", &missing.reason)?;
        exception.setattr("remedy", &missing.remedy)?;
    }
    exception.setattr("errno", error.errno())?;
    Ok(PyErr::from_value(exception))
}

fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "Invalid",
        ErrorKind::Changed => "Truncated",
        ErrorKind::Held => "Held",
        ErrorKind::NotPermitted => "NotPermitted",
        ErrorKind::Missing => "Missing",
        ErrorKind::Ended => "Ended",
        _ => "Failed",
    }
}
