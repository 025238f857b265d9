"""The source of an archive run: its segments, and their bytes, checked as they are read.

Sealed segments do not change any more. Of the segments after them, an archive run can take the bytes below the recovery
point: a prefix that only a truncation changes. Nothing is locked or changed, and another process may write the source
meanwhile. If retention deletes a segment, or compaction replaces it, `SourceChanged` is raised and its partition is
planned again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from seeklog import names
from seeklog.archive.reading import ArchivedFiles
from seeklog.clock import Clock
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptBatch, CorruptionError, LostRecords, NotAccessible
from seeklog.files import Files, ReadOnlyFiles, read_if_exists
from seeklog.log import (
    ADVICE,
    Segment,
    Shared,
    Snapshot,
    decode_transaction,
    list_beside_writer,
    prefix_size,
    scan_into,
    seal_of,
)
from seeklog.log.side import Checkpoint, PageSums, read_seal
from seeklog.names import TopicPartition
from seeklog.record.crc import crc32c
from seeklog.record.segment_state import SegmentState
from seeklog.topics.catalog import Topic
from seeklog.topics.producer_ids import decode_identity

# Compaction swaps a segment in within this time, even on a busy disk.
SWAP_WAIT_S: Final = 2.0
SWAP_PAUSE_S: Final = 0.02
PREFIX_CHUNK: Final = 1 << 20


class SourceTopic(NamedTuple):
    """A topic to archive: its configuration, and its partitions' values in the root's checkpoints."""

    topic: Topic
    config: LogConfig
    inherited: Mapping[int, Checkpoint | None]


class Source(NamedTuple):
    """The store and topics to archive."""

    files: Files
    root: str
    topics: Sequence[SourceTopic]
    clock: Clock
    ask: Callable[[TopicPartition], Snapshot]
    """Returns the offsets of a partition as they are now."""


class Listed(NamedTuple):
    """The segments of a partition at one moment."""

    names: list[str]
    """The names in its directory."""
    sealed: list[Segment]
    """The segments that will not change."""
    open: list[Segment]
    """The segments after them: rolled ones that have no seal, and the active one."""


class SourceChanged(Exception):
    """A segment was deleted or replaced since its partition was planned."""


def read_root(files: Files, root: str) -> dict[str, bytes]:
    """Return the small files of a store's root that a backup includes: named producers and transactions.

    Raises `CorruptionError` if one is damaged: an archive with it could not be restored.
    """
    found = {}
    for name in filter(names.is_archived_root_file, files.list(root)):
        path = f"{root}/{name}"
        data = read_if_exists(files, path)
        if data is not None:  # another process may have just removed it
            decode: Callable[..., object] = decode_identity if name.startswith(names.PRODUCER) else decode_transaction
            decode(data, path=path)
            found[name] = data
    return found


# ---------------------------------------------------------------- which segments


def list_segments(shared: Shared, checkpoint: Checkpoint | None, clock: Clock, *, archived_end: int) -> Listed:
    """Return the segments of a partition, as of one moment. `archived_end` is the end of those that were archived.

    While compaction swaps a segment in, that segment is unsettled, though later ones may be settled. Archiving only the
    earlier segments would not match any state of the log: they may lack a key whose newer record comes later. Without
    compaction, an unsettled segment may have lost its seal in a crash; then the segments before it are enough, unless
    the archive already has more.
    """
    deadline = clock.monotonic() + SWAP_WAIT_S
    while True:
        listing, segments = list_beside_writer(shared)
        sealed, unsettled = _settled(shared, segments, checkpoint)
        listed = Listed(listing, sealed, segments[len(sealed) :])
        if unsettled is None:
            return listed
        is_compacted = shared.config.compacts or unsettled.path.endswith(names.SWAP)
        if not is_compacted and archived_end <= (sealed[-1].next_offset if sealed else 0):
            return listed
        if clock.monotonic() >= deadline:
            raise NotAccessible(
                f"{unsettled.path} is being swapped in by compaction, or has lost its seal. If no writer is running, a "
                "crash interrupted one: run `seeklog compact`, or open the partition for writing, to repair it, then "
                "archive again. Nothing was changed"
            )
        clock.sleep(SWAP_PAUSE_S)


def _settled(
    shared: Shared, segments: list[Segment], checkpoint: Checkpoint | None
) -> tuple[list[Segment], Segment | None]:
    """Return the segments that will not change, the first of `segments`, and the unsettled one after them, if any.

    An unsettled segment is being replaced, or has no seal although a later segment has one.
    """
    start = checkpoint.log_start_offset if checkpoint is not None else 0
    while len(segments) > 1 and segments[1].base_offset <= start:
        segments.pop(0)
    is_ours = checkpoint is not None and not checkpoint.foreign
    settled: list[Segment] = []
    rolled: Segment | None = None
    for segment in segments:
        if segment.path.endswith(names.SWAP):
            return settled, segment
        seal = read_seal(shared.files, shared.directory, segment.base_offset)
        is_last = segment is segments[-1]
        if rolled is not None:
            if seal is not None and not is_last:
                return settled, rolled
            continue
        # A rolled segment is sealed by the next sync. Files at a URL are never written again, and every segment in a
        # manifest is final.
        is_open = (is_ours or is_last) and seal is None and not isinstance(shared.files, ArchivedFiles)
        is_empty = is_last and not segment.size
        if is_open or is_empty or (is_last and not isinstance(shared.files, ReadOnlyFiles)):
            rolled = segment
            continue
        if settled and _is_hole(settled[-1], segment, checkpoint):
            break
        if seal is not None:
            segment.attach(seal)
            segment.end_before(seal.next_offset)
        elif is_last and checkpoint is not None:
            segment.end_before(checkpoint.recovery_point)
        settled.append(segment)
    return settled, None


def _is_hole(before: Segment, segment: Segment, checkpoint: Checkpoint | None) -> bool:
    """Return whether a crash lost the records between two segments. The next recovery then cuts off the later one.

    Raises `LostRecords` if the missing records had been synced.
    """
    end, base_offset = before.next_offset, segment.base_offset
    if end == base_offset or not before.contiguous or checkpoint is None or (end, base_offset) in checkpoint.gaps:
        return False
    if end < checkpoint.recovery_point:
        raise LostRecords(
            f"offsets {end} to {base_offset - 1} are missing before this segment; nothing was archived",
            path=segment.path,
            advice=ADVICE,
        )
    return True


# ---------------------------------------------------------------- their bytes


def durable_prefix(segment: Segment, *, recovery_point: int, contiguous_from: int) -> Segment | None:
    """Return the part of an open segment below the recovery point as a sealed segment, or None if it is empty.

    Its seal is not on disk. The same bytes always have the same seal, so a repeated run finds its own copies.
    """
    shared, base_offset = segment.shared, segment.base_offset
    if recovery_point <= base_offset:
        return None
    is_trusted = contiguous_from <= base_offset
    with source_file(segment.path):
        size, end = prefix_size(segment, recovery_point, contiguous=is_trusted)
        found = Segment(shared, base_offset, size=size, next_offset=end, seal=None)
        found.path = segment.path
        state = shared.new_state(base_offset)
        sums = None if is_trusted else PageSums()
        for _, data, taken in scan_into(state, found, contiguous_from=base_offset if is_trusted else INT64_MAX):
            if sums is not None:
                sums.add(data, taken)
        found.release()
    if state.problem is not None:
        raise state.problem.located(segment.path)
    if state.size != size:
        raise SourceChanged(f"{segment.path} was truncated")
    state.finish_times()
    found.attach(seal_of(state, sealed_at_ms=0, may_have_gaps=not is_trusted, sums=sums))
    # Its page checksums are not on disk, either.
    found.read_unproved()
    return found if size else None


def crc_of_prefix(segment: Segment, size: int) -> int | None:
    """Return the CRC of the first `size` bytes of a segment's file, or None if it is shorter."""
    crc = position = 0
    with source_file(segment.path):
        handle = segment.handle()
        while position < size:
            data = segment.shared.files.read(handle.number, min(PREFIX_CHUNK, size - position), position)
            if not data:
                return None
            crc, position = crc32c(data, crc), position + len(data)
    return crc


