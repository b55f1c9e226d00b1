"""Batches whose rows are announced before their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ._calls import prefetch
from ._native import core

CHECKED = 64
"""Batches after which the free memory is asked for again."""


class Ahead:
    """Iterates over a sampler's batches, and announces their rows of `dataset` some batches ahead of their use.

    `sampler` gives batches: lists or arrays of row numbers, as `torch.utils.data.BatchSampler` does. `dataset` is what `prefetch`
    takes, or has a method `__prefetch__(rows)`. At most `batches` are announced ahead, and at most `budget` bytes: by default a quarter of
    the free memory, the machine's or the cgroup's. One batch is always ahead.

    >>> import majorfault
    >>> class Rows:
    ...     def __prefetch__(self, rows): print("announced", rows); return 10
    >>> for batch in majorfault.Ahead([[3, 1], [2, 0], [5]], Rows(), batches=1):
    ...     print("batch", batch)
    announced [3, 1]
    announced [2, 0]
    batch [3, 1]
    announced [5]
    batch [2, 0]
    batch [5]
    """

    def __init__(self, sampler: Iterable[Any], dataset: Any, batches: int = 4, *, budget: int | None = None) -> None:
        if batches < 1:
            raise ValueError(f"batches={batches}: at least one is announced ahead")
        self.sampler = sampler
        self.dataset = dataset
        self.batches = batches
        self.budget = budget

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        coming: deque[tuple[Any, int]] = deque()
        ahead, largest, given = 0, 0, 0
        budget = self._budget()
        for batch in self.sampler:
            # The new batch is announced before the oldest one is used; what does not fit waits until that is done.
            while coming and (len(coming) > self.batches or (len(coming) > 1 and ahead + largest > budget)):
                oldest, asked = coming.popleft()
                yield oldest
                ahead -= asked
            asked = announced(self.dataset, batch)
            coming.append((batch, asked))
            ahead, largest, given = ahead + asked, max(largest, asked), given + 1
            if given % CHECKED == 0:
                budget = self._budget()
        for batch, _ in coming:
            yield batch

    def _budget(self) -> int:
        return core.free_bytes() // 4 if self.budget is None else self.budget


def announced(dataset: Any, rows: Any) -> int:
    """Announces rows by the data set's own method, where it has one, else by `prefetch`."""
    own = getattr(dataset, "__prefetch__", None)
    return int(own(rows) or 0) if own is not None else prefetch(dataset, rows)
