"""Batches written by other programs: seeklog reads exactly their content.

`make_golden.py` describes the files and creates them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.golden_batches import (
    GOLDEN,
    NAMES,
    description,
    expected_records,
    facts,
    open_log,
    raw_bytes,
    read_last_offset,
    without_stamps,
)
from record.batches import seal, with_field
from seeklog import Record
from seeklog.record.batch import decode_records, read_header, split_batches
from seeklog.record.codec import CODEC_NAMES

golden = pytest.mark.parametrize("name", NAMES)


def test_collection_is_complete() -> None:
    """Goal: notice a missing file; a pattern that matches nothing would test nothing."""
    assert len(NAMES) == 72
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(NAMES)
    for writer in ("aiokafka", "kafkapython", "librdkafka"):
        for case in ("shapes", "many", "transactional"):
            assert {f"{writer}-{case}-{codec}" for codec in CODEC_NAMES.values()} <= set(NAMES)


@golden
def test_the_header_fields_are_read(name: str) -> None:
    batches = list(split_batches(raw_bytes(name)))

    assert len(batches) == len(description(name)["batches"])
    for batch, described in zip(batches, description(name)["batches"], strict=True):
        header = batch.header
        assert header.size == described["length"] + 12
        for field in set(described) - {"length", "magic"}:
            assert getattr(header, field) == described[field], field
        assert header.codec == CODEC_NAMES[described["attributes"] & 7] == name.rsplit("-", 1)[1]
        assert header.is_log_append_time == ("append-time" in name)
        assert header.is_transactional == ("transactional" in name or header.is_control)
        assert header.is_control == ("commit" in name or "abort" in name)
        assert (header.delete_horizon_ms is not None) == ("delete-horizon" in name)


@pytest.mark.id("golden-records")
@golden
def test_the_records_are_read(name: str) -> None:
    assert facts(decode_records(raw_bytes(name))) == facts(expected_records(name))


@golden
def test_appended_batches_are_read_back_identical(name: str, tmp_path: Path) -> None:
    """Goal: an append stamps base offset and leader epoch, and changes no other byte."""
    raw = raw_bytes(name)
    with open_log(tmp_path) as log:
        # A record before them, so that the base offset must change.
        assert log.append(b"ahead") == 0
        offsets = log.append_batches(raw)

        assert offsets.start == 1
        assert offsets.stop == log.log_end_offset == 1 + read_last_offset(raw) + 1
        assert facts(list(log.scan(1))) == facts(expected_records(name, base_offset=1))
        kept = b"".join(batch.raw for batch in log.read_batches(1, max_bytes=1 << 24))
    assert without_stamps(kept) == without_stamps(raw)


@golden
def test_appended_batches_survive_a_reopen(name: str, tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(b"ahead")
        log.append_batches(raw_bytes(name))
    with open_log(tmp_path) as log:
        assert facts(list(log.scan(1))) == facts(expected_records(name, base_offset=1))
        after = log.log_end_offset
        assert log.append(b"behind") == after
        assert [record.value for record in log.read(after)] == [b"behind"]


@golden
def test_reading_starts_at_every_offset_of_a_batch(name: str, tmp_path: Path) -> None:
    """Goal: a compacted batch has offsets without a record; reading from there gives the next one."""
    expected = expected_records(name, base_offset=1)
    with open_log(tmp_path) as log:
        log.append(b"ahead")
        log.append_batches(raw_bytes(name))
        starts = range(1, min(log.log_end_offset, 30))
        for start in starts:
            found = facts(list(log.read(start, max_records=3, max_bytes=1 << 24)))
            assert found == facts([record for record in expected if record.offset >= start][:3])


def test_all_batches_in_one_file_are_one_log(tmp_path: Path) -> None:
    """Goal: batches of every writer and codec stand side by side in one segment."""
    # A delta near 2**31 would need a segment of its own.
    names = [name for name in NAMES if "largest-delta" not in name]
    with open_log(tmp_path) as log:
        expected: list[Record] = []
        for number, name in enumerate(names):
            offsets = log.append_batches(by_its_own_producer(raw_bytes(name), number))
            expected += expected_records(name, base_offset=offsets.start)
        # The second batch of a file is counted from the first one's base offset by its writer, too.
        assert facts(list(log.scan())) == facts(expected)
    with open_log(tmp_path) as log:
        assert facts(list(log.scan())) == facts(expected)
        assert facts(list(log.scan_reverse())) == facts(expected[::-1])


def by_its_own_producer(raw: bytes, producer_id: int) -> bytes:
    """Return batches with another producer id, because two producers of a log cannot share an id."""
    return b"".join(
        seal(with_field(batch.raw, "producer_id", producer_id)) if batch.header.producer_id >= 0 else batch.raw
        for batch in split_batches(raw)
    )


def test_only_base_offset_and_leader_epoch_may_change() -> None:
    """Goal: the comparison above detects a change of any other byte."""
    raw = raw_bytes("librdkafka-shapes-none")
    stamped = (99).to_bytes(8, "big") + raw[8:12] + (7).to_bytes(4, "big") + raw[16:]

    assert without_stamps(stamped) == without_stamps(raw)
    assert read_header(stamped).base_offset == 99
    assert without_stamps(stamped[:-1] + b"!") != without_stamps(raw)
