"""numpy: arrays in mapped files, and `memmap`, which announces what an index reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._calls import prefetch
from ._errors import Invalid, Truncated
from ._native import core
from ._parts import Part, Rows, integers

AHEAD = 8 << 20
"""Bytes of rows that are announced ahead of an iteration or a gather."""


_ARRAYS = frozenset((np.ndarray, np.memmap))
_INT64 = np.dtype(np.int64)


def is_usual(array: Any, rows: Any) -> bool:
    """The case that needs no more thought: numpy's own array of numbers, and 64-bit integers. Each word here is paid for in each `prefetch`."""
    return _is_rows(rows) and type(array) in _ARRAYS and array.dtype.kind in "biufc" and array.ndim > 0


def _is_rows(rows: Any) -> bool:
    return type(rows) is np.ndarray and rows.dtype is _INT64 and rows.ndim == 1


def parts(array: np.ndarray[Any, Any], rows: Rows) -> Iterator[Part]:
    """An array is one buffer. Its items may be of a kind that the buffer protocol does not know, such as dates."""
    if rows is None:
        yield Part(plain(array))
    elif array.ndim == 0:
        raise Invalid("a single number has no rows")
    else:
        yield Part(plain(array), integers(rows, array.shape[0]))


def plain(array: Any) -> Any:
    """The same bytes as items of their size."""
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise Invalid("an array of Python objects has no bytes of its own; give an array of numbers")
    if not array.dtype.itemsize:
        raise Invalid("items of no bytes are in no file")
    return array.view(f"V{array.dtype.itemsize}") if array.ndim else array.reshape(1).view(f"V{array.dtype.itemsize}")


_may_share: Any = getattr(np.may_share_memory, "_implementation", np.may_share_memory)
"""Without asking the arrays whether they would rather do it themselves."""


