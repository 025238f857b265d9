"""The metadata of a cluster, as found in a broker's data directory.

`meta.properties` names the cluster, the node, and the directory. `__cluster_metadata-0` is a log of metadata records
(`metadata`) with snapshots beside it, `<next offset in 20 digits>-<epoch in 10>.checkpoint`. The newest snapshot and
the records after it give the topics, partitions, and settings. The directory exists on controllers, and on a broker in
the first of its log directories.

A setting of a topic comes from the topic itself, else from the broker, else from the default for all brokers. The last
two were set with `kafka-configs --entity-type brokers`. What `server.properties` says is in no file of the directory,
so a setting that none of the three has is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from seeklog import names
from seeklog.errors import CorruptionError
from seeklog.files import Files, read_if_exists
from seeklog.log import LogReader
from seeklog.names import TopicPartition
from seeklog.topics.kraft.metadata import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    BROKER_RESOURCE,
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
from seeklog.topics.kraft.settings import topic_settings
from seeklog.topics.kraft.snapshot import decode_snapshot

CLUSTER_METADATA: Final = TopicPartition("__cluster_metadata", 0)
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z", re.ASCII)


@dataclass(slots=True)
class ClusterPartition:
    """A partition in the cluster's metadata."""

    replicas: tuple[int, ...]
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class ClusterTopic:
    """A topic in the cluster's metadata."""

    name: str
    topic_id: str
    partitions: dict[int, ClusterPartition] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Cluster:
    """The topics of a cluster by name, and the settings of its brokers."""

    topics: dict[str, ClusterTopic] = field(default_factory=dict)
    brokers: dict[str, dict[str, str]] = field(default_factory=dict)
    """The settings of each broker by its id; those of "" are the default for all brokers."""

    def apply(self, record: MetadataRecord) -> None:
        """Apply the next record of the metadata log."""
        if isinstance(record, TopicRecord):
            config = self.topics[record.name].config if record.name in self.topics else {}
            self.topics[record.name] = ClusterTopic(name=record.name, topic_id=record.topic_id, config=config)
        elif isinstance(record, RemoveTopic):
            self.topics = {name: topic for name, topic in self.topics.items() if topic.topic_id != record.topic_id}
        elif isinstance(record, PartitionRecord):
            partitions = self._by_id(record.topic_id).partitions
            partitions[record.partition] = ClusterPartition(record.replicas, record.leader_epoch)
        elif isinstance(record, PartitionChange):
            self._change(record)
        elif isinstance(record, ConfigRecord):
            self._set(record)

    def config_of(self, topic: str, *, node_id: str) -> dict[str, str]:
        """Return the settings of a topic that are known, with those that it has from the broker `node_id`."""
        of_brokers = {**self.brokers.get("", {}), **self.brokers.get(node_id, {})}
        return {**topic_settings(of_brokers), **self.topics[topic].config}

    def _by_id(self, topic_id: str) -> ClusterTopic:
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic
        raise CorruptionError(f"the cluster's metadata refers to topic {topic_id}, but does not create it")

    def _change(self, record: PartitionChange) -> None:
        partition = self._by_id(record.topic_id).partitions.get(record.partition)
        if partition is None:
            raise CorruptionError(
                f"the cluster's metadata changes partition {record.partition} of topic {record.topic_id}, but does not "
                "create it"
            )
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.leader is not None:
            # Every change of the leader begins an epoch, even to the same leader or to none.
            partition.leader_epoch += 1

    def _set(self, record: ConfigRecord) -> None:
        if record.resource_type == BROKER_RESOURCE:
            config = self.brokers.setdefault(record.resource_name, {})
        elif record.resource_type == TOPIC_RESOURCE and record.resource_name in self.topics:
            config = self.topics[record.resource_name].config
        else:
            return  # of another resource, or of a topic that was deleted
        if record.value is None:
            config.pop(record.name, None)
        else:
            config[record.name] = record.value


def read_meta_properties(files: Files, root: str) -> dict[str, str]:
    """Return the entries of `meta.properties`. Empty if the file does not exist."""
    data = read_if_exists(files, f"{root}/{names.META_PROPERTIES}") or b""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {name.strip(): value.strip() for name, _, value in pairs}


def has_metadata(files: Files, root: str) -> bool:
    """Return whether a directory holds the metadata log of its cluster."""
    try:
        return files.kind(f"{root}/{CLUSTER_METADATA}") == "directory"
    except FileNotFoundError:
        return False


def read_cluster(files: Files, root: str) -> Cluster:
    """Return the state of a cluster, from the metadata in a directory that has them."""
    directory = f"{root}/{CLUSTER_METADATA}"
    cluster = Cluster()
    for record in _committed(_read_records(files, directory)):
        try:
            cluster.apply(record)
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
        for stored in log.scan(max(start, log.log_start_offset), log.log_end_offset):
            try:
                record = decode_metadata(stored.value or b"")
            except CorruptionError as error:
                raise error.located(f"{directory}, offset {stored.offset}") from error
            if record is not None:
                yield record


def _committed(records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
    """Yield records without transaction markers, and without the records of unfinished transactions."""
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
