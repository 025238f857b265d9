"""Restoring an archive: its segments become the partitions of a new store.

The directory has the file `seeklog-restore` from before the first file until the whole store is there and checked.
While it has this file it is not a store: nothing opens it. A restore that was interrupted is continued by the next one,
which keeps the files that are whole. The file is text; its last line is the CRC-32C of all lines before it:

    seeklog-restore 1
    orders-0 5JdNGzCmQmupZbKTTsDZjQ
    crc32c 5d1c9ad2

with a line for each partition: its directory and its topic's id.

Every file is compared with the manifest by size and CRC as it is copied. Then each log is read back from the disk:
every batch is checked, and its records, batches and offsets are counted. The side files that a store keeps for itself,
the checkpoints and the catalog, are derived from the manifest and written last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Final

from seeklog import names
from seeklog.archive.manifest import Manifest, Meter, PartitionEntry, SegmentEntry, StoredFile, TopicEntry
from seeklog.archive.reading import catalog_of, checkpoint_of
from seeklog.clock import Clock
from seeklog.config import LogConfig
from seeklog.errors import CorruptionError, NotALog, TopicNotFound, UsageError, counted
from seeklog.files import (
    Files,
    Lock,
    publish_file,
    read_parts,
    remove_if_exists,
    replace_file,
    sync_ancestors,
    take_lock,
    write_parts,
)
from seeklog.files.depot import PART, Depot
from seeklog.log import Segment, Shared
from seeklog.log.side import Checkpoint, PageSums, write_checkpoint
from seeklog.names import TopicPartition
from seeklog.record.framed import decode_framed, encode_framed
from seeklog.topics.catalog import encode_catalog
from seeklog.topics.catalog_file import write_catalog
from seeklog.topics.layout import partition_path, topic_metadata

Progress = Callable[[int, int], None]
"""Called with the number of bytes restored so far, and the total."""

_FIRST_LINE: Final = "seeklog-restore 1"
_START_AGAIN: Final = "Empty the directory and restore again."
# Files of a segment that does not grow. The last segment of a log gets them when it is sealed.
_OF_SEALED: Final = (names.SEAL, names.KEY_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The directory to restore to."""

    files: Files
    root: str
    clock: Clock


@dataclass(slots=True)
class Amount:
    """How much was restored."""

    records: int = 0
    bytes: int = 0


def choose(manifest: Manifest, topics: Collection[str] | None, *, location: str) -> Manifest:
    """Return the part of a manifest to restore."""
    if topics is None:
        return manifest
    missing = sorted(set(topics) - manifest.topics.keys())
    if missing:
        known = ", ".join(sorted(manifest.topics)) or "none"
        raise TopicNotFound(f"there is no topic {missing[0]!r} in {location}; its topics: {known}")
    return replace(manifest, topics={name: manifest.topics[name] for name in dict.fromkeys(topics)})


def entries_of(manifest: Manifest) -> Iterator[tuple[TopicEntry, TopicPartition, PartitionEntry]]:
    """Yield every partition of a manifest. One without segments has an entry without segments."""
    for topic in manifest.topics.values():
        empty = {
            number: PartitionEntry(partition=number, log_start_offset=start) for number, start in topic.empty.items()
        }
        for number, entry in sorted({**topic.partitions, **empty}.items()):
            yield topic, TopicPartition(topic.name, number), entry


def size_of(manifest: Manifest) -> int:
    """Return the bytes of all log files."""
    return sum(segment.log.size for _, _, entry in entries_of(manifest) for segment in entry.segments)


def check_depot(depot: Depot, manifest: Manifest) -> None:
    """Raise `CorruptionError` if a file of the archive is missing or has another size."""
    for _, partition, entry in entries_of(manifest):
        sizes = depot.sizes(str(partition)) if entry.segments else {}
        for name, file in entry.paths().items():
            if sizes.get(name) != file.size:
                found = f"has {sizes[name]} bytes" if name in sizes else "is missing"
                raise CorruptionError(
                    f"the manifest has it with {file.size} bytes, but it {found}; archive with repair=True from a "
                    "store that still has it. Nothing was restored",
                    path=f"{depot.location}/{partition}/{name}",
                )


# ---------------------------------------------------------------- the directory


