"""How things end: with an error in the body, by another thread, unclosed, at exit, or recreated."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seeklog
from log.workbench import PATIENCE_S, FailingFiles, wait_until
from seeklog import Log, LogConfig, LogReader, Store
from seeklog.clock import SystemClock
from seeklog.errors import (
    InvalidConfig,
    LogClosed,
    LogFailed,
    LogLocked,
    NotALog,
    RecordTooLarge,
    SeeklogError,
    UsageError,
)
from seeklog.names import TopicPartition
from store.workbench import Holder, append, open_store, read

ZERO = TopicPartition("t", 0)
GROUP: dict[str, Any] = {"group": "g", "auto_offset_reset": "earliest"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"0", b"1", b"2"])
    return tmp_path / "store"


def committed(root: Path) -> int:
    with open_store(root, read_only=True) as store:
        return store.describe_group("g").offsets.get(ZERO, 0)


# ---------------------------------------------------------------- errors in the body


def test_failed_record_is_read_again_when_store_is_context_manager(root: Path) -> None:
    def deal_with_records() -> None:
        with open_store(root) as store:
            consumer = store.consumer(["t"], **GROUP)
            for _ in consumer:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        deal_with_records()
    assert committed(root) == 0


def test_orderly_close_of_store_commits_returned_records(root: Path) -> None:
    with open_store(root) as store:
        consumer = store.consumer(["t"], **GROUP)
        assert len(consumer.poll()) == 3
    assert committed(root) == 3


def test_close_by_another_thread_commits_no_unprocessed_records(root: Path) -> None:
    with open_store(root) as store:
        consumer = store.consumer(["t"], **GROUP)
        worker = threading.Thread(target=consumer.poll)
        worker.start()
        worker.join()
    assert committed(root) == 0


def test_failing_listener_leaves_nothing_open(root: Path) -> None:
    store = open_store(root)
    append(store, "t", [b"3"])
    consumer = store.consumer(["t"], on_revoke=lambda _: {}["missing"], **GROUP)
    with pytest.raises(KeyError):
        store.close()
    assert consumer.member_id is not None
    with open_store(root) as again:
        append(again, "t", [b"4"])


def test_error_of_close_does_not_hide_error_of_body(root: Path) -> None:
    def fail_twice() -> None:
        files = FailingFiles("sync")
        with open_store(root, files=files) as store:
            append(store, "t", [b"3"])
            files.fails = True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_twice()


@pytest.mark.parametrize(
    "ask",
    [
        Store.__enter__,
        Store.topics,
        Store.groups,
        Store.producer,
        lambda store: store.consumer(["t"]),
        lambda store: store.log("t", 0),
        lambda store: store.describe_topic("t"),
        lambda store: store.lag("g"),
    ],
)
def test_closed_store_refuses_work(root: Path, ask: Callable[[Store], object]) -> None:
    store = open_store(root)
    store.close()
    with pytest.raises((LogClosed, UsageError)):
        ask(store)


# ---------------------------------------------------------------- dropped without a close


def test_producer_keeps_its_store_open(root: Path) -> None:
    """Goal: `flush="interval"` holds even if nothing refers to the store any more."""
    clock = SystemClock()
    producer = open_store(root, background=True, clock=clock, flush="interval", flush_interval_ms=1).producer()
    gc.collect()
    future = producer.send("t", b"3")
    assert future.result(PATIENCE_S).offset == 3
    wait_until(lambda: producer._owner.log("t", 0).recovery_point == 4, "the sync")  # type: ignore[attr-defined]
    producer._owner.close()  # type: ignore[attr-defined]


def test_dropped_producer_writes_its_records_and_ends_its_thread(root: Path) -> None:
    with open_store(root) as store:
        before = set(threading.enumerate())
        producer = store.producer(linger_ms=1e6)
        (thread,) = set(threading.enumerate()) - before
        producer.send("t", b"3")
        del producer
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert read(store, "t") == [b"0", b"1", b"2", b"3"]


def test_dropped_consumer_leaves_its_group_at_once(root: Path) -> None:
    gc.disable()
    try:
        with open_store(root) as store:
            consumer = store.consumer(["t"], **GROUP)
            consumer.poll()
            del consumer
            assert store.consumer(["t"], **GROUP).assignment == {ZERO}
    finally:
        gc.enable()


def test_sent_records_are_written_at_exit_without_close(root: Path) -> None:
    script = f"""
import seeklog
producer = seeklog.open({str(root)!r}).producer(linger_ms=1e6)
for number in range(1000):
    producer.send("t", b"late")
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ, timeout=60)
    with open_store(root) as store:
        assert read(store, "t").count(b"late") == 1000


# ---------------------------------------------------------------- recreated topics and reopened logs


