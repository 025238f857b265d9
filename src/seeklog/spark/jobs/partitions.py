"""The topics and partitions that a job works on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from seeklog import names
from seeklog.config import LogConfig
from seeklog.errors import UsageError
from seeklog.files import OsFiles
from seeklog.log import Log
from seeklog.names import check_topic_name
from seeklog.store import Store
from seeklog.topics.scope import PartitionLocation

ONLY_BROKER_WRITES: Final = names.INTERNAL_TOPICS - {names.CONSUMER_OFFSETS}
"""Topics that jobs never change."""


def open_log(location: PartitionLocation, store: Store | None) -> AbstractContextManager[Log]:
    """Open a partition for writing, through its store if there is one."""
    if store is not None and location.partition is not None:
        return store.writer(location.topic, location.partition)
    return Log(location.directory, config=location.config, files=OsFiles(), background=False)


def choose_topics(topics: Iterable[str] | None, all_topics: Sequence[str]) -> list[str]:
    """Return the given topics, each once, or all topics for None."""
    if isinstance(topics, str):
        raise UsageError(f"topics must be a list of names: [{topics!r}]")
    if topics is None:
        return sorted(all_topics)
    chosen = sorted(set(topics))
    for topic in chosen:
        check_topic_name(topic)
    return chosen


def parse_config(config: LogConfig | Mapping[str, Any] | None) -> LogConfig:
    return config if isinstance(config, LogConfig) else LogConfig.from_mapping(config or {})
