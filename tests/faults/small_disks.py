"""Real file systems that are small, and that become full or read-only: made here, mounted, and taken away again.

Never a file system that the machine lives on: each is a tmpfs or an image file of its own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE: Final = 40  # times that a busy mount is tried


class CannotMount(Exception):
    """Says what this machine refuses."""


def can_mount() -> bool:
    """Tell whether this user may mount at all."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


@contextlib.contextmanager
def tmpfs(where: Path, *, size: str) -> Iterator[Path]:
    """Mount a file system in memory."""
    with _mounted(["-t", "tmpfs", "-o", f"size={size}", "tmpfs"], where):
        yield where


def make_ext4(image: Path, *, megabytes: int) -> None:
    """Make an image with an empty ext4."""
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    _run(["mkfs.ext4", "-q", "-F", "-b", "1024", "-m", "0", str(image)])


@contextlib.contextmanager
def mounted_image(image: Path, where: Path) -> Iterator[Path]:
    """Mount an image."""
    with _mounted(["-o", "loop", str(image)], where):
        yield where


@contextlib.contextmanager
def ext4(where: Path, *, megabytes: int) -> Iterator[Path]:
    """Mount an ext4 of its own."""
    image = where.with_name(f"{where.name}.img")
    make_ext4(image, megabytes=megabytes)
    try:
        with mounted_image(image, where):
            yield where
    finally:
        image.unlink()


def abort(where: Path) -> None:
    """Do to an ext4 what it does to itself when it finds its own damage: from now on it is read-only.

    A plain remount is refused while a file is open for writing.
    """
    _run(["mount", "-o", "remount,abort", str(where)])


@contextlib.contextmanager
def _mounted(words: list[str], where: Path) -> Iterator[None]:
    where.mkdir(exist_ok=True)
    _run(["mount", *words, str(where)])
    try:
        yield
    finally:
        _unmount(where)


def _unmount(where: Path) -> None:
    """Unmount at once: one that is only promised would live on in the next mount of the same image."""
    gc.collect()  # what was opened there and is held by nobody any more
    for _ in range(PATIENCE):
        with contextlib.suppress(CannotMount):
            _run(["umount", str(where)])
            return
        time.sleep(0.05)
    _run(["umount", "--lazy", str(where)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(f"{' '.join(command[:1])}: {done.stderr.strip()}")
