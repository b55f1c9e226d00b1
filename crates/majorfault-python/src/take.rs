//! Rows of a file into memory of the caller's, by an access method: many reads in flight.

use crate::ahead::given;
use crate::errors::{invalid, raised};
use crate::numbers::Numbers;
use majorfault::access::{Hints, Method, Opened, Urgency};
use majorfault::{Error, Extent, Given, Layout, Target, methods};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The most bytes of one read: longer rows are read in parts, so that buffers stay small.
const PIECE: u64 = 1 << 20;

/// Ways that are tried where the user chose none, and with the depth asked for where they have one.
const WAYS: &[(&str, &str)] = &[("uring", ""), ("uring", "direct=off"), ("pread", "")];

/// An open file from which rows are taken.
#[pyclass(frozen, module = "majorfault._core")]
pub(crate) struct Taker {
    path: PathBuf,
    method: &'static Method,
    settings: Given,
    state: Mutex<State>,
}

/// What is open belongs to one process: a queue that a fork copied is the parent's.
struct State {
    pid: u32,
    opened: Opened,
}

/// Rows of one length in a file.
struct Rows {
    begin: u64,
    bytes: u64,
    count: u64,
}

#[pymethods]
impl Taker {
    /// `method` is a name of the library's, or auto; `settings` as the command line has them.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, method: &str, settings: &str, depth: u32) -> PyResult<Taker> {
        py.detach(|| choose(path, method, settings, depth)).map_err(|error| raised(&error))
    }

    /// The method that is used.
    #[getter]
    fn method(&self) -> String {
        match self.settings.to_string() {
            settings if settings.is_empty() => self.method.name.to_owned(),
            settings => format!("{}:{settings}", self.method.name),
        }
    }

    /// Fills `out` with the `rows` of `row_bytes` each of the `count` that begin at the byte `begin` of the file.
    fn take(
        &self,
        py: Python<'_>,
        begin: u64,
        row_bytes: u64,
        count: u64,
        rows: Numbers,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let wanted = Rows { begin, bytes: row_bytes, count };
        let begins = rows.0.into_iter().map(|row| wanted.begin_of(row)).collect::<PyResult<Vec<u64>>>()?;
        self.gather(py, &begins, row_bytes, out)
    }

    /// Fills `out` with `length` bytes from each of `begins` on.
    fn take_at(&self, py: Python<'_>, begins: Numbers, length: u64, out: &Bound<'_, PyAny>) -> PyResult<()> {
        let begins = begins.0.into_iter().map(|begin| u64::try_from(begin).unwrap_or(u64::MAX / 2));
        self.gather(py, &begins.collect::<Vec<u64>>(), length, out)
    }
}

impl Taker {
    #[allow(unsafe_code, reason = "the caller's buffer is held and written without the interpreter lock")]
    fn gather(&self, py: Python<'_>, begins: &[u64], length: u64, out: &Bound<'_, PyAny>) -> PyResult<()> {
        let out = PyUntypedBuffer::get(out)?;
        let bytes = (begins.len() as u64).checked_mul(length);
        if out.readonly() || !out.is_c_contiguous() || bytes != Some(out.len_bytes() as u64) {
            return Err(invalid(format!(
                "{} rows of {length} bytes need a writable, contiguous array of as many bytes, not of {}",
                begins.len(),
                out.len_bytes()
            )));
        }
        let place = out.buf_ptr() as usize;
        // SAFETY: `out` is held, writable and as long as all pieces; what other threads do with it meanwhile is theirs to order, as
        // with every gather without the interpreter lock.
        let put = |at: u64, bytes: &[u8]| unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (place as *mut u8).add(at as usize), bytes.len());
        };
        py.detach(|| self.visit(&pieces(begins, length), put)).map_err(|error| raised(&error))
    }

    /// Shows each piece with its place in the output.
    fn visit(&self, pieces: &[(u64, Extent)], mut put: impl FnMut(u64, &[u8])) -> majorfault::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pid != std::process::id() {
            let mine = State::open(&self.path, self.method, &self.settings)?;
            // Not closed: a queue's memory is shared with the process that made it.
            std::mem::forget(std::mem::replace(&mut *state, mine));
        }
        let extents: Vec<Extent> = pieces.iter().map(|(_, extent)| *extent).collect();
        if self.method.hints == Hints::PageCache {
            state.opened.reader.will_need(&extents, Urgency::Soon)?;
        }
        state.opened.visit(&extents, |index, bytes| put(pieces[index].0, bytes))
    }
}

impl State {
    fn open(path: &PathBuf, method: &'static Method, settings: &Given) -> majorfault::Result<State> {
        let target = Target::open(std::slice::from_ref(path), &Layout::default())?;
        Ok(State { pid: std::process::id(), opened: (method.open)(Arc::new(target), settings)? })
    }
}

impl Rows {
    /// First byte of a row; a negative number counts from the end.
    fn begin_of(&self, number: i64) -> PyResult<u64> {
        let row = if number < 0 { number + self.count as i64 } else { number };
        match u64::try_from(row).ok().filter(|row| *row < self.count) {
            Some(row) => Ok(self.begin + row * self.bytes),
            None => Err(PyIndexError::new_err(format!("row {number} is not in {} rows", self.count))),
        }
    }
}

/// The parts of each range that one read takes, with their places in the output.
fn pieces(begins: &[u64], length: u64) -> Vec<(u64, Extent)> {
    let of = |(index, begin): (usize, &u64)| {
        let (from, to) = (*begin, index as u64 * length);
        let part = move |at| (to + at, Extent { offset: from + at, length: PIECE.min(length - at) as usize });
        (0..length).step_by(PIECE as usize).map(part)
    };
    begins.iter().enumerate().flat_map(of).collect()
}

/// Opens by the method chosen, or by the first of the usual ways that this machine and file have.
fn choose(path: PathBuf, method: &str, settings: &str, depth: u32) -> majorfault::Result<Taker> {
    if method != "auto" {
        return open(path, method, settings, depth);
    }
    let mut last = Error::Invalid("there is no way to read a file".to_owned());
    for (name, usual) in WAYS {
        match open(path.clone(), name, usual, depth) {
            Ok(taker) => return Ok(taker),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn open(path: PathBuf, method: &str, settings: &str, depth: u32) -> majorfault::Result<Taker> {
    let method = methods::named(method)?;
    let mut settings = given(settings);
    if let Some(name) = method.depth.filter(|name| settings.get(name).is_none()) {
        settings = settings.with(name, depth);
    }
    let state = Mutex::new(State::open(&path, method, &settings)?);
    Ok(Taker { path, method, settings, state })
}
