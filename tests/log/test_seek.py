"""Finding an offset, a time, and the last record."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from log.workbench import BATCH_BYTES, FIRST_LOG, HEADER_BYTES, START_MS, fill, offsets, open_log
from record.batches import CODECS, batch_of
from seeklog import Log, Record
from seeklog.errors import CorruptBatch, OffsetOutOfRange
from seeklog.record.codec import CODEC_NAMES

by_codec = pytest.mark.parametrize("codec", [CODEC_NAMES[codec] for codec in CODECS])


def test_seek_returns_the_position_and_its_cost(filled: Log) -> None:
    for offset in range(33):
        found = filled.seek(offset)

        assert (found.offset, found.segment) == (offset, offset // 5 * 5)
        assert found.path == str(filled.path / f"{offset // 5 * 5:020d}.log")
        assert found.position == offset % 5 * BATCH_BYTES
        # Two entries are more than 100 bytes apart, so two batches; the second may be the one sought.
        assert found.scanned_bytes == found.scanned_batches * BATCH_BYTES <= 2 * BATCH_BYTES


def test_seek_inside_a_batch_finds_its_start(log: Log) -> None:
    log.append(b"before")
    log.append_many([Record(b"v")] * 10)

    assert log.seek(7).position == log.seek(1).position == HEADER_BYTES + 7 + 6


@pytest.mark.parametrize("size", [10, 60, 200, 1000, 9000])
@pytest.mark.parametrize("interval", [16384, 1 << 20])
def test_batch_is_found_at_any_distance_from_an_index_entry(tmp_path: Path, size: int, interval: int) -> None:
    """Goal: the search does not end at a chunk that ends inside a batch: a truncation would cut there."""
    count = 40_000 // size
    with open_log(tmp_path, index_interval_bytes=interval) as log:
        for _ in range(count):
            log.append(bytes(size), timestamp_ms=START_MS)
        starts = list(
            itertools.accumulate((batch.header.size for batch in log.read_batches(0, max_bytes=1 << 30)), initial=0)
        )

        for offset in range(0, count, 1 + count // 50):
            assert log.seek(offset).position == starts[offset]
            assert log.plan_truncate_to(offset).first_offset == offset
        assert log.truncate_to(count - 1) == count - 1
        assert offsets(log.scan()) == list(range(count - 1))


@pytest.mark.parametrize("seed", range(6))
@by_codec
def test_offset_at_time_equals_a_linear_search(tmp_path: Path, seed: int, codec: str) -> None:
    """Times that grow, jump, repeat or are missing, in batches of one and of several."""
    chance = random.Random(seed)
    stamps: list[int] = []
    settings: dict[str, Any] = {
        "segment_bytes": 900,
        "index_interval_bytes": chance.choice([0, 100, 4096]),
        "compression_type": codec,
    }
    with open_log(tmp_path, **settings) as log:
        for number in range(80):
            spread = chance.choice([1, 50, 2000])
            batch = [
                chance.choice([-1, 1000 + number * 10 + chance.randrange(-spread, spread), 1000 + number * 10])
                for _ in range(chance.randrange(1, 4))
            ]
            batch = [max(stamp, -1) for stamp in batch]
            log.append_many([Record(b"", timestamp_ms=stamp) for stamp in batch])
            stamps += batch

        for time_ms in sorted({stamp + step for stamp in stamps for step in (-1, 0, 1)} | {0, 10**6}):
            expected = next((offset for offset, stamp in enumerate(stamps) if stamp >= time_ms), None)
            assert log.offset_at_time(time_ms) == expected, f"seed {seed}, time {time_ms}"


def test_offset_at_time_is_between_start_and_high_watermark(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual", segment_bytes=3 * BATCH_BYTES) as log:
        fill(log, 10)
        log.advance_high_watermark(8)
        log.delete_before(4)

        assert log.offset_at_time(0) == 4
        assert log.offset_at_time(START_MS + 7000) == 7
        assert log.offset_at_time(START_MS + 8000) is None


def test_error_of_a_search_by_time_gives_the_position(tmp_path: Path) -> None:
    """The CRC is valid, but the key would be longer than its record."""
    bad = batch_of(b"\x0c\x00\x00\x00\x63\x01\x00", max_timestamp=START_MS + 10**6)
    with open_log(tmp_path) as log:
        fill(log, 3)
        log.append_batches(bad)

        with pytest.raises(CorruptBatch) as caught:
            log.offset_at_time(START_MS + 10**6)
        assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST_LOG), 3 * BATCH_BYTES)


def test_last_is_the_newest_visible_record(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)

        assert log.last().offset == 2


def test_empty_log_has_no_last_record(log: Log) -> None:
    with pytest.raises(OffsetOutOfRange, match="empty"):
        log.last()
    log.append(b"v")
    log.delete_before(1)
    with pytest.raises(OffsetOutOfRange):
        log.last()
