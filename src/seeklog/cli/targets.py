"""What the words of a verb stand for: stores, topics, partitions and single files, on disk or at a URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from seeklog import names
from seeklog.archive.reading import Origin, open_archive
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
    """The store that it lies in; None: it was named alone."""
    segment: int | None = None
    """The base offset of the one segment that was named; None: all of them."""

    @property
    def name(self) -> str:
        """The partition as a user names it."""
        location = self.location
        return location.topic if location.partition is None else f"{location.topic}-{location.partition}"


def find_targets(words: Sequence[str]) -> list[Target]:
    """Return what the words name. Behind a store's directory, a word without a slash names a topic or partition of it.

    Nothing is opened or changed.
    """
    # What lies at each path, and what of it was named: all, if nothing was.
    found: list[tuple[list[Target], list[Target]]] = []
    for word in words:
        there, named = found[-1] if found else ([], [])
        store = there if there and there[0].root is not None else []
        is_name = "/" not in word and not names.is_url(word)
        if is_name and (inside := [target for target in store if word in (target.location.topic, target.name)]):
            named += inside
        elif is_name and store and not os.path.exists(word):
            raise TopicNotFound(f"there is no topic {word!r} in {store[0].root}{_nearest(store, word)}")
        else:
            found.append((_at_path(word), []))
    return [target for there, named in found for target in named or there]


def _nearest(store: Sequence[Target], word: str) -> str:
    import difflib

    known = sorted({name for target in store for name in (target.location.topic, target.name)})
    nearest = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _at_path(word: str) -> list[Target]:
    if not names.is_url(word):
        if os.path.isfile(word):
            return [_of_file(word)]
        if not os.path.exists(word):
            raise NotALog(f"{word} does not exist; name a store, a partition's directory or a segment's file")
    root = absolute(word)
    files = open_archive(Origin(root=root).files(), root)
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
