"""Archives of segments with gaps: their pages are checked, too, and their manifest holds no page table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seeklog
from cold.workbench import SEGMENT_BYTES, manifest_of
from log.workbench import QuickFiles
from seeklog import Record, Store, TopicPartition, names
from seeklog.errors import CorruptBatch
from seeklog.log import reading
from seeklog.log.check.finding import Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.log.pinned import make_pin, pinned_view
from seeklog.log.side.seal import HEAD_SIZE, encode_head, read_seal
from seeklog.record.batch import read_header
from store.workbench import open_store

TOPIC = TopicPartition("state", 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a compacted topic whose sealed segments all have gaps."""
    root = tmp_path / "store"
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("state", partitions=1, config={"cleanup.policy": "compact"})
        with store._table.writing(TOPIC) as log:
            for number in range(2_000):
                log.append_many([Record(b"%0100d" % number, key=b"%d" % (number if number % 3 else 0))])
            log.flush()
        store.compact("state")
    return open_store(root, segment_bytes=SEGMENT_BYTES)


def paged_of(directory: Path) -> list[Path]:
    """Return the logs of the segments that have pages."""
    logs = sorted(directory.glob("*.log"))
    seals = {log: read_seal(QuickFiles(), str(directory), int(log.name[:20])) for log in logs}
    return [log for log, seal in seals.items() if seal is not None and seal.pages is not None]


def move_a_batch(path: Path) -> None:
    """Give a batch another offset within its gap."""
    data = bytearray(path.read_bytes())
    position = end = 0
    while position < len(data):
        header = read_header(bytes(data), position)
        if end and header.base_offset > end:
            data[position : position + 8] = end.to_bytes(8, "big")
            path.write_bytes(data)
            return
        position, end = position + header.size, header.next_offset
    raise AssertionError("there is no gap")


def read_all(cold: Store) -> list[Record]:
    return list(cold.log(*TOPIC).scan())


def test_log_with_gaps_is_archived_and_reads_the_same(store: Store, place: tuple[str, dict[str, Any]]) -> None:
    url, options = f"{place[0]}-of-pages", place[1] or None  # the bucket outlives the test
    with store:
        store.archive(url, storage_options=options)
        with seeklog.open(url, storage_options=options, read_only=True) as cold:
            log = cold.log(*TOPIC)
            expected = list(store.log(*TOPIC).scan(0, log.log_end_offset))
            assert read_all(cold) == expected
            assert all(segment.pages is not None for segment in log._source.view.segments)
            some = expected[:: len(expected) // 20]
            assert [next(log.read(record.offset)) for record in some] == some
            found = inspect_partition(f"{cold.location}/{TOPIC}", files=cold._files)
            assert [one for one in found if one.severity is not Severity.NOTE] == []


def test_manifest_has_heads_of_seals_and_archive_has_their_tables(store: Store, tmp_path: Path) -> None:
    with store:
        store.archive(tmp_path / "archive")
    directory = tmp_path / "archive" / str(TOPIC)
    entries = manifest_of(tmp_path / "archive").topics["state"].partitions[0].segments
    assert len(entries) == len(paged_of(directory)) > 1
    for entry in entries:
        name = names.segment_name(entry.base_offset, names.SEAL)
        copied = (directory / name).read_bytes()
        assert copied == (tmp_path / "store" / str(TOPIC) / name).read_bytes()
        assert entry.seal_bytes == copied[:HEAD_SIZE] == encode_head(entry.seal())  # type: ignore[arg-type]
        assert entry.files[names.SEAL].size == len(copied) > HEAD_SIZE


@pytest.mark.id("archive-batch-moved")
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_moved_batch_in_archive_is_never_returned(store: Store, tmp_path: Path, which: int) -> None:
    """Goal: the last segment of an archive is read like a growing one, and is checked all the same."""
    with store:
        store.archive(tmp_path / "archive")
    victim = paged_of(tmp_path / "archive" / str(TOPIC))[which]
    move_a_batch(victim)
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        log = cold.log(*TOPIC)
        with pytest.raises(CorruptBatch, match="do not match the seal") as raised:
            read_all(cold)
        assert raised.value.path is not None
        assert raised.value.path.endswith(victim.name)
        pin = make_pin(log._source.view, 0, log.log_end_offset)
        view = pinned_view(cold._files, f"{cold.location}/{TOPIC}", pin)
        with pytest.raises(CorruptBatch, match="do not match the seal"):
            list(reading.scan_chunks(view, 0, log.log_end_offset, limit=1 << 20))
        found = inspect_partition(f"{cold.location}/{TOPIC}", files=cold._files)
        assert [one for one in found if one.severity is Severity.ERROR]


def test_damaged_page_table_in_archive_hides_no_records(store: Store, tmp_path: Path) -> None:
    with store:
        store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        expected = read_all(cold)
    victim = paged_of(tmp_path / "archive" / str(TOPIC))[0]
    seal = victim.with_suffix(".seal")
    seal.write_bytes(seal.read_bytes()[:-1] + b"\0")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert read_all(cold) == expected
        found = inspect_partition(f"{cold.location}/{TOPIC}", files=cold._files)
        assert [one.path for one in found if one.severity is Severity.ERROR] == [str(seal)]
    move_a_batch(victim)
    with (
        seeklog.open(tmp_path / "archive", read_only=True) as cold,
        pytest.raises(CorruptBatch, match="does not match the seal"),
    ):
        read_all(cold)


def test_damaged_segment_is_not_archived(store: Store, tmp_path: Path) -> None:
    with store:
        victim = paged_of(tmp_path / "store" / str(TOPIC))[0]
        move_a_batch(victim)
        with pytest.raises(CorruptBatch, match="do not match the seal"):
            store.archive(tmp_path / "archive")
