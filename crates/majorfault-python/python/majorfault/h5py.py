"""h5py: chunks and rows of HDF5 data sets, announced by their places in the file. Backed h5ad files of anndata are such files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ._errors import Invalid
from ._files import prefetch_file
from ._parts import Part, Rows, integers


def parts(data: Any, rows: Rows) -> Iterator[Part]:
    """A data set of HDF5 is in a file but in no memory."""
    raise Invalid("a data set of HDF5 has no address; use majorfault.h5py.prefetch")
    yield


def prefetch(dataset: Any, rows: Rows = None) -> int:
    """Asks the kernel to read the chunks that hold these rows of a data set, or all, and returns their bytes.

    Chunks are found by the index of the file, which is in memory after the first call. A contiguous data set is announced row by row.
    """
    extents = list(places(dataset, rows))
    return prefetch_file(dataset.file.filename, extents)


def places(dataset: Any, rows: Rows = None) -> Iterator[tuple[int, int]]:
    """Where the rows of a data set are: first byte and length of each chunk, or of each run of rows."""
    if dataset.size == 0:
        return
    numbers = None if rows is None else _numbers(rows, dataset.shape[0])
    if dataset.chunks is None:
        yield from _contiguous(dataset, numbers)
    else:
        yield from _chunked(dataset, numbers)


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
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
        if len(run):
            yield begin + int(run[0]) * row, len(run) * row


def _chunked(dataset: Any, numbers: Any) -> Iterator[tuple[int, int]]:
    rows_of_chunk = dataset.chunks[0]
    wanted = None if numbers is None else set((numbers // rows_of_chunk * rows_of_chunk).tolist())
    found: list[tuple[int, int]] = []

    def look(chunk: Any) -> None:
        if wanted is None or chunk.chunk_offset[0] in wanted:
            found.append((chunk.byte_offset, chunk.size))

    if wanted is not None and dataset.ndim == 1:
        # One look for each chunk wanted, instead of all of them.
        for first in wanted:
            chunk = dataset.id.get_chunk_info_by_coord((first,))
            if chunk.byte_offset is not None:
                found.append((chunk.byte_offset, chunk.size))
    else:
        dataset.id.chunk_iter(look)
    yield from found


def prefetch_sparse(group: Any, rows: Rows) -> int:
    """The same for rows of a sparse matrix as anndata keeps it: a group of `data`, `indices` and `indptr`."""
    indptr = group["indptr"]
    numbers = _numbers(rows, indptr.shape[0] - 1)
    bounds = indptr[:]
    items = np.concatenate([np.arange(bounds[row], bounds[row + 1]) for row in numbers] or [np.arange(0)])
    return prefetch(group["data"], items) + prefetch(group["indices"], items)
