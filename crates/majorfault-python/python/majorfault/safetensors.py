"""safetensors: tensors in the order of their file, with the next ones announced within a budget. Your loader stays what it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from ._errors import Invalid
from ._files import ahead, prefetch_file

LONGEST_HEADER = 100_000_000
"""Bytes; what safetensors itself refuses beyond."""


def places(path: str | os.PathLike[str]) -> dict[str, tuple[int, int]]:
    """First byte and length of each tensor, in the order in which they lie in the file."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            raise Invalid(f"{os.fspath(path)} is no safetensors file: its header would have {length} bytes of {size}")
        try:
            header = json.loads(file.read(length))
            tensors = {name: tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__"}
            found = {name: (8 + length + int(begin), int(end) - int(begin)) for name, (begin, end) in tensors.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as failure:
            raise Invalid(f"{os.fspath(path)} is no safetensors file: {failure}") from None
    if any(begin < 8 + length or extent < 0 or begin + extent > size for begin, extent in found.values()):
        raise Invalid(f"{os.fspath(path)} has tensors outside its {size} bytes")
    return dict(sorted(found.items(), key=lambda item: item[1]))


def prefetch(path: str | os.PathLike[str], names: Iterable[str]) -> int:
    """Asks the kernel to read these tensors, and returns at once with their bytes."""
    all_ = places(path)
    try:
        return prefetch_file(path, [all_[name] for name in names])
    except KeyError as unknown:
        raise Invalid(f"there is no tensor {unknown} in {os.fspath(path)}") from None


def names_ahead(
    path: str | os.PathLike[str], names: Iterable[str] | None = None, *, budget: int | None = None
) -> Iterator[Any]:
    """Names of tensors in the order of the file; those that come next are announced, at most `budget` bytes of them.

    By default a quarter of the free memory of the machine or the cgroup. Load each tensor as its name comes::

        with safetensors.safe_open(path, "pt") as file:
            for name in majorfault.safetensors.names_ahead(path):
                model[name] = file.get_tensor(name)
    """
    all_ = places(path)
    wanted = set(all_ if names is None else names)
    unknown = wanted - set(all_)
    if unknown:
        raise Invalid(f"there is no tensor {sorted(unknown)[0]!r} in {os.fspath(path)}")
    items = [(name, [place]) for name, place in all_.items() if name in wanted]
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from ahead(descriptor, items, budget)
    finally:
        os.close(descriptor)
