"""Which partitions a job is about: all of a store or of a broker's data directory, those of some topics, or one."""

from __future__ import annotations

import os
from collections.abc import Iterable

from seeklog.config import LogConfig
from seeklog.files import Files, ReadOnlyFiles
from seeklog.spark.option_map import local_path
from seeklog.topics import scope
from seeklog.topics.scope import Place, Territory

__all__ = ["Place", "Territory", "find_partitions"]


def find_partitions(
    path: str | os.PathLike[str], *, topics: Iterable[str] | None, config: LogConfig, files: Files
) -> Territory:
    """Return what lies at `path`, which may be a `file:` address. Nothing is opened or changed."""
    given = os.fsdecode(path)
    root = given if isinstance(files, ReadOnlyFiles) else local_path("path", given)
    return scope.find_partitions(root, topics=topics, config=config, files=files)
