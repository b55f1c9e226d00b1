"""PyTorch: tensors on the CPU in mapped files, and a batch sampler that announces rows before the loader asks for them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

from ._ahead import Ahead, announced
from ._errors import Invalid
from ._parts import Part, Rows, integers


def parts(tensor: Any, rows: Rows) -> Iterator[Part]:
    """A tensor is one buffer, at the address that it names."""
    if tensor.device.type != "cpu" or tensor.layout.__str__() != "torch.strided":
        raise Invalid(f"a tensor on {tensor.device} ({tensor.layout}) is in no mapped file of this process")
    if rows is not None and tensor.ndim == 0:
        raise Invalid("a single number has no rows")
    if tensor.numel() == 0:
        return
    yield Part(_Buffer(tensor).array, None if rows is None else integers(rows, tensor.shape[0]))


class _Buffer:
    """The bytes of a tensor as items of their size, whatever its type."""

    def __init__(self, tensor: Any) -> None:
        import numpy

        size = tensor.element_size()
        strides = tuple(step * size for step in tensor.stride())
        length = size + sum((count - 1) * step for count, step in zip(tensor.shape, strides, strict=True))
        memory = (ctypes.c_char * length).from_address(tensor.data_ptr())
        # Kept by the array that is made of it.
        memory.tensor = tensor
        self.array = numpy.ndarray(tuple(tensor.shape), f"V{size}", buffer=memory, strides=strides)


class AheadSampler:
    """A batch sampler around another one: announces the rows of `dataset` some batches before the loader asks for them.

    `DataLoader(dataset, batch_sampler=AheadSampler(sampler, dataset))`. It runs in the process that iterates over the loader and fills the
    page cache, which workers share: one suffices for all of them, and with `num_workers=0` none is needed. `batches` counts from what
    the loader has taken; with workers it takes `num_workers * prefetch_factor` batches at once, so give some more than that.

    `dataset` may be a `Subset` or `TensorDataset`, what `prefetch` takes, or have a method `__prefetch__(rows)`.
    """

    def __init__(self, sampler: Iterable[Any], dataset: Any, batches: int = 4, *, budget: int | None = None) -> None:
        self._ahead = Ahead(sampler, _Announcing(dataset), batches, budget=budget)

    def __len__(self) -> int:
        return len(self._ahead)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ahead)


class _Announcing:
    """What rows of a data set of PyTorch are made of."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __prefetch__(self, rows: Any) -> int:
        return _announced(self.dataset, rows)


def _announced(dataset: Any, rows: Any) -> int:
    kind = type(dataset).__name__
    if not hasattr(dataset, "__prefetch__") and kind == "Subset":
        return _announced(dataset.dataset, [dataset.indices[row] for row in rows])
    if not hasattr(dataset, "__prefetch__") and kind == "TensorDataset":
        return sum(_announced(tensor, rows) for tensor in dataset.tensors)
    return announced(dataset, rows)