def log_parts(segment: Segment, state: SegmentState, sums: PageSums) -> Iterator[bytes]:
    """Yield a segment's bytes after checking their batches. Damage is raised before its bytes are yielded."""
    contiguous_from = segment.base_offset if segment.contiguous else INT64_MAX
    with source_file(segment.path):
        try:
            for _, data, size in scan_into(state, segment, contiguous_from=contiguous_from):
                if segment.seal is not None and segment.seal.pages is not None:
                    sums.add(data, size)
                yield data[:size]
        except CorruptionError:
            check_unchanged(segment)
            raise
    _check_whole(segment, state)


def check_unchanged(segment: Segment) -> None:
    """Raise `SourceChanged` for a segment that was replaced or is being replaced: it is not damaged."""
    files, directory = segment.shared.files, segment.shared.directory
    with source_file(segment.path):
        is_same = (
            names.segment_name(segment.base_offset, names.LOG + names.SWAP) not in files.list(directory)
            and files.file_size(segment.path) == segment.size
            and read_seal(files, directory, segment.base_offset) == segment.seal
        )
    if not is_same:
        raise SourceChanged(f"{segment.path} was replaced")


@contextlib.contextmanager
def source_file(path: str) -> Iterator[None]:
    """Raise `SourceChanged` for a missing file of the source, unlike for one of the archive."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceChanged(f"{path} was deleted") from error


def _check_whole(segment: Segment, state: SegmentState) -> None:
    """Raise an error for a segment that is damaged, truncated, or different from its seal."""
    seal = segment.seal
    is_sealed = seal is not None and (seal.size, seal.log_crc) == (state.size, state.crc)
    if not is_sealed:
        check_unchanged(segment)
    if state.problem is not None:
        raise state.problem.located(segment.path)
    if state.size != segment.size:
        raise LostRecords(
            f"the last batch is incomplete: {state.size} of {segment.size} bytes are valid. It was not archived",
            path=segment.path,
            position=state.size,
        )
    if seal is not None and not is_sealed:
        raise CorruptBatch(
            f"its CRC is {state.crc:08x}, and its seal has {seal.log_crc:08x}. The segment was not archived",
            path=segment.path,
        )
