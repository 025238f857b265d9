"""Plans: they predict exactly what is removed, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from log import workbench
from log.workbench import BATCH_BYTES, START_MS, FakeClock, config_of, fill
from seeklog import Log, LogReader, Record
from seeklog.errors import OffsetOutOfRange
from seeklog.log.clean.removal import Removal

DAY_MS = 24 * 3600 * 1000


def open_log(path: Path, **settings: Any) -> Log:
    """Open a log whose segments have room for four batches."""
    return workbench.open_log(path, **{"segment_bytes": 4 * BATCH_BYTES, **settings})


def open_reader(path: Path, **settings: Any) -> LogReader:
    return workbench.open_reader(path, **{"segment_bytes": 4 * BATCH_BYTES, **settings})


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


def planned(directory: Path, clock: FakeClock, plan: str, *offset: int, **config: Any) -> Removal:
    """Return the answer of a process that only reads; nothing on disk changes."""
    before = bytes_of(directory)
    with open_reader(directory, clock=clock, **config) as log:
        found: Removal = getattr(log, plan)(*offset)
    assert bytes_of(directory) == before
    return found


def went(directory: Path, clock: FakeClock, work: str, *offset: int, **config: Any) -> Removal:
    """Run the operation, and return what was removed, from the numbers before and after."""
    with open_log(directory, clock=clock, **config) as log:
        start, end, size, count = log.log_start_offset, log.log_end_offset, log.size_bytes, log.segment_count
        own_plan = getattr(log, {"retain": "plan_retention"}.get(work, f"plan_{work}"))(*offset)
        if work == "retain":
            count += log.roll_if_due()
        getattr(log, work)(*offset)
        is_cut = work == "truncate_to"
        first, next_offset = (log.log_end_offset, end) if is_cut else (start, log.log_start_offset)
        done = Removal(
            first_offset=first,
            next_offset=next_offset,
            segment_count=count - log.segment_count,
            size_bytes=size - log.size_bytes,
            causes=own_plan.causes,
        )
    assert own_plan == done
    return done


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.id("dry-run-retention")
@pytest.mark.parametrize("retention", [{"retention_ms": 0}, {"retention_ms": 5 * DAY_MS}, {"retention_ms": -1}])
@pytest.mark.parametrize("size", [{"retention_bytes": -1}, {"retention_bytes": 0}, {"retention_bytes": 700}])
@pytest.mark.parametrize("days", [0, 3, 8, 400])
def test_retention_plan_matches_what_is_removed(
    tmp_path: Path, clock: FakeClock, retention: dict[str, int], size: dict[str, int], days: int
) -> None:
    config = {**retention, **size}
    with open_log(tmp_path, clock=clock, **config) as log:
        fill(log, 30)
    clock.advance(days * DAY_MS)

    plan = planned(tmp_path, clock, "plan_retention", **config)

    assert plan == went(tmp_path, clock, "retain", **config)


@pytest.mark.id("dry-run-deletion")
@pytest.mark.parametrize("offset", range(31))
def test_delete_plan_matches_what_is_removed(tmp_path: Path, clock: FakeClock, offset: int) -> None:
    with open_log(tmp_path, clock=clock) as log:
        fill(log, 30)
        log.delete_before(4)

    plan = planned(tmp_path, clock, "plan_delete_before", offset)

    assert plan == went(tmp_path, clock, "delete_before", offset)
    assert plan.is_empty == (offset <= 4)


@pytest.mark.id("dry-run-truncation")
@pytest.mark.parametrize("offset", range(31))
def test_truncation_plan_matches_what_is_removed(tmp_path: Path, clock: FakeClock, offset: int) -> None:
    with open_log(tmp_path, clock=clock) as log:
        for _ in range(10):
            log.append_many([Record(value=value, timestamp_ms=START_MS) for value in (b"first", b"second", b"third")])

    plan = planned(tmp_path, clock, "plan_truncate_to", offset)

    assert plan == went(tmp_path, clock, "truncate_to", offset)
    # The whole batch is removed.
    assert plan.first_offset == offset - offset % 3


@pytest.mark.parametrize(("plan", "offset"), [("plan_truncate_to", 31), ("plan_delete_before", 31)])
def test_offset_outside_the_log_is_refused(tmp_path: Path, clock: FakeClock, plan: str, offset: int) -> None:
    with open_log(tmp_path, clock=clock) as log:
        fill(log, 30)
        with pytest.raises(OffsetOutOfRange):
            getattr(log, plan)(offset)


def test_segment_without_seal_counts_as_if_sealed_now(tmp_path: Path, clock: FakeClock) -> None:
    config = {"retention_ms": DAY_MS}
    with open_log(tmp_path, clock=clock, **config) as log:
        fill(log, 30)
    for path in tmp_path.glob("*.seal"):
        path.unlink()
    clock.advance(2 * DAY_MS)

    plan = planned(tmp_path, clock, "plan_retention", **config)

    assert plan == went(tmp_path, clock, "retain", **config)
    assert not plan.is_empty


def test_dirty_part_is_reported_without_writing(tmp_path: Path, clock: FakeClock) -> None:
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.1}
    with open_log(tmp_path, clock=clock, **settings) as log:
        for number in range(30):
            log.append(b"value", key=b"key%d" % (number % 3), timestamp_ms=START_MS + number)
        log.flush()
        seen_by_writer = log.cleanable()
    assert seen_by_writer.dirty_bytes > 0

    before = bytes_of(tmp_path)
    with open_reader(tmp_path, clock=clock, **settings) as log:
        assert log.cleanable().dirty_bytes == seen_by_writer.dirty_bytes
        assert log.cleanable().is_due(config_of(**settings))
    assert bytes_of(tmp_path) == before

    with open_log(tmp_path, clock=clock, **settings) as log:
        log.compact()
    with open_reader(tmp_path, clock=clock, **settings) as log:
        assert log.cleanable().dirty_bytes == 0
