"""The newest record of a key: found through side files, without them, and despite wrong ones."""

from __future__ import annotations

import errno
import logging
import os
import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    FailingFiles,
    Meanwhile,
    QuickFiles,
    ReadCountingFiles,
    TickingClock,
    contents,
    open_log,
    open_reader,
    wait_until,
)
from record.batches import Row, Sketch, batch_of
from record.test_key_table import TWINS
from seeklog import Log, Record
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import CorruptBatch, FormatError, InvalidConfig, LogClosed, OffsetOutOfRange, UsageError
from seeklog.log.keys import lookup as keys_module
from seeklog.log.keys.index import collect_keys, encode_key_index, open_key_index
from seeklog.log.side.seal import read_seal
from seeklog.record.batch import encode_batch
from seeklog.record.crc import crc32c
from seeklog.record.key_hash import hash_key
from seeklog.record.key_table import KeyTable

SEGMENT_BYTES = 700
KEYS = [b"", b"a", b"b", b"c" * 40]


def key_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.keyindex"))


def fill(log: Log, count: int, *, keys: list[bytes] = KEYS) -> dict[bytes, Record]:
    """Append records with random keys, null among them, and return the newest record of each key."""
    chance = random.Random(count)
    latest: dict[bytes, Record] = {}
    for number in range(count):
        key = chance.choice([None, *keys])
        offset = log.append(b"%d" % number if number % 5 else None, key=key, timestamp_ms=number)
        if key is not None:
            latest[key] = next(log.read_uncommitted(offset, max_records=1))
    return latest


def make(path: Path, count: int = 60, **settings: Any) -> dict[bytes, Record]:
    with open_log(path, segment_bytes=SEGMENT_BYTES, **settings) as log:
        latest = fill(log, count)
        log.flush()
        # A key that is not in the log is looked up in every segment.
        assert not log.contains_key(b"stranger")
        assert len(key_files(path)) == (log.segment_count - 1 if settings.get("key_index") != "none" else 0)
    return latest


def answers(path: Path, *, read_only: bool = False, **settings: Any) -> dict[bytes, Record | None]:
    with open_log(path, segment_bytes=SEGMENT_BYTES, read_only=read_only, **settings) as log:
        return {key: log.latest_for_key(key) for key in [*KEYS, b"stranger"]}


# ---------------------------------------------------------------- finding keys


@pytest.mark.id("latest-for-key")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("key_index", ["lazy", "seal", "none"])
def test_newest_record_of_each_key_is_found(tmp_path: Path, compression: str, key_index: str) -> None:
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, compression_type=compression, key_index=key_index) as log:
        latest: dict[bytes, Record] = {}
        for _ in range(6):
            latest.update(fill(log, 17))
            for key in KEYS:
                assert log.latest_for_key(key) == latest.get(key)
                assert log.contains_key(key) == (key in latest)
            assert log.latest_for_key(b"stranger") is None
            assert not log.contains_key(b"stranger")
            log.flush()
        assert log.segment_count > 4


