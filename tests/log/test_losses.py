"""The list of offsets that repairs have lost."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from crash.faulty import FaultyFiles
from log.workbench import QuickFiles
from seeklog import names
from seeklog.log.side.losses import Loss, add_losses, read_losses, trim_losses

FIRST = Loss(first_offset=3, next_offset=5, reason="rotten")
SECOND = Loss(first_offset=9, next_offset=20, reason="lost")
THIRD = Loss(first_offset=30, next_offset=31, reason="who knows")


def listed(path: Path) -> list[tuple[int, int]]:
    return read_losses(QuickFiles(), str(path), advice="")


@pytest.fixture
def files(tmp_path: Path) -> QuickFiles:
    files = QuickFiles()
    add_losses(files, str(tmp_path), [FIRST, SECOND], now_ms=1)
    return files


def test_listed_loss_is_not_listed_again(files: QuickFiles, tmp_path: Path) -> None:
    add_losses(files, str(tmp_path), [SECOND, THIRD], now_ms=2)

    assert listed(tmp_path) == [(3, 5), (9, 20), (30, 31)]


@pytest.mark.parametrize("change", [lambda data: data.replace(b"rotten", b"rott\xe5n"), lambda data: data[:-20]])
def test_readable_lines_of_damaged_list_are_kept(files: QuickFiles, tmp_path: Path, change: object) -> None:
    """Goal: a repair does not fail because the list of an earlier one is damaged."""
    path = tmp_path / names.LOSSES
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    add_losses(files, str(tmp_path), [THIRD], now_ms=2)

    assert listed(tmp_path) == [(3, 5), (9, 20), (30, 31)]


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (0, []),
        (3, []),
        (4, [(3, 4)]),
        (5, [(3, 5)]),
        (9, [(3, 5)]),
        (10, [(3, 5), (9, 10)]),
        (20, [(3, 5), (9, 20)]),
        (99, [(3, 5), (9, 20)]),
    ],
)
def test_losses_after_truncation_point_are_removed(
    files: QuickFiles, tmp_path: Path, end: int, left: list[tuple[int, int]]
) -> None:
    trim_losses(files, str(tmp_path), end=end)

    assert listed(tmp_path) == left


@pytest.mark.parametrize("data", [None, b"", b"seeklog-losses 1\nlost 3 5 1 rotten\ncrc32c 00000000\n"])
def test_missing_or_damaged_list_is_left_unchanged(files: QuickFiles, tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / names.LOSSES
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    trim_losses(files, str(tmp_path), end=0)

    assert (path.read_bytes() if path.exists() else None) == data


def test_full_disk_leaves_longer_list(files: QuickFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = FaultyFiles(files, methods={"write"}, fail_at=1, error=errno.ENOSPC)
    with caplog.at_level(logging.WARNING, logger="seeklog"):
        trim_losses(full, str(tmp_path), end=0)
    assert "the list of lost offsets was not shortened" in caplog.text
    assert listed(tmp_path) == [(3, 5), (9, 20)]

    with pytest.raises(OSError, match="Input/output"):
        trim_losses(FaultyFiles(files, methods={"write"}, fail_at=1), str(tmp_path), end=0)
