"""`restore`: brings an archive back as a store.

The files are the work of `seeklog.archive.restoring`. Then the store is opened for writing once, before its directory
counts as one: every log is opened, which reads the state of its producers from its batches, and committed offsets that
are beyond the restored records are set back to the end. New records get the offsets after the restored ones, and a
group that was ahead would skip them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from seeklog import names
from seeklog.archive.manifest import Manifest
from seeklog.archive.reading import manifest_in
from seeklog.archive.restoring import (
    Amount,
    Progress,
    Target,
    check_depot,
    check_is_archive,
    check_target,
    choose,
    ends_of,
    entries_of,
    missing_offsets,
    restore_partitions,
    restoring,
    size_of,
)
from seeklog.arguments import check_flags
from seeklog.clock import Clock, SystemClock
from seeklog.config import LogConfig
from seeklog.errors import CorruptionError, UsageError
from seeklog.files import Files, OsFiles, absolute, replace_file, translated
from seeklog.files.depot import Depot, open_depot
from seeklog.log import decode_transaction, end_transaction, lock_out_broker
from seeklog.names import TopicPartition
from seeklog.store.opening import MAX_OPEN_FILES, Location
from seeklog.store.store import Store
from seeklog.topics.description import MovedOffset, Restored, RestoredGap


def restore(
    location: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> Restored:
    """Restore the archive at a directory or a URL to a new store, by default with all of its topics.

    `directory` must be empty or not exist. Topics keep their ids and settings, and records their offsets; appends
    continue after them. Every file is compared with the archive's manifest, and every batch is read back and checked,
    before the directory becomes a store. If the restore is interrupted, nothing opens the directory until another call
    has completed it. Raises `CorruptionError` if the archive is damaged.

    With `dry_run` the sizes of the archive's files are checked, and nothing is written. `storage_options` are for the
    archive. `progress` is called with the bytes restored so far and the total.
    """
    check_flags(dry_run=dry_run)
    if isinstance(topics, str):
        raise UsageError(f"topics is a list of names; pass [{topics!r}]")
    files = files or OsFiles()
    root = absolute(os.fsdecode(directory))
    if names.is_url(root):
        raise UsageError(f"{root} is a URL, and a store is a directory; restore to a directory")
    depot = open_depot(os.fsdecode(location), storage_options=storage_options, files=files)
    if f"{root}/".startswith(f"{depot.location}/") or f"{depot.location}/".startswith(f"{root}/"):
        raise UsageError(f"{root} and the archive {depot.location} contain each other; restore to another directory")
    target = Target(files=files, root=root, clock=clock or SystemClock())
    fact = f"{depot.location} cannot be restored to {root}"
    with translated(fact, when_full="free some disk space, then restore again"):
        whole = check_is_archive(manifest_in(depot), location=depot.location)
        manifest = choose(whole, None if topics is None else list(topics), location=depot.location)
        check_target(target, manifest)
        check_depot(depot, manifest)
        if dry_run:
            records = sum(segment.record_count for _, _, entry in entries_of(manifest) for segment in entry.segments)
            return _result(target, depot, manifest, Amount(records, size_of(manifest)))
        with restoring(target, manifest):
            amount = restore_partitions(depot, target, manifest, config=LogConfig(), progress=progress)
            torn = _restore_root(target, manifest)
            moved = _open_all(target, manifest)
    return _result(target, depot, manifest, amount, moved=moved, torn=torn)


def _result(
    target: Target,
    depot: Depot,
    manifest: Manifest,
    amount: Amount,
    *,
    moved: Iterable[MovedOffset] = (),
    torn: Iterable[str] = (),
) -> Restored:
    partitions = [partition for _, partition, _ in entries_of(manifest)]
    return Restored(
        directory=target.root,
        location=depot.location,
        topics=tuple(sorted(manifest.topics)),
        partitions=len(partitions),
        segments=sum(len(entry.segments) for _, _, entry in entries_of(manifest)),
        records=amount.records,
        bytes=amount.bytes,
        gaps=tuple(
            RestoredGap(topic=at.topic, partition=at.partition, first_offset=first, next_offset=end)
            for at, first, end in missing_offsets(manifest)
        ),
        moved_offsets=tuple(moved),
        torn_transactions=tuple(torn),
    )


def _restore_root(target: Target, manifest: Manifest) -> list[str]:
    """Write the files of named producers and transactions. Return the applications whose transaction is not whole."""
    files, root = target.files, target.root
    ends, torn = ends_of(manifest), []
    for name, data in manifest.root.items():
        if names.parse_transaction_name(name) is None:
            replace_file(files, root, name, data)
            continue
        transaction = decode_transaction(data, path=f"{root}/{name}")
        if any(part.topic not in manifest.topics for part in transaction.parts):
            continue  # only some of its topics are restored
        # The parts of a finished transaction have no record counts.
        written = [
            _has_part(ends, part.partition, part.base_offset + max(1, part.record_count)) for part in transaction.parts
        ]
        if transaction.is_open and not any(written):
            continue  # no record of it was archived: the application commits it again
        # Its staged batches are not in the archive, so it is not continued. Done, it is not appended twice either.
        end_transaction(files, root, transaction)
        if not all(written):
            torn.append(transaction.app)
    files.sync_directory(root)
    return torn


def _has_part(ends: Mapping[TopicPartition, int], directory: str, end: int) -> bool:
    partition = names.parse_partition_name(directory)
    return partition is not None and ends.get(partition, 0) >= end


def _open_all(target: Target, manifest: Manifest) -> list[MovedOffset]:
    """Open every log for writing, and close it cleanly. Return the committed offsets that were set back."""
    location = Location(
        root=target.root,
        files=target.files,
        clock=target.clock,
        read_only=False,
        broker_lock=lock_out_broker(target.files, target.root),
    )
    moved = []
    # Not `open_store`: it refuses the directory until it is whole.
    with Store(location, config=LogConfig(), max_open_files=MAX_OPEN_FILES, background=False) as store:
        ends = ends_of(manifest)
        for partition, end in ends.items():
            with store.writer(*partition) as log:
                if log.log_end_offset != end:
                    raise CorruptionError(
                        f"the log ends at offset {log.log_end_offset}, and in the archive at {end}",
                        path=f"{target.root}/{partition}",
                    )
        for group in store.groups():
            for partition, held in store.describe_group(group).committed.items():
                end = ends.get(partition, held.offset)
                if held.offset > end:
                    store.commit_offsets(group, {partition: end})
                    moved.append(
                        MovedOffset(
                            group=group, topic=partition.topic, partition=partition.partition, was=held.offset, now=end
                        )
                    )
    return moved
