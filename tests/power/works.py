"""Works to run on a file system until power is lost, and their judgement.

A work runs in a separate process below its own root. It reports promises with `mark`: a marked promise has been valid
since the previous mark, or since the start. Later it judges the files below the same root of each image by the promise
of that moment.
"""

from __future__ import annotations

import logging
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import crash.transaction_workloads  # enters its workloads  # noqa: F401
from crash import archiving
from crash.recorder import Promise, Recorder, look, open_log, reopen
from crash.sim import SimFiles
from crash.store_promise import StoreOutcome, StorePromise
from crash.store_recorder import StoreRecorder, look_at, open_store, reopen_store, seeded_names
from crash.store_workloads import STORE_WORKLOADS, StoreWorkload
from crash.workloads import WORKLOADS, Workload
from power.large_workloads import LARGE_WORKLOADS
from power.rooted import RootedFiles, read_disk
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from crash.sim import Disk


class Work(Protocol):
    """A workload and its judgement."""

    @property
    def name(self) -> str: ...

    def run(self, root: str, *, seed: int, mark: Callable[[object], None]) -> None: ...

    def judge(self, root: str, promise: Any) -> list[str]:
        """Return how the files below the root break a promise; an empty list if they do not."""
        ...


class Unblinking:
    """A recorder that is observed also during the preparation of its workload."""

    is_observed = property(lambda self: True, lambda self, value: None)


class UnblinkingRecorder(Unblinking, Recorder):  # type: ignore[misc]
    """One of a log."""


class UnblinkingStoreRecorder(Unblinking, StoreRecorder):  # type: ignore[misc]
    """One of a store."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """The promise of a log, and the facts to judge it."""

    promise: Promise
    epochs: list[int]
    now_ms: int


@dataclass(frozen=True, slots=True)
class LogWork:
    """A workload of the crash suite on one log of a real disk."""

    workload: Workload
    without: Collection[str] = ()
    """What its disk leaves out, as a broken one would."""

    @property
    def name(self) -> str:
        return self.workload.name

    def run(self, root: str, *, seed: int, mark: Callable[[object], None]) -> None:
        make_directories(root, self.workload.disk)

        def observe(recorder: Recorder) -> None:
            mark(LogMark(recorder.promise, recorder.epochs, recorder.clock.now_ms()))

        # A disk that omits syncs must be found even if the system would write back: here it does not.
        restlessness = None if self.without else random.Random(seed)
        files = RootedFiles(root, without=self.without, restlessness=restlessness)
        recorder = UnblinkingRecorder(
            self.workload.config,
            chance=random.Random(f"{self.name}, seed {seed}"),
            observe=observe,
            disk=self.workload.disk,
            disk_type=cast("type[SimFiles]", files),
        )
        self.workload.run(recorder)
        observe(recorder)

    def judge(self, root: str, promise: LogMark) -> list[str]:
        config, promised = self.workload.config, promise.promise
        outcome = reopen(read_disk(root), config, epochs=promise.epochs, now_ms=promise.now_ms)
        violations = promised.violations(outcome, is_power_loss=True)
        if violations:
            return violations
        # Again in its directory, on the real file system.
        with open_log(cast("SimFiles", RootedFiles(root)), config, now_ms=promise.now_ms) as log:
            return promised.violations(look(log, promise.epochs), is_power_loss=True)


class BrokenWork(LogWork):
    """A workload whose disk omits an operation."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return f"{self.workload.name}, without {' and '.join(self.without)}"


@dataclass(frozen=True, slots=True)
class StoreMark:
    """The promise of a store, and the facts to judge it."""

    promise: StorePromise
    now_ms: int


