"""Exceptions, one for each thing that a program can do about an error."""

from __future__ import annotations


class Error(Exception):
    """What went wrong, in a sentence that says what to do about it."""

    errno: int | None = None


class Invalid(Error, ValueError):
    """Pass another value: an argument or a path cannot be used as given."""


class NotMapped(Invalid):
    """The array is in memory of its own, or was unmapped: no file is behind its bytes."""


class Truncated(Error):
    """The file was shortened, replaced or became unreadable while it was mapped: open it again."""


class Held(Error):
    """Somebody else holds it: try again later."""


class NotPermitted(Error, PermissionError):
    """Get the right to do it, as the message says."""


class Missing(Error, RuntimeError):
    """This machine has no such facility: `reason` says why, `remedy` how to get it."""

    reason: str = ""
    remedy: str = ""


class Ended(Error):
    """What was open has ended: begin again."""


class Failed(Error, OSError):
    """The device or the kernel failed."""
