"""The partitions at a path: those of a store or a broker's data directory, of chosen topics, or a single one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from seeklog import names
from seeklog.clock import SystemClock
from seeklog.config import LogConfig
from seeklog.errors import NotALog, UsageError
from seeklog.files import Files, absolute, translated
from seeklog.log.side import Checkpoint, RootOffsets
from seeklog.names import TopicPartition
from seeklog.topics.layout import awaits_directory, check_root, no_store, partition_path
from seeklog.topics.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLocation:
    """One partition: its directory, its configuration, and its values in the root's checkpoints."""

    topic: str
    partition: int | None
    """None for a single log whose directory is not named after a partition."""
    directory: str
    config: LogConfig
    inherited: Checkpoint | None
    """The values in the checkpoints that a broker left in the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The partitions at a path: those of a store, or a single partition."""

    root: str | None
    """The store. None for a single partition."""
    partitions: tuple[PartitionLocation, ...]


def find_partitions(
    path: str | os.PathLike[str], *, topics: Iterable[str] | None, config: LogConfig, files: Files
) -> Scope:
    """Return the partitions at `path`. Opens and changes nothing. `config` is the default for topics."""
    root = absolute(os.fsdecode(path))
    if isinstance(topics, str):
        raise UsageError(f"topics is a list of names; pass [{topics!r}]")
    with translated(f"{root} cannot be read"):
        if _is_partition(files, root):
            if topics is not None:
                raise UsageError(f"{root} is a single partition; topics can be chosen only in a store")
            return Scope(root=None, partitions=(_single(files, root, config),))
        check_root(files, root, create=False)
        known = Topics(root, files=files, clock=SystemClock(), defaults=config, read_only=True)
        chosen = known.all() if topics is None else [known.find(name) for name in dict.fromkeys(topics)]
        offsets = RootOffsets.read(files, root)
    partitions = []
    for topic in chosen:
        for number in topic.partitions:
            if awaits_directory(files, root, topic, number):
                continue
            partition = TopicPartition(topic.name, number)
            partitions.append(
                PartitionLocation(
                    topic=topic.name,
                    partition=number,
                    directory=partition_path(root, partition),
                    config=known.config_of(topic),
                    inherited=offsets.of(partition),
                )
            )
    return Scope(root=root, partitions=tuple(partitions))


def still_has(root: str, location: PartitionLocation, files: Files) -> bool:
    """Return whether a store still has a partition. A running broker may have deleted its topic."""
    scope = find_partitions(root, topics=None, config=location.config, files=files)
    return any(partition.directory == location.directory for partition in scope.partitions)


def _is_partition(files: Files, path: str) -> bool:
    try:
        return any(names.parse_segment_name(name) for name in files.list(path))
    except FileNotFoundError:
        raise no_store(path, is_opened=False) from None
    except NotADirectoryError:
        raise NotALog(f"{path} is a file; a store is a directory") from None


def _single(files: Files, directory: str, config: LogConfig) -> PartitionLocation:
    root, name = os.path.split(directory)
    partition = names.parse_partition_name(name)
    return PartitionLocation(
        topic=partition.topic if partition is not None else name,
        partition=partition.partition if partition is not None else None,
        directory=directory,
        config=config,
        inherited=RootOffsets.read(files, root).of(partition) if partition is not None else None,
    )
