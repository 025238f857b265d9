"""The `Log` object: its path, read-only and writing modes, a second writer, and a closed log."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    BATCH_BYTES,
    FIRST_LOG,
    PATIENCE_S,
    QuickFiles,
    config_of,
    contents,
    fill,
    make_log,
    offsets,
    open_log,
    open_reader,
    segment_bases,
    values,
)
from seeklog import Log, LogReader, Record
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import LogClosed, LogLocked, NotAccessible, NotALog, SeeklogError
from seeklog.record.batch import encode_batch

# ---------------------------------------------------------------- the object


def test_repr_of_log_and_reader_contains_path(log: Log) -> None:
    with open_reader(log.path) as reader:
        assert reader.path == log.reader.path == log.path
        assert repr(reader) == f"<LogReader {log.path}>"
    assert repr(log) == f"<Log {log.path}>"


def test_path_may_be_text_or_path_object(tmp_path: Path) -> None:
    with Log(str(tmp_path / "log"), config=config_of()) as log:
        log.append(b"v")
    with LogReader(tmp_path / "log") as log:
        assert values(log.scan()) == [b"v"]


def test_relative_path_is_resolved_when_log_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_log(Path("log"), segment_bytes=BATCH_BYTES) as log:
        monkeypatch.chdir("/")
        fill(log, 3)

    assert segment_bases(tmp_path / "log") == [0, 1, 2]


def test_files_are_readable_only_by_owner_and_group(log: Log) -> None:
    fill(log, 1)

    assert log.path.stat().st_mode & 0o777 & ~0o750 == 0
    assert all(path.stat().st_mode & 0o777 & ~0o640 == 0 for path in log.path.iterdir())


# ---------------------------------------------------------------- bad paths


@pytest.mark.parametrize("read_only", [False, True])
def test_path_of_file_is_not_log(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")

    with pytest.raises(NotALog, match="is a file"):
        (LogReader if read_only else Log)(path)

    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("read_only", [False, True])
def test_path_below_file_is_not_log(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "file").write_bytes(b"content")

    with pytest.raises(NotALog):
        (LogReader if read_only else Log)(tmp_path / "file" / "log")


@pytest.mark.parametrize("read_only", [False, True])
def test_directory_with_other_files_is_left_alone(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "notes.txt").write_bytes(b"mine")

    with pytest.raises(NotALog, match=r"notes\.txt"):
        (LogReader if read_only else Log)(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


def test_reader_does_not_create_log(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(NotALog, match="there is no log"):
            LogReader(path)

    assert list(tmp_path.iterdir()) == []


def test_path_with_nul_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeeklogError):
        Log(f"{tmp_path}/a\0b")


class ForbiddenFiles(QuickFiles):
    """A disk that forbids one operation."""

    def __init__(self, verb: str) -> None:
        self.verb = verb

    def __getattribute__(self, name: str) -> Any:
        if name == super().__getattribute__("verb"):
            return self._refuse
        return super().__getattribute__(name)

    def _refuse(self, *arguments: object, **settings: object) -> object:
        raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("verb", ["make_directory", "list", "lock", "open", "read_file"])
def test_directory_without_permission_raises_not_accessible(tmp_path: Path, verb: str) -> None:
    make_log(tmp_path, 3)
    before = contents(tmp_path)

    with pytest.raises(NotAccessible, match="Permission denied") as caught:
        open_log(tmp_path, files=ForbiddenFiles(verb))

    assert isinstance(caught.value.__cause__, PermissionError)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("verb", ["list", "open", "read_file"])
def test_reader_without_permission_raises_not_accessible(tmp_path: Path, verb: str) -> None:
    make_log(tmp_path, 3)

    with pytest.raises(NotAccessible, match="Permission denied"):
        open_reader(tmp_path, files=ForbiddenFiles(verb))


def test_symbolic_link_instead_of_segment_is_not_followed(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 3)
    secret = tmp_path / "secret"
    secret.write_bytes((tmp_path / "log" / FIRST_LOG).read_bytes())
    (tmp_path / "log" / FIRST_LOG).unlink()
    (tmp_path / "log" / FIRST_LOG).symlink_to(secret)

    with pytest.raises(SeeklogError):
        open_log(tmp_path / "log")

    assert secret.read_bytes()


@pytest.mark.id("side-file-is-a-link")
@pytest.mark.parametrize("name", [".lock", "seeklog-checkpoint", "seeklog-watermark", "leader-epoch-checkpoint"])
def test_symbolic_link_instead_of_side_file_is_not_followed(tmp_path: Path, name: str) -> None:
    """Goal: a link that someone creates in the directory cannot make a writer read or write a file elsewhere."""
    make_log(tmp_path / "log", 3)
    outside = tmp_path / "outside"
    (tmp_path / "log" / name).rename(outside)
    (tmp_path / "log" / name).symlink_to(outside)
    before = outside.read_bytes()

    with pytest.raises(NotAccessible, match=name):
        open_log(tmp_path / "log")

    assert outside.read_bytes() == before


# ---------------------------------------------------------------- a second writer, a closed log, a reader


def test_second_writer_is_refused_with_pid_of_first(log: Log) -> None:
    fill(log, 3)
    before = contents(log.path)

    with pytest.raises(LogLocked, match=str(os.getpid())) as caught:
        open_log(log.path)

    assert (caught.value.path, caught.value.owner_pid) == (str(log.path), os.getpid())
    assert contents(log.path) == before
    assert log.append(b"still works") == 3


WRITES: dict[str, Callable[[Log], Any]] = {
    "append": lambda log: log.append(b"v"),
    "append_many": lambda log: log.append_many([Record(b"v")]),
    "append_batches": lambda log: log.append_batches(encode_batch([Record(b"v")])),
    "flush": lambda log: log.flush(),
    "truncate_to": lambda log: log.truncate_to(0),
    "delete_before": lambda log: log.delete_before(1),
    "retain": lambda log: log.retain(),
    "begin_epoch": lambda log: log.begin_epoch(5),
    "advance_high_watermark": lambda log: log.advance_high_watermark(1),
    "writer": lambda log: LogWriter(log, linger_ms=0).append(b"v").result(PATIENCE_S),
}
READS: dict[str, Callable[[Log], Any]] = {
    "read": lambda log: log.read(0),
    "read_uncommitted": lambda log: log.read_uncommitted(0),
    "scan": lambda log: list(log.scan()),
    "scan_reverse": lambda log: list(log.scan_reverse()),
    "scan_arrow": lambda log: log.scan_arrow().read_all(),
    "read_batches": lambda log: list(log.read_batches(0)),
    "read_ranges": lambda log: log.read_ranges(0),
    "follow": lambda log: list(log.follow(0, timeout_ms=1)),
    "seek": lambda log: log.seek(0),
    "offset_at_time": lambda log: log.offset_at_time(0),
    "last": lambda log: log.last(),
}


@pytest.mark.parametrize("operation", [*WRITES, *READS])
def test_closed_log_refuses_every_operation(tmp_path: Path, operation: str) -> None:
    log = open_log(tmp_path, high_watermark="manual")
    fill(log, 3)
    log.advance_high_watermark(2)
    log.close()
    before = contents(tmp_path)

    with pytest.raises(LogClosed, match="is closed"):
        {**WRITES, **READS}[operation](log)

    assert contents(tmp_path) == before


@pytest.mark.parametrize("operation", READS)
def test_closed_reader_refuses_every_operation(tmp_path: Path, operation: str) -> None:
    make_log(tmp_path, 3)
    log = open_reader(tmp_path)
    list(log.scan())
    log.close()
    log.close()

    with pytest.raises(LogClosed, match="is closed"):
        READS[operation](log)


def test_reader_has_no_writing_method() -> None:
    """Goal: a type checker finds the attempt to change a log through a reader."""
    writing = {name for name in vars(Log) if not name.startswith("_")} - vars(LogReader).keys()

    assert writing >= {*WRITES} - {"writer"}
    assert not any(hasattr(LogReader, name) for name in writing)


def test_reader_of_log_sees_appends_and_closes_with_log(log: Log) -> None:
    reader = log.reader
    log.append(b"first")
    assert values(reader.scan()) == [b"first"]

    reader.close()
    with pytest.raises(LogClosed):
        reader.read(0)
    assert values(log.reader.scan()) == [b"first"], "closing it leaves the log open"

    again = log.reader
    log.close()
    with pytest.raises(LogClosed):
        again.read(0)


def test_scan_started_before_close_ends_or_is_refused(filled: Log) -> None:
    scan = filled.scan()
    next(scan)
    filled.close()

    try:
        rest = offsets(scan)
    except SeeklogError:
        return
    assert rest == list(range(1, 33))
