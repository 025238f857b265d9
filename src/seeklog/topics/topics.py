"""The topics of one store: lookups, and changes that a crash leaves either complete or undone.

Thread contract: any thread may call any method. A change holds `_changes`, and against other processes the file
`seeklog-topics.lock`, from start to end; the catalog is read again under both. `_lock` guards only the copy in memory.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from seeklog import names
from seeklog.arguments import check_whole_number
from seeklog.clock import Clock
from seeklog.config import LogConfig, canonical_setting
from seeklog.errors import (
    InvalidConfig,
    LogClosed,
    SeeklogError,
    TopicExists,
    TopicNotFound,
    UsageError,
    counted,
)
from seeklog.files import (
    Files,
    Kind,
    Lock,
    ReadOnlyFiles,
    retry_while_locked,
    sync_ancestors,
    take_lock,
    translate,
    translated,
)
from seeklog.log.side import RootLine, RootOffsets, root_names_topic
from seeklog.names import TopicPartition
from seeklog.topics import layout
from seeklog.topics.catalog import Catalog, Change, Topic, being_deleted, deleted, deleting, new_topic_id, opened, put
from seeklog.topics.catalog_file import CatalogFile
from seeklog.topics.cluster_settings import ClusterSettings

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
        self.clock = clock
        self._defaults = defaults
        self._read_only = read_only
        self._changes = threading.RLock()
        self._changer: int | None = None
        """The thread that holds the catalog's lock."""
        self._lock = threading.Lock()
        self._file = CatalogFile(files, root)
        self._cluster_settings = ClusterSettings(files, root, defaults=defaults)
        self._next_check = 0.0
        self.is_brokers = False
        """Whether a reader has found that a broker may be running on the directory."""
        self._catalog: Catalog = {}
        self._existing: Catalog = {}
        """The topics of the catalog that exist for users: not those being created or deleted."""
        self._sorted: list[Topic] | None = None
        """The same in the order of their names; None if they changed since the last call of `all`."""
        self._unfinished: set[str] = set()
        """The topics of the catalog with a change that was not finished."""
        self._opened: set[tuple[str, int]] = set()
        """Partitions, by topic id, that this process has opened to write and that the catalog lists as unopened."""
        self.has_old_root_lines = True
        """Whether Kafka's checkpoints may have lines of deleted topics. A killed process may have left some."""
        self.forget: Callable[[str], None] | None = None
        """Deletes the groups' offsets of a deleted topic. Set once the groups exist."""
        self._is_closed = False
        self.change_count = 0
        """How many changes this process has written."""
        self.version = 0
        """Incremented whenever this process sees that the topics have changed."""
        if read_only:
            self._read_whole()
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
                if not self._file.has_changed() and not (self._read_only and self._is_check_due()):
                    return False
                version = self.version
                self._read()
                return self.version != version
        except OSError as error:
            raise translate(error, f"{self._file.path} cannot be read") from error

    def _read(self) -> None:
        """Read what has changed on disk. The caller holds `_lock`."""
        changed = None if self._is_check_due() else self._file.follow()
        if changed is None:
            self._read_whole()
        elif changed:
            if not self._read_only:
                # The process that appended it may have died before its sync; what builds on it must not be lost.
                self._file.make_durable(name=False)
            self._adopt_changes(changed)

    def _read_whole(self) -> None:
        """Read the whole catalog. A read-only store adds a broker's directories; a writable one has adopted them."""
        self._next_check = self.clock.monotonic() + BROKER_CHECK_S
        self._file.read()
        catalog = dict(self._file.topics)
        if not self._read_only:
            self._file.make_durable(name=True)
        else:
            kinds = layout.check_root(self._files, self.root, create=False)
            self.is_brokers = names.META_PROPERTIES in kinds
            followed = layout.follow_broker(self._files, self.root, kinds, catalog) if self.is_brokers else catalog
            found = layout.find_topics(self._files, self.root, kinds, known=followed)
            if found and self._file.was_read and self._file.has_changed():
                # A topic is in the catalog before its first directory: it is not a broker's.
                self._read_whole()
                return
            catalog = self._cluster_settings.apply(followed | found, before=catalog, kinds=kinds)
        self._adopt(catalog)

    def _is_check_due(self) -> bool:
        """Return whether to check the directories. A broker changes topics without writing to the catalog.

        Not needed in a writable store: the store and the broker lock each other out.
        """
        if not self._read_only or isinstance(self._files, ReadOnlyFiles) or self.clock.monotonic() < self._next_check:
            return False
        return layout.is_brokers(self._files, self.root)

    def _adopt(self, catalog: Catalog) -> None:
        has_changed = catalog != self._catalog
        self._catalog = catalog
        self._existing = {name: topic for name, topic in catalog.items() if topic.is_there}
        self._unfinished = {name for name, topic in catalog.items() if topic.change is not None}
        self._sorted = None
        self.version += has_changed

    def _adopt_changes(self, changed: Iterable[str]) -> None:
        """Copy the entries of changed topics from the file's catalog. The caller holds `_lock`."""
        for name in changed:
            before, now = self._catalog.pop(name, None), self._file.topics.get(name)
            self._unfinished.discard(name)
            if now is not None:
                self._catalog[name] = now
                if now.change is not None:
                    self._unfinished.add(name)
            # In one step: other threads look topics up without a lock.
            if now is not None and now.is_there:
                self._existing[name] = now
            else:
                self._existing.pop(name, None)
            self._sorted = None
            self.version += now != before

    def close(self) -> None:
        """Allow no more changes."""
        self._is_closed = True
        self._file.close()

    def abandon(self) -> None:
        """Replace the locks in a forked child: a thread of the parent may have held them."""
        self._changes, self._lock = threading.RLock(), threading.Lock()
        self._changer = None
        self.change_count = 0

    def all(self) -> list[Topic]:
        """Return every topic, sorted by name."""
        with self._lock:
            if self._sorted is None:
                self._sorted = [topic for _, topic in sorted(self._existing.items())]
            return list(self._sorted)

    def count(self) -> tuple[int, int]:
        """Return the number of topics and of their partitions, as this process knows them. Takes no lock."""
        existing = list(self._existing.values())
        return len(existing), sum(topic.partition_count for topic in existing)

    def find(self, name: str) -> Topic:
        """Return a topic. If it is unknown, read the catalog again; the error names the nearest match."""
        topic = self._existing.get(name)
        if topic is None and self.has(name):
            topic = self._existing.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name!r} in {self.root}{self._nearest(name)}")
        return topic

    def has(self, name: str) -> bool:
        """Return whether a topic exists. If it is unknown, read the catalog again."""
        if name not in self._existing:
            names.check_topic_name(name)
            self.refresh()
        return name in self._existing

    def check(self, partition: TopicPartition) -> Topic:
        """Return the topic of a partition, or raise `TopicNotFound` if this store does not hold the partition."""
        topic = self.find(partition.topic)
        number, partitions = partition.partition, topic.partitions
        # Usually all partitions are here, each at its own place; a search among thousands takes long.
        if type(number) is int and 0 <= number < len(partitions) and partitions[number] == number:
            return topic
        if number not in partitions:
            self.refresh()
            topic = self.find(partition.topic)
        if partition.partition not in topic.partitions:
            there = ", ".join(map(str, topic.partitions[:12])) + (", ..." if len(topic.partitions) > 12 else "")
            raise TopicNotFound(f"topic {topic.name!r} has no partition {partition.partition!r} here, only {there}")
        return topic

    def config_of(self, topic: Topic) -> LogConfig:
        """Return the configuration of a topic's partitions: its own settings over the store's."""
        return self._defaults.with_settings(topic.config)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise `InvalidConfig` unless a new topic could have these settings."""
        self._checked_config({}, settings)

    def owner_of(self, name: str, setting: str) -> str:
        """Return who sets a setting of a topic, for messages: the topic itself, or the store's default."""
        topic = self._existing.get(name)
        return f"topic {name}" if topic is not None and setting in topic.config else "the store's default"

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
            self._changer = threading.get_ident()
            try:
                with self._lock:
                    if self._file.has_changed():
                        self._read()
                if finishes:
                    # With the lock held, any change noted in the catalog was interrupted.
                    self._finish_changes()
                yield
            except OSError as error:
                raise translate(
                    error, f"{self.root} cannot be changed", when_full="the topics are as they were"
                ) from error
            finally:
                self._changer = None
                lock.close()

    def _take_lock(self) -> Lock:
        path = f"{self.root}/{names.TOPICS_LOCK}"
        with translated(f"{path} cannot be locked", when_full="nothing was changed"):
            return retry_while_locked(self.clock, LOCK_WAIT_S, lambda: take_lock(self._files, path))

    def _commit(self, change: Change, *, is_deletion: bool = False) -> None:
        """Make a change of the catalog durable, and adopt it."""
        with self._lock:
            self._adopt_changes(self._file.commit(change, is_deletion=is_deletion))
            self.change_count += 1

    def _settle(self) -> None:
        """Adopt the directories that a broker left, and remove those of deleted topics."""
        kinds = layout.check_root(self._files, self.root, create=True)
        layout.remove_directories(self._files, self.root, layout.find_discarded(kinds))
        catalog = self._catalog
        if names.META_PROPERTIES in kinds:
            catalog = layout.follow_broker(self._files, self.root, kinds, catalog)
        else:
            self._prepare_missing(kinds)
        found = layout.find_topics(self._files, self.root, kinds, known=catalog)
        if found:
            logger.info("%s: found topics that are not in the catalog: %s", self.root, ", ".join(sorted(found)))
        catalog = self._cluster_settings.apply(catalog | found, before=self._catalog, kinds=kinds)
        for before in self._catalog.values():
            if before != (now := catalog.get(before.name)):
                logger.warning("%s: %s", self.root, _describe_change(before, now))
        if catalog != self._catalog or not self._file.was_read:
            with self._lock:
                self._file.replace(dict(catalog))
                self._adopt(catalog)
            sync_ancestors(self._files, self.root)
        # The catalog comes first: this file shows that the cluster's settings may have changed.
        with contextlib.suppress(FileNotFoundError):
            # A broker that finds this file trusts every segment. Segments change from here on, so it must check them.
            self._files.remove(f"{self.root}/{names.CLEAN_SHUTDOWN}")
            self._files.sync_directory(self.root)

    def _prepare_missing(self, kinds: Mapping[str, Kind]) -> None:
        """Create the directories that a power loss took from partitions without records."""
        for topic in self._existing.values():
            for number in topic.unopened:
                partition = TopicPartition(topic.name, number)
                if str(partition) not in kinds:
                    layout.prepare_partition(self._files, self.root, partition, topic_id=topic.topic_id, durable=False)

    def _finish_changes(self) -> None:
        """Undo or finish the changes that a crash or an error interrupted."""
        for topic in [self._catalog[name] for name in sorted(self._unfinished)]:
            if topic.change != "delete":
                self._undo(topic)
            elif self.forget is not None:
                try:
                    # Those that the interrupted deletion has renamed.
                    kinds = self._files.kinds(self.root)
                    layout.remove_directories(self._files, self.root, layout.find_discarded(kinds))
                    with self._locked(topic) as present:
                        self._finish_delete(topic, present)
                except (OSError, SeeklogError) as error:
                    # The topic no longer exists for users. Leftover files do not prevent other changes.
                    logger.warning("%s: topic %s is deleted, but its files remain: %s", self.root, topic.name, error)

    def _undo(self, topic: Topic, *, keeps_opened: bool = False) -> None:
        """Remove the partitions that are changing, and the topic if it has no others.

        With `keeps_opened`, nothing is removed if a writer has opened one of them.
        """
        with self._locked(topic, are_new=keeps_opened) as present:
            if keeps_opened and any(layout.is_opened(self._files, self.root, partition) for partition in present):
                return
            discarded = layout.discard_partitions(self._files, self.root, present)
            kept = tuple(number for number in topic.partitions if number not in topic.partitions_changing)
            unopened = tuple(number for number in topic.unopened if number in kept)
            undone = replace(topic, partitions=kept, unopened=unopened, change=None, partitions_changing=())
            self._commit(put(undone) if kept else deleted(topic.name), is_deletion=not kept)
        layout.remove_directories(self._files, self.root, discarded)

    def _locked(
        self, topic: Topic, *, are_new: bool = False
    ) -> contextlib.AbstractContextManager[list[TopicPartition]]:
        """Hold the locks of the partitions that are changing."""
        partitions = [TopicPartition(topic.name, number) for number in topic.partitions_changing]
        return layout.locked_partitions(self._files, self.clock, self.root, partitions, are_new=are_new)

    def create(self, name: str, *, partitions: int, config: Mapping[str, Any]) -> Topic:
        """Create a topic, completely or not at all."""
        names.check_topic_name(name)
        _check_count(partitions)
        made = Topic(
            name=name,
            topic_id=new_topic_id(),
            partitions=tuple(range(partitions)),
            config=self._checked_config({}, config),
            unopened=tuple(range(partitions)),
        )
        with self._changing():
            if name in self._catalog:
                what = "was just deleted and is still being removed" if not self._catalog[name].is_there else "exists"
                raise TopicExists(f"topic {name!r} {what} in {self.root}; describe_topic returns its configuration")
            self._make(made, made.partitions)
        return made

    def _make(self, topic: Topic, added: tuple[int, ...]) -> None:
        """Publish a topic with partitions that are new, and create their directories. Undo it on failure.

        The topic exists as soon as its entry is durable. What a crash leaves out of the directories is created when
        they are used.
        """
        layout.check_no_directory(self._files, self.root, topic.name, added)
        self._drop_root_lines(topic.name)
        self._commit(put(topic))
        try:
            for number in added:
                layout.prepare_partition(
                    self._files,
                    self.root,
                    TopicPartition(topic.name, number),
                    topic_id=topic.topic_id,
                    durable=False,
                )
            if layout.is_brokers(self._files, self.root):
                # There a missing directory means that the broker has deleted the topic.
                self._files.sync_directory(self.root)
        except BaseException:
            # If the undo fails as well, or another process already has records in it, the topic exists.
            with contextlib.suppress(OSError, SeeklogError):
                self._undo(replace(topic, partitions_changing=added), keeps_opened=True)
            raise

    def grow(self, name: str, *, partitions: int) -> Topic:
        """Add partitions to a topic until it has `partitions`."""
        _check_count(partitions)
        with self._changing():
            topic = self._changeable(name)
            if partitions <= topic.partition_count:
                raise UsageError(
                    f"topic {name!r} has {counted(topic.partition_count, 'partition')}, and partitions can only be "
                    f"added; pass a number above {topic.partition_count}, not {partitions}"
                )
            added = tuple(range(topic.partition_count, partitions))
            grown = replace(topic, partitions=topic.partitions + added, unopened=topic.unopened + added)
            self._make(grown, added)
        return grown

    def alter(self, name: str, config: Mapping[str, Any]) -> Topic:
        """Change settings of a topic. The value None resets a setting to the store's."""
        with self._changing():
            topic = self._changeable(name)
            altered = replace(topic, config=self._checked_config(topic.config, config))
            self._commit(put(altered))
        return altered

    def delete(self, name: str) -> None:
        """Delete a topic and all of its records.

        The first change of the catalog deletes it for every process. After a crash the next open finishes the rest.
        Raises `LogLocked`, and deletes nothing, if another process writes one of the partitions.
        """
        with self._changing():
            topic = self._changeable(name)
            going = being_deleted(topic)
            with self._locked(going) as present:
                self._commit(deleting(name), is_deletion=True)
                try:
                    self._finish_delete(going, present)
                except OSError as error:
                    advice = "the next change of a topic, or the next open, removes the rest"
                    raise translate(
                        error, f"topic {name!r} is deleted, but its files are not all removed", advice=advice
                    ) from error

    def finish_deletes(self) -> None:
        """Finish deletions that a crash interrupted."""
        if self._unfinished:
            with self._changing():
                pass

    def _finish_delete(self, topic: Topic, present: list[TopicPartition]) -> None:
        """Delete what belongs to a topic."""
        discarded = layout.discard_partitions(self._files, self.root, present)
        # On a full disk, what follows needs the space of the records.
        layout.remove_directories(self._files, self.root, discarded)
        if self.forget is not None:
            self.forget(topic.name)
        self._commit(deleted(topic.name), is_deletion=True)
        self.has_old_root_lines = True

    # ------------------------------------------------------------ partitions that no writer has opened

    def is_unopened(self, partition: TopicPartition) -> bool:
        """Return whether no writer has opened a partition. The catalog may learn of another process's late."""
        name, number = partition
        topic = self._existing.get(name)
        return topic is not None and number in topic.unopened and (topic.topic_id, number) not in self._opened

    def prepare(self, partition: TopicPartition, *, durable: bool) -> str:
        """Create what is missing of a partition, if its topic still exists. Return the topic's id. Raises `OSError`.

        Takes only the lock that other processes respect, and waits for it a limited time: the caller may hold a log
        for which a change is waiting.
        """
        lock = None if self._changer == threading.get_ident() else self._take_lock()
        try:
            self.refresh(at_once=True)
            topic = self.check(partition)
            if partition.partition in topic.unopened:
                layout.prepare_partition(self._files, self.root, partition, topic_id=topic.topic_id, durable=durable)
            return topic.topic_id
        finally:
            if lock is not None:
                lock.close()

    def has_broker_format(self) -> bool:
        """Return whether a broker has formatted the directory."""
        return layout.is_brokers(self._files, self.root)

    def note_opened(self, partition: TopicPartition, *, topic_id: str) -> None:
        """Note that a writer has opened a partition and everything in it is durable, for `write_opened`."""
        with self._lock:
            self._opened.add((topic_id, partition.partition))

    def write_opened(self) -> None:
        """Write to the catalog which partitions have been opened. From then on, missing files of theirs are a loss."""
        if not self._opened:
            return
        with self._changing(finishes=False):
            noted = set(self._opened)
            by_id = {topic.topic_id: topic for topic in self.all() if topic.unopened}
            known: dict[str, tuple[int, ...]] = {}
            for topic_id, number in sorted(noted):
                topic = by_id.get(topic_id)
                if topic is not None and number in topic.unopened:
                    known[topic.name] = (*known.get(topic.name, ()), number)
            if known:
                self._commit(opened(known))
            with self._lock:
                self._opened -= noted

    # ------------------------------------------------------------ Kafka's checkpoints

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
            self.has_old_root_lines = False

    def _drop_root_lines(self, name: str) -> None:
        """Remove what a deleted topic of this name left in Kafka's checkpoints: a new one must not inherit it.

        A deletion leaves its lines, because each would write the files again.
        """
        if name not in self._existing and root_names_topic(self._files, self.root, name):
            self._write_root_offsets({})

    def _write_root_offsets(self, known: Mapping[TopicPartition, RootLine]) -> None:
        offsets = RootOffsets.read(self._files, self.root)
        if offsets.update(
            known, existing={TopicPartition(topic.name, n) for topic in self.all() for n in topic.partitions}
        ):
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
    told = []
    if now.partitions != before.partitions:
        told.append(f"a broker has added partitions to topic {before.name!r}: it has {now.partition_count}")
    if now.config != before.config:
        taken = {setting: value for setting, value in now.config.items() if before.config.get(setting) != value}
        told.append(f"topic {before.name!r} has taken {taken} from its cluster; its configuration was {before.config}")
    return "; ".join(told)


def _check_count(partitions: int) -> None:
    check_whole_number("partitions", partitions, minimum=1, maximum=MAX_PARTITIONS)
