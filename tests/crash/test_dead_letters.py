"""Dead letters on a disk that loses power: no group is past a bad record that is not a dead letter."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

import pytest

import seeklog
from crash.sim import Detail, Disk, SimFiles
from log.workbench import TickingClock
from seeklog import LogConfig, Record, Store, TopicPartition
from seeklog.errors import SeeklogError

ROOT: Final = "/data"
SOURCE: Final = TopicPartition("orders", 0)
BAD: Final = frozenset({1, 2, 5})
COUNT: Final = 7
DETAIL: Final = Detail(prefixes=2, sectors=1, omissions=4, samples=2)
NEW_DISK: Final = Disk.of({}, directories=["/"])


def open_on(files: SimFiles) -> Store:
    return seeklog.open(ROOT, config=LogConfig(flush="batch"), background=False, clock=TickingClock(), files=files)


def consume(store: Store) -> list[int]:
    """Read everything, and commit after each poll."""
    seen: list[int] = []
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with store.consumer(
        ["orders"], group="g", value=json, dead_letter_topic="bad", max_poll_records=2, **options
    ) as consumer:
        while records := consumer.poll():
            seen += [record.offset for record in records]
            consumer.commit()
        consumer.commit()
    return seen


def dead_letters(store: Store) -> set[int]:
    return {
        int(dict(letter.headers)["__connect.errors.offset"] or b"")
        for number in range(2)
        for letter in store.log("bad", number).scan()
    }


def check(disk: Disk) -> None:
    sim = SimFiles(disk)
    with open_on(sim) as store:
        committed = 0
        if "g" in store.groups():
            found = store.describe_group("g").committed.get(SOURCE)
            committed = found.offset if found is not None else 0
        lost = {offset for offset in BAD if offset < committed} - dead_letters(store)
        assert not lost, f"the group is at {committed}, and {lost} are not dead letters"
        seen = consume(store)
        assert set(range(committed, COUNT)) - BAD <= set(seen)
        assert dead_letters(store) == BAD


def explore(disk_type: type[SimFiles], *, step: int) -> int:
    """Consume, and check every state that a power loss may leave at each `step`th step. Return how many there were."""
    sim = disk_type(NEW_DISK)
    with open_on(sim) as store:
        store.create_topic("orders", partitions=1)
        store.create_topic("bad", partitions=2)
        with store.writer("orders", 0) as log:
            for offset in range(COUNT):
                value = b"{" if offset in BAD else b"%d" % offset
                log.append_many([Record(value, key=b"%d" % offset)])
        states: set[bytes] = set()
        problems: list[Exception] = []
        boundaries = itertools.count()

        def observe(at: SimFiles) -> None:
            if next(boundaries) % step or problems:
                return
            for disk in (*(disk for _, disk in at.crash_states(DETAIL)), at.disk()):
                if disk.digest() not in states:
                    states.add(disk.digest())
                    try:
                        check(disk)
                    except (AssertionError, SeeklogError) as error:
                        problems.append(error)  # raised here it would go through the store that is consumed
                        return

        sim.on_boundary = observe
        assert consume(store) == [offset for offset in range(COUNT) if offset not in BAD]
        sim.on_boundary = None
    if problems:
        raise problems[0]
    return len(states)


@pytest.mark.id("dead-letter-crash-states")
def test_no_group_is_past_a_bad_record_that_is_not_a_dead_letter() -> None:
    assert explore(SimFiles, step=29) > 100


@pytest.mark.slow
def test_no_group_is_past_a_bad_record_at_every_third_step() -> None:
    assert explore(SimFiles, step=3) > 1000


class NoSyncOfLetters(SimFiles):
    def sync(self, handle: int) -> None:
        path = self._handle(handle).path
        if not ("/bad-" in path and path.endswith(".log")):
            super().sync(handle)


def test_dead_letters_without_a_sync_are_caught() -> None:
    """Goal: the tests above can fail."""
    with pytest.raises(AssertionError, match="are not dead letters"):
        explore(NoSyncOfLetters, step=29)
