"""Opening a store: a directory that is written, a directory that is only read, or a URL, which is only read, too."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seeklog import names
from seeklog.archive.reading import open_archive
from seeklog.clock import Clock, SystemClock
from seeklog.config import LogConfig
from seeklog.errors import InvalidConfig, InvalidName, UsageError
from seeklog.files import Files, Lock, OsFiles, absolute, translated
from seeklog.files.remote import RemoteFiles
from seeklog.log import lock_out_broker
from seeklog.store.store import Store
from seeklog.topics.layout import check_root

MAX_OPEN_FILES = 512


@dataclass(slots=True, kw_only=True)
class Place:
    """Where a store lies, and what it is reached by. While it is open no broker starts on a store that is written."""

    root: str
    files: Files
    clock: Clock
    read_only: bool
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    broker_lock: Lock | None = None

    def open(self) -> None:
        """Make sure that a store is there, or make room for one."""
        if self.read_only:
            self.files = open_archive(self.files, self.root)
        check_root(self.files, self.root, create=not self.read_only)
        if not self.read_only:
            self.broker_lock = lock_out_broker(self.files, self.root)

    def close(self) -> None:
        """Let a broker in."""
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
    """Open the store at `path`, or make one there; a Kafka broker's data directory is one too.

    A URL, such as s3://bucket/path, is opened read-only and stays as it is at this moment; `storage_options` are what
    fsspec needs for it: credentials, an endpoint, time limits. It takes the extra `remote`, or `s3`.

    `config` holds for topics that say nothing else: a `LogConfig`, or Kafka's words. Not more than `max_open_files` are
    kept open, by default 512 or half of what the process may open. With `read_only=True` the store must exist, and
    nothing on disk changes. With `background=False` no thread syncs, rolls and retains: call `maintain`. `clock` and
    `files` are other doors to time and to the disk, for tests.
    """
    root = _root_of(path)
    clock = clock or SystemClock()
    most = _files_to_open() if max_open_files is None else max_open_files
    if not isinstance(most, int) or most < 8:
        raise UsageError("max_open_files must be at least 8")
    defaults = _config_of(config)
    if names.is_url(root):
        if read_only is False:
            raise UsageError(f"{root} is a URL, which is only read: leave read_only out, and write to a directory")
        options = dict(storage_options or {})
        files = files or RemoteFiles(root, storage_options=storage_options)
        place = Place(root=root, files=files, clock=clock, read_only=True, storage_options=options)
        # Nothing there changes while it is open, so there is nothing to do in the background.
        background = False
    elif storage_options:
        raise UsageError(f"storage_options are for a URL, and {root} is a directory")
    else:
        place = Place(root=root, files=files or OsFiles(), clock=clock, read_only=bool(read_only))
    try:
        with translated(f"{root} cannot be opened"):
            place.open()
            return Store(place, config=defaults, max_open_files=most, background=background)
    except BaseException:
        place.close()
        raise


def _root_of(path: str | os.PathLike[str]) -> str:
    try:
        root = absolute(os.fsdecode(path))
    except TypeError:
        raise UsageError(f"a path is a str or a Path, not {type(path).__name__}") from None
    if "\0" in root:
        raise InvalidName(f"{root!r} cannot be a path: it holds a NUL")
    return root


def _config_of(config: LogConfig | Mapping[str, Any] | None) -> LogConfig:
    if isinstance(config, Mapping):
        config = LogConfig.from_mapping(config)
    config = LogConfig() if config is None else config
    if not isinstance(config, LogConfig):
        raise UsageError(f"config is a LogConfig, or a dict of Kafka's words, not {type(config).__name__}")
    if config.high_watermark != "auto" or config.initial_offset:
        raise InvalidConfig("high_watermark and initial_offset are for a lone log: a store gives them itself")
    return config


def _files_to_open() -> int:
    """Return how many files a store may have open: not more than half of what the process may."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_OPEN_FILES if allowed == resource.RLIM_INFINITY else max(8, min(MAX_OPEN_FILES, allowed // 2))
