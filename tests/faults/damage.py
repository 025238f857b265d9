"""Damage to files, and the verdict on each damaged copy.

A `Victim` is a disk with a log, a store, or an archive, and the reads of it. A copy of the disk is damaged and opened,
with one of these verdicts:

    same       every answer is that of the undamaged disk
    error      a declared error, and no file has changed
    cut        the end of the log above the recovery point was cut, quarantined, and reported
    behind     readers see less because the published watermark is damaged; they warn, and a writer publishes it again
    believed   in a broker's directory: one of Kafka's text files, or the base offset of a batch, without a checksum
    SILENT     another answer without an error
    CHANGED    files have changed after an error or a read
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
# Files that an open for writing may replace even if a read fails later, because they are derived from the logs.
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
    """The verdict on one damaged copy."""

    kind: str
    what: str = ""

    @property
    def is_broken(self) -> bool:
        return self.kind in BROKEN


@dataclass(frozen=True, slots=True)
class Harm:
    """The damage to a victim, and the state after it."""

    path: str
    """The file that was damaged."""
    read_only: bool
    expected: Any
    before: Disk
    after: Disk
    heard: list[str]
    """What was warned of."""


class Victim(Protocol, Generic[Opened, Found]):
    """A log, store, or archive that can be opened and read."""

    name: str
    disk: Disk

    def expected(self, *, read_only: bool) -> Found:
        """Return the answers of the undamaged disk."""
        ...

    def open(self, files: SimFiles, *, read_only: bool) -> contextlib.AbstractContextManager[Opened]: ...

    def ask(self, opened: Opened, *, expected: Found | None) -> Found: ...

    def changes(self, before: Disk, after: Disk, *, path: str, was_opened: bool) -> str:
        """Return a file that has changed although an error was raised."""
        ...

    def verdict(self, found: Found, harm: Harm) -> Verdict:
        """Return the verdict on answers that differ from the expected ones."""
        ...


@dataclass(slots=True)
class Tally:
    """The verdicts on many copies."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, where: str, verdict: Verdict) -> None:
        self.counts[verdict.kind] += 1
        if verdict.is_broken:
            self.broken.append(f"{where}: {verdict.kind}: {verdict.what}")


def judge(victim: Victim[Any, Any], damaged: Disk, *, path: str, read_only: bool) -> Verdict:
    """Open a damaged copy and read everything. `path` is the damaged file."""
    expected = victim.expected(read_only=read_only)
    sim = SimFiles(damaged)
    is_open = False
    try:
        with warnings_heard() as heard, victim.open(sim, read_only=read_only) as opened:
            is_open = True
            found = victim.ask(opened, expected=expected)
    except SeeklogError as error:
        message = str(error)
        changed = victim.changes(damaged, sim.disk(), path=path, was_opened=is_open and not read_only)
        if changed:
            return Verdict("CHANGED", f"{changed}, though it was refused: {message}")
        if path.endswith(names.LOG) and path not in message:
            return Verdict("UNNAMED", message)
        return Verdict("error", message)
    except Exception as error:  # any other exception is undeclared
        return Verdict("UNDECLARED", f"{type(error).__name__}: {error}")
    if read_only and sim.pending:
        return Verdict("CHANGED", f"by a look: {sim.pending[0]}")
    if found == expected:
        return Verdict("same")
    return victim.verdict(found, Harm(path, read_only, expected, damaged, sim.disk(), heard))


def changes(before: Disk, after: Disk, *, was_opened: bool) -> str:
    """Return how files differ that must not. Lock files may appear."""
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
    """Return the fields in which two answers differ."""
    differences = [
        f"{name} is {getattr(found, name)!r:.160}, not {getattr(expected, name)!r:.160}"
        for name in getattr(expected, "__dataclass_fields__", ())
        if getattr(found, name) != getattr(expected, name)
    ]
    return "; ".join(differences) or f"{found!r:.200}, not {expected!r:.200}"


@contextlib.contextmanager
def warnings_heard() -> Iterator[list[str]]:
    """Collect seeklog's warnings, of which there are thousands, instead of printing them."""
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
