"""Exit codes, and the one line that is told of an error."""

from __future__ import annotations

import enum
import errno
import os
import re

from seeklog.errors import (
    CorruptionError,
    DiskFull,
    GroupInUse,
    GroupNotFound,
    InvalidConfig,
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


class Interrupted(Exception):
    """Ctrl-C has ended a verb; Click would end a line for `KeyboardInterrupt`, also where no ^C stands in it."""


class NothingFound(SeeklogError):
    """What was looked for is not there, and that is the answer."""


class Damaged(SeeklogError):
    """Damage was found, and told."""


# The first that an error is an instance of.
_CODES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Exit], ...] = (
    (
        (TopicNotFound, GroupNotFound, OffsetOutOfRange, NoOffset, NotALog, NothingFound, FileNotFoundError),
        Exit.NOT_FOUND,
    ),
    ((LogLocked, GroupInUse), Exit.LOCKED),
    ((CorruptionError, Damaged), Exit.DAMAGE),
    (UsageError, Exit.USAGE),
)


def exit_code(error: Exception) -> Exit:
    """Return the exit code that tells what kind of error it was."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


# What the engine advises in Python's words, in those of a command line.
_OUR_WORDS = (
    ("or open here with read_only=True", "then run it again"),
    ("with allow_gaps=True", "with --allow-gaps"),
    ("allow_gaps=True", "--allow-gaps"),
    ("with repair=True", "with --repair"),
    ("repair=True", "--repair"),
    ("larger buffer_bytes", "larger --buffer"),
    ("It can be read with read_only=True up to the damage", "It can be read up to the damage"),
    (", which is only read: open it with read_only=True. To write", ", which is only read. To write"),
    ("Run verify for the extent", "Run `seeklog verify` for the extent"),
    ("describe_topic tells how it is configured", "seeklog config tells how it is configured"),
)
_MAKE_ROOM = "free some disk space, then run it again"
_CHANGE_USER = "run it as the owner of the files, or name another directory"
_ADVICE = {
    errno.EACCES: _CHANGE_USER,
    errno.EPERM: _CHANGE_USER,
    errno.EROFS: _CHANGE_USER,
    errno.ENOENT: "check the spelling",
}


def line(error: Exception) -> str:
    """Return what is told of an error: one line, with what to do next."""
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, MemoryError):
        return "out of memory; read or write less at once"
    text = in_a_line(str(error))
    if isinstance(error, InvalidConfig):
        text = _with_kafkas_words(text)
    if isinstance(error, DiskFull) and "append again" not in text:
        text += f"; {_MAKE_ROOM}"
    return "; ".join([text or type(error).__name__, *getattr(error, "__notes__", ())])


def in_a_line(text: str) -> str:
    """Return what the engine says, in one line and in the words of a command line."""
    text = "; ".join(part.strip().rstrip(".") for part in text.splitlines() if part.strip())
    for theirs, ours in _OUR_WORDS:
        text = text.replace(theirs, ours)
    return text


def _with_kafkas_words(text: str) -> str:
    """Return a text in which configuration is spelt as --set takes it and config shows it: with dots."""
    import dataclasses

    from seeklog.config import LogConfig, canonical_setting

    for field in dataclasses.fields(LogConfig):
        text = re.sub(rf"\b{field.name}\b", canonical_setting(field.name), text)
    return text


def _of_the_system(error: OSError) -> str:
    from seeklog.files import is_full

    where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    advice = _MAKE_ROOM if is_full(error) else _ADVICE.get(error.errno or 0)
    return f"{where}{error.strerror or error}" + (f"; {advice}" if advice else "")
