"""Durable names: whole files replaced, where a crash leaves the old one or the new one, and new directories."""

from __future__ import annotations

import contextlib
import os

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
    handle = files.open(f"{directory}/{name}{names.TEMPORARY}", write=True, create=True)
    try:
        files.truncate(handle, 0)
        files.write(handle, data, 0)
        files.sync(handle)
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


def read_if_there(files: Files, path: str) -> bytes | None:
    """Return the bytes of a whole file, or None if there is no such file."""
    try:
        return files.read_file(path)
    except FileNotFoundError:
        return None


def remove_if_there(files: Files, path: str) -> None:
    """Remove a file unless it is gone already. The caller syncs the directory."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(path)


def sync_ancestors(files: Files, path: str) -> None:
    """Make the name of a directory durable, and those of parents that may be as new."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        with contextlib.suppress(PermissionError):
            files.sync_directory(path)
