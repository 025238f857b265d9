"""After any crash a topic exists completely or not at all, commits are kept, and other topics are unchanged."""

from __future__ import annotations

import os
import random

import pytest

import crash.transaction_workloads  # enters its workloads  # noqa: F401
from crash.sim import SimFiles
from crash.store_explore import explore_store
from crash.store_recorder import ROOT, StoreRecorder, open_store
from crash.store_workloads import STORE_WORKLOADS
from seeklog import names
from seeklog.errors import SeeklogError

# Some 8 seconds on one core for all of them: a state costs 20 ms. `make proof` judges 30,000.
STATES_PER_WORKLOAD = 8
# Seeds with which these few states have found bugs.
STATES_WITH_SEED = 20
SEEDS = {
    "store: create_topic after a kill": 1,
    "store: add_partitions after a kill": 8,
    "store: alter_topic after a kill": 1,
    "store: delete_topic after a kill": 5,
    "store: sends, flush=interval": 21,
    "store: the first commit": 16,
}
SEED = 1


@pytest.mark.id("store-crash-states")
@pytest.mark.parametrize("name", STORE_WORKLOADS)
def test_crash_at_any_operation_keeps_every_promise_of_a_store(name: str) -> None:
    """Goal: no state after a power loss or a kill breaks the promise of a returned call."""
    tally = explore_store(STORE_WORKLOADS[name], states=STATES_PER_WORKLOAD, seed=SEED)

    print(f"{tally.workload}: {tally.states:,} states at {tally.boundaries:,} boundaries, seed {tally.seed}")
    assert not tally.violations, "\n".join(tally.violations)
    # Few states are drawn, and some of them are the same.
    assert tally.states >= STATES_PER_WORKLOAD // 4


@pytest.mark.parametrize(("name", "seed"), SEEDS.items())
def test_seed_that_once_found_a_violation_finds_none(name: str, seed: int) -> None:
    """Goal: the state shown by an open after a kill survives a power loss; readers see what recovery finds."""
    tally = explore_store(STORE_WORKLOADS[name], states=STATES_WITH_SEED, seed=seed)

    assert not tally.violations, "\n".join(tally.violations)


def test_a_consumer_sees_acknowledged_records_after_a_power_loss() -> None:
    on = StoreRecorder(chance=random.Random(1))
    on.open()
    on.create_topic("orders", flush="batch")
    on.send("orders", 3)

    with open_store(SimFiles(on.sim.durable_disk())) as store:
        consumer = store.consumer(["orders"], auto_offset_reset="earliest")
        assert len(consumer.poll(0)) == 3


def test_describing_a_group_read_only_changes_nothing() -> None:
    on = StoreRecorder(chance=random.Random(1))
    on.open()
    on.create_topic("orders")
    on.join("fraud", ["orders"])
    on.kill()
    sim = SimFiles(on.sim.disk())
    before = sim.disk()

    with open_store(sim, read_only=True) as store:
        assert store.describe_group("fraud").members == ()

    assert sim.disk() == before


class NoSync(SimFiles):
    """A disk whose sync does nothing."""

    def sync(self, handle: int) -> None:
        pass


class NoRootSync(SimFiles):
    """A disk that ignores syncs of the root directory."""

    def sync_directory(self, path: str) -> None:
        if path != ROOT:
            super().sync_directory(path)


class NoPartitionSync(SimFiles):
    """A disk that ignores syncs of partition directories."""

    def sync_directory(self, path: str) -> None:
        if names.parse_partition_name(os.path.basename(path)) is None:
            super().sync_directory(path)


class NoDirectoryRename(SimFiles):
    """A disk on which a directory keeps its name."""

    def rename(self, source: str, target: str) -> None:
        if self.kind(source) == "file":
            super().rename(source, target)


@pytest.mark.id("store-crash-states-sensitive")
@pytest.mark.parametrize(
    ("disk_type", "name"),
    [
        (NoSync, "create"),
        (NoSync, "the first commit"),
        (NoSync, "sends, flush=batch"),
        (NoRootSync, "add_partitions"),
        (NoRootSync, "alter_topic"),
        (NoRootSync, "delete_topic with records"),
        (NoPartitionSync, "sends, flush=batch"),
        (NoDirectoryRename, "delete_topic with records"),
        (NoDirectoryRename, "delete_topic and create it again"),
    ],
)
def test_store_without_a_step_is_caught(disk_type: type[SimFiles], name: str) -> None:
    """Goal: the suite can fail. A disk that ignores a call simulates a store that never makes it."""
    try:
        tally = explore_store(STORE_WORKLOADS[f"store: {name}"], states=30, seed=SEED, disk_type=disk_type)
    except (SeeklogError, AssertionError):
        return  # the store's calls or the recorder's checks failed first
    assert tally.violations
