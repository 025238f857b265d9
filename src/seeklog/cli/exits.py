"""Exit codes, and errors as one line of text."""

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
    # 128 plus the number of the signal, as in shells.
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class Declined(SeeklogError):
    """The user did not confirm; nothing was changed."""


class Interrupted(Exception):
    """Ctrl-C interrupted a command. For `KeyboardInterrupt` Click would print a newline, even without a terminal."""


class NothingFound(SeeklogError):
    """A lookup found nothing."""


class Damaged(SeeklogError):
    """Damage was found and reported."""


# The first match counts.
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
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


# The advice in errors of the Python API, in terms of the command line.
_REWORDINGS = (
    ("or open here with read_only=True", "then run it again"),
    ("or open with read_only=True", "then run it again"),
    ("with allow_gaps=True", "with --allow-gaps"),
    ("allow_gaps=True", "--allow-gaps"),
    ("with repair=True", "with --repair"),
    ("repair=True", "--repair"),
    ("larger buffer_bytes", "larger --buffer"),
    ("It can be read with read_only=True up to the damage", "It can be read up to the damage"),
    ("can only be read: open it with read_only=True. To write", "can only be read. To write"),
    ("; Run verify for the extent", "; run `seeklog verify` for the extent"),
    ("Run verify for the extent", "Run `seeklog verify` for the extent"),
    ("create one with create_topic", "create one with `seeklog create`"),
    ("; check the path, or open it without read_only to create a store", "; check the path"),
    ("; open it without read_only=True", ""),
    ("; to only read, open with read_only=True", ""),
    ("free some space, then try again", "free some disk space, then run it again"),
    ("describe_topic returns its configuration", "`seeklog config` shows its configuration"),
)
_ALTER_TOPIC = re.compile(r'store\.alter_topic\("([^"]+)", \{"([^"]+)": (\d+)\}\)')


def line(error: Exception) -> str:
    """Return an error as one line, with the next step."""
    if isinstance(error, OSError):
        return _os_error(error)
    if isinstance(error, MemoryError):
        return "out of memory; read or write less at once"
    text = in_a_line(str(error))
    if isinstance(error, InvalidConfig):
        text = _with_dotted_settings(text)
    if isinstance(error, DiskFull) and "again" not in text:
        text += "; free some disk space, then run it again"
    return "; ".join([text or type(error).__name__, *getattr(error, "__notes__", ())])


def in_a_line(text: str) -> str:
    """Return a message of the engine as one line, in terms of the command line."""
    text = "; ".join(part.strip().rstrip(".") for part in text.splitlines() if part.strip())
    for python, command_line in _REWORDINGS:
        text = text.replace(python, command_line)
    return _ALTER_TOPIC.sub(r"seeklog config DIR \1 --set \2=\3", text)


def _with_dotted_settings(text: str) -> str:
    """Spell the names of settings with dots, as --set and `seeklog config` do."""
    import dataclasses

    from seeklog.config import LogConfig, canonical_setting

    for field in dataclasses.fields(LogConfig):
        text = re.sub(rf"\b{field.name}\b", canonical_setting(field.name), text)
    return text


def _os_error(error: OSError) -> str:
    from seeklog.files import advice_for

    where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    advice = "check the spelling" if error.errno == errno.ENOENT else in_a_line(advice_for(error))
    return f"{where}{error.strerror or error}" + (f"; {advice}" if advice else "")
