"""Scans of whole topics: order, bounds, threads that read ahead, their end, and their errors."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import seeklog
from log.workbench import PATIENCE_S, START_MS, wait_until
from seeklog import LogReader, Record, Store, TopicPartition
from seeklog.errors import CorruptBatch, OffsetOutOfRange, TopicNotFound, UsageError
from seeklog.record.key_hash import partition_of
from seeklog.store import parallel
from store.workbench import append, open_store

pa = pytest.importorskip("pyarrow")
SEED = 2026
COUNTS = (700, 0, 1, 900)
THREADS = [1, 2, 5]
START = datetime.fromtimestamp(START_MS / 1000, UTC)


def fill(store: Store, *, counts: tuple[int, ...] = COUNTS, size: int = 300) -> None:
    """Create the topic `t`. A record has a timestamp of one second after the record before."""
    chance = random.Random(SEED)
    store.create_topic("t", partitions=len(counts))
    for number, count in enumerate(counts):
        records = [
            Record(
                chance.choice([None, chance.randbytes(size)]),
                key=b"key-%d" % (offset % 9),
                headers=chance.choice([(), (("h", b"1"), ("n", None))]),
                timestamp_ms=START_MS + 1000 * offset,
            )
            for offset in range(count)
        ]
        with store.writer("t", number) as log:
            for first in range(0, count, 20):
                log.append_many(records[first : first + 20])


@pytest.fixture
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    # A partition has many pieces, each of a few batches.
    monkeypatch.setattr(parallel, "PIECE_BYTES", 10_000)
    monkeypatch.setattr("seeklog.store.scan.PIECE_BYTES", 10_000)
    with open_store(root, segment_bytes=60_000, index_interval_bytes=1000) as store:
        fill(store)
        yield store


def rows_of_logs(store: Store) -> list[tuple[int | None, int, bytes | None]]:
    logs = (store.log("t", number) for number in range(len(COUNTS)))
    return [(record.partition, record.offset, record.value) for log in logs for record in log.scan()]


def rows_of(table: Any) -> list[tuple[int, int, bytes | None]]:
    return list(zip(*(table[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("seeklog-scan")]


# ---------------------------------------------------------------- order and bounds


@pytest.mark.parametrize("threads", [*THREADS, None])
@pytest.mark.parametrize("batch_rows", [7, 32768])
def test_rows_have_the_order_of_partition_and_offset(store: Store, threads: int | None, batch_rows: int) -> None:
    expected = rows_of_logs(store)

    table = store.topic("t").scan_arrow(threads=threads, batch_rows=batch_rows).read_all()

    assert rows_of(table) == expected
    assert [(record.partition, record.offset, record.value) for record in store.topic("t").scan()] == expected
    assert not readers()


@pytest.mark.parametrize("threads", THREADS)
def test_every_column_is_that_of_the_records(store: Store, threads: int) -> None:
    names = ["headers", "topic", "timestampType", "key", "timestamp", "partition"]
    records = list(store.topic("t").scan())

    table = store.topic("t").scan_arrow(columns=names, timestamp_unit="us", threads=threads).read_all()

    table.validate(full=True)
    assert table.column_names == names
    assert table["key"].to_pylist() == [record.key for record in records]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [1000 * record.timestamp_ms for record in records]
    assert table["partition"].to_pylist() == [record.partition for record in records]
    assert set(table["topic"].to_pylist()) == {"t"}
    assert set(table["timestampType"].to_pylist()) == {0}
    headers = [tuple((each["key"], each["value"]) for each in row) for row in table["headers"].to_pylist()]
    assert headers == [record.headers for record in records]


@pytest.mark.parametrize("column", ["partition", "topic", "offset"])
def test_rows_of_one_column_are_counted(store: Store, column: str) -> None:
    assert store.topic("t").scan_arrow(columns=column).read_all().num_rows == sum(COUNTS)


BOUNDS: dict[str, tuple[dict[str, Any], Callable[[int], bool]]] = {
    "offsets": ({"start": 5, "end": 650}, lambda offset: 5 <= offset < 650),
    "start beyond some partitions": ({"start": 800}, lambda offset: offset >= 800),
    "end before start": ({"start": 20, "end": 10}, lambda offset: False),
    "times": (
        {"start": START + timedelta(seconds=30), "end": START + timedelta(seconds=800)},
        lambda offset: 30 <= offset < 800,
    ),
    "a start after all records": ({"start": START + timedelta(days=1)}, lambda offset: False),
    "an end after all records": ({"end": START + timedelta(days=1)}, lambda offset: True),
}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_start_and_end_bound_each_partition(store: Store, bounds: str) -> None:
    options, is_wanted = BOUNDS[bounds]
    topic = store.topic("t")
    expected = [(partition, offset) for partition, offset, _ in rows_of_logs(store) if is_wanted(offset)]

    table = topic.scan_arrow(columns=["partition", "offset", "value"], threads=2, **options).read_all()

    assert [row[:2] for row in rows_of(table)] == expected
    assert [(record.partition, record.offset) for record in topic.scan(**options)] == expected


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("columns", [["offset"], ["offset", "key", "partition"]])
def test_key_selects_its_records_in_its_partition(store: Store, threads: int, columns: list[str]) -> None:
    for key in (b"key-3", bytearray(b"key-4"), b"missing"):
        partition = partition_of(bytes(key), len(COUNTS))
        expected = [record.offset for record in store.log("t", partition).scan() if record.key == key]

        table = store.topic("t").scan_arrow(key=key, columns=columns, threads=threads).read_all()

        assert table.column_names == columns
        assert table["offset"].to_pylist() == expected
        assert [record.offset for record in store.topic("t").scan(key=key)] == expected


def test_key_is_found_in_all_partitions_that_are_given(store: Store) -> None:
    table = store.topic("t").scan_arrow(key=b"key-0", partitions=[0, 2, 3]).read_all()

    assert table.num_rows == sum(-(-COUNTS[number] // 9) for number in (0, 2, 3))


def test_scan_ends_at_the_records_of_its_start(store: Store) -> None:
    reader, records = store.topic("t").scan_arrow(threads=2), store.topic("t").scan()
    append(store, "t", [b"later"] * 10, partition=3)

    assert reader.read_all().num_rows == len(list(records)) == sum(COUNTS)


INVALID: dict[str, dict[str, Any]] = {
    "an unknown column": {"columns": ["values"]},
    "a repeated column": {"columns": ["key", "key"]},
    "no column": {"columns": []},
    "an unknown unit": {"timestamp_unit": "ns"},
    "no thread": {"threads": 0},
    "half a thread": {"threads": 1.5},
    "no row": {"batch_rows": 0},
    "a negative offset": {"start": -1},
    "a time without a zone": {"end": datetime(2026, 1, 1)},
    "a text": {"start": "2026-01-01"},
    "a key that is text": {"key": "k"},
    "a number of partitions": {"partitions": 2},
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_options_are_refused_at_the_call(store: Store, case: str) -> None:
    with pytest.raises(UsageError):
        store.topic("t").scan_arrow(**INVALID[case])


def test_missing_partition_is_named_at_the_call(store: Store) -> None:
    with pytest.raises(TopicNotFound, match="no partition 9"):
        store.topic("t").scan_arrow(partitions=[0, 9])


# ---------------------------------------------------------------- threads


def test_threads_start_with_the_first_batch_and_end_with_the_last(store: Store) -> None:
    reader = store.topic("t").scan_arrow(threads=3)
    assert not readers()

    reader.read_next_batch()
    assert readers()

    reader.read_all()
    assert not readers()


def open_logs_of(store: Store) -> int:
    return int(store.metrics()["files"]["open_segments"])


@pytest.mark.parametrize("end", ["close", "del"])
def test_reader_that_is_left_ends_its_threads(store: Store, end: str) -> None:
    reader = store.topic("t").scan_arrow(threads=3)
    reader.read_next_batch()

    if end == "close":
        reader.close()
    del reader

    assert not readers()


def test_threads_wait_when_their_queues_are_full(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: memory is bounded while the consumer does something else."""
    monkeypatch.setattr(parallel, "QUEUE_BYTES", 5000)
    made: list[int] = []
    put = parallel._Queue.put

    def counting(queue: Any, batch: Any) -> None:
        put(queue, batch)
        made.append(batch.num_rows)

    monkeypatch.setattr(parallel._Queue, "put", counting)
    reader = store.topic("t").scan_arrow(threads=2, batch_rows=1, columns=["offset", "value"])
    taken = reader.read_next_batch().num_rows
    # Two threads wait for room, each in a queue of about 5,000 bytes.
    wait_until(lambda: all(_waits_in(thread, "put") for thread in readers()), "full queues")

    # A batch of twenty rows, at least 8 bytes each, and the one that waits.
    assert sum(made) < 3 * (5000 // 8 + 2 * 20)
    assert taken + reader.read_all().num_rows == sum(COUNTS)


def _waits_in(thread: threading.Thread, function: str) -> bool:
    import sys

    assert thread.ident is not None
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and frame.f_code.co_name == function


@pytest.mark.parametrize("threads", THREADS)
def test_error_comes_after_the_rows_before_it_and_names_its_partition(store: Store, threads: int, root: Path) -> None:
    good, log = rows_of_logs(store), store.log("t", 3)
    damaged = 30_000
    (file, *_) = sorted((root / "t-3").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[damaged] ^= 1
    file.write_bytes(data)
    batches = []

    with pytest.raises(CorruptBatch, match="t-3") as caught:  # noqa: PT012
        for batch in store.topic("t").scan_arrow(threads=threads, batch_rows=1):
            batches.append(batch)  # noqa: PERF402

    rows = rows_of(pa.Table.from_batches(batches))
    assert rows == good[: len(rows)]
    partition, offset, _ = good[len(rows)]
    assert partition == 3
    # A batch of Kafka is checked before the record batch in front of it is complete.
    assert log.seek(offset).position <= damaged < log.seek(offset + 40).position
    del caught
    assert not readers()


@pytest.mark.parametrize("threads", THREADS)
def test_records_deleted_during_a_scan_are_an_error(store: Store, threads: int) -> None:
    reader = store.topic("t").scan_arrow(threads=threads)
    with store.writer("t", 3) as log:
        log.delete_before(800)

    with pytest.raises(OffsetOutOfRange) as caught:
        reader.read_all()

    assert caught.value.__notes__ == ["while reading t-3"]


def test_scan_goes_on_with_a_new_reader_when_its_partition_is_written(store: Store) -> None:
    """The writer's log takes the place of the reader, which is closed."""
    before = store.log("t", 3)
    reader = store.topic("t").scan_arrow(threads=2)
    first = reader.read_next_batch()
    append(store, "t", [b"later"], partition=3)
    assert before.is_closed

    assert first.num_rows + reader.read_all().num_rows == sum(COUNTS)


def test_ctrl_c_ends_a_scan_that_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    main, go_on = threading.main_thread(), threading.Event()
    assert main.ident == threading.get_ident()
    scan_batches = seeklog.store.scan.scan_batches
    first = iter([True])

    def interrupting(*arguments: Any, **words: Any) -> Any:
        if next(first, False):
            wait_until(lambda: _waits_in(main, "get"), "the consumer")
            signal.pthread_kill(main.ident or 0, signal.SIGINT)
        assert go_on.wait(PATIENCE_S)
        return scan_batches(*arguments, **words)

    monkeypatch.setattr(seeklog.store.scan, "scan_batches", interrupting)
    # The threads go on once the main one has left the queue and waits for them.
    monkeypatch.setattr(parallel._Queue, "abandon", lambda queue: go_on.set())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.topic("t").scan_arrow(threads=2).read_all()
    finally:
        signal.signal(signal.SIGINT, before)

    assert not readers()


# ---------------------------------------------------------------- kinds of stores


def test_empty_topic_has_columns_and_no_rows(store: Store) -> None:
    store.create_topic("empty", partitions=3)

    table = store.topic("empty").scan_arrow(threads=2).read_all()

    assert table.num_rows == 0
    assert table.schema == store.topic("t").scan_arrow().schema


def test_read_only_store_and_archive_have_the_same_rows(store: Store, root: Path, tmp_path: Path) -> None:
    expected = rows_of_logs(store)
    store.archive(tmp_path / "archive", include_active=True)
    store.close()

    for location in (root, tmp_path / "archive"):
        with open_store(location, read_only=True) as other:
            assert rows_of(other.topic("t").scan_arrow(threads=2).read_all()) == expected


def test_store_at_a_url_is_read_by_threads(store: Store, root: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    expected = rows_of_logs(store)
    store.close()
    memory = fsspec.filesystem("memory")
    memory.put(f"{root}/", "memory://topic-scans/", recursive=True)
    try:
        with seeklog.open("memory://topic-scans") as other:
            for threads in (None, 1, 4):
                assert rows_of(other.topic("t").scan_arrow(threads=threads).read_all()) == expected
    finally:
        memory.rm("/topic-scans", recursive=True)


def test_topic_that_is_written_is_read_up_to_its_watermarks(store: Store) -> None:
    def write() -> None:
        for _ in range(200):
            append(store, "t", [b"x" * 300] * 10, partition=1)

    writer = threading.Thread(target=write)
    writer.start()
    is_over = False
    while not is_over:
        is_over = not writer.is_alive()
        table = store.topic("t").scan_arrow(threads=3, columns=["partition", "offset", "value"]).read_all()
        offsets = [offset for partition, offset, _ in rows_of(table) if partition == 1]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) % 10 == 0
    assert len(offsets) == 2000
    writer.join()


# ---------------------------------------------------------------- data frames


def test_pandas_gets_the_values_of_the_records(store: Store) -> None:
    pandas = pytest.importorskip("pandas")
    records = list(store.topic("t").scan())

    frame = store.topic("t").to_pandas(threads=2)

    assert list(frame.columns) == ["partition", "key", "value", "offset", "timestamp", "headers"]
    assert list(frame["key"]) == [record.key for record in records]
    assert [None if value is None else bytes(value) for value in frame["value"]] == [each.value for each in records]
    assert list(frame["headers"]) == [record.headers for record in records]
    assert frame["timestamp"].dtype == pandas.DatetimeTZDtype("ms", "UTC")
    assert frame["timestamp"].iloc[3] == pandas.Timestamp(START + timedelta(seconds=3))


def test_pandas_shows_a_record_without_a_time_before_1970(root: Path) -> None:
    pytest.importorskip("pandas")
    with open_store(root) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"], timestamp_ms=-1)

        assert store.topic("t").to_pandas()["timestamp"].iloc[0] == datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)


@pytest.mark.parametrize("name", ["to_pandas", "to_polars"])
def test_data_frame_has_the_options_of_scan_arrow(store: Store, name: str) -> None:
    pytest.importorskip(name.removeprefix("to_"))
    topic = store.topic("t")

    frame = getattr(topic, name)(columns=["offset", "headers"], partitions=[3], start=10, end=20)

    assert list(frame.columns) == ["offset", "headers"]
    assert list(frame["offset"]) == list(range(10, 20))


@pytest.mark.parametrize("name", ["to_pandas", "to_polars"])
def test_data_frame_of_an_empty_topic_has_the_same_types(store: Store, name: str) -> None:
    pytest.importorskip(name.removeprefix("to_"))
    store.create_topic("empty")
    full, empty = (getattr(store.topic(topic), name)() for topic in ("t", "empty"))

    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns)
    assert list(empty.dtypes) == list(full.dtypes)


