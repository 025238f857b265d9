"""Consumers that wait: woken by changes where the system reports them, polling elsewhere."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import seeklog
from log.workbench import PATIENCE_S, QuickFiles, wait_until
from seeklog import Consumer, Record, Store, TopicPartition
from seeklog.clients import turns
from seeklog.clients.consumer import MIN_PAUSE_S
from seeklog.clock import SystemClock
from seeklog.errors import LogClosed, TopicNotFound
from seeklog.files import OsFiles, polling, watch
from seeklog.files.polling import Polling
from seeklog.files.watch import DirectoryWatch
from store.workbench import append, open_file_count, open_store

LATEST = "latest"
PARTITIONS = 20
# Without these tests' changes of directories nothing may wake a consumer.
NEVER_S = 10.0**6
WRITER = """
import sys, seeklog
path, flush, partition = sys.argv[1:]
with seeklog.open(path, config={"flush": flush}) as store, store.producer(linger_ms=0) as producer:
    producer.send("t", b"theirs", partition=int(partition)).result(60)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


class CountingFiles(QuickFiles):
    """The real disk, which counts the times a reader looks at a file."""

    looks = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self.looks += 1
        return super().open(path, write=write, create=create)

    def status(self, path: str) -> seeklog.files.FileStatus:
        self.looks += 1
        return super().status(path)

    def size(self, handle: int) -> int:
        self.looks += 1
        return super().size(handle)


class Unwatched(CountingFiles):
    """A disk without a watch, as tests and archives have."""

    def watch(self) -> None:  # type: ignore[override]
        return None


class Polled(CountingFiles):
    """The disk of a system that reports no changes."""

    def watch(self) -> DirectoryWatch:
        return Polling()


class Unreported(CountingFiles):
    """A disk whose changes the system cannot report: on a network, or beyond the user's limit."""

    def watch(self) -> DirectoryWatch:
        return Refusing()


class Refusing(watch.Inotify):
    def _report(self, directory: str) -> bool:
        return False


@pytest.fixture(autouse=True)
def _only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "REST_S", NEVER_S)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("t", partitions=PARTITIONS)
    return path


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root, clock=SystemClock(), files=CountingFiles()) as store:
        yield store


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(2)
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


def resting(store: Store, **words: str) -> Consumer:
    """Return a consumer whose partitions all rest."""
    consumer = store.consumer(["t"], **words)  # type: ignore[arg-type]
    for _ in range(3):
        assert consumer.poll() == []
    assert not consumer._turns.awake
    return consumer


def poll(consumer: Consumer) -> list[Record]:
    return consumer.poll(timeout_ms=1000 * PATIENCE_S)


def values(records: list[Record]) -> list[tuple[int | None, bytes | None]]:
    return [(record.partition, record.value) for record in records]


def looks_of(store: Store) -> int:
    files = store._files
    assert isinstance(files, CountingFiles)
    return files.looks


# ---------------------------------------------------------------- woken by a change


@pytest.mark.parametrize("flush", ["os", "interval", "batch"])
def test_write_of_another_process_wakes_waiting_poll(
    store: Store, root: Path, pool: ThreadPoolExecutor, flush: str
) -> None:
    consumer = resting(store)
    waiting = pool.submit(poll, consumer)
    subprocess.run([sys.executable, "-c", WRITER, str(root), flush, "7"], check=True, timeout=PATIENCE_S)

    assert values(waiting.result(PATIENCE_S)) == [(7, b"theirs")]


@pytest.mark.parametrize("flush", ["os", "batch"])
def test_every_append_of_this_process_wakes_waiting_poll(root: Path, pool: ThreadPoolExecutor, flush: str) -> None:
    with open_store(root, clock=SystemClock(), flush=flush) as store:
        consumer = resting(store)
        for number in range(20):
            waiting = pool.submit(poll, consumer)
            append(store, "t", [b"%d" % number], partition=number % 3)
            assert values(waiting.result(PATIENCE_S)) == [(number % 3, b"%d" % number)]


