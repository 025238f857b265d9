"""Handing a store over to an existing cluster: copies its partitions into a stopped broker's data directory.

The topics were created in the cluster before, with one replica, and are empty. The files of each partition are copied
into the directory that the broker created for it. Its `partition.metadata` stays, and with it the cluster's topic id.
Only Kafka's files are copied: segments with their indexes, producer snapshots, and `leader-epoch-checkpoint`.

A batch holds the epoch of the leader that wrote it, and the cluster has its own epochs. A follower never joins a leader
whose log has an epoch that the cluster has not reached. So in the copy, epochs above the cluster's are lowered to it.
The epoch is not covered by a batch's CRC. The store itself is not changed.

The order, with each step durable before the next:

1. The broker's clean-shutdown file is removed, so that the broker checks every file.
2. The checkpoints in the broker's root get the partitions' values.
3. The files are copied, each under a temporary name first. A partition whose files are all there with the same bytes is
   skipped, so the handover can be run again after a crash.
4. The offsets of groups are written to a file for `kafka-consumer-groups --reset-offsets --from-file`.
"""

from __future__ import annotations

import csv
import io
import shlex
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from seeklog import names
from seeklog.errors import CorruptBatch, HandoverRefused, counted
from seeklog.files import Files, read_parts, remove_if_exists, replace_file, translate, translated, write_parts
from seeklog.handover.plan import (
    LocalStore,
    PartitionState,
    Step,
    StoreState,
    TopicState,
    check_no_broker,
    local_root,
    locked_root,
    update_root_offsets,
)
from seeklog.handover.properties import DEFAULT_LISTENER
from seeklog.log.side import Entry, encode_epochs
from seeklog.names import TopicPartition
from seeklog.record.layout import HEADER_SIZE, LEADER_EPOCH, PREFIX_SIZE
from seeklog.topics.kraft.cluster import (
    CLUSTER_METADATA,
    Cluster,
    ClusterTopic,
    has_metadata,
    read_cluster,
    read_meta_properties,
)
from seeklog.topics.layout import partition_path, read_topic_id

_COPIED: Final = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.SNAPSHOT)
_CHUNK: Final = 4 << 20
_BATCH: Final = struct.Struct(">qii")
_EPOCH: Final = struct.Struct(">i")
Part: TypeAlias = bytes | bytearray


@dataclass(slots=True)
class Target:
    """The data directory of a cluster's stopped broker."""

    data_dir: str
    metadata_dir: str | None = None
    """The directory of `__cluster_metadata-0`, if it is another one."""
    offsets_path: str | None = None
    """The file for the offsets of groups. By default it is in the store."""
    bootstrap: str = str(DEFAULT_LISTENER)
    """The address of the cluster's brokers, for the commands that are printed."""

    def __post_init__(self) -> None:
        self.data_dir = local_root(self.data_dir)
        self.metadata_dir = local_root(self.metadata_dir) if self.metadata_dir is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One partition to copy."""

    source: PartitionState
    target: str
    max_epoch: int
    """The cluster's epoch of the partition. Higher epochs are lowered to it."""
    names: tuple[str, ...]
    """The files to copy."""
    size_bytes: int
    is_there: bool
    """Whether an earlier run has copied all of it."""

    @property
    def lowers_epochs(self) -> bool:
        return self.source.latest_epoch > self.max_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class IntoPlan:
    """The steps of a handover into a cluster's data directory."""

    store: StoreState
    target: Target
    cluster_id: str
    missing: tuple[TopicState, ...]
    """Topics to create in the cluster first."""
    differing: tuple[tuple[TopicState, str, str | None], ...]
    """Settings that differ in the cluster: the topic, the setting, and the cluster's value, or None."""
    copies: tuple[Copy, ...]
    offsets: tuple[tuple[str, TopicPartition, int], ...]
    """The committed offsets of groups."""
    offsets_path: str

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order."""
        for topic in self.missing:
            yield Step("create first", topic.name, detail=self._create_command(topic))
        for partition_state in self.store.unclean:
            yield Step("recover", *partition_state.partition)
        for topic, setting, cluster_value in self.differing:
            shown = "Kafka's default" if cluster_value is None else cluster_value
            yield Step(
                "differs",
                topic.name,
                setting=setting,
                value=topic.settings.values.get(setting),
                detail=f"the cluster has {shown}; if that is not intended, change it there with kafka-configs.sh",
            )
        for copy in self.copies:
            lowered = f", leader epochs above {copy.max_epoch} lowered to it" if copy.lowers_epochs else ""
            action = "copied before" if copy.is_there else "copy"
            yield Step(action, *copy.source.partition, detail=f"{counted(copy.size_bytes, 'byte')}{lowered}")
        if self.offsets:
            yield Step("write", file=self.offsets_path, detail=f"offsets of {counted(len(self.groups), 'group')}")

    @property
    def groups(self) -> list[str]:
        return sorted({group for group, _, _ in self.offsets})

    def create_commands(self) -> list[str]:
        """Return the commands that create the missing topics."""
        return [self._create_command(topic) for topic in self.missing]

    def _create_command(self, topic: TopicState) -> str:
        settings = "".join(f" --config {setting}={value}" for setting, value in topic.settings.values.items())
        return (
            f"bin/kafka-topics.sh --bootstrap-server {self.target.bootstrap} --create --topic {topic.name} "
            f"--partitions {len(topic.partitions)} --replication-factor 1{settings}"
        )

    def reset_command(self) -> str | None:
        """Return the command that sets the groups' offsets once the broker runs, or None without offsets."""
        if not self.offsets:
            return None
        named = " ".join(f"--group {shlex.quote(group)}" for group in self.groups)
        return (
            f"bin/kafka-consumer-groups.sh --bootstrap-server {self.target.bootstrap} --reset-offsets {named} "
            f"--from-file {shlex.quote(self.offsets_path)} --execute"
        )


