"""Apache Arrow: buffers, arrays and tables that were opened from memory-mapped IPC files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ._calls import prefetch, prefetch_parts
from ._columns import Column, columns_of, width_of_offsets
from ._errors import Invalid, NotMapped
from ._parts import Part, Rows, integers


def parts(data: Any, rows: Rows) -> Iterator[Part]:
    """The buffers of Arrow data and the bytes of the rows in each of them."""
    import pyarrow as pa

    if isinstance(data, pa.Buffer):
        yield Part(data, None if rows is None else integers(rows, data.size))
    elif isinstance(data, pa.Array):
        yield from _arrays([(data, _runs(rows, len(data)))])
    elif isinstance(data, pa.Table):
        yield from of_table(data, rows)
    elif isinstance(data, pa.RecordBatch):
        for column in data.columns:
            yield from parts(column, rows)
    elif isinstance(data, pa.ChunkedArray):
        yield from _chunks(data.chunks, rows, len(data))
    else:
        raise Invalid(f"pyarrow.{type(data).__name__} has no buffers; give a Buffer, Array, ChunkedArray, RecordBatch or Table")


def of_table(table: Any, rows: Rows, columns: Iterable[int] | None = None) -> Iterator[Part]:
    """The same for columns of a table, by their numbers, or all."""
    indices = range(table.num_columns) if columns is None else columns
    known = None if rows is None else columns_of(table)
    if known is None:
        for index in indices:
            yield from _chunks(table.column(index).chunks, rows, len(table))
        return
    wanted = numbers(rows, len(table))
    found: list[Column] = []
    for index in indices:
        column = known.of(table, index)
        if column is None:
            yield from _chunks(table.column(index).chunks, wanted, len(table))
        else:
            found.append(column)
    _announce([part for column in found for part in column.offsets(wanted)])
    for column in found:
        yield from column.parts(wanted)


def _announce(offsets: list[Part]) -> None:
    """What is read at once, because it says where the bytes are."""
    if offsets:
        with contextlib.suppress(NotMapped):  # Small ones may have been copied.
            prefetch_parts(offsets)


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
        yield from _arrays([(chunk, _runs(None, len(chunk))) for chunk in chunks])
        return
    of_chunks = _by_chunk([len(chunk) for chunk in chunks], numbers(rows, count))
    yield from _arrays([(chunks[place], Runs(inner, np.ones_like(inner))) for place, inner in of_chunks])


def _by_chunk(lengths: list[int], wanted: Any) -> list[tuple[int, Any]]:
    """The chunks that hold any of the rows, and the numbers of these in the chunk, in the order of `wanted`."""
    firsts = np.cumsum([0, *lengths])
    places = np.searchsorted(firsts, wanted, side="right") - 1
    order = np.argsort(places, kind="stable")
    inner = (wanted - firsts[places])[order]
    held, begins = np.unique(places[order], return_index=True)
    return list(zip(held.tolist(), np.split(inner, begins[1:]), strict=False))


def _arrays(found: list[tuple[Any, Runs]]) -> Iterator[Part]:
    """Arrays and what of each is meant. What says where the bytes are is read here: announced for all of them before the first is read."""
    _announce([part for array, runs in found for part in _offsets(array, runs)])
    for array, runs in found:
        yield from _array(array, runs)


def _offsets(array: Any, runs: Runs) -> Iterator[Part]:
    """The offsets that say where items of lists and texts begin, and the next ones, where they end."""
    import pyarrow as pa

    kind = array.type
    if len(array) == 0 or not len(runs.begins):
        return
    if isinstance(array, pa.ExtensionArray):
        yield from _offsets(array.storage, runs)
    elif pa.types.is_struct(kind):
        for field in range(kind.num_fields):
            yield from _offsets(array.field(field), runs)
    elif pa.types.is_fixed_size_list(kind):
        yield from _offsets(array.values, runs.moved(array.offset).times(kind.list_size))
    elif (width := width_of_offsets(kind)) and array.buffers()[1] is not None:
        moved = runs.moved(array.offset)
        yield Part(array.buffers()[1], None, moved.begins * width, np.full_like(moved.begins, width))
        yield Part(array.buffers()[1], None, (moved.begins + moved.counts) * width, np.full_like(moved.begins, width))


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
        # A field begins where the array does.
        for field in range(kind.num_fields):
            yield from _array(array.field(field), runs)
    elif pa.types.is_fixed_size_list(kind):
        yield from _array(array.values, runs.moved(array.offset).times(kind.list_size))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _arrays([(array.values, _inner(array.buffers()[1], width_of_offsets(kind), runs.moved(array.offset)))])
    else:
        yield from _plain(array.buffers(), kind, runs.moved(array.offset))


def _plain(buffers: list[Any], kind: Any, runs: Runs) -> Iterator[Part]:
    """Bits that say which values there are, and the values: of one width, or between offsets."""
    yield from _bits(buffers[0], 1, runs)
    if width := width_of_offsets(kind):
        yield from _bits(buffers[2], 8, _inner(buffers[1], width, runs))
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
    """From items to what their offsets enclose."""
    offsets = np.frombuffer(buffer, f"i{width}")
    begins = offsets[runs.begins].astype(np.int64)
    return Runs(begins, offsets[runs.begins + runs.counts].astype(np.int64) - begins)


def take(table: Any, rows: Rows) -> Any:
    """`table.take(rows)` with the rows announced before: many reads in flight instead of one fault after the other.

    Of several chunks with lists or texts Arrow makes one first, which reads all of it; here only the rows are read.
    """
    import pyarrow as pa

    prefetch(table, rows)
    wanted = numbers(rows, len(table))
    if isinstance(table, pa.ChunkedArray):
        return gathered(table, wanted)
    if isinstance(table, pa.Table):
        return pa.table([gathered(column, wanted) for column in table.columns], schema=table.schema)
    return table.take(pa.array(wanted))


def gathered(column: Any, wanted: Any) -> Any:
    """Items of a column, taken from each chunk and brought into their order."""
    import pyarrow as pa

    if column.num_chunks < 2 or pa.types.is_primitive(column.type):
        return column.take(pa.array(wanted))
    lengths = [len(chunk) for chunk in column.chunks]
    found = [column.chunk(place).take(pa.array(inner)) for place, inner in _by_chunk(lengths, wanted)]
    together = pa.chunked_array(found, column.type).combine_chunks()
    order = np.argsort(np.searchsorted(np.cumsum(lengths), wanted, side="right"), kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.chunked_array([together.take(pa.array(back))], column.type)
