"""Slices of segment files: those that a fetch sends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from log.workbench import QuickFiles
from seeklog import Log, LogConfig, Record
from seeklog.errors import OffsetOutOfRange
from seeklog.record.batch import split_batches

COUNTS = (1, 3, 40, 1, 2, 100, 1, 7, 1, 1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log of batches with many sizes, in several segments; the index has an entry every few batches."""
    config = LogConfig(segment_bytes=4096, index_interval_bytes=500, flush="os")
    with Log(tmp_path, config=config, files=QuickFiles(), background=False) as log:
        for round_ in range(4):
            for count in COUNTS:
                log.append_many([Record(b"%d" % (round_ + number), key=b"k") for number in range(count)])
        yield log


def whole_prefix(data: bytes) -> bytes:
    """Return the whole batches at the start of some bytes, as a client keeps them."""
    size = 0
    while size + 12 <= len(data):
        following = size + 12 + int.from_bytes(data[size + 8 : size + 12])
        if following > len(data):
            break
        size = following
    return data[:size]


@pytest.mark.parametrize("max_bytes", [1, 100, 1000, 1 << 20])
def test_slice_begins_with_the_batch_of_every_offset(log: Log, max_bytes: int) -> None:
    batches = [(batch.base_offset, batch.raw) for batch in log.read_batches(0, max_bytes=1 << 30)]
    for offset in range(log.high_watermark):
        found = log.read_slice(offset, max_bytes=max_bytes)
        assert found is not None
        base, raw = max(one for one in batches if one[0] <= offset)
        data = found.read()
        assert (found.base_offset, data[: len(raw)], len(data)) == (base, raw, len(found))
        assert len(found) <= max(max_bytes, len(raw))
        rest = b"".join(raw for start, raw in batches if start >= base)
        assert rest.startswith(data)


def test_slices_one_after_the_other_are_the_whole_log(log: Log) -> None:
    offset, read = 0, b""
    while (found := log.read_slice(offset, max_bytes=700)) is not None:
        batches = whole_prefix(found.read())
        read += batches
        offset = list(split_batches(batches))[-1].next_offset
    assert read == b"".join(batch.raw for batch in log.read_batches(0, max_bytes=1 << 30))
    assert offset == log.log_end_offset


def test_slice_ends_at_the_high_watermark(tmp_path: Path) -> None:
    config = LogConfig(high_watermark="manual", flush="os")
    with Log(tmp_path, config=config, files=QuickFiles(), background=False) as log:
        for number in range(6):
            log.append(b"%d" % number)
        assert log.read_slice(0) is None
        log.advance_high_watermark(4)
        found = log.read_slice(1)
        assert found is not None
        assert [batch.base_offset for batch in split_batches(found.read())] == [1, 2, 3]
        assert log.read_slice(4) is None
        beyond = log.read_slice(4, stop=log.log_end_offset)
        assert beyond is not None
        assert [batch.base_offset for batch in split_batches(beyond.read())] == [4, 5]


def test_slice_outside_the_log_is_refused(log: Log) -> None:
    with pytest.raises(OffsetOutOfRange):
        log.read_slice(log.log_end_offset + 1)
    log.delete_before(50)
    with pytest.raises(OffsetOutOfRange):
        log.read_slice(49)


def test_slice_of_a_compacted_log_skips_what_compaction_removed(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy="compact", flush="os", segment_bytes=400)
    with Log(tmp_path, config=config, files=QuickFiles(), background=False) as log:
        for number in range(40):
            log.append(b"%d" % number, key=b"%d" % (number % 3))
        log.compact()
        kept = [record.offset for record in log.scan()]
        for offset in range(log.high_watermark):
            found = log.read_slice(offset, max_bytes=1 << 20)
            assert found is not None
            wanted = next(one for one in kept if one >= offset)
            last = [batch.last_offset for batch in split_batches(found.read())][-1]
            assert found.base_offset <= wanted <= last or last >= offset


def test_slice_survives_the_deletion_of_its_segment(log: Log) -> None:
    found = log.read_slice(0, max_bytes=1 << 20)
    assert found is not None
    before = found.read()
    log.delete_before(log.log_end_offset)
    assert found.read() == before