@dataclass(frozen=True, slots=True)
class StoreWork:
    """A workload of the crash suite on a store of a real disk."""

    workload: StoreWorkload

    @property
    def name(self) -> str:
        return self.workload.name

    def run(self, root: str, *, seed: int, mark: Callable[[object], None]) -> None:
        make_directories(root, self.workload.disk)

        def observe(recorder: StoreRecorder) -> None:
            mark(StoreMark(recorder.promise, recorder.clock.now_ms()))

        recorder = UnblinkingStoreRecorder(
            chance=random.Random(f"{self.name}, seed {seed}"),
            observe=observe,
            disk=self.workload.disk,
            disk_type=cast("type[SimFiles]", RootedFiles(root, restlessness=random.Random(seed))),
        )
        with seeded_names(self.name):
            self.workload.run(recorder)
        observe(recorder)

    def judge(self, root: str, promise: StoreMark) -> list[str]:
        promised = promise.promise
        with seeded_names("reopening"):
            outcome = reopen_store(read_disk(root), now_ms=promise.now_ms, transactions=list(promised.transactions))
        violations = promised.violations(outcome, is_power_loss=True)
        if violations:
            return violations
        with open_store(cast("SimFiles", RootedFiles(root)), now_ms=promise.now_ms) as store:
            topics, groups = look_at(store)
        found = StoreOutcome(topics=topics, groups=groups, unrecovered=topics)
        return promised.violations(found, is_power_loss=True)


@dataclass(frozen=True, slots=True)
class ArchiveMark:
    """The valid contents of an archive, and its content after another archiving."""

    possible: tuple[list[int] | None, ...]
    again: list[int] | None = None
    """None while it is not known what of the store is durable."""


@dataclass(frozen=True, slots=True)
class ArchiveWork:
    """Archives a store to a directory of the same disk three times."""

    name: str = "store: archive"

    def run(self, root: str, *, seed: int, mark: Callable[[object], None]) -> None:
        os.makedirs(f"{root}/data")
        sync_directories(root, ["/data", "/"])
        files = RootedFiles(root, restlessness=random.Random(seed))
        with archiving.open_on(cast("SimFiles", files)) as store:
            store.create_topic("orders", partitions=1)
        before: list[int] | None = None
        for count in (5, 4, 0):
            with archiving.open_on(cast("SimFiles", files)) as store:
                archiving.fill(store, count)
                mark(ArchiveMark((before,)))
                # Only sealed segments are archived, that is all except the last.
                after = list(range(store.log("orders", 0)._source.view.segments[-1].base_offset))
                under_way = ArchiveMark((before, after), after)
                files.on_boundary = lambda _, promise=under_way: mark(promise)  # type: ignore[misc]
                store.archive(archiving.ARCHIVE)
                files.on_boundary = None
            mark(ArchiveMark((after,), after))
            before = after

    def judge(self, root: str, promise: ArchiveMark) -> list[str]:
        files = cast("SimFiles", RootedFiles(root))
        found = archiving.archived(files)
        if found not in promise.possible:
            return [f"the archive gives {found}, promised {' or '.join(map(str, promise.possible))}"]
        if promise.again is None:
            return []
        with archiving.open_on(files) as store:
            store.archive(archiving.ARCHIVE)
        again = archiving.archived(files)
        return [] if again == promise.again else [f"archived again it gives {again}, promised {promise.again}"]


def make_directories(root: str, disk: Disk) -> None:
    """Create the files that a workload starts with, durably."""
    made = sorted(disk.directories)
    for directory in made:
        os.makedirs(root + directory, exist_ok=True)
    sync_directories(root, made)


def sync_directories(root: str, directories: Collection[str]) -> None:
    for directory in [*directories, "/.."]:
        handle = os.open(root + directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(handle)
        os.close(handle)


def judge_quietly(work: Work, root: str, promise: object) -> list[str]:
    """Judge an image. Any error of the engine is a broken promise, because every image must open."""
    # Each recovery warns.
    logging.getLogger("seeklog").setLevel(logging.CRITICAL)
    try:
        return work.judge(root, promise)
    except (SeeklogError, AssertionError, OSError) as error:
        return [f"{type(error).__name__}: {error}"]


ENGINE_WORKS: Final[dict[str, Work]] = {
    work.name: work
    for work in [
        *map(LogWork, WORKLOADS.values()),
        *map(LogWork, LARGE_WORKLOADS.values()),
        *map(StoreWork, STORE_WORKLOADS.values()),
        ArchiveWork(),
    ]
}
# Logs whose disk acknowledges syncs without doing them, which power losses must reveal.
BROKEN_WORKS: Final[dict[str, Work]] = {
    work.name: work
    for work in [
        BrokenWork(WORKLOADS[name], without=("sync", "sync_directory"))
        for name in ("append, flush=batch", "roll, flush=batch")
    ]
}
