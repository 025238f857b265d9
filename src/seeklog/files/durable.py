"""Atomic, durable replacement of whole files: a crash leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import errno
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
    """Write and sync a temporary file for `publish_file`, which then needs no more disk space."""
    write_parts(files, f"{directory}/{name}{names.TEMPORARY}", (data,))


def write_parts(files: Files, path: str, parts: Iterable[bytes | bytearray]) -> None:
    """Write a whole file in parts and sync it. The caller syncs the directory."""
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
    """Yield a file's bytes, `size` at a time."""
    handle = files.open(path)
    try:
        position = 0
        while part := files.read(handle, size, position):
            position += len(part)
            yield part
    finally:
        files.close(handle)


def publish_file(files: Files, directory: str, name: str) -> None:
    """Rename a staged file into place. The caller syncs the directory."""
    temporary = f"{directory}/{name}{names.TEMPORARY}"
    try:
        files.rename(temporary, f"{directory}/{name}")
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise


def read_if_exists(files: Files, path: str) -> bytes | None:
    """Return the bytes of a whole file, or None if it does not exist."""
    try:
        return files.read_file(path)
    except FileNotFoundError:
        return None


def remove_if_exists(files: Files, path: str) -> None:
    """Remove a file, if it exists. The caller syncs the directory."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(path)


def sync_ancestors(files: Files, path: str) -> None:
    """Make the name of a directory durable, and the names of its parents, which may be new too."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        try:
            files.sync_directory(path)
        except PermissionError:
            pass
        except OSError as error:
            # A read-only file system, such as the root of macOS, has no new names.
            if error.errno != errno.EROFS:
                raise
