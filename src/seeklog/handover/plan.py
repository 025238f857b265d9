"""The state of a store before a handover, read without writing.

The authority on a partition is its own checkpoint. A partition that was not closed cleanly, or that has no checkpoint
because a broker wrote it, is opened and closed before the handover.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from seeklog import names
from seeklog.clock import Clock, SystemClock
from seeklog.config import LogConfig
from seeklog.errors import HandoverRefused, LogLocked, UsageError
from seeklog.files import Files, Kind, Lock, OsFiles, absolute, translate, translated
from seeklog.log import known_checkpoint
from seeklog.log.side import Checkpoint, RootLine, RootOffsets
from seeklog.names import TopicPartition
from seeklog.store import Store, open_store
from seeklog.topics.catalog import NO_TOPIC_ID, Topic
from seeklog.topics.kraft.cluster import CLUSTER_METADATA
from seeklog.topics.kraft.settings import OFFSETS_TOPIC, KafkaSettings, to_kafka
from seeklog.topics.layout import check_root, locked_partitions, partition_path, read_topic_id
from seeklog.topics.topics import Topics

# Internal topics that a broker can take over, as a store can.
_HANDED_OVER: Final = (names.CONSUMER_OFFSETS, names.TRANSACTION_STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition and its checkpoint."""

    partition: TopicPartition
    directory: str
    checkpoint: Checkpoint | None
    """None if no writer of seeklog has opened it, or a broker wrote it since."""
    has_metadata: bool
    """Whether `partition.metadata` names the topic's id."""

    @property
    def is_clean(self) -> bool:
        return self.checkpoint is not None and self.checkpoint.active is not None

    @property
    def closed(self) -> Checkpoint:
        """The checkpoint of a partition that was closed cleanly."""
        assert self.checkpoint is not None
        return self.checkpoint

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch, or -1."""
        return self.checkpoint.epochs[-1][0] if self.checkpoint is not None and self.checkpoint.epochs else -1

    def root_line(self, cleaned: int | None) -> RootLine:
        """Return the partition's values for the root's checkpoints. After a clean close all of it is durable."""
        end = self.closed.recovery_point
        start = min(self.closed.log_start_offset, end)
        return RootLine(end, start, min(self.closed.high_watermark, end), cleaned)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic of the store, and its settings for a broker."""

    name: str
    topic_id: str
    config: LogConfig
    settings: KafkaSettings
    partitions: tuple[PartitionState, ...]

    @property
    def is_internal(self) -> bool:
        return self.name in names.INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """The store to hand over."""

    root: str
    topics: tuple[TopicState, ...]
    kinds: Mapping[str, Kind]
    """The entries of the root directory."""

    @property
    def partitions(self) -> list[PartitionState]:
        return [partition for topic in self.topics for partition in topic.partitions]

    @property
    def unclean(self) -> list[PartitionState]:
        """The partitions that must be opened and closed first."""
        return [partition for partition in self.partitions if not partition.is_clean]

    def check_clean(self) -> None:
        """Raise `HandoverRefused` if another process has written a partition in the meantime."""
        if self.unclean:
            raise HandoverRefused(
                f"{self.unclean[0].partition} was written by another process in the meantime. Close the store there, "
                "then run this again"
            )

    def partition_count(self, name: str) -> int | None:
        """Return a topic's partition count, or None if it does not exist."""
        return next((len(topic.partitions) for topic in self.topics if topic.name == name), None)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan."""

    action: str
    topic: str | None = None
    partition: int | None = None
    setting: str | None = None
    value: str | None = None
    file: str | None = None
    detail: str | None = None


def local_root(path: str) -> str:
    """Return the absolute path of a directory."""
    if names.is_url(path):
        raise UsageError(f"{path} is a URL, and a broker needs a directory; name a directory")
    if "\0" in path:
        raise UsageError(f"{path!r} is not a path: it contains a NUL")
    return absolute(path)


@dataclass(slots=True)
class LocalStore:
    """A store in a local directory, with what is needed to open it."""

    root: str
    config: LogConfig = field(default_factory=LogConfig)
    """The default for topics, as for the processes that write the store."""
    files: Files = field(default_factory=OsFiles)
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.root = local_root(self.root)

    def open(self, *, read_only: bool = False) -> Store:
        """Open the store without background threads."""
        return open_store(
            self.root,
            config=self.config,
            read_only=read_only,
            background=False,
            files=self.files,
            clock=self.clock,
        )

    def read(self) -> StoreState:
        """Return the state of the store, or raise `HandoverRefused` if a single broker cannot take it over."""
        files, root = self.files, self.root
        with translated(f"{root} cannot be read"):
            kinds = check_root(files, root, create=False)
            topics = Topics(root, files=files, clock=self.clock, defaults=self.config, read_only=True)
            found = [topic for topic in topics.all() if topic.name != CLUSTER_METADATA.topic]
            states = tuple(_topic_state(files, root, topic, topics.config_of(topic)) for topic in found)
        return StoreState(root=root, topics=states, kinds=kinds)

    def bring_up_to_date(self, partitions: Iterable[TopicPartition]) -> None:
        """Open and close the store and these partitions, which recovers them and writes their checkpoints.

        Retention and compaction are left to the next writer.
        """
        with self.open() as store:
            for partition in partitions:
                with store.writer(*partition):
                    pass

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Bring the store up to date, then lock it against brokers, other stores, and writers."""
        self.bring_up_to_date(partition_state.partition for partition_state in self.read().unclean)
        partitions = [partition_state.partition for partition_state in self.read().partitions]
        with locked_root(self.files, self.root), locked_partitions(self.files, self.clock, self.root, partitions):
            yield