def test_first_records_after_a_long_rest_come_from_every_partition(store: Store, root: Path) -> None:
    consumer = resting(store)
    with open_store(root) as other:
        for partition in range(PARTITIONS):
            append(other, "t", [b"v"], partition=partition)
    found = [record.partition for _ in range(PARTITIONS) for record in consumer.poll()]

    assert sorted(filter(None, found)) == list(range(1, PARTITIONS))


def test_empty_poll_looks_at_no_partition_at_rest(store: Store) -> None:
    consumer = resting(store)
    before = looks_of(store)
    for _ in range(100):
        assert consumer.poll() == []

    assert looks_of(store) == before


def test_change_of_one_partition_causes_no_look_at_the_others(store: Store, root: Path) -> None:
    consumer = resting(store)
    before = looks_of(store)
    assert consumer.poll() == []
    with open_store(root) as other:
        append(other, "t", [b"v"], partition=3)
    consumer._turns._awaken_changed()

    assert list(consumer._turns.awake) == [TopicPartition("t", 3)]
    assert looks_of(store) == before


def test_append_in_progress_is_not_missed_by_a_partition_going_to_rest(store: Store, pool: ThreadPoolExecutor) -> None:
    """Goal: the write is reported before the record is visible; the look that follows waits for it."""
    with store.writer("t", 0) as log:
        partition = log._partition
        with partition.lock:
            settled = pool.submit(log.reader.settled_watermark)
            with pytest.raises(TimeoutError):
                settled.result(0.05)
            partition.high_watermark = 5
        assert settled.result(PATIENCE_S) == 5
        partition.high_watermark = 0


def test_rest_ends_after_some_time_without_any_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "REST_S", 0.0)
    consumer = store.consumer(["t"])
    for _ in range(4):
        consumer.poll()
    before = looks_of(store)
    consumer.poll()

    assert looks_of(store) > before


# ---------------------------------------------------------------- positions that change


def test_seek_awakens_a_partition_at_rest(store: Store, root: Path) -> None:
    with open_store(root) as other:
        append(other, "t", [b"a", b"b"], partition=2)
    consumer = resting(store)
    consumer.seek(("t", 2), offset=1)
    assert values(consumer.poll()) == [(2, b"b")]
    consumer.seek_to_beginning(("t", 2))
    assert values(consumer.poll()) == [(2, b"a"), (2, b"b")]


def test_writes_to_paused_partition_wake_no_poll_until_it_is_resumed(store: Store, root: Path) -> None:
    consumer = resting(store)
    consumer.pause(("t", 1))
    with open_store(root) as other:
        append(other, "t", [b"a"], partition=1)
        assert consumer.poll() == []
        append(other, "t", [b"b"], partition=1)
        watching = consumer._turns._watch
        assert watching is not None
        assert watching.changes() == set()  # only the first change is reported
    consumer.resume(("t", 1))
    assert values(consumer.poll()) == [(1, b"a"), (1, b"b")]


def test_partitions_added_by_another_process_are_read(store: Store, root: Path, pool: ThreadPoolExecutor) -> None:
    consumer = resting(store)
    waiting = pool.submit(poll, consumer)
    with open_store(root) as other:
        other.add_partitions("t", partitions=PARTITIONS + 1)
        store._topics.refresh()  # as the background thread of a store does each second
        wait_until(lambda: TopicPartition("t", PARTITIONS) in consumer.assignment, "the new partition")
        append(other, "t", [b"new"], partition=PARTITIONS)

    assert values(waiting.result(PATIENCE_S)) == [(PARTITIONS, b"new")]


def test_deletion_of_a_topic_at_rest_is_raised(store: Store, root: Path, pool: ThreadPoolExecutor) -> None:
    append(store, "t", [b"v"])
    store._table.drop("t")  # closes the writer, which would keep the other process from deleting the topic
    consumer = resting(store)
    waiting = pool.submit(poll, consumer)
    with open_store(root) as other:
        other.delete_topic("t")

    with pytest.raises(TopicNotFound):
        waiting.result(PATIENCE_S)


