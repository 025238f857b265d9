"""Which partitions a job works on: all of a store or of a broker's data directory, those of some topics, or one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from seeklog import names
from seeklog.config import LogConfig
from seeklog.errors import UsageError
from seeklog.files import Files, OsFiles, ReadOnlyFiles
from seeklog.log import Log
from seeklog.names import check_topic_name
from seeklog.spark.option_map import local_path
from seeklog.store import Store
from seeklog.topics import scope
from seeklog.topics.scope import Place, Territory

__all__ = ["ONLY_BROKER_WRITES", "Place", "Territory", "choose_topics", "find_partitions", "open_log", "parse_config"]

ONLY_BROKER_WRITES: Final = names.INTERNAL_TOPICS - {names.CONSUMER_OFFSETS}
"""Topics that no job changes."""


def find_partitions(
    path: str | os.PathLike[str], *, topics: Iterable[str] | None, config: LogConfig, files: Files
) -> Territory:
    """Return what lies at `path`, which may be a `file:` address. Nothing is opened or changed."""
    given = os.fsdecode(path)
    root = given if isinstance(files, ReadOnlyFiles) else local_path("path", given)
    return scope.find_partitions(root, topics=topics, config=config, files=files)


def open_log(place: Place, store: Store | None) -> AbstractContextManager[Log]:
    """Open a partition to write: through the store that it lies in, if there is one."""
    if store is not None and place.partition is not None:
        return store.writer(place.topic, place.partition)
    return Log(place.directory, config=place.config, files=OsFiles(), background=False)


def choose_topics(topics: Iterable[str] | None, all_topics: Sequence[str]) -> list[str]:
    """Return the topics that a job is asked for, each once; all of them if it is asked for none."""
    if isinstance(topics, str):
        raise UsageError(f"topics is a list of names: [{topics!r}]")
    if topics is None:
        return sorted(all_topics)
    chosen = sorted(set(topics))
    for topic in chosen:
        check_topic_name(topic)
    return chosen


def parse_config(config: LogConfig | Mapping[str, Any] | None) -> LogConfig:
    return config if isinstance(config, LogConfig) else LogConfig.from_mapping(config or {})
