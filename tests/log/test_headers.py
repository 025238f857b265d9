"""Counting the records in a range from the headers of its batches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from log.workbench import BATCH_BYTES, fill, open_log
from record.batches import LIMIT, Row, Sketch, T
from seeklog.errors import CorruptBatch, CorruptionError, LostRecords
from seeklog.log.headers import Census, take_census
from seeklog.record.layout import CONTROL, LOG_APPEND_TIME


@pytest.mark.parametrize("held", [(0, 1, 2, 3, 4), (0, 1, 3, 4), (0, 4), (0, 2, 4), (1, 2, 3, 4)])
def test_census_counts_records_of_every_range_of_batch(tmp_path: Path, held: tuple[int, ...]) -> None:
    """Goal: this also holds if compaction has left gaps, so that the offsets do not determine the count."""
    raw = Sketch(tuple(Row(delta=delta) for delta in held)).encode()
    with open_log(tmp_path / "log") as log:
        log.append_batches(raw)
        segment = log._source.view.segments[0]
        for start in range(5):
            for stop in range(start + 1, 7):
                census = take_census(segment, start, stop, limit=LIMIT)
                assert (census.batch_count, census.record_count) == (1, sum(start <= offset < stop for offset in held))


def test_census_skips_batches_without_records(tmp_path: Path) -> None:
    """Goal: markers and emptied batches have no records or times; a batch with append time has that one time."""
    batches = [
        Sketch([Row(timestamp_ms=T - 9)], attributes=CONTROL).encode(),
        Sketch(fields={"record_count": 0, "max_timestamp": T - 8}).encode(),
        Sketch([Row()], attributes=LOG_APPEND_TIME, fields={"base_timestamp": T - 7, "max_timestamp": T + 3}).encode(),
        Sketch([Row(timestamp_ms=T + 2), Row(timestamp_ms=T + 1, delta=1)]).encode(),
    ]
    with open_log(tmp_path / "log") as log:
        for raw in batches:
            log.append_batches(raw)

        census = take_census(log._source.view.segments[0], 0, log.log_end_offset, limit=LIMIT)

    assert census == Census(batch_count=4, record_count=3, first_timestamp_ms=T + 3, max_timestamp_ms=T + 3)


def test_file_truncated_after_listing_is_reported_with_position(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        fill(log, 3)
        segment = log._source.view.segments[0]
        os.truncate(segment.path, 2 * BATCH_BYTES + 10)

        with pytest.raises(LostRecords, match=f"ends after {2 * BATCH_BYTES + 10} bytes") as caught:
            take_census(segment, 0, 3, limit=LIMIT)

    assert (caught.value.path, caught.value.position) == (segment.path, 2 * BATCH_BYTES + 10)


def test_unreadable_batch_that_must_be_counted_is_named(tmp_path: Path) -> None:
    """Its header is whole, so only a request for part of the batch fails."""
    with open_log(tmp_path / "log") as log:
        log.append_batches(Sketch([Row(), Row(delta=4)]).encode())
        segment = log._source.view.segments[0]
        path = Path(segment.path)
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")

        assert take_census(segment, 0, 5, limit=LIMIT).record_count == 2
        with pytest.raises(CorruptBatch) as caught:
            take_census(segment, 1, 5, limit=LIMIT)

    assert (caught.value.path, caught.value.position) == (segment.path, 0)
    assert caught.value.advice


def test_damaged_header_is_reported_with_its_file(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        fill(log, 3)
        segment = log._source.view.segments[0]
        path = Path(segment.path)
        data = bytearray(path.read_bytes())
        data[BATCH_BYTES + 16] = 9  # the magic
        path.write_bytes(data)

        with pytest.raises(CorruptionError) as caught:
            take_census(segment, 0, 3, limit=LIMIT)

    assert (caught.value.path, caught.value.position) == (segment.path, BATCH_BYTES)
    assert caught.value.advice
