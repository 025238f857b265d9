"""`Log` line by line: every method of its face, every limit, and every bad input with what it leaves on disk."""

from __future__ import annotations

import errno
import itertools
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.sim import FaultyFiles
from faults.children import Child
from log.workbench import (
    BATCH_BYTES,
    HEADER_BYTES,
    PATIENCE_S,
    START_MS,
    CountingFiles,
    FakeClock,
    QuickFiles,
    config_of,
    contents,
    crashed_copy,
    fill,
    make_log,
    offsets,
    open_log,
    open_reader,
    segment_bases,
    value_of,
    values,
    wait_until,
)
from record.batches import CODECS, Sketch, batch_of, with_field
from record.batches import Row as HandMade
from seeklog import Log, LogConfig, LogReader, ProducerSequence, Record, names
from seeklog.clients.log_writer import LogWriter
from seeklog.clock import SystemClock
from seeklog.errors import (
    BatchTooLarge,
    CorruptBatch,
    CorruptionError,
    InvalidConfig,
    InvalidRecord,
    LogClosed,
    LogFailed,
    LogLocked,
    LostRecords,
    NotAccessible,
    NotALog,
    OffsetOutOfRange,
    RecordTooLarge,
    SeeklogError,
    UnsupportedCodec,
    UnsupportedMagic,
    UsageError,
)
from seeklog.record.batch import Batch, decode_records, encode_batch
from seeklog.record.codec import CODEC_NAMES

