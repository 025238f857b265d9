"""Reading from an offset: records, raw batches and byte ranges, their limits, and damage found by a read."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    BATCH_BYTES,
    FIRST_LOG,
    PATIENCE_S,
    SEVEN_SEGMENTS,
    CountingFiles,
    contents,
    fill,
    make_log,
    offsets,
    open_log,
    value_of,
    values,
)
from record.batches import CODECS, Sketch
from record.batches import Row as HandMade
from seeklog import Log, Record
from seeklog.errors import CorruptBatch, CorruptionError, FormatError, LostRecords, OffsetOutOfRange, UsageError
from seeklog.record.batch import Batch, decode_records
from seeklog.record.codec import CODEC_NAMES

by_codec = pytest.mark.parametrize("codec", [CODEC_NAMES[codec] for codec in CODECS])
BOMB = Sketch((HandMade(bytes(100_000)),), codec=4).encode()


# ---------------------------------------------------------------- read


@pytest.mark.parametrize("offset", range(34))
def test_read_starts_exactly_at_the_offset(filled: Log, offset: int) -> None:
    assert offsets(filled.read(offset)) == list(range(offset, 33))


@pytest.mark.parametrize("max_records", [1, 2, 4, 5, 6, 100])
def test_read_returns_at_most_max_records(filled: Log, max_records: int) -> None:
    for offset in range(33):
        assert offsets(filled.read(offset, max_records=max_records)) == list(range(offset, 33))[:max_records]


@by_codec
def test_max_records_may_end_inside_a_batch(tmp_path: Path, codec: str) -> None:
    with open_log(tmp_path, compression_type=codec) as log:
        log.append_many([Record(b"%d" % n) for n in range(10)])

        assert offsets(log.read(3, max_records=4)) == [3, 4, 5, 6]


@pytest.mark.parametrize("offset", [0, 1, 7, 31])
@pytest.mark.parametrize("max_bytes", [1, 60, 61, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 200, 400, 1000])
def test_read_takes_at_least_one_batch_and_about_max_bytes(filled: Log, offset: int, max_bytes: int) -> None:
    """The batch that reaches the limit is the last one."""
    found = offsets(filled.read(offset, max_bytes=max_bytes))

    assert found == list(range(offset, offset + len(found)))
    assert found
    assert (len(found) - 1) * BATCH_BYTES < max_bytes
    assert offset + len(found) == 33 or len(found) * BATCH_BYTES > max_bytes - BATCH_BYTES


def test_batch_larger_than_max_bytes_is_read_whole(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=10**6) as log:
        log.append(b"before")
        log.append(bytes(300_000))
        log.append(b"after")

        assert values(log.read(1, max_bytes=10)) == [bytes(300_000)]


def test_read_is_complete_when_the_call_returns(filled: Log) -> None:
    records = filled.read(0, max_records=3)
    filled.truncate_to(0)

    assert values(records) == [value_of(0), value_of(1), value_of(2)]


def test_read_at_the_end_returns_nothing(log: Log) -> None:
    assert list(log.read(0)) == []
    log.append(b"v")
    assert list(log.read(1)) == []


@pytest.mark.parametrize("arguments", [{"max_records": 0}, {"max_bytes": 0}, {"max_records": -1}, {"max_bytes": -5}])
def test_limits_below_one_are_refused(filled: Log, arguments: dict[str, int]) -> None:
    for read in (filled.read, filled.read_uncommitted):
        with pytest.raises(UsageError, match="at least 1"):
            read(0, **arguments)


def test_read_does_not_wait_for_a_sync(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files) as log:
        files.diary.clear()
        log.append(b"v")

        assert values(log.read(0)) == [b"v"]
        assert files.count("sync", "") == 0


# ---------------------------------------------------------------- read_batches and read_ranges


@pytest.mark.parametrize("offset", range(34))
def test_raw_batches_start_with_the_one_containing_the_offset(filled: Log, offset: int) -> None:
    batches = list(filled.read_batches(offset))

    assert [batch.base_offset for batch in batches] == list(range(offset, 33))
    assert decode_records(b"".join(batch.raw for batch in batches)) == list(filled.read(offset))


def test_raw_batch_may_start_before_the_offset(log: Log) -> None:
    log.append_many([Record(b"v")] * 10)

    (batch,) = log.read_batches(7)

    assert (batch.base_offset, batch.next_offset) == (0, 10)


@pytest.mark.parametrize(
    ("max_bytes", "count"), [(1, 1), (BATCH_BYTES, 1), (2 * BATCH_BYTES - 1, 1), (2 * BATCH_BYTES, 2), (10**6, 30)]
)
def test_raw_batches_and_ranges_respect_max_bytes_after_the_first(filled: Log, max_bytes: int, count: int) -> None:
    batches = list(filled.read_batches(3, max_bytes=max_bytes))

    assert len(batches) == count
    ranges = filled.read_ranges(3, max_bytes=max_bytes)
    assert sum(file_range.size for file_range in ranges) == sum(len(batch.raw) for batch in batches)


def test_raw_batches_have_their_crc_checked(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 3)
        data = bytearray((tmp_path / FIRST_LOG).read_bytes())
        data[BATCH_BYTES + 70] ^= 1
        (tmp_path / FIRST_LOG).write_bytes(data)

        with pytest.raises(CorruptBatch) as caught:
            list(log.read_batches(0))
        assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST_LOG), BATCH_BYTES)


def sent(ranges: list[Any]) -> bytes:
    """Return what a peer receives when the ranges are sent to it."""
    left, right = socket.socketpair()
    received = bytearray()
    with left, right:
        right.settimeout(PATIENCE_S)
        for each in ranges:
            position, rest = each.position, each.size
            while rest:
                count = os.sendfile(left.fileno(), each.fileno(), position, rest)
                position, rest = position + count, rest - count
                while len(received) < sum(r.size for r in ranges) and len(chunk := right.recv(count)) > 0:
                    received += chunk
                    count -= len(chunk)
                    if not count:
                        break
    return bytes(received)


@pytest.mark.parametrize("offset", [0, 4, 5, 17, 32])
def test_sendfile_sends_the_bytes_of_the_batches(filled: Log, offset: int) -> None:
    ranges = filled.read_ranges(offset)

    assert sent(ranges) == b"".join(batch.raw for batch in filled.read_batches(offset))
    assert ranges[0].base_offset == offset
    assert ranges[-1].next_offset == 33
    assert all(a.next_offset == b.base_offset for a, b in itertools.pairwise(ranges))


def test_range_stays_readable_while_it_is_held(filled: Log) -> None:
    ranges = filled.read_ranges(0, max_bytes=3 * BATCH_BYTES)
    expected = b"".join(batch.raw for batch in filled.read_batches(0, max_bytes=3 * BATCH_BYTES))

    filled.delete_before(33)

    assert sent(ranges) == expected


def test_end_has_no_batches_and_no_ranges(filled: Log) -> None:
    assert list(filled.read_batches(33)) == []
    assert filled.read_ranges(33) == []


def test_range_of_many_chunks_of_one_file_is_one_range(tmp_path: Path) -> None:
    """The headers are walked 96 KiB at a time, and a range ends only with its file."""
    with open_log(tmp_path) as log:
        fill(log, 3000)

        (found,) = log.read_ranges(7)

        assert (found.position, found.size) == (7 * BATCH_BYTES, 2993 * BATCH_BYTES)
        assert (found.base_offset, found.next_offset) == (7, 3000)


# ---------------------------------------------------------------- errors


OUT_OF_RANGE: dict[str, Callable[[Log, int], Any]] = {
    "read": lambda log, offset: log.read(offset),
    "read_uncommitted": lambda log, offset: log.read_uncommitted(offset),
    "scan": lambda log, offset: log.scan(offset),
    "scan_reverse": lambda log, offset: log.scan_reverse(offset),
    "scan_arrow": lambda log, offset: log.scan_arrow(offset),
    "read_batches": lambda log, offset: log.read_batches(offset),
    "read_ranges": lambda log, offset: log.read_ranges(offset),
    "follow": lambda log, offset: log.follow(offset),
    "seek": lambda log, offset: log.seek(offset),
}


@pytest.mark.parametrize("what", OUT_OF_RANGE)
@pytest.mark.parametrize("offset", [-1, -(2**63), 34, 2**63 - 1, 2**70])
@pytest.mark.parametrize("read_only", [False, True])
def test_offset_out_of_range_is_refused_with_the_valid_range(
    tmp_path: Path, what: str, offset: int, read_only: bool
) -> None:
    make_log(tmp_path, 33, **SEVEN_SEGMENTS)
    with open_log(tmp_path, read_only=read_only, **SEVEN_SEGMENTS) as log:
        before = contents(tmp_path)

        with pytest.raises(OffsetOutOfRange, match="valid offsets are 0 to 32") as caught:
            OUT_OF_RANGE[what](log, offset)

        assert isinstance(caught.value, LookupError)
        assert (caught.value.offset, caught.value.log_start_offset, caught.value.log_end_offset) == (offset, 0, 33)
        assert contents(tmp_path) == before


def test_decompression_bomb_is_refused_on_read(tmp_path: Path) -> None:
    with open_log(tmp_path, max_decompressed_bytes=50_000) as log:
        log.append(b"before")
        log.append_batches(BOMB)
        log.append(b"after")
        before = contents(tmp_path)

        for read in (
            lambda: log.read(1),
            lambda: list(log.scan()),
            lambda: list(log.scan_reverse()),
            lambda: log.scan_arrow().read_all(),
        ):
            with pytest.raises(FormatError, match="50,000") as caught:
                read()
            assert caught.value.path == str(tmp_path / FIRST_LOG)
        assert contents(tmp_path) == before
        assert values(log.read(2)) == [b"after"]
        assert len(list(log.read_batches(0))) == 3


def test_default_limit_of_a_batch_is_sixteen_mebibytes(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_batches(Sketch((HandMade(bytes(16 << 20)),), codec=4).encode())

        with pytest.raises(FormatError, match="16,777,216"):
            log.read(0)


def test_bit_rot_found_by_a_read_is_reported_by_file_and_byte(tmp_path: Path) -> None:
    make_log(tmp_path, 10)
    data = bytearray((tmp_path / FIRST_LOG).read_bytes())
    data[4 * BATCH_BYTES + 70] ^= 1
    (tmp_path / FIRST_LOG).write_bytes(data)

    for read_only in (True, False):
        with open_log(tmp_path, read_only=read_only) as log:
            before = contents(tmp_path)
            for read in (
                lambda log=log: log.read(4),
                lambda log=log: list(log.scan()),
                lambda log=log: list(log.scan_reverse()),
                lambda log=log: log.scan_arrow().read_all(),
                lambda log=log: list(log.read_batches(0)),
            ):
                with pytest.raises(CorruptionError) as caught:
                    read()
                assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST_LOG), 4 * BATCH_BYTES)
                assert "nothing was changed" in str(caught.value)
            assert contents(tmp_path) == before
            assert offsets(log.read(0, max_records=4)) == [0, 1, 2, 3]
            assert offsets(log.read(5)) == [5, 6, 7, 8, 9]


def test_truncated_segment_is_noticed_by_a_read(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 10)
        os.truncate(tmp_path / FIRST_LOG, 7 * BATCH_BYTES + 5)

        with pytest.raises(LostRecords) as caught:
            list(log.scan())
        assert caught.value.path == str(tmp_path / FIRST_LOG)
        assert offsets(log.read(0, max_records=7)) == list(range(7))


def test_reader_returns_the_batch_that_it_read(filled: Log) -> None:
    batch = next(filled.read_batches(3))

    assert isinstance(batch, Batch)
    assert values(batch.records()) == [value_of(3)]