def plan_into(store: LocalStore, target: Target) -> IntoPlan:
    """Plan the handover of a store into a stopped broker's directory. Writes nothing."""
    check_no_broker(store.files, target.data_dir)
    return _plan(store, target)


def _plan(store: LocalStore, target: Target) -> IntoPlan:
    files, data_dir = store.files, target.data_dir
    if store.root == data_dir:
        raise HandoverRefused(f"{data_dir} cannot be handed over into itself. Omit --into to hand it over in place")
    state = store.read()
    properties = _read_properties(files, data_dir)
    metadata_dir = target.metadata_dir or data_dir
    if not has_metadata(files, metadata_dir):
        raise HandoverRefused(
            f"{metadata_dir} holds no {CLUSTER_METADATA}, so the replication of the topics is unknown. Name the "
            "directory that has it with --metadata: the controller's, the first of the broker's log.dirs, or its "
            "metadata.log.dir"
        )
    cluster = read_cluster(files, metadata_dir)
    topics = [topic for topic in state.topics if not topic.is_internal]
    copies: list[Copy] = []
    differing: list[tuple[TopicState, str, str | None]] = []
    for topic in topics:
        if topic.name in cluster.topics:
            cluster_topic = cluster.topics[topic.name]
            _check_topic(topic, cluster_topic, node_id=properties["node.id"], data_dir=data_dir)
            copies += [
                _plan_copy(files, partition_state, cluster_topic, data_dir) for partition_state in topic.partitions
            ]
            # Settings that only the cluster has are left to the cluster.
            differing += [
                (topic, setting, cluster_topic.config.get(setting))
                for setting, ours in topic.settings.values.items()
                if cluster_topic.config.get(setting) != ours
            ]
    return IntoPlan(
        store=state,
        target=target,
        cluster_id=properties["cluster.id"],
        missing=tuple(topic for topic in topics if topic.name not in cluster.topics),
        differing=tuple(differing),
        copies=tuple(copies),
        offsets=tuple(_group_offsets(store, cluster)),
        offsets_path=target.offsets_path or f"{store.root}/{names.GROUP_OFFSETS}",
    )


def _read_properties(files: Files, data_dir: str) -> dict[str, str]:
    with translated(f"{data_dir} cannot be read"):
        properties = read_meta_properties(files, data_dir)
    if not {"cluster.id", "node.id"} <= set(properties):
        raise HandoverRefused(
            f"{data_dir} is not a broker's data directory: it has no {names.META_PROPERTIES}. Name one of the broker's "
            "log.dirs"
        )
    return properties


def _check_topic(topic: TopicState, cluster_topic: ClusterTopic, *, node_id: str, data_dir: str) -> None:
    name, count = topic.name, len(topic.partitions)
    if len(cluster_topic.partitions) != count:
        raise HandoverRefused(
            f"topic {name!r} has {counted(len(cluster_topic.partitions), 'partition')} in the cluster and {count} in "
            f"the store, so keys would map to other partitions. Delete it there and create it with {count}"
        )
    for number, partition in sorted(cluster_topic.partitions.items()):
        if len(partition.replicas) != 1:
            raise HandoverRefused(
                f"topic {name!r} has {len(partition.replicas)} replicas in the cluster. The others are empty, and if "
                "one of them becomes the leader, this one truncates its log. Create the topic with "
                "--replication-factor 1, and add replicas with kafka-reassign-partitions.sh afterwards"
            )
        if str(partition.replicas[0]) != node_id:
            raise HandoverRefused(
                f"partition {number} of topic {name!r} is on node {partition.replicas[0]}, and {data_dir} belongs to "
                f"node {node_id}. Move the partition to node {node_id} with kafka-reassign-partitions.sh"
            )


