"""Files larger than memory at the device's speed: what is read next is announced before it is touched.

>>> import majorfault
>>> sorted(set(majorfault.__all__) & {"prefetch", "release", "take", "Ahead", "memmap", "load", "residency"})
['Ahead', 'load', 'memmap', 'prefetch', 'release', 'residency', 'take']

The frames for other libraries are modules: `majorfault.numpy`, `.torch`, `.datasets`, `.arrow`, `.h5py`, `.safetensors`, `.zarr`.
Nothing but the library in question is needed for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._ahead import Ahead
from ._calls import Residency, advise, file_of, prefetch, release, residency
from ._command import Comparison, Findings, compare, doctor, report
from ._errors import Ended, Error, Failed, Held, Invalid, Missing, NotMapped, NotPermitted, Truncated
from ._load import Loaded, load
from ._take import take

if TYPE_CHECKING:
    from .numpy import memmap

__version__ = "0.1.0"

__all__ = [
    "Ahead",
    "Comparison",
    "Ended",
    "Error",
    "Failed",
    "Findings",
    "Held",
    "Invalid",
    "Loaded",
    "Missing",
    "NotMapped",
    "NotPermitted",
    "Residency",
    "Truncated",
    "advise",
    "check",
    "compare",
    "doctor",
    "file_of",
    "load",
    "memmap",
    "prefetch",
    "release",
    "report",
    "residency",
    "take",
]


def check(array: Any) -> None:
    """Raises Truncated if a page of a `majorfault.memmap`, or of the one that the array is a view of, was found missing."""
    while array is not None:
        own = getattr(array, "check", None)
        if own is not None and hasattr(array, "is_guarded"):
            own()
            return
        array = getattr(array, "base", None)
    raise NotMapped("only a majorfault.memmap, and views of it, know whether pages are missing")


def __getattr__(name: str) -> Any:
    # numpy is needed by those who use it.
    if name == "memmap":
        from .numpy import memmap

        return memmap
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
