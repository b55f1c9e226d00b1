"""Hugging Face `datasets`: rows of data sets in memory-mapped Arrow files, shuffled and selected ones, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ._ahead import Ahead
from ._errors import Invalid
from ._parts import Part, Rows
from .arrow import numbers, of_table


def parts(dataset: Any, rows: Rows) -> Iterator[Part]:
    """The buffers of a data set. Where it was shuffled or selected, rows are looked up as the data set does."""
    table = getattr(dataset, "_data", None)
    if table is None or not hasattr(table, "table"):
        raise Invalid(f"datasets.{type(dataset).__name__} has no rows in a mapped file; give a Dataset, not a dictionary or a stream")
    if dataset._indices is not None:
        wanted = numbers(range(len(dataset)) if rows is None else rows, len(dataset))
        rows = dataset._indices.column(0).take(wanted).to_numpy()
    names = enumerate(table.column_names)
    yield from of_table(table.table, rows, [at for at, name in names if dataset._format_columns is None or name in dataset._format_columns])


def batches(dataset: Any, sampler: Iterable[Any], ahead: int = 4, *, budget: int | None = None) -> Iterator[Any]:
    """`dataset[batch]` for each batch of a sampler, with the rows of the next ones announced."""
    for batch in Ahead(sampler, dataset, ahead, budget=budget):
        yield dataset[batch]
