"""Processes that write one partition in turns, killed around each of their changes: the others lose nothing."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import seeklog
from faults.children import Child, KillingFiles
from log.workbench import PATIENCE_S
from seeklog.names import TopicPartition
from store.workbench import open_store, read

if TYPE_CHECKING:
    from collections.abc import Callable

T0 = TopicPartition("t", 0)
POLICIES = ["os", "interval", "batch"]
SEED = 1
KILLS = 6
# A step coprime to the changes per turn, so that the short run has each kind.
STEP = 13
TURNS = 6
NEVER = 10**9


def create(root: Path, flush: str) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=1, config={"flush": flush, "segment.bytes": 1500})


def take_turns(root: Path, files: KillingFiles, *, is_numbered: bool) -> Callable[[Callable[[str], None]], None]:
    """Return the action of a child that appends a record per turn, and reports its offset."""

    def act(report: Callable[[str], None]) -> None:
        with seeklog.open(root, files=files, background=False) as store:
            options = {"name": "child", "resume": True} if is_numbered else {}
            with store.producer(linger_ms=0, **options) as producer:
                sent = producer.written(T0) if is_numbered else 0
                for number in range(sent, sent + TURNS):
                    future = producer.send("t", b"child %0150d" % number, partition=0)
                    report(f"{future.result(PATIENCE_S).offset}")
                    store._table.end_idle_turns()
        report("done")

    return act


def kill_in_turn(root: Path, flush: str, number: int, *, is_before: bool) -> bool:
    """Kill a child at its nth change, while this process has the partition open; return whether it made that many."""
    create(root, flush)
    with seeklog.open(root) as store, store.producer(linger_ms=0) as producer:

        def send(number: int) -> int:
            return producer.send("t", b"parent %0150d" % number, partition=0).result(PATIENCE_S).offset

        acknowledged = {send(0): b"parent %0150d" % 0}
        files = KillingFiles(kill_at=number, is_before=is_before)
        child = Child(take_turns(root, files, is_numbered=False))
        for turn in range(TURNS):
            line = child.line()
            if not line.isdigit():
                break
            acknowledged[int(line)] = b"child %0150d" % turn
            acknowledged[send(turn + 1)] = b"parent %0150d" % (turn + 1)
        lines = child.rest()
        exit_code = child.wait()
        assert exit_code in (0, -signal.SIGKILL), lines
        acknowledged[send(NEVER)] = b"parent %0150d" % NEVER
    with open_store(root) as store:
        values = read(store, "t")
    for offset, value in acknowledged.items():
        assert values[offset] == value, f"kill {number}, {is_before=}: offset {offset}"
    unacknowledged = len(values) - len(acknowledged)
    assert 0 <= unacknowledged <= (exit_code != 0), "more than the append in progress"
    return exit_code != 0


@pytest.mark.id("kill-in-turn")
@pytest.mark.parametrize("flush", POLICIES)
def test_kill_of_one_process_at_any_change_costs_the_others_no_record(flush: str, tmp_path: Path) -> None:
    kills = 0
    for is_before in (True, False):
        number = 1 + is_before
        while kill_in_turn(tmp_path / f"{is_before}-{number}", flush, number, is_before=is_before):
            kills += 1
            number += STEP
    print(f"flush={flush}: {kills} kills")
    assert kills > 2 * TURNS / STEP


@pytest.mark.id("numbered-kill-in-turn")
def test_numbered_records_of_killed_processes_are_there_once(tmp_path: Path) -> None:
    """Goal: a producer that resumes after a kill continues with the right record, beside another process."""
    create(tmp_path, "os")
    chance = random.Random(SEED)
    with seeklog.open(tmp_path) as store, store.producer(linger_ms=0) as producer:
        producer.send("t", b"parent", partition=0).result(PATIENCE_S)
        for kill_at in [*(chance.randrange(1, 150) for _ in range(KILLS)), NEVER]:
            files = KillingFiles(kill_at=kill_at, is_before=chance.random() < 0.5)
            child = Child(take_turns(tmp_path, files, is_numbered=True))
            while child.line().isdigit():
                producer.send("t", b"parent", partition=0).result(PATIENCE_S)
            child.rest()
            child.wait()
    with open_store(tmp_path) as store, store.producer(name="child", resume=True) as resumed:
        written = resumed.written(T0)
        mine = [value for value in read(store, "t") if value is not None and value.startswith(b"child")]
    assert mine == [b"child %0150d" % number for number in range(written)]
    assert written >= TURNS


@pytest.mark.id("random-kills-in-turn")
def test_processes_killed_at_any_moment_lose_no_acknowledged_record(tmp_path: Path) -> None:
    """Goal: the victim may have the lock, wait for it, or be next."""
    create(tmp_path, "interval")

    def produce(name: str) -> Callable[[Callable[[str], None]], None]:
        def act(report: Callable[[str], None]) -> None:
            with seeklog.open(tmp_path) as store, store.producer(linger_ms=0) as producer:
                for number in range(NEVER):
                    value = b"%s %d" % (name.encode(), number)
                    report(f"{producer.send('t', value, partition=0).result(PATIENCE_S).offset} {value.decode()}")

        return act

    chance = random.Random(SEED)
    acknowledged: dict[int, bytes] = {}

    def note(child: Child, *, until: int) -> None:
        for _ in range(until):
            offset, _, value = child.line().partition(" ")
            assert int(offset) not in acknowledged
            acknowledged[int(offset)] = value.encode()

    living = [Child(produce(f"{number}")) for number in range(3)]
    for number in range(KILLS):
        for child in living:
            note(child, until=chance.randrange(20))
        victim = living.pop(chance.randrange(3))
        os.kill(victim.pid, signal.SIGKILL)
        for line in victim.rest():
            acknowledged[int(line.split()[0])] = line.partition(" ")[2].encode()
        victim.wait()
        living.append(Child(produce(f"{number + 3}")))
    for child in living:
        note(child, until=1)
        os.kill(child.pid, signal.SIGKILL)
        for line in child.rest():
            acknowledged[int(line.split()[0])] = line.partition(" ")[2].encode()
        child.wait()
    with open_store(tmp_path) as store:
        values = read(store, "t")
    assert {offset: values[offset] for offset in acknowledged} == acknowledged
    assert len(values) - len(acknowledged) <= KILLS + 3
