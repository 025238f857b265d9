"""A segment: a run of batches in one `.log` file, with its two indexes.

A `Segment` is read. The last one of a log can also be an `ActiveSegment` (`seeklog.log.active`), which is written, too.
Bytes below `size` do not change while a segment is read, except by `truncate_to` and recovery, which readers notice.
Neither the `.log` file nor an index is ever mapped: a broker that runs on the directory truncates both in place, and a
read beyond the end of a map kills the process.

A process that reads beside a writer identifies a segment's file by device, inode and size. The writer itself marks the
segments that it replaces. On disk, the seal identifies the content.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptBatch, CorruptionError, LostRecords, counted
from seeklog.files import Files, FileStatus, Handle, ReadOnlyFiles, reads_plainly, replace_file
from seeklog.log.host import Host, OpenSegments
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex, read_entries
from seeklog.log.side.pages import Pages, PageSums, wrong_page
from seeklog.log.side.seal import Seal, read_seal, read_table, write_seal
from seeklog.record.crc import crc32c
from seeklog.record.segment_state import SegmentState

if TYPE_CHECKING:
    from seeklog.log.view import View

logger = logging.getLogger("seeklog")

ADVICE = "Run verify for the extent; nothing was changed on disk."

# Measured (docs/design/README.md, "Recovery"): 96 and 256 KiB are slower; larger sizes were not compared.
SCAN_CHUNK = 512 << 10


class SegmentReplaced(FileNotFoundError):
    """The file of a segment is gone, because compaction replaced it.

    Never reaches a caller: a reader takes a newer view and continues at its offset.
    """

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOENT, "replaced by compaction", path)


class Indexes(NamedTuple):
    offsets: OffsetIndex
    times: TimeIndex

    @classmethod
    def of(cls, state: SegmentState) -> Indexes:
        """Return the indexes of a scanned segment. They do not grow with the state."""
        return cls(
            OffsetIndex(state.base_offset, bytes(state.offset_table)),
            TimeIndex(state.base_offset, bytes(state.time_table)),
        )


class OpenKeyIndex(Protocol):
    def offsets_of(self, first: int) -> Sequence[int]:
        """Return the relative offsets for a hash, newest first."""
        ...


class Trust(NamedTuple):
    """What is known about the content of a segment before it is read."""

    contiguous: bool = False
    """Whether a gap between batches is always damage."""
    is_exact: bool = False
    """Whether seeklog wrote the index entries, each for one batch."""
    seal: Seal | None = None
    """The seal that describes the files; None if the segment grows or has no seal."""
    pages: Pages | None = None
    """The page checksums of a log that may have gaps, or None."""

    @classmethod
    def from_seal(cls, seal: Seal) -> Trust:
        return cls(seal.contiguous, True, seal, seal.pages)


UNSEALED: Final = Trust()


class Phase(Enum):
    LISTED = "its seal is read when the segment is used"
    READY = "its seal was read, or it does not have one"
    REPLACED = "compaction in this process has replaced its file"


class Loaded:
    """Everything that a segment holds open or in memory."""

    __slots__ = ("handle", "indexes", "keys", "page_table")

    def __init__(self) -> None:
        self.handle: Handle | None = None
        self.indexes: Indexes | None = None
        self.keys: OpenKeyIndex | None = None
        self.page_table: tuple[Pages, bytes] | None = None
        """The table of page checksums, and the `Pages` that proved it."""


class Shared:
    """What the segments of one log share."""

    def __init__(
        self, files: Files, directory: str, config: LogConfig, *, writable: bool, host: Host | None = None
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.writable = writable
        self.trusts_seals = True
        """Whether the seals still describe the segments. After a broker's visit they do not."""
        self.source = host.source if host is not None else None
        """The partition that records carry as their source."""
        self.cleaned = host.cleaned if host is not None else 0
        """How far the log was compacted, by a checkpoint in the store's root: only a hint."""
        self._open_segments = host.open_segments if host is not None else OpenSegments(config.max_open_segments)
        self.opened = self._open_segments.opened
        self.renew: Callable[[], View | None] | None = None
        """Returns the current segments, for a reader whose segment was replaced."""
        self.replacing = threading.Lock()
        """Held while index files are replaced, and while segments are marked as replaced or truncated."""

    @property
    def is_beside_writer(self) -> bool:
        """Whether another process may replace files, so that a reader must take a newer view."""
        return self.renew is not None and not self.writable

    def clear(self) -> None:
        self._open_segments.forget(self)

    def path(self, base_offset: int, suffix: str) -> str:
        return f"{self.directory}/{names.segment_name(base_offset, suffix)}"

    def remove(self, base_offset: int, *suffixes: str) -> None:
        """Remove the files of a segment that exist. The caller syncs the directory."""
        for suffix in suffixes:
            with contextlib.suppress(FileNotFoundError):
                self.files.remove(self.path(base_offset, suffix))

    def read_seal(self, base_offset: int) -> Seal | None:
        """Return a segment's seal, or None if it has none or seals are not trusted."""
        return read_seal(self.files, self.directory, base_offset) if self.trusts_seals else None

    def new_state(self, base_offset: int) -> SegmentState:
        return SegmentState(
            base_offset,
            interval_bytes=self.config.index_interval_bytes,
            interval_records=self.config.index_interval_records,
            segment_bytes=self.config.segment_bytes,
            segment_ms=self.config.roll_ms,
            segment_index_bytes=self.config.segment_index_bytes,
        )


