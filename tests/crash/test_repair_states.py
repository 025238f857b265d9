"""Power losses and kills during the repair of a damaged log: the next repair has the same result."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from crash.faulty import FaultyFiles
from crash.recorder import Recorder
from crash.repair_work import (
    CONFIG,
    DAMAGES,
    PATH,
    RepairPromise,
    RepairRecorder,
    append_all,
    damage_inside,
    damage_the_checkpoint,
    damaged_disk,
    flipped,
    killed_log,
    lost_offsets,
    mend,
    read_all,
)
from crash.sim import Detail, Disk, SimFiles
from faults.children import KillingFiles
from log.workbench import FakeClock, config_of
from seeklog import Log, names
from seeklog.errors import CorruptionError, NotAccessible
from seeklog.log.check.repair_work import repair
from seeklog.log.side.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from crash.repair_work import Damage

DETAIL: Final = Detail(prefixes=2, sectors=2, omissions=6, samples=2)
# Everything but one, each in turn, and some more.
NAMES: Final = Detail(prefixes=1, sectors=1, omissions=24, samples=12)
# A lower bound for each case; fewer states would mean that nothing is observed.
STATES_LEAST: Final = 40


@pytest.mark.id("repair-crash-states")
@pytest.mark.parametrize("damage", DAMAGES)
def test_next_repair_completes_one_that_a_crash_interrupted(damage: Damage) -> None:
    whole = SimFiles(Disk.of({}, directories=["/data"]))
    values = append_all(PATH, whole)
    recorder = RepairRecorder(SimFiles, damage)
    promise, files = recorder.promise, recorder.sim
    seen: dict[bytes, Disk] = {}

    def watch(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(DETAIL):
            seen.setdefault(disk.digest(), disk)
        seen.setdefault(sim.disk().digest(), sim.disk())

    files.on_boundary = watch
    recorder.run()
    files.on_boundary = None
    assert read_all(PATH, files) == promise.records
    assert promise.records.items() <= values.items()
    assert len(seen) >= STATES_LEAST, len(seen)
    for disk in seen.values():
        assert promise.violations(disk) == []


@pytest.mark.id("repair-syncs-first")
@pytest.mark.parametrize("damage", [damage_inside, damage_the_checkpoint])
def test_repair_promises_nothing_that_only_the_page_cache_holds(damage: Damage) -> None:
    """Goal: the writer was killed before a sync; a power loss during or after the repair leaves no gap."""
    files = killed_log(damage)
    seen: dict[bytes, Disk] = {}

    def watch(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(DETAIL):
            seen.setdefault(disk.digest(), disk)

    files.on_boundary = watch
    mend(PATH, files)
    files.on_boundary = None
    assert read_all(PATH, SimFiles(files.durable_disk())) == read_all(PATH, files)
    promised = 0
    for disk in seen.values():
        left = SimFiles(disk)
        with contextlib.suppress(CorruptionError):
            read_checkpoint(left, PATH)
            mend(PATH, left)
            with Log(PATH, config=CONFIG, files=left, clock=FakeClock(), background=False) as log:
                there = {record.offset for record in log.scan()} | lost_offsets(left.disk())
                assert there == set(range(log.log_end_offset))
            promised += 1
    assert promised >= STATES_LEAST, promised


@pytest.mark.id("repair-names-durable")
@pytest.mark.parametrize("nth", [1, 2])
def test_repair_removes_no_file_before_its_replacement_is_durable(nth: int) -> None:
    """Goal: a compaction was killed right after the rename of a new segment; power is lost during the repair."""
    config = config_of(flush="batch", segment_bytes=1400, cleanup_policy="compact")
    recorder = Recorder(config, chance=random.Random(1))
    recorder.open()
    for number in range(36):
        recorder.append(b"%0240d" % number, key=b"%d" % (number % 16 if number % 4 else 0))
        if number == 14:
            recorder.compact()
    expected = {record.key: record.value for record in recorder.log.scan()}
    recorder.kill_at_rename(recorder.compact, to=names.LOG + names.SWAP, nth=nth)
    files = recorder.sim
    seen: dict[bytes, Disk] = {}

    def watch(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(NAMES):
            seen.setdefault(disk.digest(), disk)

    files.on_boundary = watch
    repair(PATH, config=config, files=files, clock=FakeClock())
    files.on_boundary = None
    assert len(seen) >= STATES_LEAST, len(seen)
    for disk in seen.values():
        with Log(PATH, config=config, files=SimFiles(disk), clock=FakeClock(), background=False) as log:
            assert {record.key: record.value for record in log.scan()} == expected


@pytest.mark.id("repair-killed")
@pytest.mark.parametrize("is_before", [True, False])
def test_next_repair_completes_one_killed_at_any_change(tmp_path: Path, is_before: bool) -> None:
    source = tmp_path / "whole"
    values = append_all(str(source), KillingFiles(kill_at=-1, is_before=True))
    for path in sorted(source.glob("*.log"))[1:]:
        path.write_bytes(flipped(path.read_bytes(), 70))
    expected: dict[int, bytes] | None = None
    for number in range(1, 10_000):
        path = tmp_path / f"log-{number}"
        shutil.copytree(source, path)
        child = os.fork()
        if child == 0:
            mend(str(path), KillingFiles(kill_at=number, is_before=is_before))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        files = KillingFiles(kill_at=-1, is_before=True)
        mend(str(path), files)
        found = read_all(str(path), files)
        assert found.items() <= values.items()
        assert expected in (None, found), number
        expected = found
        shutil.rmtree(path)
        if os.WIFEXITED(status):
            assert number > 20  # a repair of two segments has more changes
            return
    raise AssertionError("it is never done")


@pytest.mark.parametrize("method", ["write", "sync", "rename", "remove", "sync_directory"])
def test_repair_on_failing_disk_raises_our_error_and_next_completes(method: str) -> None:
    before = damaged_disk(DAMAGES[0])
    promise = RepairPromise.of(before)
    for number in range(1, 1000):
        sim = SimFiles(before)
        files = FaultyFiles(sim, methods={method}, fail_at=number)
        with contextlib.suppress(NotAccessible):
            mend(PATH, files)
        if not files.failures:
            break
        assert promise.violations(sim.disk()) == [], number
    assert number > 1
