"""A consumer with records that are missing, damaged, or on a disk that does not respond."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import START_MS, FailingFiles, FakeClock, offsets
from record.batches import Row, Sketch
from seeklog import Record, Store, TopicPartition
from seeklog.errors import LostRecords, NoOffset, NotAccessible
from seeklog.record.batch import encode_batch
from store.consuming import ALL, EARLIEST, GROUP, ZERO, drain, open_events, places
from store.workbench import append, open_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    with open_events(tmp_path / "store", clock=clock) as store:
        yield store


# ---------------------------------------------------------------- missing records


def test_records_deleted_by_retention_are_skipped_with_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with store.consumer(["events"], **EARLIEST) as consumer:
        with store._table.writing(ZERO) as log:
            log.delete_before(6)
        with caplog.at_level(logging.WARNING, "seeklog"):
            records = drain(consumer)

    assert [record.offset for record in records if record.partition == 0] == [6, 7, 8, 9]
    assert "events-0" in caplog.text
    assert "offset 6" in caplog.text


def test_records_deleted_by_retention_reset_to_end_with_latest(store: Store) -> None:
    with store.consumer(auto_offset_reset="latest") as consumer:
        consumer.assign([ZERO])
        consumer.seek_to_beginning()
        with store._table.writing(ZERO) as log:
            log.delete_before(6)
        assert consumer.poll() == []
        assert consumer.position(("events", 0)) == 10


def test_records_deleted_by_retention_raise_with_policy_error(store: Store) -> None:
    with store.consumer(group="group", auto_offset_reset="error") as consumer:
        with store.consumer(enable_auto_commit=False, **GROUP) as other:
            other.assign([ZERO])
            other.commit({ZERO: 2})
        consumer.assign([ZERO])
        with store._table.writing(ZERO) as log:
            log.delete_before(6)
        for _ in range(2):
            with pytest.raises(NoOffset, match="offset 2"):
                consumer.poll()
        consumer.seek(("events", 0), offset=6)
        assert offsets(consumer.poll()) == [6, 7, 8, 9]


def test_retention_during_iteration_loses_no_retained_record(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", segment_bytes=1000) as store:
        store.create_topic("events", partitions=1)
        for _ in range(50):
            append(store, "events", [bytes(100)] * 5)
        seen = []
        with store.consumer(["events"], consumer_timeout_ms=0, **EARLIEST) as consumer:
            for record in consumer:
                seen.append(record.offset)
                if len(seen) == 20:
                    with store._table.writing(ZERO) as log:
                        log.delete_before(100)

    assert seen == sorted(set(seen))
    assert set(range(100, 250)) <= set(seen)


@pytest.mark.parametrize("count", [1, 10, 5000], ids=["one marker", "some", "more than one read"])
def test_control_records_are_skipped(store: Store, count: int) -> None:
    """Control batches have offsets and no records; 5,000 of 78 bytes are more than one read returns."""
    marker = encode_batch(
        [Record(bytes(6), key=bytes(4), timestamp_ms=START_MS)],
        transactional=True,
        control=True,
        producer_id=1,
        producer_epoch=0,
    )
    with store._table.writing(ZERO) as log:
        log.append_batches(marker * count)
        log.append(b"behind", timestamp_ms=START_MS)
        log.append_batches(marker * count)
    with store.consumer(**EARLIEST) as consumer:
        consumer.assign([ZERO])
        records = drain(consumer)
        assert offsets(records) == [*range(10), 10 + count]
        assert consumer.poll() == []
        assert consumer.position(("events", 0)) == 11 + 2 * count
        append(store, "events", [b"last"])
        assert offsets(consumer.poll()) == [11 + 2 * count]


def test_gaps_left_by_compaction_are_skipped(store: Store) -> None:
    """Batches with two records left of ten, and none of five, as a broker's cleaner leaves them."""
    sparse = Sketch([Row(b"12", delta=2), Row(b"17", delta=7)], fields={"last_delta": 9}).encode()
    empty = Sketch([], fields={"last_delta": 4}).encode()
    with store._table.writing(ZERO) as log:
        log.append_batches(sparse + empty + sparse + empty)
    with store.consumer(**EARLIEST) as consumer:
        consumer.assign([ZERO])
        expected = [*range(10), 12, 17, 27, 32]
        assert offsets(drain(consumer, max_records=3)) == expected
        assert consumer.position(("events", 0)) == 40
        for offset in range(41):
            consumer.seek(("events", 0), offset=offset)
            assert offsets(drain(consumer)) == [kept for kept in expected if kept >= offset]


