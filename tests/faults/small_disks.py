"""Small real file systems that become full or read-only: created, mounted, and removed again.

Each is a new tmpfs or image file, never a file system of the machine.
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

PATIENCE: Final = 40  # retries of a busy mount


class CannotMount(Exception):
    """The machine refuses to mount."""


def can_mount() -> bool:
    """Tell whether this user may mount at all."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


@contextlib.contextmanager
def tmpfs(where: Path, *, size: str) -> Iterator[Path]:
    """Mount a file system in memory."""
    with _mounted(["-t", "tmpfs", "-o", f"size={size}", "tmpfs"], where):
        yield where


def make_ext4(image: Path, *, megabytes: int) -> None:
    """Create an image with an empty ext4."""
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
    """Mount a new ext4."""
    image = where.with_name(f"{where.name}.img")
    make_ext4(image, megabytes=megabytes)
    try:
        with mounted_image(image, where):
            yield where
    finally:
        image.unlink()


@contextlib.contextmanager
def overlay(where: Path, *, lower: Path) -> Iterator[Path]:
    """Mount a directory as the lower layer of an overlay. Its upper layer is empty and in memory."""
    with tmpfs(where.with_name(f"{where.name}.layers"), size="64m") as layers:
        upper, work = layers / "upper", layers / "work"
        upper.mkdir()
        work.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        with _mounted(["-t", "overlay", "-o", options, "overlay"], where):
            yield where


def abort(where: Path) -> None:
    """Make an ext4 read-only, as it does itself when it finds damage.

    A remount is refused while a file is open for writing.
    """
    _run(["mount", "-o", "remount,abort", str(where)])


@contextlib.contextmanager
def _mounted(options: list[str], where: Path) -> Iterator[None]:
    where.mkdir(exist_ok=True)
    _run(["mount", *options, str(where)])
    try:
        yield
    finally:
        _unmount(where)


def _unmount(where: Path) -> None:
    """Unmount at once: after a lazy unmount the next mount of the image would share its state."""
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
