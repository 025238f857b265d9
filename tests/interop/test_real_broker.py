"""Data directories of real Kafka brokers: seeklog reads the same from them as clients read from the broker.

`make_broker_golden.py` describes and creates them. A partition directory does not have its log start offset, which is
in the root's `log-start-offset-checkpoint`. So a `Log` without a store starts with its first segment, and these tests
skip records hidden by DeleteRecords.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import seeklog
from interop.broker_directories import (
    NAMES,
    PARTITIONS,
    contents,
    description,
    expected_rows,
    facts,
    open_log,
    open_reader,
    rows,
    unpack,
)
from seeklog import Record

every_partition = pytest.mark.parametrize(("name", "partition"), PARTITIONS)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("brokers")
    unpack(root)
    return root


@pytest.fixture
def directory(unpacked: Path, name: str, partition: str, tmp_path: Path) -> Path:
    """A writable copy of one partition."""
    copy = tmp_path / partition
    shutil.copytree(unpacked / name / partition, copy)
    return copy


def test_collection_is_complete() -> None:
    """Goal: notice a missing file, and check that the directories have their intended content."""
    assert [name.rsplit("-", 1)[1] for name in NAMES] == ["clean", "killed"] * 2
    for name in NAMES:
        partitions = description(name)["partitions"]
        assert len(partitions) == 16
        assert {len(partitions[f"plain-{n}"]["records"]) for n in (0, 1)} == {176}
        assert len(partitions["compacted-0"]["records"]) < partitions["compacted-0"]["high_watermark"] / 2
        assert (partitions["deleted-0"]["log_start_offset"], partitions["deleted-1"]["log_start_offset"]) == (77, 120)
        assert len(partitions["txn-0"]["committed"]) < len(partitions["txn-0"]["records"])


@pytest.mark.parametrize("name", NAMES)
def test_largest_timestamp_is_that_of_the_records(unpacked: Path, name: str) -> None:
    """Goal: markers of transactions, deleted records and preallocated indexes do not change it."""
    with seeklog.open(unpacked / name, read_only=True) as store:
        for partition in description(name)["partitions"]:
            topic, _, number = partition.rpartition("-")
            stamps = [timestamp for _, timestamp, *_ in expected_rows(name, partition)]
            assert store.log(topic, int(number)).max_timestamp_ms() == max(stamps, default=None), partition


@every_partition
def test_reader_sees_what_a_client_saw(name: str, partition: str, unpacked: Path) -> None:
    described = facts(name, partition)
    before = contents(unpacked / name / partition)

    with open_reader(unpacked / name / partition) as log:
        assert log.high_watermark == log.log_end_offset == described["high_watermark"]
        assert log.log_start_offset <= described["log_start_offset"]
        assert rows(log.scan(described["log_start_offset"]), partition) == expected_rows(name, partition)

    assert contents(unpacked / name / partition) == before


@every_partition
def test_writer_sees_what_a_client_saw(name: str, partition: str, directory: Path) -> None:
    described = facts(name, partition)
    with open_log(directory) as log:
        assert log.recovery.cut_bytes == 0
        assert log.high_watermark == log.log_end_offset == described["high_watermark"]
        assert rows(log.scan(described["log_start_offset"]), partition) == expected_rows(name, partition)
        assert rows(log.scan_reverse(described["log_start_offset"]), partition) == expected_rows(name, partition)[::-1]


@every_partition
def test_reading_starts_at_every_offset(name: str, partition: str, unpacked: Path) -> None:
    """Goal: the broker's own index entries lead to the right batch, and zeros behind them to none."""
    described = facts(name, partition)
    expected = expected_rows(name, partition)
    with open_reader(unpacked / name / partition) as log:
        for offset in range(described["log_start_offset"], described["high_watermark"]):
            following = [row for row in expected if row[0] >= offset][:1]
            assert rows(log.read(offset, max_records=1), partition) == following, offset


@every_partition
def test_type_of_every_timestamp_is_read(name: str, partition: str, unpacked: Path) -> None:
    described = facts(name, partition)
    kinds = {}
    with open_reader(unpacked / name / partition) as log:
        for batch in log.read_batches(described["log_start_offset"], max_bytes=1 << 24):
            for record in batch.records():
                kinds[record.offset] = "append" if batch.header.is_log_append_time else "create"

    assert [kinds[offset] for offset, _, *_ in described["records"]] == [
        kind for _, _, kind, *_ in described["records"]
    ]


@every_partition
def test_time_has_the_offset_that_the_broker_found(name: str, partition: str, directory: Path) -> None:
    """Goal: the same answers, once the log start offset is the broker's.

    Two of the broker's answers differ: it includes markers of transactions, which have timestamps; and for an empty
    segment it uses the time of the file, searches the segment, and finds nothing.
    """
    described = facts(name, partition)
    records = [row[0] for row in described["records"]]
    with open_log(directory) as log:
        log.delete_before(described["log_start_offset"])
        assert log.log_start_offset == described["log_start_offset"]
        for time_ms, answer in described["times"]:
            first = next((offset for offset, timestamp, *_ in described["records"] if timestamp >= time_ms), None)
            assert log.offset_at_time(time_ms) == first, time_ms
            if answer != first:
                is_marker = partition == "txn-0" and answer not in records and (first is None or answer < first)
                assert is_marker or (partition == "compacted-0" and answer is None)


@every_partition
def test_time_is_found_through_the_brokers_index(name: str, partition: str, unpacked: Path) -> None:
    described = facts(name, partition)
    with open_reader(unpacked / name / partition) as log:
        if log.log_start_offset < described["log_start_offset"]:
            return  # records hidden by DeleteRecords have timestamps too
        for time_ms, _ in described["times"]:
            first = next((offset for offset, timestamp, *_ in described["records"] if timestamp >= time_ms), None)
            assert log.offset_at_time(time_ms) == first, time_ms


