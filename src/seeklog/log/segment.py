"""A segment: a run of batches in one `.log` file, with its two indexes.

A `Segment` is read; an `ActiveSegment` (`seeklog.log.active`), the last one of a log, is also written. Bytes below
`size` never change while a segment is read, except by `truncate_to` and recovery, which readers notice. Neither the
`.log` file nor an index is ever mapped: a broker that runs on the directory cuts both in place, and a read beyond the
end of a map kills the process.

Which file a segment stands for is known by device, inode and size while a process reads beside a writer; the writer
itself marks what it replaces. On disk the seal identifies the content.
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
from seeklog.errors import CorruptBatch, CorruptionError, LostRecords
from seeklog.files import Files, FileStatus, Handle, ReadOnlyFiles, replace_file
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
    """The file that a segment was made of is gone: compaction has put another in its place.

    Never reaches a caller: a reader takes a newer view and goes on from its offset.
    """

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOENT, "replaced by compaction", path)


class Indexes(NamedTuple):
    """Both indexes of a segment."""

    offsets: OffsetIndex
    times: TimeIndex

    @classmethod
    def of(cls, state: SegmentState) -> Indexes:
        """Return the indexes of what was scanned; they do not grow with it."""
        return cls(
            OffsetIndex(state.base_offset, bytes(state.offset_table)),
            TimeIndex(state.base_offset, bytes(state.time_table)),
        )


class FindsKeys(Protocol):
    """A key index that is open."""

    def offsets_of(self, first: int) -> Sequence[int]:
        """Return the relative offsets that a hash stands for, the newest first."""
        ...


class Trust(NamedTuple):
    """What is known of the content of a segment before it is read, and how."""

    contiguous: bool = False
    """Whether a gap between batches can only be damage."""
    is_exact: bool = False
    """Whether the index entries are seeklog's own, each for one batch."""
    seal: Seal | None = None
    """The seal that describes the files; None: the segment still grows, or nobody has sealed it."""
    pages: Pages | None = None
    """What proves the log page by page where gaps are lawful; None: nothing does, or the reader looks for damage."""

    @classmethod
    def in_seal(cls, seal: Seal) -> Trust:
        return cls(seal.contiguous, True, seal, seal.pages)


UNSEALED: Final = Trust()


class Phase(Enum):
    """Where a segment is in its life, as far as this process knows."""

    LISTED = "its seal is read when the segment is used"
    READY = "its seal was read, or there is none"
    REPLACED = "compaction in this process has put another file in its place"


class Loaded:
    """What a segment holds open or in memory. It is released as a whole."""

    __slots__ = ("handle", "indexes", "keys", "page_table")

    def __init__(self) -> None:
        self.handle: Handle | None = None
        self.indexes: Indexes | None = None
        self.keys: FindsKeys | None = None
        self.page_table: tuple[Pages, bytes] | None = None
        """The table of page checksums, and what proved it."""


