"""Parts of files that no memory shows: announced by posix_fadvise."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

PIECE = 128 << 10
"""Longer advice is cut by the kernel in silence."""


def prefetch_file(file: int | str | os.PathLike[str], extents: Iterable[tuple[int, int]]) -> int:
    """Asks the kernel to read parts of a file, each a first byte and a length, and returns at once with their bytes.

    >>> import tempfile
    >>> file = tempfile.TemporaryFile()
    >>> _ = file.write(bytes(500_000))
    >>> prefetch_file(file.fileno(), [(0, 100), (200_000, 300_000)])
    300100
    """
    if not isinstance(file, int):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return prefetch_file(descriptor, extents)
        finally:
            os.close(descriptor)
    asked = 0
    for begin, length in sorted(extents):
        for at in range(begin, begin + length, PIECE):
            os.posix_fadvise(file, at, min(PIECE, begin + length - at), os.POSIX_FADV_WILLNEED)
        asked += length
    return asked


def room(budget: int | None) -> int:
    """Bytes that may be ahead: a quarter of the free memory, the machine's or the cgroup's, unless given."""
    from ._native import core

    return core.free_bytes() // 4 if budget is None else budget


def ahead(file: Any, items: list[tuple[Any, list[tuple[int, int]]]], budget: int | None) -> Any:
    """Gives the items in order, with the extents of the next ones announced, at most `budget` bytes of them."""
    limit, asked, coming = room(budget), 0, 0
    sizes = [sum(length for _, length in extents) for _, extents in items]
    for turn, (item, _) in enumerate(items):
        while coming < len(items) and (coming <= turn or asked + sizes[coming] <= limit):
            prefetch_file(file, items[coming][1])
            asked += sizes[coming]
            coming += 1
        yield item
        asked -= sizes[turn]