def _plan_copy(files: Files, source: PartitionState, cluster_topic: ClusterTopic, data_dir: str) -> Copy:
    target = partition_path(data_dir, source.partition)
    try:
        listing = sorted(files.list(target))
        topic_id = read_topic_id(files, target)
        copied = tuple(sorted(name for name in files.list(source.directory) if _is_copied(name)))
        size = sum(files.file_size(f"{source.directory}/{name}") for name in copied)
    except FileNotFoundError:
        raise HandoverRefused(
            f"{data_dir} has no {source.partition}: the broker keeps it in another of its log.dirs. Move it here with "
            "kafka-reassign-partitions.sh, or name that directory"
        ) from None
    except OSError as error:
        raise translate(error, f"{target} cannot be read") from error
    if topic_id != cluster_topic.topic_id:
        raise HandoverRefused(
            f"{target} belongs to a topic with the id {topic_id}, and the cluster's has "
            f"{cluster_topic.topic_id}: the topic of the directory was deleted. Start the broker, which removes it, "
            "and stop it again"
        )
    max_epoch = cluster_topic.partitions[source.partition.partition].leader_epoch
    is_there = _check_target(files, source, target, listing, copied, max_epoch)
    return Copy(source=source, target=target, max_epoch=max_epoch, names=copied, size_bytes=size, is_there=is_there)


def _is_copied(name: str) -> bool:
    parsed = names.parse_segment_name(name)
    return parsed is not None and parsed[1] in _COPIED


def _check_target(
    files: Files, source: PartitionState, target: str, listing: list[str], copied: tuple[str, ...], max_epoch: int
) -> bool:
    """Refuse a target with other records. Return whether it holds all files of the source."""
    found = set()
    for name in listing:
        parsed = names.parse_segment_name(name)
        if name == names.CHECKPOINT:
            raise HandoverRefused(
                f"{target} was opened by seeklog, and its seeklog-* files describe the empty partition. Remove them "
                "first"
            )
        if parsed is None or parsed[1] != names.LOG or not files.file_size(f"{target}/{name}"):
            continue
        if name not in copied or not _is_same(files, f"{source.directory}/{name}", f"{target}/{name}", max_epoch):
            raise HandoverRefused(
                f"{target} is not empty: {name} holds other records. Delete the topic there and create it again"
            )
        found.add(name)
    logs = {name for name in copied if name.endswith(names.LOG) and files.file_size(f"{source.directory}/{name}")}
    if not logs or found != logs or not set(copied) <= set(listing) or source.checkpoint is None:
        return False
    # The last file that a copy writes.
    epochs = encode_epochs(lower_epochs(source.checkpoint.epochs, max_epoch))
    return names.LEADER_EPOCHS in listing and files.read_file(f"{target}/{names.LEADER_EPOCHS}") == epochs


def _is_same(files: Files, source: str, target: str, max_epoch: int) -> bool:
    if files.file_size(source) != files.file_size(target):
        return False
    position = 0
    handle = files.open(target)
    try:
        for chunk in _lowered_parts(files, source, max_epoch):
            if files.read(handle, len(chunk), position) != chunk:
                return False
            position += len(chunk)
    finally:
        files.close(handle)
    return True


def _group_offsets(store: LocalStore, cluster: Cluster) -> Iterator[tuple[str, TopicPartition, int]]:
    """Yield the groups' committed offsets for topics of the cluster."""
    with store.open(read_only=True) as opened:
        for group in sorted(opened.groups()):
            for partition, committed in sorted(opened.describe_group(group).committed.items()):
                if partition.topic in cluster.topics and partition.topic not in names.INTERNAL_TOPICS:
                    yield group, partition, committed.offset


