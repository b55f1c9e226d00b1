//! Arrays that show a mapped file: announcing, letting go, asking, guarding. Anything that has the buffer protocol.

use crate::errors::{invalid, not_mapped, raised};
use crate::extents::Layout;
use crate::numbers::Numbers;
use majorfault::map::Harmless;
use majorfault::memory::{self, Region};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use std::ops::Range;

/// What lies behind a buffer. The buffer is kept as long as its addresses are used.
fn layout(buffer: &PyUntypedBuffer) -> PyResult<Layout> {
    if buffer.suboffsets().is_some() {
        return Err(invalid("an array of pointers has no bytes of its own; give each of its parts"));
    }
    Ok(Layout {
        address: buffer.buf_ptr() as usize,
        item: buffer.item_size(),
        shape: buffer.shape().to_vec(),
        strides: buffer.strides().to_vec(),
    })
}

/// The ranges of addresses of the rows, or of everything.
fn ranges(layout: &Layout, rows: Option<&[i64]>) -> PyResult<Vec<Range<usize>>> {
    let Some(rows) = rows else { return Ok(layout.all()) };
    layout.rows(rows).map_err(|row| {
        let count = layout.shape.first().copied().unwrap_or_default();
        PyIndexError::new_err(format!("row {row} is not in an array of {count} rows"))
    })
}

/// The file behind a whole array; none where it has no bytes.
fn region(layout: &Layout) -> PyResult<Option<Region>> {
    match layout.span() {
        span if span.is_empty() => Ok(None),
        span => Region::of(span).map(Some).map_err(|error| not_mapped(&error)),
    }
}

fn announce(layout: &Layout, wanted: Vec<Range<usize>>) -> PyResult<u64> {
    let Some(region) = region(layout)? else { return Ok(0) };
    let announced = region.will_need(wanted).map_err(|error| raised(&error))?;
    Ok(announced.asked_bytes)
}

/// Announces the rows (64-bit numbers), or all; returns the bytes that the kernel was asked for.
#[pyfunction]
#[pyo3(signature = (array, rows=None))]
pub(crate) fn prefetch(py: Python<'_>, array: &Bound<'_, PyAny>, rows: Option<Numbers>) -> PyResult<u64> {
    let buffer = PyUntypedBuffer::get(array)?;
    let (layout, rows) = (layout(&buffer)?, rows.map(|rows| rows.0));
    py.detach(|| announce(&layout, ranges(&layout, rows.as_deref())?))
}

/// Announces parts of a buffer by their first bytes and lengths.
#[pyfunction]
pub(crate) fn prefetch_ranges(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    begins: Numbers,
    lengths: Numbers,
) -> PyResult<u64> {
    let buffer = PyUntypedBuffer::get(array)?;
    let layout = layout(&buffer)?;
    py.detach(|| announce(&layout, parts(&layout.span(), &begins.0, &lengths.0)?))
}

fn parts(span: &Range<usize>, begins: &[i64], lengths: &[i64]) -> PyResult<Vec<Range<usize>>> {
    let part = |(begin, length): (&i64, &i64)| {
        let end = begin.checked_add(*length).filter(|end| *begin >= 0 && *length >= 0 && *end <= span.len() as i64);
        let end =
            end.ok_or_else(|| PyIndexError::new_err(format!("{length} bytes at {begin} are not in {}", span.len())))?;
        Ok(span.start + *begin as usize..span.start + end as usize)
    };
    begins.iter().zip(lengths).map(part).collect()
}

/// The ranges of bytes that `prefetch` announces, relative to the buffer's first item.
#[pyfunction]
#[pyo3(signature = (array, rows=None))]
pub(crate) fn extents(array: &Bound<'_, PyAny>, rows: Option<Numbers>) -> PyResult<Vec<(isize, isize)>> {
    let buffer = PyUntypedBuffer::get(array)?;
    let (layout, rows) = (layout(&buffer)?, rows.map(|rows| rows.0));
    let relative = |address: usize| address.wrapping_sub(layout.address) as isize;
    let found = ranges(&layout, rows.as_deref())?;
    Ok(found.iter().map(|range| (relative(range.start), relative(range.end))).collect())
}

/// Lets go of the memory that the rows take here, or all of it; returns their bytes.
#[pyfunction]
#[pyo3(signature = (array, rows=None, drop_cache=false))]
pub(crate) fn release(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    rows: Option<Numbers>,
    drop_cache: bool,
) -> PyResult<u64> {
    let buffer = PyUntypedBuffer::get(array)?;
    let (layout, rows) = (layout(&buffer)?, rows.map(|rows| rows.0));
    py.detach(|| let_go(ranges(&layout, rows.as_deref())?, drop_cache))
}

