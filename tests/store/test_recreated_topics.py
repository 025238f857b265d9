"""Topics that another process deletes, recreates or extends, used by a store without a thread.

Nothing but its own calls can tell such a store what happened. The clock stands still unless a test advances it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from log.workbench import FakeClock
from seeklog import Consumer, LogReader, Store, TopicPartition
from seeklog.errors import TopicNotFound
from store.workbench import append, open_store, read

HEARTBEAT_MS = 200


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def other(root: Path) -> Iterator[Store]:
    """The other process."""
    with open_store(root) as other:
        other.create_topic("t", partitions=2)
        append(other, "t", [b"old0", b"old1", b"old2"])
        yield other


@pytest.fixture(params=[False, True], ids=["writable", "read-only"])
def store(root: Path, other: Store, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[Store]:
    other._table.drop("t")  # closes the writer, so that this store finds a clean log
    with open_store(root, clock=clock, read_only=request.param) as store:
        yield store


def consumer_of(store: Store, how: str) -> Consumer:
    consumer = store.consumer(["t"] if how == "subscribed" else [], auto_offset_reset="earliest")
    if how == "assigned":
        consumer.assign([("t", 0), ("t", 1)])
    return consumer


def recreate(other: Store, values: list[bytes]) -> None:
    other.delete_topic("t")
    other.create_topic("t", partitions=2)
    if values:
        append(other, "t", values)


ways = pytest.mark.parametrize("how", ["subscribed", "assigned"])


@pytest.mark.id("consumer-of-a-recreated-topic")
@ways
@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_consumer_without_a_group_reads_a_recreated_topic_from_its_start(
    store: Store, other: Store, clock: FakeClock, how: str, count: int
) -> None:
    """Goal: neither an error nor a record of the old topic, with fewer, as many, or more records than before."""
    consumer = consumer_of(store, how)
    assert len(consumer.poll()) == 3
    assert consumer.poll() == []
    for round_ in range(2):
        new = [b"new%d%d" % (round_, number) for number in range(count)]
        recreate(other, new)
        seen = consumer.poll()
        clock.advance(HEARTBEAT_MS)
        assert [record.value for record in seen + consumer.poll()] == new
        assert consumer.assignment == {("t", 0), ("t", 1)}


@ways
def test_records_fetched_from_the_old_topic_are_followed_by_those_of_the_new_one(
    store: Store, other: Store, clock: FakeClock, how: str
) -> None:
    consumer = consumer_of(store, how)
    assert [record.value for record in consumer.poll(max_records=1)] == [b"old0"]
    recreate(other, [b"new"])
    clock.advance(HEARTBEAT_MS)
    seen = [record.value for _ in range(3) for record in consumer.poll()]
    assert seen[-1] == b"new"
    assert set(seen[:-1]) <= {b"old1", b"old2"}


@ways
@pytest.mark.parametrize("advance_ms", [0, HEARTBEAT_MS])
def test_deletion_is_raised_and_not_taken_for_a_loss(
    store: Store, other: Store, clock: FakeClock, how: str, advance_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = consumer_of(store, how)
    assert len(consumer.poll()) == 3
    other.delete_topic("t")
    clock.advance(advance_ms)
    with pytest.raises(TopicNotFound, match="there is no topic 't'"):
        consumer.poll()
    assert caplog.messages == []

    other.create_topic("t", partitions=2)
    append(other, "t", [b"new"])
    clock.advance(HEARTBEAT_MS)
    assert [record.value for record in consumer.poll()] == [b"new"]


def test_added_partitions_are_read(store: Store, other: Store, clock: FakeClock) -> None:
    consumer = consumer_of(store, "subscribed")
    assert len(consumer.poll()) == 3
    other.add_partitions("t", partitions=3)
    append(other, "t", [b"new"], partition=2)
    clock.advance(HEARTBEAT_MS)
    assert [record.value for record in consumer.poll()] == [b"new"]


@ways
def test_new_consumer_of_a_recreated_topic_reads_it_from_its_start(store: Store, other: Store, how: str) -> None:
    assert read(store, "t") == [b"old0", b"old1", b"old2"]
    recreate(other, [b"new"])
    consumer = consumer_of(store, how)
    assert [record.value for record in consumer.poll()] == [b"new"]


def test_next_log_of_a_recreated_topic_is_that_of_the_new_one(store: Store, other: Store) -> None:
    """Goal: "open it again" helps."""
    log = store.log("t", 0)
    assert log.high_watermark == 3
    recreate(other, [b"new"])
    with contextlib.suppress(TopicNotFound):
        read(store, "t")
    assert read(store, "t") == [b"new"]


@ways
def test_catalog_that_another_thread_reads_does_not_apply_old_offsets_to_the_new_topic(
    store: Store, other: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = consumer_of(store, how)
    assert len(consumer.poll()) == 3
    new = [b"new%d" % number for number in range(5)]
    recreate(other, new)
    reading = store._table.reading

    def read_later(partition: TopicPartition) -> LogReader:
        store._topics.refresh()
        return reading(partition)

    monkeypatch.setattr(store._table, "reading", read_later)
    assert [record.value for record in consumer.poll()] == new
