"""Logs and stores on real file systems that are too small or that become read-only."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from typing import TYPE_CHECKING, Any

from crash.recorder import read_everything
from faults.children import kill_config, value_at
from seeklog import Log, LogReader, Store, names
from seeklog.errors import DiskFull, LogFailed, SeeklogError
from seeklog.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from seeklog import Producer

ROUNDS = 5
PATIENCE = 100  # times that a disk which has room again is asked for it
ROOM_BYTES = 16_384  # enough for a record, a new segment, and its side files
FILES_PER_SEGMENT = 4
FILES_PER_LOG = 6  # and no more of them


def fill_and_free(disk: Path, *, flush: str, filler_bytes: int) -> Iterator[str]:
    """Fill a disk with a log, make room, fill it again; yield what is wrong."""
    for number in itertools.count():
        with contextlib.suppress(OSError):
            (disk / f"filler-{number}").write_bytes(bytes(filler_bytes))
            continue
        break
    free(disk / f"filler-{number}")
    free(disk / "filler-0")  # room to start
    rooms = iter([disk / f"filler-{each}" for each in range(1, number)])
    config = kill_config(flush)
    with Log(disk / "log", config=config) as log:
        for _ in range(ROUNDS):
            end = _append_until_full(log)
            if log.log_end_offset != end:
                yield f"refused at {end}, but the log ends at {log.log_end_offset}"
            free(next(rooms))
            # Without a reopen: there is room for a few records now.
            for offset in range(end, end + 5):
                if _when_there_is_room(log.append, value_at(offset), disk, rooms) != offset:
                    yield f"appended elsewhere than at {offset}"
        end = log.log_end_offset
        yield from _differences(log, end)
    yield from _waste(disk / "log")
    free(next(rooms))  # an open writes side files
    with Log(disk / "log", config=config) as log:
        yield from _differences(log, end)


def free(path: Path) -> None:
    """Remove a file durably, because a journal frees its blocks only when the removal is on disk."""
    path.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def _when_there_is_room(append: Callable[[bytes], int], value: bytes, disk: Path, rooms: Iterator[Path]) -> int:
    """Append, waiting for freed room, which a busy journal may withhold for a while.

    Side files of waiting segments may use the room at once; then free more.
    """
    for _ in range(PATIENCE):
        with contextlib.suppress(DiskFull):
            return append(value)
        state = os.statvfs(disk)
        if state.f_bavail * state.f_frsize < ROOM_BYTES:
            free(next(rooms))
        time.sleep(0.05)
    return append(value)


def _waste(directory: Path) -> Iterator[str]:
    """Return files that take more room than they need, or that are not needed."""
    files = list(directory.iterdir())
    segments = sum(path.suffix == names.LOG for path in files)
    if len(files) > segments * FILES_PER_SEGMENT + FILES_PER_LOG:
        yield f"{segments} segments have {len(files)} files: {', '.join(sorted(path.name for path in files))}"
    for path in files:
        state = path.stat()
        if state.st_blocks * 512 > state.st_size + 4096:
            yield f"{path.name} takes {state.st_blocks * 512} bytes of the disk for {state.st_size}"


def _append_until_full(log: Log) -> int:
    end = log.log_end_offset
    with contextlib.suppress(DiskFull):
        while True:
            end = log.append(value_at(log.log_end_offset)) + 1
    # It stays full on every retry.
    for _ in range(3):
        with contextlib.suppress(DiskFull):
            end = log.append(value_at(end)) + 1
    return end


def _differences(log: Log, end: int) -> Iterator[str]:
    values = [record.value for record in read_everything(log)]
    if values != [value_at(offset) for offset in range(end)]:
        yield f"{end} records were acknowledged, {len(values)} are there, or others than those"


def fill_with_store(disk: Path, *, flush: str, filler_bytes: int) -> Iterator[str]:
    """Send to a store until its disk is full, free room, then send and commit again without a reopen."""
    settings: dict[str, Any] = {"flush": flush, "segment.bytes": 20_000}
    with open_store(disk / "store") as store:
        store.create_topic("orders", partitions=2, config=settings)
        fillers = [disk / f"filler-{number}" for number in range(4)]
        for filler in fillers:
            filler.write_bytes(bytes(filler_bytes))
        rooms = iter(fillers)
        acknowledged = _send_until_full(store, [0, 0])
        for number in (0, 1):
            if store.log("orders", number).log_end_offset < acknowledged[number]:
                yield f"orders-{number} ends before {acknowledged[number]}"
        free(next(rooms))
        with store.producer() as producer:
            for number in (0, 1):
                send = _sending(producer, number)
                acknowledged[number] = _when_there_is_room(send, b"there is room", disk, rooms) + 1
        consumer = store.consumer(group="fraud", enable_auto_commit=False)
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 1})  # type: ignore[dict-item]
        consumer.close()
    with open_store(disk / "store") as store:
        for number in (0, 1):
            values = [record.value for record in store.log("orders", number).scan()]
            if len(values) != acknowledged[number] or values[-1] != b"there is room":
                yield f"orders-{number}: {acknowledged[number]} records were acknowledged, {len(values)} are there"
        if not store.describe_group("fraud").offsets:
            yield "the commit is lost"


def _send_until_full(store: Store, acknowledged: list[int]) -> list[int]:
    """Send until a record is refused; return the number of acknowledged records of each partition."""
    with contextlib.suppress(DiskFull), store.producer() as producer:
        for number in itertools.count():
            acknowledged[number % 2] = _sending(producer, number % 2)(value_at(number)) + 1
    return acknowledged


def _sending(producer: Producer, partition: int) -> Callable[[bytes], int]:
    """Return a function that sends one record and waits for its offset."""

    def send(value: bytes) -> int:
        sent = producer.send("orders", value, partition=partition)
        producer.flush()
        return sent.result(timeout=30).offset

    return send


def become_read_only(disk: Path, *, flush: str, make_read_only: Callable[[], None]) -> tuple[list[str], int]:
    """Make a disk read-only under a log; return what is wrong, and the number of records that must exist later."""
    violations: list[str] = []
    log = Log(disk / "log", config=kill_config(flush))
    for offset in range(100):
        log.append(value_at(offset))
    log.flush()
    with LogReader(disk / "log", config=kill_config(flush)) as reader:
        make_read_only()
        for _ in range(3):
            try:
                log.append(value_at(100))
                violations.append("an append was acknowledged on a disk that is read-only")
            except LogFailed:
                pass
            except SeeklogError as error:
                violations.append(f"{type(error).__name__}: {error}")
        for who, opened in (("a reader that was there", reader), ("the writer", log)):
            if [record.value for record in opened.scan()] != [value_at(offset) for offset in range(100)]:
                violations.append(f"{who} does not see the records any more")
        with LogReader(disk / "log", config=kill_config(flush)) as late:
            if [record.value for record in late.scan()] != [value_at(offset) for offset in range(100)]:
                violations.append("a new reader does not see the records")
        try:
            Log(disk / "log", config=kill_config(flush)).close()
            violations.append("a second writer was let in")
        except SeeklogError:
            pass
    with contextlib.suppress(SeeklogError):
        log.close()
    return violations, 100


def survives(disk: Path, *, flush: str, count: int) -> list[str]:
    """Open the log on a disk that works again, and continue it."""
    with Log(disk / "log", config=kill_config(flush)) as log:
        values = [record.value for record in read_everything(log)]
        if values[:count] != [value_at(offset) for offset in range(count)]:
            return [f"{count} records were acknowledged, {len(values)} are there, or others than those"]
        log.append(value_at(log.log_end_offset))
    return []
