"""zarr: a local store that announces all parts of a read at once, and byte ranges as obspec has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._files import prefetch_file
from ._take import _taker


class Ranges:
    """Byte ranges of files below a folder, many at a time: `get_range` and `get_ranges` as in obspec, with `depth` reads in flight."""

    def __init__(self, root: str | os.PathLike[str], *, method: str = "auto", depth: int = 64) -> None:
        self.root = os.path.realpath(root)
        self.method = method
        self.depth = depth

    def get_range(self, path: str, *, start: int, end: int | None = None, length: int | None = None) -> bytes:
        """The bytes from `start` on, up to `end` or of this `length`."""
        return self.get_ranges(path, starts=[start], ends=None if end is None else [end], lengths=None if length is None else [length])[0]

    def get_ranges(
        self, path: str, *, starts: Sequence[int], ends: Sequence[int] | None = None, lengths: Sequence[int] | None = None
    ) -> list[bytes]:
        """The bytes of each range."""
        if (ends is None) == (lengths is None):
            raise ValueError("give either ends or lengths")
        sizes = lengths if ends is None else [end - start for start, end in zip(starts, ends, strict=True)]
        assert sizes is not None
        place = self._place(path)
        taker = _taker(place, self.method, self.depth)
        total = os.path.getsize(place)
        for start, size in zip(starts, sizes, strict=True):
            if start < 0 or size < 0 or start + size > total:
                raise ValueError(f"{size} bytes at {start} are not in {path}, which has {total}")
        return [bytes(one) for one in _gathered(taker, starts, sizes, total)]

    async def get_range_async(self, path: str, **range_: Any) -> bytes:
        """The same on a thread of the event loop's."""
        import asyncio

        return await asyncio.to_thread(self.get_range, path, **range_)

    async def get_ranges_async(self, path: str, **ranges: Any) -> list[bytes]:
        """The same on a thread of the event loop's."""
        import asyncio

        return await asyncio.to_thread(self.get_ranges, path, **ranges)

    def _place(self, path: str) -> str:
        place = os.path.realpath(os.path.join(self.root, path))
        if os.path.commonpath([place, self.root]) != self.root:
            raise ValueError(f"{path} is not below {self.root}")
        return place


def _gathered(taker: Any, starts: Sequence[int], sizes: Sequence[int], total: int) -> list[Any]:
    """Ranges of one length are one call; others a call for each length."""
    found: list[Any] = [b""] * len(starts)
    for size in sorted(set(sizes) - {0}):
        places = [place for place, other in enumerate(sizes) if other == size]
        out = np.empty((len(places), size), np.uint8)
        taker.take_at(np.array([starts[place] for place in places], np.int64), size, out)
        for place, row in zip(places, out, strict=True):
            found[place] = row
    return found


def prefetch(array: Any, selection: Any = ...) -> int:
    """Asks the kernel to read the chunks (or shards) of a zarr array in a local store that a selection along the first axis needs.

    `selection` is rows: an integer, a slice, a list, an array; without them all chunks are meant.
    """
    from ._parts import integers

    root, step = str(array.store.root), (array.shards or array.chunks)[0]
    rows = range(array.shape[0]) if selection is ... else integers(selection, array.shape[0])
    wanted = np.unique(np.asarray(rows, np.int64) % array.shape[0] // step)
    asked = 0
    grid = [range(-(-length // side)) for length, side in zip(array.shape, array.shards or array.chunks, strict=True)]
    for first in wanted:
        for rest in np.ndindex(*[len(one) for one in grid[1:]]):
            key = array.metadata.encode_chunk_key((int(first), *rest))
            file = os.path.join(root, array.path, key)
            if os.path.exists(file):
                asked += prefetch_file(file, [(0, os.path.getsize(file))])
    return asked
