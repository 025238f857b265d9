"""The space of deleted segments is free as soon as a reader has noticed: it keeps no file and no map of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

import seeklog
from log.workbench import offsets, wait_until
from seeklog import Consumer, LogReader, Store, TopicPartition
from seeklog.files import OsFiles
from store.workbench import append, open_store

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks for open files in /proc")

SETTINGS = {"segment_bytes": 1000, "index_interval_bytes": 0}
COUNT = 200
KEPT = 180
ZERO = TopicPartition("events", 0)


def deleted_files(path: Path, *, of: str = "self") -> list[str]:
    """Return the deleted files below a directory that a process has open or mapped."""
    held = []
    for number in os.listdir(f"/proc/{of}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own handle
            held.append(os.readlink(f"/proc/{of}/fd/{number}"))
    held += Path(f"/proc/{of}/maps").read_text().splitlines()
    return [line for line in held if str(path) in line and line.endswith("(deleted)")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with one partition of about 30 segments, with key indexes."""
    path = tmp_path / "store"
    with open_store(path, **SETTINGS) as store:
        store.create_topic("events", partitions=1)
        for number in range(COUNT):
            append(store, "events", [b"%010d" % number], key=b"%d" % number)
        store._table.flush(ZERO)
        assert not store.log(*ZERO).contains_key(b"nobody")  # builds the key indexes of the sealed segments
    return path


def delete(path: Path, *, before: int = KEPT) -> None:
    with open_store(path, **SETTINGS) as store, store.writer("events", 0) as log:
        assert log.delete_before(before) > 10


def read_all(log: LogReader) -> None:
    """Read everything, in the ways that open files, indexes and maps."""
    start = log.log_start_offset
    for offset in range(start, log.high_watermark):
        assert next(log.read(offset, max_records=1)).offset == offset
        assert log.latest_for_key(b"%d" % offset) is not None
    assert offsets(log.scan()) == list(range(start, COUNT))


def scan(store: Store, consumer: Consumer) -> None:
    assert len(list(store.log(*ZERO).scan())) == COUNT - KEPT


def poll(store: Store, consumer: Consumer) -> None:
    consumer.poll()


def look(store: Store, consumer: Consumer) -> None:
    assert store.log(*ZERO).log_start_offset == KEPT


@pytest.mark.id("deleted-files-released")
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("use", [scan, poll, look])
def test_reader_releases_deleted_segments_at_its_next_use(
    path: Path, use: Callable[[Store, Consumer], None], read_only: bool
) -> None:
    with (
        open_store(path, read_only=read_only, **SETTINGS) as store,
        store.consumer(["events"], auto_offset_reset="earliest") as consumer,
    ):
        while consumer.poll():
            pass
        read_all(store.log(*ZERO))
        delete(path)
        held = deleted_files(path)  # it cannot know yet
        assert {".log.deleted (deleted)", ".keyindex (deleted)"} <= {line[line.index(".") :] for line in held}

        use(store, consumer)
        assert deleted_files(path) == []


def test_lone_reader_releases_deleted_segments_at_its_next_scan(path: Path) -> None:
    with LogReader(path / "events-0") as log:
        read_all(log)
        delete(path)
        assert len(list(log.scan())) == COUNT - KEPT
        assert deleted_files(path) == []


def test_running_scan_reads_deleted_segments_to_its_end(path: Path) -> None:
    with open_store(path, **SETTINGS) as store:
        log = store.log(*ZERO)
        read_all(log)
        running = log.scan()
        seen = offsets(islice(running, 5))
        delete(path)
        assert log.log_start_offset == KEPT
        assert deleted_files(path)

        assert seen + offsets(running) == list(range(COUNT))
        assert deleted_files(path) == []


def test_abandoned_scan_keeps_no_deleted_segments(path: Path) -> None:
    with open_store(path, **SETTINGS) as store:
        log = store.log(*ZERO)
        read_all(log)
        running = log.scan()
        next(running)
        delete(path)
        assert log.log_start_offset == KEPT
        del running

        assert deleted_files(path) == []


def test_idle_reader_releases_deleted_segments(path: Path) -> None:
    """Nobody reads any more: the store's own thread looks every second."""
    with open_store(path, **SETTINGS) as store:
        read_all(store.log(*ZERO))
        delete(path)
        assert deleted_files(path)

        store._upkeep.refresh()
        assert deleted_files(path) == []


def test_thread_of_the_store_releases_deleted_segments(path: Path) -> None:
    with seeklog.open(path, read_only=True) as store:
        read_all(store.log(*ZERO))
        delete(path)
        wait_until(lambda: not deleted_files(path), "the release of deleted files")


def test_writer_releases_what_it_deletes(path: Path) -> None:
    with open_store(path, files=OsFiles(), **SETTINGS) as store:
        append(store, "events", [b"x"])
        log = store.log(*ZERO)
        for offset in range(COUNT):
            assert log.latest_for_key(b"%d" % offset) is not None
            assert next(log.read(offset, max_records=1)).offset == offset
        with store.writer(*ZERO) as writer:
            assert writer.delete_before(KEPT) > 10
        assert deleted_files(path) == []


def test_reader_releases_segments_that_compaction_replaced(tmp_path: Path) -> None:
    settings = {**SETTINGS, "cleanup_policy": "compact"}
    with open_store(tmp_path, **settings) as writer, open_store(tmp_path, **settings) as reader:
        writer.create_topic("events", partitions=1)
        for number in range(COUNT):
            append(writer, "events", [b"%010d" % number], key=b"%d" % (number % 3))
        reading = reader.log(*ZERO)
        assert len(list(reading.scan())) == COUNT
        assert reading.latest_for_key(b"0") is not None
        with writer.writer(*ZERO) as log:
            assert log.compact().removed_records
        assert len(list(reading.scan())) < COUNT
        assert deleted_files(tmp_path) == []


_READER = """
import sys
import seeklog
from seeklog import LogConfig

with seeklog.open(sys.argv[1], read_only=True, background=False) as store:
    with store.consumer(["events"], auto_offset_reset="earliest") as consumer:
        while consumer.poll():
            pass
        log = store.log("events", 0)
        for offset in range(log.log_start_offset, log.high_watermark):
            assert log.latest_for_key(b"%d" % offset) is not None
        print("read", flush=True)
        sys.stdin.readline()
        consumer.poll()
        print("polled", flush=True)
        sys.stdin.readline()
"""


def test_reader_in_another_process_releases_deleted_segments_when_it_polls(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "read\n"
        delete(path)
        assert deleted_files(path, of=str(child.pid))
        print(file=child.stdin, flush=True)
        assert child.stdout.readline() == "polled\n"
        assert deleted_files(path, of=str(child.pid)) == []
        child.stdin.close()
    assert child.returncode == 0
