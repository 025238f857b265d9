"""The topics of one store: lookups, and changes that a crash leaves either complete or undone.

Thread contract: any thread may call any method. A change holds `_changes`, and against other processes the file
`seeklog-topics.lock`, from start to end; the catalog is read again under both. `_lock` guards only the copy in memory.
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

# How often a reader checks for a broker's changes to the topics, which means listing every partition's directory.
BROKER_CHECK_S = 0.5
# How long a change waits for another process's change.
LOCK_WAIT_S = 10.0
# Kafka has no limit. This one keeps a typing error from filling the disk with directories.
MAX_PARTITIONS = 10_000


class Topics:
    """The topics of a store. Any thread may call any method."""

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
        self._next_check = 0.0
        self.is_brokers = False
        """Whether a reader has found that a broker may be running on the directory."""
        self._catalog: Catalog = {}
        self._existing: Catalog = {}
        """The topics of the catalog that exist for users: not those being created or deleted."""
        self.forget: Callable[[str], None] | None = None
        """Deletes the groups' offsets of a deleted topic. Set once the groups exist."""
        self._is_closed = False
        self.version = 0
        """Incremented whenever this process sees that the topics have changed."""
        if read_only:
            self._adopt(*self._read_disk())
        else:
            with self._changing():
                self._settle()

    # ------------------------------------------------------------ lookups

    def refresh(self, *, at_once: bool = False) -> bool:
        """Read the catalog again if another process has changed it. Return whether the topics changed.

        With `at_once`, also check for a broker's changes, even if the last check was just now.
        """
        try:
            with self._lock:
                if at_once:
                    self._next_check = 0.0
                if not self._file.has_changed() and not self._is_check_due():
                    return False
                version = self.version
                self._adopt(*self._read_disk())
                return self.version != version
        except OSError as error:
            raise translate(error, f"{self._file.path} cannot be read") from error

    def _read_disk(self) -> tuple[Catalog, bytes | None]:
        """Return the catalog as it is on disk, and its bytes.

        A read-only store adds a broker's directories. A writable one has adopted them into the catalog.
        """
        data = self._file.read()
        if data is not None and data == self._bytes and not self._is_check_due():
            return self._catalog, data
        self._next_check = self._clock.monotonic() + BROKER_CHECK_S
        catalog = decode_catalog(data, path=self._file.path) if data is not None else {}
        if not self._read_only:
            # The process that wrote it may have died before the rename was durable; what builds on it must not be lost.
            self._files.sync_directory(self.root)
        if self._read_only:
            kinds = layout.check_root(self._files, self.root, create=False)
            self.is_brokers = names.META_PROPERTIES in kinds
            if self.is_brokers:
                catalog = layout.follow_broker(self._files, self.root, kinds, catalog)
            found = layout.find_topics(self._files, self.root, kinds, known=catalog)
            if found and self._file.read() != data:
                # A topic that is being created is in the catalog before its first directory: it is not a broker's.
                return self._read_disk()
            catalog |= found
        return catalog, data

    def _is_check_due(self) -> bool:
        """Return whether to check the directories. A broker changes topics without writing to the catalog.

        Not needed in a writable store: the store and the broker lock each other out.
        """
        if not self._read_only or isinstance(self._files, ReadOnlyFiles) or self._clock.monotonic() < self._next_check:
            return False
        try:
            return self._files.kind(f"{self.root}/{names.META_PROPERTIES}") == "file"
        except FileNotFoundError:
            return False

    def _adopt(self, catalog: Catalog, data: bytes | None) -> None:
        self._bytes = data
        if catalog != self._catalog:
            self._catalog = catalog
            self._existing = {name: topic for name, topic in catalog.items() if topic.is_there}
            self.version += 1

    def close(self) -> None:
        """Allow no more changes."""
        self._is_closed = True
        self._file.close()

    def abandon(self) -> None:
        """Replace the locks in a forked child: a thread of the parent may have held them."""
        self._changes, self._lock = threading.RLock(), threading.Lock()

    def all(self) -> list[Topic]:
        """Return every topic, sorted by name."""
        return [topic for _, topic in sorted(self._existing.items())]

    def find(self, name: str) -> Topic:
        """Return a topic. If it is unknown, read the catalog again; the error names the nearest match."""
        topic = self._existing.get(name)
        if topic is None:
            names.check_topic_name(name)
            self.refresh()
            topic = self._existing.get(name)
            if topic is None:
                raise TopicNotFound(f"there is no topic {name!r} in {self.root}{self._nearest(name)}")
        return topic

    def has(self, name: str) -> bool:
        """Return whether a topic exists."""
        with contextlib.suppress(TopicNotFound):
            self.find(name)
            return True
        return False

    def check(self, partition: TopicPartition) -> Topic:
        """Return the topic of a partition, or raise `TopicNotFound` if this store does not hold the partition."""
        topic = self.find(partition.topic)
        if partition.partition not in topic.partitions:
            self.refresh()
            topic = self.find(partition.topic)
        if partition.partition not in topic.partitions:
            there = ", ".join(map(str, topic.partitions[:12])) + (", ..." if len(topic.partitions) > 12 else "")
            raise TopicNotFound(f"topic {topic.name!r} has no partition {partition.partition!r} here, only {there}")
        return topic

    def config_of(self, topic: Topic) -> LogConfig:
        """Return the configuration of a topic's partitions: its own settings over the store's."""
        return self._defaults.with_settings(topic.config)

    def _nearest(self, name: str) -> str:
        import difflib  # only for an error message: it would add 5 ms to every import

        there = [topic.name for topic in self.all() if topic.name not in names.INTERNAL_TOPICS]
        nearest = difflib.get_close_matches(name, there, n=1)
        if nearest:
            return f"; did you mean {nearest[0]!r}?"
        if not there:
            return "; it has none yet, create one with create_topic"
        return f"; it has {', '.join(there[:8])}{', ...' if len(there) > 8 else ''}"

    # ------------------------------------------------------------ changing

    @contextlib.contextmanager
    def _changing(self, *, finishes: bool = True) -> Iterator[None]:
        """Hold the catalog's lock, with the catalog read from disk. Translates a disk's errors."""
        if self._read_only:
            raise UsageError(f"{self.root} is open read-only; open it without read_only to change topics")
        if self._is_closed:
            raise LogClosed(f"the store at {self.root} is closed; open it again")
        with self._changes:
            lock = self._take_lock()
            try:
                with self._lock:
                    self._adopt(*self._read_disk())
                if finishes:
                    # With the lock held, any change noted in the catalog was interrupted.
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
            self._adopt(catalog, data)

    def _put(self, topic: Topic) -> None:
        self._write(self._catalog | {topic.name: topic})

    def _drop(self, name: str) -> None:
        self._write({key: topic for key, topic in self._catalog.items() if key != name})

    def _settle(self) -> None:
        """Adopt the directories that a broker left, and remove those of deleted topics."""
        self._remove_discarded()
        with contextlib.suppress(FileNotFoundError):
            # A broker that finds this file trusts every segment. Segments change from here on, so it must check them.
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
            logger.info("%s: found topics that are not in the catalog: %s", self.root, ", ".join(sorted(found)))
        if found or catalog != self._catalog or self._bytes is None:
            self._write(catalog | found)
            sync_ancestors(self._files, self.root)

    def _finish_changes(self) -> None:
        """Undo or finish the changes that a crash or an error interrupted."""
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
                    # The topic no longer exists for users. Leftover files do not prevent other changes.
                    logger.warning("%s: topic %s is deleted, but its files remain: %s", self.root, topic.name, error)

    def _undo(self, topic: Topic) -> None:
        with self._locked(topic) as present:
            layout.discard_partitions(self._files, self.root, present)
        if topic.change == "create":
            self._drop(topic.name)
        else:
            self._put(replace(topic, change=None, partitions_changing=()))

    def _locked(self, topic: Topic) -> contextlib.AbstractContextManager[list[TopicPartition]]:
        """Hold the locks of the partitions that are changing."""
        partitions = [TopicPartition(topic.name, number) for number in topic.partitions_changing]
        return layout.locked_partitions(self._files, self._clock, self.root, partitions)

    def _remove_discarded(self) -> None:
        layout.remove_discarded(self._files, self.root, self._files.kinds(self.root))

    def create(self, name: str, *, partitions: int, config: Mapping[str, Any]) -> Topic:
        """Create a topic, completely or not at all."""
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
                what = "was just deleted and is still being removed" if not self._catalog[name].is_there else "exists"
                raise TopicExists(f"topic {name!r} {what} in {self.root}; describe_topic returns its configuration")
            self._check_no_directory(name)
            self._put(replace(made, change="create", partitions=(), partitions_changing=made.partitions))
            self._make(made, made.partitions)
        return made

    def _check_no_directory(self, name: str, *, first: int = 0) -> None:
        """Refuse to create partitions, from number `first` on, over existing directories that are not the store's."""
        for entry in self._files.kinds(self.root):
            partition = names.parse_partition_name(entry)
            if partition is not None and partition.topic == name and partition.partition >= first:
                raise TopicExists(
                    f"{self.root}/{entry} exists, but the catalog does not list it. Move it away; nothing was changed"
                )

    def _make(self, topic: Topic, partitions: Collection[int]) -> None:
        """Create partitions that the catalog lists as changing, then publish the topic. Undo it on failure."""
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
            # If the undo fails as well, the note in the catalog stays, and the next open undoes the change.
            with contextlib.suppress(OSError, SeeklogError):
                self._undo(self._catalog[topic.name])
                self._remove_discarded()
            raise
        # If this write fails, the catalog on disk has either the note or the complete topic, and only a sync may be
        # missing. The copy in memory does not show which, so nothing is undone: the next change or open reads the file.
        self._put(topic)

    def grow(self, name: str, *, partitions: int) -> Topic:
        """Add partitions to a topic until it has `partitions`."""
        _check_count(partitions)
        with self._changing():
            topic = self._changeable(name)
            if partitions <= topic.partition_count:
                raise UsageError(
                    f"topic {name!r} has {topic.partition_count} partitions, and partitions can only be added; pass a "
                    f"number above {topic.partition_count}, not {partitions}"
                )
            added = tuple(range(topic.partition_count, partitions))
            self._check_no_directory(name, first=topic.partition_count)
            self._put(replace(topic, change="grow", partitions_changing=added))
            grown = replace(topic, partitions=topic.partitions + added)
            self._make(grown, added)
        return grown

    def alter(self, name: str, config: Mapping[str, Any]) -> Topic:
        """Change settings of a topic. The value None resets a setting to the store's."""
        with self._changing():
            topic = self._changeable(name)
            altered = replace(topic, config=self._checked_config(topic.config, config))
            self._put(altered)
        return altered

    def delete(self, name: str) -> None:
        """Delete a topic and all of its records.

        The first write of the catalog deletes it for every process. After a crash the next open finishes the rest.
        Raises `LogLocked`, and deletes nothing, if another process writes one of the partitions.
        """
        with self._changing():
            topic = self._changeable(name)
            going = replace(topic, change="delete", partitions_changing=topic.partitions)
            with self._locked(going) as present:
                self._put(going)
                try:
                    self._finish_delete(going, present)
                except OSError as error:
                    advice = "the next change of a topic, or the next open, removes the rest"
                    raise translate(
                        error, f"topic {name!r} is deleted, but its files are not all removed", advice=advice
                    ) from error
            self._remove_discarded()

    def finish_deletes(self) -> None:
        """Finish deletions that a crash interrupted."""
        if any(topic.change == "delete" for topic in self._catalog.values()):
            with self._changing():
                pass

    def _finish_delete(self, topic: Topic, present: list[TopicPartition]) -> None:
        if self.forget is not None:
            self.forget(topic.name)
        layout.discard_partitions(self._files, self.root, present)
        # Before the name is free: a new topic of that name must not inherit these values.
        self._write_root_offsets({}, without=topic.name)
        self._drop(topic.name)

    def write_root_offsets(self, known: Mapping[TopicPartition, tuple[str, RootLine]]) -> None:
        """Update partitions in Kafka's checkpoints. The values of other partitions stay.

        Each update comes with its topic id: a recreated topic must not get values of its predecessor.
        """
        # When the store closes, the groups are gone, so no interrupted deletion can be finished.
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

    def _checked_config(self, before: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return `before` with `settings` applied. Checks that the result is a valid configuration."""
        if not isinstance(settings, Mapping):
            raise UsageError(f"a configuration must be a dict of settings and values, not {type(settings).__name__}")
        if len({canonical_setting(str(setting)) for setting in settings}) < len(settings):
            raise InvalidConfig("a setting is given twice, with dots and with underscores; pass it once")
        merged = dict(before)
        given = self._defaults.with_settings(
            {setting: value for setting, value in settings.items() if value is not None}
        )
        for setting, value in settings.items():
            name = str(setting).replace(".", "_")
            if value is None:
                # Refuse an unknown setting here too: it is as likely a typing error.
                self._defaults.with_settings({setting: getattr(self._defaults, name, None)})
                merged.pop(canonical_setting(name), None)
            else:
                merged[canonical_setting(name)] = getattr(given, name)
        self._defaults.with_settings(merged)
        return merged


def _describe_change(before: Topic, now: Topic | None) -> str:
    """Describe what a broker did to a topic, with the configuration that is lost."""
    if now is None:
        return f"a broker has deleted topic {before.name!r}; its configuration was {dict(before.config)}"
    if now.topic_id != before.topic_id:
        return f"a broker has recreated topic {before.name!r}; its configuration was {dict(before.config)}"
    return f"a broker has added partitions to topic {before.name!r}: it has {now.partition_count}"


def _check_count(partitions: int) -> None:
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 1 <= partitions <= MAX_PARTITIONS:
        raise UsageError(f"a topic must have 1 to {MAX_PARTITIONS:,} partitions, not {partitions!r}")
