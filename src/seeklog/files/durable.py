"""Durable names: whole files replaced, where a crash leaves the old one or the new one, and new directories."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from seeklog import names
from seeklog.files.local import Files


def replace_file(files: Files, directory: str, name: str, data: bytes | bytearray) -> None:
    """Write a whole file under a temporary name, sync it, and rename it into place.

    The data must be on disk before the name is. The caller syncs the directory.
    """
    stage_file(files, directory, name, data)
    publish_file(files, directory, name)


def stage_file(files: Files, directory: str, name: str, data: bytes | bytearray) -> None:
    """Write and sync what `publish_file` then puts into place: after this there is room for it."""
    write_parts(files, f"{directory}/{name}{names.TEMPORARY}", (data,))


def write_parts(files: Files, path: str, parts: Iterable[bytes | bytearray]) -> None:
    """Write a whole file, a part at a time, and sync it. The caller syncs the directory."""
    handle = files.open(path, write=True, create=True)
    try:
        files.truncate(handle, 0)
        position = 0
        for part in parts:
            files.write(handle, part, position)
            position += len(part)
        files.sync(handle)
    finally:
        files.close(handle)


def read_parts(files: Files, path: str, *, size: int) -> Iterator[bytes]:
    """Yield a file's bytes, `size` of them at a time."""
    handle = files.open(path)
    try:
        position = 0
        while part := files.read(handle, size, position):
            position += len(part)
            yield part
    finally:
        files.close(handle)


def publish_file(files: Files, directory: str, name: str) -> None:
    """Give a staged file its name. The caller syncs the directory."""
    temporary = f"{directory}/{name}{names.TEMPORARY}"
    try:
        files.rename(temporary, f"{directory}/{name}")
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise


def read_if_exists(files: Files, path: str) -> bytes | None:
    """Return the bytes of a whole file, or None if there is no such file."""
    try:
        return files.read_file(path)
    except FileNotFoundError:
        return None


def remove_if_exists(files: Files, path: str) -> None:
    """Remove a file unless it is gone already. The caller syncs the directory."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(path)


def sync_ancestors(files: Files, path: str) -> None:
    """Make the name of a directory durable, and those of parents that may be as new."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        with contextlib.suppress(PermissionError):
            files.sync_directory(path)
