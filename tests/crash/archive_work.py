"""A store that is archived to a directory: the valid states of the archive after an interruption."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from crash.archiving import ARCHIVE, archived, fill, open_on
from crash.sim import Disk, SimFiles
from seeklog.errors import SeeklogError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from seeklog.files import Files

NEW_DISK: Final = Disk.of({}, directories=["/data"])


def given(files: Files) -> list[int] | None:
    """Return the offsets in an archive, empty while it has no segment of the topic."""
    try:
        return archived(files)
    except TopicNotFound:
        return []


@dataclass(slots=True)
class ArchivePromise:
    """The content of an archive: that before the current archiving, or that after it."""

    possible: list[list[int] | None] = field(default_factory=lambda: [None])
    is_filled: bool = False
    """Whether there is a topic to archive."""
    include_active: bool = False

    def violations(self, disk: Disk) -> list[str]:
        try:
            found = given(SimFiles(disk))
            left = SimFiles(disk)
            with open_on(left) as store:
                if self.is_filled:
                    store.archive(ARCHIVE, include_active=self.include_active)
                    stored = [record.offset for record in store.log("orders", 0).scan()]
            again = given(left) if self.is_filled else []
        except SeeklogError as error:
            return [f"{type(error).__name__}: {error}"]
        violations = []
        # During an archiving its result is valid too: all sealed segments, or all records.
        if found not in self.possible and found != again:
            violations.append(f"the archive gives {found}, promised {self.possible}")
        if self.is_filled and (again is None or again != (stored if self.include_active else stored[: len(again)])):
            violations.append(f"archived again it gives {again} of {stored}")
        return violations


class ArchiveRecorder:
    """Archives a store three times: first, with more records, and with nothing new."""

    def __init__(self, disk_type: Callable[[Disk], Any], *, include_active: bool = False) -> None:
        self.sim = disk_type(NEW_DISK)
        self.files: Files = self.sim
        self.door: Callable[[Files], Files] = lambda files: files
        self.promise = ArchivePromise(include_active=include_active)

    def run(self) -> None:
        files = self.door(self.files)
        with open_on(files) as store:
            store.create_topic("orders", partitions=1)
            self.promise.is_filled = True
            for count in (5, 4, 0):
                fill(store, count)
                store.archive(ARCHIVE, include_active=self.promise.include_active)
                self.promise.possible = [given(self.files)]
