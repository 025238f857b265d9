"""Opening a log after its process was killed: every CRC is checked, and both indexes are rebuilt.

A copy of an open log's directory after a flush is the state after a kill at that moment. Each turn recovers a fresh
copy, which is synced before the clock starts.

The recovery point on disk covers that flush, as it does one second later. An open writes and syncs everything above the
recovery point again; the rate of that depends on the disk and is given in a note.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from bench.figures.opened import open_in_child
from bench.measure import Bench, Stopwatch, best_of, log_size, settle
from bench.peers.naive import NaiveLog
from bench.row import Row, Unit
from bench.workload import RECORDS_PER_16KB_BATCH, fill, fill_naive, whole_cycles
from seeklog import Log, LogConfig
from seeklog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from seeklog.clock import Clock

CONFIG = LogConfig(flush="os")


class HurriedClock(SystemClock):
    """A clock that advances a minute at each reading, so that each flush persists the recovery point."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 60
        return self._seconds


def measure(bench: Bench) -> Iterator[Row]:
    count = whole_cycles(bench.scale.recovered)
    naive_count = whole_cycles(bench.scale.recovered_by_naive)
    with (
        bench.directory("recovery-16kb") as path_16kb,
        bench.directory("recovery-one") as path_one,
        bench.directory("recovery-unsynced") as path_unsynced,
        bench.directory("recovery-naive") as naive_path,
    ):
        killed_16kb = _killed(path_16kb, count, records_per_batch=RECORDS_PER_16KB_BATCH)
        killed_one = _killed(path_one, count, records_per_batch=1)
        unsynced = _killed(path_unsynced, count, records_per_batch=RECORDS_PER_16KB_BATCH, clock=SystemClock())
        naive = NaiveLog(naive_path)
        fill_naive(naive, naive_count)
        naive.close()

        def naive_trial() -> float:
            with Stopwatch() as clock:
                log = NaiveLog(naive_path)
            if log.next_offset != naive_count:
                raise ValueError(f"recovered {log.next_offset} of {naive_count} records")
            log.close()
            return naive_count / clock.seconds

        rates = best_of(
            max(3, bench.scale.repetitions // 2),
            {
                "16kb": lambda: count / _recover(bench, killed_16kb, count),
                "one": lambda: count / _recover(bench, killed_one, count),
                "naive": naive_trial,
                "unsynced": lambda: count / _recover(bench, unsynced, count),
            },
        )
        bytes_per_record = log_size(killed_16kb) / count
        bytes_per_record_one = log_size(killed_one) / count
    yield Row(
        work="recovery, 16 KB batches",
        figure=rates["16kb"] * bytes_per_record / 1e9,
        unit=Unit.GIGABYTES_PER_SECOND,
        target=1,
        note=f"With all records above the recovery point: {rates['unsynced'] * bytes_per_record / 1e9:.2f} GB/s.",
    )
    yield Row(
        work="recovery, one-record batches",
        figure=rates["one"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="naive",
        peer_figure=rates["naive"],
        target=20,
        note=f"{rates['one'] * bytes_per_record_one / 1e9:.2f} GB/s of log.",
    )


def _killed(path: Path, count: int, *, records_per_batch: int, clock: Clock | None = None) -> Path:
    """Return the directory after a kill a second after a flush, or right after it with the system's clock."""
    with Log(path / "alive", config=CONFIG, clock=clock or HurriedClock()) as log:
        fill(log, count, records_per_batch=records_per_batch)
        log.flush()
        shutil.copytree(path / "alive", path / "killed")
    shutil.rmtree(path / "alive")
    return path / "killed"


def _recover(bench: Bench, killed: Path, count: int) -> float:
    """Return the seconds of opening a copy."""
    with bench.directory("recovery-copy") as path:
        shutil.copytree(killed, path)
        settle(path)
        opened = open_in_child(path)
        if opened.log_end_offset != count or opened.scanned_bytes != log_size(path):
            raise ValueError(f"{count} records should have been recovered: {opened}")
    return opened.seconds