@every_partition
def test_appended_records_follow(name: str, partition: str, directory: Path) -> None:
    described = facts(name, partition)
    before = contents(directory)
    end = described["high_watermark"]
    with open_log(directory) as log:
        assert log.append(b"one", key=b"k", timestamp_ms=1) == end
        assert log.append_many([Record(b"two"), Record(b"three")]) == range(end + 1, end + 3)

    with open_log(directory) as log:
        assert rows(log.scan(described["log_start_offset"], end), partition) == expected_rows(name, partition)
        assert [record.value for record in log.scan(end)] == [b"one", b"two", b"three"]
    after = contents(directory)
    for file, data in before.items():
        if file.endswith(".log"):
            assert after[file].startswith(data)
    for file in ("partition.metadata", *(file for file in before if file.endswith((".snapshot", ".txnindex")))):
        # Snapshots at the start of segments are kept; the one at the end is replaced.
        if file in after or file.replace(".snapshot", ".log") in before or not file.endswith(".snapshot"):
            assert after[file] == before[file]


@pytest.mark.parametrize(("name", "partition"), [case for case in PARTITIONS if case[0].endswith("clean")])
def test_the_indexes_are_the_brokers_byte_for_byte(name: str, partition: str, directory: Path) -> None:
    """Goal: rebuilt from the log alone, they equal what the broker left when it stopped."""
    brokers = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".index", ".timeindex")}
    for file in brokers:
        (directory / file).unlink()

    with open_log(directory, index_interval_bytes=4096 if partition.startswith("__") else 300):
        pass

    assert {file: (directory / file).read_bytes() for file in brokers} == brokers


@pytest.mark.parametrize("name", NAMES)
def test_control_batches_have_offsets_but_no_records(name: str, unpacked: Path) -> None:
    with open_reader(unpacked / name / "txn-0") as log:
        markers = [batch for batch in log.read_batches(0, max_bytes=1 << 24) if batch.header.is_control]
        offsets = {record.offset for record in log.scan()}

    assert len(markers) == 12
    assert all(batch.records() == [] and batch.base_offset not in offsets for batch in markers)


@pytest.mark.parametrize("name", NAMES)
def test_collection_has_files_that_only_the_cleaner_writes(name: str, unpacked: Path) -> None:
    """Goal: the directories hold empty segments, batches without records, and delete horizons."""
    with open_reader(unpacked / name / "emptied-0") as log:
        batches = list(log.read_batches(0, max_bytes=1 << 24))
    assert any(batch.record_count == 0 for batch in batches)
    with open_reader(unpacked / name / "compacted-0") as log:
        batches = list(log.read_batches(0, max_bytes=1 << 24))
    assert any(batch.header.delete_horizon_ms for batch in batches)
    assert any(batch.record_count <= batch.header.last_offset_delta for batch in batches)
    assert any(not path.stat().st_size for path in (unpacked / name / "compacted-0").glob("*.log"))


@pytest.mark.parametrize("name", NAMES)
def test_codecs_equal_the_brokers(name: str, unpacked: Path) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with open_reader(unpacked / name / f"{codec}-0") as log:
            assert {batch.codec for batch in log.read_batches(0, max_bytes=1 << 24)} == {codec}
    with open_reader(unpacked / name / "mixed-0") as log:
        codecs = {batch.codec for batch in log.read_batches(0, max_bytes=1 << 24)}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}


@pytest.mark.parametrize("name", NAMES)
def test_committed_offsets_are_read_from_the_brokers_own_topic(name: str, unpacked: Path) -> None:
    """Goal: the last record of a key is a group's offset; a tombstone deletes it."""
    committed: dict[str, dict[str, list[Any]]] = {}
    for partition in ("__consumer_offsets-0", "__consumer_offsets-1"):
        with open_reader(unpacked / name / partition) as log:
            for record in log.scan():
                version, *parts = decode_key(record.key or b"")
                if version > 1:
                    continue
                group, topic, number = parts
                offsets = committed.setdefault(group, {})
                offsets.pop(f"{topic}-{number}", None)
                if record.value is not None:
                    offsets[f"{topic}-{number}"] = decode_commit(record.value)

    groups = description(name)["groups"]
    assert groups["fraud"] == {"plain-0": [12, "checked by rule 7"], "plain-1": [25, ""]}
    assert {group: found for group, found in committed.items() if found} == {
        group: found for group, found in groups.items() if found
    }


def decode_key(key: bytes) -> list[Any]:
    """Return the version of a key, and the group, topic, and partition of an offset key."""
    (version,) = struct.unpack_from(">h", key)
    if version > 1:
        return [version]
    group, position = decode_string(key, 2)
    topic, position = decode_string(key, position)
    return [version, group, topic, *struct.unpack_from(">i", key, position)]


def decode_commit(value: bytes) -> list[Any]:
    """Return offset and metadata of i16 version, i64 offset, i32 leader epoch, string, and more.

    From version 4 on a string has its length plus one as a varint, here a single byte.
    """
    version, offset, _leader_epoch = struct.unpack_from(">hqi", value)
    assert version in (3, 4)
    metadata = decode_string(value, 14)[0] if version == 3 else value[15 : 14 + value[14]].decode()
    # confluent-kafka also commits the terminating zero of a C string, and does not return it.
    return [offset, metadata.removesuffix("\0")]


def decode_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, position)
    end = position + 2 + size
    return data[position + 2 : end].decode(), end