def check_target(target: Target, manifest: Manifest) -> bool:
    """Return whether an interrupted restore of the same partitions is there; refuse every other content."""
    try:
        found = set(target.files.list(target.root))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise UsageError(f"{target.root} is a file; restore to a directory that is empty or does not exist") from None
    found -= {names.RESTORE_LOCK, names.RESTORE + names.TEMPORARY}
    if not found:
        return False
    if names.RESTORE not in found:
        raise UsageError(
            f"{target.root} is not empty: it holds {min(found)!r}; restore to a directory that is empty or does not "
            "exist. Nothing was changed"
        )
    path = f"{target.root}/{names.RESTORE}"
    advice = _START_AGAIN
    begun = decode_framed(
        target.files.read_file(path), _FIRST_LINE, subject="the list of partitions", path=path, advice=advice
    )
    if not set(begun) <= set(_lines(manifest)):
        raise UsageError(f"{target.root} holds an interrupted restore of other topics; {advice[0].lower()}{advice[1:]}")
    return True


def _lines(manifest: Manifest) -> list[str]:
    return [f"{partition} {topic.topic_id}" for topic, partition, _ in entries_of(manifest)]


@contextlib.contextmanager
def restoring(target: Target, manifest: Manifest) -> Iterator[None]:
    """Mark a directory as unfinished until the block ends. After an error it stays so, and can be continued."""
    files, root = target.files, target.root
    check_target(target, manifest)
    files.make_directory(root)
    sync_ancestors(files, root)
    advice = "another process is restoring to it; restore again when it has finished"
    lock: Lock = take_lock(files, f"{root}/{names.RESTORE_LOCK}", subject=root, advice=advice)
    try:
        check_target(target, manifest)
        # Durable before the first partition: what a crash leaves is never taken for a store.
        replace_file(files, root, names.RESTORE, encode_framed(_FIRST_LINE, _lines(manifest)))
        files.sync_directory(root)
        yield
        files.sync_directory(root)
        files.remove(f"{root}/{names.RESTORE}")
        files.sync_directory(root)
        remove_if_exists(files, f"{root}/{names.RESTORE_LOCK}")
    finally:
        lock.close()


# ---------------------------------------------------------------- the partitions


def restore_partitions(
    depot: Depot, target: Target, manifest: Manifest, *, config: LogConfig, progress: Progress | None = None
) -> Amount:
    """Write the partitions and the catalog of a manifest, and check every byte. Return how much that is."""
    amount, total = Amount(), size_of(manifest)

    def note(size: int) -> None:
        amount.bytes += size
        if progress is not None:
            progress(amount.bytes, total)

    for topic, partition, entry in entries_of(manifest):
        one = _Partition(depot, target, partition, entry, topic, config.with_settings(topic.config))
        amount.records += one.restore(note)
    write_catalog(target.files, target.root, encode_catalog(catalog_of(manifest)))
    return amount


