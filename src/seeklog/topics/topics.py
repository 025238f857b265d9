"""The topics of one store: asking for them, and changing them so that a crash leaves each whole or not there.

Thread contract: any thread may call anything. What changes the catalog holds `_changes`, and the file
`seeklog-topics.lock` against other processes, for as long as the change takes; the catalog is read anew under them.
`_lock` guards only the copy in memory.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from seeklog import names
from seeklog.clock import Clock
from seeklog.config import LogConfig, canonical_setting
from seeklog.errors import (
    InvalidConfig,
    LogClosed,
    SeeklogError,
    TopicExists,
    TopicNotFound,
    UsageError,
)
from seeklog.files import (
    Files,
    Lock,
    ReadOnlyFiles,
    retry_while_locked,
    sync_ancestors,
    take_lock,
    translate,
    translated,
)
from seeklog.log.side import RootLine, RootOffsets
from seeklog.names import TopicPartition
from seeklog.topics import layout
from seeklog.topics.catalog import (
    Catalog,
    CatalogFile,
    Topic,
    decode_catalog,
    encode_catalog,
    new_topic_id,
    write_catalog,
)

logger = logging.getLogger("seeklog")

# How often a reader looks for what a broker has done to the topics: that lists the directory of each partition.
BROKER_LOOK_S = 0.5
# How long a change waits for another process's change.
LOCK_WAIT_S = 10.0
# Kafka has no limit; this one keeps a slip of the keyboard from filling the disk with directories.
MAX_PARTITIONS = 10_000


class Topics:
    """Which topics there are, and what becomes of them."""

    def __init__(self, root: str, *, files: Files, clock: Clock, defaults: LogConfig, read_only: bool) -> None:
        self.root = root
        self._files = files
        self._clock = clock
        self._defaults = defaults
        self._read_only = read_only
        self._changes = threading.RLock()
        self._lock = threading.Lock()
        self._file = CatalogFile(files, root)
        self._bytes: bytes | None = None
        self._next_look = 0.0
        self.is_brokers = False
        """Whether a reader has found that a broker may run on the directory."""
        self._catalog: Catalog = {}
        self._there: Catalog = {}
        """Those of the catalog that exist for a user."""
        self.forget: Callable[[str], None] | None = None
        """Drops what others know of a topic that is deleted; set once there are others."""
        self._is_closed = False
        self.version = 0
        """Grows whenever this process learns that the topics are not as they were."""
        if read_only:
            self._take_in(*self._look())
        else:
            with self._changing():
                self._settle()

    # ------------------------------------------------------------ asking

    def refresh(self, *, at_once: bool = False) -> bool:
        """Read the catalog again if another process has changed it; tell whether it had.

        With `at_once` what a broker has done is looked for, too, however short ago that was done.
        """
        try:
            with self._lock:
                if at_once:
                    self._next_look = 0.0
                if not self._file.has_changed() and not self._is_look_due():
                    return False
                version = self.version
                self._take_in(*self._look())
                return self.version != version
        except OSError as error:
            raise translate(error, f"{self._file.path} cannot be read") from error

    def _look(self) -> tuple[Catalog, bytes | None]:
        """Return the catalog as it is on disk, and its bytes.

        Who may not write sees a broker's directories too; who may has taken them into the catalog.
        """
        data = self._file.read()
        if data is not None and data == self._bytes and not self._is_look_due():
            return self._catalog, data
        self._next_look = self._clock.monotonic() + BROKER_LOOK_S
        catalog = decode_catalog(data, path=self._file.path) if data is not None else {}
        if not self._read_only:
            # Whoever wrote it may have been killed before its name was durable; what is built on it must not be lost.
            self._files.sync_directory(self.root)
        if self._read_only:
            kinds = layout.check_root(self._files, self.root, create=False)
            self.is_brokers = names.META_PROPERTIES in kinds
            if self.is_brokers:
                catalog = layout.follow_broker(self._files, self.root, kinds, catalog)
            found = layout.find_topics(self._files, self.root, kinds, known=catalog)
            if found and self._file.read() != data:
                # A topic that is being made has its note in the catalog before its first directory: it is no broker's.
                return self._look()
            catalog |= found
        return catalog, data

    def _is_look_due(self) -> bool:
        """Tell whether to look at the directories: a broker changes the topics without a word in the catalog.

        None can where this process may write: they keep each other out.
        """
        if not self._read_only or isinstance(self._files, ReadOnlyFiles) or self._clock.monotonic() < self._next_look:
            return False
        try:
            return self._files.kind(f"{self.root}/{names.META_PROPERTIES}") == "file"
        except FileNotFoundError:
            return False

    def _take_in(self, catalog: Catalog, data: bytes | None) -> None:
        self._bytes = data
        if catalog != self._catalog:
            self._catalog = catalog
            self._there = {name: topic for name, topic in catalog.items() if topic.is_there}
            self.version += 1

    def close(self) -> None:
        """Change nothing any more."""
        self._is_closed = True
        self._file.close()

    def abandon(self) -> None:
        """Make the locks anew in a forked child: a thread that is not in it may have held them."""
        self._changes, self._lock = threading.RLock(), threading.Lock()

    def all(self) -> list[Topic]:
        """Return every topic, in the order of their names."""
        return [topic for _, topic in sorted(self._there.items())]

    def find(self, name: str) -> Topic:
        """Return a topic; one that is not there is looked for again, then the nearest name is told."""
        topic = self._there.get(name)
        if topic is None:
            names.check_topic_name(name)
            self.refresh()
            topic = self._there.get(name)
            if topic is None:
                raise TopicNotFound(f"there is no topic {name!r} in {self.root}{self._nearest(name)}")
        return topic

    def has(self, name: str) -> bool:
        """Tell whether there is such a topic."""
        with contextlib.suppress(TopicNotFound):
            self.find(name)
            return True
        return False

    def check(self, partition: TopicPartition) -> Topic:
        """Return the topic of a partition that lies in this store."""
        topic = self.find(partition.topic)
        if partition.partition not in topic.partitions:
            self.refresh()
            topic = self.find(partition.topic)
        if partition.partition not in topic.partitions:
            there = ", ".join(map(str, topic.partitions[:12])) + (", ..." if len(topic.partitions) > 12 else "")
            raise TopicNotFound(f"topic {topic.name!r} has no partition {partition.partition!r} here, only {there}")
        return topic

    def config_of(self, topic: Topic) -> LogConfig:
        """Return the configuration of a topic's partitions: its own words over the store's."""
        return self._defaults.with_settings(topic.config)

    def _nearest(self, name: str) -> str:
        import difflib  # only to word an error: it would cost every import 5 ms

        there = [topic.name for topic in self.all() if topic.name not in names.INTERNAL_TOPICS]
        nearest = difflib.get_close_matches(name, there, n=1)
        if nearest:
            return f"; did you mean {nearest[0]!r}?"
        return f"; it has {', '.join(there[:8])}{', ...' if len(there) > 8 else ''}" if there else "; it has none yet"

    # ------------------------------------------------------------ changing

    @contextlib.contextmanager
    def _changing(self, *, finishes: bool = True) -> Iterator[None]:
        """Hold the catalog's lock, with the catalog as it is on disk. A failing disk is told in our own words."""
        if self._read_only:
            raise UsageError(f"{self.root} is open read-only")
        if self._is_closed:
            raise LogClosed(f"the store at {self.root} is closed")
        with self._changes:
            lock = self._take_lock()
            try:
                with self._lock:
                    self._take_in(*self._look())
                if finishes:
                    # Nobody else is at it, so what is noted as being done was interrupted.
                    self._finish_changes()
                yield
            except OSError as error:
                raise translate(
                    error, f"{self.root} cannot be changed", when_full="the topics are as they were"
                ) from error
            finally:
                lock.close()

    def _take_lock(self) -> Lock:
        path = f"{self.root}/{names.TOPICS_LOCK}"
        with translated(f"{path} cannot be locked", when_full="nothing was changed"):
            return retry_while_locked(self._clock, LOCK_WAIT_S, lambda: take_lock(self._files, path))

    def _write(self, catalog: Catalog) -> None:
        data = encode_catalog(catalog)
        write_catalog(self._files, self.root, data)
        with self._lock:
            self._take_in(catalog, data)

    def _put(self, topic: Topic) -> None:
        self._write(self._catalog | {topic.name: topic})

    def _drop(self, name: str) -> None:
        self._write({key: topic for key, topic in self._catalog.items() if key != name})

    def _settle(self) -> None:
        """Take in the directories that a broker left, and remove what was deleted."""
        self._remove_discarded()
        with contextlib.suppress(FileNotFoundError):
            # A broker that finds its mark trusts every file. From here on files change: the next one must look.
            self._files.remove(f"{self.root}/{names.CLEAN_SHUTDOWN}")
            self._files.sync_directory(self.root)
        kinds = layout.check_root(self._files, self.root, create=True)
        catalog = self._catalog
        if names.META_PROPERTIES in kinds:
            catalog = layout.follow_broker(self._files, self.root, kinds, catalog)
            for before in self._catalog.values():
                if before != (now := catalog.get(before.name)):
                    logger.warning("%s: %s", self.root, _describe_change(before, now))
        found = layout.find_topics(self._files, self.root, kinds, known=catalog)
        if found:
            logger.info("%s: found topics that no catalog had: %s", self.root, ", ".join(sorted(found)))
        if found or catalog != self._catalog or self._bytes is None:
            self._write(catalog | found)
            sync_ancestors(self._files, self.root)

    def _finish_changes(self) -> None:
        """Undo or finish what a crash or an interrupt left half done."""
        for topic in [topic for topic in self._catalog.values() if topic.change is not None]:
            if topic.change != "delete":
                self._undo(topic)
                self._remove_discarded()
            elif self.forget is not None:
                try:
                    with self._locked(topic) as present:
                        self._finish_delete(topic, present)
                    self._remove_discarded()
                except (OSError, SeeklogError) as error:
                    # The topic is gone for everybody; that its files are not is no reason to refuse other changes.
                    logger.warning("%s: topic %s is deleted, but not yet removed: %s", self.root, topic.name, error)

    def _undo(self, topic: Topic) -> None:
        with self._locked(topic) as present:
            layout.discard_partitions(self._files, self.root, present)
        if topic.change == "create":
            self._drop(topic.name)
        else:
            self._put(replace(topic, change=None, partitions_changing=()))

    def _locked(self, topic: Topic) -> contextlib.AbstractContextManager[list[TopicPartition]]:
        """Hold the locks of the partitions that change."""
        partitions = [TopicPartition(topic.name, number) for number in topic.partitions_changing]
        return layout.locked_partitions(self._files, self._clock, self.root, partitions)

    def _remove_discarded(self) -> None:
        layout.remove_discarded(self._files, self.root, self._files.kinds(self.root))

    def create(self, name: str, *, partitions: int, config: Mapping[str, Any]) -> Topic:
        """Make a topic: whole, or not at all."""
        names.check_topic_name(name)
        _check_count(partitions)
        made = Topic(
            name=name,
            topic_id=new_topic_id(),
            partitions=tuple(range(partitions)),
            config=self._checked_config({}, config),
        )
        with self._changing():
            if name in self._catalog:
                what = "has just been deleted and is not gone yet" if not self._catalog[name].is_there else "exists"
                raise TopicExists(f"topic {name!r} {what} in {self.root}; describe_topic tells how it is configured")
            self._check_no_directory(name)
            self._put(replace(made, change="create", partitions=(), partitions_changing=made.partitions))
            self._make(made, made.partitions)
        return made

    def _check_no_directory(self, name: str, *, first: int = 0) -> None:
        """Refuse to make partitions, from the `first` on, over directories that somebody else has put there."""
        for entry in self._files.kinds(self.root):
            partition = names.parse_partition_name(entry)
            if partition is not None and partition.topic == name and partition.partition >= first:
                raise TopicExists(
                    f"{self.root}/{entry} is there, though the catalog has it not; move it away. Nothing was changed"
                )

    def _make(self, topic: Topic, partitions: Collection[int]) -> None:
        """Make partitions that the catalog has as changing, and undo it if that fails; then show the topic."""
        config = self.config_of(topic)
        try:
            for number in partitions:
                layout.make_partition(
                    self._files,
                    self._clock,
                    self.root,
                    TopicPartition(topic.name, number),
                    topic_id=topic.topic_id,
                    config=config,
                )
            self._files.sync_directory(self.root)
        except (OSError, SeeklogError):
            # Where this fails too, the note in the catalog stays, and the next open undoes it.
            with contextlib.suppress(OSError, SeeklogError):
                self._undo(self._catalog[topic.name])
                self._remove_discarded()
            raise
        # If this fails, the catalog on disk has the note still, or the topic, whole, and only a sync is missing. So
        # nothing is undone by the copy in memory: the next change, or the next open, goes by what it finds there.
        self._put(topic)

    def grow(self, name: str, *, partitions: int) -> Topic:
        """Give a topic more partitions, so that it has `partitions` in all."""
        _check_count(partitions)
        with self._changing():
            topic = self._changeable(name)
            if partitions <= topic.partition_count:
                raise UsageError(
                    f"topic {name!r} has {topic.partition_count} partitions; it can get more, never fewer, so "
                    f"{partitions} cannot be"
                )
            added = tuple(range(topic.partition_count, partitions))
            self._check_no_directory(name, first=topic.partition_count)
            self._put(replace(topic, change="grow", partitions_changing=added))
            grown = replace(topic, partitions=topic.partitions + added)
            self._make(grown, added)
        return grown

    def alter(self, name: str, config: Mapping[str, Any]) -> Topic:
        """Change words of a topic's configuration; None takes one back to the store's."""
        with self._changing():
            topic = self._changeable(name)
            altered = replace(topic, config=self._checked_config(topic.config, config))
            self._put(altered)
        return altered

    def delete(self, name: str) -> None:
        """Take a topic away with all of its records.

        It is gone for everybody with the first write of the catalog; a crash after that is finished by the next
        open. Fails whole if another process writes one of its partitions.
        """
        with self._changing():
            topic = self._changeable(name)
            going = replace(topic, change="delete", partitions_changing=topic.partitions)
            with self._locked(going) as present:
                self._put(going)
                try:
                    self._finish_delete(going, present)
                except OSError as error:
                    goes_on = "the next change of a topic, or the next open, goes on with it"
                    raise translate(
                        error, f"topic {name!r} is deleted, but its files are not all removed", advice=goes_on
                    ) from error
            self._remove_discarded()

    def finish_deletes(self) -> None:
        """Finish the deletions that a crash interrupted, if there are any."""
        if any(topic.change == "delete" for topic in self._catalog.values()):
            with self._changing():
                pass

    def _finish_delete(self, topic: Topic, present: list[TopicPartition]) -> None:
        if self.forget is not None:
            self.forget(topic.name)
        layout.discard_partitions(self._files, self.root, present)
        # Before the name is free: a new topic of that name must not inherit these lines.
        self._write_root_offsets({}, without=topic.name)
        self._drop(topic.name)

    def write_root_offsets(self, known: Mapping[TopicPartition, tuple[str, RootLine]]) -> None:
        """Put what is known of partitions into Kafka's checkpoints; the lines of others stay.

        They come with the id of the topic that they are of: one made anew under its name must not get them.
        """
        # On a close there are no groups any more that could be made to forget a deleted topic.
        with self._changing(finishes=False):
            ids = {topic.name: topic.topic_id for topic in self.all()}
            self._write_root_offsets(
                {partition: offsets for partition, (of, offsets) in known.items() if ids.get(partition.topic) == of}
            )

    def _write_root_offsets(self, known: Mapping[TopicPartition, RootLine], *, without: str | None = None) -> None:
        offsets = RootOffsets.read(self._files, self.root)
        there = {TopicPartition(topic.name, n) for topic in self.all() for n in topic.partitions}
        if offsets.update(known, existing={partition for partition in there if partition.topic != without}):
            offsets.write(self._files, self.root)

    def _changeable(self, name: str) -> Topic:
        names.check_topic_name(name)
        topic = self._catalog.get(name)
        if topic is None or topic.change is not None:
            raise TopicNotFound(f"there is no topic {name!r} in {self.root}{self._nearest(name)}")
        return topic

    def _checked_config(self, before: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
        """Return a topic's words with others put in; checks that together they make a configuration."""
        if not isinstance(words, Mapping):
            raise UsageError(f"a configuration is a dict of words and values, not {type(words).__name__}")
        if len({canonical_setting(str(word)) for word in words}) < len(words):
            raise InvalidConfig("a configuration word is given twice, with dots and with underscores")
        merged = dict(before)
        given = self._defaults.with_settings({word: value for word, value in words.items() if value is not None})
        for word, value in words.items():
            name = str(word).replace(".", "_")
            if value is None:
                # An unknown word is refused here too: it is as likely a slip.
                self._defaults.with_settings({word: getattr(self._defaults, name, None)})
                merged.pop(canonical_setting(name), None)
            else:
                merged[canonical_setting(name)] = getattr(given, name)
        self._defaults.with_settings(merged)
        return merged


def _describe_change(before: Topic, now: Topic | None) -> str:
    """Say what a broker has done to a topic, with the configuration that nobody knows any more."""
    if now is None:
        return f"a broker has deleted topic {before.name!r}; its configuration was {dict(before.config)}"
    if now.topic_id != before.topic_id:
        return f"a broker has recreated topic {before.name!r}; its configuration was {dict(before.config)}"
    return f"a broker has given topic {before.name!r} more partitions: {now.partition_count}"


def _check_count(partitions: int) -> None:
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 1 <= partitions <= MAX_PARTITIONS:
        raise UsageError(f"a topic has 1 to {MAX_PARTITIONS:,} partitions, not {partitions!r}")
