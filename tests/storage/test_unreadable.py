"""A disk that does not answer, files that vanish, and bytes that were read while a writer changed them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seeklog import Log
from seeklog.errors import CorruptionError, LostRecords, NotAccessible, OffsetOutOfRange
from storage.workbench import BATCH_BYTES, START_MS, QuickFiles, fill, open_log, value_of, values

RECORDS = 10
WORDS = {"segment_bytes": 3 * BATCH_BYTES, "index_interval_bytes": 0, "max_open_segments": 2}


class TrapFiles(QuickFiles):
    """A disk whose reads of logs do something else while `trap` is set."""

    trap: Callable[[bytes], bytes] | None = None

    def __init__(self) -> None:
        self._logs: set[int] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        handle = super().open(path, write=write, create=create)
        (self._logs.add if path.endswith(".log") else self._logs.discard)(handle)
        return handle

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        return data if self.trap is None or handle not in self._logs else self.trap(data)


def no_answer(_: bytes) -> bytes:
    raise OSError(errno.EIO, "on purpose")


@pytest.fixture
def files() -> TrapFiles:
    return TrapFiles()


@pytest.fixture(params=["writer", "reader"])
def log(request: pytest.FixtureRequest, tmp_path: Path, files: TrapFiles) -> Iterator[Log]:
    """A log of ten records in segments of three, open in one way or the other."""
    with open_log(tmp_path, **WORDS) as log:
        fill(log, RECORDS)
    with open_log(tmp_path, files=files, read_only=request.param == "reader", **WORDS) as log:
        yield log


WAYS: dict[str, Callable[[Log], object]] = {
    "read": lambda log: list(log.read(1)),
    "read of one": lambda log: list(log.read(1, max_records=1)),
    "read of the uncommitted": lambda log: list(log.read_uncommitted(1)),
    "scan": lambda log: list(log.scan(1)),
    "scan backwards": lambda log: list(log.scan_reverse()),
    "search by time": lambda log: log.offset_at_time(START_MS + 1000),
    "search by key": lambda log: log.latest_for_key(b"key"),
    "seek": lambda log: log.seek(1),
    "batches": lambda log: list(log.read_batches(1)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_disk_that_does_not_answer_is_told_in_our_words(log: Log, files: TrapFiles, way: str) -> None:
    files.trap = no_answer
    with pytest.raises(NotAccessible, match="on purpose"):
        WAYS[way](log)
    files.trap = None
    WAYS[way](log)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "search by key"])
def test_a_file_that_vanished_is_told_as_lost(log: Log, tmp_path: Path, way: str) -> None:
    log.seek(RECORDS - 1)  # so that the first file is not among those that are held open
    log.seek(4)
    (tmp_path / f"{0:020d}.log").unlink()
    with pytest.raises((LostRecords, OffsetOutOfRange)):
        WAYS[way](log)


def test_bytes_that_change_while_they_are_read_are_read_again(tmp_path: Path, files: TrapFiles) -> None:
    """Goal: a reader cannot lock out a writer that cuts the log and writes it on; damage that stays is told."""
    with open_log(tmp_path, **WORDS) as log:
        fill(log, RECORDS)
    with open_log(tmp_path, files=files, read_only=True, **WORDS) as log:

        def once(data: bytes) -> bytes:
            files.trap = None
            return data[:70] + b"\xff" + data[71:]

        for way in (log.read, log.read_uncommitted):
            files.trap = once
            assert next(way(1)).value == value_of(1)
        files.trap = lambda data: data[:70] + b"\xff" + data[71:]
        for way in (log.read, log.read_uncommitted):
            with pytest.raises(CorruptionError, match="CRC"):
                way(1)


def test_a_reader_gets_what_was_appended_since_it_last_looked(tmp_path: Path) -> None:
    with open_log(tmp_path, **WORDS) as log, open_log(tmp_path, read_only=True, **WORDS) as reader:
        for number in range(RECORDS):
            assert list(reader.read(number)) == []
            fill(log, 1)
            assert values(reader.read(number)) == [value_of(number)]
