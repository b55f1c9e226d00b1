"""What arrays are made of: buffers in memory, and which rows of them. Each library's arrays are taken apart by its frame."""

from __future__ import annotations

from array import array as numbers
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ._errors import Invalid

Rows = Any
"""Numbers of rows: an integer, a slice, a range, a list, an array of integers or of booleans."""

FRAMES = {"torch", "pyarrow", "datasets", "polars", "h5py", "numpy"}
"""Libraries whose arrays a frame (`majorfault.NAME`, with a function `parts`) takes apart."""


@dataclass
class Part:
    """A buffer, and what of it is meant: rows of its first dimension, or bytes from begins with lengths, or all of it."""

    buffer: Any
    rows: Any = None
    begins: Any = None
    lengths: Any = None
    apart: list[Part] = field(default_factory=list)
    """What was joined into this one."""


def parts(array: Any, rows: Rows) -> Iterator[Part]:
    """The buffers of an array, of an array-like of another library, or of a collection of such, and their rows."""
    if isinstance(array, dict):
        array = list(array.values())
    if isinstance(array, (list, tuple)):
        for one in array:
            yield from parts(one, rows)
        return
    taken_apart = _frame(type(array))
    if taken_apart is not None:
        yield from taken_apart(array, rows)
        return
    try:
        view = memoryview(array)
    except TypeError:
        raise Invalid(
            f"{type(array).__name__} has no address: give an array, a buffer, a tensor, a table, or a list of them"
        ) from None
    yield Part(array, None if rows is None else integers(rows, view.shape[0] if view.shape else 0))


def joined(found: Iterable[Part]) -> Iterator[Part]:
    """Parts of buffers that were cut from one mapped file, as Arrow's are, as one part: one call, however many chunks there are."""
    files: dict[int, tuple[Any, list[Part]]] = {}
    for part in found:
        whole = None if part.begins is None else cut_from(part.buffer)
        if whole is None:
            yield part
        else:
            files.setdefault(whole.address, (whole, []))[1].append(part)
    for whole, parts_ in files.values():
        if len(parts_) == 1:
            yield parts_[0]
            continue
        import numpy

        begins = [part.begins + (part.buffer.address - whole.address) for part in parts_]
        yield Part(whole, None, numpy.concatenate(begins), numpy.concatenate([part.lengths for part in parts_]), parts_)


def cut_from(buffer: Any) -> Any:
    """The buffer that this one was cut from, and that one, up to the first; None where it was not cut."""
    whole = getattr(buffer, "parent", None)
    while whole is not None and whole.parent is not None:
        whole = whole.parent
    return whole


_known: dict[type, Callable[[Any, Rows], Iterator[Part]] | None] = {}


def _frame(kind: type) -> Callable[[Any, Rows], Iterator[Part]] | None:
    """How a library's arrays are taken apart."""
    if kind not in _known:
        libraries = (base.__module__.partition(".")[0] for base in kind.__mro__)
        name = next((library for library in libraries if library in FRAMES), None)
        _known[kind] = import_module(f"majorfault.{name}").parts if name else None
    return _known[kind]


def integers(rows: Rows, count: int) -> Any:
    """Rows as 64-bit integers, one after the other; booleans choose, slices count as in Python."""
    if type(rows) is int:
        return numbers("q", (rows,))
    if isinstance(rows, slice):
        rows = range(*rows.indices(count))
    if isinstance(rows, range):
        return _of_range(rows)
    if not hasattr(rows, "__array__") and not hasattr(rows, "dtype"):
        return _of_iterable(rows)
    return _of_array(rows, count)


def _of_range(rows: range) -> Any:
    try:
        import numpy
    except ImportError:
        return numbers("q", rows)
    return numpy.arange(rows.start, rows.stop, rows.step, dtype=numpy.int64)


def _of_iterable(rows: Iterable[Any]) -> Any:
    rows = list(rows) if hasattr(rows, "__iter__") else [rows]
    if rows and all(isinstance(row, bool) for row in rows):
        return numbers("q", [number for number, is_wanted in enumerate(rows) if is_wanted])
    try:
        return numbers("q", rows)
    except (TypeError, OverflowError) as failure:
        raise Invalid(f"rows are integers, not {rows[:3]!r}: {failure}") from None


def _of_array(rows: Any, count: int) -> Any:
    import numpy

    found = numpy.asarray(rows)
    if found.dtype == bool:
        if found.shape != (count,):
            raise Invalid(f"{found.shape} booleans cannot choose among {count} rows")
        found = found.nonzero()[0]
    if found.dtype.kind not in "iu" and found.size:
        raise Invalid(f"rows are integers, not {found.dtype}")
    if found.dtype.kind == "u" and found.size and int(found.max()) > 2**63 - 1:
        raise IndexError(f"row {found.max()} is not in an array of {count} rows")
    return numpy.ascontiguousarray(found, dtype=numpy.int64).reshape(-1)
