"""polars: frames over memory-mapped IPC files, where polars maps them (uncompressed, `memory_map=True`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._errors import Invalid
from ._parts import Part, Rows
from .arrow import parts as _arrow


def parts(data: Any, rows: Rows) -> Iterator[Part]:
    """The Arrow buffers of a frame or a series; what polars had to copy is in no file."""
    if not hasattr(data, "to_arrow"):
        raise Invalid(f"polars.{type(data).__name__} is a plan; collect it first")
    yield from _arrow(data.to_arrow(), rows)