class Segment:
    """One segment, as a reader sees it. Any thread may call any method."""

    def __init__(self, shared: Shared, base_offset: int, *, size: int, next_offset: int, seal: Seal | None) -> None:
        self.shared = shared
        self.base_offset = base_offset
        self.path = shared.path(base_offset, names.LOG)
        self.listed: FileStatus | None = None
        """The status of the file when the directory was listed, or None."""
        self._size = size
        self._next_offset = next_offset
        self.trust = UNSEALED if seal is None else Trust.from_seal(seal)
        self.phase = Phase.READY
        self.loaded = Loaded()

    @property
    def seal(self) -> Seal | None:
        return self.trust.seal

    @property
    def contiguous(self) -> bool:
        return self.trust.contiguous

    @property
    def is_exact(self) -> bool:
        return self.trust.is_exact

    @property
    def pages(self) -> Pages | None:
        return self.trust.pages

    @property
    def index_bytes(self) -> int:
        indexes = self.loaded.indexes
        return 0 if indexes is None else len(indexes.offsets.table) + len(indexes.times.table)

    @property
    def has_file(self) -> bool:
        return self.loaded.handle is not None

    @property
    def has_map(self) -> bool:
        return self.loaded.keys is not None

    @property
    def size(self) -> int:
        """The bytes of the file that are whole batches."""
        return self._size

    @property
    def next_offset(self) -> int:
        """The offset after the last batch. Below the next segment's base offset if an archive declares a gap there."""
        return self._next_offset

    @property
    def is_bounded(self) -> bool:
        """Whether no batch can be at or after `next_offset`, because the segment does not grow."""
        return True

    def check_bound(self, next_offset: int, position: int) -> None:
        """Raise if a batch before `position` extends to offsets of the next segment.

        A base offset is not covered by any CRC. In a segment that may have gaps this is the only sign that it is
        damaged; without the check, the records that a reader asks for would seem to be missing.
        """
        if next_offset > self._next_offset and self.is_bounded:
            reason = f"a batch ends with offset {next_offset - 1}, its segment with {self._next_offset - 1}"
            raise self.damaged(reason, position)

    def damaged(self, reason: str, position: int | None = None) -> CorruptBatch:
        return CorruptBatch(reason, path=self.path, position=position, advice=ADVICE)

    def located(self, error: CorruptionError) -> CorruptionError:
        return type(error)(error.reason, path=self.path, position=error.position, advice=error.advice or ADVICE)

    def end_before(self, next_offset: int) -> None:
        self._next_offset = next_offset

    def attach(self, seal: Seal) -> None:
        self.trust = Trust.from_seal(seal)

    def read_unproved(self) -> None:
        """Stop checking pages against the seal, and return the bytes as they are.

        Used to search for damage, and before a sealed segment is truncated while readers may still hold it.
        """
        self.trust = self.trust._replace(pages=None)

    def fetch_seal(self) -> None:
        """Read the seal, if that was deferred. Called before anything else of the segment is read."""
        if self.phase is Phase.LISTED:
            seal = self.shared.read_seal(self.base_offset)
            if seal is not None:
                self.attach(seal)
                # If the file is shorter than its seal says, a reader must notice when it gets there: a segment with
                # gaps, or an empty one, would otherwise seem complete.
                self._size = max(self._size, seal.size)
            self.phase = Phase.READY

    @property
    def indexes(self) -> Indexes:
        indexes = self.loaded.indexes
        if indexes is None:
            self.fetch_seal()
            self.loaded.indexes = indexes = self.load_indexes()
            self.shared.opened(self)
        return indexes

    def handle(self) -> Handle:
        """Return the open `.log` file. Holding it keeps the file open."""
        handle = self.loaded.handle
        if handle is None:
            self.fetch_seal()
            handle = Handle(self.shared.files, self.path)
            # Segments are marked before any file is renamed, so a file opened before the mark is the old one.
            if self.phase is Phase.REPLACED or not self._is_own(handle):
                raise SegmentReplaced(self.path)
            self.loaded.handle = handle
            self.shared.opened(self)
        return handle

    def release(self) -> None:
        """Release the open file and the indexes. A reader that uses the file keeps it open."""
        self.loaded = Loaded()

    # ------------------------------------------------------------ identity

    def is_same_file(self, status: FileStatus | None) -> bool:
        """Return whether `status` is the file that was listed. It may be larger only if the segment can grow."""
        if status is None or self.listed is None:
            return status is not None
        may_grow = not self.is_bounded or self._next_offset == INT64_MAX
        is_same_size = status.size == self.listed.size or (may_grow and status.size > self.listed.size)
        return status.identity == self.listed.identity and is_same_size

    def was_replaced(self) -> bool:
        """Return whether the file was replaced, removed or resized since it was listed."""
        try:
            return self.listed is not None and not self.is_same_file(self.shared.files.status(self.path))
        except FileNotFoundError:
            return True

    def is_resealed(self) -> bool:
        """Return whether another process has sealed a different file under this name."""
        if self.shared.writable:
            return False
        seal = self.shared.read_seal(self.base_offset)
        if seal is None or self.seal is None:
            return seal is not None and seal.clean_offset > 0
        return seal != self.seal

    def _is_own(self, handle: Handle) -> bool:
        """Return whether a file that was just opened is the one that was listed."""
        if self.listed is None or not self.shared.is_beside_writer:
            return True
        size, identity = self.shared.files.status_of(handle.number)
        if identity != self.listed.identity:
            return False
        # A file that lost its end is still the segment's, and reading it reports that. But inodes are reused, and a
        # seal that was read after the listing may describe a replacement.
        is_as_sealed = self.seal is not None and size == self.seal.size
        return size == self.listed.size or (not is_as_sealed and not self.is_resealed())

    def _is_stale(self, pages: Pages, table: bytes, position: int) -> bool:
        """Return whether a page differs only because compaction was replacing the file, so that the seal is newer.

        Compaction renames the seal before the log. A reader in between has the new seal with the old file.
        """
        shared = self.shared
        if not shared.is_beside_writer:
            return False
        swap_name = names.segment_name(self.base_offset, names.LOG + names.SWAP)
        if self.is_resealed() or swap_name in shared.files.list(shared.directory):
            return True
        start, stop = pages.around(position, 1, end=self.size)
        handle = Handle(shared.files, self.path)
        data = shared.files.read(handle.number, stop - start, start)
        return len(data) == stop - start and wrong_page(table, pages, data, start) is None

    # ------------------------------------------------------------ the log file

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes of batches at `position`. Raises if a page does not match the seal."""
        start, data = self.read_on(size, position)
        return data if start == position and len(data) <= size else data[position - start : position - start + size]

    def read_on(self, size: int, position: int) -> tuple[int, bytes]:
        """Return (start, bytes from there): the bytes of `read`, and the rest of the pages that hold them."""
        handle = self.handle()
        size = max(0, min(size, self.size - position))
        pages = self.trust.pages
        if pages is not None and size:
            return self._read_pages(handle, pages, size, position)
        return position, self.shared.files.read(handle.number, size, position)

    def plain_file(self) -> Handle | None:
        """Return the `.log` file if it is open and may be read past `read_on`, which would add nothing, or None."""
        if self.trust.pages is not None or not reads_plainly(self.shared.files):
            return None
        return self.loaded.handle

    def read_point(self, size: int, position: int) -> bytes:
        """Return about `size` bytes at `position`, by the shortest way. They may include bytes after the last batch.

        For a reader that knows from its offsets where to stop, and reads more if necessary.
        """
        handle = self.loaded.handle or self.handle()
        pages = self.trust.pages
        if pages is not None:
            # A damaged page further on must not fail a reader that does not need it.
            start, data = self._read_pages(handle, pages, size, position, allow_partial=True)
            return data[position - start :]
        return self.shared.files.read(handle.number, size, position)

    def _read_pages(
        self, handle: Handle, pages: Pages, size: int, position: int, *, allow_partial: bool = False
    ) -> tuple[int, bytes]:
        """Return (start, bytes from there): the whole pages around the range, checked.

        With `allow_partial`, return the pages before a damaged one if that lies after `position`.
        """
        start, stop = pages.around(position, size, end=self.size)
        if stop <= start:
            return position, b""
        data = self.shared.files.read(handle.number, stop - start, start)
        loaded = self.loaded.page_table
        table = loaded[1] if loaded is not None and loaded[0] == pages else self._load_page_table(handle, pages)
        wrong = wrong_page(table, pages, data, start)
        if wrong is None and len(data) == stop - start:
            return start, data
        if allow_partial and wrong is not None and wrong > position:
            return start, data[: wrong - start]
        if self.trust.pages != pages:
            return self.read_on(size, position)  # truncated during the read
        if self._is_stale(pages, table, start if wrong is None else wrong):
            raise SegmentReplaced(self.path)
        if len(data) < stop - start:
            raise cut_short(self, start + len(data))
        raise self.damaged(f"the {pages.page_size} bytes from here on do not match the seal", wrong)

    def _load_page_table(self, handle: Handle, pages: Pages) -> bytes:
        table = read_table(self.shared.files, self.shared.directory, self.base_offset, pages)
        if table is None:
            table = self._sum_pages(handle, pages)
        self.loaded.page_table = (pages, table)
        return table

    def _sum_pages(self, handle: Handle, pages: Pages) -> bytes:
        """Rebuild the table from the log, and check it by its CRC. A writer also replaces the seal."""
        if self.shared.is_beside_writer and self.is_resealed():
            raise SegmentReplaced(self.path)
        logger.warning("%s: rebuilding the page checksums: the table in the seal is damaged or missing", self.path)
        files, sums, seal = self.shared.files, PageSums(pages.page_size), self.seal
        for position in range(0, self.size, SCAN_CHUNK):
            sums.add(files.read(handle.number, min(SCAN_CHUNK, self.size - position), position))
        if sums.pages == pages and seal is not None:
            self._rewrite_sealed(seal, partial(write_seal, files, self.shared.directory, seal, sums.table))
        elif sums.pages != pages and self.trust.pages == pages:
            raise self.damaged(
                "the table of page checksums in its seal is damaged, and the log does not match the seal"
            )
        return sums.table

    def max_timestamp_ms(self) -> int | None:
        """Return the largest timestamp: -1 if there are no records, None if it is not known."""
        self.fetch_seal()
        return self.seal.max_timestamp_ms if self.seal is not None else None

    def exact_end(self) -> int:
        """Return the offset after the last batch, where `next_offset` may be the next segment's base offset."""
        self.fetch_seal()
        return self.seal.next_offset if self.seal is not None else self.scan_all().next_offset

    def scan_to(self, position: int) -> SegmentState:
        """Check every batch before `position`, which must be a batch boundary, and return their state."""
        kept = Segment(self.shared, self.base_offset, size=position, next_offset=INT64_MAX, seal=None)
        state = kept.scan_all()
        if state.problem is not None:
            raise state.problem.located(self.path)
        return state

    def scan_all(self, *, sums: PageSums | None = None) -> SegmentState:
        """Check every batch below `size` and return their state; its `problem` is the first damage.

        `sums` receives the bytes of the whole batches.
        """
        state = self.shared.new_state(self.base_offset)
        contiguous_from = self.base_offset if self.contiguous else INT64_MAX
        for _, data, size in scan_into(state, self, contiguous_from=contiguous_from):
            if sums is not None:
                sums.add(data, size)
        return state

    # ------------------------------------------------------------ indexes and seal

    def load_indexes(self) -> Indexes:
        """Read the index files and check them against the seal. Rebuild them if they do not match."""
        if self.phase is Phase.REPLACED:
            raise SegmentReplaced(self.path)
        seal = self.seal
        tables = []
        for suffix, entry, crc in (
            (names.OFFSET_INDEX, OFFSET_ENTRY, None if seal is None else seal.offset_index_crc),
            (names.TIME_INDEX, TIME_ENTRY, None if seal is None else seal.time_index_crc),
        ):
            try:
                table = self._read_index(self.shared.path(self.base_offset, suffix), entry, crc)
            except OSError as error:
                return self.rebuild_indexes(f"{suffix} cannot be read: {error}")
            if table is None:
                if self.is_resealed():
                    raise SegmentReplaced(self.path)
                return self.rebuild_indexes("an index does not match its seal")
            tables.append(table)
        return Indexes(OffsetIndex(self.base_offset, tables[0]), TimeIndex(self.base_offset, tables[1]))

    def _read_index(self, path: str, entry: struct.Struct, crc: int | None) -> bytes | None:
        """Return the table of an index file, or None if its CRC is not the sealed one."""
        if crc is None:
            return self._read_entries(path, entry)
        table = self.shared.files.read_file(path)
        return table if crc32c(table) == crc else None

    def _read_entries(self, path: str, entry: struct.Struct) -> bytes:
        files = self.shared.files
        if isinstance(files, ReadOnlyFiles):
            return read_entries(files, path, entry)
        # A broker's cleaner renames the rewritten log first, and its indexes just after.
        paths = (path, path + names.SWAP)
        for name in reversed(paths) if self.path.endswith(names.SWAP) else paths:
            with contextlib.suppress(FileNotFoundError):
                return read_entries(files, name, entry)
        return read_entries(files, path, entry)

    def rebuild_indexes(self, reason: str) -> Indexes:
        """Rebuild both indexes from the log. A writer also replaces the files. Each rebuild is logged.

        Raises `CorruptBatch` if every batch is whole, but the file does not match its seal: then the log is damaged in
        bytes that no batch's CRC covers, and a new index and seal would hide that.
        """
        if self.shared.is_beside_writer and self.was_replaced():
            raise SegmentReplaced(self.path)
        logger.warning("%s: rebuilding the indexes: %s", self.path, reason)
        sums, seal = PageSums(), self.seal
        state = self.scan_all(sums=sums)
        state.finish_times()
        if seal is not None and state.problem is None:
            if state.size == seal.size:
                self.check_sealed(state, seal)
            self._rewrite_sealed(seal, partial(self.write_sealed_again, state, seal, sums=sums))
        self.loaded.indexes = indexes = Indexes.of(state)
        return indexes

    def check_sealed(self, state: SegmentState, seal: Seal) -> None:
        """Raise `CorruptBatch` if the whole batches in `state` do not match the seal."""
        if state.crc == seal.log_crc:
            return
        if self.is_resealed():
            raise SegmentReplaced(self.path)
        raise self.damaged(
            f"every batch is whole, but the file has the CRC {state.crc:#010x} and was sealed with "
            f"{seal.log_crc:#010x}: a base offset or leader epoch is damaged"
        )

    def _rewrite_sealed(self, seal: Seal, write: Callable[[], None]) -> None:
        """Replace files of a sealed segment, if this is a writer. A failure is logged: the content is in memory.

        Does nothing if the seal has changed: the segment was deleted, truncated and rolled again, or replaced.
        """
        if not self.shared.writable:
            return
        with self.shared.replacing:
            if self.phase is Phase.REPLACED or self.shared.read_seal(self.base_offset) != seal:
                return
            try:
                write()
            except OSError as error:
                logger.warning("%s: the rebuilt files stay in memory: %s", self.path, error)

    def write_sealed_again(self, state: SegmentState, seal: Seal, *, sums: PageSums | None) -> None:
        """Write the index files and the seal, with the times and flags of the old seal."""
        self.write_sealed(
            state,
            sealed_at_ms=seal.sealed_at_ms,
            may_have_gaps=not seal.contiguous,
            clean_offset=seal.clean_offset,
            sums=sums,
        )

    def write_sealed(
        self,
        state: SegmentState,
        *,
        sealed_at_ms: int,
        may_have_gaps: bool = False,
        clean_offset: int = 0,
        sums: PageSums | None,
        writes_indexes: bool = True,
    ) -> None:
        """Write the index files and the seal. The caller syncs the directory."""
        if writes_indexes:
            self.write_indexes_of(state)
        seal = seal_of(
            state, sealed_at_ms=sealed_at_ms, may_have_gaps=may_have_gaps, clean_offset=clean_offset, sums=sums
        )
        write_seal(self.shared.files, self.shared.directory, seal, sums.table if sums is not None else b"")
        self.attach(seal)

    def write_indexes_of(self, state: SegmentState) -> None:
        """Replace both index files. A process that reads the old ones is not disturbed."""
        for suffix, table in ((names.OFFSET_INDEX, state.offset_table), (names.TIME_INDEX, state.time_table)):
            name = names.segment_name(self.base_offset, suffix)
            replace_file(self.shared.files, self.shared.directory, name, bytes(table))


