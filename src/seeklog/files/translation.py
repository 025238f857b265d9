"""The one translation of `OSError` into our own errors.

    with translated(f"{path} cannot be read"):
        ...

A full disk becomes `DiskFull`, a directory that was exchanged under its holder `LogFailed`, anything else
`NotAccessible`. The message gives the fact, the operating system's reason, and what to do. The `OSError` stays the
`__cause__`.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from seeklog.errors import DiskFull, LogFailed, NotAccessible, SeeklogError
from seeklog.files.held import Displaced

_MAKE_ROOM = "free some space, then try again"
_READ_ONLY = (
    "the file system is mounted read-only: remount it for writing, or choose a path on another one; "
    "to only read, open with read_only=True"
)
# No space on the disk, or within the user's quota.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Return whether the disk or the quota is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def translate(error: OSError, fact: str, *, when_full: str = "", advice: str = "") -> SeeklogError:
    """Return seeklog's error for an `OSError`. Raise it `from error`.

    `advice` says what to do; `when_full` replaces it if the disk is full.
    """
    if is_full(error):
        return DiskFull(f"{fact}: the disk is full; {when_full or advice or _MAKE_ROOM}")
    if isinstance(error, Displaced):
        return LogFailed(f"{fact}: {error}; {error.ADVICE}")
    return NotAccessible("; ".join(filter(None, (f"{fact}: {error}", advice_for(error), advice))))


def advice_for(error: OSError) -> str:
    """Return what to do about an error of the operating system, or "" if its number does not tell.

    An error that seeklog or a backend raised with a reason of its own gets none.
    """
    if error.errno is None or error.strerror != os.strerror(error.errno):
        return ""
    if error.errno == errno.EROFS:
        return _READ_ONLY
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"this process runs as user {os.geteuid()}: run it as the owner of the files, or give that user access to "
            "them"
        )
    return _MAKE_ROOM if is_full(error) else ""


class translated:  # noqa: N801 - reads as a verb, like contextlib.suppress
    """A block that raises an `OSError` as seeklog's own error; see `translate`."""

    __slots__ = ("_advice", "_fact", "_when_full")

    def __init__(self, fact: str, *, when_full: str = "", advice: str = "") -> None:
        self._fact = fact
        self._when_full = when_full
        self._advice = advice

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise translate(error, self._fact, when_full=self._when_full, advice=self._advice) from error