def test_tombstone_is_found_as_record_without_value(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(b"value", key=b"k")
        log.append(None, key=b"k")
        found = log.latest_for_key(b"k")
        assert found is not None
        assert (found.offset, found.value) == (1, None)
        assert log.contains_key(b"k")


def test_null_key_is_not_empty_key(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(b"value")
        assert not log.contains_key(b"")
        log.append(b"value", key=b"")
        assert log.contains_key(b"")


def test_control_batches_contain_no_keys(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_batches(Sketch([Row(key=b"marker")], attributes=0x20).encode())
        assert not log.contains_key(b"marker")


def test_empty_log_contains_no_key(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert log.latest_for_key(b"k") is None


def test_two_keys_with_same_hash_are_distinguished(tmp_path: Path) -> None:
    """Goal: in the active segment, in side files, and for a key when only the other one is there."""
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES) as log:
        for key in [TWINS[0], b"x", TWINS[1], b"y"]:
            log.append(b"old " + key, key=key)
        for _ in range(2):
            assert [log.latest_for_key(key).offset for key in TWINS] == [0, 2]  # type: ignore[union-attr]
            for _ in range(8):
                log.append(b"filler" * 20)
            log.flush()
        assert key_files(tmp_path)
    for twin, other in (TWINS, TWINS[::-1]):
        with open_log(tmp_path / other.hex(), segment_bytes=SEGMENT_BYTES) as log:
            log.append(b"alone", key=twin)
            for _ in range(2):
                assert log.contains_key(twin)
                assert not log.contains_key(other)
                for _ in range(8):
                    log.append(b"filler" * 20)
                log.flush()


def test_keys_of_deleted_records_are_gone(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES) as log:
        latest = fill(log, 60)
        log.flush()
        for start in range(0, 61, 5):
            log.delete_before(start)
            for key, record in latest.items():
                assert log.latest_for_key(key) == (record if record.offset >= start else None)


def test_lookup_stops_at_high_watermark(tmp_path: Path) -> None:
    """Goal: at every watermark, also inside a batch and inside a sealed segment."""
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, high_watermark="manual") as log:
        rows: list[tuple[int, bytes]] = []
        chance = random.Random(3)
        for _ in range(12):
            batch = [Record(b"v", key=chance.choice(KEYS)) for _ in range(5)]
            rows += zip(log.append_many(batch), (record.key for record in batch), strict=True)  # type: ignore[arg-type]
        log.flush()
        assert log.segment_count > 2
        for watermark in range(61):
            log.advance_high_watermark(watermark)
            for key in KEYS:
                expected = max((offset for offset, each in rows if each == key and offset < watermark), default=None)
                found = log.latest_for_key(key)
                assert (found and found.offset) == expected


def test_lookup_stays_within_given_range(tmp_path: Path) -> None:
    make(tmp_path)
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES) as log:
        rows = list(log.scan())
        for start in range(0, 61, 4):
            for end in range(start, 61, 4):
                for key in KEYS:
                    expected = [row for row in rows if row.key == key and start <= row.offset < end]
                    assert log.latest_for_key(key, start=start, end=end) == (expected[-1] if expected else None)
        with pytest.raises(OffsetOutOfRange):
            log.latest_for_key(b"a", start=61)


def test_truncation_removes_key_index(tmp_path: Path) -> None:
    latest = make(tmp_path)
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES) as log:
        rows = list(log.scan())
        for end in (50, 33, 20, 1):
            log.truncate_to(end)
            assert {int(file.stem) for file in key_files(tmp_path)} <= {
                int(file.stem) for file in tmp_path.glob("*.seal")
            }
            for key in latest:
                expected = [row for row in rows if row.key == key and row.offset < end]
                assert log.latest_for_key(key) == (expected[-1] if expected else None)
        log.append(b"again", key=b"b")
        found = log.latest_for_key(b"b")
        assert found is not None
        assert found.value == b"again"


def test_retention_removes_key_index(tmp_path: Path) -> None:
    make(tmp_path)
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, retention_bytes=0) as log:
        log.retain()
        assert key_files(tmp_path) == []


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_lookup_takes_a_bytearray_or_memoryview(tmp_path: Path, kind: Callable[[bytes], Any]) -> None:
    with open_log(tmp_path) as log:
        log.append(kind(b"v"), key=kind(b"k"), headers={"h": kind(b"1")})

        found = log.latest_for_key(kind(b"k"))

    assert found is not None
    assert (found.key, found.value, found.headers) == (b"k", b"v", (("h", b"1"),))


