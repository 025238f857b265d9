"""The metrics of a store: sums over partitions and clients, their details, and what they cost."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    BATCH_BYTES,
    GatedFiles,
    QuickFiles,
    TickingClock,
    open_log,
    segment_bases,
    value_of,
    wait_until,
)
from seeklog import LogWriter, Store, TopicPartition
from seeklog.errors import LogClosed, OffsetOutOfRange, SeeklogError, TopicNotFound
from seeklog.metrics import OF_GROUP, OF_PARTITION, OF_TOPIC, TOTALS, prometheus_text
from store.consuming import EARLIEST, GROUP, ZERO, drain, fill, open_events
from store.producing import NEVER_MS
from store.workbench import Holder, append, open_store, send

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root) as store:
        store.create_topic("t", partitions=2)
        yield store


def keys_of(numbers: dict[str, Any]) -> set[str]:
    return {f"{section}.{name}" for section, values in numbers.items() for name in values}


# ---------------------------------------------------------------- keys


@pytest.mark.id("metrics-are-documented")
def test_page_lists_every_key_and_no_other(store: Store) -> None:
    append(store, "t", [b"x"])
    store.commit_offsets("g", {TopicPartition("t", 0): 1})
    found = store.metrics(by_topic=True, by_partition=True, by_group=True)
    details = {name: found.pop(name) for name in ("by_topic", "by_partition", "by_group")}
    documented = set(re.findall(r"^\| `(\w+\.\w+)` \|", PAGE.read_text(), re.MULTILINE))

    partition, group = details["by_partition"]["t-0"], details["by_group"]["g"]

    assert documented == keys_of(found) | keys_of(partition) | keys_of(group)
    assert keys_of(details["by_topic"]["t"]) <= documented


def test_every_section_has_its_keys(store: Store) -> None:
    append(store, "t", [b"x"])
    store.commit_offsets("g", {TopicPartition("t", 0): 1})
    found = store.metrics(by_topic=True, by_partition=True, by_group=True)
    for numbers, sections in (
        ({name: found[name] for name in TOTALS}, TOTALS),
        (found["by_topic"]["t"], OF_TOPIC),
        (found["by_partition"]["t-0"], OF_PARTITION),
        (found["by_group"]["g"], OF_GROUP),
    ):
        assert numbers.keys() == sections.keys()
        assert all(numbers[name].keys() == sections[name].definitions.keys() for name in sections)
    assert found.keys() == {*TOTALS, "by_topic", "by_partition", "by_group"}
    assert json.loads(json.dumps(found)) == found
    assert prometheus_text(found)


def test_totals_have_the_same_size_with_many_topics(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t0", partitions=1)
        append(store, "t0", [b"x"])
        keys = keys_of(store.metrics())
        for number in range(1, 60):
            store.create_topic(f"t{number}", partitions=1)
            append(store, f"t{number}", [b"x"])
        assert keys_of(store.metrics()) == keys
        assert len(store.metrics(by_topic=True)["by_topic"]) == 60


# ---------------------------------------------------------------- logs


def test_totals_are_sums_over_partitions(store: Store) -> None:
    append(store, "t", [b"x"] * 3)
    append(store, "t", [b"y"] * 4, partition=1)
    found = store.metrics(by_topic=True, by_partition=True)
    assert found["log"]["records_in"] == 7
    assert found["log"]["batches_in"] == 2
    assert found["by_topic"]["t"]["log"]["records_in"] == 7
    assert [found["by_partition"][f"t-{number}"]["log"]["records_in"] for number in range(2)] == [3, 4]
    assert found["log"]["bytes_in"] == sum(store.log("t", number).size_bytes for number in range(2))


def test_logs_closed_for_room_keep_their_numbers(root: Path) -> None:
    with open_store(root, max_open_files=8) as store:
        store.create_topic("t", partitions=10)
        for number in range(50):
            append(store, "t", [value_of(number)], partition=number % 10)
        found = store.metrics(by_partition=True)
        assert found["log"]["records_in"] == 50
        assert found["log"]["opens"] == 50
        assert found["files"]["open_logs"] == 1
        with_offsets = [name for name, numbers in found["by_partition"].items() if "offsets" in numbers]
        assert with_offsets == ["t-9"]


def test_deleted_topics_stay_in_the_totals(store: Store) -> None:
    append(store, "t", [b"x"] * 3)
    store.delete_topic("t")
    assert store.metrics()["log"]["records_in"] == 3
    store.create_topic("t", partitions=1)
    append(store, "t", [b"x"])
    assert store.metrics()["log"]["records_in"] == 4


def test_offsets_are_those_of_the_log(root: Path) -> None:
    with open_store(root, segment_bytes=5 * BATCH_BYTES) as store:
        store.create_topic("t", partitions=1)
        for number in range(12):
            append(store, "t", [value_of(number)])
        with store.writer("t", 0) as log:
            log.delete_before(7)
        append(store, "t", [value_of(12)])
        log = store.log("t", 0)
        assert store.metrics(by_partition=True)["by_partition"]["t-0"]["offsets"] == {
            "log_start_offset": 7,
            "high_watermark": 13,
            "log_end_offset": 13,
            "recovery_point": 12,
            "size_bytes": log.size_bytes,
            "segments": len(segment_bases(root / "t-0")),
        }


def test_partitions_that_are_only_read_are_not_listed(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"])
    with open_store(root) as store:
        assert list(store.log("t", 0).scan())
        found = store.metrics(by_topic=True, by_partition=True)
        assert (found["by_topic"], found["by_partition"]) == ({}, {})
        assert found["log"]["opens"] == 0


def test_retention_and_compaction_of_a_store_are_counted(root: Path) -> None:
    clock = TickingClock()
    with open_store(root, clock=clock, retention_ms=1000) as store:
        store.create_topic("old", partitions=1)
        store.create_topic("keyed", partitions=1, config={"cleanup.policy": "compact"})
        append(store, "old", [b"x"])
        append(store, "keyed", [b"x"] * 5, key=b"k")
        with store.writer("keyed", 0) as log:
            log.roll()
        clock.advance(2000)
        store.maintain()
        found = store.metrics(by_topic=True)
        assert found["retention"]["deleted_segments"] == 1
        assert found["compaction"]["seconds"]["count"] == 1
        assert found["by_topic"]["keyed"]["compaction"]["records_after"] == 1
        assert found["by_topic"]["old"]["compaction"]["seconds"]["count"] == 0
        assert found["maintenance"]["seconds"]["count"] == 1
        assert found["maintenance"]["failures"] == 0


def test_failed_round_of_maintenance_is_counted(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"x"])
        append(store, "t", [b"x"], partition=1)
    path = root / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-3])
    with open_store(root) as store:
        with pytest.raises(SeeklogError):
            store.maintain()
        assert store.metrics()["maintenance"]["failures"] == 1


def test_partition_held_by_another_process_is_not_a_failure(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"])
    with open_store(root) as store, Holder(root / "t-0" / ".lock"):
        store.maintain()
        assert store.metrics()["maintenance"] == {
            "seconds": store.metrics()["maintenance"]["seconds"],
            "failures": 0,
        }


# ---------------------------------------------------------------- files and topics


def test_open_files_are_those_of_the_process(root: Path) -> None:
    def open_in_partitions() -> int:
        found = 0
        for handle in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                found += os.readlink(f"/dev/fd/{handle}").startswith(f"{root}/t-")
        return found

    with open_store(root, segment_bytes=600, key_index="lazy", max_open_files=512) as store:
        store.create_topic("t", partitions=6, config={"flush": "batch"})
        assert store.metrics()["files"]["open_files"] == open_in_partitions() == 0
        for number in range(120):
            append(store, "t", [value_of(number)], partition=number % 6, key=b"%d" % number)
        store.maintain()
        assert store.metrics()["files"]["open_files"] == open_in_partitions() > 0
        for number in range(6):
            list(store.log("t", number).scan())
        assert store.metrics()["files"]["open_files"] == open_in_partitions()
        assert store.topic("t").latest(b"3", partition="all") is not None
        files = store.metrics()["files"]
        assert files["open_files"] == open_in_partitions()
        assert files["mapped_files"] > 0
        assert files["open_logs"] == 6
    gc.collect()
    assert open_in_partitions() == 0


def test_topics_and_their_changes_are_counted(root: Path) -> None:
    with open_store(root) as store, open_store(root) as another:
        store.create_topic("a", partitions=3)
        store.create_topic("b", partitions=2)
        store.alter_topic("b", {"retention.ms": 1})
        another.topics()
        assert store.metrics()["catalog"] == {"topics": 2, "partitions": 5, "changes": 3}
        assert another.metrics()["catalog"] == {"topics": 2, "partitions": 5, "changes": 0}


class NotingFiles(QuickFiles):
    """The real disk, which notes the name of every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []


