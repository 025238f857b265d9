"""A store handed over to a cluster that is there: its partitions are copied into a stopped broker's data directory.

The topics were created in the cluster before, with one replica, and are empty. Each partition's files are copied into
the directory that the broker made for it; `partition.metadata` there stays, so the cluster's id of the topic holds.
Copied are Kafka's files alone: segments with their indexes, producer snapshots, and `leader-epoch-checkpoint`.

A batch names the epoch of the leader that wrote it, and the cluster counts its own epochs. A follower never joins a
leader whose log names an epoch that the cluster has not reached. So epochs above the cluster's are lowered to it in the
copy; they stand outside of a batch's CRC. The store itself is not changed.

In this order, each durable before the next:

1. the mark of the broker's clean shutdown is removed: it looks at every file by itself;
2. the checkpoints in the broker's root get the partitions' lines;
3. the files, each under a temporary name first; a partition whose files are all there with the same bytes is passed
   over, so this may be run again after a crash;
4. the offsets of groups, as a file for `kafka-consumer-groups --reset-offsets --from-file`.
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
from seeklog.errors import CorruptBatch, HandoverRefused
from seeklog.files import Files, read_parts, remove_if_exists, replace_file, translate, translated, write_parts
from seeklog.handover.cluster import Cluster, ClusterTopic, has_metadata, read_cluster, read_meta_properties
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
    """Where `__cluster_metadata-0` lies, if that is another directory."""
    offsets_path: str | None = None
    """Where the offsets of groups are written; None: into the store."""
    bootstrap: str = str(DEFAULT_LISTENER)
    """Where the cluster's brokers will listen, for the commands that are printed."""

    def __post_init__(self) -> None:
        self.data_dir = local_root(self.data_dir)
        self.metadata_dir = local_root(self.metadata_dir) if self.metadata_dir is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One partition that is copied."""

    source: PartitionState
    target: str
    max_epoch: int
    """The cluster's epoch of the partition: none above it may be named."""
    names: tuple[str, ...]
    """The files that are copied."""
    size_bytes: int
    is_there: bool
    """Whether an earlier run has copied all of it."""

    @property
    def lowers_epochs(self) -> bool:
        return self.source.latest_epoch > self.max_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class IntoPlan:
    """What a handover into a cluster's data directory would do."""

    store: StoreState
    target: Target
    cluster_id: str
    missing: tuple[TopicState, ...]
    """Topics that must be created in the cluster first."""
    differing: tuple[tuple[TopicState, str, str | None], ...]
    """Settings that the cluster's topic has otherwise: topic, name, and the value there, None where it has none."""
    copies: tuple[Copy, ...]
    offsets: tuple[tuple[str, TopicPartition, int], ...]
    """What groups have committed."""
    offsets_path: str

    def steps(self) -> Iterator[Step]:
        """Yield what is done, in its order."""
        for topic in self.missing:
            yield Step("create first", topic.name, detail=self._create_command(topic))
        for each in self.store.unclean:
            yield Step("recover", *each.partition)
        for topic, word, there in self.differing:
            shown = "Kafka's default" if there is None else there
            yield Step(
                "differs",
                topic.name,
                setting=word,
                value=topic.settings.values.get(word),
                detail=f"the cluster has {shown}; change it there with kafka-configs.sh if this is not meant",
            )
        for copy in self.copies:
            lowered = f", leader epochs above {copy.max_epoch} lowered to it" if copy.lowers_epochs else ""
            action = "copied before" if copy.is_there else "copy"
            yield Step(action, *copy.source.partition, detail=f"{copy.size_bytes} bytes{lowered}")
        if self.offsets:
            yield Step("write", file=self.offsets_path, detail=f"offsets of {len(self.groups)} groups")

    @property
    def groups(self) -> list[str]:
        return sorted({group for group, _, _ in self.offsets})

    def create_commands(self) -> list[str]:
        """Return the commands that create the topics that are missing."""
        return [self._create_command(topic) for topic in self.missing]

    def _create_command(self, topic: TopicState) -> str:
        settings = "".join(f" --config {word}={value}" for word, value in topic.settings.values.items())
        return (
            f"bin/kafka-topics.sh --bootstrap-server {self.target.bootstrap} --create --topic {topic.name} "
            f"--partitions {len(topic.partitions)} --replication-factor 1{settings}"
        )

    def reset_command(self) -> str | None:
        """Return the command that gives the groups their offsets, once the broker runs; None: no group has any."""
        if not self.offsets:
            return None
        named = " ".join(f"--group {shlex.quote(group)}" for group in self.groups)
        return (
            f"bin/kafka-consumer-groups.sh --bootstrap-server {self.target.bootstrap} --reset-offsets {named} "
            f"--from-file {shlex.quote(self.offsets_path)} --execute"
        )


def plan_into(store: LocalStore, target: Target) -> IntoPlan:
    """Return what handing a store over into a stopped broker's directory would do, by reading alone."""
    check_no_broker(store.files, target.data_dir)
    return _plan(store, target)


