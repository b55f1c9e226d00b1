"""The extension module, or what stands in for it where there is none: the import works, and a use says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import Missing

if TYPE_CHECKING:
    from . import _core as core
else:
    try:
        from . import _core as core
    except ImportError as failure:
        import sys

        class _Absent:
            """Raises at the first use."""

            def __init__(self, reason: str) -> None:
                self._reason = reason

            def __getattr__(self, name: str) -> Any:
                missing = Missing(f"majorfault.{name} is not available here: {self._reason}; use Linux, where the package has wheels")
                missing.reason, missing.remedy = self._reason, "use Linux"
                raise missing

        core = _Absent(str(failure) if sys.platform == "linux" else f"mapped files are announced to Linux, and this is {sys.platform}")

__all__ = ["core"]