def _topic_state(files: Files, root: str, topic: Topic, config: LogConfig) -> TopicState:
    name = topic.name
    if name in names.INTERNAL_TOPICS and name not in _HANDED_OVER:
        raise HandoverRefused(
            f"{root} holds {name}, which is internal to one broker and cannot be handed over. Move its directories away"
        )
    if topic.topic_id == NO_TOPIC_ID:
        raise HandoverRefused(
            f"topic {name!r} has no id, because a broker before 2.8 wrote it. Copy its records to a new topic"
        )
    if topic.partitions != tuple(range(len(topic.partitions))):
        missing = next(n for n, there in enumerate(topic.partitions) if n != there)
        raise HandoverRefused(
            f"partition {missing} of topic {name!r} is not in {root}: a broker kept it elsewhere. Move it here first"
        )
    partitions = tuple(_partition_state(files, root, topic, number) for number in topic.partitions)
    settings = KafkaSettings(dict(OFFSETS_TOPIC)) if name in _HANDED_OVER else to_kafka(config)
    return TopicState(name=name, topic_id=topic.topic_id, config=config, settings=settings, partitions=partitions)


def _partition_state(files: Files, root: str, topic: Topic, number: int) -> PartitionState:
    partition = TopicPartition(topic.name, number)
    directory = partition_path(root, partition)
    try:
        files.kind(directory)
    except FileNotFoundError:
        if number in topic.unopened:
            # A power loss took it before it had a record. Opening the store creates it again.
            return PartitionState(partition=partition, directory=directory, checkpoint=None, has_metadata=False)
        raise HandoverRefused(
            f"the store has topic {topic.name!r} with {partition}, and {directory} is missing. Restore it from a copy, "
            "or delete the topic"
        ) from None
    topic_id = read_topic_id(files, directory)
    if topic_id not in (topic.topic_id, NO_TOPIC_ID):
        raise HandoverRefused(
            f"{directory} belongs to a topic with the id {topic_id}, and {topic.name!r} has {topic.topic_id}: the "
            "topic was recreated elsewhere. Move the directory away"
        )
    return PartitionState(
        partition=partition,
        directory=directory,
        # A broker's changes invalidate the checkpoint, and the partition is then opened first, like an unclean one.
        checkpoint=known_checkpoint(files, directory, inherited=None),
        has_metadata=topic_id == topic.topic_id,
    )


def check_no_broker(files: Files, root: str) -> None:
    """Refuse a directory whose broker is running. Does not touch the lock file: a broker removes it when it stops."""
    try:
        is_running = files.has_broker(f"{root}/{names.LOCK}")
    except FileNotFoundError:
        return
    if is_running:
        raise LogLocked(root, None, owner="a Kafka broker", advice="stop it, then run this again")


@contextlib.contextmanager
def locked_root(files: Files, root: str) -> Iterator[None]:
    """Hold the lock file of a broker exclusively, as a broker does."""
    try:
        lock = Lock(files, files.lock_as_broker(f"{root}/{names.LOCK}"))
    except BlockingIOError:
        raise LogLocked(
            root, None, owner="a Kafka broker or another process", advice="stop it there, then run this again"
        ) from None
    except OSError as error:
        raise translate(error, f"{root} cannot be locked") from error
    try:
        yield
    finally:
        lock.close()


def update_root_offsets(files: Files, root: str, partitions: Sequence[PartitionState]) -> None:
    """Update partitions in the checkpoints of a root. The values of others stay."""
    offsets = RootOffsets.read(files, root)
    lines = {
        partition_state.partition: partition_state.root_line(offsets.cleaned.get(partition_state.partition))
        for partition_state in partitions
    }
    others = set(offsets.recovery_points) | set(offsets.log_start_offsets) | set(offsets.high_watermarks)
    offsets.update(lines, existing=others | set(offsets.cleaned) | set(lines))
    offsets.write(files, root)