class Shared:
    """What the segments of one log share: the door to the disk, and a bound on how many stand open."""

    def __init__(
        self, files: Files, directory: str, config: LogConfig, *, writable: bool, host: Host | None = None
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.writable = writable
        self.trusts_seals = True
        """Whether the seals beside the segments describe them; not after a broker's visit."""
        self.source = host.source if host is not None else None
        """The partition that records name as their source."""
        self.cleaned = host.cleaned if host is not None else 0
        """Up to where a checkpoint in a store's root says that the log was compacted: advice."""
        self._open_segments = host.open_segments if host is not None else OpenSegments(config.max_open_segments)
        self.opened = self._open_segments.opened
        self.renew: Callable[[], View | None] | None = None
        """Returns the current segments, for a reader that has met one that was replaced."""
        self.replacing = threading.Lock()
        """Held while index files of a segment are replaced, and while segments are marked as replaced or cut."""

    @property
    def is_beside_writer(self) -> bool:
        """Whether another process may replace files under this reader, which can then take a newer view."""
        return self.renew is not None and not self.writable

    def clear(self) -> None:
        """Release every segment."""
        self._open_segments.forget(self)

    def path(self, base_offset: int, suffix: str) -> str:
        return f"{self.directory}/{names.segment_name(base_offset, suffix)}"

    def remove(self, base_offset: int, *suffixes: str) -> None:
        """Remove files of a segment, as far as they exist. The caller syncs the directory."""
        for suffix in suffixes:
            with contextlib.suppress(FileNotFoundError):
                self.files.remove(self.path(base_offset, suffix))

    def read_seal(self, base_offset: int) -> Seal | None:
        """Return a segment's seal, or None if it has none that counts."""
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
    """One segment as a reader sees it. Methods may be called from any thread."""

    def __init__(self, shared: Shared, base_offset: int, *, size: int, next_offset: int, seal: Seal | None) -> None:
        self.shared = shared
        self.base_offset = base_offset
        self.path = shared.path(base_offset, names.LOG)
        self.listed: FileStatus | None = None
        """The file as it was when the directory was listed; None if it was not."""
        self._size = size
        self._next_offset = next_offset
        self.trust = UNSEALED if seal is None else Trust.in_seal(seal)
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
        """How much memory the indexes take."""
        indexes = self.loaded.indexes
        return 0 if indexes is None else len(indexes.offsets.table) + len(indexes.times.table)

    @property
    def size(self) -> int:
        """How many bytes of the file hold whole batches."""
        return self._size

    @property
    def next_offset(self) -> int:
        """The offset after the last batch. Below the next segment's base if an archive declares a gap there."""
        return self._next_offset

    @property
    def is_bounded(self) -> bool:
        """Whether nothing can lie at or after `next_offset`: the segment does not grow."""
        return True

    def check_bound(self, next_offset: int, position: int) -> None:
        """Raise if a batch before `position` goes on up to an offset that belongs to the next segment.

        Where gaps are lawful, nothing else shows that a base offset is damaged, which no CRC covers: the records that
        a reader asks for would seem to be missing.
        """
        if next_offset > self._next_offset and self.is_bounded:
            reason = f"a batch ends with offset {next_offset - 1}, the segment with {self._next_offset - 1}"
            raise self.damaged(reason, position)

    def damaged(self, reason: str, position: int | None = None) -> CorruptBatch:
        """Return the error for damage in the segment's file."""
        return CorruptBatch(reason, path=self.path, position=position, advice=ADVICE)

    def located(self, error: CorruptionError) -> CorruptionError:
        """Return the error with the segment's file and what to do next."""
        return type(error)(error.reason, path=self.path, position=error.position, advice=error.advice or ADVICE)

    def end_before(self, next_offset: int) -> None:
        """Note where the segment ends."""
        self._next_offset = next_offset

    def attach(self, seal: Seal) -> None:
        """Trust a seal for what the files hold."""
        self.trust = Trust.in_seal(seal)

    def read_unproved(self) -> None:
        """From now on return what is there, also pages that are not those that were sealed.

        For a search for damage, and before a sealed segment is cut: readers may still hold it.
        """
        self.trust = self.trust._replace(pages=None)

    def fetch_seal(self) -> None:
        """Read the seal, if that was put off, before anything else of the segment is read."""
        if self.phase is Phase.LISTED:
            seal = self.shared.read_seal(self.base_offset)
            if seal is not None:
                self.attach(seal)
                # Where the file has lost its end, a reader that comes there must learn of it: in a segment with gaps,
                # and in one of which nothing is left, nothing else would seem to be missing.
                self._size = max(self._size, seal.size)
            self.phase = Phase.READY

    @property
    def indexes(self) -> Indexes:
        """Both indexes, read when they are first asked for."""
        indexes = self.loaded.indexes
        if indexes is None:
            self.fetch_seal()
            self.loaded.indexes = indexes = self.load_indexes()
            self.shared.opened(self)
        return indexes

    def handle(self) -> Handle:
        """Return the open `.log` file. The reference keeps it open."""
        handle = self.loaded.handle
        if handle is None:
            self.fetch_seal()
            handle = Handle(self.shared.files, self.path)
            # Segments are marked before any file is renamed, so what was opened before the mark is the old file.
            if self.phase is Phase.REPLACED or not self._is_own(handle):
                raise SegmentReplaced(self.path)
            self.loaded.handle = handle
            self.shared.opened(self)
        return handle

    def release(self) -> None:
        """Release the open file and the maps; the last reader that still uses them closes them."""
        self.loaded = Loaded()

    # ------------------------------------------------------------ identity

    def is_same_file(self, found: FileStatus | None) -> bool:
        """Tell whether the file that has the segment's name by now is the one that was listed, grown only if it can."""
        if found is None or self.listed is None:
            return found is not None
        may_grow = not self.is_bounded or self._next_offset == INT64_MAX
        is_same_size = found.size == self.listed.size or (may_grow and found.size > self.listed.size)
        return found.identity == self.listed.identity and is_same_size

    def was_replaced(self) -> bool:
        """Tell whether another file, or one of another size, or none, has the segment's name since it was listed."""
        try:
            return self.listed is not None and not self.is_same_file(self.shared.files.status(self.path))
        except FileNotFoundError:
            return True

    def is_resealed(self) -> bool:
        """Tell whether a writer in another process has sealed another file in the place of this one."""
        if self.shared.writable:
            return False
        seal = self.shared.read_seal(self.base_offset)
        if seal is None or self.seal is None:
            return seal is not None and seal.clean_offset > 0
        return seal != self.seal

    def _is_own(self, handle: Handle) -> bool:
        """Tell whether a file that was just opened is the one that was listed, whoever may write here."""
        if self.listed is None or not self.shared.is_beside_writer:
            return True
        size, identity = self.shared.files.status_of(handle.number)
        if identity != self.listed.identity:
            return False
        # A file that lost its end is still the segment's own, and reading it must say so. But an inode may be reused,
        # and a seal that was read after the file was listed may describe the one that has replaced it.
        is_as_sealed = self.seal is not None and size == self.seal.size
        return size == self.listed.size or (not is_as_sealed and not self.is_resealed())

    def _is_stale(self, pages: Pages, table: bytes, position: int) -> bool:
        """Tell whether a page is wrong because file and seal are not of one time: compaction is at it, or was.

        The seal gets its name before the log does. So a reader that came between has the seal of the file that is new.
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
        """Return up to `size` bytes of batches at `position`. Raises if a page that was sealed is not the same."""
        start, data = self.read_on(size, position)
        return data if start == position and len(data) <= size else data[position - start : position - start + size]

    def read_on(self, size: int, position: int) -> tuple[int, bytes]:
        """Return (start, bytes from there): what `read` does, and what else was read of the pages that hold it."""
        handle = self.handle()
        size = max(0, min(size, self.size - position))
        pages = self.trust.pages
        if pages is not None and size:
            return self._read_pages(handle, pages, size, position)
        return position, self.shared.files.read(handle.number, size, position)

    def read_point(self, size: int, position: int) -> bytes:
        """Return about `size` bytes at `position`, also such as lie after the last batch: the quick way.

        For a reader that knows by its offsets where to stop, and reads on if that is not enough.
        """
        handle = self.loaded.handle or self.handle()
        pages = self.trust.pages
        if pages is not None:
            # A wrong page further on costs those who want the records in it, and no others.
            start, data = self._read_pages(handle, pages, size, position, or_part=True)
            return data[position - start :]
        return self.shared.files.read(handle.number, size, position)

    def _read_pages(
        self, handle: Handle, pages: Pages, size: int, position: int, *, or_part: bool = False
    ) -> tuple[int, bytes]:
        """Return (start, bytes from there), whole pages that hold what is asked for, once they are proved.

        With `or_part` those that come before a wrong page, if it lies after `position`.
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
        if or_part and wrong is not None and wrong > position:
            return start, data[: wrong - start]
        if self.trust.pages != pages:
            return self.read_on(size, position)  # cut meanwhile
        if self._is_stale(pages, table, start if wrong is None else wrong):
            raise SegmentReplaced(self.path)
        if len(data) < stop - start:
            raise cut_short(self, start + len(data))
        raise self.damaged(f"the {pages.page_size} bytes from here on are not those that were sealed", wrong)

    def _load_page_table(self, handle: Handle, pages: Pages) -> bytes:
        table = read_table(self.shared.files, self.shared.directory, self.base_offset, pages)
        if table is None:
            table = self._sum_pages(handle, pages)
        self.loaded.page_table = (pages, table)
        return table

    def _sum_pages(self, handle: Handle, pages: Pages) -> bytes:
        """Rebuild the table from the log, which its CRC then proves; a writer also replaces the seal."""
        if self.shared.is_beside_writer and self.is_resealed():
            raise SegmentReplaced(self.path)
        logger.warning("%s: summing up its pages: the table in its seal is damaged or missing", self.path)
        files, sums, seal = self.shared.files, PageSums(pages.page_size), self.seal
        for position in range(0, self.size, SCAN_CHUNK):
            sums.add(files.read(handle.number, min(SCAN_CHUNK, self.size - position), position))
        if sums.pages == pages and seal is not None:
            self._rewrite_sealed(seal, partial(write_seal, files, self.shared.directory, seal, sums.table))
        elif sums.pages != pages and self.trust.pages == pages:
            raise self.damaged(
                "the table of page checksums in its seal is damaged, and the log is not the one that was sealed"
            )
        return sums.table

    def max_timestamp_ms(self) -> int | None:
        """Return the largest timestamp in the segment, -1 if it has none, or None if nothing proves it."""
        self.fetch_seal()
        return self.seal.max_timestamp_ms if self.seal is not None else None

    def exact_end(self) -> int:
        """Return the offset after the last batch in the file, where `next_offset` may be that of the next segment."""
        self.fetch_seal()
        return self.seal.next_offset if self.seal is not None else self.scan_all().next_offset

    def scan_to(self, position: int) -> SegmentState:
        """Check every batch before `position`, where one starts, and return what they add up to."""
        kept = Segment(self.shared, self.base_offset, size=position, next_offset=INT64_MAX, seal=None)
        state = kept.scan_all()
        if state.problem is not None:
            raise state.problem.located(self.path)
        return state

    def scan_all(self, *, sums: PageSums | None = None) -> SegmentState:
        """Check every batch below `size` and return what they add up to; `problem` is the first damage.

        `sums` is given the bytes of those that are whole.
        """
        state = self.shared.new_state(self.base_offset)
        contiguous_from = self.base_offset if self.contiguous else INT64_MAX
        for _, data, size in scan_into(state, self, contiguous_from=contiguous_from):
            if sums is not None:
                sums.add(data, size)
        return state

    # ------------------------------------------------------------ indexes and seal

    def load_indexes(self) -> Indexes:
        """Read the index files and check them against the seal; rebuild them where they are not its own."""
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
                return self.rebuild_indexes("an index is not the one that was sealed")
            tables.append(table)
        return Indexes(OffsetIndex(self.base_offset, tables[0]), TimeIndex(self.base_offset, tables[1]))

    def _read_index(self, path: str, entry: struct.Struct, crc: int | None) -> bytes | None:
        """Return the table of an index file, or None if it is not the one that was sealed with a CRC."""
        if crc is None:
            return self._read_entries(path, entry)
        table = self.shared.files.read_file(path)
        return table if crc32c(table) == crc else None

    def _read_entries(self, path: str, entry: struct.Struct) -> bytes:
        files = self.shared.files
        if isinstance(files, ReadOnlyFiles):
            return read_entries(files, path, entry)
        # A broker whose cleaner has rewritten the segment renames the log first, and its indexes just after.
        paths = (path, path + names.SWAP)
        for name in reversed(paths) if self.path.endswith(names.SWAP) else paths:
            with contextlib.suppress(FileNotFoundError):
                return read_entries(files, name, entry)
        return read_entries(files, path, entry)

    def rebuild_indexes(self, reason: str) -> Indexes:
        """Rebuild both indexes from the log; a writer also replaces the files. Logged once each time.

        Raises `CorruptBatch` if every batch is whole and the file is not the one that was sealed: then it is the log
        that is damaged where no batch's CRC covers it, and a new index and seal would make that the truth.
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
        """Raise `CorruptBatch` if the whole batches that add up to `state` are not those that were sealed."""
        if state.crc == seal.log_crc:
            return
        if self.is_resealed():
            raise SegmentReplaced(self.path)
        raise self.damaged(
            f"every batch is whole, but the file has the CRC {state.crc:#010x}, and was sealed with "
            f"{seal.log_crc:#010x}: a base offset or leader epoch is damaged"
        )

    def _rewrite_sealed(self, seal: Seal, write: Callable[[], None]) -> None:
        """Have a writer replace files of a sealed segment, if the disk lets it: the reader has them in memory anyway.

        Not if another seal or none is there by now. Then the segment was deleted, or cut and rolled again, or replaced.
        """
        if not self.shared.writable:
            return
        with self.shared.replacing:
            if self.phase is Phase.REPLACED or self.shared.read_seal(self.base_offset) != seal:
                return
            try:
                write()
            except OSError as error:
                logger.warning("%s: what was rebuilt stays in memory: %s", self.path, error)

    def write_sealed_again(self, state: SegmentState, seal: Seal, *, sums: PageSums | None) -> None:
        """Replace both index files and the seal by what `state` says, the rest as an older seal has it."""
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
        """Replace both index files and the seal by what `state` says. The caller syncs the directory."""
        if writes_indexes:
            self.write_indexes_of(state)
        seal = seal_of(
            state, sealed_at_ms=sealed_at_ms, may_have_gaps=may_have_gaps, clean_offset=clean_offset, sums=sums
        )
        write_seal(self.shared.files, self.shared.directory, seal, sums.table if sums is not None else b"")
        self.attach(seal)

    def write_indexes_of(self, state: SegmentState) -> None:
        """Write both index files whole under new names; files that others may be reading stay as they are."""
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
    """Return the seal of a segment whose batches add up to `state`, and its pages to `sums`."""
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
        # Where no offset may be missing batches prove each other's place.
        pages=None if contiguous or sums is None else sums.pages,
    )


def scan_into(state: SegmentState, segment: Segment, *, contiguous_from: int) -> Iterator[tuple[int, bytes, int]]:
    """Pass a segment's bytes through `state`, in order; yield (position, data, size) as they are checked.

    The first `size` bytes of `data`, read at `position`, are whole batches.

    Ends at the end of the segment, at a batch that is not all there, or at damage (`state.problem`). A file that ends
    before its segment does was cut since its size was taken, and raises `LostRecords`.
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


def cut_short(segment: Segment, found: int) -> LostRecords:
    """Return the error for a file that has `found` bytes, fewer than its segment."""
    return LostRecords(
        f"the file ends after {found} bytes, the segment holds {segment.size}",
        path=segment.path,
        position=found,
        advice=ADVICE,
    )


def whole_batch_size(data: bytes) -> int:
    """Return how many bytes the batch at the start of `data`, which is not all there, claims to have."""
    return int.from_bytes(data[8:12], "big", signed=True) + 12


def check_fits(data: bytes, *, position: int, segment: Segment) -> int:
    """Return the size that the incomplete batch at the start of `data` claims, if it can be true.

    Below a segment's end every batch is whole, so one that claims to go past it is damaged.
    """
    if len(data) >= 12:
        claimed = whole_batch_size(data)
        if position + claimed <= segment.size:
            return claimed
        reason = f"the batch claims {claimed} bytes, the segment ends after {segment.size - position}"
    else:
        reason = f"{len(data)} bytes where a batch should be"
    raise CorruptBatch(reason, path=segment.path, position=position)
