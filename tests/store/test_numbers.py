"""Numbers that callers pass: each is checked before anything is read, written or started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import for_each
from seeklog import Log, Store
from seeklog.clients import LogWriter
from seeklog.clients.gathering import Delivery
from seeklog.clock import MAX_WAIT_MS, MAX_WAIT_S
from seeklog.errors import SeeklogError, UsageError
from seeklog.store import transactions_of
from store.workbench import append, open_store, snapshot

NAN, INF = float("nan"), float("inf")
NOT_NUMBERS: tuple[Any, ...] = ("5", b"5", [5], 5j)
# A bool is an int in Python, and as a number it is a mistake.
BAD_WHOLE: tuple[Any, ...] = (*NOT_NUMBERS, NAN, INF, -INF, 1.5, True, -(2**70), 10**5000)
BAD_WAITS_MS: tuple[Any, ...] = (*NOT_NUMBERS, NAN, INF, -INF, -1, True, MAX_WAIT_MS * 1.001, 10**5000)
BAD_WAITS_S: tuple[Any, ...] = (*NOT_NUMBERS, NAN, INF, -INF, -1, True, MAX_WAIT_S * 1.001, 1e300)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"0", b"1", b"2"])
        yield store


def with_log(store: Store, call: Callable[[Log], object]) -> None:
    with store.writer("t", 0) as log:
        call(log)


def sent_to(store: Store, partition: Any) -> None:
    with store.producer() as producer:
        producer.send("t", b"", partition=partition)


def writer_of(store: Store, **words: Any) -> None:
    with store.writer("t", 0) as log:
        LogWriter(log, **words)


WAITS_MS: dict[str, Callable[[Store, Any], object]] = {
    "linger_ms": lambda store, number: store.producer(linger_ms=number),
    "linger_ms of a writer": lambda store, number: writer_of(store, linger_ms=number),
    "consumer_timeout_ms": lambda store, number: store.consumer(["t"], consumer_timeout_ms=number),
    "timeout_ms of poll": lambda store, number: store.consumer(["t"]).poll(number),
    "timeout_ms of follow": lambda store, number: store.log("t", 0).follow(0, timeout_ms=number),
}
WAITS_S: dict[str, Callable[[Store, Any], object]] = {
    "wait_s of writer": lambda store, number: store.writer("t", 0, wait_s=number),
    "wait_s of commit": lambda store, number: transactions_of(store).commit("app", 0, [], wait_s=number),
    "timeout of result": lambda store, number: Delivery().wait(number),
}
WHOLE: dict[str, Callable[[Store, Any], object]] = {
    "batch_bytes": lambda store, number: store.producer(batch_bytes=number),
    "buffer_bytes": lambda store, number: store.producer(batch_bytes=1, buffer_bytes=number),
    "batch_bytes of a writer": lambda store, number: writer_of(store, batch_bytes=number),
    "buffer_bytes of a writer": lambda store, number: writer_of(store, batch_bytes=1, buffer_bytes=number),
    "max_poll_records": lambda store, number: store.consumer(["t"], max_poll_records=number),
    "max_poll_interval_ms": lambda store, number: store.consumer(["t"], max_poll_interval_ms=number),
    "heartbeat_interval_ms": lambda store, number: store.consumer(["t"], heartbeat_interval_ms=number),
    "auto_commit_interval_ms": lambda store, number: store.consumer(["t"], auto_commit_interval_ms=number),
    "max_records of poll": lambda store, number: store.consumer(["t"]).poll(max_records=number),
    "offset of a consumer's seek": lambda store, number: store.consumer(["t"]).seek(("t", 0), offset=number),
    "partition of assign": lambda store, number: store.consumer().assign([("t", number)]),
    "partitions": lambda store, number: store.create_topic("new", partitions=number),
    "partitions to add": lambda store, number: store.add_partitions("t", partitions=number),
    "partition of log": lambda store, number: store.log("t", number),
    "partition of send": sent_to,
    "version": lambda store, number: transactions_of(store).commit("app", number, []),
    "offset of read": lambda store, number: store.log("t", 0).read(number),
    "max_records of read": lambda store, number: store.log("t", 0).read(0, max_records=number),
    "max_bytes of read": lambda store, number: store.log("t", 0).read(0, max_bytes=number),
    "offset of read_uncommitted": lambda store, number: store.log("t", 0).read_uncommitted(number),
    "start of scan": lambda store, number: store.log("t", 0).scan(number),
    "end of scan": lambda store, number: store.log("t", 0).scan(0, number),
    "end of scan_reverse": lambda store, number: store.log("t", 0).scan_reverse(0, number),
    "batch_rows": lambda store, number: store.log("t", 0).scan_arrow(batch_rows=number),
    "batch_rows of a topic": lambda store, number: list(store.topic("t").scan_arrow(batch_rows=number)),
    "offset of read_batches": lambda store, number: store.log("t", 0).read_batches(number),
    "max_bytes of read_batches": lambda store, number: store.log("t", 0).read_batches(0, max_bytes=number),
    "max_bytes of read_ranges": lambda store, number: store.log("t", 0).read_ranges(0, max_bytes=number),
    "offset of follow": lambda store, number: store.log("t", 0).follow(number),
    "offset of seek": lambda store, number: store.log("t", 0).seek(number),
    "offset of plan_delete_before": lambda store, number: store.log("t", 0).plan_delete_before(number),
    "offset of delete_before": lambda store, number: with_log(store, lambda log: log.delete_before(number)),
    "offset of truncate_to": lambda store, number: with_log(store, lambda log: log.truncate_to(number)),
    "epoch": lambda store, number: with_log(store, lambda log: log.begin_epoch(number)),
}


def check_refused(store: Store, call: Callable[[Store, Any], object], name: str, numbers: tuple[Any, ...]) -> None:
    before, threads = snapshot(store.path, locks=False), threading.active_count()
    for number in numbers:
        with pytest.raises(SeeklogError) as caught:
            call(store, number)
        assert len(str(caught.value)) < 200
        if isinstance(caught.value, UsageError):
            assert name.split()[0] in str(caught.value)
    assert threading.active_count() == threads, "a refused argument started a thread"
    assert snapshot(store.path, locks=False) == before


@pytest.mark.parametrize("name", WAITS_MS)
def test_time_in_milliseconds_is_checked(store: Store, name: str) -> None:
    check_refused(store, WAITS_MS[name], name, BAD_WAITS_MS)


@pytest.mark.parametrize("name", WAITS_S)
def test_time_in_seconds_is_checked(store: Store, name: str) -> None:
    check_refused(store, WAITS_S[name], name, BAD_WAITS_S)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_number_is_checked(store: Store, name: str) -> None:
    check_refused(store, WHOLE[name], name, BAD_WHOLE)


@for_each("number", [*BAD_WHOLE, 0, 7])
def test_number_of_open_files_is_checked(tmp_path: Path, number: Any) -> None:
    with pytest.raises(UsageError, match="max_open_files"):
        open_store(tmp_path / "store", max_open_files=number)
    assert not (tmp_path / "store").exists()


def test_error_names_argument_range_and_value(store: Store) -> None:
    with pytest.raises(UsageError, match=r"linger_ms must be a number from 0 to 9,223,372,036,000, not nan"):
        store.producer(linger_ms=NAN)
    with pytest.raises(UsageError, match=r"max_poll_records must be a whole number from 1 to 2,147,483,647, not 0"):
        store.consumer(["t"], max_poll_records=0)
    with pytest.raises(UsageError, match=r"max_records must be a whole number of at least 1, not 1\.5"):
        store.log("t", 0).read(0, max_records=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pass None to wait without a limit"):
        store.log("t", 0).follow(0, timeout_ms=INF)


def test_longest_wait_is_accepted(store: Store) -> None:
    """Goal: the limit is one that threads can wait for; a longer linger ended the thread that sends."""
    with store.producer(linger_ms=MAX_WAIT_MS) as producer:
        future = producer.send("t", b"v", partition=1)
        with pytest.raises(TimeoutError):
            future.result(0)
        producer.flush()
        assert future.result(MAX_WAIT_S).offset == 0
