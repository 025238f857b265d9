"""Maintenance: the background thread's schedule, `maintain` on request, and the end of the thread."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from log.workbench import CountingFiles, FailingFiles, TickingClock, segment_bases, value_of, wait_until
from seeklog import Store, TopicPartition, names
from seeklog.clock import SystemClock
from seeklog.config import LogConfig
from seeklog.errors import LogClosed, NotAccessible, SeeklogError, UsageError
from seeklog.log.background import Maintenance
from seeklog.store import upkeep
from store.workbench import Holder, append, open_store, read

HOUR_MS = 3600 * 1000


def open_lively(root: Path, **words: Any) -> Store:
    """Open a store with its thread and the real clock."""
    return open_store(root, background=True, clock=SystemClock(), **words)


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "seeklog-maintenance"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the jobs of a store all the time."""
    for name in ("REFRESH_S", "RETENTION_CHECK_S", "CHECKPOINT_S"):
        monkeypatch.setattr(upkeep, name, 0.002)


@pytest.fixture
def curious(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a store check all the time for changes to the topics."""
    monkeypatch.setattr(upkeep, "REFRESH_S", 0.002)


# ---------------------------------------------------------------- on request


def test_maintain_syncs_all_logs(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=2)
        for partition in range(2):
            append(store, "t", [b"x"] * 3, partition=partition)
        assert [store.log("t", each).recovery_point for each in range(2)] == [0, 0]

        assert store.maintain() == 0

        assert [store.log("t", each).recovery_point for each in range(2)] == [3, 3]


def test_maintain_seals_rolled_segments(root: Path) -> None:
    with open_store(root, segment_bytes=200) as store:
        store.create_topic("t", partitions=1)
        for number in range(6):
            append(store, "t", [value_of(number)])
        assert not list((root / "t-0").glob("*.seal"))

        store.maintain()

        rolled = segment_bases(root / "t-0")[:-1]
        assert len(rolled) > 1
        assert sorted(int(path.stem) for path in (root / "t-0").glob("*.seal")) == rolled


def test_segment_older_than_segment_ms_is_rolled_without_appends(root: Path) -> None:
    clock = TickingClock()
    with open_store(root, clock=clock, segment_ms=HOUR_MS) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"])
        clock.advance(HOUR_MS)
        store.maintain()
        assert segment_bases(root / "t-0") == [0]

        clock.advance(1)
        store.maintain()
        assert segment_bases(root / "t-0") == [0, 1]
        store.maintain()
        assert segment_bases(root / "t-0") == [0, 1]
        assert read(store, "t") == [b"x"]


def test_expired_segments_are_deleted_without_appends(root: Path) -> None:
    clock = TickingClock()
    with open_store(root, clock=clock, retention_ms=HOUR_MS) as store:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"x"] * 3)
        clock.advance(HOUR_MS)
        assert store.maintain() == 0
        assert len(read(store, "t")) == 3

        clock.advance(1)
        assert store.maintain() == 1
        assert read(store, "t") == []
        assert store.log("t", 0).log_start_offset == 3
        append(store, "t", [b"y"])
        assert store.log("t", 0).last().offset == 3


def test_each_topic_has_its_own_retention(root: Path) -> None:
    clock = TickingClock()
    with open_store(root, clock=clock, retention_ms=HOUR_MS) as store:
        store.create_topic("short", partitions=1, config={"retention.ms": 1000})
        store.create_topic("long", partitions=1, config={"retention.ms": -1})
        store.create_topic("latest", partitions=1, config={"retention.ms": 1000, "cleanup.policy": "compact"})
        store.create_topic("usual", partitions=1)
        for name in store.topics():
            append(store, name, [b"x"], key=b"k")
        clock.advance(1001)
        assert store.maintain() == 1
        assert {name for name in store.topics() if not read(store, name)} == {"short"}
        clock.advance(HOUR_MS)
        assert store.maintain() == 1
        assert {name for name in store.topics() if not read(store, name)} == {"short", "usual"}


def test_retention_by_size_deletes_oldest_segments(root: Path) -> None:
    with open_store(root, segment_bytes=200, retention_bytes=300) as store:
        store.create_topic("t", partitions=1)
        for number in range(20):
            append(store, "t", [value_of(number)])

        assert store.maintain() > 0
        assert 300 <= store.describe_topic("t").size_bytes <= 500
        assert read(store, "t")[-1] == value_of(19)


def test_partitions_never_opened_here_are_retained_too(root: Path) -> None:
    clock = TickingClock()
    with open_store(root) as store:
        store.create_topic("t", partitions=3)
        for partition in range(3):
            append(store, "t", [b"x"], partition=partition)
    clock.advance(HOUR_MS + 1)
    with open_store(root, clock=clock, retention_ms=HOUR_MS) as store:
        assert store.maintain() == 3


def test_maintenance_skips_partition_of_another_process(root: Path) -> None:
    clock = TickingClock()
    with open_store(root) as store:
        store.create_topic("t", partitions=2)
        for partition in range(2):
            append(store, "t", [b"x"], partition=partition)
    clock.advance(HOUR_MS + 1)
    with open_store(root, clock=clock, retention_ms=HOUR_MS) as store:
        with Holder(root / "t-0" / names.LOCK):
            assert store.maintain() == 1
            assert (read(store, "t", 0), read(store, "t", 1)) == ([b"x"], [])
        assert store.maintain() == 1


def damage(root: Path, partition: str) -> None:
    path = root / partition / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-3])


def test_damaged_partition_does_not_stop_maintenance_of_others(root: Path) -> None:
    clock = TickingClock()
    with open_store(root) as store:
        store.create_topic("t", partitions=3)
        for partition in range(3):
            append(store, "t", [b"x"], partition=partition)
    damage(root, "t-0")
    clock.advance(HOUR_MS + 1)
    with open_store(root, clock=clock, retention_ms=HOUR_MS) as store:
        with contextlib.suppress(SeeklogError):
            store.maintain()
        assert (read(store, "t", 1), read(store, "t", 2)) == ([], [])


def test_read_only_store_cannot_be_maintained(root: Path) -> None:
    open_store(root).close()
    with open_store(root, read_only=True) as store, pytest.raises(UsageError):
        store.maintain()


def test_second_round_of_maintenance_writes_nothing(root: Path) -> None:
    files = CountingFiles()
    with open_store(root, files=files) as store:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"x"])
        store.maintain()
        files.diary.clear()
        store.maintain()

        assert [entry for entry in files.diary if entry[0] in ("rename", "remove") or entry[1].endswith(".log")] == []


def test_without_background_no_thread_runs_and_no_log_is_synced(root: Path) -> None:
    before = threads()
    files = CountingFiles()
    with open_store(root, files=files, flush="interval", flush_interval_ms=1, segment_bytes=200) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"the first writer syncs what it creates"])
        files.diary.clear()
        for number in range(6):
            append(store, "t", [value_of(number)])

        assert threads() == before
        assert files.count("sync") == 0


# ---------------------------------------------------------------- the thread


def test_background_thread_syncs_on_interval(root: Path) -> None:
    with open_lively(root, flush="interval", flush_interval_ms=1) as store:
        store.create_topic("t", partitions=2)
        for end in range(1, 4):
            for partition in range(2):
                append(store, "t", [b"x"], partition=partition)
            logs = [store.log("t", partition) for partition in range(2)]
            wait_until(lambda: [log.recovery_point for log in logs] == [end, end], "a sync")  # noqa: B023


def test_each_topic_is_synced_on_its_own_interval(root: Path) -> None:
    with open_lively(root, flush="interval", flush_interval_ms=3_600_000) as store:
        store.create_topic("slow", partitions=1)
        store.create_topic("quick", partitions=1, config={"flush.interval.ms": 1})
        store.create_topic("never", partitions=1, config={"flush": "os"})
        for name in ("slow", "quick", "never"):
            append(store, name, [b"x"])
        wait_until(lambda: store.log("quick", 0).recovery_point == 1, "a sync")

        assert (store.log("slow", 0).recovery_point, store.log("never", 0).recovery_point) == (0, 0)


@pytest.mark.parametrize("flush", ["os", "interval"])
def test_background_thread_seals_rolled_segments(root: Path, flush: str) -> None:
    with open_lively(root, flush=flush, flush_interval_ms=3_600_000, segment_bytes=200) as store:
        store.create_topic("t", partitions=1)
        for number in range(6):
            append(store, "t", [value_of(number)])
        rolled = len(segment_bases(root / "t-0")) - 1

        wait_until(lambda: len(list((root / "t-0").glob("*.seal"))) == rolled, "seals")
        assert read(store, "t") == list(map(value_of, range(6)))


@pytest.mark.usefixtures("quick")
def test_background_thread_rolls_retains_and_writes_checkpoints(root: Path) -> None:
    with open_lively(root, retention_ms=HOUR_MS) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"], timestamp_ms=1000)

        wait_until(lambda: store.log("t", 0).log_start_offset == 1, "retention")
        wait_until(lambda: (root / names.LOG_START_OFFSETS).exists(), "the checkpoints")
        wait_until(lambda: (root / names.LOG_START_OFFSETS).read_text() == "0\n1\nt 0 1\n", "the start offset")


@pytest.mark.usefixtures("curious")
@pytest.mark.parametrize("read_only", [False, True])
def test_background_thread_sees_topic_changes_of_another_store(root: Path, read_only: bool) -> None:
    with open_store(root, clock=SystemClock()) as other:
        other.create_topic("t", partitions=1)
        with open_lively(root, read_only=read_only) as store:
            read(store, "t")
            version = store._topics.version
            other.create_topic("u", partitions=1)
            wait_until(lambda: store._topics.version > version, "the new topic")
            other.delete_topic("t")
            wait_until(lambda: not store._table._entries[TopicPartition("t", 0)].open_log(), "the log to be closed")
            assert store.topics() == ["u"]


@pytest.mark.usefixtures("curious")
def test_background_thread_sees_new_configuration_of_written_topic(root: Path) -> None:
    with open_lively(root) as store, open_store(root, clock=SystemClock()) as other:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"])
        other.alter_topic("t", {"segment.bytes": 500})

        def is_learnt() -> bool:
            append(store, "t", [b"x"])
            writer = store._table._entries[TopicPartition("t", 0)].writer
            return writer is not None and writer.config == store.describe_topic("t").config

        # Not by `describe_topic`, which would refresh the topics before the thread does.
        wait_until(lambda: store._topics._catalog["t"].config == {"segment.bytes": 500}, "the news")
        wait_until(is_learnt, "the writer to be reopened")
        assert store.log("t", 0).config.segment_bytes == 500


@pytest.mark.usefixtures("quick")
def test_background_thread_survives_errors_and_logs_them(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "seeklog")
    with open_lively(root) as store:
        store.create_topic("t", partitions=1)
        whole = (root / names.TOPICS).read_bytes()
        (root / names.TOPICS).write_bytes(whole[:-1])
        wait_until(lambda: "maintenance failed" in caplog.text, "the complaint")
        (root / names.TOPICS).write_bytes(whole)
        append(store, "t", [b"x"])
        wait_until(lambda: (root / names.RECOVERY_POINTS).exists(), "the checkpoints after that")


def test_failed_background_sync_is_logged_and_log_recovers_with_disk(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FailingFiles("sync")
    caplog.set_level(logging.ERROR, "seeklog")
    store = open_lively(root, files=files, flush="interval", flush_interval_ms=1)
    store.create_topic("t", partitions=1)
    append(store, "t", [b"w"])
    files.fails = True
    append(store, "t", [b"x"])
    wait_until(lambda: "t-0: the background sync failed" in caplog.text, "the complaint")
    with pytest.raises(NotAccessible):
        append(store, "t", [b"lost"])
    files.fails = False
    append(store, "t", [b"y"])
    assert read(store, "t") == [b"w", b"x", b"y"]
    store.close()


# ---------------------------------------------------------------- the end


def test_close_ends_background_thread(root: Path) -> None:
    before = threads()
    store = open_lively(root)
    (mine,) = threads() - before
    store.close()

    assert not mine.is_alive()


@pytest.mark.parametrize("uses", [False, True])
def test_dropped_store_ends_its_thread(root: Path, uses: bool) -> None:
    before = threads()
    store = open_lively(root, flush="interval", flush_interval_ms=1)
    (mine,) = threads() - before
    if uses:
        store.create_topic("t", partitions=2)
        append(store, "t", [b"x"])
        read(store, "t", 1)
    seen = weakref.ref(store)
    del store

    gc.collect()
    wait_until(lambda: gc.collect() is not None and seen() is None, "the store to go")
    wait_until(lambda: not mine.is_alive(), "the thread to end")


def test_dropped_store_releases_its_locks(root: Path) -> None:
    """The cell of a notebook runs again: the old store must not hold the partitions of the new one."""
    store = open_store(root)
    store.create_topic("t", partitions=1)
    append(store, "t", [b"x"])
    del store
    gc.collect()

    with open_store(root) as again:
        append(again, "t", [b"y"])
        assert read(again, "t") == [b"x", b"y"]


class Ticks:
    """Counts its calls, and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self.error = error

    def tick(self) -> None:
        self.count += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def maintenance() -> Iterator[Maintenance]:
    maintenance = Maintenance(SystemClock())
    yield maintenance
    maintenance.stop()


@pytest.mark.parametrize("error", [None, LogClosed("x"), UsageError("x"), OSError(5, "x")], ids=repr)
def test_job_repeats_whatever_it_raises(maintenance: Maintenance, error: Exception | None) -> None:
    ticks, others = Ticks(error), Ticks()
    maintenance.every(0.001, ticks.tick)
    maintenance.every(0.001, others.tick)

    wait_until(lambda: ticks.count > 3 and others.count > 3, "some rounds")


def test_job_of_collected_object_is_dropped(maintenance: Maintenance) -> None:
    ticks = Ticks()
    maintenance.every(0.001, ticks.tick)
    gone = weakref.ref(ticks)
    del ticks
    others = Ticks()
    maintenance.every(0.001, others.tick)

    wait_until(lambda: others.count > 3, "some rounds")
    assert gone() is None


def test_earlier_task_overtakes_later_one(maintenance: Maintenance) -> None:
    late, soon = Ticks(), Ticks()
    maintenance.every(3600, late.tick)
    maintenance.every(0.001, soon.tick)

    wait_until(lambda: soon.count > 0, "the one that is due")
    assert late.count == 0


def test_stopped_maintenance_takes_no_tasks_and_stops_again(maintenance: Maintenance) -> None:
    maintenance.every(3600, Ticks().tick)
    thread = maintenance._thread
    assert thread is not None
    maintenance.stop()
    assert not thread.is_alive()
    maintenance.stop()
    ticks = Ticks()
    maintenance.every(0, ticks.tick)
    assert ticks.count == 0


def test_job_may_stop_its_own_thread(maintenance: Maintenance) -> None:
    class Stopper:
        def stop(self) -> None:
            maintenance.stop()

    stopper = Stopper()
    maintenance.every(0.001, stopper.stop)

    wait_until(lambda: maintenance._thread is None or not maintenance._thread.is_alive(), "the thread to end")


class FakeLog:
    directory = "d"

    def __init__(self) -> None:
        self.syncs = 0
        self.is_held = threading.Event()
        self.is_held.set()

    def do_background_work(self) -> None:
        self.is_held.wait()
        self.syncs += 1


@pytest.mark.parametrize(
    "tell", [lambda watch: watch.appended(), lambda watch: watch.rolled()], ids=["appended", "rolled"]
)
def test_stopped_log_is_no_longer_synced(maintenance: Maintenance, tell: Callable[[Any], None]) -> None:
    log, other = FakeLog(), FakeLog()
    config = LogConfig(flush="interval", flush_interval_ms=1)
    watch = maintenance.watch(log, config)
    tell(watch)
    wait_until(lambda: log.syncs == 1, "a sync")
    tell(watch)
    wait_until(lambda: log.syncs == 2, "another one")
    watch.stop()
    tell(watch)
    maintenance.watch(other, config).appended()
    wait_until(lambda: other.syncs == 1, "a sync of the other")
    assert log.syncs == 2


def test_many_appends_share_one_sync(maintenance: Maintenance) -> None:
    log = FakeLog()
    watch = maintenance.watch(log, LogConfig(flush="interval", flush_interval_ms=1))
    log.is_held.clear()
    watch.appended()
    wait_until(lambda: not watch._is_waiting, "the first sync to begin")
    for _ in range(1000):
        watch.appended()
    log.is_held.set()

    wait_until(lambda: log.syncs == 2, "one sync for what came meanwhile")
    assert len(maintenance._due) == 0


def test_fork_does_not_affect_thread_of_parent(root: Path) -> None:
    with open_lively(root, flush="interval", flush_interval_ms=1) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"])
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        append(store, "t", [b"x"])
        wait_until(lambda: store.log("t", 0).recovery_point == 2, "a sync after the fork")


def test_stale_configuration_deletes_no_records_of_log_in_use(
    tmp_path: Path,
) -> None:
    """Goal: records that a stale configuration would delete are left to the next pass, which has the new one."""
    place = TopicPartition("t", 0)
    with open_store(tmp_path) as other, open_store(tmp_path) as store:
        other.create_topic("t", partitions=1, config={"retention.ms": 1000, "segment.bytes": 1 << 14})
        with store._table.writing(place) as log:
            for _ in range(400):
                log.append(bytes(100), timestamp_ms=1)
        other.alter_topic("t", {"retention.ms": -1})
        with store._table.writing(place), ThreadPoolExecutor(1) as another_thread:
            assert another_thread.submit(store.maintain).result() == 0
        assert store.maintain() == 0
        assert len(read(store, "t")) == 400
