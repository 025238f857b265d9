"""Taking a store back from a broker: what has changed since seeklog last closed it, and the catalog that follows.

A broker may have appended, deleted, or compacted records, truncated a log, created, deleted, or recreated topics, added
partitions, and changed settings. The former state of a partition is in its `seeklog-checkpoint` and its seals. The
current state is in its files, in the root's checkpoints, and in the cluster's metadata if the directory has them. The
report is made without writing.

Then the catalog is replaced once, and the store is opened for writing, which takes over every changed partition. A
setting in the cluster's metadata replaces the catalog's. If the cluster has no value for it, the catalog's stays,
because the broker's own default is in its `server.properties`, which is not available here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, HandoverRefused, counted
from seeklog.files import Files, Kind, take_lock, translated
from seeklog.handover.plan import LocalStore, Step, check_no_broker, locked_root
from seeklog.log import Segment, Shared, offset_index, scan_headers
from seeklog.log.side import Checkpoint, LeaderEpochs, RootOffsets, read_checkpoint, read_seal
from seeklog.names import TopicPartition
from seeklog.topics.catalog import (
    Catalog,
    Topic,
    are_different,
)
from seeklog.topics.catalog_file import CatalogFile
from seeklog.topics.kraft.cluster import CLUSTER_METADATA, Cluster, has_metadata, read_cluster, read_meta_properties
from seeklog.topics.kraft.settings import changed_by_broker, from_kafka, to_kafka
from seeklog.topics.layout import check_root, find_topics, partition_path, read_topic_id

_DEFAULT: Final = "Kafka's default"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackPlan:
    """What changed under a broker, and the steps that take the store back."""

    root: str
    steps: tuple[Step, ...]
    catalog: Catalog
    """The new topics."""
    before: Catalog
    changed: tuple[TopicPartition, ...]
    """Partitions to open and close, so that their checkpoints are current."""
    has_metadata: bool
    """Whether the directory has the cluster's metadata, which holds its settings."""


def plan_back(store: LocalStore) -> BackPlan:
    """Compare a store with its state when seeklog last closed it. Writes nothing. Refuses if its broker is running."""
    files, root = store.files, store.root
    with translated(f"{root} cannot be read"):
        check_no_broker(files, root)
        return _compare(store)


def _compare(store: LocalStore) -> BackPlan:
    kinds = check_root(store.files, store.root, create=False)
    if names.META_PROPERTIES not in kinds and str(CLUSTER_METADATA) not in kinds:
        raise HandoverRefused(
            f"{store.root} has no {names.META_PROPERTIES}: no broker has used it. Open it as a store; nothing needs to "
            "be done"
        )
    return _Comparison(store, kinds).plan()


def take_back(store: LocalStore) -> BackPlan:
    """Take a store back from a stopped broker. Return what has changed."""
    files, root = store.files, store.root
    plan_back(store)
    with locked_root(files, root):
        with translated(f"{root} cannot be read"):
            plan = _compare(store)
        if plan.catalog != plan.before:
            writing = translated(f"{root} cannot be written", advice="fix that, then run this again")
            with writing, contextlib.closing(take_lock(files, f"{root}/{names.TOPICS_LOCK}")):
                CatalogFile(files, root).replace(plan.catalog)
    store.bring_up_to_date(plan.changed)
    return plan


