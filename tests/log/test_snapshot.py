"""Snapshot files: Kafka's bytes, all covered by the CRC."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from fastcrc import crc32

from log.workbench import START_MS, QuickFiles
from seeklog.log.producers import ProducerEntry, WrittenBatch
from seeklog.log.side.producer_snapshot import Snapshots, decode_snapshot, encode_snapshot

ENTRIES = [
    ProducerEntry(4000, 1, (WrittenBatch(41, 99, 9, START_MS),), START_MS, 3, 90),
    ProducerEntry(2**62, 32767, (WrittenBatch(2**31 - 1, 2**60, 0, -1),), -1),
    ProducerEntry(5, 0, (), START_MS, 7),
]


def snapshot_bytes(*rows: tuple[int, ...]) -> bytes:
    body = struct.pack(">i", len(rows)) + b"".join(struct.pack(">qhiqiqiq", *row) for row in rows)
    return struct.pack(">hI", 1, crc32.iscsi(body)) + body


def test_snapshot_has_kafkas_bytes() -> None:
    expected = snapshot_bytes(
        (4000, 1, 41, 99, 9, START_MS, 3, 90),
        (2**62, 32767, 2**31 - 1, 2**60, 0, -1, -1, -1),
        (5, 0, -1, -1, 0, START_MS, 7, -1),
    )
    assert encode_snapshot(ENTRIES) == expected
    assert decode_snapshot(expected) == ENTRIES


def test_snapshot_keeps_the_last_batch_of_each_producer() -> None:
    two = ProducerEntry(5, 0, (WrittenBatch(1, 1, 1, 8), WrittenBatch(3, 3, 1, 9)), 9)
    assert decode_snapshot(encode_snapshot([two])) == [two._replace(batches=two.batches[1:])]


def test_every_flipped_bit_and_every_prefix_is_noticed() -> None:
    whole = encode_snapshot(ENTRIES)
    for size in range(len(whole)):
        assert decode_snapshot(whole[:size]) is None
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_snapshot(bytes(flipped)) is None
    assert decode_snapshot(whole + b"\0") is None


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_wrong_count_is_noticed(count: int) -> None:
    body = struct.pack(">i", count) + encode_snapshot(ENTRIES[:1])[10:]
    assert decode_snapshot(struct.pack(">hI", 1, crc32.iscsi(body)) + body) is None


def test_newest_whole_snapshot_in_range_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshots = Snapshots(QuickFiles(), str(tmp_path), [])
    for offset in (10, 20, 30, 40):
        snapshots.write(offset, encode_snapshot([ENTRIES[0]._replace(producer_id=offset)]))
    (tmp_path / f"{30:020d}.snapshot").write_bytes(b"not one")
    found = Snapshots(QuickFiles(), str(tmp_path), [path.name for path in tmp_path.iterdir()])

    def newest(*, above: int, not_above: int) -> int | None:
        result = found.newest(above=above, not_above=not_above)
        return result[1][0].producer_id if result is not None else None

    assert found.offsets == [10, 20, 30, 40]
    assert newest(above=-1, not_above=99) == 40
    assert newest(above=-1, not_above=40) == 40
    assert not caplog.records
    assert newest(above=-1, not_above=39) == 20
    assert len(caplog.records) == 1
    assert newest(above=20, not_above=39) is None
    (tmp_path / f"{20:020d}.snapshot").unlink()
    assert newest(above=-1, not_above=39) == 10


def test_snapshots_beyond_the_end_or_without_segment_are_deleted(tmp_path: Path) -> None:
    snapshots = Snapshots(QuickFiles(), str(tmp_path), [])
    for offset in (0, 10, 20, 30, 40):
        snapshots.write(offset, encode_snapshot([]))
    assert snapshots.drop_beyond(35)
    assert not snapshots.drop_beyond(35)
    assert snapshots.keep({0, 20})
    assert snapshots.offsets == [0, 20, 30]
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [0, 20, 30]
