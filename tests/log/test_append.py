"""Appending one record, many records, and whole batches, and what a refused append leaves on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log.workbench import START_MS, CountingFiles, FakeClock, contents, fill, offsets, open_log, values
from record.batches import CODECS, Sketch, batch_of, with_field
from record.batches import Row as HandMade
from seeklog import Log, ProducerSequence, Record
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import (
    CorruptBatch,
    FormatError,
    InvalidRecord,
    RecordTooLarge,
    SeeklogError,
    UnsupportedMagic,
    UsageError,
)
from seeklog.record.batch import encode_batch
from seeklog.record.codec import CODEC_NAMES

by_codec = pytest.mark.parametrize("codec", [CODEC_NAMES[codec] for codec in CODECS])


# ---------------------------------------------------------------- append


@pytest.mark.parametrize("way", ["append", "append_many", "append_batches", "append_numbered"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_append_at_largest_offset_is_refused_and_log_stays_usable(tmp_path: Path, way: str, codec: str) -> None:
    wide = Sketch((HandMade(b"wide"),), fields={"last_delta": 2**31 - 3}).encode()
    batch = Sketch((HandMade(b"x"),)).encode()
    more: dict[str, Callable[[Log], object]] = {
        "append": lambda log: log.append(b"x"),
        "append_many": lambda log: log.append_many([Record(b"x")]),
        "append_batches": lambda log: log.append_batches(batch),
        "append_numbered": lambda log: log.append_many([Record(b"x")], producer=ProducerSequence(producer_id=7)),
    }
    settings: dict[str, Any] = {"initial_offset": 2**63 - 1 - 2**31, "flush": "batch", "compression_type": codec}
    with open_log(tmp_path, **settings) as log:
        log.append(b"first")
        log.append_batches(wide)
        log.append(b"last")
        assert log.log_end_offset == 2**63 - 1
        before = contents(tmp_path)
        with pytest.raises(UsageError, match="the largest offset is 9223372036854775806"):
            more[way](log)
        assert contents(tmp_path) == before
        assert [record.value for record in log.scan()] == [b"first", b"wide", b"last"]
    with open_log(tmp_path, **settings) as log:
        assert [record.value for record in log.scan()] == [b"first", b"wide", b"last"]
        assert log.log_end_offset == 2**63 - 1


def test_append_returns_consecutive_offsets(log: Log) -> None:
    assert [log.append(b"v") for _ in range(5)] == [0, 1, 2, 3, 4]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 5, 5)


@by_codec
def test_records_are_read_back_unchanged(tmp_path: Path, codec: str) -> None:
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


def test_record_without_timestamp_gets_time_of_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock) as log:
        log.append(b"")
        clock.advance(77)
        log.append_many([Record(b""), Record(b"", timestamp_ms=5)])

        assert [record.timestamp_ms for record in log.scan()] == [START_MS, START_MS + 77, 5]


@pytest.mark.parametrize("way", ["append", "append_many", "append_batches", "writer"])
def test_append_time_replaces_timestamp_of_every_record(tmp_path: Path, way: str) -> None:
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


def test_one_append_is_one_batch_and_one_write(tmp_path: Path) -> None:
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
def test_append_many_returns_range_and_writes_one_batch(tmp_path: Path, codec: str, count: int) -> None:
    with open_log(tmp_path, compression_type=codec, initial_offset=10) as log:
        taken = log.append_many([Record(b"%d" % n, key=b"k") for n in range(count)])

        assert taken == range(10, 10 + count)
        assert values(log.scan()) == [b"%d" % n for n in range(count)]
        assert [batch.record_count for batch in log.read_batches(10)] == [count]


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_append_many_takes_any_iterable(log: Log, kind: Callable[[Any], Any]) -> None:
    assert log.append_many(kind([Record(b"a"), Record(b"b")])) == range(2)
    assert values(log.scan()) == [b"a", b"b"]


def test_old_offsets_of_records_are_ignored(log: Log) -> None:
    log.append_many([Record(b"a", offset=500), Record(b"b", offset=3)])

    assert offsets(log.scan()) == [0, 1]


# ---------------------------------------------------------------- append_batches


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_append_batches_changes_only_offset_and_epoch(tmp_path: Path, codec: int, kind: Callable[[bytes], Any]) -> None:
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


def test_gaps_and_empty_batches_take_offsets(log: Log) -> None:
    gap = Sketch((HandMade(b"a"), HandMade(b"b", delta=5)), fields={"last_delta": 7}).encode()
    empty = batch_of(b"", last_delta=9, record_count=0)

    assert log.append_batches(gap + empty + gap) == range(26)
    assert offsets(log.scan()) == [0, 5, 18, 23]
    assert [offsets(log.read(offset, max_records=1)) for offset in (1, 6, 8, 19)] == [[5], [18], [18], [23]]


def test_control_batches_are_stored_but_give_no_records(log: Log) -> None:
    marker = Sketch((HandMade(b"\0\0\0\0\0\0", b"\0\0\0\1"),), attributes=0x30).encode()
    log.append(b"before")
    assert log.append_batches(marker) == range(1, 2)
    log.append(b"after")

    assert values(log.scan()) == [b"before", b"after"]
    assert values(log.scan_reverse()) == [b"after", b"before"]
    assert [batch.header.is_control for batch in log.read_batches(0)] == [False, True, False]
    assert offsets(log.read(1)) == [2]


def test_last_skips_control_batch_at_end_of_log(log: Log) -> None:
    log.append(b"v")
    log.append_batches(Sketch((HandMade(b"\0\0\0\0\0\0", b"\0\0\0\1"),), attributes=0x30).encode())

    assert log.last().value == b"v"
    assert list(log.read(1)) == []
    assert log.log_end_offset == 2


# ---------------------------------------------------------------- bad appends: nothing on disk changes


Refused = tuple[Callable[[Any], Any], type[SeeklogError], str]
BIG = bytes(600)
TEXT: Any = "text"
BOMB = Sketch((HandMade(bytes(100_000)),), codec=4).encode()
BAD_APPENDS: dict[str, Refused] = {
    "value is text": (lambda log: log.append("text"), InvalidRecord, "value must be bytes"),
    "value is a dict": (lambda log: log.append({"id": 1}), InvalidRecord, "value must be bytes"),
    "key is text": (lambda log: log.append(b"v", key="k"), InvalidRecord, "key must be bytes"),
    "key is a number": (lambda log: log.append(b"v", key=5), InvalidRecord, "key must be bytes"),
    "header key is bytes": (lambda log: log.append(b"v", headers=[(b"h", b"")]), InvalidRecord, "header"),
    "header value is text": (lambda log: log.append(b"v", headers=[("h", "")]), InvalidRecord, "header"),
    "header is not a pair": (lambda log: log.append(b"v", headers=["h"]), InvalidRecord, "header"),
    "headers are a number": (lambda log: log.append(b"v", headers=5), SeeklogError, "headers"),
    "header key is half a surrogate": (lambda log: log.append(b"", headers=[("\ud800", b"")]), InvalidRecord, "header"),
    "time is text": (lambda log: log.append(b"v", timestamp_ms="now"), InvalidRecord, "timestamp_ms"),
    "time is negative": (lambda log: log.append(b"v", timestamp_ms=-2), InvalidRecord, "timestamp_ms"),
    "time is too large": (lambda log: log.append(b"v", timestamp_ms=2**63), InvalidRecord, "timestamp_ms"),
    "many: value is text": (lambda log: log.append_many([Record(b""), Record(TEXT)]), InvalidRecord, "value must"),
    "many: no record": (lambda log: log.append_many([Record(b""), b"v"]), InvalidRecord, "item 1 is bytes"),
    "many: nothing": (lambda log: log.append_many([]), InvalidRecord, "at least one record"),
    "too large": (lambda log: log.append(BIG), RecordTooLarge, r"max\.message\.bytes is 500"),
    "many: too large": (lambda log: log.append_many([Record(b"x" * 60)] * 8), RecordTooLarge, r"max\.message\.bytes"),
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
        FormatError,
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


@pytest.mark.parametrize("case", BAD_APPENDS)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_bad_append_is_refused_and_writes_nothing(tmp_path: Path, case: str, codec: str) -> None:
    call, error, message = BAD_APPENDS[case]
    if codec == "zstd" and case in ("too large", "many: too large"):
        return  # it shrinks below the limit
    with open_log(tmp_path, max_message_bytes=500, compression_type=codec) as log:
        fill(log, 2)
        before = contents(tmp_path)

        with pytest.raises(error, match=message):
            call(log)

        assert contents(tmp_path) == before
        assert (log.log_end_offset, log.high_watermark) == (2, 2)
        assert log.append(b"still works") == 2


def test_batch_that_compresses_below_limit_is_accepted(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=500, compression_type="zstd") as log:
        log.append(BIG)

        assert values(log.scan()) == [BIG]
