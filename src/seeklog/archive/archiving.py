"""Archiving: copies segments to an archive. It can be repeated and interrupted.

It has three steps, so that the second can run in many tasks at once: `plan_archive` decides what to copy, `copying`
copies it, and `finish_archive` writes the manifest, which makes the copies part of the archive.

If two processes archive to the same location at once, one of them gets an error, and the manifest keeps every segment
that the other has named. A directory is locked (`exclusive`). At a URL the manifest is written only over the version
from which the plan was made.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from seeklog import names
from seeklog.archive.copying import copy_plan
from seeklog.archive.manifest import (
    PARTITION_FILES,
    Manifest,
    PartitionEntry,
    SegmentEntry,
    TopicEntry,
    decode_manifest,
    encode_manifest,
)
from seeklog.archive.planning import Plan, Rules, check_target, plan_archive
from seeklog.archive.source import Source, SourceChanged
from seeklog.errors import ArchiveMismatch, NotAccessible, SeeklogError, UsageError, counted
from seeklog.files import translated
from seeklog.files.depot import Depot, Version
from seeklog.names import TopicPartition
from seeklog.topics.catalog import Topic
from seeklog.topics.description import Archived, ArchivedPartition

logger = logging.getLogger("seeklog")

# A partition is planned again if retention deletes, or compaction replaces, one of its segments during the copy.
MAX_PLANS: Final = 5


def archive(
    source: Source, depot: Depot, rules: Rules, copy_all: Callable[[Plan], Sequence[SegmentEntry]] | None = None
) -> Archived:
    """Archive a source to a depot.

    `copy_all` copies the segments of a plan and returns their entries in the plan's order; by default in this process.
    """
    if f"{depot.location}/".startswith(f"{source.root}/"):
        raise UsageError(f"{depot.location} is inside the store; archive to another location")
    if copy_all is None:
        copy_all = partial(copy_plan, files=source.files, depot=depot, rules=rules)
    fact = f"{source.root} cannot be archived to {depot.location}"
    with translated(fact, when_full="the manifest there is unchanged"), exclusive(depot):
        for _ in range(MAX_PLANS):
            try:
                plan = begin_archive(plan_archive(source, depot, rules), depot)
                entries = copy_all(plan)
                done = finish_archive(plan, entries, depot)
                return replace(done, partitions=_coverage(source, _manifest_after(plan, entries)))
            except SourceChanged as error:
                changed = error  # the next plan finds what was copied
        raise NotAccessible(f"{source.root} changes faster than it can be copied: {changed}; archive again")


@contextlib.contextmanager
def exclusive(depot: Depot) -> Iterator[None]:
    """Lock a location for archiving, if it can be locked; else raise `LogLocked`."""
    # Before the lock: no lock file is created in a directory that is not an archive.
    check_target(depot, depot.version(names.ARCHIVE))
    with depot.locked():
        yield


def begin_archive(plan: Plan, depot: Depot) -> Plan:
    """Mark a location as an archive before the first copy, so that a partial copy is not taken for a store.

    Returns the plan with the version of the new manifest.
    """
    if plan.version is not None:
        return plan
    manifest = Manifest(is_complete=False)
    return replace(plan, manifest=manifest, version=_write_manifest(encode_manifest(manifest), depot, over=None))


def finish_archive(plan: Plan, entries: Iterable[SegmentEntry], depot: Depot) -> Archived:
    """Remove the files replaced by the previous run, then write the manifest with the new copies."""
    if depot.version(names.ARCHIVE) != plan.version:
        raise _overtaken(depot)
    before, after = plan.manifest, _manifest_after(plan, entries)
    named = after.paths()
    data = encode_manifest(after)
    decode_manifest(data, path=f"{depot.location}/{names.ARCHIVE}")  # an error here leaves the archive unchanged
    for partition in plan.partitions:
        # A partition without segments gets no files.
        for name, beside in partition.files.items() if partition.steps else ():
            depot.put(f"{partition.partition}/{name}", [beside])
    # The current manifest no longer uses these files, and lists them until they are removed.
    removed = [path for path in before.replaced if path not in named]
    for path in removed:
        depot.remove(path)
    _write_manifest(data, depot, over=plan.version)
    copies = plan.copies
    kept = sum(len(partition.steps) for partition in plan.partitions) - len(copies)
    logger.info("%s: archived %s, %d were there already", depot.location, counted(len(copies), "segment"), kept)
    return Archived(
        location=depot.location,
        copied_segments=len(copies),
        copied_bytes=sum(copy.size for copy in copies),
        kept_segments=kept,
        removed_files=len(removed),
    )


def _coverage(source: Source, manifest: Manifest) -> tuple[ArchivedPartition, ...]:
    """Return how much of each partition is in the archive."""
    found = []
    for topic in (source_topic.topic for source_topic in source.topics):
        for number in topic.partitions:
            entry = manifest.topics[topic.name].partitions.get(number)
            segments = entry.segments if entry is not None else ()
            start, end = _bounds(source, TopicPartition(topic.name, number))
            stamps = (segment.max_timestamp_ms for segment in reversed(segments) if segment.max_timestamp_ms >= 0)
            found.append(
                ArchivedPartition(
                    topic=topic.name,
                    partition=number,
                    archived_end_offset=entry.end_offset if entry is not None else None,
                    log_start_offset=start,
                    high_watermark=end,
                    newest_timestamp_ms=next(stamps, None),
                )
            )
    return tuple(found)


def _bounds(source: Source, partition: TopicPartition) -> tuple[int | None, int | None]:
    """Return the log start offset and the high watermark, or None for a log that cannot be read.

    The archive is written by then, and its sealed segments are whole: an error would say otherwise.
    """
    try:
        seen = source.ask(partition)
    except SeeklogError as error:
        logger.warning("%s: what is not archived is not known: %s", partition, error)
        return None, None
    return seen.log_start_offset, seen.high_watermark


def _manifest_after(plan: Plan, entries: Iterable[SegmentEntry]) -> Manifest:
    """Return the manifest with the segments that were there and those that were copied."""
    before, copied = plan.manifest, iter(entries)
    partitions = {topic.name: dict(topic.partitions) for topic in before.topics.values()}
    for planned in plan.partitions:
        if planned.steps:
            partitions.setdefault(planned.partition.topic, {})[planned.partition.partition] = planned.entry(copied)
    topics = dict(before.topics)
    for topic, *_ in plan.topics:
        topics[topic.name] = TopicEntry(
            name=topic.name,
            topic_id=topic.topic_id,
            config=dict(topic.config),
            partitions=partitions.get(topic.name, {}),
            empty=_empty_partitions(plan, topic, partitions.get(topic.name, {})),
        )
    root = before.root if plan.root is None else plan.root
    after = replace(before, is_complete=True, topics=topics, root=root)
    named = after.paths()
    # Only segments may still be open in a reader. Other files that are no longer named are left where they are.
    others = [path for path in before.paths() if path not in named]
    replaced = {path for path in others if path.rpartition("/")[2] not in PARTITION_FILES}
    replaced.update(path for planned in plan.partitions for path in planned.strays if path not in named)
    return replace(after, replaced=tuple(sorted(replaced)))


def _empty_partitions(plan: Plan, topic: Topic, filled: Mapping[int, PartitionEntry]) -> dict[int, int]:
    """Return the partitions of a topic that have no segment in the archive, with their log start offsets."""
    return {
        planned.partition.partition: planned.log_start_offset
        for planned in plan.partitions
        if planned.partition.topic == topic.name and planned.partition.partition not in filled
    }


def _write_manifest(data: bytes, depot: Depot, *, over: Version | None) -> Version:
    try:
        return depot.swap(names.ARCHIVE, data, over=over)
    except FileExistsError as error:
        raise _overtaken(depot) from error


def _overtaken(depot: Depot) -> ArchiveMismatch:
    return ArchiveMismatch(
        f"another process has archived to {depot.location} meanwhile; its segments are kept as they are. Archive again"
    )
