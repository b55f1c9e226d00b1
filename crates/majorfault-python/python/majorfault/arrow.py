"""Apache Arrow: buffers, arrays and tables that were opened from memory-mapped IPC files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
        yield from _array(data, _rows(rows, len(data)))
    elif isinstance(data, (pa.Table, pa.RecordBatch)):
        for column in data.columns:
            yield from parts(column, rows)
    elif isinstance(data, pa.ChunkedArray):
        yield from _chunks(data.chunks, _rows(rows, len(data)))
    else:
        raise Invalid(f"pyarrow.{type(data).__name__} has no buffers; give a Buffer, Array, ChunkedArray, RecordBatch or Table")


def _rows(rows: Rows, count: int) -> Any:
    """Numbers from 0 on, or None for all."""
    if rows is None:
        return None
    found = np.asarray(integers(rows, count), np.int64)
    wrong = found[(found < -count) | (found >= count)]
    if wrong.size:
        raise IndexError(f"row {wrong[0]} is not in {count} rows")
    return np.where(found < 0, found + count, found)


def _chunks(chunks: list[Any], rows: Any) -> Iterator[Part]:
    begins = np.cumsum([0] + [len(chunk) for chunk in chunks])
    if rows is None:
        for chunk in chunks:
            yield from _array(chunk, None)
        return
    places = np.searchsorted(begins, rows, side="right") - 1
    for place in np.unique(places):
        yield from _array(chunks[place], rows[places == place] - begins[place])


def _array(array: Any, rows: Any) -> Iterator[Part]:
    """Each kind of layout has its own buffers: https://arrow.apache.org/docs/format/Columnar.html."""
    import pyarrow as pa

    if len(array) == 0:
        return
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _array(array.storage, rows)
        return
    if rows is None:
        rows = np.arange(len(array)) if _is_nested(kind) else slice(array.offset, array.offset + len(array))
    else:
        rows = rows + array.offset if not _is_nested(kind) else rows
    yield from _of_kind(array, kind, rows)


def _is_nested(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _of_kind(array: Any, kind: Any, rows: Any) -> Iterator[Part]:
    import pyarrow as pa

    is_text = pa.types.is_binary(kind) or pa.types.is_string(kind)
    is_long_text = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if pa.types.is_dictionary(kind):
        yield from _array(array.indices, None if isinstance(rows, slice) else rows - array.offset)
    elif pa.types.is_struct(kind):
        for field in range(kind.num_fields):
            yield from _array(array.field(field).slice(array.offset, len(array)), rows)
    elif pa.types.is_fixed_size_list(kind):
        yield from _array(array.values, _runs((rows + array.offset) * kind.list_size, np.full(len(rows), kind.list_size)))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = _offsets(array.buffers()[1], np.int64 if pa.types.is_large_list(kind) else np.int32, rows + array.offset)
        yield from _array(array.values, _runs(offsets[0], offsets[1] - offsets[0]))
    elif is_text or is_long_text:
        yield from _text(array.buffers(), np.int64 if is_long_text else np.int32, rows)
    else:
        yield from _fixed(array.buffers(), kind, rows)


def _fixed(buffers: list[Any], kind: Any, rows: Any) -> Iterator[Part]:
    """Items of one width in the second buffer. Bits of the first are few: their bytes come with a page of neighbours."""
    try:
        bits = kind.bit_width
    except ValueError:
        bits = 0
    for buffer, width in zip(buffers, (1, bits), strict=False):
        if buffer is None or not width or not buffer.size:
            continue
        if width < 8:
            first = rows.start if isinstance(rows, slice) else rows
            yield Part(buffer, np.unique(np.atleast_1d(first) // 8) if not isinstance(rows, slice) else None)
        else:
            items = np.frombuffer(buffer, f"V{width // 8}", count=buffer.size // (width // 8))
            yield Part(items, integers(rows, len(items)))


def _text(buffers: list[Any], kind: Any, rows: Any) -> Iterator[Part]:
    """Offsets first: they are read here, because they say where the bytes are."""
    if buffers[2] is None or not buffers[2].size:
        return
    if isinstance(rows, slice):
        offsets = np.frombuffer(buffers[1], kind)
        begins, ends = offsets[rows.start : rows.start + 1], offsets[rows.stop : rows.stop + 1]
    else:
        begins, ends = _offsets(buffers[1], kind, rows)
    yield Part(buffers[2], None, begins.astype(np.int64), (ends - begins).astype(np.int64))


def _offsets(buffer: Any, kind: Any, rows: Any) -> tuple[Any, Any]:
    """Begin and end of each row."""
    offsets = np.frombuffer(buffer, kind)
    try:
        prefetch(offsets, np.concatenate([rows, rows + 1]))
    except NotMapped:
        pass  # Small ones may have been copied.
    return offsets[rows].astype(np.int64), offsets[rows + 1].astype(np.int64)


def _runs(begins: Any, lengths: Any) -> Any:
    """The numbers of all items of each run."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths - begins, lengths)


def take(table: Any, rows: Rows) -> Any:
    """`table.take(rows)` with the rows announced before: many reads in flight instead of one fault after the other."""
    prefetch(table, rows)
    return table.take(rows if hasattr(rows, "type") else np.asarray(integers(rows, len(table))))