def hand_over_into(
    store: LocalStore, target: Target, *, advance: Callable[[int], object] = lambda size: None
) -> IntoPlan:
    """Copy a store's partitions into a stopped broker's directory. Return what was done. It is durable on return."""
    missing = plan_into(store, target).missing
    if missing:
        raise HandoverRefused(
            f"the cluster has no topic {missing[0].name!r}"
            + (f", and {counted(len(missing) - 1, 'more is', 'more are')} missing" if len(missing) > 1 else "")
            + ". Create them there, stop the broker, then run this again; --dry-run shows the commands"
        )
    with locked_root(store.files, target.data_dir), store.locked():
        plan = _plan(store, target)
        plan.store.check_clean()
        with translated(f"{target.data_dir} cannot be written", advice="fix that, then run this again"):
            _copy_all(store.files, plan, advance)
    return plan


def _copy_all(files: Files, plan: IntoPlan, advance: Callable[[int], object]) -> None:
    remove_if_exists(files, f"{plan.target.data_dir}/{names.CLEAN_SHUTDOWN}")
    files.sync_directory(plan.target.data_dir)
    update_root_offsets(files, plan.target.data_dir, [copy.source for copy in plan.copies])
    for copy in plan.copies:
        if not copy.is_there:
            _copy(files, copy, advance)
    if plan.offsets:
        directory, _, name = plan.offsets_path.rpartition("/")
        replace_file(files, directory or ".", name, encode_group_offsets(plan.offsets))
        files.sync_directory(directory or ".")


def _copy(files: Files, copy: Copy, advance: Callable[[int], object]) -> None:
    source, target = copy.source, copy.target
    for name in copy.names:
        path, temporary = f"{source.directory}/{name}", f"{target}/{name}{names.TEMPORARY}"
        is_lowered = name.endswith(names.LOG) and copy.lowers_epochs
        parts = _lowered_parts(files, path, copy.max_epoch) if is_lowered else read_parts(files, path, size=_CHUNK)
        write_parts(files, temporary, _counted(parts, advance))
        files.rename(temporary, f"{target}/{name}")
    epochs = lower_epochs(source.closed.epochs, copy.max_epoch)
    replace_file(files, target, names.LEADER_EPOCHS, encode_epochs(epochs))
    files.sync_directory(target)
    # If the records begin later, the empty segment that the broker created must be removed.
    if names.segment_name(0, names.LOG) not in copy.names:
        for name in files.list(target):
            parsed = names.parse_segment_name(name)
            if parsed is not None and parsed[0] == 0 and name not in copy.names:
                files.remove(f"{target}/{name}")
        files.sync_directory(target)


def _counted(parts: Iterable[Part], advance: Callable[[int], object]) -> Iterator[Part]:
    for part in parts:
        yield part
        advance(len(part))


def lower_epochs(entries: Iterable[Entry], max_epoch: int) -> list[Entry]:
    """Lower the epochs above `max_epoch` to it. They become one entry, at the start of the first of them."""
    kept: list[Entry] = []
    for epoch, start in entries:
        if not kept or kept[-1][0] < max_epoch:
            kept.append((min(epoch, max_epoch), start))
    return kept


def _lowered_parts(files: Files, path: str, max_epoch: int) -> Iterator[Part]:
    """Yield the bytes of a segment's log, with leader epochs above `max_epoch` lowered to it."""
    left = bytearray()
    origin = 0
    for chunk in read_parts(files, path, size=_CHUNK):
        left += chunk
        end = _lower_epochs_in(left, max_epoch, path=path, origin=origin)
        if end:
            yield left[:end]
            del left[:end]
            origin += end
    if left:
        raise CorruptBatch(
            f"the log ends in the middle of a batch, {counted(len(left), 'byte')} in",
            path=path,
            position=origin,
            advice="Run seeklog verify on the store for the extent.",
        )


def _lower_epochs_in(data: bytearray, max_epoch: int, *, path: str, origin: int) -> int:
    """Lower the epochs of the whole batches in `data`. Return where these batches end."""
    at = 0
    while len(data) - at >= HEADER_SIZE:
        _, length, epoch = _BATCH.unpack_from(data, at)
        size = length + PREFIX_SIZE
        if size < HEADER_SIZE:
            raise CorruptBatch(
                f"a batch claims {size} bytes",
                path=path,
                position=origin + at,
                advice="Run seeklog verify on the store for the extent.",
            )
        if size > len(data) - at:
            break
        if epoch > max_epoch:
            _EPOCH.pack_into(data, at + LEADER_EPOCH, max_epoch)
        at += size
    return at


def encode_group_offsets(offsets: Iterable[tuple[str, TopicPartition, int]]) -> bytes:
    """Encode the file for `kafka-consumer-groups --reset-offsets --from-file`: group,topic,partition,offset."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, partition, offset in offsets:
        writer.writerow((group, partition.topic, partition.partition, offset))
    return text.getvalue().encode()
