"""h5py: chunks and rows of HDF5 data sets, announced by their places in the file. Backed h5ad files of anndata are such files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from h5py import h5o

from ._errors import Invalid
from ._files import prefetch_file
from ._parts import Part, Rows, integers


def parts(data: Any, rows: Rows) -> Iterator[Part]:
    """A data set of HDF5 is in a file but in no memory."""
    raise Invalid("a data set of HDF5 has no address; use majorfault.h5py.prefetch")
    yield


KEPT = 16
"""Data sets whose chunks are remembered while their file is open for reading."""

READ_ALONE = 20_000
"""Numbers of `indptr` that are read as a whole in the time in which two of them are read by themselves."""


def prefetch(dataset: Any, rows: Rows = None) -> int:
    """Asks the kernel to read the chunks that hold these rows of a data set, or all, and returns their bytes.

    Chunks are found by the index of the file, which is in memory after the first call. A contiguous data set is announced by what HDF5
    reads of it at once: a row, or its sieve buffer (64 KiB) where that is more.
    """
    extents = list(places(dataset, rows))
    return prefetch_file(dataset.file.filename, extents)


def places(dataset: Any, rows: Rows = None) -> Iterator[tuple[int, int]]:
    """What HDF5 reads for the rows of a data set: first byte and length of each chunk, or of each read of a contiguous one."""
    if dataset.size == 0:
        return
    numbers = None if rows is None else _numbers(rows, dataset.shape[0])
    if dataset.chunks is None:
        yield from _contiguous(dataset, numbers)
    else:
        yield from _chunked(dataset, None if numbers is None else np.unique(numbers // dataset.chunks[0]))


def _numbers(rows: Rows, count: int) -> Any:
    found = np.asarray(integers(rows, count))
    if found.size and (found.min() < -count or found.max() >= count):
        raise IndexError(f"rows {found.min()} to {found.max()} are not in {count} rows")
    return np.unique(found % count)


def _contiguous(dataset: Any, numbers: Any) -> Iterator[tuple[int, int]]:
    begin = dataset.id.get_offset()
    if begin is None:
        return  # Compact, or not written yet: it is with the file's index.
    row = dataset.id.get_storage_size() // dataset.shape[0]
    if numbers is None:
        yield begin, row * dataset.shape[0]
        return
    sieve = dataset.file.id.get_access_plist().get_sieve_buf_size()
    last = begin + row * dataset.shape[0]
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
        if len(run):
            first, length = begin + int(run[0]) * row, len(run) * row
            yield first, max(length, min(sieve, last - first))


class Chunks(NamedTuple):
    """The chunks of a data set by their place along the first axis: arrays of the same length."""

    numbers: Any
    begins: Any
    lengths: Any


_kept: OrderedDict[tuple[Any, ...], Chunks] = OrderedDict()


def _chunks_of(dataset: Any) -> Chunks:
    """Asking for each chunk takes 40 us in a large file, asking for all 1 us for each; nothing changes in a file that is only read."""
    about = h5o.get_info(dataset.id)
    key = (dataset.file.filename, about.fileno, about.addr, dataset.id.get_storage_size())
    if key in _kept:
        _kept.move_to_end(key)
        return _kept[key]
    found: list[tuple[int, int, int]] = []
    dataset.id.chunk_iter(lambda chunk: found.append((chunk.chunk_offset[0], chunk.byte_offset, chunk.size)))
    firsts, begins, lengths = np.array(found, np.int64).reshape(-1, 3).T
    order = np.argsort(firsts, kind="stable")
    chunks = Chunks(firsts[order] // dataset.chunks[0], begins[order], lengths[order])
    if dataset.file.mode == "r" and not dataset.file.swmr_mode:
        _kept[key] = chunks
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    return chunks


def _chunked(dataset: Any, wanted: Any) -> Iterator[tuple[int, int]]:
    """`wanted` are numbers of chunks along the first axis, each once, ascending; None: all."""
    chunks = _chunks_of(dataset)
    if wanted is None:
        chosen: Any = slice(None)
    else:
        first, last = (np.searchsorted(chunks.numbers, wanted, side) for side in ("left", "right"))
        chosen = _covered(first, last)
    yield from zip(chunks.begins[chosen].tolist(), chunks.lengths[chosen].tolist(), strict=True)


def prefetch_sparse(group: Any, rows: Rows) -> int:
    """The same for rows of a sparse matrix as anndata keeps it: a group of `data`, `indices` and `indptr`."""
    return prefetch_file(group.file.filename, list(places_sparse(group, rows)))


def places_sparse(group: Any, rows: Rows) -> Iterator[tuple[int, int]]:
    """What HDF5 reads for rows of a sparse matrix: of `data` and of `indices`."""
    indptr = group["indptr"]
    begins, ends = _bounds(indptr, _numbers(rows, indptr.shape[0] - 1))
    begins, ends = begins[begins < ends], ends[begins < ends]
    for name in ("data", "indices"):
        if len(begins) and group[name].chunks is not None:
            side = group[name].chunks[0]
            yield from _chunked(group[name], _covered(begins // side, (ends - 1) // side + 1))
        elif len(begins):
            yield from _contiguous(group[name], _covered(begins, ends))


def _bounds(indptr: Any, numbers: Any) -> tuple[Any, Any]:
    """Where the items of each row begin and end. Of many rows only those asked for are read."""
    if READ_ALONE * len(numbers) < len(indptr):
        pairs = [indptr[row : row + 2] for row in numbers]
        return np.array([pair[0] for pair in pairs], np.int64), np.array([pair[1] for pair in pairs], np.int64)
    bounds = indptr[:].astype(np.int64)
    return bounds[numbers], bounds[numbers + 1]


def _covered(begins: Any, ends: Any) -> Any:
    """The numbers in any of these ranges, each once, ascending."""
    counts = ends - begins
    before = np.cumsum(counts) - counts
    return np.unique(np.repeat(begins - before, counts) + np.arange(counts.sum()))
