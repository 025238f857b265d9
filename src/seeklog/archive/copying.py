"""Copying the segments of a plan, in this process or in many tasks.

A segment's files are copied byte for byte; of a partial segment only the log is, and its indexes are built from it.
Every batch is checked on the way, and the copy is read back. Nothing in the archive is overwritten except a partial
copy left by an earlier run.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from seeklog import names
from seeklog.archive.manifest import Meter, SegmentEntry, StoredFile
from seeklog.archive.planning import ELSEWHERE, Copy, Plan, Rules
from seeklog.archive.source import check_unchanged, log_parts, source_file
from seeklog.errors import ArchiveMismatch, CorruptionError, counted
from seeklog.files import Files
from seeklog.files.depot import Depot
from seeklog.log import Segment, Shared, aborted_below
from seeklog.log.side import PageSums, encode_head, encode_seal
from seeklog.record.crc import crc32c
from seeklog.record.segment_state import SegmentState

Progress = Callable[[int, int], None]
"""Called with the number of bytes copied so far, and the total."""


def copy_plan(
    plan: Plan, *, files: Files, depot: Depot, rules: Rules, progress: Progress | None = None
) -> list[SegmentEntry]:
    """Copy the segments of a plan in this process."""
    copies = plan.copies
    total = sum(copy.size for copy in copies)
    before = 0
    entries = []
    for copy in copies:
        note = None if progress is None else partial(_note, progress, before, total)
        entries.append(copy_segment(copy, files, depot, rules, note=note))
        before += copy.size
    return entries


def _note(progress: Progress, before: int, total: int, copied: int) -> None:
    progress(before + copied, total)


def copy_segment(
    copy: Copy, files: Files, depot: Depot, rules: Rules, *, note: Callable[[int], None] | None = None
) -> SegmentEntry:
    """Copy the files of one segment. Return its entry for the manifest. `note` is called with the bytes copied so far.

    Raises `CorruptionError` if the source is damaged, and `SourceChanged` if the segment was deleted or replaced.
    """
    shared = Shared(files, copy.directory, copy.config, writable=False)
    segment = Segment(shared, copy.base_offset, size=copy.size, next_offset=copy.base_offset, seal=copy.seal)
    if copy.is_partial:
        segment.read_unproved()  # there is no seal on disk whose page checksums could be compared
    state, sums = shared.new_state(copy.base_offset), _sums(copy)

    def parts_of_log() -> Iterator[bytes]:
        nonlocal state, sums
        state, sums = shared.new_state(copy.base_offset), _sums(copy)
        meter = Meter()
        for part in meter.passing(log_parts(segment, state, sums)):
            if note is not None:
                note(meter.size)
            yield part

    try:
        stored = {names.LOG: _put(copy, names.LOG, copy.size, parts_of_log, depot, rules)}
        for suffix in copy.suffixes:
            if suffix != names.LOG:
                data = _beside(copy, suffix, state, sums, segment)
                stored[suffix] = _put(copy, suffix, len(data), partial(iter, (data,)), depot, rules)
    finally:
        shared.clear()
    return SegmentEntry(
        base_offset=copy.base_offset,
        next_offset=state.next_offset,
        record_count=state.record_count,
        batch_count=state.batch_count,
        max_timestamp_ms=state.max_timestamp,
        seal_bytes=encode_head(copy.seal) if copy.seal is not None else None,
        stem=copy.stem,
        files=stored,
        is_partial=copy.is_partial,
    )


def _sums(copy: Copy) -> PageSums:
    return PageSums(copy.seal.pages.page_size) if copy.seal is not None and copy.seal.pages is not None else PageSums()


def _beside(copy: Copy, suffix: str, state: SegmentState, sums: PageSums, segment: Segment) -> bytes:
    """Return the bytes of a segment's file other than the log, checked against the seal where it has a CRC."""
    seal = copy.seal
    if suffix == names.SEAL and seal is not None:
        return encode_seal(seal, sums.table)
    if copy.is_partial and suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        # On disk these files lack entries, or have later ones.
        state.finish_times()
        return bytes(state.offset_table if suffix == names.OFFSET_INDEX else state.time_table)
    path = f"{copy.directory}/{names.segment_name(copy.base_offset, suffix)}"
    with source_file(path):
        data = segment.shared.files.read_file(path)
    if copy.is_partial:
        return aborted_below(data, end=state.next_offset) if suffix == names.TRANSACTION_INDEX else data
    proofs = {names.OFFSET_INDEX: seal.offset_index_crc, names.TIME_INDEX: seal.time_index_crc} if seal else {}
    if suffix not in proofs or crc32c(data) == proofs[suffix]:
        return data
    # A damaged index is rebuilt from the log, as a reader would do.
    state.finish_times()
    rebuilt = bytes(state.offset_table if suffix == names.OFFSET_INDEX else state.time_table)
    if crc32c(rebuilt) != proofs[suffix]:
        check_unchanged(segment)
        raise CorruptionError(
            "the rebuilt index differs from the sealed one; run `seeklog reindex` on the source and archive again",
            path=path,
        )
    return rebuilt


