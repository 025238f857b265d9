"""What the words of a verb stand for: stores, topics, partitions and single files, on disk or at a URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seeklog import names
from seeklog.archive.reading import Origin, open_archive
from seeklog.config import LogConfig
from seeklog.errors import NotALog, TopicNotFound, UsageError
from seeklog.files import Files, OsFiles, absolute
from seeklog.topics.scope import Place, find_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One partition, or one segment of it."""

    place: Place
    files: Files
    root: str | None
    """The store that it lies in; None: it was named alone."""
    segment: int | None = None
    """The base offset of the one segment that was named; None: all of them."""

    @property
    def name(self) -> str:
        """The partition as a user names it."""
        place = self.place
        return place.topic if place.partition is None else f"{place.topic}-{place.partition}"

    def shown(self, path: str) -> str:
        """Return a path as short as it is clear: with its partition, without what is above."""
        directory, _, name = path.rpartition("/")
        return f"{os.path.basename(directory)}/{name}" if directory else path


def find_targets(words: Sequence[str], *, config: LogConfig | None = None) -> list[Target]:
    """Return what the words name. Behind a store's directory, a word without a slash names a topic or partition of it.

    Nothing is opened or changed.
    """
    config = config or LogConfig()
    found: list[Target] = []
    store: list[Target] | None = None
    is_narrowed = False
    for number, word in enumerate(words):
        if store is not None and "/" not in word and not names.is_url(word) and (inside := _inside(store, word)):
            found = [*(found if is_narrowed else found[: -len(store)]), *inside]
            is_narrowed = True
            continue
        is_path = not number or "/" in word or names.is_url(word) or os.path.exists(word)
        if not is_path and store is not None:
            raise TopicNotFound(f"there is no topic {word!r} in {store[0].root}{_nearest(store, word)}")
        there = _at_path(word, config)
        store, is_narrowed = (there, False) if there and there[0].root is not None else (None, False)
        found += there
    return found


def _inside(store: Sequence[Target], word: str) -> list[Target]:
    return [target for target in store if word in (target.place.topic, target.name)]


def _nearest(store: Sequence[Target], word: str) -> str:
    import difflib

    known = sorted({name for target in store for name in (target.place.topic, target.name)})
    nearest = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _at_path(word: str, config: LogConfig) -> list[Target]:
    if not names.is_url(word):
        if os.path.isfile(word):
            return [_of_file(word, config)]
        if not os.path.exists(word):
            raise NotALog(f"there is nothing at {word}; name a store, a partition's directory or a segment's file")
    root = absolute(word)
    files = open_archive(Origin(root=root).files(), root)
    territory = find_partitions(root, topics=None, config=config, files=files)
    return [Target(place=place, files=files, root=territory.root) for place in territory.places]


def _of_file(path: str, config: LogConfig) -> Target:
    directory, name = os.path.split(absolute(path))
    parsed = names.parse_segment_name(name)
    if parsed is None or parsed[1] not in (*names.SEGMENT_SUFFIXES, names.TRANSACTION_INDEX):
        raise UsageError(
            f"{path} is no file of a segment, such as {names.segment_name(0, names.LOG)}; look into it with: "
            f"seeklog dump {path}"
        )
    base_offset = parsed[0]
    if not os.path.exists(f"{directory}/{names.segment_name(base_offset, names.LOG)}"):
        raise NotALog(f"{path} belongs to a segment whose .log is not there; look into it with: seeklog dump {path}")
    files = OsFiles()
    (place,) = find_partitions(directory, topics=None, config=config, files=files).places
    return Target(place=replace(place), files=files, root=None, segment=base_offset)