def noting(name: str) -> Callable[..., Any]:
    real = getattr(QuickFiles, name)

    def call(self: NotingFiles, *words: Any, **named: Any) -> Any:
        self.calls.append(name)
        return real(self, *words, **named)

    return call


for _name in dir(QuickFiles):
    if not _name.startswith("_"):
        setattr(NotingFiles, _name, noting(_name))


def test_totals_are_read_from_memory(root: Path) -> None:
    files = NotingFiles()
    with open_store(root, files=files) as store:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"x"])
        with store.consumer(["t"], **EARLIEST) as consumer:
            drain(consumer)
            assert "read" in files.calls
            files.calls.clear()
            store.metrics(by_topic=True, by_partition=True)
            assert files.calls == []


# ---------------------------------------------------------------- producers


def test_sent_records_are_counted_when_they_are_written(store: Store) -> None:
    with store.producer(linger_ms=NEVER_MS) as producer:
        for number in range(10):
            producer.send("t", value_of(number), partition=number % 2)
        assert producer.metrics()["records_sent"] == 0
        assert producer.metrics()["buffered_bytes"] > 0
        producer.flush()
        counted = producer.metrics()
        assert (counted["records_sent"], counted["batches"], counted["record_errors"]) == (10, 2, 0)
        assert counted["buffered_bytes"] == 0
        assert counted["queue_seconds"]["count"] == 2
        assert counted["append_seconds"]["count"] == 1
        assert store.metrics()["producer"] == counted