def test_topic_recreated_at_rest_is_read_from_its_start(store: Store, root: Path) -> None:
    consumer = resting(store, auto_offset_reset="earliest")
    with open_store(root) as other:
        other.delete_topic("t")
        other.create_topic("t", partitions=PARTITIONS)
        append(other, "t", [b"new"])
    store._topics.refresh()

    assert values(poll(consumer)) == [(0, b"new")]


def test_lost_events_awaken_every_partition(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = resting(store)
    assert consumer._turns._watch is not None
    consumer._turns._watch.changes()
    with open_store(root) as other:
        append(other, "t", [b"v"], partition=9)
    with monkeypatch.context() as patch:
        patch.setattr(consumer._turns._watch, "changes", lambda: None)
        found = consumer.poll()

    assert values(found) == [(9, b"v")]


# ---------------------------------------------------------------- without reports of changes


@pytest.mark.parametrize("files", [Unwatched, Polled, Unreported])
def test_polling_finds_the_records_of_another_process(
    root: Path, pool: ThreadPoolExecutor, files: Callable[[], OsFiles]
) -> None:
    with open_store(root, clock=SystemClock(), files=files()) as store:
        consumer = store.consumer(["t"])
        for _ in range(3):
            consumer.poll()
        assert len(consumer._turns.awake) == PARTITIONS
        waiting = pool.submit(poll, consumer)
        with open_store(root) as other:
            append(other, "t", [b"v"], partition=4)
        assert values(waiting.result(PATIENCE_S)) == [(4, b"v")]


@pytest.mark.parametrize("files", [Polled, Unreported])
def test_polled_partitions_at_rest_are_read_only_after_a_change(
    root: Path, monkeypatch: pytest.MonkeyPatch, files: Callable[[], OsFiles]
) -> None:
    monkeypatch.setattr(polling, "GRANULARITY_S", 0.0)
    with open_store(root, clock=SystemClock(), files=files()) as store:
        consumer = resting(store)
        before = looks_of(store)
        for _ in range(100):
            assert consumer.poll() == []
        assert looks_of(store) == before

        for number in range(20):
            append(store, "t", [b"%d" % number], partition=number % 3)
            assert values(consumer.poll()) == [(number % 3, b"%d" % number)]


def test_unassigned_partitions_are_not_polled(root: Path) -> None:
    with open_store(root, clock=SystemClock(), files=Unreported()) as store:
        consumer = store.consumer()
        consumer.assign([("t", 0)])
        consumer.poll()
        assert consumer._turns.is_polled
        consumer.assign([])
        assert not consumer._turns.is_polled


def test_pauses_of_a_polling_consumer_grow_over_several_polls(root: Path) -> None:
    slept: list[float] = []
    with open_store(root, files=Unwatched()) as store:
        consumer = store.consumer(["t"])
        consumer._sleep = lambda seconds: bool(slept.append(seconds))  # type: ignore[method-assign]
        for _ in range(3):
            consumer.poll(timeout_ms=1000)
        assert slept == sorted(slept)
        append(store, "t", [b"v"])
        assert values(consumer.poll()) == [(0, b"v")]
        assert consumer._pause_s == MIN_PAUSE_S


def test_consumer_in_a_forked_child_polls(store: Store, root: Path) -> None:
    consumer = resting(store)
    watching = consumer._turns._watch
    assert isinstance(watching, watch.Inotify)
    watching.abandon()  # what a child does after the fork
    with open_store(root) as other:
        append(other, "t", [b"v"], partition=4)

    assert values(poll(consumer)) == [(4, b"v")]
    assert consumer.poll(timeout_ms=1) == []


# ---------------------------------------------------------------- ends


def test_close_in_another_thread_ends_a_poll_that_rests(store: Store) -> None:
    consumer = resting(store)
    ended: list[object] = []

    def wait() -> None:
        try:
            ended.append(poll(consumer))
        except LogClosed as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    consumer.close()
    thread.join(PATIENCE_S)
    assert len(ended) == 1


def test_closed_and_dropped_consumers_release_their_watches(store: Store) -> None:
    resting(store).close()
    before = open_file_count()
    for _ in range(3):
        resting(store).close()
        resting(store)
    assert open_file_count() == before
