"""`Store` itself: opening and closing, calls after the close, and forks."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seeklog
from faults.children import Child
from log.workbench import FailingFiles, QuickFiles, wait_until
from seeklog import Log, LogConfig, Store, names
from seeklog.clock import SystemClock
from seeklog.errors import InvalidConfig, InvalidName, LogClosed, LogFailed, NotAccessible, SeeklogError, TopicNotFound
from store.workbench import Holder, append, open_store, partition_directories, read, send, snapshot, strangers

Report = Callable[[str], None]


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root) as store:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"0", b"1"])
        yield store


# ---------------------------------------------------------------- opening


@pytest.mark.parametrize("kind", [Path, str, os.fsencode], ids=["path", "text", "bytes"])
def test_path_may_be_str_bytes_or_path(root: Path, kind: Callable[[str], Any]) -> None:
    with seeklog.open(kind(str(root)), background=False) as store:
        assert store.path == root
        assert not store.read_only


def test_package_opens_store(root: Path) -> None:
    with seeklog.open(root, config=LogConfig(retention_ms=5, flush="os")) as store:
        store.create_topic("t", partitions=1)
        send(store, "t", [b"x"])
        assert store.describe_topic("t").config == LogConfig(retention_ms=5, flush="os")
    with seeklog.open(root, read_only=True) as store:
        assert read(store, "t") == [b"x"]


def test_path_with_nul_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidName, match="NUL"):
        open_store(tmp_path / "a\0b")


def test_relative_path_survives_change_of_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(Path("store")) as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.create_topic("t", partitions=1)
        assert store.path == tmp_path / "store"
    assert partition_directories(tmp_path / "store") == ["t-0"]


def test_store_may_be_opened_through_link(store: Store, root: Path) -> None:
    """The path to the store may contain links; only the store's own entries must not be links."""
    store.close()
    (root.parent / "link").symlink_to(root)

    with open_store(root.parent / "link") as again:
        assert read(again, "t") == [b"0", b"1"]


def test_repr_names_path_and_mode(store: Store, root: Path) -> None:
    assert repr(store) == f"<Store {root}>"
    with open_store(root, read_only=True) as reader:
        assert repr(reader) == f"<Store {root} read-only>"


def test_invalid_configuration_is_refused_and_changes_nothing(root: Path) -> None:
    with pytest.raises(InvalidConfig):
        open_store(root, segment_bytes=1)
    assert not root.exists()


def test_disk_errors_raise_seeklog_errors(root: Path) -> None:
    files = FailingFiles("make_directory", error=errno.EACCES)
    files.fails = True
    with pytest.raises(NotAccessible) as caught:
        open_store(root, files=files)
    assert isinstance(caught.value.__cause__, PermissionError)


def test_store_creates_only_known_files(store: Store, root: Path) -> None:
    store.create_topic("u", partitions=3)
    store.delete_topic("u")
    store.maintain()
    store.close()

    assert strangers(root) == []
    assert partition_directories(root) == ["t-0", "t-1"]


def test_partition_opens_as_single_log(store: Store, root: Path) -> None:
    """`Log` opens what a store wrote, and the other way round."""
    store.close()
    with Log(root / "t-0", config=LogConfig(flush="os"), background=False) as log:
        assert [record.value for record in log.scan()] == [b"0", b"1"]
        log.append(b"2")
    with open_store(root) as again:
        assert read(again, "t") == [b"0", b"1", b"2"]


# ---------------------------------------------------------------- closing


def test_closing_twice_has_no_effect(store: Store, root: Path) -> None:
    store.close()
    before = snapshot(root)
    store.close()

    assert snapshot(root) == before


def test_close_leaves_clean_logs(store: Store, root: Path) -> None:
    store.close()

    with Log(root / "t-0", background=False) as log:
        assert log.recovery.clean


def test_with_block_closes_store_after_error(root: Path) -> None:
    def fail() -> None:
        with open_store(root) as store:
            store.create_topic("t", partitions=1)
            append(store, "t", [b"x"])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with Holder(root / "t-0" / names.LOCK) as holder:
        assert holder.got_it


def test_close_sends_records_buffered_in_producers(store: Store, root: Path) -> None:
    producer = store.producer(linger_ms=3_600_000)
    future = producer.send("t", b"late", partition=1)
    store.close()

    assert future.done()
    assert future.result().offset == 0
    with open_store(root, read_only=True) as reader:
        assert read(reader, "t", 1) == [b"late"]


def test_close_closes_consumers(store: Store) -> None:
    consumer = store.consumer(["t"])
    store.close()

    with pytest.raises(SeeklogError):
        consumer.poll(timeout_ms=0)


