"""Checks of a path before a log is opened there, and the locks that guard a partition directory."""

from __future__ import annotations

import contextlib
import os

from seeklog import names
from seeklog.errors import InvalidName, LogLocked, NotALog, UsageError
from seeklog.files import Files, Lock, OsFiles, absolute, take_lock, translate, translated


def check_directory(files: Files, path: str, *, create: bool) -> None:
    """Check that `path` is a directory that may hold a log. With `create` the directory is created.

    A directory that holds only other files is not changed.
    """
    try:
        if create:
            files.make_directory(path)
        listing = files.list(path)
    except NotADirectoryError as error:
        raise NotALog(f"{path} is a file; a log is a directory") from error
    except FileNotFoundError as error:
        raise NotALog(f"there is no log at {path}") from error
    except OSError as error:
        raise translate(error, f"{path} cannot be opened") from error
    inside = next((name for name in listing if names.parse_partition_name(name)), None)
    if names.TOPICS in listing or inside is not None:
        raise NotALog(
            f"{path} is a store of topics; open it with seeklog.open, or one partition in it"
            + (f" with seeklog.Log, such as {path}/{inside}" if inside else "")
        )
    if listing and not any(map(names.is_known, listing)):
        raise NotALog(f"{path} holds other files, such as {listing[0]!r}; give the log a directory of its own")
    if not create and not any(name.endswith((names.LOG, names.LOG + names.SWAP)) for name in listing):
        raise NotALog(f"there is no log at {path}: it holds no segment")


def lock_out_broker_of(files: Files, path: str) -> Lock | None:
    """Keep brokers from starting on the root directory of a lone partition, if it belongs to a broker or a store."""
    root = os.path.dirname(path)
    if names.parse_partition_name(os.path.basename(path)) is not None and is_root(files, root):
        return lock_out_broker(files, root)
    return None


def lock_lone_directory(files: Files, path: str) -> contextlib.ExitStack:
    """Acquire the writer's lock of a lone partition. Closing the returned stack releases it."""
    with contextlib.ExitStack() as locks:
        broker_lock = lock_out_broker_of(files, path)
        if broker_lock is not None:
            locks.callback(broker_lock.close)
        locks.callback(lock_directory(files, path).close)
        return locks.pop_all()


def lock_out_broker(files: Files, root: str) -> Lock:
    """Keep brokers from starting on a directory. Raises `LogLocked` if one runs there."""
    try:
        return Lock(files, files.lock_out_broker(f"{root}/{names.LOCK}"))
    except BlockingIOError:
        advice = "stop it first, or open with read_only=True"
        raise LogLocked(root, None, owner="a Kafka broker", advice=advice) from None


def is_root(files: Files, path: str) -> bool:
    """Return whether a directory is the root of a store or a broker's data directory."""
    for name in (names.META_PROPERTIES, names.TOPICS, names.RECOVERY_POINTS):
        with contextlib.suppress(FileNotFoundError):
            if files.kind(f"{path}/{name}") == "file":
                return True
    return False


def has_broker(files: Files, path: str) -> bool:
    try:
        return files.has_broker(f"{os.path.dirname(path)}/{names.LOCK}")
    except OSError:
        return False


def lock_directory(files: Files, path: str) -> Lock:
    return take_lock(files, f"{path}/{names.LOCK}", subject=path)


def directory_of(path: str | os.PathLike[str], files: Files | None) -> str:
    """Return the absolute path of a log's directory."""
    # A caller that passes `files` is a store, or has resolved the path before.
    directory = absolute(os.fsdecode(path), follows=files is None)
    if names.is_url(directory) and (files is None or isinstance(files, OsFiles)):
        raise UsageError(f"{directory} is a URL; open its store with seeklog.open")
    if "\0" in directory:
        raise InvalidName(f"{directory!r} cannot be a path: it contains a NUL")
    return directory


def opening(directory: str) -> translated:
    return translated(f"{directory} cannot be opened")