def test_failed_records_are_counted(root: Path) -> None:
    files = GatedFiles()
    with open_store(root, files=files) as store:
        store.create_topic("t", partitions=1)
        producer = store.producer(linger_ms=NEVER_MS)
        producer.send("t", b"x")
        producer.flush()
        files.write_errors["t-0"] = errno.EIO
        for _ in range(3):
            producer.send("t", b"x").add_done_callback(lambda future: None)
        producer.flush()
        files.write_errors.clear()
        counted = producer.metrics()
        assert (counted["records_sent"], counted["record_errors"], counted["batches"]) == (1, 3, 2)
        producer.close()


def test_wait_for_a_full_buffer_is_timed(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=1)
        with store.producer(linger_ms=0, batch_bytes=1000, buffer_bytes=1000) as producer:
            for _ in range(50):
                producer.send("t", bytes(900))
            producer.flush()
            waits = producer.metrics()["wait_seconds"]
            assert 0 < waits["count"] <= 49
            assert producer.metrics()["buffer_bytes"] == 1000


def test_closed_and_dropped_producers_stay_in_the_sum(store: Store) -> None:
    for _ in range(3):
        send(store, "t", [b"x"] * 2)
    dropped = store.producer(linger_ms=0)
    dropped.send("t", b"x").result(60)
    assert store.metrics()["producer"]["producers"] == 1
    del dropped
    gc.collect()
    wait_until(lambda: not store._producers._live or bool(store._producers._retired), "the thread")
    counted = store.metrics()["producer"]
    assert (counted["records_sent"], counted["producers"]) == (7, 0)
    assert store._producers._live == []