def test_key_must_be_bytes(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, pytest.raises(UsageError, match="a key must be bytes, not str"):
        log.latest_for_key("k")  # type: ignore[arg-type]
    with pytest.raises(LogClosed):
        log.latest_for_key(b"k")


# ---------------------------------------------------------------- building side files


def test_appends_alone_build_no_index(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES) as log:
        fill(log, 60)
        log.flush()
        assert log.segment_count > 2
        assert key_files(tmp_path) == []


@pytest.mark.parametrize("settings", [{"key_index": "seal"}, {"cleanup_policy": "compact"}])
def test_index_is_built_after_segment_is_sealed(tmp_path: Path, settings: dict[str, Any]) -> None:
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, **settings) as log:
        for number in range(60):
            log.append(b"%d" % number, key=KEYS[number % 4])
        log.flush()
        assert not key_files(tmp_path), "a sync reads no segment"
        assert log.make_key_indexes() == log.segment_count - 1
        assert len(key_files(tmp_path)) == log.segment_count - 1
        written = {file.name: file.stat().st_mtime_ns for file in key_files(tmp_path)}
        log.flush()
        assert log.make_key_indexes() == 0
        assert {file.name: file.stat().st_mtime_ns for file in key_files(tmp_path)} == written


def test_records_are_synced_on_interval_while_index_is_built(tmp_path: Path) -> None:
    with open_log(
        tmp_path, segment_bytes=SEGMENT_BYTES, flush="interval", key_index="seal", clock=TickingClock(0.4)
    ) as log:
        fill(log, 60)
        partition = log._source
        partition.flush()  # type: ignore[union-attr]
        log.append(b"meanwhile")
        assert log.recovery_point < log.log_end_offset
        log.make_key_indexes()
        assert log.recovery_point == log.log_end_offset


def append_unreadable(log: Log) -> None:
    """Append a batch that expands past `max_decompressed_bytes`, so that no index can be built, and roll."""
    log.append_batches(encode_batch([Record(bytes(300_000), key=b"big", timestamp_ms=1)], codec=1))
    fill(log, 20)
    assert log.segment_count > 1


UNREADABLE = {"key_index": "seal", "max_decompressed_bytes": 100_000, "segment_bytes": SEGMENT_BYTES}


@pytest.mark.id("key-index-impossible")
def test_records_are_synced_on_interval_if_index_cannot_be_built(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: one bad segment does not stop the syncs. It is logged once, and a lookup raises."""
    with open_log(tmp_path, flush="interval", flush_interval_ms=1, background=True, **UNREADABLE) as log:
        append_unreadable(log)
        for _ in range(3):
            log.append(b"later")
            wait_until(lambda: log.recovery_point == log.log_end_offset, "the background sync")
        log.make_key_indexes()
        assert len(key_files(tmp_path)) == log.segment_count - 2
        with pytest.raises(FormatError):
            log.latest_for_key(b"stranger")
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/{0:020d}.log: the key index cannot be built: ")


def test_writer_acknowledges_synced_records_if_index_cannot_be_built(tmp_path: Path) -> None:
    with open_log(tmp_path, flush="batch", **UNREADABLE) as log:
        append_unreadable(log)
        with LogWriter(log) as writer:
            later = writer.append(b"later")
        assert later.result() == log.recovery_point - 1 == log.log_end_offset - 1


def test_key_table_in_memory_is_written_as_side_file(tmp_path: Path) -> None:
    """Goal: the file has the same bytes as from a scan, and the segment is not read again for it."""

    files = ReadCountingFiles()
    with open_log(tmp_path, segment_bytes=100_000, files=files) as log:
        latest = fill(log, 400)
        assert log.latest_for_key(b"a") == latest[b"a"]
        while log.segment_count == 1:
            log.append(b"filler" * 200)
            log.latest_for_key(b"stranger")
        log.flush()
        files.read_bytes = 0
        assert log.latest_for_key(b"stranger") is None
        assert files.read_bytes < 5_000
        (first,) = key_files(tmp_path)
        from_table = first.read_bytes()
    first.unlink()
    with open_log(tmp_path, segment_bytes=100_000) as log:
        assert log.latest_for_key(b"stranger") is None
    assert first.read_bytes() == from_table


def test_reader_uses_side_files_and_writes_none(tmp_path: Path) -> None:
    latest = make(tmp_path)
    expected = {**latest, b"stranger": None}
    before = contents(tmp_path)
    assert answers(tmp_path, read_only=True) == expected
    for file in key_files(tmp_path):
        file.unlink()
        del before[file.name]
    assert answers(tmp_path, read_only=True) == expected
    assert contents(tmp_path) == before


def test_reader_keeps_key_tables_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latest = make(tmp_path, key_index="none")
    read = segments_read_for_indexes(monkeypatch)
    with open_reader(tmp_path) as log:
        sealed = log.segment_count - 1
        for _ in range(3):
            assert {key: log.latest_for_key(key) for key in latest} == latest
            assert log.latest_for_key(b"stranger") is None
        assert len(read) == sealed
        # Without room in memory the table is built again, and the answer is the same.
        monkeypatch.setattr(keys_module, "MAX_MEMORY_BYTES", 0)
    with open_reader(tmp_path) as log:
        assert {key: log.latest_for_key(key) for key in latest} == latest


def segments_read_for_indexes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the base offsets of the segments that are read to build an index."""
    read: list[int] = []
    collect: Callable[..., KeyTable] = keys_module.collect_keys

    def noting(segment: Any, **settings: Any) -> KeyTable:
        read.append(segment.base_offset)
        return collect(segment, **settings)

    monkeypatch.setattr(keys_module, "collect_keys", noting)
    return read


def test_reader_finds_keys_appended_by_writer(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, key_index="seal") as log:
        log.append(b"first", key=b"k")
        with open_reader(tmp_path) as reader:
            for number in range(80):
                log.append(b"%d" % number, key=KEYS[number % 4])
                if number % 7 == 0:
                    log.flush()
                for key in KEYS:
                    assert reader.latest_for_key(key) == log.latest_for_key(key)
            log.truncate_to(40)
            for key in KEYS:
                assert reader.latest_for_key(key) == log.latest_for_key(key)
            log.delete_before(30)
            assert reader.latest_for_key(b"k") is None


def test_full_disk_prevents_only_side_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = FailingFiles("write", ".keyindex", error=errno.ENOSPC)
    files.fails = True
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=files) as log:
        latest = fill(log, 60)
        log.flush()
        for _ in range(2):
            assert {key: log.latest_for_key(key) for key in latest} == latest
            assert not log.contains_key(b"stranger")
        assert len([each for each in caplog.records if "was not written" in each.message]) == log.segment_count - 1
        log.append(b"still works")
    assert not list(tmp_path.glob("*.keyindex*"))


