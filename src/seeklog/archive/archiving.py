"""Archiving: sealed segments copied elsewhere, so that it may be done again, interrupted, and trusted.

The work has three steps, so that the middle one can be done in many places at once: `plan_archive` decides what is
copied, `copying` copies it, and `finish_archive` writes the manifest, which makes it all count.

Of two archivings to one place at once, one gets an error, and the manifest never drops what the other has named: a
directory is locked (`alone`), and elsewhere the manifest is written over the one that the plan was made by, or not at
all.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from seeklog import names
from seeklog.archive.copying import copy_plan
from seeklog.archive.manifest import (
    PARTITION_FILES,
    Manifest,
    SegmentEntry,
    TopicEntry,
    decode_manifest,
    encode_manifest,
)
from seeklog.archive.planning import Plan, Rules, check_place, plan_archive
from seeklog.archive.source import Source, SourceChanged
from seeklog.errors import ArchiveMismatch, NotAccessible, UsageError
from seeklog.files import translated
from seeklog.files.depot import Depot, Version
from seeklog.topics.description import Archived

logger = logging.getLogger("seeklog")

# A partition is planned again when retention deletes a segment, or compaction replaces one, while it is copied.
MAX_PLANS: Final = 5


def archive(
    source: Source, depot: Depot, rules: Rules, copy_all: Callable[[Plan], Sequence[SegmentEntry]] | None = None
) -> Archived:
    """Archive a source to a depot.

    `copy_all` copies what a plan names, and returns the entries in the plan's order: by default in this process.
    """
    if f"{depot.location}/".startswith(f"{source.root}/"):
        raise UsageError(f"{depot.location} lies in the store itself, which has room for partitions alone")
    if copy_all is None:
        copy_all = partial(copy_plan, files=source.files, depot=depot, rules=rules)
    fact = f"{source.root} cannot be archived to {depot.location}"
    with translated(fact, when_full="the manifest there is as it was"), alone(depot):
        for _ in range(MAX_PLANS):
            try:
                plan = begin_archive(plan_archive(source, depot, rules), depot)
                return finish_archive(plan, copy_all(plan), depot)
            except SourceChanged as error:
                changed = error  # what was copied is found to be there
        raise NotAccessible(f"{source.root} changes faster than it can be copied: {changed}; archive again")


@contextlib.contextmanager
def alone(depot: Depot) -> Iterator[None]:
    """Be the only one who archives to a place, where it can be locked; else raise `LogLocked`."""
    # Before the lock: nothing is put beside the files of strangers.
    check_place(depot, depot.version(names.ARCHIVE))
    with depot.locked():
        yield


def begin_archive(plan: Plan, depot: Depot) -> Plan:
    """Mark a place as an archive before the first file: what is half copied must not be taken for a store.

    Returns the plan as it stands with that.
    """
    if plan.version is not None:
        return plan
    manifest = Manifest(is_complete=False)
    return replace(plan, manifest=manifest, version=_write_manifest(encode_manifest(manifest), depot, over=None))


def finish_archive(plan: Plan, entries: Iterable[SegmentEntry], depot: Depot) -> Archived:
    """Remove what was replaced the time before; then write the manifest, which names what was copied."""
    if depot.version(names.ARCHIVE) != plan.version:
        raise _overtaken(depot)
    before, after = plan.manifest, _manifest_after(plan, entries)
    named = after.paths()
    data = encode_manifest(after)
    decode_manifest(data, path=f"{depot.location}/{names.ARCHIVE}")  # raises, while nothing is changed
    for partition in plan.partitions:
        # Nothing is put beside what has no segment yet.
        for name, beside in partition.files.items() if partition.steps else ():
            depot.put(f"{partition.partition}/{name}", [beside])
    # The manifest that is there does not name these any more, and lists them until they are gone.
    removed = [path for path in before.replaced if path not in named]
    for path in removed:
        depot.remove(path)
    _write_manifest(data, depot, over=plan.version)
    copies = plan.copies
    kept = sum(len(partition.steps) for partition in plan.partitions) - len(copies)
    logger.info("%s: archived %d segments, %d were there", depot.location, len(copies), kept)
    return Archived(
        location=depot.location,
        copied_segments=len(copies),
        copied_bytes=sum(copy.size for copy in copies),
        kept_segments=kept,
        removed_files=len(removed),
    )


def _manifest_after(plan: Plan, entries: Iterable[SegmentEntry]) -> Manifest:
    """Return the manifest that names what was there and what was copied."""
    before, copied = plan.manifest, iter(entries)
    partitions = {topic.name: dict(topic.partitions) for topic in before.topics.values()}
    for each in plan.partitions:
        if each.steps:
            partitions.setdefault(each.partition.topic, {})[each.partition.partition] = each.entry(copied)
    topics = dict(before.topics)
    for topic, *_ in plan.topics:
        topics[topic.name] = TopicEntry(
            name=topic.name,
            topic_id=topic.topic_id,
            config=dict(topic.config),
            partitions=partitions.get(topic.name, {}),
        )
    after = replace(before, is_complete=True, topics=topics)
    named = after.paths()
    # Only segments have readers that come back for their files; what else is not named any more may stay.
    others = [path for path in before.paths() if path not in named]
    replaced = sorted(path for path in others if path.rpartition("/")[2] not in PARTITION_FILES)
    return replace(after, replaced=tuple(replaced))


def _write_manifest(data: bytes, depot: Depot, *, over: Version | None) -> Version:
    try:
        return depot.swap(names.ARCHIVE, data, over=over)
    except FileExistsError as error:
        raise _overtaken(depot) from error


def _overtaken(depot: Depot) -> ArchiveMismatch:
    return ArchiveMismatch(
        f"somebody else has archived to {depot.location} meanwhile; what that named is left as it is. Archive again"
    )