# ---------------------------------------------------------------- a disk that does not respond


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[Store, FailingFiles]]:
    """A store on such a disk: three partitions of 600 records of 2,000 bytes, more than one read returns."""
    files = FailingFiles("read", "/events-0/")
    with open_store(tmp_path / "store", files=files) as store:
        store.create_topic("events", partitions=3)
        for partition in range(3):
            for _ in range(60):
                append(store, "events", [bytes(2000)] * 10, partition=partition)
        yield store, files


@pytest.mark.parametrize("way", ["poll", "iteration"])
@pytest.mark.parametrize("after", [0, 1, 100])
def test_failed_read_skips_no_record(failing: tuple[Store, FailingFiles], way: str, after: int) -> None:
    """Goal: unreadable records are an error, and are read when the disk responds again."""
    store, files = failing
    seen: list[int] = []

    def read_on() -> None:
        if way == "iteration":
            for record in consumer:
                seen.append(record.offset)
                if len(seen) == after:
                    files.fails = True
        while way == "poll" and (records := consumer.poll(max_records=20)):
            seen.extend(offsets(records))
            if after <= len(seen) < after + 20:
                files.fails = True

    with store.consumer(consumer_timeout_ms=0, **EARLIEST) as consumer:
        consumer.assign([ZERO])
        if not after:
            files.fails = True
        with pytest.raises(NotAccessible):
            read_on()
        with pytest.raises(NotAccessible):
            read_on()
        files.fails = False
        read_on()

    assert seen == list(range(600))


@pytest.mark.parametrize("reset", ["error", "earliest", "latest"])
def test_missing_segment_skips_no_record(failing: tuple[Store, FailingFiles], reset: Any) -> None:
    """Goal: a lost file is not a reason to reset the position, because its offsets are in range."""
    store, files = failing
    files.error = errno.ENOENT
    with store.consumer(group="group", auto_offset_reset=reset, enable_auto_commit=False) as consumer:
        consumer.commit({ZERO: 0})
        consumer.assign([ZERO])
        seen = offsets(consumer.poll(max_records=50))

        def read_on() -> None:
            while records := consumer.poll():
                seen.extend(offsets(records))

        files.fails = True
        for _ in range(3):
            with pytest.raises(LostRecords):
                read_on()
        files.fails = False
        read_on()

    assert seen == list(range(600))


def test_failing_partition_loses_no_records_of_others(failing: tuple[Store, FailingFiles]) -> None:
    """Goal: records that a poll has taken are returned, whatever happens in the next partition."""
    store, files = failing
    store.create_topic("small", partitions=2)
    for partition in range(2):
        append(store, "small", [b"value"] * 3, partition=partition)
    seen: list[tuple[str | None, int, int]] = []
    with store.consumer(["events", "small"], **EARLIEST) as consumer:
        files.part, files.fails = "/events-1/", True
        for _ in range(20):
            try:
                seen += places(consumer.poll())
            except NotAccessible:
                continue
        files.fails = False
        seen += places(drain(consumer))

    assert sorted(seen) == sorted(
        [("events", partition, offset) for partition in range(3) for offset in range(600)]
        + [("small", partition, offset) for partition in range(2) for offset in range(3)]
    )


def test_interrupt_loses_no_records(failing: tuple[Store, FailingFiles]) -> None:
    """Ctrl-C while a poll reads the second of its partitions; the caller polls again."""
    store, files = failing
    store.create_topic("small", partitions=2)
    for partition in range(2):
        append(store, "small", [b"value"] * 3, partition=partition)
    files.error = KeyboardInterrupt()
    seen: list[tuple[str | None, int, int]] = []
    with store.consumer(["small", "events"], **EARLIEST) as consumer:
        files.part, files.fails = "/events-1/", True
        for _ in range(20):
            try:
                seen += places(consumer.poll())
            except KeyboardInterrupt:
                continue
        files.fails = False
        seen += places(drain(consumer))

    assert sorted(seen) == sorted(
        [("events", partition, offset) for partition in range(3) for offset in range(600)]
        + [("small", partition, offset) for partition in range(2) for offset in range(3)]
    )


def test_partition_without_offset_loses_no_records_of_others(store: Store) -> None:
    seen: list[Record] = []
    with store.consumer(group="group", auto_offset_reset="error", enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("events", partition): 0 for partition in range(3)})
        consumer.assign([("events", partition) for partition in range(3)])
        with store._table.writing(TopicPartition("events", 1)) as log:
            log.delete_before(5)
        for _ in range(6):
            try:
                seen += consumer.poll()
            except NoOffset:
                continue
        consumer.seek(("events", 1), offset=5)
        seen += drain(consumer)

    assert sorted(places(seen)) == sorted(ALL - {("events", 1, offset) for offset in range(5)})
