"""What a broker's data directory says of its cluster.

`meta.properties` names the cluster, the node and the directory. `__cluster_metadata-0` is a log of metadata records
(`metadata`) with snapshots beside it, `<next offset in 20 digits>-<epoch in 10>.checkpoint`: the newest snapshot and
the records after it add up to the topics, their partitions and their settings. A controller has it, and a broker in the
first of its log directories.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from seeklog import names
from seeklog.errors import CorruptionError, HandoverRefused
from seeklog.files import Files, read_if_exists
from seeklog.handover.metadata import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChange,
    PartitionRecord,
    RemoveTopic,
    TopicRecord,
    Transaction,
    decode_metadata,
)
from seeklog.handover.plan import CLUSTER_METADATA
from seeklog.handover.snapshot import decode_snapshot
from seeklog.log import LogReader

_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z", re.ASCII)


@dataclass(slots=True)
class ClusterPartition:
    """A partition as the cluster has it."""

    replicas: tuple[int, ...]
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class ClusterTopic:
    """A topic as the cluster has it."""

    name: str
    topic_id: str
    partitions: dict[int, ClusterPartition] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Cluster:
    """The topics of a cluster, by their names."""

    topics: dict[str, ClusterTopic] = field(default_factory=dict)

    def take(self, record: MetadataRecord) -> None:
        """Take in the next record of the metadata log."""
        if isinstance(record, TopicRecord):
            config = self.topics[record.name].config if record.name in self.topics else {}
            self.topics[record.name] = ClusterTopic(name=record.name, topic_id=record.topic_id, config=config)
        elif isinstance(record, RemoveTopic):
            self.topics = {name: each for name, each in self.topics.items() if each.topic_id != record.topic_id}
        elif isinstance(record, PartitionRecord):
            partitions = self._by_id(record.topic_id).partitions
            partitions[record.partition] = ClusterPartition(record.replicas, record.leader_epoch)
        elif isinstance(record, PartitionChange):
            self._change(record)
        elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
            self._set(record)

    def _by_id(self, topic_id: str) -> ClusterTopic:
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic
        raise CorruptionError(f"the cluster's metadata name a topic {topic_id} that they did not create")

    def _change(self, record: PartitionChange) -> None:
        partition = self._by_id(record.topic_id).partitions.get(record.partition)
        if partition is None:
            raise CorruptionError(
                f"the cluster's metadata change partition {record.partition} of topic {record.topic_id}, which they "
                "did not create"
            )
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.leader is not None:
            # A change of the leader, be it to the same one or to none, begins an epoch.
            partition.leader_epoch += 1

    def _set(self, record: ConfigRecord) -> None:
        topic = self.topics.get(record.resource_name)
        if topic is None:
            return  # of a topic that was deleted
        if record.value is None:
            topic.config.pop(record.name, None)
        else:
            topic.config[record.name] = record.value


def read_meta_properties(files: Files, root: str) -> dict[str, str]:
    """Return what `meta.properties` says; nothing if it is not there."""
    data = read_if_exists(files, f"{root}/{names.META_PROPERTIES}") or b""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {word.strip(): value.strip() for word, _, value in pairs}


def has_metadata(files: Files, root: str) -> bool:
    """Tell whether a directory holds the metadata log of its cluster."""
    try:
        return files.kind(f"{root}/{CLUSTER_METADATA}") == "directory"
    except FileNotFoundError:
        return False


def read_cluster(files: Files, root: str) -> Cluster:
    """Return the topics of the cluster that a directory has the metadata of."""
    if not has_metadata(files, root):
        raise HandoverRefused(
            f"{root} holds no {CLUSTER_METADATA}, so nothing says how the cluster's topics are replicated. Name the "
            "directory that has it: the controller's, or the first one of the broker's log.dirs"
        )
    directory = f"{root}/{CLUSTER_METADATA}"
    cluster = Cluster()
    for record in _settled(_read_records(files, directory)):
        try:
            cluster.take(record)
        except CorruptionError as error:
            raise error.located(directory) from error
    return cluster


def _read_records(files: Files, directory: str) -> Iterator[MetadataRecord]:
    snapshots = sorted(name for name in files.list(directory) if _SNAPSHOT_NAME.match(name))
    start = 0
    if snapshots:
        path = f"{directory}/{snapshots[-1]}"
        start = int(snapshots[-1][:20])
        yield from decode_snapshot(files.read_file(path), path=path)
    with LogReader(directory, files=files) as log:
        for each in log.scan(max(start, log.log_start_offset), log.log_end_offset):
            try:
                record = decode_metadata(each.value or b"")
            except CorruptionError as error:
                raise error.located(f"{directory}, offset {each.offset}") from error
            if record is not None:
                yield record


def _settled(records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
    """Yield records without the marks of transactions, and without those of transactions that did not end."""
    open_records: list[MetadataRecord] | None = None
    for record in records:
        if isinstance(record, Transaction):
            if record.api_key == BEGIN_TRANSACTION:
                open_records = []
            else:
                if record.api_key != ABORT_TRANSACTION:
                    yield from open_records or ()
                open_records = None
        elif open_records is not None:
            open_records.append(record)
        else:
            yield record
