"""An archive that is restored: after an interruption there is no store yet, or the whole one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import seeklog
from crash.archive_work import NEW_DISK
from crash.archiving import ARCHIVE, fill, open_on
from crash.sim import Disk, SimFiles
from log.workbench import TickingClock
from seeklog import TopicPartition
from seeklog.errors import NotALog, SeeklogError
from store.workbench import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from seeklog.files import Files

RESTORED: Final = "/data/back/store"
AT: Final = TopicPartition("orders", 0)
RECORDS: Final = 10


def restore(files: Files) -> None:
    seeklog.restore(ARCHIVE, RESTORED, files=files, clock=TickingClock())


def restored(files: Files, *, read_only: bool) -> tuple[list[int], int] | None:
    """Return the offsets in the restored store, and the committed one; None if there is no store."""
    if read_only and not is_there(files):
        return None
    try:
        with open_store(RESTORED, files=files, read_only=read_only) as store:  # type: ignore[arg-type]
            if not store.topics() and not read_only:
                return None  # an empty directory may become a new store
            offsets = [record.offset for record in store.log(*AT).scan()]
            return offsets, store.describe_group("billing").committed[AT].offset
    except NotALog:
        return None


def is_there(files: Files) -> bool:
    try:
        return bool(files.list(RESTORED))
    except FileNotFoundError:
        return False


class RestorePromise:
    """What a restore promises: the records and the committed offset of the archive, or no store."""

    def __init__(self) -> None:
        self.whole: tuple[list[int], int] | None = None
        """None until there is an archive."""
        self.is_done = False

    def violations(self, disk: Disk) -> list[str]:
        if self.whole is None:
            return []
        try:
            found = restored(SimFiles(disk), read_only=True)
            written = restored(SimFiles(disk), read_only=False)
            left = SimFiles(disk)
            if found is None:
                restore(left)
            again = restored(left, read_only=True)
        except SeeklogError as error:
            return [f"{type(error).__name__}: {error}"]
        valid = (self.whole,) if self.is_done else (None, self.whole)
        violations = [f"opened, it gives {one}" for one in (found, written) if one not in valid]
        if again != self.whole:
            violations.append(f"restored again it gives {again}")
        return violations


class RestoreRecorder:
    """Archives a store whole, and restores it."""

    def __init__(self, disk_type: Callable[[Disk], Any]) -> None:
        self.sim = disk_type(NEW_DISK)
        self.files: Files = self.sim
        self.door: Callable[[Files], Files] = lambda files: files
        self.promise = RestorePromise()

    def run(self) -> None:
        files = self.door(self.files)
        with open_on(files) as store:
            store.create_topic("orders", partitions=2)
            fill(store, RECORDS // 2)
            store.commit_offsets("billing", {AT: RECORDS - 3})
            store.archive(ARCHIVE, include_active=True)
        self.promise.whole = list(range(RECORDS)), RECORDS - 3
        restore(files)
        self.promise.is_done = True