def test_polars_gets_the_values_of_the_records(store: Store) -> None:
    pytest.importorskip("polars")
    records = list(store.topic("t").scan())

    frame = store.topic("t").to_polars(threads=2)

    assert frame["value"].to_list() == [record.value for record in records]
    assert frame["headers"].to_list() == [
        [{"key": key, "value": value} for key, value in record.headers] for record in records
    ]
    assert frame["timestamp"][3] == START + timedelta(seconds=3)


# ---------------------------------------------------------------- datasets


@pytest.mark.parametrize("threads", THREADS)
def test_dataset_reads_only_what_its_filter_allows(store: Store, threads: int) -> None:
    import pyarrow.dataset as ds

    table = store.topic("t").dataset(threads=threads)
    condition = (ds.field("partition") == 3) & (ds.field("offset") >= 300) & (ds.field("offset") < 420)

    rows = table.to_table(columns=["partition", "offset", "value"], filter=condition)

    assert rows_of(rows) == [row for row in rows_of_logs(store) if row[0] == 3 and 300 <= row[1] < 420]
    assert [(read.partition, read.start, read.stop, read.rows) for read in table.reads if read.rows] == [
        (3, 300, 420, 120)
    ]


def test_dataset_that_is_left_early_ends_its_threads(store: Store) -> None:
    assert store.topic("t").dataset(threads=3).head(5, columns=["offset"]).num_rows == 5
    wait_until(lambda: not readers(), "the end of the threads")


def test_polars_pushes_its_filter_down(store: Store) -> None:
    polars = pytest.importorskip("polars")
    table = store.topic("t").dataset()

    frame = polars.scan_pyarrow_dataset(table).filter(polars.col("offset") < 3).select("partition", "offset").collect()

    assert frame.rows() == [(partition, offset) for partition, offset, _ in rows_of_logs(store) if offset < 3]
    assert {read.stop for read in table.reads if read.rows} == {1, 3}


def test_scan_of_one_partition_starts_from_any_iterator_position(store: Store) -> None:
    records = store.topic("t").scan(partitions=[3], start=890)

    assert [record.offset for record in islice(records, 3)] == [890, 891, 892]


def test_reader_of_a_recreated_topic_is_refused(store: Store) -> None:
    topic = store.topic("t")
    store.delete_topic("t")
    fill(store, counts=(5,))

    with pytest.raises(TopicNotFound):
        topic.scan_arrow()
    assert isinstance(store.log("t", 0), LogReader)
    assert TopicPartition("t", 0) == ("t", 0)