class memmap(np.memmap[Any, Any]):
    """`numpy.memmap` that knows what its indices read, pickles by path, and tells of a truncated file instead of ending the process.

    `policy` is what is read ahead:

    - `"index"`: what an array of indices, a slice with steps, a column or an iteration will read is announced before it is touched;
      single rows and contiguous slices are left to the kernel's read-ahead;
    - a policy of the library, such as `"learned"` or `"strided:stride=64k"`, which sees each row that is asked for;
    - `None`: nothing.

    >>> import tempfile, numpy, majorfault
    >>> file = tempfile.NamedTemporaryFile()
    >>> numpy.arange(4096.0).tofile(file)
    >>> rows = majorfault.memmap(file.name, "f8", "r", shape=(64, 64))
    >>> rows[[3, 1]][:, 0].tolist()
    [192.0, 64.0]

    An index, a ufunc or a function of numpy that met a page that is gone raises Truncated; after other uses (`tobytes`, a C library), ask
    `check`. `faulthandler` must be enabled before the first such map, or not at all: it ends the process at the first SIGBUS.
    """

    _mmap: Any
    _policy: str | None = None
    _guard: Any = None
    _follower: Any = None
    _origin: tuple[int, int] | None = None

    def __new__(
        cls,
        filename: Any,
        dtype: Any = np.uint8,
        mode: Any = "r+",
        offset: int = 0,
        shape: Any = None,
        order: Any = "C",
        *,
        policy: str | None = "index",
    ) -> memmap:
        advice = core.Follower.advice(policy) if policy not in (None, "index") else None
        self: Any = super().__new__(cls, filename, dtype, mode, offset, shape, order)
        self._guard = core.Guard(self._mmap) if self.nbytes else None
        self._policy = policy
        self._origin = (self.__array_interface__["data"][0], offset)
        if policy not in (None, "index") and self.nbytes and self.filename is not None:
            self._follower = core.Follower(self.filename, offset, self.nbytes, policy)
            if advice is not None:
                core.advise(plain(self), advice)
        found: memmap = self
        return found

    def __array_finalize__(self, obj: Any) -> None:
        if getattr(obj, "_mmap", None) is None or not _may_share(self, obj):
            self._mmap = self.filename = self.offset = self.mode = None  # type: ignore[assignment]
            return
        self._mmap, self.filename, self.offset, self.mode = obj._mmap, obj.filename, obj.offset, obj.mode
        if isinstance(obj, memmap):
            self._guard, self._policy, self._follower, self._origin = obj._guard, obj._policy, obj._follower, obj._origin

    def __getitem__(self, index: Any) -> Any:
        if self._policy is not None and self._mmap is not None:
            if self._policy == "index" and _is_rows(index) and self.dtype.kind in "biufc" and self.ndim:
                return self._rows(index)
            rows = self._announce(index)
            if rows is not None:
                return self._gather(rows)
        found = np.ndarray.__getitem__(self, index)
        self.check()
        if isinstance(found, memmap) and found._mmap is None:
            return found.view(np.ndarray)
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        np.ndarray.__setitem__(self, index, value)
        self.check()

    def __iter__(self) -> Iterator[Any]:
        if self._policy is None or self._mmap is None or self.ndim == 0:
            yield from super().__iter__()
            return
        step = max(1, AHEAD // max(1, self.nbytes // max(1, len(self))))
        for row in range(len(self)):
            if row % step == 0:
                prefetch(self.view(np.ndarray), range(row + step if row else 0, min(row + 2 * step, len(self))))
            yield np.ndarray.__getitem__(self, row)
            self.check()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        if out:
            kwargs["out"] = tuple(_viewed(one) for one in out)
        result = getattr(ufunc, method)(*(_viewed(one) for one in inputs), **kwargs)
        for one in (*inputs, *out):
            if isinstance(one, memmap):
                one.check()
        return out[0] if len(out) == 1 else out if out else result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        self.check()
        return result

    def __reduce__(self) -> Any:
        if self._mmap is None or self._origin is None or self.mode == "c" or self.filename is None:
            return np.asarray(self).__reduce__()
        address, offset = self._origin
        position = offset + self.__array_interface__["data"][0] - address
        mode = "r+" if self.mode == "w+" else self.mode
        return _reopened, (type(self), os.fspath(self.filename), mode, self._policy, self.dtype, self.shape, self.strides, position)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def check(self) -> None:
        """Raises Truncated if a page was found missing: the file was shortened under the map, or cannot be read."""
        if self._guard is not None and self._guard.gone is not None:
            raise Truncated(
                f"the file was shortened or became unreadable while it was mapped ({self.filename}: a page at byte "
                f"{self._guard.gone} of the map is gone); map it again, and keep other programs from truncating it"
            )

    @property
    def is_guarded(self) -> bool:
        """Whether a missing page becomes an exception; not so beyond 1024 maps at a time."""
        return self._guard is not None and self._guard.is_active

    def _announce(self, index: Any) -> Any:
        """Announces what `index` reads. Returns the rows where they are so many that they are better gathered in turns."""
        if self._follower is not None:
            self._met(index)
            return None
        if isinstance(index, (int, np.integer, str)) or index is None or index is Ellipsis:
            return None
        base = self.view(np.ndarray)
        view, rows = _reading(base, index)
        if view is None or not view.size:
            return None
        if rows is None:
            # A contiguous piece is what the kernel reads ahead by itself.
            if not (view.flags.c_contiguous or view.flags.f_contiguous):
                prefetch(view)
            return None
        if view is base and len(rows) * (self.nbytes // len(self)) > 2 * AHEAD and np.ndim(index) == 1:
            return rows
        prefetch(view, rows)
        return None

    def _rows(self, rows: Any) -> Any:
        """Whole rows by their numbers: the case that is worth a way of its own."""
        base = self.view(np.ndarray)
        if len(rows) * self.itemsize * (self.size // (len(self) or 1)) > 2 * AHEAD:
            return self._gather(rows)
        try:
            core.prefetch(base, rows)  # type: ignore[arg-type]
        except IndexError:
            pass  # numpy says it better.
        found = base[rows]
        self.check()
        return found

    def _gather(self, rows: Any) -> Any:
        """The rows as a new array, some at a time while the next are being read."""
        base = self.view(np.ndarray)
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        step = max(1, AHEAD // (self.nbytes // len(self)))
        prefetch(base, rows[:step])
        for begin in range(0, len(rows), step):
            prefetch(base, rows[begin + step : begin + 2 * step])
            found[begin : begin + step] = base[rows[begin : begin + step]]
        self.check()
        return found

    def _met(self, index: Any) -> None:
        """Tells the policy which bytes are asked for."""
        assert self._origin is not None
        base = self.view(np.ndarray)
        view, rows = _reading(base, index)
        if view is None or not view.size:
            return
        origin = view.__array_interface__["data"][0] - self._origin[0]
        if rows is None:
            reach = [(count - 1) * stride for count, stride in zip(view.shape, view.strides, strict=True)]
            length = sum(abs(far) for far in reach) + view.itemsize
            self._follower.meet(origin + sum(far for far in reach if far < 0), length)
            return
        length = view[0].nbytes if view.ndim > 1 else view.itemsize
        for row in rows % len(view):
            self._follower.meet(origin + int(row) * view.strides[0], length)


def _viewed(one: Any) -> Any:
    return one.view(np.ndarray) if isinstance(one, memmap) else one


def _reading(base: np.ndarray[Any, Any], index: Any) -> tuple[Any, Any]:
    """What an index reads: a view and rows of it, or a view as a whole; (None, None) where that cannot be said beforehand."""
    if not isinstance(index, tuple):
        index = (index,)
    if any(isinstance(one, str) for one in index):
        return None, None
    try:
        return _read(base, [one for one in _without_ellipsis(base.ndim, index) if one is not None])
    except (IndexError, ValueError, TypeError, OverflowError):
        # numpy says it better.
        return None, None


def _without_ellipsis(dimensions: int, index: tuple[Any, ...]) -> list[Any]:
    """The index for each dimension; booleans of several dimensions become numbers."""
    found: list[Any] = []
    for one in index:
        if _is_basic(one) or one is Ellipsis or one is None:
            found.append(one)
        else:
            array = np.asarray(one)
            found.extend(array.nonzero() if array.dtype == bool else (array,))
    used = sum(one is not None and one is not Ellipsis for one in found)
    every = [slice(None)] * (dimensions - used)
    at = next((at for at, one in enumerate(found) if one is Ellipsis), len(found))
    return found[:at] + every + found[at + 1 :]


def _is_basic(one: Any) -> bool:
    return isinstance(one, (int, np.integer, slice)) and not isinstance(one, (bool, np.bool_))


def _read(base: np.ndarray[Any, Any], index: list[Any]) -> tuple[Any, Any]:
    arrays = [at for at, one in enumerate(index) if not _is_basic(one)]
    if not arrays:
        # With the ellipsis a single item is a view, too.
        return base[(*index, Ellipsis)], None
    if len(arrays) == 1:
        at = arrays[0]
        rows = index[at]
        if at == 0 and len(index) == base.ndim and all(one == slice(None) for one in index[1:]):
            return base, integers(rows, len(base))
        view = base[tuple(slice(None) if here == at else one for here, one in enumerate(index))]
        axis = sum(isinstance(one, slice) for one in index[:at])
        return np.moveaxis(view, axis, 0), integers(rows, base.shape[at])
    return _scattered(base, index, arrays)


def _scattered(base: np.ndarray[Any, Any], index: list[Any], arrays: list[int]) -> tuple[Any, Any]:
    """Several arrays of indices: items at the places that they name together, as rows of a view that steps by single items."""
    if len(arrays) != base.ndim or not base.flags.c_contiguous:
        return None, None
    numbers = [np.asarray(one) for one in index]
    flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*numbers)), base.shape, mode="wrap")
    return base.reshape(-1), np.ascontiguousarray(flat, np.int64).reshape(-1)


def _reopened(
    kind: type[memmap], path: str, mode: Any, policy: str | None, dtype: Any, shape: Any, strides: Any, position: int
) -> memmap:
    """The same part of the file in this process."""
    reach = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
    low = position + sum(far for far in reach if far < 0)
    length = sum(abs(far) for far in reach) + dtype.itemsize if 0 not in shape else 0
    if length == 0:
        return np.empty(shape, dtype).view(kind)
    if os.path.getsize(path) < low + length:
        raise Truncated(f"{path} is shorter than when the array was pickled; it needs {low + length} bytes")
    bytes_ = kind(path, np.uint8, mode, low, (length,), policy=policy)
    array: memmap = np.ndarray(shape, dtype, buffer=bytes_, offset=position - low, strides=strides).view(kind)
    for name in ("_mmap", "filename", "mode", "_guard", "_policy", "_follower"):
        setattr(array, name, getattr(bytes_, name))
    array.offset = position
    array._origin = (array.__array_interface__["data"][0], position)
    return array