def seal_of(
    state: SegmentState,
    *,
    sealed_at_ms: int,
    may_have_gaps: bool = False,
    clean_offset: int = 0,
    sums: PageSums | None = None,
) -> Seal:
    contiguous = state.contiguous and not may_have_gaps
    return Seal(
        base_offset=state.base_offset,
        next_offset=state.next_offset,
        size=state.size,
        record_count=state.record_count,
        batch_count=state.batch_count,
        max_timestamp_ms=state.max_timestamp,
        sealed_at_ms=sealed_at_ms,
        log_crc=state.crc,
        offset_index_crc=crc32c(bytes(state.offset_table)),
        time_index_crc=crc32c(bytes(state.time_table)),
        contiguous=contiguous,
        clean_offset=clean_offset,
        # In a segment without gaps, batches prove each other's base offsets.
        pages=None if contiguous or sums is None else sums.pages,
    )


def scan_into(state: SegmentState, segment: Segment, *, contiguous_from: int) -> Iterator[tuple[int, bytes, int]]:
    """Pass a segment's bytes through `state` in order; yield (position, data, size) for each chunk that was checked.

    The first `size` bytes of `data`, read at `position`, are whole batches.

    Ends at the end of the segment, at an incomplete batch, or at damage (`state.problem`). Raises `LostRecords` if the
    file is shorter than the segment, because it was truncated.
    """
    wanted = SCAN_CHUNK
    while state.size < segment.size and state.problem is None:
        position = state.size
        data = segment.read(wanted, position)
        taken = state.scan(data, contiguous_from)
        if taken:
            wanted = SCAN_CHUNK
            yield position, data, taken
        elif state.problem is None:
            if position + len(data) >= segment.size:
                return
            if len(data) < wanted:
                raise cut_short(segment, position + len(data))
            wanted = whole_batch_size(data)


def cut_short(segment: Segment, size: int) -> LostRecords:
    """Return the error for a file with only `size` bytes, fewer than its segment."""
    return LostRecords(
        f"the file ends after {counted(size, 'byte')}, the segment holds {segment.size:,}",
        path=segment.path,
        position=size,
        advice=ADVICE,
    )


def whole_batch_size(data: bytes) -> int:
    """Return the size that the incomplete batch at the start of `data` claims."""
    return int.from_bytes(data[8:12], "big", signed=True) + 12


def check_fits(data: bytes, *, position: int, segment: Segment) -> int:
    """Return the size that the incomplete batch at the start of `data` claims, if it fits.

    Below a segment's end every batch is whole, so a batch that extends past it is damaged.
    """
    if len(data) >= 12:
        claimed = whole_batch_size(data)
        if position + claimed <= segment.size:
            return claimed
        reason = f"the batch claims {counted(claimed, 'byte')}, the segment ends after {segment.size - position:,}"
    else:
        reason = f"{counted(len(data), 'byte')} where a batch should be"
    raise CorruptBatch(reason, path=segment.path, position=position)