def _plan(store: LocalStore, target: Target) -> IntoPlan:
    files, data_dir = store.files, target.data_dir
    if store.root == data_dir:
        raise HandoverRefused(f"{data_dir} cannot be handed over into itself. Leave --into out to do so in place")
    state = store.read()
    properties = _read_properties(files, data_dir)
    metadata_dir = target.metadata_dir or data_dir
    if not has_metadata(files, metadata_dir) and metadata_dir == data_dir:
        raise HandoverRefused(
            f"{data_dir} holds no __cluster_metadata-0, so nothing says how the topics are replicated. Name the "
            "directory that has it with --metadata: the first of the broker's log.dirs, or its metadata.log.dir"
        )
    cluster = read_cluster(files, metadata_dir)
    topics = [topic for topic in state.topics if not topic.is_internal]
    copies: list[Copy] = []
    differing: list[tuple[TopicState, str, str | None]] = []
    for topic in topics:
        if topic.name in cluster.topics:
            there = cluster.topics[topic.name]
            _check_topic(topic, there, node_id=properties["node.id"], data_dir=data_dir)
            copies += [_plan_copy(files, each, there, data_dir) for each in topic.partitions]
            # What only the cluster has is the cluster's affair.
            differing += [
                (topic, word, there.config.get(word))
                for word, ours in topic.settings.values.items()
                if there.config.get(word) != ours
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
            f"{data_dir} is not the data directory of a broker: it has no {names.META_PROPERTIES}. Name one of the "
            "broker's log.dirs"
        )
    return properties


def _check_topic(topic: TopicState, there: ClusterTopic, *, node_id: str, data_dir: str) -> None:
    name, count = topic.name, len(topic.partitions)
    if len(there.partitions) != count:
        raise HandoverRefused(
            f"topic {name!r} has {len(there.partitions)} partitions in the cluster and {count} in the store: keys "
            f"would change their partitions. Delete it there and create it with {count}"
        )
    for number, partition in sorted(there.partitions.items()):
        if len(partition.replicas) != 1:
            raise HandoverRefused(
                f"topic {name!r} has {len(partition.replicas)} replicas in the cluster: the others are empty, and "
                "whichever of them leads first has this one cut its records to nothing. Create the topic with "
                "--replication-factor 1, and add replicas with kafka-reassign-partitions.sh afterwards"
            )
        if str(partition.replicas[0]) != node_id:
            raise HandoverRefused(
                f"partition {number} of topic {name!r} lies on node {partition.replicas[0]}, and {data_dir} belongs to "
                f"node {node_id}. Move the partition to node {node_id} with kafka-reassign-partitions.sh"
            )


def _plan_copy(files: Files, source: PartitionState, there: ClusterTopic, data_dir: str) -> Copy:
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
    if topic_id != there.topic_id:
        raise HandoverRefused(
            f"{target} is of a topic with the id {topic_id}, and the cluster's has {there.topic_id}: the directory is "
            "of a topic that was deleted. Start the broker, which removes it, and stop it"
        )
    max_epoch = there.partitions[source.partition.partition].leader_epoch
    is_there = _check_target(files, source, target, listing, copied, max_epoch)
    return Copy(source=source, target=target, max_epoch=max_epoch, names=copied, size_bytes=size, is_there=is_there)


def _is_copied(name: str) -> bool:
    parsed = names.parse_segment_name(name)
    return parsed is not None and parsed[1] in _COPIED


def _check_target(
    files: Files, source: PartitionState, target: str, listing: list[str], copied: tuple[str, ...], max_epoch: int
) -> bool:
    """Refuse a target that holds records of others; tell whether it holds all of the source's."""
    found = set()
    for name in listing:
        parsed = names.parse_segment_name(name)
        if name == names.CHECKPOINT:
            raise HandoverRefused(
                f"{target} was opened by seeklog, whose files there are of the empty partition. Remove its seeklog-* "
                "files first"
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
    """Yield what groups have committed for topics of the cluster."""
    with store.open(read_only=True) as opened:
        for group in sorted(opened.groups()):
            for partition, committed in sorted(opened.describe_group(group).committed.items()):
                if partition.topic in cluster.topics and partition.topic not in names.INTERNAL_TOPICS:
                    yield group, partition, committed.offset


def hand_over_into(
    store: LocalStore, target: Target, *, advance: Callable[[int], object] = lambda size: None
) -> IntoPlan:
    """Copy a store's partitions into a stopped broker's directory; return what was done. All is durable on return."""
    missing = plan_into(store, target).missing
    if missing:
        raise HandoverRefused(
            f"the cluster has no topic {missing[0].name!r}"
            + (f", nor {len(missing) - 1} others" if len(missing) > 1 else "")
            + ". Create them there, stop the broker, then run this again; --dry-run shows the commands"
        )
    with locked_root(store.files, target.data_dir), store.settled():
        plan = _plan(store, target)
        plan.store.check_clean()
        with translated(f"{target.data_dir} cannot be written", advice="run this again once it can be"):
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
    # The empty segment that the broker made is left over if the records begin later.
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
    """Return leader epochs with those above a cluster's lowered to it: they become one, from the first of them on."""
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
            f"the log ends in the middle of a batch, {len(left)} bytes in",
            path=path,
            position=origin,
            advice="Run seeklog verify on the store for the extent.",
        )


def _lower_epochs_in(data: bytearray, max_epoch: int, *, path: str, origin: int) -> int:
    """Lower the epochs of the whole batches in `data`; return where those end."""
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
    """Return the file that `kafka-consumer-groups --reset-offsets --from-file` reads: group,topic,partition,offset."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, partition, offset in offsets:
        writer.writerow((group, partition.topic, partition.partition, offset))
    return text.getvalue().encode()
