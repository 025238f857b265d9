"""The workloads of logs, stores, archives, and repairs, with one interface for all faults.

A `Work` runs on any disk with the methods of `SimFiles`, keeps its promise in a recorder, and judges a disk by a
promise, which may come from a dead process.
"""

from __future__ import annotations

import base64
import pickle
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import crash.transaction_workloads  # enters its workloads  # noqa: F401
from crash.archive_work import ArchiveRecorder
from crash.recorder import Outcome, Recorder, reopen
from crash.repair_work import DAMAGES, RepairRecorder
from crash.restore_work import RestoreRecorder
from crash.store_recorder import StoreRecorder, reopen_store, seeded_names
from crash.store_workloads import STORE_WORKLOADS
from crash.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash.repair_work import Damage
    from crash.sim import Disk
    from crash.store_workloads import StoreWorkload
    from crash.workloads import Workload


@dataclass(frozen=True, slots=True)
class Work:
    """A workload: its name, its action, and its judgement."""

    name: str
    begin: Callable[[Callable[[Disk], Any], int], Any]
    """Returns a recorder on a disk of this type, with chances drawn from a seed."""
    run: Callable[[Any], None]
    promise_of: Callable[[Any], object]
    """Returns what a recorder has promised at this moment, in a form that leaves its process."""
    judge: Callable[[Any, Disk, bool], list[str]]
    """Says how a disk breaks such a promise, when a process has died, or when power was lost."""

    def promise_line(self, recorder: Any) -> str:
        """Return the promise of a recorder as a line of text."""
        return base64.b64encode(pickle.dumps(self.promise_of(recorder))).decode()

    def judge_told(self, line: str, disk: Disk) -> list[str]:
        """Judge the disk of a dead process by a promise given as a line of text."""
        return self.judge(pickle.loads(base64.b64decode(line)), disk, False)


def work_on_log(workload: Workload, *, recorder_type: type[Recorder] = Recorder) -> Work:
    def begin(disk_type: Callable[[Disk], Any], seed: int) -> Recorder:
        chance = random.Random(f"{workload.name}, seed {seed}")
        on = recorder_type(workload.config, chance=chance, disk=workload.disk, disk_type=disk_type)  # type: ignore[arg-type]
        on.may_lack_room = True
        return on

    def judge(promised: Any, disk: Disk, is_power_loss: bool) -> list[str]:
        promise, epochs, now_ms = promised
        outcome: Outcome = reopen(disk, workload.config, epochs=epochs, now_ms=now_ms)
        return promise.violations(outcome, is_power_loss=is_power_loss)

    return Work(
        workload.name,
        begin,
        workload.run,
        lambda on: (on.promise, on.epochs, on.clock.now_ms()),
        judge,
    )


def work_on_store(workload: StoreWorkload) -> Work:
    def begin(disk_type: Callable[[Disk], Any], seed: int) -> StoreRecorder:
        chance = random.Random(f"{workload.name}, seed {seed}")
        return StoreRecorder(chance=chance, disk=workload.disk, disk_type=disk_type)  # type: ignore[arg-type]

    def run(on: StoreRecorder) -> None:
        with seeded_names(workload.name):
            workload.run(on)

    def judge(promised: Any, disk: Disk, is_power_loss: bool) -> list[str]:
        promise, now_ms = promised
        with seeded_names("reopening"):
            outcome = reopen_store(disk, now_ms=now_ms, transactions=list(promise.transactions))
        return promise.violations(outcome, is_power_loss=is_power_loss)

    return Work(workload.name, begin, run, lambda on: (on.promise, on.clock.now_ms()), judge)


def archiving(name: str, *, include_active: bool) -> Work:
    return Work(
        name,
        lambda disk_type, seed: ArchiveRecorder(disk_type, include_active=include_active),
        lambda on: on.run(),
        lambda on: on.promise,
        lambda promise, disk, is_power_loss: promise.violations(disk),
    )


def restoring() -> Work:
    return Work(
        "restore",
        lambda disk_type, seed: RestoreRecorder(disk_type),
        lambda on: on.run(),
        lambda on: on.promise,
        lambda promise, disk, is_power_loss: promise.violations(disk),
    )


def repairing(damage: Damage) -> Work:
    return Work(
        f"repair, {damage.__name__.replace('_', ' ')}",
        lambda disk_type, seed: RepairRecorder(disk_type, damage),
        lambda on: on.run(),
        lambda on: on.promise,
        lambda promise, disk, is_power_loss: promise.violations(disk),
    )


LOG_WORKS: Final = {name: work_on_log(workload) for name, workload in WORKLOADS.items()}
STORE_WORKS: Final = {name: work_on_store(workload) for name, workload in STORE_WORKLOADS.items()}
ARCHIVE_WORKS: Final = (
    archiving("archive", include_active=False),
    archiving("archive with active segments", include_active=True),
    restoring(),
)
FILE_WORKS: Final = {work.name: work for work in (*ARCHIVE_WORKS, *map(repairing, DAMAGES))}
"""Of archives and repairs."""
WORKS: Final = LOG_WORKS | STORE_WORKS | FILE_WORKS

# Workloads that make the disk fail themselves, and expect no other failure.
FAILING: Final = {
    "a sync fails",
    "a sync fails, flush=os",
    "the disk is full",
    "the disk is full, flush=batch",
    "sealing waits for room",
    "snapshots find no room",
    "store: create_topic refused",
}

# One for each kind of file operation, for suites that have no time for all workloads.
CHOSEN: Final = (
    "append, flush=os",
    "append, flush=interval",
    "append, flush=batch",
    "append_many, flush=batch",
    "writer",
    "roll, flush=batch",
    "seal",
    "checkpoint",
    "delete_before",
    "retention by size",
    "truncate_to",
    "reopen",
    "recovery after a kill",
    "producers",
    "leader epochs",
    "key indexes",
    "compaction",
    "compaction swap of two",
    "store: create",
    "store: create_topic beside another",
    "store: add_partitions",
    "store: alter_topic",
    "store: delete_topic with offsets",
    "store: commits",
    "store: maintain with retention",
    "store: a transaction over two topics",
    "store: a transaction after a kill, replayed",
    "archive",
    "repair, damage inside",
    "repair, lose the end",
)
