"""Apache Arrow: buffers, arrays and tables that were opened from memory-mapped IPC files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ._calls import prefetch
from ._errors import Invalid, NotMapped
from ._parts import Part, Rows, integers


def parts(data: Any, rows: Rows) -> Iterator[Part]:
    """The buffers of Arrow data and the bytes of the rows in each of them."""
    import pyarrow as pa

    if isinstance(data, pa.Buffer):
        yield Part(data, None if rows is None else integers(rows, data.size))
    elif isinstance(data, pa.Array):
        yield from _array(data, _runs(rows, len(data)))
    elif isinstance(data, (pa.Table, pa.RecordBatch)):
        for column in data.columns:
            yield from parts(column, rows)
    elif isinstance(data, pa.ChunkedArray):
        yield from _chunks(data.chunks, rows, len(data))
    else:
        raise Invalid(f"pyarrow.{type(data).__name__} has no buffers; give a Buffer, Array, ChunkedArray, RecordBatch or Table")


class Runs(NamedTuple):
    """Items of an array that follow each other: the first one of each run, and how many."""

    begins: Any
    counts: Any

    def moved(self, by: int) -> Runs:
        """The same counted from an item before."""
        return Runs(self.begins + by, self.counts)

    def times(self, factor: int) -> Runs:
        """The same in smaller items."""
        return Runs(self.begins * factor, self.counts * factor)


def numbers(rows: Rows, count: int) -> Any:
    """Numbers of rows from 0 on."""
    found = np.asarray(integers(rows, count), np.int64)
    wrong = found[(found < -count) | (found >= count)]
    if wrong.size:
        raise IndexError(f"row {wrong[0]} is not in {count} rows")
    return np.where(found < 0, found + count, found)


def _runs(rows: Rows, count: int) -> Runs:
    if rows is None:
        return Runs(np.array([0]), np.array([count]))
    found = numbers(rows, count)
    return Runs(found, np.ones_like(found))


def _chunks(chunks: list[Any], rows: Rows, count: int) -> Iterator[Part]:
    if rows is None:
        for chunk in chunks:
            yield from _array(chunk, _runs(None, len(chunk)))
        return
    wanted = numbers(rows, count)
    firsts = np.cumsum([0] + [len(chunk) for chunk in chunks])
    places = np.searchsorted(firsts, wanted, side="right") - 1
    for place in np.unique(places):
        yield from _array(chunks[place], _runs(wanted[places == place] - firsts[place], len(chunks[place])))


def _array(array: Any, runs: Runs) -> Iterator[Part]:
    """Each kind of layout has its own buffers: https://arrow.apache.org/docs/format/Columnar.html."""
    import pyarrow as pa

    kind = array.type
    if len(array) == 0 or not len(runs.begins):
        return
    if isinstance(array, pa.ExtensionArray):
        yield from _array(array.storage, runs)
    elif pa.types.is_dictionary(kind):
        yield from _array(array.indices, runs)
    elif pa.types.is_struct(kind):
        for field in range(kind.num_fields):
            yield from _array(array.field(field), runs.moved(array.offset))
    elif pa.types.is_fixed_size_list(kind):
        yield from _array(array.values, runs.moved(array.offset).times(kind.list_size))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        width = 8 if pa.types.is_large_list(kind) else 4
        yield from _array(array.values, _inner(array.buffers()[1], width, runs.moved(array.offset)))
    else:
        yield from _plain(array.buffers(), kind, runs.moved(array.offset))


def _plain(buffers: list[Any], kind: Any, runs: Runs) -> Iterator[Part]:
    """Bits that say which values there are, and the values: of one width, or between offsets."""
    import pyarrow as pa

    is_text = pa.types.is_binary(kind) or pa.types.is_string(kind)
    is_long_text = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    yield from _bits(buffers[0], 1, runs)
    if is_text or is_long_text:
        yield from _bits(buffers[2], 8, _inner(buffers[1], 8 if is_long_text else 4, runs))
    elif len(buffers) > 1:
        try:
            yield from _bits(buffers[1], kind.bit_width, runs)
        except ValueError:
            # A layout whose items have no width, such as views of texts: where they point to is not known beforehand.
            return


def _bits(buffer: Any, width: int, runs: Runs) -> Iterator[Part]:
    """The bytes of items of a width in bits."""
    if buffer is None or not buffer.size:
        return
    begins, ends = runs.begins * width // 8, -(-(runs.begins + runs.counts) * width // 8)
    yield Part(buffer, None, begins, ends - begins)


def _inner(buffer: Any, width: int, runs: Runs) -> Runs:
    """From items to what their offsets enclose. The offsets are read here, because they say where the bytes are."""
    offsets = np.frombuffer(buffer, f"i{width}")
    ends = runs.begins + runs.counts
    try:
        prefetch(offsets, np.concatenate([runs.begins, ends]))
    except NotMapped:
        pass  # Small ones may have been copied.
    begins = offsets[runs.begins].astype(np.int64)
    return Runs(begins, offsets[ends].astype(np.int64) - begins)


def take(table: Any, rows: Rows) -> Any:
    """`table.take(rows)` with the rows announced before: many reads in flight instead of one fault after the other."""
    prefetch(table, rows)
    return table.take(rows if hasattr(rows, "type") else np.asarray(integers(rows, len(table))))
