"""Splits: every offset once, cut at batch boundaries, of even size, and complete for their task."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from log.workbench import START_MS
from seeklog import Record, Store, names
from seeklog.errors import DataLoss, TopicNotFound
from seeklog.files import OsFiles
from seeklog.log import take_snapshot
from seeklog.log.pinned import make_pin, pinned_view
from seeklog.log.reading import read_records
from seeklog.names import TopicPartition
from seeklog.spark.read.offsets import Range, find_bounds, full_ranges
from seeklog.spark.read.options import Choice
from seeklog.spark.read.plan import MIN_SPLIT_BYTES, OPEN_COST, Partition, Split, _target, plan_splits
from seeklog.spark.read.scan import scan_split
from seeklog.spark.read.schema import RECORD_SCHEMA, arrow_schema, pick
from spark.workbench import append, make_store
from store.workbench import open_store

BATCH_RECORDS = 7
VALUE = b"v" * 200
OFFSETS = arrow_schema(pick(RECORD_SCHEMA, ["topic", "partition", "offset"]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A large partition of many segments, one of a single segment, one that is compacted, and fifty tiny ones."""
    path = tmp_path_factory.mktemp("plan") / "store"
    with open_store(path, segment_bytes=60_000, index_interval_bytes=2000) as store:
        for topic, partitions in (("large", 1), ("small", 1), ("tiny", 50)):
            store.create_topic(topic, partitions=partitions)
        records = [Record(VALUE, timestamp_ms=START_MS + number) for number in range(2000)]
        append(store, "large", records, batch_records=BATCH_RECORDS)
        append(store, "small", records[:150], batch_records=BATCH_RECORDS)
        for number in range(50):
            append(store, "tiny", records[:3], partition=number)
    with open_store(path, read_only=True) as store:
        yield store


def test_topic_recreated_before_planning_is_refused(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"orders": [20]})
    with open_store(path, read_only=True) as reader:
        ranges = full_ranges(find_bounds(reader, Choice(topics=("orders",))))
        assert plan_splits(reader, ranges)
        with open_store(path) as store:
            store.delete_topic("orders")
            store.create_topic("orders", partitions=1)
            append(store, "orders", [Record(VALUE)] * 30)
        with pytest.raises(TopicNotFound, match="was deleted and recreated"):
            plan_splits(reader, ranges)


def whole(store: Store, *topics: str) -> list[Range]:
    return [
        Range(TopicPartition(topic, one.partition), one.log_start_offset, one.high_watermark)
        for topic in topics
        for one in store.describe_topic(topic).partitions
    ]


def pieces(splits: Sequence[Split]) -> list[Range]:
    return [
        Range(TopicPartition(piece.topic, piece.partition), piece.start, piece.stop)
        for split in splits
        for piece in split.pieces
    ]


def joined(parts: Sequence[Range]) -> list[Range]:
    """Join adjacent parts."""
    found: list[Range] = []
    for part in sorted(parts):
        if found and found[-1].partition == part.partition and found[-1].stop == part.start:
            found[-1] = Range(part.partition, found[-1].start, part.stop)
        else:
            found.append(part)
    return found


def rows(split: Split) -> list[tuple[str, int, int]]:
    return [
        tuple(row.values())
        for batch in scan_split(split, OFFSETS)
        for row in batch.to_pylist()
    ]  # fmt: skip


# ---------------------------------------------------------------- what holds for every plan


