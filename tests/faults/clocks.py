"""Logs whose clock is wrong: it goes back, is years ahead, or stands still. Reads by time must not depend on it."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from crash.recorder import NEW_DISK, PATH, read_everything
from crash.sim import SimFiles
from log.workbench import START_MS, FakeClock
from seeklog import Log, LogConfig, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from seeklog import Record

DAY_MS: Final = 24 * 3600 * 1000
YEAR_MS: Final = 365 * DAY_MS
FAKETIME: Final = shutil.which("faketime")
# The steps of a clock.
JUMPS: Final = (0, 0, 0, 1, 40, 3000, DAY_MS, 10 * YEAR_MS, -1, -3000, -DAY_MS, -10 * YEAR_MS)


def run_with_jumping_clock(seed: int) -> Iterator[str]:
    """Append, roll, apply retention, and reopen while the clock jumps; yield what is wrong."""
    chance = random.Random(seed)
    clock, sim = FakeClock(START_MS), SimFiles(NEW_DISK)
    stamped = chance.choice(("CreateTime", "LogAppendTime"))
    retention_ms = chance.choice((-1, 2 * DAY_MS, 5 * YEAR_MS))
    config = LogConfig.from_mapping(
        {
            "flush": chance.choice(("os", "batch")),
            "segment_bytes": chance.choice((300, 900)),
            "index_interval_bytes": chance.choice((0, 100)),
            "segment_ms": chance.choice((DAY_MS, 10**12)),
            "message_timestamp_type": stamped,
            "retention_ms": retention_ms,
        }
    )
    log = Log(PATH, config=config, files=sim, clock=clock, background=False)
    for step in range(40):
        clock.advance(max(chance.choice(JUMPS), -clock.now_ms()))
        own = max(0, clock.now_ms() + chance.choice(JUMPS)) if chance.random() < 0.5 else None
        log.append(b"value %03d" % step, timestamp_ms=None if stamped == "LogAppendTime" else own)
        act = chance.random()
        if act < 0.15:
            active = max(segment.base_offset for segment in log._source.view.segments)
            log.retain()
            if log.log_start_offset > active:
                yield f"step {step}: the active segment, from {active} on, was deleted up to {log.log_start_offset}"
        elif act < 0.2:
            log.roll_if_due()
        elif act < 0.3:
            log.close()
            log = Log(PATH, config=config, files=sim, clock=clock, background=False)
    yield from differences(log)
    if retention_ms >= 0:
        yield from outlived(log, clock, retention_ms)
    log.close()
    yield from unsorted_indexes({name: sim.read_file(f"{PATH}/{name}") for name in sim.list(PATH)})


def differences(log: Log) -> Iterator[str]:
    """Seek by time, and compare the result with a search through all records."""
    records = list(read_everything(log))
    times = {record.timestamp_ms or 0 for record in records}
    asked = {time + change for time in times for change in (-1, 0, 1)} | {0, 1, START_MS, START_MS + 20 * YEAR_MS}
    for time_ms in sorted(asked):
        found, expected = log.offset_at_time(max(time_ms, 0)), first_at(records, max(time_ms, 0))
        if found != expected:
            yield f"time {time_ms}: {found} was found, a search finds {expected}"


def first_at(records: Sequence[Record], time_ms: int) -> int | None:
    """Return the first offset with this timestamp or a later one."""
    return next((record.offset for record in records if (record.timestamp_ms or 0) >= time_ms), None)


def outlived(log: Log, clock: FakeClock, retention_ms: int) -> Iterator[str]:
    """Continue with a correct clock: older records expire in time, whatever their timestamps."""
    clock.advance(START_MS + 100 * DAY_MS - clock.now_ms())
    end = log.log_end_offset
    while (
        len(log._source.view.segments) < 2
        or max(segment.base_offset for segment in log._source.view.segments) < end + 2
    ):
        log.append(b"under a clock that is right")
    log.flush()
    clock.advance(retention_ms + 2 * DAY_MS)
    log.retain()
    if log.log_start_offset < end:
        yield f"{end - log.log_start_offset} records outlive retention, from {log.log_start_offset} on"


def unsorted_indexes(files: dict[str, bytes]) -> Iterator[str]:
    """Return the time indexes that are not in order of time or offset."""
    for name, data in files.items():
        if name.endswith(names.TIME_INDEX):
            entries = list(struct.iter_unpack(">qi", data[: len(data) // 12 * 12]))
            if any(before[0] >= after[0] or before[1] > after[1] for before, after in itertools.pairwise(entries)):
                yield f"{name} is not monotone: {entries}"


# Real processes with different clocks.

DATES: Final = (
    "1999-12-31 23:59:59",
    "2001-01-01 00:00:00",
    "2026-03-01 12:00:00",
    "2026-03-01 12:00:00",
    "2044-07-01 00:00:00",
)


def run_under_faketime(path: Path, chance: random.Random) -> Iterator[str]:
    """Append in processes with clocks that are years apart, then read and apply retention with this one."""
    assert FAKETIME is not None
    tests = str(Path(__file__).resolve().parents[1])
    # Only the time of day is wrong, not the clock for intervals.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([tests, *sys.path]),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    dates = chance.sample(DATES, len(DATES))
    for date in dates:
        program = [FAKETIME, "-f", f"@{date}", sys.executable, __file__, str(path)]
        done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            yield f"under {date}: {done.stderr.strip().splitlines()[-1:]}"
            return
    with Log(path, config=faketime_config()) as log:
        records = list(read_everything(log))
        if len(records) != len(dates) * APPENDS:
            yield f"{dates}: {len(records)} records, {len(dates) * APPENDS} were acknowledged"
        stamps = {int(time.strftime("%Y", time.gmtime((record.timestamp_ms or 0) // 1000))) for record in records}
        if not {2001, 2026, 2044} <= stamps:
            yield f"{dates}: the clocks were not wrong: {stamps}"
        yield from (f"{dates}: {what}" for what in differences(log))
        active = max(segment.base_offset for segment in log._source.view.segments)
        log.retain()
        if log.log_start_offset > active:
            yield f"{dates}: the active segment was deleted"
        left = [record.offset for record in read_everything(log)]
        if left != list(range(log.log_start_offset, len(records))):
            yield f"{dates}: retention left {left}"
    yield from (
        f"{dates}: {what}" for what in unsorted_indexes({each.name: each.read_bytes() for each in path.iterdir()})
    )


APPENDS: Final = 12


def faketime_config() -> LogConfig:
    return LogConfig(flush="batch", segment_bytes=500, index_interval_bytes=100, retention_ms=30 * DAY_MS)


if __name__ == "__main__":
    with Log(sys.argv[1], config=faketime_config()) as opened:
        for count in range(APPENDS):
            opened.append(b"value %d" % count)
