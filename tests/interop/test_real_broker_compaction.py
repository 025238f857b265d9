"""Partitions of real brokers, compacted by seeklog and read by clients.

The directories are those of `test_real_broker.py`, of Kafka 3.9.2 and 4.3.1. The broker cleaned `compacted` and
`emptied` (gaps, delete horizons, batches without records, empty segments). `txn` has committed and aborted transactions
with their `.txnindex`, an open transaction in the killed directories, and was never cleaned.
"""

from __future__ import annotations

import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from log.workbench import FakeClock
from seeklog import Log, LogConfig, Record
from seeklog.log.check.inspection import inspect_partition
from seeklog.record.batch import Batch

from .broker_directories import GOLDEN, NAMES, expected_rows, facts, rows

# Before every delete horizon set by a broker, and after all of them.
T = 1_700_000_000_000
LONG_AFTER = 4_000_000_000_000

brokers = pytest.mark.parametrize("name", NAMES)
cleaned = pytest.mark.parametrize("partition", ["compacted-0", "emptied-0"])


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("brokers")
    for name in NAMES:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(root, filter="data")
    return root


def open_copy(unpacked: Path, tmp_path: Path, name: str, partition: str, *, now_ms: int = T) -> Log:
    copy = tmp_path / partition
    if not copy.exists():
        shutil.copytree(unpacked / name / partition, copy)
    config = LogConfig(cleanup_policy="compact", segment_bytes=12_000, retention_ms=-1, flush="os")
    return Log(copy, config=config, clock=FakeClock(now_ms), background=False)


def active_base(log: Log) -> int:
    return log._source.view.segments[-1].base_offset


def latest(records: list[Record], *, below: int) -> list[Record]:
    """Return the records that compaction keeps by Kafka's rules: the last of each key below an offset."""
    last = {record.key: record.offset for record in records if record.offset < below}
    return [
        record
        for record in records
        if record.offset >= below or (record.key is not None and last[record.key] == record.offset)
    ]


def batches(log: Log) -> list[Batch]:
    return list(log.read_batches(log.log_start_offset, max_bytes=1 << 30))


@brokers
@cleaned
def test_compaction_after_a_brokers_cleaner_keeps_the_same_records(
    name: str, partition: str, unpacked: Path, tmp_path: Path
) -> None:
    with open_copy(unpacked, tmp_path, name, partition) as log:
        assert rows(log.scan(), partition) == expected_rows(name, partition)
        before, shape = list(log.scan()), batches(log)
        # A broker may leave the last sealed segment for its next round.
        expected = latest(before, below=active_base(log))
        assert len(expected) >= len(before) - 1
        log.compact()
        assert list(log.scan()) == expected
        # The state of producers is in the same batches as before, with or without records.
        assert {b.base_offset for b in shape if b.header.producer_id >= 0} >= {
            b.base_offset for b in batches(log) if b.header.producer_id >= 0
        }
        known = {entry.producer_id: entry.last_offset for entry in log._partition.producers.state}
    assert [each for each in inspect_partition(str(tmp_path / partition)) if each.severity == "error"] == []
    with open_copy(unpacked, tmp_path, name, partition) as log:
        assert list(log.scan()) == expected
        assert {entry.producer_id: entry.last_offset for entry in log._partition.producers.state} == known


@brokers
def test_delete_horizons_of_a_broker_are_kept_and_expire(name: str, unpacked: Path, tmp_path: Path) -> None:
    with open_copy(unpacked, tmp_path, name, "compacted-0") as log:
        horizons = {b.base_offset: b.header.delete_horizon_ms for b in batches(log) if b.header.delete_horizon_ms}
        tombstones = [record.offset for record in log.scan() if record.value is None]
        assert horizons
        assert tombstones
        log.compact()
        assert {
            b.base_offset: b.header.delete_horizon_ms for b in batches(log) if b.header.delete_horizon_ms
        } == horizons
        assert [record.offset for record in log.scan() if record.value is None] == tombstones
    with open_copy(unpacked, tmp_path, name, "compacted-0", now_ms=LONG_AFTER) as log:
        log.compact()
        assert [record.offset for record in log.scan() if record.value is None] == []


@brokers
@pytest.mark.parametrize("has_index", [True, False])
def test_committed_records_of_a_brokers_transactions_stay(
    name: str, has_index: bool, unpacked: Path, tmp_path: Path
) -> None:
    """Goal: `committed` is what the broker returned with read_committed."""
    committed = set(facts(name, "txn-0")["committed"])
    with open_copy(unpacked, tmp_path, name, "txn-0") as log:
        directory = tmp_path / "txn-0"
        if not has_index:
            for index in directory.glob("*.txnindex"):
                index.unlink()
        before = list(log.scan())
        bound = active_base(log)
        entries = read_entries(unpacked / name / "txn-0", below=bound)
        log.compact()
        counting = [record for record in before if record.offset in committed or record.offset >= bound]
        assert list(log.scan()) == latest(counting, below=bound)
        # The entries of the broker's index are kept unchanged for markers in replaced segments.
        assert read_entries(directory, below=bound) == entries
        markers = {b.last_offset for b in batches(log) if b.header.is_control}
        assert {entry[3] for entry in entries} <= markers


def read_entries(directory: Path, *, below: int) -> list[tuple[int, ...]]:
    found = [
        entry
        for index in sorted(directory.glob("*.txnindex"))
        for entry in struct.iter_unpack(">hqqqq", index.read_bytes())
    ]
    return [entry for entry in found if entry[3] < below]


# ---------------------------------------------------------------- others read what seeklog has compacted


def read_with(memory_records: Any, raw: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    found = []
    records = memory_records(raw)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        if not batch.is_control_batch:
            found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    return found


@brokers
@pytest.mark.parametrize("partition", ["compacted-0", "emptied-0", "txn-0"])
@pytest.mark.parametrize("module", ["aiokafka.record._crecords", "kafka.record.memory_records"])
def test_clients_read_what_seeklog_compacted(
    name: str, partition: str, module: str, unpacked: Path, tmp_path: Path
) -> None:
    peer = pytest.importorskip(module)
    with open_copy(unpacked, tmp_path, name, partition) as log:
        log.compact()
        expected = [(record.offset, record.timestamp_ms, record.key, record.value) for record in log.scan()]
        raw = b"".join(batch.raw for batch in batches(log))
    # Neither client knows delete horizons, but timestamps are deltas from the horizon, so the sums are right.
    assert read_with(peer.MemoryRecords, raw) == expected