@given(
    start=st.integers(0, 2000),
    length=st.integers(0, 2000),
    split_bytes=st.sampled_from([1024, 5000, 30_000, 100_000, 1 << 30]),
    min_partitions=st.none() | st.integers(1, 60),
    max_records=st.none() | st.integers(1, 700),
)
def test_splits_have_every_offset_of_the_ranges_once(
    store: Store, start: int, length: int, split_bytes: int, min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [Range(TopicPartition("large", 0), start, min(2000, start + length)), *whole(store, "tiny")]

    splits = plan_splits(store, ranges, split_bytes=split_bytes, min_partitions=min_partitions, max_records=max_records)

    assert joined(pieces(splits)) == sorted(one for one in ranges if one.start < one.stop)
    if min_partitions is not None:
        assert len(splits) >= min_partitions
    if max_records is not None:
        assert all(sum(piece.stop - piece.start for piece in split.pieces) <= max_records for split in splits)


@pytest.mark.parametrize("split_bytes", [1024, 10_000, 45_000, 60_000, 200_000])
def test_a_large_partition_is_cut_where_batches_begin(store: Store, split_bytes: int) -> None:
    splits = plan_splits(store, whole(store, "large"), split_bytes=split_bytes)

    assert len(splits) > 1
    assert all(part.start % BATCH_RECORDS == 0 for part in pieces(splits))


def test_splits_of_a_large_partition_have_about_split_bytes(store: Store) -> None:
    (one,) = whole(store, "large")
    partition = Partition.of(store, one.partition)
    total = partition.size(one)

    splits = plan_splits(store, [one], split_bytes=100_000)

    assert len(splits) == round(total / 100_000)
    for split in splits:
        (piece,) = split.pieces
        size = partition.size(Range(one.partition, piece.start, piece.stop))
        assert 60_000 <= size <= 140_000


def test_small_partitions_share_a_split(store: Store) -> None:
    splits = plan_splits(store, whole(store, "small", "tiny"))

    assert len(splits) == 1
    assert len(splits[0].pieces) == 51


def test_packing_stops_when_a_split_is_full(store: Store) -> None:
    # The cost of a tiny partition is that of opening it.
    splits = plan_splits(store, whole(store, "tiny"), split_bytes=10 * OPEN_COST + 100_000)

    assert [len(split.pieces) for split in splits] == [10, 10, 10, 10, 10]


def test_tiny_segments_share_a_split(store: Store) -> None:
    assert store.log("large", 0).segment_count > 5
    assert len(plan_splits(store, whole(store, "large"))) == 1


@pytest.mark.parametrize(
    ("total", "cores", "splits"),
    [
        (10 << 20, 8, 1),  # not worth a second task
        (256 << 20, 2, 2),
        (100 << 20, 2, 2),  # divided among the cores
        (100 << 20, 64, 4),  # but in splits of the minimum size
        (1 << 40, 2, 8192),
    ],
)
def test_small_log_is_divided_among_cores_in_minimum_splits(total: int, cores: int, splits: int) -> None:
    target = _target(total, None, None, cores)

    assert MIN_SPLIT_BYTES <= target <= 128 << 20
    assert -(-total // target) == splits


def test_huge_log_gets_larger_splits_not_more(store: Store) -> None:
    assert _target(1 << 50, None, None, 2) == (1 << 50) // 20_000


# ---------------------------------------------------------------- Kafka's own words


def test_min_partitions_cuts_inside_batches(store: Store) -> None:
    one = Range(TopicPartition("small", 0), 0, 5)

    splits = plan_splits(store, [one], min_partitions=5)

    assert [rows(split) for split in splits] == [[("small", 0, number)] for number in range(5)]


def test_min_partitions_gives_at_most_one_split_per_offset(store: Store) -> None:
    splits = plan_splits(store, [Range(TopicPartition("small", 0), 0, 3)], min_partitions=50)

    assert [len(rows(split)) for split in splits] == [1, 1, 1]


def test_fewer_min_partitions_than_needed_change_nothing(store: Store) -> None:
    ranges = whole(store, "large")

    assert pieces(plan_splits(store, ranges, split_bytes=50_000, min_partitions=2)) == pieces(
        plan_splits(store, ranges, split_bytes=50_000)
    )


def test_max_records_divides_evenly(store: Store) -> None:
    splits = plan_splits(store, [Range(TopicPartition("large", 0), 0, 2000)], max_records=700)

    assert [piece.stop - piece.start for split in splits for piece in split.pieces] == [666, 667, 667]


# ---------------------------------------------------------------- what a split carries


def test_a_split_survives_pickling_and_is_small(store: Store) -> None:
    splits = plan_splits(store, whole(store, "large"), split_bytes=20_000)

    for split in splits:
        data = pickle.dumps(split)
        assert len(data) < 1000
        assert rows(pickle.loads(data)) == rows(split)


def test_splits_together_read_the_whole_log(store: Store) -> None:
    splits = plan_splits(store, whole(store, "large", "small", "tiny"), split_bytes=33_333)

    found = [row for split in splits for row in rows(split)]

    assert found == sorted(found)
    assert len(found) == len(set(found)) == 2000 + 150 + 50 * 3


def test_a_task_opens_only_the_segments_of_its_split(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task lists no directory and reads no seal, index, or checkpoint."""
    splits = plan_splits(store, whole(store, "large"), split_bytes=60_000)
    opened: list[str] = []
    listed: list[str] = []
    real_open = OsFiles.open

    def noting_open(files: OsFiles, path: str, *, write: bool = False, create: bool = False) -> int:
        opened.append(os.path.basename(path))
        return real_open(files, path, write=write, create=create)

    monkeypatch.setattr(OsFiles, "open", noting_open)
    monkeypatch.setattr(OsFiles, "list", lambda files, directory: listed.append(directory) or [])
    for split in splits:
        opened.clear()
        rows(split)
        (piece,) = split.pieces
        assert opened == [names.PARTITION_METADATA, *(f"{one.base_offset:020d}.log" for one in piece.pin.segments)]
        assert 2 <= len(opened) <= 4
    assert listed == []


@pytest.mark.parametrize("start", [0, 1, 6, 7, 8, 699, 700, 1300, 1999])
def test_pinned_view_finds_any_offset_from_its_entry(store: Store, start: int) -> None:
    log = store.log("large", 0)
    pin = make_pin(log._source.view, start, start + 1)

    view = pinned_view(OsFiles(), str(log.path), pin)

    assert len(pin.segments) == 1
    assert len(pin.entry) in (0, 8)
    (record,) = read_records(view, start, start + 1, 1, 1 << 20, 1 << 20)
    assert record.offset == start


def test_pin_with_wrong_entry_reads_correctly(store: Store) -> None:
    """An index is advice: if an entry does not match its batch, the task scans the segment."""
    log = store.log("large", 0)
    pin = make_pin(log._source.view, 100, 200)._replace(entry=b"\0\0\0\x50\0\0\0\x11")
    (split,) = plan_splits(store, [Range(TopicPartition("large", 0), 100, 200)])
    split.pieces = (split.pieces[0]._replace(pin=pin),)

    assert [row[2] for row in rows(split)] == list(range(100, 200))


def test_segment_deleted_during_planning_is_left_to_the_task(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [300]}, segment_bytes=4000, index_interval_bytes=300)
    with open_store(path, read_only=True) as store:
        ranges = whole(store, "t")
        for file in (path / "t-0").glob(f"{0:020d}.*"):
            file.unlink()
        splits = plan_splits(store, ranges, split_bytes=1024)

    assert joined(pieces(splits)) == ranges
    with pytest.raises(DataLoss, match="t-0: the segment of offsets 0 to"):
        rows(splits[0])
    assert rows(splits[-1])[-1] == ("t", 0, 299)


def test_offsets_deleted_before_planning_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: the plan has the existing segments, and reports the deleted offsets."""
    path = make_store(tmp_path / "store", {"t": [300], "u": [50]}, segment_bytes=4000)
    with open_store(path, read_only=True) as store:
        ranges = whole(store, "t", "u")
        with open_store(path) as writing, writing.writer("t", 0) as log:
            log.delete_before(200)
        first = take_snapshot(store.log("t", 0)).view.bases[0]
        assert 0 < first <= 200

        with pytest.raises(DataLoss, match=f"START_OFFSET_RESET.*t-0 .* from offset 0, .* starts at {first};"):
            plan_splits(store, ranges)
        splits = plan_splits(store, ranges, fail_on_data_loss=False)
        (gone,) = plan_splits(store, [ranges[0]._replace(stop=10), ranges[1]], fail_on_data_loss=False)

    assert joined(pieces(splits)) == [ranges[0]._replace(start=first), ranges[1]]
    assert joined(pieces([gone])) == [ranges[1]]
    assert f"{first} offsets are missing" in caplog.text
    assert "10 offsets are missing" in caplog.text


# ---------------------------------------------------------------- cutting by bytes, for streams


@pytest.mark.parametrize("most", [1, 100, 5000, 20_000, 300_000, 1 << 40])
def test_cut_by_bytes_progresses_and_stays_near_the_maximum(store: Store, most: int) -> None:
    one = Range(TopicPartition("large", 0), 0, 2000)
    partition = Partition.of(store, one.partition)
    cuts = [0]
    while cuts[-1] < 2000:
        stop = partition.stop_after(Range(one.partition, cuts[-1], 2000), most)
        assert stop > cuts[-1]
        cuts.append(stop)

    for start, stop in pairwise(cuts):
        # There is an index entry every 2000 bytes, and a batch has about 1500.
        assert partition.size(Range(one.partition, start, stop)) <= most + 8000
    assert all(cut % BATCH_RECORDS == 0 for cut in cuts[1:-1])


def test_planning_without_a_cut_reads_no_index(store: Store, tmp_path: Path) -> None:
    path = make_store(tmp_path / "other", {"a": [500, 500]}, segment_bytes=5000)
    with open_store(path, read_only=True) as other:
        plan_splits(other, whole(other, "a"))
        for number in (0, 1):
            assert all(one.loaded.indexes is None for one in take_snapshot(other.log("a", number)).view.segments[:-1])