def test_key_index_setting_is_checked() -> None:
    with pytest.raises(InvalidConfig, match="key_index must be one of auto, lazy, seal, none"):
        open_log(Path("nowhere"), key_index="always")


# ---------------------------------------------------------------- damaged and wrong side files


@pytest.fixture(scope="module")
def indexed_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[bytes, Record | None]]:
    """A log of two sealed segments, each with its key index, and the newest record of each key."""
    path = tmp_path_factory.mktemp("indexed")
    with open_log(path, segment_bytes=SEGMENT_BYTES) as log:
        while log.segment_count < 3:
            log.append(b"value", key=KEYS[log.log_end_offset % 3])
        log.flush()
        found = {key: log.latest_for_key(key) for key in [*KEYS, b"stranger"]}
    assert len(key_files(path)) == 2
    return path, found


def entries_or_reason(path: Path, data: bytes) -> object:
    seal = read_seal(QuickFiles(), str(path), 0)
    assert seal is not None
    return open_key_index(data, seal)


@pytest.mark.id("key-index-bits-flipped")
def test_every_flipped_bit_of_side_file_is_detected(indexed_log: tuple[Path, dict[bytes, Record | None]]) -> None:
    path, _ = indexed_log
    whole = key_files(path)[0].read_bytes()
    assert not isinstance(entries_or_reason(path, whole), str)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(entries_or_reason(path, bytes(damaged)), str), f"bit {bit}"


def test_every_truncation_of_side_file_is_detected(indexed_log: tuple[Path, dict[bytes, Record | None]]) -> None:
    path, _ = indexed_log
    whole = key_files(path)[0].read_bytes()
    for size in range(len(whole)):
        assert isinstance(entries_or_reason(path, whole[:size]), str), f"{size} bytes"
    assert isinstance(entries_or_reason(path, whole + b"\0"), str)


