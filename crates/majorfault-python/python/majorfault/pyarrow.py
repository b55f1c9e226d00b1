"""pyarrow under the name by which `prefetch` finds it; see `majorfault.arrow`."""

from .arrow import parts

__all__ = ["parts"]