def test_concurrent_closes_close_once(store: Store) -> None:
    threads = [threading.Thread(target=store.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with pytest.raises(LogClosed):
        append(store, "t", [b"x"])


def test_failed_sync_of_one_log_does_not_prevent_close_of_others(root: Path) -> None:
    files = FailingFiles("sync", "/t-0/")
    store = open_store(root, files=files)
    store.create_topic("t", partitions=3)
    for partition in range(3):
        append(store, "t", [b"x"], partition=partition)
    files.fails = True
    with pytest.raises(LogFailed, match="t-0"):
        store.close()
    store.close()

    for partition in range(3):
        with Holder(root / f"t-{partition}" / names.LOCK) as holder:
            assert holder.got_it
    for partition in (1, 2):
        with Log(root / f"t-{partition}", background=False) as log:
            assert log.recovery.clean
    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it


CHANGES: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create_topic("u", partitions=1),
    "alter": lambda store: store.alter_topic("t", {"retention.ms": 5}),
    "grow": lambda store: store.add_partitions("t", partitions=9),
    "delete": lambda store: store.delete_topic("t"),
    "maintain": lambda store: store.maintain(),
    "send": lambda store: send(store, "t", [b"x"]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_closed_store_changes_nothing(store: Store, root: Path, change: Callable[[Store], object]) -> None:
    """A broker may have started on the directory since, because the store no longer holds its lock."""
    store.close()
    before = snapshot(root)

    with pytest.raises(LogClosed):
        change(store)

    assert snapshot(root) == before


@pytest.mark.parametrize("has_reader", [False, True])
def test_closed_store_returns_no_log(store: Store, has_reader: bool) -> None:
    if has_reader:
        read(store, "t", 1)
    store.close()

    with pytest.raises(LogClosed):
        list(store.log("t", 1).scan())
    with pytest.raises(LogClosed):
        store.describe_topic("t")


# ---------------------------------------------------------------- forks


def test_forked_child_cannot_write_partition_of_its_parent(store: Store, root: Path) -> None:
    def hold() -> None:
        with store.writer("t", 0) as log:
            log.append(b"child")

    def use(report: Report) -> None:
        for attempt in (lambda: append(store, "t", [b"child"]), hold, log.flush):
            with pytest.raises(SeeklogError):
                attempt()
        report("refused")

    with store.writer("t", 0) as log:
        child = Child(use)
        assert child.rest() == ["refused"]
    assert child.wait() == 0
    append(store, "t", [b"2"])
    assert read(store, "t") == [b"0", b"1", b"2"]
    with Holder(root / "t-0" / names.LOCK) as holder:
        assert not holder.got_it, "the child has given the parent's lock away"


def test_close_in_forked_child_does_not_affect_parent(root: Path) -> None:
    with open_store(root, background=True, clock=SystemClock(), flush="interval", flush_interval_ms=1) as store:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"0"])
        wait_until(lambda: store.log("t", 0).recovery_point == 1, "a sync")

        def close(report: Report) -> None:
            store.close()
            report("closed")

        child = Child(close)
        assert child.rest() == ["closed"]
        assert child.wait() == 0
        append(store, "t", [b"1"])
        wait_until(lambda: store.log("t", 0).recovery_point == 2, "a sync after the child's close")
        with Holder(root / names.LOCK, "broker") as broker:
            assert not broker.got_it
    with open_store(root) as again:
        assert read(again, "t") == [b"0", b"1"]


def test_forked_child_can_open_store_again(store: Store, root: Path) -> None:
    def use(report: Report) -> None:
        with open_store(root) as mine:
            assert read(mine, "t") == [b"0", b"1"]
            append(mine, "t", [b"child"], partition=1)
            mine.create_topic("childs", partitions=1)
        report("done")

    child = Child(use)
    assert child.rest() == ["done"]
    assert child.wait() == 0
    assert read(store, "t", 1) == [b"child"]
    assert store.topics() == ["childs", "t"]


@pytest.mark.parametrize("where", ["topics", "maintenance"])
def test_child_forked_during_maintenance_does_not_hang(root: Path, where: str) -> None:
    """Goal: the thread is not in the child, but the lock it held is."""
    with open_store(root, background=True, clock=SystemClock()) as store:
        store.create_topic("t", partitions=1)
        assert store._syncs is not None
        lock = {"topics": store._topics._lock, "maintenance": store._syncs._wake}[where]
        is_held, may_go = threading.Event(), threading.Event()

        def hold() -> None:
            with lock:
                is_held.set()
                may_go.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        is_held.wait()

        def use(report: Report) -> None:
            signal.alarm(1)  # ends a child that hangs; a normal one takes milliseconds
            store.topics()
            store.close()
            report("ended")

        child = Child(use)
        try:
            assert child.line() == "ended"
        finally:
            may_go.set()
            holder.join()
            child.kill()
            child.wait()


def live(report: Report) -> None:
    report("alive")
    threading.Event().wait()


@pytest.mark.parametrize(
    ("lock", "how"),
    [
        (names.LOCK, "broker"),
        (f"t-0/{names.LOCK}", "writer"),
        (names.TOPICS_LOCK, "writer"),
    ],
)
def test_child_keeps_no_lock_that_parent_released(store: Store, root: Path, lock: str, how: str) -> None:
    """A pool of workers lives long; it must not keep the store locked."""
    child = Child(live)
    try:
        assert child.line() == "alive"
        store.close()
        with Holder(root / lock, how) as holder:
            assert holder.got_it
    finally:
        child.kill()
        child.wait()


def test_child_forked_during_change_does_not_keep_catalog_locked(root: Path) -> None:
    children: list[Child] = []

    class Forking(QuickFiles):
        forks = False

        def make_directory(self, path: str) -> None:
            if self.forks and not children:
                children.append(Child(live))
            super().make_directory(path)

    files = Forking()
    store = open_store(root, files=files)
    files.forks = True
    try:
        store.create_topic("t", partitions=1)
        assert children[0].line() == "alive"
        store.create_topic("u", partitions=1)
        store.close()
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_missing_topic_is_missing_in_forked_child(store: Store) -> None:
    def use(report: Report) -> None:
        with pytest.raises(TopicNotFound):
            store.describe_topic("nowhere")
        report("told")

    child = Child(use)
    assert child.rest() == ["told"]
    child.wait()