def _put(
    copy: Copy, suffix: str, size: int, parts: Callable[[], Iterator[bytes]], depot: Depot, rules: Rules
) -> StoredFile:
    """Copy one file to the archive unless it is there already. Return its size and CRC after verification."""
    name = f"{copy.stem}{suffix}"
    path = f"{copy.partition}/{name}"
    left_size = copy.leftovers.get(name)
    if left_size is not None:
        crc, prefix = _checksums(parts(), left_size)
        left = _checksum(depot.read(path))
        if left == crc and left_size == size:
            return StoredFile(size, crc)
        # A partial copy, as a kill leaves it in a directory, is a prefix of the file.
        if left_size >= size or left != prefix:
            raise ArchiveMismatch(
                f"{depot.location}/{path} exists, is not in the manifest, and differs from the source (CRC {left:08x}, "
                f"not {crc:08x}); {ELSEWHERE}"
            )
    meter = Meter()
    try:
        depot.put(path, meter.passing(parts()), is_new=left_size is None)
    except FileExistsError as error:
        # Another process is archiving to the same location. The same bytes are as good as ours.
        crc = _checksum(parts())
        if _checksum(depot.read(path)) != crc:
            raise ArchiveMismatch(
                f"{depot.location}/{path} was just written by another process, and it differs; archive again"
            ) from error
        return StoredFile(size, crc)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        # An S3-compatible store without conditional writes.
        meter = Meter()
        depot.put(path, meter.passing(parts()))
    _check_arrived(path, meter, depot, rules)
    return meter.file


def _check_arrived(path: str, sent: Meter, depot: Depot, rules: Rules) -> None:
    if rules.verify == "size":
        directory, _, name = path.rpartition("/")
        found = depot.sizes(directory).get(name, -1)
        if found == sent.size:
            return
        what = counted(found, "byte")
    else:
        crc = _checksum(depot.read(path))
        if crc == sent.crc:
            return
        what = f"the CRC {crc:08x}, not {sent.crc:08x}"
    # Remove it, or the next run would take it for a file of another source.
    depot.remove(path)
    raise CorruptionError(
        f"the copy has {what} when read back; archive again. The manifest is unchanged",
        path=f"{depot.location}/{path}",
    )


def _checksum(parts: Iterable[bytes]) -> int:
    return _checksums(parts, 0)[0]


def _checksums(parts: Iterable[bytes], prefix_size: int) -> tuple[int, int]:
    """Return the CRC of all bytes, and the CRC of the first `prefix_size` bytes."""
    crc = prefix = 0
    left = prefix_size
    for part in parts:
        crc = crc32c(part, crc)
        if left > 0:
            prefix = crc32c(part[:left], prefix)
            left -= len(part)
    return crc, prefix
