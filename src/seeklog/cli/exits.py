"""Exit codes, and the one line that is told of an error."""

from __future__ import annotations

import enum
import errno
import os

from seeklog.errors import (
    CorruptionError,
    DiskFull,
    GroupInUse,
    GroupNotFound,
    LogLocked,
    NoOffset,
    NotALog,
    OffsetOutOfRange,
    SeeklogError,
    TopicNotFound,
    UsageError,
)


class Exit(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    DAMAGE = 3
    NOT_FOUND = 4
    LOCKED = 5
    # As a shell names those that a signal has ended: 128 and its number.
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class Declined(SeeklogError):
    """The user was asked, and did not say yes; nothing was changed."""


class NothingFound(SeeklogError):
    """What was looked for is not there, and that is the answer."""


class Damaged(SeeklogError):
    """Damage was found, and told."""


# The first that an error is an instance of.
_CODES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Exit], ...] = (
    ((TopicNotFound, GroupNotFound, OffsetOutOfRange, NoOffset, NotALog, NothingFound), Exit.NOT_FOUND),
    ((LogLocked, GroupInUse), Exit.LOCKED),
    ((CorruptionError, Damaged), Exit.DAMAGE),
    (UsageError, Exit.USAGE),
)


def exit_code(error: Exception) -> Exit:
    """Return the exit code that tells what kind of error it was."""
    if isinstance(error, FileNotFoundError):
        return Exit.NOT_FOUND
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


# What the engine advises in Python's words, in those of a command line.
_OUR_WORDS = (
    ("or open here with read_only=True", "then run it again"),
    ("with allow_gaps=True", "with --allow-gaps"),
    ("allow_gaps=True", "--allow-gaps"),
    ("with repair=True", "with --repair"),
    ("repair=True", "--repair"),
    ("larger buffer_bytes", "larger --buffer"),
)


def line(error: Exception) -> str:
    """Return what is told of an error: one line, with what to do next."""
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory; read or write less at once"
    text = "; ".join(part.strip().rstrip(".") for part in str(error).splitlines() if part.strip())
    for theirs, ours in _OUR_WORDS:
        text = text.replace(theirs, ours)
    if isinstance(error, DiskFull) and "append again" not in text:
        text += "; make room, then run it again"
    return text or type(error).__name__


def _of_the_system(error: OSError) -> str:
    where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    what = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}{what}; make room, then run it again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where}{what}; run it as who owns the files, or name another directory"
    if error.errno == errno.ENOENT:
        return f"{where}{what}; check the spelling"
    return f"{where}{what}"
