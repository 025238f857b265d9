"""Scans forward, backward and into Arrow: every window of offsets."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from log.workbench import START_MS, ReadCountingFiles, fill, offsets, open_log, value_of, values
from record.batches import CODECS, Row, Sketch
from seeklog import Log, Record
from seeklog.errors import UsageError
from seeklog.record.codec import CODEC_NAMES
from seeklog.record.layout import CONTROL

pa = pytest.importorskip("pyarrow")
by_codec = pytest.mark.parametrize("codec", [CODEC_NAMES[codec] for codec in CODECS])


# ---------------------------------------------------------------- scan


WINDOWS = [(s, e) for s in (None, 0, 1, 4, 5, 6, 17, 32, 33) for e in (None, 0, 1, 5, 6, 18, 32, 33, 34, 10**9)]


@pytest.mark.parametrize(("start", "end"), WINDOWS)
def test_scan_streams_the_range_forward_and_backward(filled: Log, start: int | None, end: int | None) -> None:
    expected = list(range(start or 0, 33 if end is None else min(end, 33)))

    assert offsets(filled.scan(start, end)) == expected
    assert offsets(filled.scan_reverse(start, end)) == expected[::-1]
    assert filled.scan_arrow(start, end).read_all()["offset"].to_pylist() == expected


@pytest.mark.parametrize("scan", ["scan", "scan_reverse", "scan_arrow"])
def test_scan_ends_at_the_watermark_of_its_start(filled: Log, scan: str) -> None:
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
def test_scan_reverse_is_the_reversed_scan(tmp_path: Path, codec: str, interval: int) -> None:
    """Batches of all sizes, small segments and large ones."""
    chance = random.Random(5)
    settings: dict[str, Any] = {"compression_type": codec, "index_interval_bytes": interval, "segment_bytes": 200_000}
    with open_log(tmp_path, **settings) as log:
        for _ in range(60):
            log.append_many(
                [Record(chance.randbytes(chance.choice([0, 10, 3000]))) for _ in range(chance.randrange(1, 9))]
            )
        forward = list(log.scan())

        assert list(log.scan_reverse()) == forward[::-1]
        for start in range(0, len(forward), 17):
            assert list(log.scan_reverse(start, start + 30)) == forward[start : start + 30][::-1]


def test_last_records_are_read_without_reading_the_rest(tmp_path: Path) -> None:
    files = ReadCountingFiles()
    with open_log(tmp_path, files=files) as log:
        log.append_many([Record(value_of(n)) for n in range(2000)])
        for _ in range(30):
            log.append_many([Record(bytes(1000))] * 100)
        files.read_bytes = 0

        assert offsets(record for record, _ in zip(log.scan_reverse(), range(10), strict=False)) == list(
            range(4999, 4989, -1)
        )
        # Of three megabytes, one chunk of 64 KB and the batch of 100 KB around it.
        assert files.read_bytes < 600_000


@pytest.mark.parametrize("end", [-1, -100])
def test_negative_end_is_refused(filled: Log, end: int) -> None:
    for scan in (filled.scan, filled.scan_reverse, filled.scan_arrow):
        with pytest.raises(UsageError, match="end must be a whole number"):
            scan(0, end)


def test_scan_of_an_empty_log_is_empty(log: Log) -> None:
    assert list(log.scan()) == list(log.scan_reverse()) == []
    assert log.scan_arrow().read_all().num_rows == 0


# ---------------------------------------------------------------- scan_arrow


@by_codec
def test_scan_arrow_returns_the_records_as_columns(tmp_path: Path, codec: str) -> None:
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


def test_scan_arrow_builds_only_requested_columns(filled: Log) -> None:
    reader = filled.scan_arrow(columns=["value", "offset"])

    assert reader.schema.names == ["value", "offset"]
    assert reader.read_all().to_pydict() == {"value": [value_of(n) for n in range(33)], "offset": list(range(33))}


def test_scan_arrow_streams_batches_of_about_the_requested_rows(filled: Log) -> None:
    assert [batch.num_rows for batch in filled.scan_arrow(batch_rows=10)] == [10, 10, 10, 3]


def test_scan_arrow_returns_no_batch_without_records(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_batches(Sketch([Row()], attributes=CONTROL).encode())

        assert list(log.scan_arrow()) == []


def test_scan_arrow_accepts_microseconds(filled: Log) -> None:
    table = filled.scan_arrow(0, 1, columns=["timestamp"], timestamp_unit="us").read_all()

    assert table["timestamp"].type == pa.timestamp("us", "UTC")
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [START_MS * 1000]


@pytest.mark.parametrize(
    "arguments",
    [{"columns": ["nope"]}, {"columns": []}, {"batch_rows": 0}, {"timestamp_unit": "ns"}, {"timestamp_unit": "s"}],
)
def test_scan_arrow_refuses_invalid_arguments(filled: Log, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        filled.scan_arrow(**arguments)
