"""Explores the crash states of a store's workload: every state at every boundary is reopened and judged."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from crash.explore import Explorer
from crash.sim import SimFiles
from crash.store_promise import StoreOutcome
from crash.store_recorder import ROOT, StoreRecorder, reopen_store, seeded_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash.explore import Tally
    from crash.sim import Disk
    from crash.store_workloads import StoreWorkload

STATES_LEAST: Final = 3  # at an observed boundary: nothing, everything, and one state between


class StoreExplorer(Explorer[StoreRecorder, StoreOutcome]):
    """Explores one workload of a store. A state costs some twenty times as much as one of a log."""

    states_least = STATES_LEAST

    def __init__(
        self,
        workload: StoreWorkload,
        *,
        seed: int,
        disk_type: type[SimFiles] = SimFiles,
    ) -> None:
        super().__init__(workload.name, seed=seed, disk_type=disk_type)
        self.workload = workload

    def _run(self, recorder: StoreRecorder) -> None:
        with seeded_names(self.workload.name):
            self.workload.run(recorder)

    def _recorder(self, seed: int, observe: Callable[[StoreRecorder], None] | None = None) -> StoreRecorder:
        return StoreRecorder(
            chance=random.Random(f"{self.workload.name}, seed {seed}"),
            observe=observe,
            disk=self.workload.disk,
            disk_type=self._disk_type,
        )

    def _reopen(self, recorder: StoreRecorder, disk: Disk) -> StoreOutcome:
        # Random names drawn while judging must not change those of the workload.
        with seeded_names("reopening"):
            return reopen_store(disk, now_ms=recorder.clock.now_ms(), transactions=list(recorder.promise.transactions))

    def _key(self, recorder: StoreRecorder, disk: Disk) -> bytes:
        # Judging commits transactions again, which the disk alone does not determine.
        return disk.digest() + len(recorder.promise.transactions).to_bytes(2, "big")

    def _check_living(self, recorder: StoreRecorder, seen: Disk, outcome: StoreOutcome) -> None:
        """Check that a process that opens the store for reading at this moment sees everything acknowledged."""
        if not recorder.is_open or outcome.problem:
            return
        if outcome.read_only is None:
            self._report(recorder, "reader", ["a store that is open in another process was refused"], seen)
            return
        for name, possible in recorder.promise.topics.items():
            topic, found = possible[-1], outcome.read_only.get(name)
            if len(possible) > 1 or topic is None or found is None:
                continue  # it is being changed; whether it is there at all the promise has judged
            for number, (promise, log) in enumerate(zip(topic.logs, found.logs, strict=True)):
                if log.high_watermark < promise.acknowledged_end:
                    problem = f"{name}-{number} up to {log.high_watermark}, {promise.acknowledged_end} is acknowledged"
                    self._report(recorder, "reader", [f"a reader sees {problem}"], seen)

    def _root(self) -> str:
        return ROOT


def explore_store(
    workload: StoreWorkload,
    *,
    states: int,
    seed: int,
    disk_type: type[SimFiles] = SimFiles,
) -> Tally:
    """Run one workload until about this many crash states are judged."""
    return StoreExplorer(workload, seed=seed, disk_type=disk_type).run(states)