def damages(path: Path) -> dict[str, bytes]:
    first, second = key_files(path)
    whole = first.read_bytes()
    flipped = bytearray(whole)
    flipped[60] ^= 1
    huge = bytearray(whole)
    huge[36:48] = b"\xff" * 12
    return {
        "empty": b"",
        "zeros": bytes(len(whole)),
        "cut": whole[:-1],
        "longer": whole + b"\0",
        "flipped": bytes(flipped),
        "another segment's": second.read_bytes(),
        "huge counts": bytes(huge[:-4]) + crc32c(bytes(huge[:-4])).to_bytes(4, "big"),
        "no key index": b"key index" * 20,
    }


@pytest.mark.id("key-index-damaged")
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "damage",
    ["empty", "zeros", "cut", "longer", "flipped", "another segment's", "huge counts", "no key index", "missing"],
)
def test_damaged_side_file_changes_no_answer_and_is_logged_once(
    indexed_log: tuple[Path, dict[bytes, Record | None]],
    damage: str,
    read_only: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, expected = indexed_log
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    target = key_files(tmp_path)[0]
    whole = target.read_bytes()
    if damage == "missing":
        target.unlink()
    else:
        target.write_bytes(damages(source)[damage])
    with caplog.at_level(logging.WARNING, "seeklog"), open_log(tmp_path, read_only=read_only) as log:
        for _ in range(3):
            assert {key: log.latest_for_key(key) for key in expected} == expected
    warnings = [entry for entry in caplog.records if "rebuilding the key index" in entry.message]
    assert len(warnings) == (0 if damage == "missing" else 1)
    if not read_only:
        assert target.read_bytes() == whole


def test_side_file_is_checked_only_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: with more segments than may be open, a lookup does not check the whole file of each again."""
    make(tmp_path)
    expected = answers(tmp_path)
    with open_log(tmp_path, read_only=True, max_open_segments=1) as log:
        assert not log.contains_key(b"stranger")  # opens all segments, one by one
        for file in key_files(tmp_path):
            with file.open("r+b") as target:
                target.seek(-1, os.SEEK_END)
                target.write(bytes([file.read_bytes()[-1] ^ 1]))
        assert {key: log.latest_for_key(key) for key in expected} == expected
    assert caplog.messages == []


def test_wrong_side_file_with_correct_crc_changes_no_answer(tmp_path: Path) -> None:
    """Goal: an index is a hint: each entry is checked in the log."""
    make(tmp_path)
    expected = answers(tmp_path)
    for file in key_files(tmp_path):
        data = bytearray(file.read_bytes())
        (count,) = struct.unpack_from(">q", data, 40)
        for number in range(count):
            at = len(data) - 8 - 4 * count + 4 * number  # before the CRC of its only page, and the CRC of the file
            data[at : at + 4] = struct.pack(">I", number % 2)
        data[-4:] = struct.pack(">I", crc32c(bytes(data[:-4])))
        file.write_bytes(data)
    with open_log(tmp_path) as log:
        for key, record in expected.items():
            found = log.latest_for_key(key)
            # An entry for an older record of the same key cannot be distinguished from a correct one.
            assert found == record or (found is not None and found.key == key)


def test_reappeared_side_file_of_truncated_segment_is_not_used(tmp_path: Path) -> None:
    make(tmp_path)
    before = {file.name: file.read_bytes() for file in key_files(tmp_path)}
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES) as log:
        log.truncate_to(2)
        latest = fill(log, 60, keys=[b"other", b"keys"])
        log.flush()
        for name, data in before.items():
            (tmp_path / name).write_bytes(data)
        assert {key: log.latest_for_key(key) for key in latest} == latest
        rows = list(log.scan())
        for key in KEYS:
            expected = [row for row in rows if row.key == key]
            assert log.latest_for_key(key) == (expected[-1] if expected else None)


def test_orphaned_side_files_are_removed_on_open(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "00000000000000009999.keyindex").write_bytes(b"orphan")
    (tmp_path / "00000000000000000000.keyindex.tmp").write_bytes(b"half")
    open_log(tmp_path).close()
    assert not list(tmp_path.glob("*9999*"))
    assert not list(tmp_path.glob("*.tmp"))


def test_lookup_reports_damage_in_log(tmp_path: Path) -> None:
    make(tmp_path, key_index="none")
    log_file = tmp_path / "00000000000000000000.log"
    data = bytearray(log_file.read_bytes())
    data[100] ^= 1
    log_file.write_bytes(data)
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES) as log, pytest.raises(CorruptBatch) as caught:
        log.latest_for_key(b"stranger")
    assert caught.value.path == str(log_file)


# ---------------------------------------------------------------- sizes, batches, threads


def test_side_file_takes_at_most_sixteen_bytes_per_key(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=1 << 20) as log:
        number = 0
        while log.segment_count == 1:
            log.append_many([Record(b"v", key=b"key-%d" % (number + each)) for each in range(500)])
            number += 500
        log.flush()
        log.latest_for_key(b"stranger")
        (file,) = key_files(tmp_path)
        keys = int(file.stem) or int(sorted(tmp_path.glob("*.log"))[1].stem)
        assert file.stat().st_size <= 16 * keys
        passed = sum(log.contains_key(b"stranger-%d" % each) for each in range(200))
        assert passed == 0


def test_batch_larger_than_chunk_is_read_whole(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=1 << 21, max_message_bytes=1 << 21) as log:
        log.append(b"before", key=b"a")
        log.append_many([Record(b"x" * 900_000, key=b"large"), Record(b"y", key=b"b")])
        log.append(b"behind", key=b"a")
        for key, offset in [(b"a", 3), (b"b", 2), (b"large", 1)]:
            found = log.latest_for_key(key)
            assert found is not None
            assert found.offset == offset


def test_lookup_in_shortened_segment_finds_remaining_keys(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(5):
            log.append(b"v", key=b"%d" % number)
        segment = log._source.view.segments[0]
        size = segment.size // 5
        with open(tmp_path / f"{0:020d}.log", "r+b") as file:
            file.truncate(3 * size)
        table = collect_keys(segment, limit=1 << 20)
        found = [table.offset_of(*hash_key(b"%d" % number)) for number in range(5)]

    assert found == [0, 1, 2, -1, -1]


def test_unreadable_side_file_changes_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: this holds for a file that was there before, and for one that was just built."""
    expected = make(tmp_path)
    files = FailingFiles("map", ".keyindex")
    files.fails = True
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=files) as log:
        assert {key: log.latest_for_key(key) for key in KEYS} == {key: expected.get(key) for key in KEYS}
    assert "rebuilding the key index: it cannot be read" in caplog.text


