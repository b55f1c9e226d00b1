"""The words of the package that take arrays: prefetch, release, residency, advise, file_of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ._errors import Invalid, NotMapped
from ._native import core
from ._parts import Part, Rows, joined, parts

T = TypeVar("T")


def prefetch(array: Any, rows: Rows = None) -> int:
    """Asks the kernel to read rows of an array that is in a mapped file, and returns at once with the bytes asked for.

    What is read later finds its pages in memory instead of waiting for one fault after the other. `rows` are steps of the first
    dimension: an integer, a slice, a range, a list, an array of integers or booleans; without them all of it is meant.

    `array` is anything with an address in a mapped file: numpy, `memoryview`, `mmap.mmap`, tensors on the CPU, Arrow buffers, arrays and
    tables, `datasets`, polars, or a list or dict of them. At most half of the free memory is asked for at once: that of the machine, or
    of the cgroup where it is less. Where all of the file is cached, nothing is asked for and 0 is returned.

    >>> import mmap, tempfile, majorfault
    >>> file = tempfile.TemporaryFile()
    >>> _ = file.write(bytes(8 * 4096))
    >>> mapped = mmap.mmap(file.fileno(), 0)
    >>> majorfault.prefetch(mapped, range(4096, 4100)) in (0, 4096)
    True

    Raises NotMapped for memory without a file, IndexError for a row that is not there.
    """
    # The usual case, without detours: an import alone would take as long as the call.
    if _is_usual is not None and _is_usual(array, rows):
        return core.prefetch(array, rows)
    if _is_usual is None and type(rows).__module__ == "numpy":
        _learn()
    return prefetch_parts(parts(array, rows))


_is_usual: Callable[[Any, Any], bool] | None = None
"""Whether rows and array need no more thought; None until rows of numpy were seen."""


def _learn() -> None:
    global _is_usual
    from .numpy import is_usual

    _is_usual = is_usual


def prefetch_parts(found: Iterable[Part]) -> int:
    """The same for parts of arrays, those of one file together."""
    return sum(_mapped(joined(found), _prefetch))


def _prefetch(part: Part) -> int:
    if part.apart:
        try:
            return core.prefetch_ranges(part.buffer, part.begins, part.lengths)
        except Invalid:
            # Something else is mapped between them.
            return sum(_mapped(part.apart, _prefetch))
    if part.begins is not None:
        return core.prefetch_ranges(part.buffer, part.begins, part.lengths)
    return core.prefetch(part.buffer, part.rows)


def release(array: Any, rows: Rows = None, *, drop: bool = False) -> int:
    """Lets go of the memory that an array in a mapped file, or rows of it, take in this process, and returns their bytes.

    The process's resident memory falls; the page cache keeps what was read, unless `drop`, which leaves neither. Nothing is lost:
    what is read later comes from the file again, and changes in a copy-on-write map (`mode="c"`) stay.
    """
    return sum(_mapped(parts(array, rows), lambda part: _release(part, drop)))


def _release(part: Part, drop: bool) -> int:
    if part.begins is None:
        return core.release(part.buffer, part.rows, drop)
    return core.release_ranges(part.buffer, part.begins, part.lengths, drop)


@dataclass(frozen=True)
class Residency:
    """How much of an array is in memory, in whole pages."""

    resident_bytes: int
    total_bytes: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.resident_bytes / self.total_bytes if self.total_bytes else 1.0


def residency(array: Any) -> Residency:
    """How much of an array in a mapped file is in the page cache. Takes 1 us for each cached MiB.

    Raises Missing where the kernel does not say it: the file is another user's.
    """
    found = _mapped(parts(array, None), lambda part: core.residency(part.buffer))
    return Residency(sum(resident for resident, _ in found), sum(total for _, total in found))


def advise(array: Any, word: str) -> None:
    """Tells the kernel how an array in a mapped file will be used: normal, random (no read-ahead), sequential, willneed, cold."""
    _mapped(parts(array, None), lambda part: core.advise(part.buffer, word))


def file_of(array: Any) -> tuple[str | None, int]:
    """The file behind an array and where its first item lies there; None for a file that has no name any more."""
    first: tuple[str | None, int] = _mapped(parts(array, None), lambda part: core.file_of(part.buffer))[0]
    return first


def _mapped(found: Iterable[Part], call: Callable[[Part], T]) -> list[T]:
    """What `call` gives for each part that is in a mapped file. An array may have small parts elsewhere; none in a file is an error."""
    results, elsewhere = [], None
    for part in found:
        try:
            results.append(call(part))
        except NotMapped as failure:
            elsewhere = failure
    if not results and elsewhere is not None:
        raise elsewhere
    return results
