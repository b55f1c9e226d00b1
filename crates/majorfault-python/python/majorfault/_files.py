"""Parts of files that no array shows: announced by posix_fadvise."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator
from typing import Any

from ._errors import Failed, Missing, NotMapped

PIECE = 128 << 10
"""Longer advice is cut by the kernel in silence."""

LOOK = 32 << 20
"""Bytes of items between two looks at the free memory."""


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


def ahead(file: int, items: list[tuple[Any, list[tuple[int, int]]]], budget: int | None) -> Iterator[Any]:
    """Gives the items in order, with the extents of the next ones announced, at most `budget` bytes of them: a quarter of the free memory,
    the machine's or the cgroup's, unless given.

    Where memory may not hold the items and copies of them, the pages of those that were used are given up first: the kernel would take
    what was read ahead, which nobody touched yet.
    """
    from ._native import core

    sizes = [sum(length for _, length in extents) for _, extents in items]
    free = core.free_bytes()
    is_tight = 2 * sum(sizes) > free
    asked, coming = 0, 0
    used: list[tuple[int, int]] = []
    for turn, (item, extents) in enumerate(items):
        limit = free // 4 if budget is None else budget
        while coming < len(items) and (coming <= turn or asked + sizes[coming] <= limit):
            prefetch_file(file, items[coming][1])
            asked += sizes[coming]
            coming += 1
        yield item
        asked -= sizes[turn]
        used += extents
        if sum(length for _, length in used) >= LOOK:
            # What was given before may have been kept in memory: there is less room then.
            free = core.free_bytes()
            if is_tight:
                cool(file, used)
            used = []


def cool(file: int, extents: Iterable[tuple[int, int]]) -> int:
    """Tells the kernel to give up these parts of a file first, where this process has them mapped. Returns the bytes told of.

    >>> import mmap, tempfile
    >>> file = tempfile.NamedTemporaryFile()
    >>> _ = file.write(bytes(500_000)), file.flush()
    >>> cool(file.fileno(), [(0, 100), (200_000, 300_000)])
    0
    >>> mapped = mmap.mmap(file.fileno(), 0)
    >>> cool(file.fileno(), [(0, 100), (200_000, 300_000)])
    300100
    """
    from ._native import core

    told = 0
    for begin, end, offset in _mappings(os.readlink(f"/proc/self/fd/{file}")):
        for at, length in extents:
            first, last = max(begin, begin + at - offset), min(end, begin + at - offset + length)
            if first < last:
                with contextlib.suppress(NotMapped, Failed, Missing):
                    core.advise(memoryview((ctypes.c_char * (last - first)).from_address(first)), "cold")
                    told += last - first
    return told


def _mappings(path: str) -> list[tuple[int, int, int]]:
    """Addresses and first bytes of the maps that this process has of a file."""
    found = []
    with open("/proc/self/maps") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5] == path:
                begin, end = (int(address, 16) for address in fields[0].split("-"))
                found.append((begin, end, int(fields[2], 16)))
    return found