def test_batches_without_records_are_skipped(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(b"v", key=b"k")
        log.append_batches(batch_of(b"", record_count=0, last_delta=3))
        found = log.latest_for_key(b"k")
        assert found is not None
        assert found.offset == 0


def test_threads_look_up_keys_while_another_appends(tmp_path: Path) -> None:
    """Goal: an answer is never older than an earlier one, and always a record that was appended."""
    with open_log(tmp_path, segment_bytes=4000) as log:
        log.append(b"0", key=b"k")
        problems: list[str] = []
        done = threading.Event()

        def look() -> None:
            newest = 0
            while not done.is_set():
                found = log.latest_for_key(b"k")
                if found is None or found.key != b"k" or found.offset < newest:
                    problems.append(f"{found} after {newest}")
                    return
                newest = found.offset
                if log.contains_key(b"stranger"):
                    problems.append("a stranger")

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1500):
            log.append(b"%d" % number, key=b"k" if number % 3 == 0 else b"other")
            if number % 100 == 0:
                log.flush()
        done.set()
        for thread in threads:
            thread.join()
        assert problems == []


def test_side_file_has_documented_format(tmp_path: Path) -> None:
    """Goal: the file has the bytes that its format page describes, spelt out without the module that writes it."""
    make(tmp_path)
    seal = read_seal(QuickFiles(), str(tmp_path), 0)
    assert seal is not None
    data = key_files(tmp_path)[0].read_bytes()
    magic, version, reserved, base, next_offset, size, log_crc, blocks, count = struct.unpack_from(">4shhqqqIIq", data)
    assert (magic, version, reserved) == (b"SLKI", 1, 0)
    assert (base, next_offset, size, log_crc) == (0, seal.next_offset, seal.size, seal.log_crc)
    assert blocks == max(1, -(-count * 20 // 256))
    body = 48 + 32 * blocks + 12 * count
    assert len(data) == body + 4 + 4  # one page
    assert struct.unpack_from(">I", data, body)[0] == crc32c(data[:body])
    assert struct.unpack(">I", data[-4:])[0] == crc32c(data[:-4])
    with open_log(tmp_path) as log:
        latest = {row.key: row.offset for row in log.scan(0, seal.next_offset) if row.key is not None}
    offsets = struct.unpack_from(f">{count}I", data, 48 + 32 * blocks + 8 * count)
    assert sorted(offsets) == sorted(latest.values())
    table = KeyTable(0)
    table.add((tmp_path / "00000000000000000000.log").read_bytes()[:size], 0, True, 2**62, 1 << 20)
    assert encode_key_index(table, seal) == data


def test_keys_are_found_after_compaction(tmp_path: Path) -> None:
    """Goal: the indexes of replaced segments are gone or not used, and those of the new segments are built."""
    with open_log(tmp_path, segment_bytes=SEGMENT_BYTES, cleanup_policy="compact") as log:
        for round_number in range(3):
            for number in range(60):
                log.append(b"%d %d" % (round_number, number), key=KEYS[number % 4])
            log.flush()
            before = {key: log.latest_for_key(key) for key in [*KEYS, b"stranger"]}
            with open_reader(tmp_path) as reader:
                log.compact()
                for _ in range(2):
                    assert {key: log.latest_for_key(key) for key in before} == before
                    assert {key: reader.latest_for_key(key) for key in before} == before
                    log.make_key_indexes()
    assert answers(tmp_path, cleanup_policy="compact") == before


def test_index_entry_of_compacted_record_falls_back_to_log(tmp_path: Path) -> None:
    """Goal: the index may belong to a file that was just replaced; the log itself has the answer."""
    settings: dict[str, Any] = {"segment_bytes": SEGMENT_BYTES, "cleanup_policy": "compact", "key_index": "seal"}
    with open_log(tmp_path, **settings) as log:
        log.append(b"alone", key=KEYS[0])
        for number in range(120):
            log.append(b"%d" % number, key=KEYS[1 + number % 3])
        log.flush()
        first = log._source.view.segments[0]
        table, end = collect_keys(first, limit=1 << 20), first.next_offset
        log.compact()
        seal = log._source.view.segments[0].seal
        left = {row.key: row.offset for row in log.scan(0, end)}
    assert seal is not None
    (tmp_path / "00000000000000000000.keyindex").write_bytes(encode_key_index(table, seal))

    with open_log(tmp_path, **settings) as log:
        found = {key: log.latest_for_key(key, end=end) for key in KEYS}
        assert {key: record.offset for key, record in found.items() if record is not None} == left
        assert None in found.values()


def test_segment_deleted_while_index_is_built_gets_no_index(tmp_path: Path) -> None:
    """Goal: no index outlives its segment, because another segment may get the same base offset."""
    files = Meanwhile()
    with open_log(tmp_path, files=files, segment_bytes=SEGMENT_BYTES, key_index="seal") as log:
        fill(log, 60)
        log.flush()
        for path in key_files(tmp_path):
            path.unlink()
    with open_log(tmp_path, files=files, segment_bytes=SEGMENT_BYTES, key_index="seal") as log:
        first, second, *_ = log._source.view.segments
        files.after("read", Path(first.path).name, lambda: log.delete_before(second.base_offset))
        log.make_key_indexes()

        assert files.is_over
        assert not (tmp_path / f"{first.base_offset:020d}.keyindex").exists()
        assert (tmp_path / f"{second.base_offset:020d}.keyindex").exists()
