"""Files read into the page cache as a whole, as far as memory allows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from ._native import core

WINDOW = 512 << 20
"""Bytes between two looks at the budget, the progress and signals."""


class Loaded(NamedTuple):
    """What `load` did."""

    loaded_bytes: int
    """In the page cache now."""
    left_bytes: int
    """Left out because memory, or the budget, would not hold them."""


def load(
    *paths: str | os.PathLike[str], budget: int | None = None, progress: Callable[[int, int], object] | None = None
) -> Loaded:
    """Reads files into the page cache, in the order given, by several threads; what is read later does not wait for the device.

    It ends where the free memory (the machine's, or the cgroup's) would be used up, or after `budget` bytes: reading more would
    evict what was read first. `progress` is called with the bytes done and those of all files.

    >>> import majorfault, tempfile
    >>> file = tempfile.NamedTemporaryFile()
    >>> _ = file.write(bytes(100_000)), file.flush()
    >>> majorfault.load(file.name)
    Loaded(loaded_bytes=100000, left_bytes=0)
    """
    sizes = [os.path.getsize(path) for path in paths]
    total, done, is_full = sum(sizes), 0, False
    room = total if budget is None else budget
    for path, size in zip(paths, sizes, strict=True):
        for begin in range(0, size, WINDOW):
            end = min(begin + WINDOW, size, begin + room - done)
            if is_full or end <= begin:
                break
            loaded, left = core.load_range(path, begin, end)
            done, is_full = done + loaded, left > 0
            if progress is not None:
                progress(done, total)
    return Loaded(done, total - done)
