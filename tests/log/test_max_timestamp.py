"""The largest timestamp of a log, which `seeklog ls` shows."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from log.workbench import START_MS, ReadCountingFiles, fill, make_log, open_log, open_reader
from record.batches import Row, Sketch
from seeklog import Log, LogReader, Record
from seeklog.log.index import TIME_ENTRY
from seeklog.record.layout import CONTROL

# Batches of about 80 bytes: an index entry for every second one, twenty in a segment.
SMALL: dict[str, Any] = {"segment_bytes": 1600, "index_interval_bytes": 150}


def largest(log: LogReader) -> int | None:
    """Return what reading every record gives."""
    return max((record.timestamp_ms for record in log.scan() if record.timestamp_ms >= 0), default=None)


def append_disordered(log: Log, numbers: random.Random, count: int) -> None:
    """Append batches of one record. Some are far from their neighbours in time, some are markers, some have no time."""
    for number in range(count):
        stamp = START_MS + number * 1000 + numbers.choice((0, 0, 0, -50_000, 50_000))
        is_marker = numbers.random() < 0.2
        stamp = -1 if numbers.random() < 0.05 else stamp + 70_000 * is_marker
        log.append_batches(Sketch([Row(timestamp_ms=stamp)], attributes=CONTROL * is_marker).encode())


def copy_as_broker(source: Path, target: Path) -> Path:
    """Copy only the files that a broker would have written."""
    target.mkdir()
    for path in source.iterdir():
        if path.suffix in (".log", ".index", ".timeindex"):
            shutil.copy(path, target)
    return target


@pytest.mark.parametrize("seed", range(24))
def test_largest_timestamp_is_that_of_all_visible_records(tmp_path: Path, seed: int) -> None:
    """Goal: disorder, markers, deleted records and records above the high watermark do not change the answer."""
    numbers = random.Random(seed)
    path = tmp_path / "log"
    with open_log(path, high_watermark="manual" if seed % 2 else "auto", **SMALL) as log:
        append_disordered(log, numbers, numbers.randrange(1, 90))
        log.advance_high_watermark(numbers.randrange(log.log_end_offset + 1)) if seed % 2 else None
        log.delete_before(numbers.randrange(log.high_watermark + 1))
        assert log.max_timestamp_ms() == largest(log)
        with open_reader(path, **SMALL) as reader:
            assert reader.max_timestamp_ms() == largest(reader)
    with open_reader(path, **SMALL) as reader:
        assert reader.max_timestamp_ms() == largest(reader)
    with open_reader(copy_as_broker(path, tmp_path / "broker"), **SMALL) as reader:
        assert reader.max_timestamp_ms() == largest(reader)


def test_log_without_records_has_no_largest_timestamp(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        assert log.max_timestamp_ms() is None
        log.append_batches(Sketch([Row(timestamp_ms=-1)]).encode())
        assert log.max_timestamp_ms() is None


def test_batch_that_is_hidden_from_both_ends_has_no_largest_timestamp(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", high_watermark="manual") as log:
        log.append_many([Record(b"deleted"), Record(b"not visible yet")])
        log.advance_high_watermark(1)
        log.delete_before(1)

        assert log.max_timestamp_ms() is None


def test_reader_sees_the_newest_record_before_it_is_in_an_index(tmp_path: Path) -> None:
    """Goal: a growing segment is never passed over because its index files promise less than older segments hold."""
    path = tmp_path / "log"
    with open_log(path, index_interval_bytes=100) as log:
        log.append(b"early", timestamp_ms=START_MS + 10**6)
        log.roll()
        index = path / f"{1:020d}.timeindex"
        while not index.exists() or not index.stat().st_size:
            fill(log, 1)
        log.append(b"late", timestamp_ms=START_MS + 10**7)

        assert TIME_ENTRY.unpack(index.read_bytes()[-TIME_ENTRY.size :])[0] < START_MS + 10**6
        with open_reader(path) as reader:
            assert reader.max_timestamp_ms() == START_MS + 10**7


@pytest.mark.parametrize("as_broker", [False, True], ids=["sealed", "broker"])
def test_largest_timestamp_is_found_without_reading_the_log(tmp_path: Path, as_broker: bool) -> None:
    path = tmp_path / "log"
    make_log(path, 4000, segment_bytes=80_000, index_interval_bytes=800)
    if as_broker:
        path = copy_as_broker(path, tmp_path / "broker")
    files = ReadCountingFiles()
    with open_reader(path, files=files) as log:
        assert log.segment_count == 4
        before = files.read_bytes

        assert log.max_timestamp_ms() == START_MS + 3999 * 1000

        # The batches have 312,000 bytes. A chunk of headers has 64 KiB, the indexes of a segment 2 KB.
        assert files.read_bytes - before < 70_000


def test_time_entry_beyond_every_record_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path, 60, **SMALL)
    path = copy_as_broker(path, tmp_path / "broker")
    index = min(path.glob("*.timeindex"))
    table = index.read_bytes()
    stamp, offset = TIME_ENTRY.unpack(table[-TIME_ENTRY.size :])
    index.write_bytes(table[: -TIME_ENTRY.size] + TIME_ENTRY.pack(stamp + 10**9, offset))

    with open_reader(path, **SMALL) as log:
        assert log.max_timestamp_ms() == START_MS + 59 * 1000


def test_missing_time_index_is_replaced_by_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open_log(path, **SMALL) as log:
        log.append(b"late", timestamp_ms=START_MS + 10**6)
        fill(log, 50)
    path = copy_as_broker(path, tmp_path / "broker")
    for index in path.glob("*.timeindex"):
        index.unlink()

    with open_reader(path, **SMALL) as log:
        assert log.max_timestamp_ms() == START_MS + 10**6
