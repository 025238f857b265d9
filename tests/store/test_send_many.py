"""Records and Arrow tables that a producer sends at once."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.faulty import FaultyFiles
from log.workbench import PATIENCE_S, START_MS, GatedFiles, QuickFiles, TickingClock
from seeklog import Producer, Record
from seeklog.clients import SendManyFuture
from seeklog.errors import DiskFull, InvalidRecord, LogClosed, RecordTooLarge, SeeklogError, TopicNotFound, UsageError
from seeklog.record.key_hash import partition_of
from seeklog.store import Store
from store.producing import NEVER_MS
from store.workbench import open_store, read

pa = pytest.importorskip("pyarrow")

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
MILLIS = pa.timestamp("ms", "UTC")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("events", partitions=4)
        yield store


def records_of(store: Store, topic: str, partition: int) -> list[Record]:
    return [
        Record(each.value, key=each.key, headers=each.headers, timestamp_ms=each.timestamp_ms)
        for each in store.log(topic, partition).scan()
    ]


def some_records(count: int, *, keyed: bool = True) -> list[Record]:
    draw = random.Random(count)
    return [
        Record(
            draw.choice([None, b"", draw.randbytes(90)]),
            key=b"key %d" % draw.randrange(40) if keyed else None,
            headers=(("trace", b"1"), ("none", None)) if number % 7 == 0 else (),
            timestamp_ms=START_MS + draw.randrange(-50, 50),
        )
        for number in range(count)
    ]


def table_of(records: list[Record]) -> Any:
    return pa.table(
        {
            "key": pa.array([each.key for each in records], pa.binary()),
            "value": pa.array([each.value for each in records], pa.binary()),
            "timestamp": pa.array([each.timestamp_ms for each in records], MILLIS),
            "headers": pa.array([[{"key": k, "value": v} for k, v in each.headers] for each in records], HEADERS),
        }
    )


Send = Callable[[Producer, str, list[Record]], SendManyFuture]
WAYS: dict[str, Send] = {
    "records": lambda producer, topic, records: producer.send_many(topic, records),
    "an iterator": lambda producer, topic, records: producer.send_many(topic, iter(records)),
    "a table": lambda producer, topic, records: producer.send_arrow(topic, table_of(records)),
    "chunks": lambda producer, topic, records: producer.send_arrow(
        topic, pa.concat_tables([table_of(records[at : at + 300]) for at in range(0, len(records), 300)])
    ),
}
every_way = pytest.mark.parametrize("way", WAYS)


@every_way
@pytest.mark.parametrize("idempotence", [False, True])
def test_each_record_is_stored_in_the_partition_of_its_key_in_order(store: Store, way: str, idempotence: bool) -> None:
    """Goal: 8,000 records fill batches of 1,000 bytes many times."""
    records = some_records(8000)
    with store.producer(batch_bytes=1000, idempotence=idempotence) as producer:
        sent = WAYS[way](producer, "events", records)

        assert sent.count == 8000
        offsets = sent.result(PATIENCE_S)
    for partition in range(4):
        mine = [each for each in records if partition_of(each.key or b"", 4) == partition]
        assert records_of(store, "events", partition) == mine
        assert offsets[partition] == [range(len(mine))]


@every_way
def test_records_sent_before_and_after_keep_their_place(store: Store, way: str) -> None:
    with store.producer(linger_ms=NEVER_MS) as producer:
        for number in range(3):
            before = producer.send("events", b"before", key=b"key")
            sent = WAYS[way](producer, "events", [Record(b"many %d" % number, key=b"key")] * 2)
        after = producer.send("events", b"after", key=b"key")
        producer.flush()

        place = partition_of(b"key", 4)
        expected = [b"before", b"many 0", b"many 0", b"before", b"many 1", b"many 1", b"before", b"many 2", b"many 2"]
        assert read(store, "events", place) == [*expected, b"after"]
        assert sent.result(0) == {place: [range(7, 9)]}
        assert (before.result(0).offset, after.result(0).offset) == (6, 9)


@every_way
def test_records_without_keys_are_all_stored_once(store: Store, way: str) -> None:
    records = some_records(500, keyed=False)
    with store.producer() as producer:
        WAYS[way](producer, "events", records).result(PATIENCE_S)

    stored = [each for partition in range(4) for each in records_of(store, "events", partition)]
    assert sorted(map(repr, stored)) == sorted(map(repr, records))


@every_way
def test_own_partitioner_is_asked_for_many_records(store: Store, way: str) -> None:
    records = [Record(b"v", key=bytes([number % 7])) for number in range(50)]
    with store.producer(partitioner=lambda key, count: key[0] % count) as producer:
        offsets = WAYS[way](producer, "events", records).result(PATIENCE_S)

    assert {partition: sum(map(len, found)) for partition, found in offsets.items()} == {0: 15, 1: 14, 2: 14, 3: 7}


def test_given_partition_overrides_keys_of_many_records(store: Store) -> None:
    with store.producer() as producer:
        sent = producer.send_many("events", some_records(30), partition=2)
        assert sent.result(PATIENCE_S) == {2: [range(30)]}
        with pytest.raises(TopicNotFound, match="no partition 4"):
            producer.send_many("events", some_records(1), partition=4)


def test_column_of_partitions_overrides_keys(store: Store) -> None:
    key = next(b"%d" % number for number in range(50) if partition_of(b"%d" % number, 4) == 1)
    table = pa.table({"key": [key] * 4, "value": [b"0", b"1", b"2", b"3"], "partition": [3, None, 3, 0]})
    with store.producer() as producer:
        offsets = producer.send_arrow("events", table).result(PATIENCE_S)
        with pytest.raises(InvalidRecord, match="column partition has 4"):
            producer.send_arrow("events", pa.table({"value": [b"v"], "partition": [4]}))

    assert offsets == {0: [range(1)], 1: [range(1)], 3: [range(2)]}


def test_records_without_a_timestamp_get_the_current_time(store: Store) -> None:
    with store.producer() as producer:
        producer.send_many("events", [Record(b"v")], partition=1)
        producer.send_arrow("events", pa.table({"value": [b"v"], "partition": [1]}))

    assert [record.timestamp_ms for record in records_of(store, "events", 1)] == [START_MS] * 2


def test_rows_scanned_from_a_log_can_be_sent(store: Store) -> None:
    records = some_records(200)
    with store.producer() as producer:
        producer.send_many("events", records, partition=0).result(PATIENCE_S)
        producer.send_arrow("events", store.log("events", 0).scan_arrow().read_all()).result(PATIENCE_S)

    stored = [repr(each) for partition in range(4) for each in records_of(store, "events", partition)]
    assert sorted(stored) == sorted([repr(each) for each in records] * 2)


def test_no_records_are_done_at_once(store: Store) -> None:
    with store.producer() as producer:
        for sent in (producer.send_many("events", []), producer.send_arrow("events", table_of([]))):
            assert (sent.done(), sent.count, sent.result(0)) == (True, 0, {})


# ---------------------------------------------------------------- errors


def test_records_before_an_invalid_one_are_sent(store: Store) -> None:
    records: list[Any] = [Record(b"one"), Record(b"two"), Record("text"), Record(b"four")]  # type: ignore[arg-type]
    with store.producer() as producer, pytest.raises(InvalidRecord, match="value must be bytes") as raised:
        producer.send_many("events", records, partition=0)

    assert "record 2" in raised.value.__notes__[0]
    assert read(store, "events", 0) == [b"one", b"two"]


def test_item_that_is_not_a_record_is_refused(store: Store) -> None:
    with store.producer() as producer, pytest.raises(InvalidRecord, match="item 1 is bytes, not a Record"):
        producer.send_many("events", [Record(b"v"), b"v"], partition=0)  # type: ignore[list-item]

    assert read(store, "events", 0) == [b"v"]


@every_way
def test_record_without_key_is_refused_among_many_in_a_compacted_topic(store: Store, way: str) -> None:
    store.create_topic("latest", partitions=1, config={"cleanup.policy": "compact"})
    with store.producer() as producer, pytest.raises(InvalidRecord, match=r"needs a key|has no key"):
        WAYS[way](producer, "latest", [Record(b"v")])

    assert read(store, "latest") == []


@every_way
def test_seconds_for_milliseconds_are_refused_among_many(store: Store, way: str) -> None:
    records = [Record(b"v", key=b"k", timestamp_ms=START_MS // 1000)]
    with store.producer() as producer, pytest.raises(InvalidRecord, match="by 1000"):
        WAYS[way](producer, "events", records)

    assert sum(len(read(store, "events", partition)) for partition in range(4)) == 0


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"value": [b"v"]}, "pyarrow Table"),
        (pa.table({"key": [b"k"]}), "no column value; it has key"),
        (pa.table({"value": [1]}), "value is int64"),
        (pa.table({"value": [b"v"], "timestamp": [1]}), "timestamp is int64"),
    ],
    ids=["a dict", "no value", "numbers", "a number as time"],
)
def test_table_of_another_shape_is_refused(store: Store, given: Any, advice: str) -> None:
    with store.producer() as producer, pytest.raises(UsageError, match=advice):
        producer.send_arrow("events", given)


def test_too_large_record_fails_alone_among_many(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", max_message_bytes=1000) as store:
        store.create_topic("events", partitions=1)
        with store.producer() as producer:
            sent = producer.send_many("events", [Record(bytes(size)) for size in (10, 20, 2000, 30)])
            assert isinstance(sent.exception(PATIENCE_S), RecordTooLarge)
            with pytest.raises(RecordTooLarge):
                sent.result(0)
        assert [len(value or b"") for value in read(store, "events")] == [10, 20, 30]


def test_unchecked_error_of_many_records_is_raised_by_flush(tmp_path: Path) -> None:
    files = GatedFiles()
    with open_store(tmp_path / "store", files=files) as store:
        store.create_topic("events", partitions=1)
        producer = store.producer()
        files.write_errors["/events-0/"] = errno.ENOSPC
        producer.send_many("events", [Record(b"v")] * 3)
        with pytest.raises(DiskFull):
            producer.flush()
        asked = producer.send_many("events", [Record(b"v")] * 3)
        assert isinstance(asked.exception(PATIENCE_S), DiskFull)
        producer.close()  # the future was asked, so nothing is raised again


def test_future_of_many_records_times_out(tmp_path: Path) -> None:
    files = GatedFiles("/events-0/")
    files.gate.clear()
    with open_store(tmp_path / "store", files=files, clock=TickingClock()) as store:
        store.create_topic("events", partitions=1)
        with store.producer() as producer:
            sent = producer.send_many("events", [Record(b"v")] * 3)
            assert not sent.done()
            with pytest.raises(TimeoutError):
                sent.exception(0)
            files.gate.set()
            assert sent.result(PATIENCE_S) == {0: [range(3)]}


def test_closed_producer_refuses_many_records(store: Store) -> None:
    producer = store.producer()
    producer.close()
    for way in WAYS.values():
        with pytest.raises(LogClosed):
            way(producer, "events", [Record(b"v", key=b"k")])


def test_buffer_smaller_than_what_is_sent_is_enough(store: Store) -> None:
    records = some_records(3000)
    with store.producer(batch_bytes=500, buffer_bytes=1000) as producer:
        assert producer.send_many("events", records).count == 3000

    assert sum(len(read(store, "events", partition)) for partition in range(4)) == 3000


# ---------------------------------------------------------------- batches that are appended together


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number * 60 for number in range(count)]


def send_all(producer: Producer, values: list[bytes]) -> list[SeeklogError | None]:
    """Send values, each in a batch of its own, that the sender finds all at once."""
    futures = [producer.send("t", value, partition=0) for value in values]
    for future in futures:
        future.add_done_callback(lambda _: None)
    producer.flush()
    return [future.exception(PATIENCE_S) for future in futures]


def test_batches_of_a_partition_are_appended_in_one_write(tmp_path: Path) -> None:
    files = GatedFiles("/t-0/")
    with open_store(tmp_path / "store", files=files) as store:
        store.create_topic("t", partitions=1)
        with store.producer(batch_bytes=1, linger_ms=NEVER_MS) as producer:
            producer.send("t", b"opens the log").add_done_callback(lambda _: files.gate.clear())
            producer.flush()
            # The first of them leaves when the second begins, and the gate holds it.
            sent = [producer.send("t", value, partition=0) for value in numbered(2)]
            assert files.waiting.acquire(timeout=PATIENCE_S)
            files.diary.clear()
            sent += [producer.send("t", value, partition=0) for value in numbered(9)]
            files.gate.set()
            producer.flush()
            assert [future.result(0).offset for future in sent] == list(range(1, 12))
        batches = list(store.log("t", 0).read_batches(0))
        assert [batch.record_count for batch in batches] == [1] * 12
        assert sum(call == "write" and path.endswith(".log") for call, path, *_ in files.diary) <= 3


@pytest.mark.parametrize("idempotence", [False, True])
def test_batches_that_cross_a_segment_are_appended_one_by_one(tmp_path: Path, idempotence: bool) -> None:
    with open_store(tmp_path / "store", segment_bytes=1000) as store:
        store.create_topic("t", partitions=1)
        values = numbered(40)
        with store.producer(batch_bytes=1, linger_ms=NEVER_MS, idempotence=idempotence) as producer:
            assert set(send_all(producer, values)) == {None}
        assert read(store, "t") == values
        assert store.log("t", 0).segment_count > 5


@pytest.mark.parametrize("idempotence", [False, True])
def test_first_batches_find_room_on_a_full_disk(tmp_path: Path, idempotence: bool) -> None:
    class SmallDisk(GatedFiles):
        room = 10**9

        def write(self, handle: int, data: Any, position: int) -> None:
            if self._paths[handle].endswith(".log") and position + len(data) > self.room:
                raise OSError(errno.ENOSPC, "no room")
            super().write(handle, data, position)

    files = SmallDisk()
    with open_store(tmp_path / "store", files=files) as store:
        store.create_topic("t", partitions=1)
        producer = store.producer(batch_bytes=1, linger_ms=NEVER_MS, idempotence=idempotence)
        values = numbered(8)
        size = 61 + 60 + 9  # of a batch of one record
        files.room = 3 * size
        errors = send_all(producer, values)
        assert [type(error) for error in errors] == [type(None)] * 3 + [DiskFull] * 5
        files.room = 10**9
        assert set(send_all(producer, values[3:])) == {None}
        producer.close()
        assert read(store, "t") == values


@pytest.mark.parametrize("idempotence", [False, True])
def test_too_large_batch_among_others_fails_alone(tmp_path: Path, idempotence: bool) -> None:
    with open_store(tmp_path / "store", max_message_bytes=1000) as store:
        store.create_topic("t", partitions=1)
        values = [*numbered(3), bytes(2000), *numbered(3)]
        with store.producer(batch_bytes=1, linger_ms=NEVER_MS, idempotence=idempotence) as producer:
            errors = send_all(producer, values)
        assert [type(error) for error in errors] == [type(None)] * 3 + [RecordTooLarge] + [type(None)] * 3
        assert read(store, "t") == [value for value in values if value != bytes(2000)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize(("method", "flush"), [("write", "os"), ("write", "batch"), ("sync", "batch")])
@pytest.mark.id("batches-in-doubt-are-stored-once")
def test_batches_in_doubt_are_stored_once_whatever_call_failed(
    tmp_path: Path, method: str, flush: str, codec: str
) -> None:
    """Goal: exhaustive. Each write or sync of the log fails once; more batches than a log remembers are in doubt."""
    values, fails = numbered(24), 0
    for fail_at in range(1, 60):
        files = FaultyFiles(QuickFiles(), methods={method}, error=errno.EIO, only=".log")
        path = tmp_path / f"{fail_at}"
        with open_store(path, clock=TickingClock(), files=files, flush=flush, compression_type=codec) as store:
            store.create_topic("t", partitions=1)
            with store.producer(batch_bytes=1, linger_ms=NEVER_MS, idempotence=True) as producer:
                send_all(producer, values[:1])  # opens the log
                files.fail_at = files.calls + fail_at
                assert set(send_all(producer, values[1:12])) == {None}
                assert set(send_all(producer, values[12:])) == {None}
                assert producer.written(("t", 0)) == 24
                failures = files.failures
            assert read(store, "t") == values
        fails += failures
        if not failures:
            break
    assert fails > 1


@pytest.mark.parametrize("whole", range(9))
def test_batches_that_a_torn_write_left_behind_are_stored_once(tmp_path: Path, whole: int) -> None:
    """Goal: a write of eight batches fails after some whole ones, and the log cannot cut them off either."""

    class TearingFiles(GatedFiles):
        tears = False

        def write(self, handle: int, data: Any, position: int) -> None:
            if self.tears and self._paths[handle].endswith(".log"):
                super().write(handle, data[: len(data) * whole // 8 + 20 * (whole < 8)], position)
                raise OSError(errno.EIO, "torn")
            super().write(handle, data, position)

        def truncate(self, handle: int, size: int) -> None:
            if self.tears:
                self.tears = False
                raise OSError(errno.EIO, "not cut")
            super().truncate(handle, size)

    files = TearingFiles()
    with open_store(tmp_path / "store", files=files) as store:
        store.create_topic("t", partitions=1)
        with store.producer(batch_bytes=1, linger_ms=NEVER_MS, idempotence=True) as producer:
            send_all(producer, [b"opens the log"])
            with producer._sender._lock:  # so that the sender finds all eight at once
                futures = [producer.send("t", b"%d" % number) for number in range(8)]
                files.tears = True
            producer.flush()
            assert [future.result(0).offset for future in futures] == list(range(1, 9))
            assert not files.tears
        assert read(store, "t") == [b"opens the log", *(b"%d" % number for number in range(8))]
