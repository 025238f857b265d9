"""Opening a store: a directory for writing or reading, or a URL for reading."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seeklog import names
from seeklog.archive.reading import open_archive
from seeklog.arguments import check_flags, check_whole_number
from seeklog.clock import Clock, SystemClock
from seeklog.config import LogConfig
from seeklog.errors import InvalidConfig, InvalidName, UsageError
from seeklog.files import Files, Lock, OsFiles, absolute, translated
from seeklog.files.remote import RemoteFiles
from seeklog.log import lock_out_broker
from seeklog.store.store import Store
from seeklog.topics.layout import check_is_restored, check_root

MAX_OPEN_FILES = 512
# One log open for writing and one segment open for reading.
MIN_OPEN_FILES = 8


@dataclass(slots=True, kw_only=True)
class Location:
    """Where a store is, and how to reach it. While a store is open for writing, no broker can start on it."""

    root: str
    files: Files
    clock: Clock
    read_only: bool
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    broker_lock: Lock | None = None

    def open(self) -> None:
        """Check that there is a store, or that one may be created here."""
        if self.read_only:
            self.files = open_archive(self.files, self.root)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # A restore opens its own directory for writing before it is finished.
            check_is_restored(self.root, self.files.list(self.root) if not self.read_only else ())
        check_root(self.files, self.root, create=not self.read_only)
        if not self.read_only:
            self.broker_lock = lock_out_broker(self.files, self.root)

    def close(self) -> None:
        """Allow a broker to start."""
        if self.broker_lock is not None:
            self.broker_lock.close()


def open_store(
    path: str | os.PathLike[str],
    *,
    config: LogConfig | Mapping[str, Any] | None = None,
    read_only: bool | None = None,
    max_open_files: int | None = None,
    background: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> Store:
    """Open the store at `path`, or create one there. A Kafka broker's data directory is a store, too.

    A URL, such as s3://bucket/path, is opened read-only and shows the store as it is now. `storage_options` are passed
    to fsspec: credentials, an endpoint, timeouts. Needs the extra `remote` or `s3`.

    `config` is the default for topics: a `LogConfig`, or a dict of Kafka's settings. At most `max_open_files` files are
    kept open; the default is the smaller of 512 and half of the process's limit. With `read_only=True` the store must
    exist, and nothing on disk changes. With `background=False` no thread syncs, rolls or deletes by retention: call
    `maintain`. `clock` and `files` replace the system's clock and disk in tests.
    """
    check_flags(read_only=False if read_only is None else read_only, background=background)
    root = _root_of(path)
    clock = clock or SystemClock()
    limit = _files_to_open() if max_open_files is None else max_open_files
    check_whole_number("max_open_files", limit, minimum=MIN_OPEN_FILES)
    defaults = _config_of(config)
    if names.is_url(root):
        if read_only is False:
            raise UsageError(f"{root} is a URL, and a URL can only be read; leave read_only out or pass a directory")
        options = dict(storage_options or {})
        files = files or RemoteFiles(root, storage_options=storage_options)
        location = Location(root=root, files=files, clock=clock, read_only=True, storage_options=options)
        # Nothing changes there while it is open, so there is no background work.
        background = False
    elif storage_options:
        raise UsageError(f"storage_options are for URLs, and {root} is a directory; leave them out")
    else:
        location = Location(root=root, files=files or OsFiles(), clock=clock, read_only=bool(read_only))
    try:
        with translated(f"{root} cannot be opened"):
            location.open()
            return Store(location, config=defaults, max_open_files=limit, background=background)
    except BaseException:
        location.close()
        raise


def _root_of(path: str | os.PathLike[str]) -> str:
    try:
        root = absolute(os.fsdecode(path))
    except TypeError:
        raise UsageError(f"a path must be a str or a Path, not {type(path).__name__}") from None
    if "\0" in root:
        raise InvalidName(f"{root!r} is not a path: it contains a NUL")
    return root


def _config_of(config: LogConfig | Mapping[str, Any] | None) -> LogConfig:
    if isinstance(config, Mapping):
        config = LogConfig.from_mapping(config)
    config = LogConfig() if config is None else config
    if not isinstance(config, LogConfig):
        raise UsageError(f"config must be a LogConfig or a dict of Kafka's settings, not {type(config).__name__}")
    if config.high_watermark != "auto" or config.initial_offset:
        raise InvalidConfig("high_watermark and initial_offset are for a single log; a store sets them itself")
    return config


def _files_to_open() -> int:
    """Return how many files a store may have open: at most half of the process's limit."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        MAX_OPEN_FILES if allowed == resource.RLIM_INFINITY else max(MIN_OPEN_FILES, min(MAX_OPEN_FILES, allowed // 2))
    )
