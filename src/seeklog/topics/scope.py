"""What a path stands for: all partitions of a store or of a broker's data directory, those of some topics, or one."""

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
from seeklog.topics.layout import check_root, partition_path
from seeklog.topics.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLocation:
    """One partition: where it lies, and what is known of it from outside."""

    topic: str
    partition: int | None
    """None: a lone log whose directory has another name."""
    directory: str
    config: LogConfig
    inherited: Checkpoint | None
    """What a broker's checkpoints in the root say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a path stands for: a store with its partitions, or one partition alone."""

    root: str | None
    """The store; None: a partition alone."""
    partitions: tuple[PartitionLocation, ...]


def find_partitions(
    path: str | os.PathLike[str], *, topics: Iterable[str] | None, config: LogConfig, files: Files
) -> Scope:
    """Return what lies at `path`. Nothing is opened or changed; `config` holds for topics that say nothing else."""
    root = absolute(os.fsdecode(path))
    if isinstance(topics, str):
        raise UsageError(f"topics is a list of names: [{topics!r}]")
    with translated(f"{root} cannot be read"):
        if _is_partition(files, root):
            if topics is not None:
                raise UsageError(f"{root} is one partition: topics can be chosen in a store alone")
            return Scope(root=None, partitions=(_lone(files, root, config),))
        check_root(files, root, create=False)
        known = Topics(root, files=files, clock=SystemClock(), defaults=config, read_only=True)
        chosen = known.all() if topics is None else [known.find(name) for name in dict.fromkeys(topics)]
        offsets = RootOffsets.read(files, root)
    partitions = []
    for topic in chosen:
        for number in topic.partitions:
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
    """Tell whether a store still has a partition: a broker that runs may have deleted its topic just now."""
    scope = find_partitions(root, topics=None, config=location.config, files=files)
    return any(each.directory == location.directory for each in scope.partitions)


def _is_partition(files: Files, path: str) -> bool:
    try:
        return any(names.parse_segment_name(name) for name in files.list(path))
    except FileNotFoundError:
        raise NotALog(f"there is no store at {path}") from None
    except NotADirectoryError:
        raise NotALog(f"{path} is a file; a store is a directory") from None


def _lone(files: Files, directory: str, config: LogConfig) -> PartitionLocation:
    root, name = os.path.split(directory)
    partition = names.parse_partition_name(name)
    return PartitionLocation(
        topic=partition.topic if partition is not None else name,
        partition=partition.partition if partition is not None else None,
        directory=directory,
        config=config,
        inherited=RootOffsets.read(files, root).of(partition) if partition is not None else None,
    )