def test_writer_of_one_log_counts_too(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, LogWriter(log, linger_ms=0) as writer:
        writer.append(b"x").result(60)
        assert writer.metrics()["records_sent"] == 1


# ---------------------------------------------------------------- consumers


@pytest.fixture
def events(root: Path) -> Iterator[Store]:
    with open_events(root, clock=TickingClock()) as store:
        yield store


def test_polled_records_and_the_lag_are_counted(events: Store) -> None:
    with events.consumer(["events"], **EARLIEST) as consumer:
        assert consumer.metrics()["records_lag"] == 60
        assert consumer.metrics()["records_lag_max"] == 30
        got = len(consumer.poll(max_records=7))
        counted = consumer.metrics()
        assert (counted["records_consumed"], counted["records_lag"]) == (got, 60 - got)
        drain(consumer)
        fill(events, 0, 5)
        counted = events.metrics()["consumer"]
        assert (counted["records_consumed"], counted["records_lag"], counted["records_lag_max"]) == (60, 5, 5)
        assert (counted["consumers"], counted["assigned_partitions"]) == (1, 3)


def test_iterated_records_are_counted_and_the_rest_of_a_chunk_is_lag(events: Store) -> None:
    with events.consumer(["events"], consumer_timeout_ms=0, max_poll_records=10, **EARLIEST) as consumer:
        for number, _ in enumerate(consumer, 1):
            assert consumer.metrics()["records_lag"] == 60 - number
            if number == 25:
                break
        consumer.position(ZERO)  # ends the chunk
        for position in consumer.assignment:
            consumer.position(position)
        assert consumer.metrics()["records_consumed"] == 25
        assert sum(1 for _ in consumer) == 35
        assert consumer.metrics()["records_consumed"] == 60


def test_lag_beside_a_writing_process_is_that_of_the_last_look(events: Store, root: Path) -> None:
    with open_store(root, read_only=True) as reading, reading.consumer(["events"], **EARLIEST) as consumer:
        drain(consumer)
        fill(events, 0, 5)
        assert consumer.metrics()["records_lag"] == 0
        consumer.poll(max_records=1)
        assert consumer.metrics()["records_lag"] == 4


def test_rebalances_and_commits_are_counted(events: Store) -> None:
    with events.consumer(["events"], enable_auto_commit=False, **GROUP) as consumer:
        assert consumer.metrics()["rebalances"] == 1
        for _ in range(3):
            consumer.poll(max_records=1)
            consumer.commit()
        with pytest.raises(OffsetOutOfRange):
            consumer.commit({ZERO: 1000})
        group = events.metrics()["group"]
        assert (group["commit_seconds"]["count"], group["commit_failures"]) == (3, 1)
        with events.consumer(["events"], **GROUP):
            wait_until(lambda: not consumer.poll() and consumer.metrics()["rebalances"] == 2, "a rebalance")


def test_position_that_retention_deleted_counts_as_reset(events: Store) -> None:
    with events.consumer(**EARLIEST) as consumer:
        consumer.assign([ZERO])
        with events.writer("events", 0) as log:
            log.delete_before(10)
        assert drain(consumer) == []
        assert consumer.metrics()["offset_resets"] == 1


def test_closed_and_dropped_consumers_stay_in_the_sum(events: Store) -> None:
    for _ in range(2):
        with events.consumer(["events"], **EARLIEST) as consumer:
            drain(consumer)
    dropped = events.consumer(["events"], **EARLIEST)
    drain(dropped)
    del dropped, consumer
    gc.collect()
    counted = events.metrics()["consumer"]
    assert (counted["records_consumed"], counted["consumers"], counted["records_lag"]) == (180, 0, 0)
    assert events._consumers._live == []


# ---------------------------------------------------------------- groups


def test_lag_of_each_group_is_that_of_the_store(events: Store) -> None:
    events.commit_offsets("one", {("events", 0): 4, ("events", 1): 20})
    events.commit_offsets("two", {("events", 2): 1})
    with events.consumer(["events"], **GROUP):
        found = events.metrics(by_group=True)["by_group"]
    assert found["one"] == {"lag": {"members": 0, "partitions": 2, "records_lag": 6, "records_lag_max": 6}}
    assert found["two"]["lag"]["records_lag"] == 29
    assert found["group"]["lag"] == {"members": 1, "partitions": 3, "records_lag": 60, "records_lag_max": 30}
    for name, numbers in found.items():
        if name != "group":
            assert numbers["lag"]["records_lag"] == sum(each.lag for each in events.lag(name))


def test_refused_commit_is_counted(events: Store) -> None:
    with events.consumer(["events"], enable_auto_commit=False, **GROUP) as consumer:
        consumer.poll()
        events.delete_topic("events")
        with pytest.raises(TopicNotFound):
            consumer.commit()
        assert events.metrics()["group"]["commit_failures"] == 1


# ---------------------------------------------------------------- other stores and processes


def test_read_only_store_has_metrics(root: Path) -> None:
    open_events(root, clock=TickingClock()).close()
    with open_store(root, read_only=True) as store, store.consumer(["events"], **EARLIEST) as consumer:
        drain(consumer)
        found = store.metrics(by_topic=True, by_partition=True, by_group=True)
        assert found["consumer"]["records_consumed"] == 60
        assert found["log"]["opens"] == 0
        assert found["catalog"]["partitions"] == 3


def test_closed_store_has_no_metrics(root: Path) -> None:
    store = open_store(root)
    store.close()
    with pytest.raises(LogClosed):
        store.metrics()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_counts_from_zero(events: Store) -> None:
    send(events, "events", [b"x"])
    with events.consumer(["events"], **EARLIEST) as consumer:
        drain(consumer)
        for lock in (events._producers._lock, events._upkeep._counting, events._consumers._lock):
            lock.acquire()  # as a thread that the child does not have
        try:
            child = os.fork()
            if not child:
                status = 1
                try:
                    found = events.metrics(by_topic=True)
                    numbers = (
                        found["log"]["records_in"],
                        found["producer"]["records_sent"],
                        found["consumer"]["records_consumed"],
                        found["catalog"]["changes"],
                        len(found["by_topic"]),
                    )
                    status = 0 if numbers == (0, 0, 0, 0, 0) else 2
                finally:
                    os._exit(status)
        finally:
            for lock in (events._producers._lock, events._upkeep._counting, events._consumers._lock):
                lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert events.metrics()["consumer"]["records_consumed"] == 61
