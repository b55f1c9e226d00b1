"""Where the buffers of an Arrow column with many chunks lie, looked up once: rows of all chunks are then found by arithmetic on arrays.

A record batch often holds a thousand rows, so that a shuffled batch touches as many chunks as it has rows; one after the other they take
more time in Python than the device takes for the rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ._parts import Part, cut_from


class Unknown(Exception):
    """A layout that is taken apart chunk by chunk."""


class Leaf(NamedTuple):
    """What an item of a chunk has in the end: bits of its own, and bytes between two offsets. Of all chunks: an array of each number."""

    scale: Any
    """Items of the leaf for one of the column."""
    shift: Any
    """The leaf's item for the chunk's first."""
    validity: Any
    """Addresses; 0: there is no such buffer."""
    values: Any
    bits: Any
    """Of an item in `values`."""
    offsets: Any = 0
    """Address of the numbers that say where an item's inner ones begin."""
    width: Any = 0
    """Bytes of such a number; 0: there are none."""
    inner_shift: Any = 0
    inner_validity: Any = 0
    inner_values: Any = 0
    inner_bits: Any = 0


def leaves(array: Any, scale: int = 1, shift: int = 0) -> Iterator[Leaf]:
    """Those of one chunk: https://arrow.apache.org/docs/format/Columnar.html."""
    import pyarrow as pa

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from leaves(array.storage, scale, shift)
    elif pa.types.is_dictionary(kind):
        yield from leaves(array.indices, scale, shift)
    elif pa.types.is_struct(kind):
        # A field begins where the array does.
        for field in range(kind.num_fields):
            yield from leaves(array.field(field), scale, shift)
    elif pa.types.is_fixed_size_list(kind):
        yield from leaves(array.values, scale * kind.list_size, (shift + array.offset) * kind.list_size)
    elif width := width_of_offsets(kind):
        validity, offsets, *bytes_ = array.buffers()[:3]
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        inner = (array.values.offset, *_plain(array.values)) if is_list else (0, 0, _address(bytes_[0]), 8)
        yield Leaf(scale, shift + array.offset, _address(validity), 0, 0, _address(offsets), width, *inner)
    else:
        yield Leaf(scale, shift + array.offset, *_plain(array))


def width_of_offsets(kind: Any) -> int:
    """Bytes of each; 0 where items have no offsets."""
    import pyarrow as pa

    is_long = pa.types.is_large_list(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    is_short = pa.types.is_list(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind)
    return 8 if is_long else 4 if is_short else 0


def _plain(array: Any) -> tuple[int, int, int]:
    """Validity, values and bits of an array whose items have one width."""
    import pyarrow as pa

    if not (pa.types.is_primitive(array.type) or pa.types.is_fixed_size_binary(array.type)):
        raise Unknown
    validity, values = array.buffers()
    return _address(validity), _address(values), array.type.bit_width


def _address(buffer: Any) -> int:
    return buffer.address if buffer is not None and buffer.size else 0


class Column:
    """A column whose buffers are all cut from one mapped file. Raises Unknown where they are not."""

    def __init__(self, column: Any) -> None:
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        whole = next((cut_from(buffer) for chunk in chunks for buffer in chunk.buffers() if buffer is not None), None)
        if whole is None:
            raise Unknown
        self.whole: Any = whole
        self.lasts = np.cumsum([len(chunk) for chunk in chunks])
        self.firsts = self.lasts - [len(chunk) for chunk in chunks]
        of_chunks = [tuple(leaves(chunk)) for chunk in chunks]
        self.leaves = [Leaf(*np.array(same, np.int64).T) for same in zip(*of_chunks, strict=True)]
        for leaf in self.leaves:
            for addresses in (leaf.validity, leaf.values, leaf.offsets, leaf.inner_validity, leaf.inner_values):
                inside = (addresses >= self.whole.address) & (addresses < self.whole.address + self.whole.size)
                if not (inside | (addresses == 0)).all():
                    raise Unknown
            if leaf.width[0] and ((leaf.offsets == 0) | ((leaf.offsets - self.whole.address) % leaf.width != 0)).any():
                raise Unknown

    def offsets(self, wanted: Any) -> Iterator[Part]:
        """What must be read to know where the bytes are."""
        for leaf, items in self._items(wanted):
            if leaf.width.any():
                yield self._part(leaf.offsets, items, items + leaf.scale + 1, 8 * leaf.width)

    def parts(self, wanted: Any) -> Iterator[Part]:
        """The bytes of the rows. Offsets are read."""
        for leaf, items in self._items(wanted):
            yield self._part(leaf.validity, items, items + leaf.scale, np.ones_like(items))
            yield self._part(leaf.values, items, items + leaf.scale, leaf.bits)
            if leaf.width.any():
                width = int(leaf.width[0])
                numbers = np.frombuffer(self.whole, f"i{width}", self.whole.size // width)
                at = (leaf.offsets - self.whole.address) // width + items
                begins = numbers[at].astype(np.int64) + leaf.inner_shift
                ends = numbers[at + leaf.scale].astype(np.int64) + leaf.inner_shift
                yield self._part(leaf.inner_validity, begins, ends, np.ones_like(items))
                yield self._part(leaf.inner_values, begins, ends, leaf.inner_bits)

    def _items(self, wanted: Any) -> Iterator[tuple[Leaf, Any]]:
        """Each leaf as the rows' chunks have it, and the leaf's first item of each row."""
        places = np.searchsorted(self.lasts, wanted, side="right")
        for leaf in self.leaves:
            here = Leaf(*(number[places] for number in leaf))
            yield here, (wanted - self.firsts[places]) * here.scale + here.shift

    def _part(self, addresses: Any, begins: Any, ends: Any, bits: Any) -> Part:
        """Items of so many bits behind the addresses."""
        base = addresses - self.whole.address
        first, last = base + begins * bits // 8, base - (-ends * bits // 8)
        there = (addresses != 0) & (last > first)
        return Part(self.whole, None, first[there], (last - first)[there])


class Columns:
    """The columns of a table that were looked at before."""

    def __init__(self) -> None:
        self.known: dict[int, Column | None] = {}

    def of(self, table: Any, index: int) -> Column | None:
        """None where the column is taken apart chunk by chunk."""
        if index not in self.known:
            try:
                self.known[index] = Column(table.column(index))
            except Unknown:
                self.known[index] = None
        return self.known[index]


_met: dict[int, tuple[Any, Columns | None]] = {}


def columns_of(table: Any) -> Columns | None:
    """What is known of a table, from the second call on: one that is met only once is not worth the look at all of its chunks."""
    key = id(table)
    reference, columns = _met.get(key, (None, None))
    if reference is None or reference() is not table:
        try:
            _met[key] = weakref.ref(table, lambda _: _met.pop(key, None)), None
        except TypeError:
            pass
        return None
    if columns is None:
        columns = Columns()
        _met[key] = reference, columns
    return columns