@pytest.mark.parametrize("group", [None, "g"])
def test_recreated_topic_is_read_from_its_start(root: Path, group: str | None) -> None:
    with open_store(root) as store:
        consumer = store.consumer(["t"], group=group, auto_offset_reset="earliest", heartbeat_interval_ms=1)
        assert len(consumer.poll()) == 3
        store.delete_topic("t")
        store.create_topic("t", partitions=1)
        append(store, "t", [b"new%d" % number for number in range(8)])
        seen = [record.value for _ in range(5) for record in consumer.poll()]
        assert seen == [b"new%d" % number for number in range(8)]


def test_partition_is_reopened_for_next_record_after_failed_sync(root: Path) -> None:
    files = FailingFiles("sync")
    with open_store(root, files=files, flush="batch") as store:
        first = store.producer()
        files.fails = True
        assert isinstance(first.send("t", b"lost?").exception(PATIENCE_S), LogFailed)
        files.fails = False
        assert first.send("t", b"kept").exception(PATIENCE_S) is None
        assert store.producer().send("t", b"kept too").exception(PATIENCE_S) is None
        assert read(store, "t")[-2:] == [b"kept", b"kept too"]


# ---------------------------------------------------------------- refused inputs


def test_store_is_not_opened_as_log(root: Path) -> None:
    before = sorted(root.iterdir())
    for read_only in (False, True):
        with pytest.raises(NotALog, match=r"is a store of topics; open it with seeklog\.open"):
            (LogReader if read_only else Log)(root)
    assert sorted(root.iterdir()) == before


def test_directory_with_names_of_partitions_only_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "ImageMagick-6").mkdir()
    for read_only in (False, True):
        with pytest.raises(NotALog):
            seeklog.open(tmp_path, read_only=read_only)


@pytest.mark.parametrize("words", [{"high_watermark": "manual"}, {"initial_offset": 5}])
def test_settings_of_single_log_are_refused_for_store(tmp_path: Path, words: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        seeklog.open(tmp_path / "store", config=LogConfig(**words))


def test_store_accepts_setting_names_of_kafka(tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "store", config={"retention.ms": "5"}) as store:
        assert store.create_topic("t").config.retention_ms == 5


def test_record_too_large_for_readers_is_refused(root: Path) -> None:
    with open_store(root) as store:
        store.alter_topic("t", {"compression.type": "zstd"})
        with store.producer() as producer:
            large = producer.send("t", bytes(20 << 20))
            small = producer.send("t", b"after")
            assert isinstance(large.exception(PATIENCE_S), RecordTooLarge)
            assert small.result(PATIENCE_S).offset == 3


def test_partition_locked_by_another_process_is_waited_for_once(root: Path) -> None:
    """Goal: the other partitions of a producer do not wait a second for each of its batches."""
    with Holder(root / "t-0" / ".lock"), open_store(root) as store:
        for _ in range(2):
            with pytest.raises(LogLocked):
                append(store, "t", [b"x"])
        assert store._table._entries[ZERO].was_locked


def test_store_respects_open_file_limit_of_process(tmp_path: Path) -> None:
    script = f"""
import resource, seeklog
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with seeklog.open({str(tmp_path / "store")!r}) as store:
    for number in range(20):
        store.create_topic(f"t{{number}}", partitions=4)
        store.describe_topic(f"t{{number}}")
    with store.producer() as producer:
        for number in range(20):
            for partition in range(4):
                producer.send(f"t{{number}}", b"x", partition=partition)
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ, timeout=60)


@pytest.mark.parametrize(
    "call",
    [
        lambda root: seeklog.open(5),
        lambda root: seeklog.open(root, config=[1]),
        lambda root: seeklog.open(root, max_open_files="5"),
        lambda root: open_store(root).create_topic("a", config=["retention.ms"]),
        lambda root: open_store(root).create_topic("a", config={"retention.ms": 5, "retention_ms": 6}),
        lambda root: open_store(root).producer(linger_ms="5"),
        lambda root: open_store(root).producer(partitioner="murmur2"),
        lambda root: open_store(root).consumer(["t"], max_poll_records="9"),
        lambda root: open_store(root).consumer(["t"], group="g", max_poll_interval_ms=2**31),
        lambda root: open_store(root).consumer(["t"]).poll(None),
        lambda root: open_store(root).consumer(["t"]).seek(("t", 0), offset="0"),
        lambda root: open_store(root).consumer(["t"]).seek_to_time("2024"),
        lambda root: open_store(root).consumer(group="g").assign(["t"]),
        lambda root: open_store(root).consumer(group="g").commit(5),
        lambda root: open_store(root).consumer(group="g").commit({"t": 1}),
        lambda root: next(iter(open_store(root).consumer())),
    ],
)
def test_wrong_types_raise_seeklog_errors(root: Path, call: Callable[[Path], object]) -> None:
    with pytest.raises(SeeklogError):
        call(root)