class _Comparison:
    """Compares the store as seeklog left it with the directory as it is."""

    def __init__(self, store: LocalStore, kinds: Mapping[str, Kind]) -> None:
        files, root = store.files, store.root
        self._files = files
        self._root = root
        self._defaults = store.config
        with contextlib.closing(CatalogFile(files, root)) as file:
            file.read()
        self._before = file.topics
        self._cluster: Cluster | None = read_cluster(files, root) if has_metadata(files, root) else None
        self._node_id = read_meta_properties(files, root).get("node.id", "")
        self._offsets = RootOffsets.read(files, root)
        self._found = find_topics(files, root, kinds, known=())
        self._steps: list[Step] = []
        self._changed: list[TopicPartition] = []
        self._led: list[int] = []
        """The leader epochs of partitions that a broker has led, changed or not."""

    def plan(self) -> BackPlan:
        catalog: Catalog = {}
        for name, topic in sorted((self._found | self._before).items()):
            if name == CLUSTER_METADATA.topic and name not in self._before:
                continue
            after = self._compare(name, topic)
            if after is not None:
                catalog[name] = after
        if self._led:
            detail = f"a broker led {counted(len(self._led), 'partition')}, up to leader epoch {max(self._led)}"
            self._steps.insert(0, Step("led", detail=detail))
        return BackPlan(
            root=self._root,
            steps=tuple(self._steps),
            catalog=catalog,
            before=self._before,
            changed=tuple(self._changed),
            has_metadata=self._cluster is not None,
        )

    def _compare(self, name: str, topic: Topic) -> Topic | None:
        """Return the topic's new entry in the catalog, or None if it was deleted."""
        found = self._found.get(name)
        if topic.change is not None or name == CLUSTER_METADATA.topic:
            return topic  # the next open finishes the change; the cluster's metadata is not a topic of the store
        if found is None and self._cluster is None:
            detail = "its directories are missing, and it is unknown whether it was deleted; it stays in the catalog"
            self._steps.append(Step("missing topic", name, detail=detail))
            return topic
        if found is None:
            if self._cluster is not None and name in self._cluster.topics:
                raise HandoverRefused(
                    f"the cluster has topic {name!r}, and {self._root} has no directory of it: the broker keeps it in "
                    "another of its log.dirs. Move it here first"
                )
            self._steps.append(Step("deleted topic", name, detail="its directories are gone"))
            return None
        is_new = name not in self._before
        if is_new or are_different(found.topic_id, topic.topic_id):
            if is_new:
                detail = f"id {found.topic_id}, {counted(len(found.partitions), 'partition')}"
            else:
                detail = f"id {found.topic_id} instead of {topic.topic_id}: other records under the same name"
            self._steps.append(Step("new topic" if is_new else "recreated topic", name, detail=detail))
            self._changed += [TopicPartition(name, number) for number in found.partitions]
            return self._with_settings(found, is_new=True)
        partitions = tuple(sorted({*topic.partitions, *found.partitions}))
        for number in partitions:
            self._compare_partition(TopicPartition(name, number), topic, found)
        return self._with_settings(replace(topic, partitions=partitions))

    def _compare_partition(self, partition: TopicPartition, topic: Topic, found: Topic) -> None:
        if partition.partition not in found.partitions:
            self._step("missing partition", partition, "its directory is missing; restore it from a copy")
            return
        path = partition_path(self._root, partition)
        if partition.partition not in topic.partitions:
            self._changed.append(partition)
            self._step("new partition", partition, f"up to offset {_end_offset(self._files, path)}")
            return
        if are_different(read_topic_id(self._files, path), found.topic_id):
            self._step("other topic", partition, "its directory belongs to another topic of that name; move it away")
            return
        checkpoint = read_checkpoint(self._files, path)
        if checkpoint is None:
            self._changed.append(partition)
            self._step("unknown before", partition, f"up to offset {_end_offset(self._files, path)}")
            return
        changes = list(self._changes(partition, path, checkpoint))
        newest = checkpoint.epochs[-1][0] if checkpoint.epochs else -1
        epoch = LeaderEpochs.read(self._files, path).latest
        if epoch > newest:
            self._led.append(epoch)
        if changes or epoch > newest:
            self._changed.append(partition)
        for action, detail in changes:
            self._step(action, partition, detail)

    def _changes(self, partition: TopicPartition, path: str, closed: Checkpoint) -> Iterator[tuple[str, str]]:
        end = _end_offset(self._files, path)
        if closed.active is None:
            yield "not closed", f"seeklog had not closed it; it was durable up to offset {closed.recovery_point}"
        elif end > closed.recovery_point:
            yield "appended", f"offsets {closed.recovery_point} to {end - 1}"
        if end < closed.recovery_point:
            yield "cut", f"it ends at offset {end}, and ended at {closed.recovery_point} before"
        start = max(self._offsets.log_start_offsets.get(partition, 0), closed.log_start_offset)
        if start > closed.log_start_offset:
            yield "deleted", f"offsets {closed.log_start_offset} to {start - 1}"
        compacted = self._compacted_segments(path, start)
        if compacted:
            yield "compacted", counted(compacted, "segment")

    def _compacted_segments(self, path: str, start: int) -> int:
        """Return the number of sealed segments that differ from their seals, except those that retention deleted."""
        listing = set(self._files.list(path))
        count = 0
        for base_offset, suffix in filter(None, map(names.parse_segment_name, listing)):
            seal = read_seal(self._files, path, base_offset) if suffix == names.SEAL else None
            if seal is not None and seal.next_offset > start:
                log = names.segment_name(base_offset, names.LOG)
                count += log not in listing or self._files.file_size(f"{path}/{log}") != seal.size
        return count

    def _with_settings(self, topic: Topic, *, is_new: bool = False) -> Topic:
        """Return a topic with the cluster's settings for it."""
        if self._cluster is None or topic.name not in self._cluster.topics or topic.name in names.INTERNAL_TOPICS:
            return topic
        theirs = self._cluster.config_of(topic.name, node_id=self._node_id)
        ours = self._defaults.with_settings(topic.config)
        taken = theirs if is_new else changed_by_broker(ours, theirs)
        handed_over = {} if is_new else to_kafka(ours).values
        for setting, value in sorted(handed_over.items()):
            # The cluster does not set when seeklog syncs.
            if setting not in theirs and not setting.startswith("flush."):
                detail = "the cluster has no value for it; seeklog's stays"
                self._steps.append(Step("keep", topic.name, setting=setting, value=value, detail=detail))
        config, left = from_kafka(taken)
        for setting, value in sorted(taken.items()):
            was = None if is_new else f"was {handed_over.get(setting, _DEFAULT)}"
            action = "leave out" if setting in left else "set"
            self._steps.append(Step(action, topic.name, setting=setting, value=value, detail=left.get(setting, was)))
        return replace(topic, config={**topic.config, **config})

    def _step(self, action: str, partition: TopicPartition, detail: str) -> None:
        self._steps.append(Step(action, *partition, detail=detail))


def _end_offset(files: Files, path: str) -> int:
    """Return the offset after the last whole batch of a partition, from the headers in its last segment."""
    parsed = filter(None, map(names.parse_segment_name, files.list(path)))
    base = max((base for base, suffix in parsed if suffix == names.LOG), default=None)
    if base is None:
        return 0
    shared = Shared(files, path, LogConfig(), writable=False)
    size = files.file_size(shared.path(base, names.LOG))
    segment = Segment(shared, base, size=size, next_offset=INT64_MAX, seal=None)
    end = base
    try:
        index = offset_index(segment)
        start = index[len(index) - 1].offset if len(index) else base
        for _, header in scan_headers(segment, start, INT64_MAX):
            if header.base_offset < end:
                break
            end = header.next_offset
    except CorruptionError:
        pass  # a torn tail, or the zeros of a preallocated file
    finally:
        shared.clear()
    return end
