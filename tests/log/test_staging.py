"""Staged files: they are read back piece by piece, and every refusal is an error of seeklog."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from log.workbench import START_MS, FailingFiles, QuickFiles
from record.batches import SMALL
from seeklog.errors import CorruptBatch, DiskFull, NotAccessible
from seeklog.log.staging import STALE_MS, StagedFile, Stager, check_staged, is_stale, read_staged, remove_staged
from seeklog.names import app_key
from seeklog.record.crc import crc32c

BATCH = SMALL.encode()
COUNT = 4
KEY = app_key("app")


def stage(path: Path, count: int, *, piece_bytes: int = 2 * len(BATCH), files: QuickFiles | None = None) -> StagedFile:
    stager = Stager(files or QuickFiles(), str(path), key=KEY, now_ms=START_MS, max_piece_bytes=piece_bytes)
    for _ in range(count):
        stager.add(BATCH, record_count=COUNT)
    return stager.finish()


@pytest.mark.parametrize(
    ("count", "piece_bytes", "pieces"),
    [(0, 1000, []), (1, 1, [1]), (3, 1, [1, 1, 1]), (5, 2 * len(BATCH), [2, 2, 1]), (4, 2 * len(BATCH), [2, 2])],
)
def test_staged_batches_are_read_in_pieces_of_whole_batches(
    tmp_path: Path, count: int, piece_bytes: int, pieces: list[int]
) -> None:
    """Goal: a batch larger than a piece is a piece by itself."""
    staged = stage(tmp_path, count, piece_bytes=piece_bytes)

    assert list(read_staged(QuickFiles(), str(tmp_path), staged)) == [BATCH * number for number in pieces]
    assert (staged.size, staged.record_count) == (count * len(BATCH), count * COUNT)
    assert staged.crc == crc32c(BATCH * count)
    check_staged(QuickFiles(), str(tmp_path), staged)


def test_missing_truncated_or_changed_staged_file_is_reported(tmp_path: Path) -> None:
    staged = stage(tmp_path, 3)
    path = tmp_path / staged.name
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptBatch, match=f"stored CRC {staged.crc:#010x}, computed"):
        check_staged(QuickFiles(), str(tmp_path), staged)
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptBatch, match=f"has {len(data) - 1} bytes, {len(data)} were staged"):
        check_staged(QuickFiles(), str(tmp_path), staged)
    path.unlink()
    with pytest.raises(CorruptBatch, match="the staged file is gone"):
        check_staged(QuickFiles(), str(tmp_path), staged)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (errno.ENOSPC, DiskFull, "the disk is full; stage again when there is room"),
        (errno.EDQUOT, DiskFull, "the disk is full; stage again when there is room"),
        (errno.EIO, NotAccessible, "cannot be staged: .*on purpose"),
    ],
)
@pytest.mark.parametrize("what", ["open", "write", "sync"])
def test_failing_disk_raises_an_error_of_seeklog(
    tmp_path: Path, what: str, error: int, kind: type[Exception], message: str
) -> None:
    files = FailingFiles(what, error=OSError(error, "on purpose"))
    files.fails = True
    with pytest.raises(kind, match=message):
        stage(tmp_path, 3, files=files)


def test_staged_file_can_be_discarded_twice(tmp_path: Path) -> None:
    files = FailingFiles("remove", error=OSError(errno.EIO, "on purpose"))
    stager = Stager(files, str(tmp_path), key=KEY, now_ms=START_MS)
    stager.add(BATCH, record_count=COUNT)
    assert len([*tmp_path.iterdir()]) == 1
    files.fails = True
    with pytest.raises(NotAccessible, match="on purpose"):
        stager.discard()
    files.fails = False
    stager.discard()
    assert [*tmp_path.iterdir()] == []
    stager.discard()


def test_removing_missing_staged_files_is_not_an_error(tmp_path: Path) -> None:
    staged = stage(tmp_path, 1)
    for _ in range(2):
        remove_staged(QuickFiles(), str(tmp_path), [staged.name])
        assert [*tmp_path.iterdir()] == []


def test_staged_file_is_stale_if_it_can_never_be_committed(tmp_path: Path) -> None:
    name = stage(tmp_path, 1).name

    assert [is_stale(name, now_ms=START_MS + later) for later in (0, STALE_MS, STALE_MS + 1)] == [False, False, True]
    assert not is_stale("00000000000000000000.log", now_ms=START_MS + 2 * STALE_MS)
