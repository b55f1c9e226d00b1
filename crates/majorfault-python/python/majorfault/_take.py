"""Rows of a file into an array, past the page cache, with many reads in flight."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

from ._calls import file_of
from ._errors import Invalid
from ._native import core

KEPT = 2
"""Files that each thread keeps open for the next call."""

_open = threading.local()


def take(
    source: Any,
    rows: Any,
    out: Any = None,
    *,
    method: str = "auto",
    depth: int = 64,
    dtype: Any = None,
    row_shape: tuple[int, ...] = (),
    offset: int = 0,
) -> Any:
    """Rows of an array in a mapped file, or of a file, gathered into `out` or a new array without using the page cache.

    For data much larger than memory whose rows are rarely used again: nothing is evicted, and `depth` reads are in flight. `source` is
    an array whose rows are contiguous, or the path of a `.npy` file, or of any file with `dtype`, `row_shape` and `offset`. `method` is
    one of the library's access methods with its settings (`uring:direct=off`, `pread`); `auto` takes io_uring past the page cache, through
    it where the file system wants that, and pread with announced rows where io_uring is refused.

    >>> import majorfault, numpy, tempfile
    >>> file = tempfile.NamedTemporaryFile(suffix=".npy")
    >>> numpy.save(file, numpy.arange(20).reshape(10, 2)); file.flush()
    >>> majorfault.take(file.name, [7, 0]).tolist()
    [[14, 15], [0, 1]]
    """
    import numpy

    from ._parts import integers

    path, begin, kind, shape, count = _described(source, dtype, row_shape, offset)
    numbers = numpy.asarray(integers(rows, count))
    found = numpy.empty((len(numbers), *shape), kind) if out is None else out
    if found.dtype != kind or found.shape != (len(numbers), *shape):
        raise Invalid(f"out is {found.dtype} of {found.shape}, but these rows are {kind} of {(len(numbers), *shape)}")
    row_bytes = kind.itemsize
    for length in shape:
        row_bytes *= length
    if row_bytes and len(numbers):
        target = found.view(f"V{kind.itemsize}") if found.ndim else found
        _taker(path, method, depth).take(begin, row_bytes, count, numbers, target)
    return found


def _described(source: Any, dtype: Any, row_shape: tuple[int, ...], offset: int) -> tuple[str, int, Any, tuple[int, ...], int]:
    """Path, first byte, kind of item, shape of a row, number of rows."""
    import numpy

    if offset < 0 or any(length < 0 for length in row_shape):
        raise Invalid(f"offset={offset}, row_shape={row_shape}: neither may be negative")
    if isinstance(source, (str, os.PathLike)) and dtype is not None:
        kind = numpy.dtype(dtype)
        row_bytes = kind.itemsize * int(numpy.prod(row_shape, dtype=numpy.int64))
        count = max(0, os.path.getsize(source) - offset) // row_bytes if row_bytes else 0
        return os.fspath(source), offset, kind, row_shape, count
    if isinstance(source, (str, os.PathLike)):
        source = numpy.load(source, mmap_mode="r")
    array = numpy.asarray(source)
    if array.ndim == 0 or not array.flags.c_contiguous or array.dtype.hasobject:
        raise Invalid("take needs an array of numbers whose rows follow each other in the file; use prefetch and an index")
    path, begin = file_of(array) if array.nbytes else ("", 0)
    if path is None:
        raise Invalid("the mapped file has no name any more; use prefetch and an index")
    return path, begin, array.dtype, array.shape[1:], array.shape[0]


def _taker(path: str, method: str, depth: int) -> Any:
    """Opened before, by this thread, or now. A file that was replaced or has grown is opened again."""
    kept: OrderedDict[Any, Any] = _open.__dict__.setdefault("kept", OrderedDict())
    state = os.stat(path)
    key = (path, state.st_dev, state.st_ino, state.st_size, method, depth)
    if key in kept:
        kept.move_to_end(key)
    else:
        name, _, settings = method.partition(":")
        kept[key] = core.Taker(path, name, settings, depth)
        if len(kept) > KEPT:
            kept.popitem(last=False)
    return kept[key]
