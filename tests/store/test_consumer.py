"""The consumer: the records it returns, their order, and its positions."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from log.workbench import PATIENCE_S, START_MS, FakeClock, TickingClock, offsets, values, wait_until
from seeklog import Record, Store, TopicPartition
from seeklog.errors import InvalidName, LogClosed, NoOffset, OffsetOutOfRange, SeeklogError, TopicNotFound, UsageError
from store.consuming import ALL, EARLIEST, GROUP, ZERO, check_order, drain, fill, open_events, places
from store.workbench import append, open_store, send, snapshot


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    with open_events(tmp_path / "store", clock=clock) as store:
        yield store


# ---------------------------------------------------------------- poll


@pytest.mark.parametrize("most", [1, 2, 3, 7, 19, 60, 1000])
def test_poll_returns_every_record_once_in_order_of_its_partition(store: Store, most: int) -> None:
    with store.consumer(["events"], **EARLIEST) as consumer:
        polled = []
        while records := consumer.poll(max_records=most):
            assert len(records) <= most
            polled += records

    assert len(polled) == len(ALL)
    assert set(places(polled)) == ALL
    check_order(polled)
    assert all(record.value == b"%d/%d" % (record.partition, record.offset) for record in polled)


def test_poll_starves_no_partition(store: Store) -> None:
    fill(store, 0, 200)
    with store.consumer(["events"], **EARLIEST) as consumer:
        seen = {record.partition for _ in range(9) for record in consumer.poll(max_records=1)}

    assert seen == {0, 1, 2}


def test_max_poll_records_limits_poll(store: Store) -> None:
    with store.consumer(["events"], max_poll_records=4, **EARLIEST) as consumer:
        assert all(len(consumer.poll()) <= 4 for _ in range(30))


@pytest.mark.parametrize("most", range(1, 20))
def test_poll_never_returns_more_than_max_records(tmp_path: Path, most: int) -> None:
    """Few records in one partition and many in the other, so that a poll crosses from one to the other."""
    with open_store(tmp_path / "store") as store:
        store.create_topic("events", partitions=4)
        for partition, count in enumerate((1, 100, 2, 100)):
            append(store, "events", [b"value"] * count, partition=partition)
        with store.consumer(["events"], **EARLIEST) as consumer:
            sizes = []
            while records := consumer.poll(max_records=most):
                sizes.append(len(records))

    assert max(sizes) <= most
    assert sum(sizes) == 203


@pytest.mark.parametrize("most", [0, -1])
def test_poll_for_zero_records_is_refused(store: Store, most: int) -> None:
    with store.consumer(["events"]) as consumer, pytest.raises(UsageError):
        consumer.poll(max_records=most)


def test_poll_waits_for_its_timeout(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", clock=TickingClock(0.5)) as store:
        store.create_topic("events", partitions=1)
        with store.consumer(["events"]) as consumer:
            assert consumer.poll(timeout_ms=3000) == []


def test_waiting_poll_returns_with_first_records(store: Store) -> None:
    with store.consumer(["events"], auto_offset_reset="latest") as consumer:
        polled: list[Record] = []
        thread = threading.Thread(target=lambda: polled.extend(consumer.poll(timeout_ms=PATIENCE_S * 1000)))
        thread.start()
        fill(store, 1, 1)
        thread.join(PATIENCE_S)

    assert places(polled) == [("events", 1, 20)]


def test_close_in_another_thread_ends_waiting_poll(store: Store) -> None:
    consumer = store.consumer(["events"], auto_offset_reset="latest")
    ended: list[object] = []

    def poll() -> None:
        try:
            ended.append(consumer.poll(timeout_ms=10**9))
        except LogClosed as error:
            ended.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    consumer.close()
    thread.join(PATIENCE_S)
    assert len(ended) == 1


def test_several_topics_are_read_together(store: Store) -> None:
    store.create_topic("others", partitions=2)
    send(store, "others", [b"value"] * 5, partition=1)
    with store.consumer(["events", "others"], **EARLIEST) as consumer:
        assert len(consumer.assignment) == 5
        assert set(places(drain(consumer))) == ALL | {("others", 1, offset) for offset in range(5)}


# ---------------------------------------------------------------- iteration


def test_iteration_returns_every_record_with_topic_and_partition(store: Store) -> None:
    with store.consumer(["events"], consumer_timeout_ms=0, **EARLIEST) as consumer:
        records = list(consumer)

    assert len(records) == len(ALL)
    assert set(places(records)) == ALL
    check_order(records)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 13])
def test_interrupted_iteration_continues_after_last_record(store: Store, step: int) -> None:
    seen: list[Record] = []
    with store.consumer(["events"], consumer_timeout_ms=0, **EARLIEST) as consumer:
        while len(seen) < len(ALL):
            before = len(seen)
            for record in consumer:
                seen.append(record)
                if len(seen) == before + step:
                    break
            assert len(seen) > before

    assert len(seen) == len(ALL)
    assert set(places(seen)) == ALL
    check_order(seen)


def test_position_is_exact_at_every_record_of_iteration(store: Store) -> None:
    expected = dict.fromkeys(range(3), 0)
    with store.consumer(["events"], consumer_timeout_ms=0, **EARLIEST) as consumer:
        for record in consumer:
            expected[record.partition] = record.offset + 1
            assert {partition: consumer.position(("events", partition)) for partition in range(3)} == expected


def test_iteration_continues_at_seek_offset(store: Store) -> None:
    seen: list[int] = []
    with store.consumer(consumer_timeout_ms=0, **EARLIEST) as consumer:
        consumer.assign([("events", 2)])
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 3:
                consumer.seek(("events", 2), offset=20)
            elif record.offset == 22 and seen.count(22) == 1:
                consumer.seek(("events", 2), offset=21)

    assert seen == [0, 1, 2, 3, 20, 21, 22, 21, 22, *range(23, 30)]


def test_partition_paused_in_iteration_returns_no_more_records(store: Store) -> None:
    seen: list[tuple[int, int]] = []
    with store.consumer(["events"], consumer_timeout_ms=0, **EARLIEST) as consumer:
        for record in consumer:
            seen.append((record.partition, record.offset))
            if (record.partition, record.offset) == (1, 4):
                consumer.pause(("events", 1))
        assert [offset for partition, offset in seen if partition == 1] == [0, 1, 2, 3, 4]
        assert consumer.position(("events", 1)) == 5
        consumer.resume(("events", 1))
        assert offsets(list(consumer)) == list(range(5, 20))


def test_commit_in_iteration_covers_exactly_returned_records(store: Store) -> None:
    with store.consumer(consumer_timeout_ms=0, enable_auto_commit=False, **GROUP) as consumer:
        consumer.assign([("events", 1), ("events", 2)])
        handed_out = {1: 0, 2: 0}
        for record in consumer:
            handed_out[record.partition] = record.offset + 1
            consumer.commit()
            committed = {partition: consumer.committed(("events", partition)) for partition in (1, 2)}
            assert committed == handed_out


def test_poll_in_iteration_returns_next_records(store: Store) -> None:
    seen: list[int] = []
    with store.consumer(consumer_timeout_ms=0, **EARLIEST) as consumer:
        consumer.assign([("events", 0)])
        for record in consumer:
            seen.append(record.offset)
            seen += offsets(consumer.poll(max_records=2))

    assert seen == list(range(10))


def test_two_iterations_of_one_consumer_share_its_records(store: Store) -> None:
    with store.consumer(consumer_timeout_ms=0, **EARLIEST) as consumer:
        consumer.assign([("events", 2)])
        first, second = iter(consumer), iter(consumer)
        seen = [next(iterator).offset for _ in range(5) for iterator in (first, second)]
        seen += offsets([*first, *second])

    assert seen == list(range(30))


def test_iteration_ends_after_timeout_without_records(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", clock=TickingClock(0.5)) as store:
        store.create_topic("events", partitions=1)
        with store.consumer(["events"], consumer_timeout_ms=3000) as consumer:
            assert list(consumer) == []


def test_iteration_follows_concurrent_appends(store: Store) -> None:
    with store.consumer(consumer_timeout_ms=0, **EARLIEST) as consumer:
        consumer.assign([ZERO])
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if len(seen) < 500:
                fill(store, 0, 1)

    assert seen == list(range(509))


# ---------------------------------------------------------------- positions


def test_seek_works_for_every_offset_and_end(store: Store) -> None:
    with store.consumer(["events"]) as consumer:
        consumer.pause(("events", 0))
        consumer.pause(("events", 2))
        for offset in random.Random(1).sample(range(21), 21):
            consumer.seek(("events", 1), offset=offset)
            assert consumer.position(("events", 1)) == offset
            assert offsets(drain(consumer, max_records=7)) == list(range(offset, 20))


@pytest.mark.parametrize("offset", [-1, 11, 2**62])
def test_seek_outside_log_is_refused_and_changes_nothing(store: Store, offset: int) -> None:
    with store.consumer(["events"], **EARLIEST) as consumer:
        consumer.seek(("events", 0), offset=4)
        with pytest.raises(OffsetOutOfRange):
            consumer.seek(("events", 0), offset=offset)
        assert consumer.position(("events", 0)) == 4


def test_seek_to_time_finds_first_record_at_or_after_it(store: Store) -> None:
    with store.consumer(["events"]) as consumer:
        consumer.seek_to_time(START_MS + 14_500)
        assert [consumer.position(("events", partition)) for partition in range(3)] == [10, 15, 15]
        consumer.seek_to_time(START_MS, partitions=[("events", 1)])
        assert [consumer.position(("events", partition)) for partition in range(3)] == [10, 0, 15]
        consumer.seek_to_time(START_MS + 10**9)
        assert [consumer.position(("events", partition)) for partition in range(3)] == [10, 20, 30]


def test_every_search_by_time_takes_a_datetime(store: Store) -> None:
    moment = datetime.fromtimestamp((START_MS + 14_500) / 1000, UTC)
    with store.consumer(["events"], group="readers") as consumer:
        consumer.seek_to_time(moment)
        assert [consumer.position(("events", partition)) for partition in range(3)] == [10, 15, 15]
        consumer.commit()
    assert store.topic("events").offset_at_time(moment) == store.topic("events").offset_at_time(START_MS + 14_500)
    assert set(store.reset_offsets("readers", "events", to_time_ms=moment).values()) == {10, 15}


@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), 1.5, "2026-01-01", True], ids=repr)
def test_every_search_by_time_refuses_other_types(store: Store, wrong: Any) -> None:
    with store.consumer(["events"], group="readers") as consumer:
        consumer.commit()
        with pytest.raises(UsageError, match="time zone"):
            consumer.seek_to_time(wrong)
    with pytest.raises(UsageError, match="time zone"):
        store.topic("events").offset_at_time(wrong)
    with pytest.raises(UsageError, match="time zone"):
        store.reset_offsets("readers", "events", to_time_ms=wrong)


@pytest.mark.parametrize("per_second", [1, 10**6, 10**9])
def test_every_search_by_time_refuses_other_units(store: Store, per_second: int) -> None:
    given = START_MS // 1000 * per_second
    with store.consumer(["events"], group="readers") as consumer:
        consumer.commit()
        with pytest.raises(UsageError, match=f"the time {given} is .* in milliseconds, but 2023-11-14T22:13:20Z in"):
            consumer.seek_to_time(given)
    with pytest.raises(UsageError, match="in milliseconds, but"):
        store.topic("events").offset_at_time(given)
    with pytest.raises(UsageError, match="in milliseconds, but"):
        store.reset_offsets("readers", "events", to_time_ms=given)


def test_partitions_of_a_scan_given_as_a_number_are_refused(store: Store) -> None:
    with pytest.raises(UsageError, match=r"partitions is a list of numbers; pass \[0\]"):
        store.topic("events").scan(partitions=0)  # type: ignore[arg-type]


def test_seek_to_time_in_unassigned_partition_is_refused(store: Store) -> None:
    store.create_topic("others", partitions=1)
    with store.consumer(["events"]) as consumer:
        with pytest.raises(UsageError, match="not assigned"):
            consumer.seek_to_time(START_MS, partitions=[("others", 0)])
        for unknown in (("events", 7), ("nothing", 0)):
            with pytest.raises(TopicNotFound):
                consumer.seek_to_time(START_MS, partitions=[unknown])


def test_seek_to_beginning_and_end_covers_all_partitions(store: Store) -> None:
    with store._table.writing(ZERO) as log:
        log.delete_before(4)
    with store.consumer(["events"]) as consumer:
        consumer.seek_to_beginning()
        assert [consumer.position(("events", partition)) for partition in range(3)] == [4, 0, 0]
        assert len(drain(consumer)) == 56
        consumer.seek_to_beginning()
        consumer.poll(max_records=3)
        consumer.seek_to_end()
        assert [consumer.position(("events", partition)) for partition in range(3)] == [10, 20, 30]
        assert consumer.poll() == []


def test_paused_partition_keeps_position_and_returns_no_records(store: Store) -> None:
    with store.consumer(["events"], **EARLIEST) as consumer:
        consumer.seek(("events", 1), offset=5)
        consumer.pause(("events", 1))
        assert consumer.paused == {TopicPartition("events", 1)}
        assert {record.partition for record in drain(consumer)} == {0, 2}
        assert consumer.position(("events", 1)) == 5
        consumer.resume(("events", 1))
        assert consumer.paused == frozenset()
        assert offsets(drain(consumer)) == list(range(5, 20))


def test_fetched_records_are_not_returned_while_paused(store: Store) -> None:
    with store.consumer(**EARLIEST) as consumer:
        consumer.assign([ZERO])
        assert offsets(consumer.poll(max_records=2)) == [0, 1]
        consumer.pause(("events", 0))
        assert consumer.poll() == []
        consumer.resume(("events", 0))
        assert offsets(consumer.poll()) == list(range(2, 10))


def test_unassigned_partitions_are_refused(store: Store) -> None:
    with store.consumer() as consumer:
        consumer.assign([("events", 1)])
        for ask in (
            lambda: consumer.position(("events", 0)),
            lambda: consumer.seek(("events", 0), offset=0),
            lambda: consumer.pause(("events", 0)),
            lambda: consumer.resume(("events", 0)),
        ):
            with pytest.raises(UsageError, match="reads events-1"):
                ask()
        for topic, partition in (("event", 0), ("events", 3)):
            with pytest.raises(TopicNotFound):
                consumer.position((topic, partition))


# ---------------------------------------------------------------- topics and partitions


def test_assign_replaces_assignment(store: Store) -> None:
    with store.consumer(**EARLIEST) as consumer:
        assert consumer.assignment == frozenset()
        assert consumer.poll() == []
        consumer.assign([("events", 0), TopicPartition("events", 1)])
        consumer.poll(max_records=1)
        consumer.seek(("events", 1), offset=7)
        consumer.assign([("events", 1), ("events", 2)])

        assert consumer.assignment == {TopicPartition("events", 1), TopicPartition("events", 2)}
        # A partition that stays assigned keeps its position.
        assert [consumer.position(("events", partition)) for partition in (1, 2)] == [7, 0]
        consumer.assign([])
        assert consumer.poll() == []


def test_assign_of_missing_partition_is_refused_and_changes_nothing(store: Store) -> None:
    with store.consumer(**EARLIEST) as consumer:
        consumer.assign([("events", 0)])
        for wrong in (("events", 3), ("other", 0), ("events", -1)):
            with pytest.raises(TopicNotFound):
                consumer.assign([("events", 1), wrong])
        assert consumer.assignment == {ZERO}


def test_consumer_with_topics_cannot_use_assign(store: Store) -> None:
    with store.consumer(["events"]) as consumer, pytest.raises(UsageError, match="without topics"):
        consumer.assign([("events", 0)])


def test_string_is_not_accepted_as_list_of_topics(store: Store) -> None:
    with pytest.raises(UsageError, match=r"\['events'\]"):
        store.consumer("events")


@pytest.mark.parametrize(
    ("topics", "words", "error"),
    [
        (["event"], {}, TopicNotFound),
        (["a/b"], {}, InvalidName),
        (["events"], {"auto_offset_reset": "first"}, UsageError),
        (["events"], {"max_poll_records": 0}, UsageError),
        (["events"], {"max_poll_interval_ms": 0}, UsageError),
        (["events"], {"heartbeat_interval_ms": 0}, UsageError),
        (["events"], {"auto_commit_interval_ms": 0}, UsageError),
        (["events"], {"group": ""}, InvalidName),
        (["events"], {"group": " blank "}, InvalidName),
        (["events"], {"group": "a\nb"}, InvalidName),
        (["events"], {"group": "x" * 1025}, InvalidName),
        (["events"], {"group": "\ud800"}, InvalidName),
        (["events"], {"group": 5}, InvalidName),
    ],
    ids=repr,
)
def test_invalid_consumer_options_are_refused_and_change_nothing(
    store: Store, topics: list[str], words: dict[str, Any], error: type[SeeklogError]
) -> None:
    before = snapshot(store.path)
    with pytest.raises(error):
        store.consumer(topics, **words)
    assert snapshot(store.path) == before


@pytest.mark.parametrize("client_id", ["x" * 40_000, "\ud800", 5], ids=["too long", "no UTF-8", "no text"])
def test_invalid_client_id_is_refused(store: Store, client_id: Any) -> None:
    with pytest.raises(UsageError):
        store.consumer(["events"], client_id=client_id, **GROUP)


def test_earliest_starts_at_first_retained_record(store: Store) -> None:
    with store._table.writing(ZERO) as log:
        log.delete_before(4)
    with store.consumer(["events"], **EARLIEST) as consumer:
        assert [consumer.position(("events", partition)) for partition in range(3)] == [4, 0, 0]


def test_latest_starts_at_end(store: Store) -> None:
    with store.consumer(["events"]) as consumer:
        assert consumer.poll() == []
        fill(store, 0, 2)
        assert offsets(consumer.poll()) == [10, 11]


def test_reset_policy_error_raises_without_offset(store: Store) -> None:
    with (
        store.consumer(group="group", auto_offset_reset="error") as consumer,
        pytest.raises(NoOffset, match="events-0"),
    ):
        consumer.assign([ZERO])
    with store.consumer(enable_auto_commit=False, **GROUP) as other:
        other.assign([ZERO])
        other.commit({ZERO: 3})
    with store.consumer(group="group", auto_offset_reset="error") as consumer:
        consumer.assign([ZERO])
        assert consumer.position(("events", 0)) == 3


def test_consumer_that_failed_to_start_leaves_no_member(store: Store) -> None:
    """Goal: no partition stays with a member that nobody can close."""
    with pytest.raises(NoOffset):
        store.consumer(["events"], group="group", auto_offset_reset="error")
    with store.consumer(["events"], **GROUP) as consumer:
        assert len(consumer.assignment) == 3


def test_consumer_whose_on_assign_failed_leaves_no_member(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        store.consumer(["events"], on_assign=lambda _: 1 / 0, **GROUP)
    with store.consumer(["events"], **GROUP) as consumer:
        assert len(consumer.assignment) == 3


# ---------------------------------------------------------------- closing, and concurrent changes


def test_closed_consumer_refuses_calls(store: Store) -> None:
    consumer = store.consumer(["events"], **GROUP)
    consumer.close()
    consumer.close()

    for ask in (
        consumer.poll,
        consumer.commit,
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        lambda: consumer.position(("events", 0)),
        lambda: consumer.seek(("events", 0), offset=0),
        lambda: consumer.seek_to_time(0),
        lambda: consumer.pause(("events", 0)),
        lambda: consumer.committed(("events", 0)),
        lambda: list(consumer),
    ):
        with pytest.raises(LogClosed):
            ask()


def test_closing_store_closes_its_consumers(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.create_topic("events", partitions=1)
    send(store, "events", [b"value"] * 3)
    consumer = store.consumer(["events"], **GROUP)
    consumer.poll()
    store.close()

    with pytest.raises(LogClosed):
        consumer.poll()
    with open_store(tmp_path / "store") as again:
        description = again.describe_group("group")
        assert (description.offsets, description.members) == ({ZERO: 3}, ())


def test_read_only_store_is_consumed_without_group(store: Store) -> None:
    before = snapshot(store.path)
    with open_store(store.path, read_only=True) as reader:
        with reader.consumer(["events"], **EARLIEST) as consumer:
            assert set(places(drain(consumer))) == ALL
            fill(store, 0, 3)
            assert offsets(drain(consumer)) == [10, 11, 12]
        before = snapshot(store.path)
        with pytest.raises(UsageError, match="read-only"):
            reader.consumer(["events"], group="group")
    assert snapshot(store.path) == before


def test_consumer_follows_producer_across_rolls(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", segment_bytes=2000) as store:
        store.create_topic("events", partitions=2)
        sent: dict[int, list[bytes | None]] = {0: [], 1: []}

        def produce() -> None:
            with store.producer(batch_bytes=300, linger_ms=0) as producer:
                for number in range(1500):
                    value = b"%06d" % number
                    sent[producer.send("events", value, key=value).partition].append(value)

        thread = threading.Thread(target=produce)
        thread.start()
        seen: dict[int, list[Record]] = {0: [], 1: []}
        with store.consumer(["events"], **EARLIEST) as consumer:

            def is_over() -> bool:
                for record in consumer.poll():
                    seen[record.partition].append(record)
                return sum(map(len, seen.values())) == 1500

            wait_until(is_over, "all records")
        thread.join(PATIENCE_S)
        assert {partition: values(records) for partition, records in seen.items()} == sent
        assert {p: offsets(records) for p, records in seen.items()} == {p: list(range(len(sent[p]))) for p in sent}
        assert store.describe_topic("events").partitions[0].segment_count > 5


def test_consumer_continues_when_log_is_reopened(tmp_path: Path) -> None:
    """Goal: with few open files, logs are closed and reopened while they are read."""
    with open_store(tmp_path / "store", max_open_files=8) as store:
        store.create_topic("events", partitions=12)
        seen: list[Record] = []
        with store.consumer(["events"], **EARLIEST) as consumer:
            for round_ in range(6):
                for partition in range(12):
                    append(store, "events", [b"%d" % round_] * 2, partition=partition)
                    seen += consumer.poll(max_records=3)
            seen += drain(consumer)

    assert sorted(places(seen)) == [("events", partition, offset) for partition in range(12) for offset in range(12)]


def test_deleted_topic_is_error_for_its_consumer(store: Store) -> None:
    with store.consumer(["events"], **EARLIEST) as consumer:
        consumer.poll(max_records=1)
        store.delete_topic("events")
        for _ in range(2):
            with pytest.raises(TopicNotFound):
                drain(consumer)


@pytest.mark.parametrize("words", [EARLIEST, GROUP], ids=["alone", "in a group"])
@pytest.mark.parametrize("polls_between", [False, True])
def test_assigned_partitions_of_recreated_topic_are_read_again(
    store: Store, words: dict[str, Any], polls_between: bool
) -> None:
    with store.consumer(**words) as consumer:
        consumer.assign([ZERO])
        drain(consumer)
        store.delete_topic("events")
        if polls_between:
            with pytest.raises(TopicNotFound):
                consumer.poll()
            assert consumer.poll() == []
        store.create_topic("events", partitions=2)
        send(store, "events", [b"new"] * 3, partition=0)
        send(store, "events", [b"other"] * 3, partition=1)
        assert [record.value for record in drain(consumer)] == [b"new"] * 3
        assert consumer.assignment == {ZERO}


def test_member_continues_with_other_topics_after_deletion(store: Store, clock: FakeClock) -> None:
    store.create_topic("others", partitions=2)
    send(store, "others", [b"value"] * 3, partition=1)
    with store.consumer(["events", "others"], **GROUP) as consumer:
        consumer.poll(max_records=1)
        store.delete_topic("events")
        clock.advance(1000)
        assert consumer.poll() is not None
        assert consumer.assignment == {TopicPartition("others", 0), TopicPartition("others", 1)}
        drain(consumer)
        consumer.commit()
        assert consumer.committed(("others", 1)) == 3
    assert set(store.describe_group("group").offsets) == {TopicPartition("others", 0), TopicPartition("others", 1)}


@pytest.mark.parametrize("words", [EARLIEST, GROUP], ids=["alone", "in a group"])
def test_added_partitions_are_read_from_their_beginning(store: Store, clock: FakeClock, words: dict[str, Any]) -> None:
    added: list[frozenset[TopicPartition]] = []
    with store.consumer(["events"], on_assign=added.append, **words) as consumer:
        drain(consumer)
        store.add_partitions("events", partitions=5)
        send(store, "events", [b"value"] * 2, partition=4)
        clock.advance(1000)
        assert places(drain(consumer)) == [("events", 4, 0), ("events", 4, 1)]
        assert len(consumer.assignment) == 5
    assert added[1:] == [frozenset({TopicPartition("events", 3), TopicPartition("events", 4)})]


def test_partitions_added_by_another_store_are_read(store: Store, clock: FakeClock) -> None:
    with open_store(store.path, clock=clock) as other, other.consumer(["events"], **GROUP) as consumer:
        drain(consumer)
        store.add_partitions("events", partitions=4)
        send(store, "events", [b"value"], partition=3)
        clock.advance(1000)
        assert places(drain(consumer)) == [("events", 3, 0)]