class _Partition:
    """Restores one partition."""

    def __init__(
        self,
        depot: Depot,
        target: Target,
        partition: TopicPartition,
        entry: PartitionEntry,
        topic: TopicEntry,
        config: LogConfig,
    ) -> None:
        self._depot = depot
        self._files = target.files
        self._clock = target.clock
        self._partition = partition
        self._entry = entry
        self._topic = topic
        self._shared = Shared(target.files, partition_path(target.root, partition), config, writable=True)
        self._directory = self._shared.directory
        self._written: set[str] = set()

    def restore(self, note: Callable[[int], None]) -> int:
        """Write the files of the partition, its checkpoint last. Return the number of its records."""
        self._files.make_directory(self._directory)
        # Until it is written again, no checkpoint of an earlier attempt describes the files.
        remove_if_exists(self._files, f"{self._directory}/{names.CHECKPOINT}")
        metadata = names.PARTITION_METADATA
        replace_file(self._files, self._directory, metadata, topic_metadata(self._topic.topic_id))
        for name, file in self._entry.files.items():
            if name != metadata:
                self._copy(name, name, file)
        segments = self._entry.segments
        ends = {first.base_offset for first, second in pairwise(segments) if self._is_gap(first, second)}
        records = 0
        try:
            for segment, following in zip_longest(segments, segments[1:]):
                is_last = following is None
                self._copy_segment(segment, is_active=is_last and segment.is_partial)
                self._check_segment(segment, is_last=is_last, has_gap_after=segment.base_offset in ends)
                records += segment.record_count
                note(segment.log.size)
        finally:
            self._shared.clear()
        if not segments or not segments[-1].is_partial:
            self._begin_segment(self._entry.end_offset)
        self._remove_others()
        self._files.sync_directory(self._directory)
        write_checkpoint(self._files, self._directory, self._checkpoint())
        return records

    def _is_gap(self, first: SegmentEntry, second: SegmentEntry) -> bool:
        return (first.next_offset, second.base_offset) in self._entry.gaps

    def _checkpoint(self) -> Checkpoint:
        # The seals say where offsets are missing, so the gaps need not be declared. Opening the log for writing reads
        # its last segment.
        return replace(checkpoint_of(self._entry), active=None, gaps=())

    def _copy_segment(self, segment: SegmentEntry, *, is_active: bool) -> None:
        for suffix, file in segment.files.items():
            if not (is_active and suffix in _OF_SEALED):
                name = names.segment_name(segment.base_offset, suffix)
                self._copy(f"{segment.stem}{suffix}", name, file)

    def _copy(self, source: str, name: str, file: StoredFile) -> None:
        """Copy a file of the archive, unless it is there already."""
        self._written.add(name)
        path, origin = f"{self._directory}/{name}", f"{self._partition}/{source}"
        if self._has(path, file):
            return
        meter = Meter()
        try:
            write_parts(self._files, path + names.TEMPORARY, meter.passing(self._depot.read(origin)))
        except FileNotFoundError as error:
            raise CorruptionError(
                f"the manifest has it with {file.size} bytes, but it is missing",
                path=f"{self._depot.location}/{origin}",
            ) from error
        if meter.file != file:
            remove_if_exists(self._files, path + names.TEMPORARY)
            raise CorruptionError(
                f"it has {meter.size} bytes and the CRC {meter.crc:08x}, and the manifest has {file.size} bytes and "
                f"{file.crc:08x}; archive with repair=True from a store that still has it",
                path=f"{self._depot.location}/{origin}",
            )
        publish_file(self._files, self._directory, name)

    def _has(self, path: str, file: StoredFile) -> bool:
        meter = Meter()
        try:
            if self._files.file_size(path) != file.size:
                return False
            for _ in meter.passing(read_parts(self._files, path, size=PART)):
                pass
        except FileNotFoundError:
            return False
        return meter.file == file

    def _check_segment(self, entry: SegmentEntry, *, is_last: bool, has_gap_after: bool) -> None:
        """Read a segment back and compare it with the manifest. Seal it again if its seal was made for the archive."""
        seal = entry.seal()
        segment = Segment(
            self._shared, entry.base_offset, size=entry.log.size, next_offset=entry.next_offset, seal=seal
        )
        if entry.is_partial:
            segment.read_unproved()
        sums = PageSums()
        state = segment.scan_all(sums=sums)
        segment.release()
        if state.problem is not None:
            raise state.problem.located(segment.path)
        found = (state.size, state.crc, state.next_offset, state.record_count, state.batch_count)
        if found != (entry.log.size, entry.log.crc, entry.next_offset, entry.record_count, entry.batch_count):
            raise CorruptionError(
                f"it holds {counted(state.record_count, 'record')} in "
                f"{counted(state.batch_count, 'batch', 'batches')} up to offset {state.next_offset - 1}, and the "
                f"manifest has {entry.record_count:,} in {entry.batch_count:,} up to {entry.next_offset - 1}; archive "
                "to another location",
                path=segment.path,
            )
        if seal is not None and (has_gap_after or (entry.is_partial and not is_last)):
            state.finish_times()
            segment.write_sealed(
                state,
                sealed_at_ms=self._clock.now_ms(),
                may_have_gaps=has_gap_after or not seal.contiguous,
                clean_offset=seal.clean_offset,
                sums=sums,
            )

    def _begin_segment(self, base_offset: int) -> None:
        """Create the empty segment to which the next records are appended: sealed segments stay as they are."""
        for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            name = names.segment_name(base_offset, suffix)
            self._written.add(name)
            replace_file(self._files, self._directory, name, b"")

    def _remove_others(self) -> None:
        """Remove the segments' files that an interrupted restore of an earlier state of the archive has left."""
        for name in self._files.list(self._directory):
            if names.parse_segment_name(name) is not None and name not in self._written:
                remove_if_exists(self._files, f"{self._directory}/{name}")


def check_is_archive(manifest: Manifest | None, *, location: str) -> Manifest:
    """Return the manifest of a complete archive; raise `NotALog` for anything else."""
    if manifest is None:
        raise NotALog(f"there is no archive at {location}; check the path or the URL")
    if not manifest.is_complete:
        raise NotALog(f"{location} is an incomplete archive; archive to it again to complete it")
    return manifest


def missing_offsets(manifest: Manifest) -> Iterable[tuple[TopicPartition, int, int]]:
    """Yield the gaps that an archive declares: the partition, the first missing offset, and the offset after them."""
    for _, partition, entry in entries_of(manifest):
        for first, end in entry.gaps:
            yield partition, first, end


def ends_of(manifest: Manifest) -> Mapping[TopicPartition, int]:
    """Return the end of each partition in an archive."""
    return {partition: entry.end_offset for _, partition, entry in entries_of(manifest)}
