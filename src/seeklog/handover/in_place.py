"""Handing a store over in place: its directory becomes the data directory of a new single-node KRaft cluster.

The files are written in this order, each under a temporary name, synced, and renamed:

1. `partition.metadata` of partitions that have none;
2. the four checkpoints in the root, for every partition;
3. `bootstrap.checkpoint`: the features of the version, and every topic with its id, partitions and settings;
4. `meta.properties`: the ids of the cluster and of the directory.

Before the last file is written, the directory is an ordinary store: a broker refuses to start on it, and the handover
may be run again. After that file a broker starts. Nothing is deleted, and no clean-shutdown file is written, so the
broker checks what is after the recovery points itself.

Each partition gets a leader epoch one above its newest. So the broker records in `leader-epoch-checkpoint` that it led
the partition, and from that line seeklog later detects the broker's visit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from seeklog import names
from seeklog.clock import Clock
from seeklog.config import INT32_MAX
from seeklog.errors import HandoverRefused, UsageError, counted
from seeklog.files import Files, replace_file, translated
from seeklog.handover.plan import (
    LocalStore,
    PartitionState,
    Step,
    StoreState,
    TopicState,
    update_root_offsets,
)
from seeklog.handover.properties import DEFAULT_LISTENER, Listener, server_properties
from seeklog.topics.catalog import new_topic_id
from seeklog.topics.kraft.cluster import CLUSTER_METADATA, read_cluster, read_meta_properties
from seeklog.topics.kraft.metadata import ConfigRecord, PartitionRecord, TopicRecord, Written
from seeklog.topics.kraft.snapshot import FEATURE_LEVELS, encode_bootstrap, feature_records

LATEST_VERSION: Final = max(FEATURE_LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The broker that takes over the store."""

    kafka_version: str = LATEST_VERSION
    node_id: int = 1
    listener: Listener = DEFAULT_LISTENER

    def __post_init__(self) -> None:
        if self.kafka_version not in FEATURE_LEVELS:
            raise UsageError(
                f"Kafka {self.kafka_version} is not supported; name one of {', '.join(FEATURE_LEVELS)}. A later broker "
                "can start on a directory prepared for an earlier one"
            )
        if not 0 <= self.node_id <= INT32_MAX:
            raise UsageError(f"a node's id must be from 0 to {INT32_MAX}, not {self.node_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlacePlan:
    """The steps of a handover in place."""

    store: StoreState
    broker: Broker

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order."""
        for partition_state in self.store.unclean:
            yield Step("recover", *partition_state.partition, detail="it was not closed cleanly and is recovered first")
        for topic in self.store.topics:
            yield from _topic_steps(topic)
        for name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS):
            yield Step("write", file=name, detail=counted(len(self.store.partitions), "partition"))
        if any(topic.config.compacts for topic in self.store.topics):
            yield Step("write", file=names.CLEANED_OFFSETS, detail="the compacted offsets")
        detail = f"{counted(len(self.store.topics), 'topic')} for Kafka {self.broker.kafka_version}"
        yield Step("write", file=names.BOOTSTRAP, detail=detail)
        yield Step("write", file=names.META_PROPERTIES, detail=f"node {self.broker.node_id} of a new cluster")

    def properties(self) -> list[str]:
        """Return the lines of the broker's `server.properties`."""
        lines = server_properties(
            self.store.root,
            node_id=self.broker.node_id,
            listener=self.broker.listener,
            offsets_partitions=self.store.partition_count(names.CONSUMER_OFFSETS),
        )
        count = self.store.partition_count(names.TRANSACTION_STATE)
        return lines if count is None else [*lines, f"transaction.state.log.num.partitions={count}"]


def _topic_steps(topic: TopicState) -> Iterator[Step]:
    retention = "keeps all records" if not topic.config.deletes or topic.config.retention_ms < 0 else ""
    retention = retention or f"keeps records for {topic.config.retention_ms} ms"
    detail = f"id {topic.topic_id}, {counted(len(topic.partitions), 'partition')}"
    yield Step("hand over", topic.name, detail=detail if topic.is_internal else f"{detail}, {retention}")
    for partition_state in topic.partitions:
        if not partition_state.has_metadata:
            yield Step("write", *partition_state.partition, file=names.PARTITION_METADATA)
    for setting, value in topic.settings.values.items():
        yield Step("set", topic.name, setting=setting, value=value, detail=topic.settings.notes.get(setting))
    for setting, note in topic.settings.notes.items():
        if setting not in topic.settings.values:
            yield Step("leave out", topic.name, setting=setting, detail=note)


def plan_in_place(store: LocalStore, *, broker: Broker) -> InPlacePlan:
    """Plan the handover of a store in place. Writes nothing. Raises `HandoverRefused` if it is not possible."""
    root, state = store.root, store.read()
    _check_no_cluster(store.files, state)
    if "," in root:
        raise HandoverRefused(f"{root}: a broker cannot use a directory with a comma in its path. Rename the directory")
    partitions = {str(partition_state.partition) for partition_state in state.partitions}
    for name, kind in sorted(state.kinds.items()):
        if kind == "directory" and name not in partitions and not names.is_deleted_directory(name):
            raise HandoverRefused(
                f"{root}/{name} is not a partition of the store, and a broker does not start with it. Move the "
                "directory away"
            )
    return InPlacePlan(store=state, broker=broker)


def _check_no_cluster(files: Files, state: StoreState) -> None:
    """Refuse a directory that belongs to a cluster: its own broker can be started again."""
    root = state.root
    if str(CLUSTER_METADATA) in state.kinds:
        cluster = read_cluster(files, root)
        unknown = [topic.name for topic in state.topics if topic.name not in cluster.topics and not topic.is_internal]
        if unknown:
            raise HandoverRefused(
                f"{root} already belongs to a cluster that does not know {', '.join(unknown[:8])}: its broker would "
                "rename these directories to -stray. Move them to a separate store, start the broker, then hand that "
                f"store over with --into {root}"
            )
        raise HandoverRefused(f"{root} already belongs to a cluster. Start its broker again; no handover is needed")
    if names.META_PROPERTIES in state.kinds:
        properties = read_meta_properties(files, root)
        if properties.get("version") == "0":
            raise HandoverRefused(
                f"{root} belongs to a broker with ZooKeeper, and Kafka 4 does not start on it. Remove "
                f"{names.META_PROPERTIES} and run this again"
            )
        cluster_id = properties.get("cluster.id", "unknown")
        raise HandoverRefused(
            f"{root} is already prepared for the cluster {cluster_id}. Start its broker; or, if topics or settings "
            f"have changed since, remove {names.META_PROPERTIES} and {names.BOOTSTRAP} and run this again"
        )


def hand_over_in_place(store: LocalStore, *, broker: Broker) -> InPlacePlan:
    """Prepare a store in place for a new single-node cluster. Return what was done. It is durable on return.

    An interruption leaves a store that opens, and the handover can be run again.
    """
    plan_in_place(store, broker=broker)
    with store.locked():
        # Another process may have written before the lock was acquired, so plan again.
        plan = plan_in_place(store, broker=broker)
        plan.store.check_clean()
        with translated(f"{store.root} cannot be written", advice="fix that, then run this again"):
            _write(store.files, store.clock, plan)
    return plan


def _write(files: Files, clock: Clock, plan: InPlacePlan) -> None:
    store, root = plan.store, plan.store.root
    for topic in store.topics:
        for partition_state in topic.partitions:
            if not partition_state.has_metadata:
                data = f"version: 0\ntopic_id: {topic.topic_id}".encode("ascii")
                replace_file(files, partition_state.directory, names.PARTITION_METADATA, data)
                files.sync_directory(partition_state.directory)
    update_root_offsets(files, root, store.partitions)
    directory_id = random_id()
    records = metadata_records(plan, directory_id=directory_id)
    replace_file(files, root, names.BOOTSTRAP, encode_bootstrap(records, now_ms=clock.now_ms()))
    files.sync_directory(root)
    properties = f"version=1\ncluster.id={random_id()}\nnode.id={plan.broker.node_id}\ndirectory.id={directory_id}\n"
    replace_file(files, root, names.META_PROPERTIES, properties.encode())
    files.sync_directory(root)


def metadata_records(plan: InPlacePlan, *, directory_id: str) -> list[Written]:
    """Return the first records of the new cluster."""
    records: list[Written] = [*feature_records(plan.broker.kafka_version)]
    for topic in plan.store.topics:
        records.append(TopicRecord(name=topic.name, topic_id=topic.topic_id))
        records += [
            _partition_record(topic, partition_state, plan.broker.node_id, directory_id)
            for partition_state in topic.partitions
        ]
        records += [
            ConfigRecord(resource_name=topic.name, name=setting, value=value)
            for setting, value in topic.settings.values.items()
        ]
    return records


def _partition_record(
    topic: TopicState, partition_state: PartitionState, node_id: int, directory_id: str
) -> PartitionRecord:
    return PartitionRecord(
        partition=partition_state.partition.partition,
        topic_id=topic.topic_id,
        replicas=(node_id,),
        isr=(node_id,),
        leader=node_id,
        leader_epoch=partition_state.latest_epoch + 1,
        directories=(directory_id,),
    )


def random_id() -> str:
    """Return a random id as Kafka creates one: never with a leading dash, which its tools take for an option."""
    while (text := new_topic_id()).startswith("-"):
        pass
    return text
