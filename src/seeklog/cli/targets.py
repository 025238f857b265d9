"""The partitions that arguments name: by store, topic, partition or single file, on disk or at a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seeklog import names
from seeklog.archive.reading import Origin, open_archive
from seeklog.cli import storage_option
from seeklog.config import LogConfig
from seeklog.errors import NotALog, TopicNotFound, UsageError
from seeklog.files import Files, OsFiles, absolute
from seeklog.topics.scope import PartitionLocation, find_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One partition, or one segment of it."""

    location: PartitionLocation
    files: Files
    root: str | None
    """The store of the partition; None if the partition itself was named."""
    segment: int | None = None
    """The base offset of the named segment; None for all segments."""

    @property
    def name(self) -> str:
        """The name of the partition on a command line."""
        location = self.location
        return location.topic if location.partition is None else f"{location.topic}-{location.partition}"


def find_targets(arguments: Sequence[str]) -> list[Target]:
    """Return the partitions that the arguments name. After a store, a plain name is a topic or a partition in it.

    Nothing is opened or changed.
    """
    storage_options = storage_option.of(*arguments) or {}
    # For each path its partitions, and those that are named; if none is named, all of them count.
    found: list[tuple[list[Target], list[Target]]] = []
    for text in arguments:
        partitions, named = found[-1] if found else ([], [])
        store = partitions if partitions and partitions[0].root is not None else []
        is_name = "/" not in text and not names.is_url(text)
        if is_name and (inside := [target for target in store if text in (target.location.topic, target.name)]):
            named += inside
        elif is_name and store and not os.path.exists(text):
            raise TopicNotFound(f"there is no topic {text!r} in {store[0].root}{_suggestion(store, text)}")
        else:
            found.append((_at_path(text, storage_options), []))
    return [target for partitions, named in found for target in named or partitions]


def _suggestion(store: Sequence[Target], text: str) -> str:
    import difflib

    known = sorted({name for target in store for name in (target.location.topic, target.name)})
    nearest = difflib.get_close_matches(text, known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _at_path(path: str, storage_options: Mapping[str, Any]) -> list[Target]:
    names.check_location(path)
    if not names.is_url(path):
        if os.path.isfile(path):
            return [_of_file(path)]
        if not os.path.exists(path):
            raise NotALog(f"{path} does not exist; name a store, a partition's directory or a segment's file")
    root = absolute(path)
    files = open_archive(Origin(root=root, storage_options=storage_options).files(), root)
    scope = find_partitions(root, topics=None, config=LogConfig(), files=files)
    return [Target(location=location, files=files, root=scope.root) for location in scope.partitions]


def _of_file(path: str) -> Target:
    directory, name = os.path.split(absolute(path))
    parsed = names.parse_segment_name(name)
    if parsed is None or parsed[1] not in (*names.SEGMENT_SUFFIXES, names.TRANSACTION_INDEX):
        raise UsageError(
            f"{path} is not a segment's file, such as {names.segment_name(0, names.LOG)}; "
            f"show its contents with: seeklog dump {path}"
        )
    base_offset = parsed[0]
    if not os.path.exists(f"{directory}/{names.segment_name(base_offset, names.LOG)}"):
        raise NotALog(f"the .log of {path} is missing; show its contents with: seeklog dump {path}")
    files = OsFiles()
    (location,) = find_partitions(directory, topics=None, config=LogConfig(), files=files).partitions
    return Target(location=location, files=files, root=None, segment=base_offset)