pa = pytest.importorskip("pyarrow")
FIRST = f"{0:020d}.log"
by_codec = pytest.mark.parametrize("codec", [CODEC_NAMES[codec] for codec in CODECS])
SEVEN_SEGMENTS: dict[str, Any] = {"segment_bytes": 5 * BATCH_BYTES, "index_interval_bytes": 100}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log that syncs only when it is told."""
    with open_log(tmp_path / "log") as log:
        yield log


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Log]:
    """33 records in seven segments: 0-4, 5-9, ..., 30-32."""
    with open_log(tmp_path / "filled", **SEVEN_SEGMENTS) as log:
        fill(log, 33)
        yield log


# ---------------------------------------------------------------- append


@pytest.mark.parametrize("way", ["append", "append_many", "append_batches", "append_numbered"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_at_the_end_of_all_offsets_nothing_is_appended_and_nothing_breaks(tmp_path: Path, way: str, codec: str) -> None:
    wide = Sketch((HandMade(b"wide"),), fields={"last_delta": 2**31 - 3}).encode()
    batch = Sketch((HandMade(b"x"),)).encode()
    more: dict[str, Callable[[Log], object]] = {
        "append": lambda log: log.append(b"x"),
        "append_many": lambda log: log.append_many([Record(b"x")]),
        "append_batches": lambda log: log.append_batches(batch),
        "append_numbered": lambda log: log.append_many([Record(b"x")], producer=ProducerSequence(producer_id=7)),
    }
    words: dict[str, Any] = {"initial_offset": 2**63 - 1 - 2**31, "flush": "batch", "compression_type": codec}
    with open_log(tmp_path, **words) as log:
        log.append(b"first")
        log.append_batches(wide)
        log.append(b"last")
        assert log.log_end_offset == 2**63 - 1
        before = contents(tmp_path)
        with pytest.raises(UsageError, match="the largest offset is 9223372036854775806"):
            more[way](log)
        assert contents(tmp_path) == before
        assert [record.value for record in log.scan()] == [b"first", b"wide", b"last"]
    with open_log(tmp_path, **words) as log:
        assert [record.value for record in log.scan()] == [b"first", b"wide", b"last"]
        assert log.log_end_offset == 2**63 - 1


def test_append_returns_the_offsets_in_order(log: Log) -> None:
    assert [log.append(b"v") for _ in range(5)] == [0, 1, 2, 3, 4]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 5, 5)


@by_codec
def test_what_is_appended_is_read_with_everything_it_had(tmp_path: Path, codec: str) -> None:
    headers = (("trace", b"1"), ("none", None), ("", b""), ("\udcff", b"not utf-8"))
    with open_log(tmp_path, compression_type=codec) as log:
        log.append(b"v", key=b"k", headers=list(headers), timestamp_ms=START_MS - 5)
        log.append(None, key=b"")
        log.append(b"", key=None, timestamp_ms=-1)

        assert list(log.read(0)) == [
            Record(b"v", key=b"k", headers=headers, timestamp_ms=START_MS - 5, offset=0),
            Record(None, key=b"", timestamp_ms=START_MS, offset=1),
            Record(b"", timestamp_ms=-1, offset=2),
        ]
        assert [batch.codec for batch in log.read_batches(0)] == [codec] * 3


def test_a_record_without_a_time_gets_the_clocks(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock) as log:
        log.append(b"")
        clock.advance(77)
        log.append_many([Record(b""), Record(b"", timestamp_ms=5)])

        assert [record.timestamp_ms for record in log.scan()] == [START_MS, START_MS + 77, 5]


@pytest.mark.parametrize("way", ["append", "append_many", "append_batches", "writer"])
def test_with_append_time_every_record_gets_the_logs_clock(tmp_path: Path, way: str) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, message_timestamp_type="LogAppendTime") as log:
        record = Record(b"v", timestamp_ms=5)
        if way == "append":
            log.append(b"v", timestamp_ms=5)
        elif way == "append_many":
            log.append_many([record])
        elif way == "append_batches":
            log.append_batches(encode_batch([record]))
        else:
            with LogWriter(log) as writer:
                writer.append(b"v", timestamp_ms=5)

        assert [each.timestamp_ms for each in log.scan()] == [START_MS]
        (batch,) = log.read_batches(0)
        assert batch.header.is_log_append_time


def test_one_append_is_one_batch_in_one_write(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files) as log:
        for records in (1, 3):
            before = files.count("write")
            log.append_many([Record(b"v")] * records)
            assert files.count("write") == before + 1

        assert [batch.record_count for batch in log.read_batches(0)] == [1, 3]


# ---------------------------------------------------------------- append_many


@by_codec
@pytest.mark.parametrize("count", [1, 2, 300])
def test_append_many_returns_a_range_and_writes_one_batch(tmp_path: Path, codec: str, count: int) -> None:
    with open_log(tmp_path, compression_type=codec, initial_offset=10) as log:
        taken = log.append_many([Record(b"%d" % n, key=b"k") for n in range(count)])

        assert taken == range(10, 10 + count)
        assert values(log.scan()) == [b"%d" % n for n in range(count)]
        assert [batch.record_count for batch in log.read_batches(10)] == [count]


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_append_many_takes_any_iterable(log: Log, kind: Callable[[Any], Any]) -> None:
    assert log.append_many(kind([Record(b"a"), Record(b"b")])) == range(2)
    assert values(log.scan()) == [b"a", b"b"]


def test_offsets_that_records_had_before_do_not_matter(log: Log) -> None:
    log.append_many([Record(b"a", offset=500), Record(b"b", offset=3)])

    assert offsets(log.scan()) == [0, 1]


# ---------------------------------------------------------------- append_batches


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_are_appended_as_they_are_but_for_offset_and_epoch(
    tmp_path: Path, codec: int, kind: Callable[[bytes], Any]
) -> None:
    raws = [
        encode_batch(
            [Record(b"a", timestamp_ms=5), Record(b"b", timestamp_ms=6)],
            base_offset=999,
            leader_epoch=7,
            codec=codec,
            transactional=True,
            producer_id=5,
            producer_epoch=6,
            base_sequence=sequence,
        )
        for sequence in (7, 9)
    ]
    with open_log(tmp_path, initial_offset=40) as log:
        assert log.append_batches(kind(b"".join(raws))) == range(40, 44)

        batches = list(log.read_batches(40))
        for base, raw, batch in zip((40, 42), raws, batches, strict=True):
            assert batch.raw == with_field(with_field(raw, "base_offset", base), "leader_epoch", 0)
        assert offsets(log.scan()) == [40, 41, 42, 43]


def test_gaps_and_empty_batches_keep_their_offsets(log: Log) -> None:
    gap = Sketch((HandMade(b"a"), HandMade(b"b", delta=5)), fields={"last_delta": 7}).encode()
    empty = batch_of(b"", last_delta=9, record_count=0)

    assert log.append_batches(gap + empty + gap) == range(26)
    assert offsets(log.scan()) == [0, 5, 18, 23]
    assert [offsets(log.read(offset, max_records=1)) for offset in (1, 6, 8, 19)] == [[5], [18], [18], [23]]


def test_control_batches_are_kept_and_give_no_records(log: Log) -> None:
    marker = Sketch((HandMade(b"\0\0\0\0\0\0", b"\0\0\0\1"),), attributes=0x30).encode()
    log.append(b"before")
    assert log.append_batches(marker) == range(1, 2)
    log.append(b"after")

    assert values(log.scan()) == [b"before", b"after"]
    assert values(log.scan_reverse()) == [b"after", b"before"]
    assert [batch.header.is_control for batch in log.read_batches(0)] == [False, True, False]
    assert offsets(log.read(1)) == [2]


def test_a_log_that_ends_with_a_control_batch_has_the_record_before_it_as_its_last(log: Log) -> None:
    log.append(b"v")
    log.append_batches(Sketch((HandMade(b"\0\0\0\0\0\0", b"\0\0\0\1"),), attributes=0x30).encode())

    assert log.last().value == b"v"
    assert list(log.read(1)) == []
    assert log.log_end_offset == 2


# ---------------------------------------------------------------- read


@pytest.mark.parametrize("offset", range(34))
def test_read_begins_exactly_at_the_offset(filled: Log, offset: int) -> None:
    assert offsets(filled.read(offset)) == list(range(offset, 33))


@pytest.mark.parametrize("max_records", [1, 2, 4, 5, 6, 100])
def test_read_gives_no_more_records_than_asked_for(filled: Log, max_records: int) -> None:
    for offset in range(33):
        assert offsets(filled.read(offset, max_records=max_records)) == list(range(offset, 33))[:max_records]


@by_codec
def test_max_records_may_end_inside_a_batch(tmp_path: Path, codec: str) -> None:
    with open_log(tmp_path, compression_type=codec) as log:
        log.append_many([Record(b"%d" % n) for n in range(10)])

        assert offsets(log.read(3, max_records=4)) == [3, 4, 5, 6]


@pytest.mark.parametrize("offset", [0, 1, 7, 31])
@pytest.mark.parametrize("max_bytes", [1, 60, 61, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 200, 400, 1000])
def test_read_takes_at_least_one_batch_and_about_as_many_bytes_as_asked_for(
    filled: Log, offset: int, max_bytes: int
) -> None:
    """The batch with which the limit is reached is the last one."""
    found = offsets(filled.read(offset, max_bytes=max_bytes))

    assert found == list(range(offset, offset + len(found)))
    assert found
    assert (len(found) - 1) * BATCH_BYTES < max_bytes
    assert offset + len(found) == 33 or len(found) * BATCH_BYTES > max_bytes - BATCH_BYTES


def test_a_batch_larger_than_max_bytes_is_read_whole(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=10**6) as log:
        log.append(b"before")
        log.append(bytes(300_000))
        log.append(b"after")

        assert values(log.read(1, max_bytes=10)) == [bytes(300_000)]


def test_everything_is_read_when_the_call_returns(filled: Log) -> None:
    records = filled.read(0, max_records=3)
    filled.truncate_to(0)

    assert values(records) == [value_of(0), value_of(1), value_of(2)]


def test_reading_at_the_end_gives_nothing(log: Log) -> None:
    assert list(log.read(0)) == []
    log.append(b"v")
    assert list(log.read(1)) == []


@pytest.mark.parametrize("words", [{"max_records": 0}, {"max_bytes": 0}, {"max_records": -1}, {"max_bytes": -5}])
def test_limits_below_one_are_refused(filled: Log, words: dict[str, int]) -> None:
    for read in (filled.read, filled.read_uncommitted):
        with pytest.raises(UsageError, match="at least 1"):
            read(0, **words)


def test_a_read_does_not_wait_for_a_sync(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files) as log:
        files.diary.clear()
        log.append(b"v")

        assert values(log.read(0)) == [b"v"]
        assert files.count("sync", "") == 0


# ---------------------------------------------------------------- scan


WINDOWS = [(s, e) for s in (None, 0, 1, 4, 5, 6, 17, 32, 33) for e in (None, 0, 1, 5, 6, 18, 32, 33, 34, 10**9)]


@pytest.mark.parametrize(("start", "end"), WINDOWS)
def test_scan_streams_the_window_forward_and_back(filled: Log, start: int | None, end: int | None) -> None:
    expected = list(range(start or 0, 33 if end is None else min(end, 33)))

    assert offsets(filled.scan(start, end)) == expected
    assert offsets(filled.scan_reverse(start, end)) == expected[::-1]
    assert filled.scan_arrow(start, end).read_all()["offset"].to_pylist() == expected


@pytest.mark.parametrize("scan", ["scan", "scan_reverse", "scan_arrow"])
def test_a_scan_ends_at_what_was_visible_when_it_was_asked_for(filled: Log, scan: str) -> None:
    if scan == "scan_arrow":
        reader = filled.scan_arrow()
        fill(filled, 5)
        assert reader.read_all().num_rows == 33
    else:
        records = getattr(filled, scan)()
        fill(filled, 5)
        assert sorted(offsets(records)) == list(range(33))


@by_codec
@pytest.mark.parametrize("interval", [0, 4096])
def test_scan_reverse_is_the_scan_turned_round(tmp_path: Path, codec: str, interval: int) -> None:
    """Batches of all sizes, small segments and large ones."""
    chance = random.Random(5)
    words: dict[str, Any] = {"compression_type": codec, "index_interval_bytes": interval, "segment_bytes": 200_000}
    with open_log(tmp_path, **words) as log:
        for _ in range(60):
            log.append_many(
                [Record(chance.randbytes(chance.choice([0, 10, 3000]))) for _ in range(chance.randrange(1, 9))]
            )
        forward = list(log.scan())

        assert list(log.scan_reverse()) == forward[::-1]
        for start in range(0, len(forward), 17):
            assert list(log.scan_reverse(start, start + 30)) == forward[start : start + 30][::-1]


def test_the_last_records_are_read_without_reading_the_rest(tmp_path: Path) -> None:
    class CountedReads(QuickFiles):
        total = 0

        def read(self, handle: int, size: int, position: int) -> bytes:
            data = super().read(handle, size, position)
            self.total += len(data)
            return data

    files = CountedReads()
    with open_log(tmp_path, files=files) as log:
        log.append_many([Record(value_of(n)) for n in range(2000)])
        for _ in range(30):
            log.append_many([Record(bytes(1000))] * 100)
        files.total = 0

        assert offsets(record for record, _ in zip(log.scan_reverse(), range(10), strict=False)) == list(
            range(4999, 4989, -1)
        )
        # One chunk of 64 KB and the batch of 100 KB around it, of three megabytes.
        assert files.total < 600_000


@pytest.mark.parametrize("end", [-1, -100])
def test_a_negative_end_is_refused(filled: Log, end: int) -> None:
    for scan in (filled.scan, filled.scan_reverse, filled.scan_arrow):
        with pytest.raises(UsageError, match="negative"):
            scan(0, end)


def test_an_empty_log_scans_to_nothing(log: Log) -> None:
    assert list(log.scan()) == list(log.scan_reverse()) == []
    assert log.scan_arrow().read_all().num_rows == 0


# ---------------------------------------------------------------- scan_arrow


@by_codec
def test_scan_arrow_gives_the_records_as_columns(tmp_path: Path, codec: str) -> None:
    chance = random.Random(1)
    with open_log(tmp_path, compression_type=codec, segment_bytes=3000) as log:
        for n in range(40):
            log.append_many(
                [
                    Record(
                        chance.choice([None, b"", b"value %d" % n]),
                        key=chance.choice([None, b"", b"key"]),
                        headers=chance.choice([(), (("h", b"1"), ("n", None))]),
                    )
                    for _ in range(chance.randrange(1, 6))
                ]
            )
        records = list(log.scan())

        for batch_rows in (1, 3, 50, 32768):
            table = log.scan_arrow(batch_rows=batch_rows).read_all()
            assert table.column_names == ["key", "value", "offset", "timestamp", "headers"]
            assert table["offset"].to_pylist() == offsets(records)
            assert table["value"].to_pylist() == values(records)
            assert table["key"].to_pylist() == [record.key for record in records]
            assert table["timestamp"].cast(pa.int64()).to_pylist() == [record.timestamp_ms for record in records]
            assert [tuple((h["key"], h["value"]) for h in headers) for headers in table["headers"].to_pylist()] == [
                record.headers for record in records
            ]


def test_scan_arrow_builds_only_the_columns_asked_for(filled: Log) -> None:
    reader = filled.scan_arrow(columns=["value", "offset"])

    assert reader.schema.names == ["value", "offset"]
    assert reader.read_all().to_pydict() == {"value": [value_of(n) for n in range(33)], "offset": list(range(33))}


def test_scan_arrow_streams_batches_of_about_the_rows_asked_for(filled: Log) -> None:
    assert [batch.num_rows for batch in filled.scan_arrow(batch_rows=10)] == [10, 10, 10, 3]


def test_scan_arrow_takes_microseconds(filled: Log) -> None:
    table = filled.scan_arrow(0, 1, columns=["timestamp"], timestamp_unit="us").read_all()

    assert table["timestamp"].type == pa.timestamp("us", "UTC")
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [START_MS * 1000]


@pytest.mark.parametrize(
    "words",
    [{"columns": ["nope"]}, {"columns": []}, {"batch_rows": 0}, {"timestamp_unit": "ns"}, {"timestamp_unit": "s"}],
)
def test_scan_arrow_refuses_what_it_cannot_do(filled: Log, words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        filled.scan_arrow(**words)


# ---------------------------------------------------------------- read_batches and read_ranges


@pytest.mark.parametrize("offset", range(34))
def test_raw_batches_begin_with_the_one_that_holds_the_offset(filled: Log, offset: int) -> None:
    batches = list(filled.read_batches(offset))

    assert [batch.base_offset for batch in batches] == list(range(offset, 33))
    assert decode_records(b"".join(batch.raw for batch in batches)) == list(filled.read(offset))


def test_a_raw_batch_may_begin_before_the_offset(log: Log) -> None:
    log.append_many([Record(b"v")] * 10)

    (batch,) = log.read_batches(7)

    assert (batch.base_offset, batch.next_offset) == (0, 10)


@pytest.mark.parametrize(
    ("max_bytes", "count"), [(1, 1), (BATCH_BYTES, 1), (2 * BATCH_BYTES - 1, 1), (2 * BATCH_BYTES, 2), (10**6, 30)]
)
def test_raw_batches_and_ranges_keep_to_max_bytes_but_for_the_first(filled: Log, max_bytes: int, count: int) -> None:
    batches = list(filled.read_batches(3, max_bytes=max_bytes))

    assert len(batches) == count
    ranges = filled.read_ranges(3, max_bytes=max_bytes)
    assert sum(each.size for each in ranges) == sum(len(batch.raw) for batch in batches)


def test_raw_batches_are_checked_against_their_crc(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 3)
        data = bytearray((tmp_path / FIRST).read_bytes())
        data[BATCH_BYTES + 70] ^= 1
        (tmp_path / FIRST).write_bytes(data)

        with pytest.raises(CorruptBatch) as caught:
            list(log.read_batches(0))
        assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST), BATCH_BYTES)


def sent(ranges: list[Any]) -> bytes:
    """Return what a peer gets when the ranges are sent to it."""
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


def test_a_range_stays_readable_while_it_is_held(filled: Log) -> None:
    ranges = filled.read_ranges(0, max_bytes=3 * BATCH_BYTES)
    expected = b"".join(batch.raw for batch in filled.read_batches(0, max_bytes=3 * BATCH_BYTES))

    filled.delete_before(33)

    assert sent(ranges) == expected


def test_the_end_has_no_batches_and_no_ranges(filled: Log) -> None:
    assert list(filled.read_batches(33)) == []
    assert filled.read_ranges(33) == []


def test_a_range_of_many_chunks_of_one_file_is_one_range(tmp_path: Path) -> None:
    """The headers are walked 96 KiB at a time, and a range ends only with its file."""
    with open_log(tmp_path) as log:
        fill(log, 3000)

        (found,) = log.read_ranges(7)

        assert (found.position, found.size) == (7 * BATCH_BYTES, 2993 * BATCH_BYTES)
        assert (found.base_offset, found.next_offset) == (7, 3000)


# ---------------------------------------------------------------- seek, time, last


def test_seek_tells_where_an_offset_is_and_what_it_took(filled: Log) -> None:
    for offset in range(33):
        found = filled.seek(offset)

        assert (found.offset, found.segment) == (offset, offset // 5 * 5)
        assert found.path == str(filled.path / f"{offset // 5 * 5:020d}.log")
        assert found.position == offset % 5 * BATCH_BYTES
        # More than 100 bytes lie between two entries, so two batches; the second of them may be the one sought.
        assert found.scanned_bytes == found.scanned_batches * BATCH_BYTES <= 2 * BATCH_BYTES


def test_seek_inside_a_batch_finds_its_start(log: Log) -> None:
    log.append(b"before")
    log.append_many([Record(b"v")] * 10)

    assert log.seek(7).position == log.seek(1).position == HEADER_BYTES + 7 + 6


@pytest.mark.parametrize("size", [10, 60, 200, 1000, 9000])
@pytest.mark.parametrize("interval", [16384, 1 << 20])
def test_a_batch_is_found_however_far_from_an_index_entry_it_lies(tmp_path: Path, size: int, interval: int) -> None:
    """Goal: a chunk that ends inside of a batch is not where the search ends: a truncation would cut there."""
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
def test_offset_at_time_is_what_a_linear_search_finds(tmp_path: Path, seed: int, codec: str) -> None:
    """Times that grow, jump, repeat or are not there, in batches of one and of several."""
    chance = random.Random(seed)
    stamps: list[int] = []
    words: dict[str, Any] = {
        "segment_bytes": 900,
        "index_interval_bytes": chance.choice([0, 100, 4096]),
        "compression_type": codec,
    }
    with open_log(tmp_path, **words) as log:
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


def test_offset_at_time_begins_at_the_start_and_ends_at_the_high_watermark(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual", segment_bytes=3 * BATCH_BYTES) as log:
        fill(log, 10)
        log.advance_high_watermark(8)
        log.delete_before(4)

        assert log.offset_at_time(0) == 4
        assert log.offset_at_time(START_MS + 7000) == 7
        assert log.offset_at_time(START_MS + 8000) is None


def test_an_error_of_a_search_by_time_names_the_byte(tmp_path: Path) -> None:
    """The CRC is right, the record is not: its key would be longer than it."""
    bad = batch_of(b"\x0c\x00\x00\x00\x63\x01\x00", max_timestamp=START_MS + 10**6)
    with open_log(tmp_path) as log:
        fill(log, 3)
        log.append_batches(bad)

        with pytest.raises(CorruptBatch) as caught:
            log.offset_at_time(START_MS + 10**6)
        assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST), 3 * BATCH_BYTES)


def test_last_is_the_newest_visible_record(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)

        assert log.last().offset == 2


def test_an_empty_log_has_no_last_record(log: Log) -> None:
    with pytest.raises(OffsetOutOfRange, match="empty"):
        log.last()
    log.append(b"v")
    log.delete_before(1)
    with pytest.raises(OffsetOutOfRange):
        log.last()


# ---------------------------------------------------------------- follow


class Follower(threading.Thread):
    """Follows a log in a thread until it has found `count` records; daemonic, for when it hangs."""

    def __init__(self, log: Log, offset: int | None, *, count: int = 10**9, timeout_ms: float | None = None) -> None:
        super().__init__(daemon=True)
        self.records = log.follow(offset, timeout_ms=timeout_ms)
        self.count = count
        self.found: list[int] = []
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for record in self.records:
                self.found.append(record.offset)
                if len(self.found) == self.count:
                    return
        except BaseException as error:
            self.error = error

    def has_ended(self) -> bool:
        self.join(5)
        return not self.is_alive()


@pytest.mark.parametrize("flush", ["os", "batch"])
def test_follow_waits_for_what_comes(tmp_path: Path, flush: str) -> None:
    with open_log(tmp_path, flush=flush) as log:
        fill(log, 3)
        follower = Follower(log, 1, count=6)
        for _ in range(4):
            fill(log, 1)

        assert follower.has_ended()
        assert follower.found == [1, 2, 3, 4, 5, 6]


def test_follow_is_woken_by_each_sync_where_only_what_is_synced_is_shown(tmp_path: Path) -> None:
    rounds = 50
    seen: list[bytes | None] = []
    has_come = threading.Event()

    def follow() -> None:
        for record in log.follow(0, timeout_ms=10_000):
            seen.append(record.value)
            has_come.set()
            if len(seen) == rounds:
                return

    with Log(tmp_path / "log", config=LogConfig(flush="batch")) as log:
        follower = threading.Thread(target=follow)
        follower.start()
        for number in range(rounds):
            # It waits by now, or will in a moment: nothing else is there for it.
            log.append(b"%d" % number)
            assert has_come.wait(10)
            has_come.clear()
        follower.join()
    assert seen == [b"%d" % number for number in range(rounds)]


def test_follow_without_an_offset_begins_with_the_next_record(log: Log) -> None:
    fill(log, 3)
    follower = Follower(log, None, count=1)
    fill(log, 1)

    assert follower.has_ended()
    assert follower.found == [3]


@pytest.mark.parametrize("read_only", [False, True])
def test_follow_waits_for_as_long_as_it_was_told(log: Log, read_only: bool) -> None:
    fill(log, 2)
    with open_reader(log.path, clock=SystemClock()) as reader:
        follower = Follower(reader if read_only else log, 0, count=3, timeout_ms=1000 * PATIENCE_S)
        wait_until(lambda: len(follower.found) == 2, "the first records")
        fill(log, 1)

        assert follower.has_ended()
        assert follower.found == [0, 1, 2]


def test_follow_ends_when_nothing_comes_in_time(filled: Log) -> None:
    assert offsets(filled.follow(30, timeout_ms=1)) == [30, 31, 32]


@pytest.mark.parametrize("read_only", [False, True])
def test_follow_ends_when_the_log_is_closed(tmp_path: Path, read_only: bool) -> None:
    make_log(tmp_path, 2)
    log = open_log(tmp_path, clock=SystemClock(), read_only=read_only)
    follower = Follower(log, 0)
    wait_until(lambda: len(follower.found) == 2, "the first records")

    log.close()

    assert follower.has_ended()
    assert follower.error is None


def test_follow_ends_when_the_log_has_failed(tmp_path: Path) -> None:
    """Nothing more will come: it must not wait for ever, and not without a pause."""

    class Failing(QuickFiles):
        fails = False

        def sync(self, handle: int) -> None:
            if self.fails:
                raise OSError(5, "Input/output error")

    files = Failing()
    log = open_log(tmp_path, files=files)
    fill(log, 2)
    follower = Follower(log, 0)
    wait_until(lambda: len(follower.found) == 2, "the first records")
    files.fails = True
    with pytest.raises(LogFailed):
        log.flush()

    assert follower.has_ended()
    log.close()


def test_follow_goes_over_offsets_that_have_no_record(log: Log) -> None:
    log.append(b"a")
    log.append_batches(batch_of(b"", last_delta=9, record_count=0))
    log.append_batches(Sketch((HandMade(b"\0\0\0\0\0\0", b"\0\0\0\1"),), attributes=0x30).encode())
    log.append(b"b")

    assert offsets(log.follow(0, timeout_ms=1)) == [0, 12]


def test_follow_sees_only_what_is_committed(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(2)
        assert offsets(log.follow(0, timeout_ms=1)) == [0, 1]
        follower = Follower(log, 2, count=2)
        log.advance_high_watermark(4)

        assert follower.has_ended()
        assert follower.found == [2, 3]


@pytest.mark.parametrize("flush", ["os", "batch"])
def test_follow_works_from_another_process(tmp_path: Path, flush: str) -> None:
    path = tmp_path / "log"
    with open_log(path, flush=flush, segment_bytes=3 * BATCH_BYTES) as log:
        fill(log, 2)

        def follow(report: Callable[[str], None]) -> None:
            with open_reader(path, clock=SystemClock()) as reader:
                report("open")
                for record in reader.follow(0):
                    report(f"{record.offset}")
                    if record.offset == 9:
                        return

        child = Child(follow)
        assert child.line() == "open"
        assert [child.line(), child.line()] == ["0", "1"]
        fill(log, 8)

        assert child.rest() == [str(n) for n in range(2, 10)]
        assert child.wait() == 0


# ---------------------------------------------------------------- the high watermark


@pytest.mark.id("high-watermark-follows-write")
@pytest.mark.parametrize("flush", ["os", "interval"])
def test_the_high_watermark_follows_the_write(tmp_path: Path, flush: str) -> None:
    with open_log(tmp_path, flush=flush) as log:
        fill(log, 3)

        assert (log.high_watermark, log.recovery_point) == (3, 0)


@pytest.mark.id("flush-batch-high-watermark")
def test_with_flush_batch_the_high_watermark_follows_the_sync(tmp_path: Path) -> None:
    class Failing(QuickFiles):
        fails = False

        def sync(self, handle: int) -> None:
            if self.fails:
                raise OSError(5, "Input/output error")

    files = Failing()
    log = open_log(tmp_path, flush="batch", files=files)
    fill(log, 3)
    assert log.high_watermark == log.recovery_point == 3
    files.fails = True
    with pytest.raises(SeeklogError):
        log.append(b"never acknowledged")

    assert (log.high_watermark, log.recovery_point, log.log_end_offset) == (3, 3, 4)
    assert offsets(log.read(0)) == [0, 1, 2]
    log.close()


@pytest.mark.id("read-up-to-high-watermark")
def test_reads_stop_at_the_high_watermark_and_uncommitted_ones_go_on(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        assert list(log.read(0)) == list(log.scan()) == list(log.scan_reverse()) == []
        log.advance_high_watermark(3)

        assert offsets(log.read(0)) == offsets(log.scan()) == [0, 1, 2]
        assert log.scan_arrow().read_all().num_rows == 3
        assert [batch.base_offset for batch in log.read_batches(0)] == [0, 1, 2]
        assert sum(each.size for each in log.read_ranges(0)) == 3 * BATCH_BYTES
        assert list(log.read(4)) == []
        assert offsets(log.read_uncommitted(0)) == [0, 1, 2, 3, 4]
        assert [batch.base_offset for batch in log.read_batches(3, uncommitted=True)] == [3, 4]
        assert sum(each.size for each in log.read_ranges(0, uncommitted=True)) == 5 * BATCH_BYTES


@by_codec
def test_the_high_watermark_may_lie_inside_a_batch(tmp_path: Path, codec: str) -> None:
    with open_log(tmp_path, high_watermark="manual", compression_type=codec) as log:
        log.append_many([Record(b"v")] * 10)
        log.advance_high_watermark(4)

        assert offsets(log.read(2)) == [2, 3]
        assert offsets(log.scan_reverse()) == [3, 2, 1, 0]
        assert log.scan_arrow().read_all().num_rows == 4
        assert list(log.read_batches(0)) == []


def test_the_high_watermark_never_goes_back(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)
        log.advance_high_watermark(2)
        log.advance_high_watermark(-1)

        assert log.high_watermark == 3


def test_the_high_watermark_cannot_pass_the_end(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(5)
        with pytest.raises(OffsetOutOfRange, match="high watermark 6"):
            log.advance_high_watermark(6)

        assert log.high_watermark == 5


def test_a_high_watermark_that_moves_by_itself_is_not_moved_by_hand(log: Log) -> None:
    with pytest.raises(UsageError, match="manual"):
        log.advance_high_watermark(0)


def test_a_manual_high_watermark_survives_a_clean_close(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)

    with open_log(tmp_path, high_watermark="manual") as log:
        assert (log.high_watermark, log.log_end_offset) == (3, 5)
    with open_log(tmp_path) as log:
        assert log.high_watermark == 5


# ---------------------------------------------------------------- truncate_to


@pytest.mark.parametrize("offset", range(34))
def test_truncate_drops_the_offset_and_all_behind_it(filled: Log, offset: int) -> None:
    assert filled.truncate_to(offset) == offset

    assert filled.log_end_offset == filled.high_watermark == offset
    assert filled.recovery_point <= offset
    assert offsets(filled.scan()) == list(range(offset))
    assert filled.append(b"new") == offset
    assert values(filled.read(offset)) == [b"new"]
    assert segment_bases(filled.path)[-1] <= offset


@pytest.mark.parametrize("offset", range(10, 20))
def test_truncate_inside_a_batch_drops_all_of_it(log: Log, offset: int) -> None:
    for _ in range(3):
        log.append_many([Record(b"v")] * 10)

    assert log.truncate_to(offset) == 10
    assert log.log_end_offset == 10


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("offset", [0, 3, 5, 12, 32])
def test_a_truncation_outlives_a_reopen(tmp_path: Path, offset: int, is_clean: bool) -> None:
    path = tmp_path / "log"
    with open_log(path, **SEVEN_SEGMENTS) as log:
        fill(log, 33)
        log.flush()
        log.truncate_to(offset)
        log.append(b"new")
        if not is_clean:
            path = crashed_copy(path, tmp_path / "crashed")

    with open_log(path, **SEVEN_SEGMENTS) as log:
        assert log.recovery.cut_bytes == 0
        assert values(log.scan()) == [*(value_of(n) for n in range(offset)), b"new"]


@pytest.mark.parametrize("place", [0, 2, 4])
def test_truncating_behind_damage_is_refused_and_nothing_is_lost(tmp_path: Path, place: int) -> None:
    """What stays is scanned for its indexes: bit rot met there must not become the new end."""
    with open_log(tmp_path) as log:
        fill(log, 10)
        log.flush()
        data = bytearray((tmp_path / FIRST).read_bytes())
        data[place * BATCH_BYTES + 70] ^= 1
        (tmp_path / FIRST).write_bytes(data)
        before = contents(tmp_path)

        with pytest.raises(CorruptionError):
            log.truncate_to(7)

        assert {name: data for name, data in contents(tmp_path).items() if name.startswith("0")} == {
            name: data for name, data in before.items() if name.startswith("0")
        }
        assert log.log_end_offset == 10


def test_truncate_after_a_delete_keeps_the_start_where_it_can(filled: Log) -> None:
    filled.delete_before(7)
    filled.truncate_to(12)

    assert (filled.log_start_offset, filled.log_end_offset) == (7, 12)
    assert offsets(filled.scan()) == [7, 8, 9, 10, 11]


@pytest.mark.id("truncation-start-without-room")
def test_truncating_the_batch_that_the_log_starts_in_stops_where_the_new_start_finds_no_room(tmp_path: Path) -> None:
    """The log starts lower than the checkpoint on disk says: what would be appended there was lost by a crash."""
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only="seeklog-checkpoint.tmp")
    with open_log(tmp_path, files=files, flush="batch") as log:
        log.append_many([Record(b"v")] * 3)
        log.delete_before(1)
        files.fail_at = files.calls + 2

        with pytest.raises(LogFailed):
            log.truncate_to(1)

        assert files.failures == 1
        with pytest.raises(LogFailed):
            log.append(b"new")

    with open_log(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert log.append(b"new") == 0


def test_what_a_truncation_keeps_and_syncs_is_shown_with_flush_batch(tmp_path: Path) -> None:
    """Who waits for a sync meanwhile finds the work done: nothing else would show the record until the next append."""
    with open_log(tmp_path, flush="batch") as log:
        log.append(b"shown")
        log.append_many([Record(b"kept")], wait=False)
        log.append_many([Record(b"cut")], wait=False)
        follower = Follower(log, 1, count=1)
        wait_until(lambda: log._partition is not None and log._partition._waiting > 0, "a follower")

        log.truncate_to(2)
        assert log.high_watermark == log.recovery_point == 2
        assert follower.has_ended()
        assert follower.found == [1]
        with open_reader(tmp_path) as reader:
            assert values(reader.scan()) == [b"shown", b"kept"]


@pytest.mark.parametrize("offset", [-1, 6, 34, 10**9])
def test_truncate_outside_of_the_log_is_refused(filled: Log, offset: int) -> None:
    filled.delete_before(7)
    before = contents(filled.path)

    with pytest.raises(OffsetOutOfRange):
        filled.truncate_to(offset)

    assert contents(filled.path) == before


# ---------------------------------------------------------------- delete_before


@pytest.mark.id("delete-before")
@pytest.mark.parametrize("offset", range(34))
def test_delete_raises_the_start_and_drops_whole_segments(filled: Log, offset: int) -> None:
    deleted = filled.delete_before(offset)

    assert deleted == min(offset, 30) // 5
    assert filled.log_start_offset == offset
    assert offsets(filled.scan()) == list(range(offset, 33))
    assert offsets(filled.scan_reverse()) == list(range(32, offset - 1, -1))
    assert segment_bases(filled.path) == list(range(deleted * 5, 31, 5))
    assert filled.append(b"next") == 33


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_raised_start_outlives_a_reopen(tmp_path: Path, is_clean: bool) -> None:
    path = tmp_path / "log"
    with open_log(path, **SEVEN_SEGMENTS) as log:
        fill(log, 33)
        log.delete_before(12)
        if not is_clean:
            path = crashed_copy(path, tmp_path / "crashed")

    with open_log(path, **SEVEN_SEGMENTS) as log:
        assert log.log_start_offset == 12
        assert offsets(log.scan()) == list(range(12, 33))


def test_what_is_below_the_start_is_out_of_range(filled: Log) -> None:
    filled.delete_before(12)

    for call in (
        lambda: filled.read(11),
        lambda: filled.scan(11),
        lambda: filled.scan_reverse(11),
        lambda: filled.scan_arrow(11),
        lambda: filled.read_batches(11),
        lambda: filled.read_ranges(11),
        lambda: filled.seek(11),
        lambda: filled.follow(11),
        lambda: filled.read_uncommitted(11),
    ):
        with pytest.raises(OffsetOutOfRange, match="valid offsets are 12 to 32") as caught:
            call()
        assert (caught.value.offset, caught.value.log_start_offset, caught.value.log_end_offset) == (11, 12, 33)


def test_the_start_never_goes_back(filled: Log) -> None:
    filled.delete_before(12)

    assert filled.delete_before(3) == 0
    assert filled.log_start_offset == 12


@pytest.mark.parametrize("offset", [-1, 34])
def test_delete_outside_of_the_log_is_refused(filled: Log, offset: int) -> None:
    before = contents(filled.path)

    with pytest.raises(OffsetOutOfRange):
        filled.delete_before(offset)

    assert contents(filled.path) == before


def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)
        with pytest.raises(OffsetOutOfRange):
            log.delete_before(4)
        log.delete_before(3)

        assert log.log_start_offset == 3


# ---------------------------------------------------------------- durability


def test_with_flush_os_nothing_is_synced_until_it_is_asked_for(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files) as log:
        files.diary.clear()
        fill(log, 10)
        assert files.count("sync", "") == 0
        assert log.recovery_point == 0
        log.flush()

        assert log.recovery_point == 10
        assert files.count("sync", FIRST) == 1


def test_a_flush_of_what_is_durable_syncs_nothing(log: Log, tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path / "counted", files=files) as counted:
        fill(counted, 3)
        counted.flush()
        before = files.count("sync", "")
        counted.flush()

        assert files.count("sync", "") == before


@pytest.mark.id("flush-batch-syncs")
def test_with_flush_batch_every_append_is_synced_before_it_returns(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files, flush="batch") as log:
        for way in (
            lambda: log.append(b"v"),
            lambda: log.append_many([Record(b"v")] * 3),
            lambda: log.append_batches(encode_batch([Record(b"v")])),
        ):
            before = files.count("sync")
            way()
            assert files.count("sync") == before + 1
            assert log.recovery_point == log.high_watermark == log.log_end_offset


def test_with_flush_interval_records_are_synced_in_the_background(tmp_path: Path) -> None:
    with open_log(tmp_path, flush="interval", flush_interval_ms=1, background=True) as log:
        fill(log, 3)

        wait_until(lambda: log.recovery_point == 3, "the background sync")


def test_in_the_background_rolled_segments_are_sealed(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=BATCH_BYTES, background=True) as log:
        fill(log, 3)

        wait_until(lambda: (tmp_path / f"{1:020d}.seal").exists(), "the seal")
        assert not (tmp_path / f"{2:020d}.seal").exists()


def test_the_recovery_point_is_written_down_about_once_a_second(tmp_path: Path) -> None:
    clock, files = FakeClock(), CountingFiles()
    with open_log(tmp_path, clock=clock, files=files) as log:
        before = files.count("rename", names.CHECKPOINT)
        for _ in range(20):
            fill(log, 1)
            log.flush()
            clock.advance(100)

        # Two seconds pass.
        assert files.count("rename", names.CHECKPOINT) - before in (1, 2)


def test_a_roll_syncs_the_old_segment_before_its_seal_and_writes_the_recovery_point(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files, segment_bytes=2 * BATCH_BYTES) as log:
        fill(log, 3)
        files.diary.clear()
        log.flush()

        names_written = [name for what, name in files.diary if what == "rename"]
        assert f"{0:020d}.seal" in names_written
        assert names.CHECKPOINT in names_written
        assert files.diary.index(("sync", FIRST)) < files.diary.index(("rename", f"{0:020d}.seal"))


def test_a_close_syncs_everything(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    log.close()
    log.close()

    with open_log(tmp_path) as log:
        assert log.recovery.clean
        assert log.recovery_point == 3


# ---------------------------------------------------------------- the object


def test_a_log_and_its_readers_show_their_path(log: Log) -> None:
    with open_reader(log.path) as reader:
        assert reader.path == log.reader.path == log.path
        assert repr(reader) == f"<LogReader {log.path}>"
    assert repr(log) == f"<Log {log.path}>"


def test_a_path_may_be_text_or_a_path(tmp_path: Path) -> None:
    with Log(str(tmp_path / "log"), config=config_of()) as log:
        log.append(b"v")
    with LogReader(tmp_path / "log") as log:
        assert values(log.scan()) == [b"v"]


def test_a_relative_path_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_log(Path("log"), segment_bytes=BATCH_BYTES) as log:
        monkeypatch.chdir("/")
        fill(log, 3)

    assert segment_bases(tmp_path / "log") == [0, 1, 2]


def test_files_are_readable_by_the_group_and_nobody_else(log: Log) -> None:
    fill(log, 1)

    assert log.path.stat().st_mode & 0o777 & ~0o750 == 0
    assert all(path.stat().st_mode & 0o777 & ~0o640 == 0 for path in log.path.iterdir())


# ---------------------------------------------------------------- bad input: nothing on disk changes


Refused = tuple[Callable[[Any], Any], type[SeeklogError], str]
BIG = bytes(600)
TEXT: Any = "text"
BOMB = Sketch((HandMade(bytes(100_000)),), codec=4).encode()

BAD_APPENDS: dict[str, Refused] = {
    "value is text": (lambda log: log.append("text"), InvalidRecord, "value must be bytes"),
    "value is a bytearray": (lambda log: log.append(bytearray(b"v")), InvalidRecord, "value must be bytes"),
    "key is text": (lambda log: log.append(b"v", key="k"), InvalidRecord, "key must be bytes"),
    "key is a number": (lambda log: log.append(b"v", key=5), InvalidRecord, "key must be bytes"),
    "header key is bytes": (lambda log: log.append(b"v", headers=[(b"h", b"")]), InvalidRecord, "header"),
    "header value is text": (lambda log: log.append(b"v", headers=[("h", "")]), InvalidRecord, "header"),
    "header is no pair": (lambda log: log.append(b"v", headers=["h"]), InvalidRecord, "header"),
    "headers are a number": (lambda log: log.append(b"v", headers=5), SeeklogError, "headers"),
    "header key is half a surrogate": (lambda log: log.append(b"", headers=[("\ud800", b"")]), InvalidRecord, "header"),
    "time is text": (lambda log: log.append(b"v", timestamp_ms="now"), InvalidRecord, "timestamp_ms"),
    "time is negative": (lambda log: log.append(b"v", timestamp_ms=-2), InvalidRecord, "timestamp_ms"),
    "time is too large": (lambda log: log.append(b"v", timestamp_ms=2**63), InvalidRecord, "timestamp_ms"),
    "many: value is text": (lambda log: log.append_many([Record(b""), Record(TEXT)]), InvalidRecord, "value must"),
    "many: no record": (lambda log: log.append_many([Record(b""), b"v"]), InvalidRecord, "item 1 is bytes"),
    "many: nothing": (lambda log: log.append_many([]), InvalidRecord, "at least one record"),
    "too large": (lambda log: log.append(BIG), RecordTooLarge, "max_message_bytes is 500"),
    "many: too large": (lambda log: log.append_many([Record(b"x" * 60)] * 8), RecordTooLarge, "max_message_bytes"),
    "batches: nothing": (lambda log: log.append_batches(b""), UsageError, "no batch"),
    "batches: junk": (lambda log: log.append_batches(b"junk" * 30), CorruptBatch, "byte 0"),
    "batches: zeros": (lambda log: log.append_batches(bytes(100)), CorruptBatch, "byte 0"),
    "batches: text": (lambda log: log.append_batches("text"), SeeklogError, "bytes"),
    "batches: cut short": (lambda log: log.append_batches(encode_batch([Record(b"v")])[:-1]), CorruptBatch, "middle"),
    "batches: wrong crc": (
        lambda log: log.append_batches(with_field(encode_batch([Record(b"v")]), "crc", 5)),
        CorruptBatch,
        "CRC",
    ),
    "batches: second is wrong": (
        lambda log: log.append_batches(encode_batch([Record(b"v")]) + bytes(80)),
        CorruptBatch,
        "byte 69",
    ),
    "batches: magic 0": (lambda log: log.append_batches(old_batch(0)), UnsupportedMagic, "magic 0"),
    "batches: magic 1": (lambda log: log.append_batches(old_batch(1)), UnsupportedMagic, "magic 1"),
    "batches: unknown codec": (
        lambda log: log.append_batches(batch_of(b"", attributes=6, record_count=0)),
        UnsupportedCodec,
        "codec 6",
    ),
    "batches: too large": (lambda log: log.append_batches(encode_batch([Record(BIG)])), RecordTooLarge, "500"),
    "batches: more records than can be": (
        lambda log: log.append_batches(batch_of(b"", record_count=2**31 - 1, last_delta=2**31 - 1)),
        CorruptBatch,
        "cannot fit",
    ),
    "batches: a negative count": (lambda log: log.append_batches(batch_of(b"", record_count=-1)), CorruptBatch, "-1"),
    "batches: a negative span": (lambda log: log.append_batches(batch_of(b"", last_delta=-5)), CorruptBatch, "-5"),
}


def old_batch(magic: int) -> bytes:
    return with_field(encode_batch([Record(b"v")]), "magic", magic)


@pytest.mark.parametrize("what", BAD_APPENDS)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_bad_append_is_refused_and_nothing_is_written(tmp_path: Path, what: str, codec: str) -> None:
    call, error, message = BAD_APPENDS[what]
    if codec == "zstd" and what in ("too large", "many: too large"):
        return  # it shrinks below the limit
    with open_log(tmp_path, max_message_bytes=500, compression_type=codec) as log:
        fill(log, 2)
        before = contents(tmp_path)

        with pytest.raises(error, match=message):
            call(log)

        assert contents(tmp_path) == before
        assert (log.log_end_offset, log.high_watermark) == (2, 2)
        assert log.append(b"goes on") == 2


def test_a_batch_that_compresses_below_the_limit_is_taken(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=500, compression_type="zstd") as log:
        log.append(BIG)

        assert values(log.scan()) == [BIG]


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
def test_an_offset_out_of_range_is_refused_with_the_range(
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


def test_a_decompression_bomb_is_refused_when_it_is_read(tmp_path: Path) -> None:
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
            with pytest.raises(BatchTooLarge, match="50,000") as caught:
                read()
            assert caught.value.path == str(tmp_path / FIRST)
        assert contents(tmp_path) == before
        assert values(log.read(2)) == [b"after"]
        assert len(list(log.read_batches(0))) == 3


def test_the_default_limit_of_a_batch_is_sixteen_mebibytes(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_batches(Sketch((HandMade(bytes(16 << 20)),), codec=4).encode())

        with pytest.raises(BatchTooLarge, match="16,777,216"):
            log.read(0)


def test_bit_rot_met_by_a_read_is_named_by_file_and_byte(tmp_path: Path) -> None:
    make_log(tmp_path, 10)
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[4 * BATCH_BYTES + 70] ^= 1
    (tmp_path / FIRST).write_bytes(data)

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
                assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST), 4 * BATCH_BYTES)
                assert "nothing was changed" in str(caught.value)
            assert contents(tmp_path) == before
            assert offsets(log.read(0, max_records=4)) == [0, 1, 2, 3]
            assert offsets(log.read(5)) == [5, 6, 7, 8, 9]


def test_a_segment_that_lost_its_end_is_noticed_by_a_read(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 10)
        os.truncate(tmp_path / FIRST, 7 * BATCH_BYTES + 5)

        with pytest.raises(LostRecords) as caught:
            list(log.scan())
        assert caught.value.path == str(tmp_path / FIRST)
        assert offsets(log.read(0, max_records=7)) == list(range(7))


# ---------------------------------------------------------------- bad paths


@pytest.mark.parametrize("read_only", [False, True])
def test_a_path_that_is_a_file_is_no_log(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")

    with pytest.raises(NotALog, match="is a file"):
        (LogReader if read_only else Log)(path)

    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_path_below_a_file_is_no_log(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "file").write_bytes(b"content")

    with pytest.raises(NotALog):
        (LogReader if read_only else Log)(tmp_path / "file" / "log")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "notes.txt").write_bytes(b"mine")

    with pytest.raises(NotALog, match=r"notes\.txt"):
        (LogReader if read_only else Log)(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


def test_a_reader_does_not_make_a_log(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(NotALog, match="there is no log"):
            LogReader(path)

    assert list(tmp_path.iterdir()) == []


def test_a_path_with_a_nul_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeeklogError):
        Log(f"{tmp_path}/a\0b")


class ForbiddenFiles(QuickFiles):
    """A disk that forbids one of its verbs."""

    def __init__(self, verb: str) -> None:
        self.verb = verb

    def __getattribute__(self, name: str) -> Any:
        if name == super().__getattribute__("verb"):
            return self._refuse
        return super().__getattribute__(name)

    def _refuse(self, *arguments: object, **words: object) -> object:
        raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("verb", ["make_directory", "list", "lock", "open", "read_file"])
def test_a_directory_without_permission_is_not_accessible(tmp_path: Path, verb: str) -> None:
    make_log(tmp_path, 3)
    before = contents(tmp_path)

    with pytest.raises(NotAccessible, match="Permission denied") as caught:
        open_log(tmp_path, files=ForbiddenFiles(verb))

    assert isinstance(caught.value.__cause__, PermissionError)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("verb", ["list", "open", "read_file"])
def test_a_reader_without_permission_is_told_so(tmp_path: Path, verb: str) -> None:
    make_log(tmp_path, 3)

    with pytest.raises(NotAccessible, match="Permission denied"):
        open_reader(tmp_path, files=ForbiddenFiles(verb))


def test_a_symbolic_link_in_place_of_a_segment_is_not_followed(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 3)
    secret = tmp_path / "secret"
    secret.write_bytes((tmp_path / "log" / FIRST).read_bytes())
    (tmp_path / "log" / FIRST).unlink()
    (tmp_path / "log" / FIRST).symlink_to(secret)

    with pytest.raises(SeeklogError):
        open_log(tmp_path / "log")

    assert secret.read_bytes()


@pytest.mark.id("side-file-is-a-link")
@pytest.mark.parametrize("name", [".lock", "seeklog-checkpoint", "seeklog-watermark", "leader-epoch-checkpoint"])
def test_a_symbolic_link_in_place_of_a_side_file_is_not_followed(tmp_path: Path, name: str) -> None:
    """Goal: nobody who can make a name in the directory has a writer read, or write, a file that lies elsewhere."""
    make_log(tmp_path / "log", 3)
    outside = tmp_path / "outside"
    (tmp_path / "log" / name).rename(outside)
    (tmp_path / "log" / name).symlink_to(outside)
    before = outside.read_bytes()

    with pytest.raises(NotAccessible, match=name):
        open_log(tmp_path / "log")

    assert outside.read_bytes() == before


# ---------------------------------------------------------------- a second writer, a closed log, a reader


def test_a_second_writer_is_refused_and_told_the_first(log: Log) -> None:
    fill(log, 3)
    before = contents(log.path)

    with pytest.raises(LogLocked, match=str(os.getpid())) as caught:
        open_log(log.path)

    assert (caught.value.path, caught.value.owner_pid) == (str(log.path), os.getpid())
    assert contents(log.path) == before
    assert log.append(b"goes on") == 3


WRITES: dict[str, Callable[[Log], Any]] = {
    "append": lambda log: log.append(b"v"),
    "append_many": lambda log: log.append_many([Record(b"v")]),
    "append_batches": lambda log: log.append_batches(encode_batch([Record(b"v")])),
    "flush": lambda log: log.flush(),
    "truncate_to": lambda log: log.truncate_to(0),
    "delete_before": lambda log: log.delete_before(1),
    "retain": lambda log: log.retain(),
    "begin_epoch": lambda log: log.begin_epoch(5),
    "advance_high_watermark": lambda log: log.advance_high_watermark(1),
    "writer": lambda log: LogWriter(log, linger_ms=0).append(b"v").result(PATIENCE_S),
}
READS: dict[str, Callable[[Log], Any]] = {
    "read": lambda log: log.read(0),
    "read_uncommitted": lambda log: log.read_uncommitted(0),
    "scan": lambda log: list(log.scan()),
    "scan_reverse": lambda log: list(log.scan_reverse()),
    "scan_arrow": lambda log: log.scan_arrow().read_all(),
    "read_batches": lambda log: list(log.read_batches(0)),
    "read_ranges": lambda log: log.read_ranges(0),
    "follow": lambda log: list(log.follow(0, timeout_ms=1)),
    "seek": lambda log: log.seek(0),
    "offset_at_time": lambda log: log.offset_at_time(0),
    "last": lambda log: log.last(),
}


@pytest.mark.parametrize("what", [*WRITES, *READS])
def test_a_closed_log_refuses_everything_and_nothing_changes(tmp_path: Path, what: str) -> None:
    log = open_log(tmp_path, high_watermark="manual")
    fill(log, 3)
    log.advance_high_watermark(2)
    log.close()
    before = contents(tmp_path)

    with pytest.raises(LogClosed, match="is closed"):
        {**WRITES, **READS}[what](log)

    assert contents(tmp_path) == before


@pytest.mark.parametrize("what", READS)
def test_a_closed_reader_refuses_everything(tmp_path: Path, what: str) -> None:
    make_log(tmp_path, 3)
    log = open_reader(tmp_path)
    list(log.scan())
    log.close()
    log.close()

    with pytest.raises(LogClosed, match="is closed"):
        READS[what](log)


def test_a_reader_has_no_method_that_writes() -> None:
    """Goal: a change of the log is a mistake that a type checker finds, not an error at run time."""
    writing = {name for name in vars(Log) if not name.startswith("_")} - vars(LogReader).keys()

    assert writing >= {*WRITES} - {"writer"}
    assert not any(hasattr(LogReader, name) for name in writing)


def test_the_reader_of_a_log_sees_what_it_appends_and_ends_with_it(log: Log) -> None:
    reader = log.reader
    log.append(b"first")
    assert values(reader.scan()) == [b"first"]

    reader.close()
    with pytest.raises(LogClosed):
        reader.read(0)
    assert values(log.reader.scan()) == [b"first"], "closing it leaves the log open"

    again = log.reader
    log.close()
    with pytest.raises(LogClosed):
        again.read(0)


def test_a_scan_that_was_begun_before_the_close_ends_or_is_refused(filled: Log) -> None:
    scan = filled.scan()
    next(scan)
    filled.close()

    try:
        rest = offsets(scan)
    except SeeklogError:
        return
    assert rest == list(range(1, 33))


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "words",
    [
        {"flush": "always"},
        {"high_watermark": "x"},
        {"compression_type": "lzma"},
        {"compression_type": None},
        {"message_timestamp_type": "create"},
        {"segment_bytes": 60},
        {"segment_bytes": 2**31},
        {"segment_bytes": "1"},
        {"segment_bytes": 1.5},
        {"segment_bytes": True},
        {"segment_ms": 0},
        {"segment_index_bytes": 23},
        {"index_interval_bytes": -1},
        {"index_interval_records": -1},
        {"retention_ms": -2},
        {"retention_bytes": -2},
        {"max_message_bytes": 61},
        {"flush_interval_ms": 0},
        {"initial_offset": -1},
        {"initial_offset": 2**63 - 1},
        {"max_decompressed_bytes": 0},
        {"max_open_segments": 0},
    ],
    ids=repr,
)
def test_a_configuration_that_cannot_be_is_refused_by_its_word(words: dict[str, Any]) -> None:
    (word,) = words

    with pytest.raises(InvalidConfig, match=word) as caught:
        LogConfig(**words)

    assert isinstance(caught.value, ValueError)


def test_an_unknown_word_names_the_nearest_known_one() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean segment\.bytes"):
        LogConfig.from_mapping({"segment.byte": 5})
    with pytest.raises(InvalidConfig, match="known words"):
        LogConfig.from_mapping({"xyz": 5})


def test_words_may_have_kafkas_dots() -> None:
    assert LogConfig.from_mapping({"segment.bytes": 1000, "retention_ms": 5}) == LogConfig(
        segment_bytes=1000, retention_ms=5
    )


NUMBERS = [
    "segment_bytes",
    "segment_ms",
    "segment_index_bytes",
    "index_interval_bytes",
    "index_interval_records",
    "retention_ms",
    "retention_bytes",
    "max_message_bytes",
    "flush_interval_ms",
    "initial_offset",
    "max_decompressed_bytes",
    "max_open_segments",
]


@pytest.mark.parametrize("word", NUMBERS)
def test_numbers_may_be_text_as_kafkas_tools_have_them(word: str) -> None:
    for spelt in (word, word.replace("_", ".")):
        config = LogConfig.from_mapping({spelt: "1000"})

        assert config == LogConfig(**{word: 1000})


@pytest.mark.parametrize("text", ["", " ", "x", "1.5", "1e3", "0x10", "1 000", "--1", "None", "true", "\0"])
def test_text_that_is_no_number_is_refused_by_its_word(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.ms must be a whole number"):
        LogConfig.from_mapping({"retention.ms": text})


@pytest.mark.parametrize("text", ["-2", "9223372036854775808"])
def test_text_is_held_against_the_bounds_like_a_number(text: str) -> None:
    with pytest.raises(InvalidConfig, match="retention_ms must be between -1"):
        LogConfig.from_mapping({"retention.ms": text})


def test_text_stays_text_where_a_word_is_meant() -> None:
    config = LogConfig.from_mapping({"compression.type": "zstd", "cleanup.policy": "compact,delete", "flush": "batch"})

    assert (config.compression_type, config.cleanup_policy, config.flush) == ("zstd", "compact,delete", "batch")


@pytest.mark.parametrize(
    ("cleanup_policy", "deletes"), [("delete", True), ("compact", False), ("compact,delete", True)]
)
def test_a_cleanup_policy_says_whether_records_go_by_age(cleanup_policy: str, deletes: bool) -> None:
    assert LogConfig.from_mapping({"cleanup.policy": cleanup_policy}).deletes is deletes


@pytest.mark.parametrize("cleanup_policy", ["", "Delete", "remove", None, 5, ["delete"], "compact,remove"])
def test_a_cleanup_policy_that_is_none_is_refused(cleanup_policy: object) -> None:
    with pytest.raises(InvalidConfig, match="cleanup_policy must be one of"):
        LogConfig.from_mapping({"cleanup.policy": cleanup_policy})


def test_the_words_of_a_topic_stand_in_place_of_a_logs_values() -> None:
    config = LogConfig(retention_ms=5, segment_bytes=1000, max_open_segments=7)

    assert config.with_words({}) == config
    assert config.with_words({"retention.ms": "9", "flush": "os"}) == LogConfig(
        retention_ms=9, segment_bytes=1000, max_open_segments=7, flush="os"
    )
    assert config.retention_ms == 5


@pytest.mark.parametrize("word", ["initial.offset", "high.watermark", "max.open.segments", "initial_offset"])
def test_what_belongs_to_a_process_is_no_word_of_a_topic(word: str) -> None:
    with pytest.raises(InvalidConfig, match=f"unknown configuration word '{word}'"):
        LogConfig().with_words({word: 5})


def test_every_other_word_is_one_of_a_topic() -> None:
    values_of_words = {
        name: getattr(LogConfig(), name)
        for name in LogConfig.__dataclass_fields__
        if name not in ("initial_offset", "high_watermark", "max_open_segments")
    }

    assert LogConfig().with_words(values_of_words) == LogConfig()


def test_the_defaults_are_kafkas() -> None:
    config = LogConfig()

    week_ms = 7 * 24 * 3600 * 1000
    assert (config.segment_bytes, config.segment_ms, config.index_interval_bytes) == (1 << 30, week_ms, 4096)
    assert (config.retention_ms, config.retention_bytes, config.max_message_bytes) == (week_ms, -1, 1_048_588)
    assert (config.flush, config.flush_interval_ms) == ("interval", 1000)


def test_the_batch_that_a_reader_hands_on_is_the_one_it_read(filled: Log) -> None:
    batch = next(filled.read_batches(3))

    assert isinstance(batch, Batch)
    assert values(batch.records()) == [value_of(3)]
