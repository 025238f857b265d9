"""Harm that is done to the files of something, and the judgement on each damaged copy.

A `Victim` is a disk with a log, a store or an archive on it, and what is asked of it. A copy of the disk is damaged
and opened, and one of these came of it:

    same       every answer is that of the undamaged disk
    error      a declared error, and no file has changed
    cut        the end of the log is gone as it lawfully may: above the recovery point, kept aside and reported
    behind     readers see less because the published watermark is damaged; that is warned of, and a writer mends it
    believed   in a broker's directory: a text of Kafka's, or where a batch says it stands, which no checksum covers
    SILENT     another answer, and no error
    CHANGED    an error, or a look, after which files are not what they were
    UNDECLARED an exception that is not seeklog's
    UNNAMED    an error that does not say which file is damaged

The last four are broken promises.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from crash.sim import Disk, SimFiles
from seeklog import names
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from collections.abc import Iterator

Opened = TypeVar("Opened")
Found = TypeVar("Found")

BROKEN: Final = frozenset({"SILENT", "CHANGED", "UNDECLARED", "UNNAMED"})
# What an open for writing may replace although a read is refused later: all of it follows from the logs.
_REPLACEABLE: Final = (
    names.OFFSET_INDEX,
    names.TIME_INDEX,
    names.SEAL,
    names.KEY_INDEX,
    names.SNAPSHOT,
    names.CHECKPOINT,
    names.WATERMARK,
    names.LEADER_EPOCHS,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one damaged copy."""

    kind: str
    what: str = ""

    @property
    def is_broken(self) -> bool:
        return self.kind in BROKEN


@dataclass(frozen=True, slots=True)
class Harm:
    """What was done to a victim, and what came of it."""

    path: str
    """The file that was damaged."""
    read_only: bool
    expected: Any
    before: Disk
    after: Disk
    heard: list[str]
    """What was warned of."""


class Victim(Protocol, Generic[Opened, Found]):
    """Something on a disk that can be opened and asked."""

    name: str
    disk: Disk

    def expected(self, *, read_only: bool) -> Found:
        """Return the answers of the undamaged disk."""
        ...

    def open(self, files: SimFiles, *, read_only: bool) -> contextlib.AbstractContextManager[Opened]: ...

    def ask(self, opened: Opened, *, expected: Found | None) -> Found: ...

    def changes(self, before: Disk, after: Disk, *, path: str, was_opened: bool) -> str:
        """Say which file has changed that must not where something is refused."""
        ...

    def verdict(self, found: Found, harm: Harm) -> Verdict:
        """Say what other answers than the expected ones are worth: they may be lawful."""
        ...


@dataclass(slots=True)
class Tally:
    """What came of many."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, where: str, verdict: Verdict) -> None:
        self.counts[verdict.kind] += 1
        if verdict.is_broken:
            self.broken.append(f"{where}: {verdict.kind}: {verdict.what}")


def judge(victim: Victim[Any, Any], damaged: Disk, *, path: str, read_only: bool) -> Verdict:
    """Open a damaged copy and ask it everything. `path` is the file that was damaged."""
    expected = victim.expected(read_only=read_only)
    sim = SimFiles(damaged)
    is_open = False
    try:
        with warnings_heard() as heard, victim.open(sim, read_only=read_only) as opened:
            is_open = True
            found = victim.ask(opened, expected=expected)
    except SeeklogError as error:
        said = str(error)
        changed = victim.changes(damaged, sim.disk(), path=path, was_opened=is_open and not read_only)
        if changed:
            return Verdict("CHANGED", f"{changed}, though it was refused: {said}")
        if path.endswith(names.LOG) and path not in said:
            return Verdict("UNNAMED", said)
        return Verdict("error", said)
    except Exception as error:  # whatever it is, it is not declared
        return Verdict("UNDECLARED", f"{type(error).__name__}: {error}")
    if read_only and sim.pending:
        return Verdict("CHANGED", f"by a look: {sim.pending[0]}")
    if found == expected:
        return Verdict("same")
    return victim.verdict(found, Harm(path, read_only, expected, damaged, sim.disk(), heard))


def changes(before: Disk, after: Disk, *, was_opened: bool) -> str:
    """Say how files differ that must not. Locks are nobody's promise, and may come."""
    for path, data in before.files.items():
        if path.endswith(names.LOCK) or (was_opened and path.endswith(_REPLACEABLE)):
            continue
        now = after.files.get(path)
        if now != data:
            return f"{posixpath.basename(path)} {'is gone' if now is None else 'has changed'}"
    for path in after.files.keys() - before.files.keys():
        if not path.endswith(names.LOCK) and not (was_opened and path.endswith(_REPLACEABLE)):
            return f"{posixpath.basename(path)} has appeared"
    return ""


def difference(found: Any, expected: Any) -> str:
    """Say in which fields two answers differ."""
    said = [
        f"{name} is {getattr(found, name)!r:.160}, not {getattr(expected, name)!r:.160}"
        for name in getattr(expected, "__dataclass_fields__", ())
        if getattr(found, name) != getattr(expected, name)
    ]
    return "; ".join(said) or f"{found!r:.200}, not {expected!r:.200}"


@contextlib.contextmanager
def warnings_heard() -> Iterator[list[str]]:
    """Collect what seeklog warns of, and keep it from the terminal: damage is warned of thousands of times."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger = logging.getLogger("seeklog")
    ear, before = Ear(logging.WARNING), logger.propagate
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(ear)
        logger.propagate = before
