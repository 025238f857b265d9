"""Stores to damage: closed, killed during a commit, left by a broker; and an archive."""

from __future__ import annotations

import contextlib
import functools
import posixpath
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import seeklog
from crash.recorder import Content, Outcome, producers_of, read_everything
from crash.sim import Disk, SimFiles
from crash.store_promise import GroupFound, TopicFound
from crash.store_recorder import ROOT, StoreRecorder, look_at_groups, open_store, seeded_names
from faults.damage import Harm, Verdict, changes, difference
from log.workbench import FakeClock
from seeklog import names
from seeklog.store import Store, transactions_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from seeklog import Log

APP: Final = "nightly"
PRODUCER: Final = "loader"
ARCHIVE: Final = "/data/cold/archive"
# Kafka's text files in the root and in partitions have no checksum, and a broker believes them.
WITHOUT_CHECKSUM: Final = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANED_OFFSETS,
    names.LEADER_EPOCHS,
    names.PARTITION_METADATA,
    names.META_PROPERTIES,
)


@dataclass(frozen=True, slots=True)
class StoreAnswers:
    """Everything a caller can read from a store."""

    topics: dict[str, TopicFound]
    groups: dict[str, GroupFound]
    versions: dict[str, int | None]
    """The last transaction of each application."""
    producers: dict[str, tuple[int, int]]
    """Id and epoch of named producers; a reader knows none."""


@dataclass(slots=True)
class StoreVictim:
    """One store, and the reads of it."""

    name: str
    disk: Disk
    root: str = ROOT
    unprotected: Collection[str] = ()
    """Names of files of which nothing is promised: what they say is believed."""
    _expected: dict[bool, StoreAnswers] = field(init=False, default_factory=dict)

    def expected(self, *, read_only: bool) -> StoreAnswers:
        if read_only not in self._expected:
            with self.open(SimFiles(self.disk), read_only=read_only) as store:
                self._expected[read_only] = self.ask(store, expected=None)
        return self._expected[read_only]

    def open(self, files: SimFiles, *, read_only: bool) -> Store:
        if self.root == ROOT:
            return open_store(files, read_only=read_only)
        return seeklog.open(self.root, read_only=True, background=False, files=files)

    def ask(self, opened: Store, *, expected: StoreAnswers | None) -> StoreAnswers:
        producers = {}
        if not opened.read_only and not self.unprotected:
            identity = opened._producer_ids.claim(PRODUCER, resume=True)
            producers[PRODUCER] = identity.producer_id, identity.epoch
            identity.release()
        return StoreAnswers(
            topics=dict(_topics_of(opened)),
            groups=look_at_groups(opened),
            versions={APP: transactions_of(opened).last_version(APP)} if self.root == ROOT else {},
            producers=producers,
        )

    def changes(self, before: Disk, after: Disk, *, path: str, was_opened: bool) -> str:
        if not was_opened:
            return changes(before, after, was_opened=False)
        # An open store continues except for the damaged file, which must be unchanged.
        return changes(_only(before, path), _only(after, path), was_opened=True)

    def verdict(self, found: StoreAnswers, harm: Harm) -> Verdict:
        if self.unprotected and (
            posixpath.basename(harm.path) in self.unprotected or _contents(found) == _contents(harm.expected)
        ):
            return Verdict("believed")
        return Verdict("SILENT", difference(found, harm.expected))


def _contents(answers: StoreAnswers) -> dict[str, list[list[Content]]]:
    """Remove offsets and leader epochs, which no CRC covers in batches, and a broker's directory has no seals."""
    return {name: [list(log.records.values()) for log in topic.logs] for name, topic in answers.topics.items()}


def _only(disk: Disk, path: str) -> Disk:
    return Disk.of({path: disk.files[path]} if path in disk.files else {})


def _topics_of(store: Store) -> Iterator[tuple[str, TopicFound]]:
    """Yield topics with their logs; a store open for writing opens each log, which recovers it."""
    for name in store.topics(internal=True):
        described = store.describe_topic(name)
        logs = []
        for number in [found.partition for found in described.partitions]:
            holding: Any = contextlib.nullcontext(store.log(name, number))
            if not store.read_only:
                holding = store.writer(name, number)
            with holding as log:
                logs.append(_look(log))
        yield name, TopicFound(described.topic_id, dict(described.configured), tuple(logs))


def _look(log: Log) -> Outcome:
    return Outcome(
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        leader_epoch=log.leader_epoch,
        records={record.offset: Content.of(record) for record in read_everything(log)},
        producers=producers_of(log),
    )


# ------------------------------------------------------------ the stores


def fill(on: StoreRecorder) -> None:
    """Fill two topics, one of several segments, two groups, a committed transaction, and a named producer."""
    on.open()
    on.create_topic("orders", partitions=2)
    on.create_topic("payments", segment_bytes=300, max_message_bytes=300)
    on.transact(APP, 0, {("orders", 0): (1,), ("payments", 0): (1,)})
    on.send("orders", 2, 1)
    on.send("payments", 9, size=100)
    on.commit("fraud", {("orders", 0): 1, ("orders", 1): 1})
    on.commit("billing", {("payments", 0): 2})
    on.store._producer_ids.claim(PRODUCER, resume=False)
    on.maintain()


@functools.cache
def closed_store() -> StoreVictim:
    return StoreVictim("closed store", _disk_of(is_killed=False))


@functools.cache
def killed_store() -> StoreVictim:
    """Return a store whose process was killed after it committed a transaction over two topics, before the appends."""
    return StoreVictim("store killed in a commit", _disk_of(is_killed=True))


def _disk_of(*, is_killed: bool) -> Disk:
    with seeded_names("damage"):
        on = StoreRecorder(chance=random.Random("damage"))
        fill(on)
        if is_killed:
            commit = partial(on.transact, APP, 1, {("orders", 0): (1,), ("payments", 0): (2,)})
            on.kill_when(commit, names.transaction_name(names.app_key(APP)))
        else:
            on.close()
    return _without_locks(on.sim.disk())


def _without_locks(disk: Disk) -> Disk:
    return Disk(disk.directories, {path: data for path, data in disk.files.items() if not path.endswith(names.LOCK)})


@functools.cache
def broker_store() -> StoreVictim:
    """Return the same with only Kafka's files, as left by a broker."""
    disk = closed_store().disk
    kept = {
        path: data
        for path, data in disk.files.items()
        if not posixpath.basename(path).startswith("seeklog-") and not path.endswith((names.SEAL, names.KEY_INDEX))
    }
    kept[f"{ROOT}/{names.META_PROPERTIES}"] = b"version=1\nnode.id=1\ncluster.id=c\n"
    return StoreVictim("broker's directory", Disk(disk.directories, kept), unprotected=WITHOUT_CHECKSUM)


@functools.cache
def archive() -> StoreVictim:
    """Return the archive of the closed store."""
    sim = SimFiles(closed_store().disk)
    with open_store(sim, clock=FakeClock()) as store:
        store.archive(ARCHIVE)
    disk = _without_locks(sim.disk())
    files = {path: data for path, data in disk.files.items() if path.startswith(ARCHIVE)}
    return StoreVictim("archive", Disk.of(files), root=ARCHIVE)


def own_files(victim: StoreVictim) -> list[str]:
    """Return the files of the store outside of logs: those of its root and groups, staged files, and metadata."""
    return sorted(
        path
        for path in victim.disk.files
        if posixpath.dirname(path) == victim.root
        or f"/{names.CONSUMER_OFFSETS}-" in path
        or posixpath.basename(path).startswith(names.STAGED)
        or path.endswith(names.PARTITION_METADATA)
    )