/// The same for parts of a buffer by their first bytes and lengths.
#[pyfunction]
#[pyo3(signature = (array, begins, lengths, drop_cache=false))]
pub(crate) fn release_ranges(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    begins: Numbers,
    lengths: Numbers,
    drop_cache: bool,
) -> PyResult<u64> {
    let buffer = PyUntypedBuffer::get(array)?;
    let layout = layout(&buffer)?;
    py.detach(|| let_go(parts(&layout.span(), &begins.0, &lengths.0)?, drop_cache))
}

/// Lets go of the ranges, those that touch as one.
fn let_go(mut ranges: Vec<Range<usize>>, drop_cache: bool) -> PyResult<u64> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        before.end = if touches { before.end.max(next.end) } else { before.end };
        touches
    });
    ranges.into_iter().map(|range| let_go_of(range, drop_cache)).sum()
}

#[allow(unsafe_code, reason = "the buffer that is held keeps its memory mapped")]
fn let_go_of(range: Range<usize>, drop_cache: bool) -> PyResult<u64> {
    let bytes = range.len() as u64;
    let region = Region::of(range).map_err(|error| not_mapped(&error))?;
    // SAFETY: the caller holds the buffer whose bytes these are, and exporters keep them where they are until it is released.
    unsafe { region.release(drop_cache) }.map_err(|error| raised(&error))?;
    Ok(bytes)
}

/// Bytes of whole pages that are in memory, and all of them.
#[pyfunction]
pub(crate) fn residency(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<(u64, u64)> {
    let buffer = PyUntypedBuffer::get(array)?;
    let layout = layout(&buffer)?;
    py.detach(|| {
        let Some(region) = region(&layout)? else { return Ok((0, 0)) };
        let resident = region.resident().map_err(|error| raised(&error))?;
        Ok((resident, region.len() as u64))
    })
}

/// Tells the kernel how the array will be used.
#[pyfunction]
pub(crate) fn advise(py: Python<'_>, array: &Bound<'_, PyAny>, word: &str) -> PyResult<()> {
    let given = match word {
        "normal" => Harmless::Normal,
        "random" => Harmless::Random,
        "sequential" => Harmless::Sequential,
        "willneed" => Harmless::WillNeed,
        "cold" => Harmless::Cold,
        _ => {
            return Err(invalid(format!(
                "\"{word}\" is no advice; there are normal, random, sequential, willneed, cold"
            )));
        }
    };
    let buffer = PyUntypedBuffer::get(array)?;
    let layout = layout(&buffer)?;
    py.detach(|| region(&layout)?.map_or(Ok(()), |region| region.advise(given)).map_err(|error| raised(&error)))
}

/// The path of the mapped file (none where it has no name any more) and where the buffer's first item lies in it.
#[pyfunction]
pub(crate) fn file_of(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<(Option<String>, u64)> {
    let buffer = PyUntypedBuffer::get(array)?;
    let layout = layout(&buffer)?;
    py.detach(|| {
        let region = region(&layout)?.ok_or_else(|| invalid("an array without bytes is in no file"))?;
        // A file that was replaced has another path's bytes.
        let is_there = region.open().is_ok();
        Ok((region.path().filter(|_| is_there).map(str::to_owned), region.offset(layout.address)))
    })
}

/// While it lives, a page of the buffer that is gone reads as zeros and is told, instead of ending the process by SIGBUS. Keeps the
/// buffer exported, so that it cannot be unmapped.
#[pyclass(frozen, module = "majorfault._core")]
pub(crate) struct Guard {
    /// Dropped first: the range must not be unmapped earlier.
    guard: memory::Guard,
    /// Keeps the range mapped.
    _buffer: PyUntypedBuffer,
}

#[pymethods]
impl Guard {
    #[new]
    #[allow(unsafe_code, reason = "the buffer that is kept beside the guard keeps its memory mapped")]
    fn new(array: &Bound<'_, PyAny>) -> PyResult<Guard> {
        let buffer = PyUntypedBuffer::get(array)?;
        let span = layout(&buffer)?.span();
        let region = region(&layout(&buffer)?)?.ok_or_else(|| invalid("an array without bytes needs no guard"))?;
        if region.end() < span.end {
            return Err(invalid("the array lies in several mappings; guard each of them"));
        }
        // SAFETY: one mapping, which the buffer keeps; it is released after the guard.
        let guard = unsafe { memory::guard(span.start, span.len()) };
        Ok(Guard { guard, _buffer: buffer })
    }

    /// Whether it is watched: too many guards at a time leave some without.
    #[getter]
    fn is_active(&self) -> bool {
        self.guard.is_active()
    }

    /// Byte of the buffer from which on a page was found missing; None while none was.
    #[getter]
    fn gone(&self) -> Option<usize> {
        self.guard.gone()
    }
}
