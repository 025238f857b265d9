"""A segment: a run of batches in one `.log` file, with its two indexes.

A `Segment` is read; an `ActiveSegment`, the last one of a log, is also written. Bytes below `size` never
change while a segment is read, except by `truncate_to` and recovery, which readers notice. Neither the `.log`
file nor an index is ever mapped: a broker that runs on the directory cuts both in place, and a read beyond the
end of a map kills the process.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptBatch, LogClosed, LostRecords
from seeklog.files import Files, FileStatus, Handle, ReadOnlyFiles, is_full, replace_file
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

# Measured on recovery (docs/decisions/0008): 96 and 256 KiB are slower; larger ones were not compared in the bench.
SCAN_CHUNK = 512 << 10
# Index entries are written 32 at a time, and on sync, roll and close: an entry is a system call otherwise. The
# tables in memory have them at once; a process that only reads walks at most so much further.
INDEX_WRITE_BYTES = 32 * OFFSET_ENTRY.size
# What another writer has appended is read at once; an open reads more than this as quickly, piece by piece.
TAKEN_IN_BYTES = 16 << 20


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


class Shared:
    """What the segments of one log share: the door to the disk, and a bound on how many stand open."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        writable: bool,
        host: Host | None = None,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.writable = writable
        self.trusts_seals = True
        """Whether the seals beside the segments speak of them; not after a broker's visit."""
        self.source = host.source if host is not None else None
        """What records that are read say they come from."""
        self.cleaned = host.cleaned if host is not None else 0
        """Up to where a checkpoint in a store's root says that the log was compacted: advice."""
        self._open_segments = host.open_segments if host is not None else OpenSegments(config.max_open_segments)
        self.opened = self._open_segments.opened
        self.renew: Callable[[], View | None] | None = None
        """Returns the segments as they are by now, for a reader that has met one that was replaced."""
        self.replacing = threading.Lock()
        """Held while index files of a segment are written anew, and while segments are marked as replaced or cut."""

    def clear(self) -> None:
        """Let every segment go."""
        self._open_segments.forget(self)

    def path(self, base_offset: int, suffix: str) -> str:
        return f"{self.directory}/{names.segment_name(base_offset, suffix)}"

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


class FindsKeys(Protocol):
    """A key index that is open."""

    def offsets_of(self, first: int) -> Sequence[int]:
        """Return the relative offsets that a hash stands for, the newest first."""
        ...


class Segment:
    """One segment as a reader sees it. Methods may be called from any thread."""

    def __init__(self, shared: Shared, base_offset: int, *, size: int, next_offset: int, seal: Seal | None) -> None:
        self.shared = shared
        self.base_offset = base_offset
        self.path = shared.path(base_offset, names.LOG)
        self._size = self._listed_size = size
        self.listed: FileStatus | None = None
        """The file as it was when the directory was listed; None: nobody listed it."""
        self._next_offset = next_offset
        self._handle: Handle | None = None
        self.loaded: Indexes | None = None
        """The indexes, while they are in memory."""
        self.keys: FindsKeys | None = None
        """The key index of a sealed segment, while it is mapped."""
        self.seal: Seal | None = None
        self.pages: Pages | None = None
        """What proves the log page by page where gaps are lawful; None: nothing does, or nobody asks for it."""
        self._page_table: tuple[Pages, bytes] | None = None
        """The table that was read, and what it was proved by."""
        self.contiguous = False
        """Whether a gap between batches can only be damage."""
        self.is_exact = False
        """Whether the index entries are seeklog's own, each for one batch."""
        self.is_unread = False
        """Whether the seal was left where it lies until the segment is used."""
        self.precedes_gap = False
        """Whether an archive declares that offsets are missing from `next_offset` on, up to the next segment."""
        self.is_replaced = False
        """Whether compaction, in this process, has put another file in its place."""
        if seal is not None:
            self.attach(seal)

    @property
    def index_bytes(self) -> int:
        """How much memory the indexes take just now."""
        loaded = self.loaded
        return 0 if loaded is None else len(loaded.offsets.table) + len(loaded.times.table)

    @property
    def size(self) -> int:
        """How many bytes of the file hold whole batches."""
        return self._size

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch: exclusive."""
        return self._next_offset

    @property
    def is_bounded(self) -> bool:
        """Whether nothing can lie at or behind `next_offset`: the segment does not grow."""
        return True

    def check_bound(self, next_offset: int, position: int) -> None:
        """Raise if a batch before `position` goes on up to an offset that belongs to the next segment.

        Where gaps are lawful, nothing else tells that a base offset is damaged, which no CRC covers: what a reader asks
        for would seem to be missing.
        """
        if next_offset > self._next_offset and self.is_bounded:
            raise CorruptBatch(
                f"a batch ends with offset {next_offset - 1}, the segment with {self._next_offset - 1}",
                path=self.path,
                position=position,
                advice=ADVICE,
            )

    def end_before(self, next_base_offset: int) -> None:
        """Note where the next segment starts."""
        self._next_offset = next_base_offset

    def attach(self, seal: Seal) -> None:
        """Take the seal's word for what the files hold."""
        self.seal = seal
        if seal.pages != self.pages:  # a table that was read is known by the object
            self.pages = seal.pages
        self.contiguous = seal.contiguous
        self.is_exact = True

    def read_unproved(self) -> None:
        """From now on return what is there, also such pages as are not those that were sealed.

        For whoever looks for damage, and before a sealed segment is cut: readers may still hold it.
        """
        self.pages = None

    def fetch_seal(self) -> None:
        """Read the seal, if that was put off, before anything else of the segment is read."""
        if self.is_unread:
            seal = self.shared.read_seal(self.base_offset)
            if seal is not None:
                self.attach(seal)
                # Where the file has lost its end, whoever comes there must be told: in a segment with gaps, and in one
                # of which nothing is left, nothing else would seem to be missing.
                self._size = max(self._size, seal.size)
            self.is_unread = False

    @property
    def indexes(self) -> Indexes:
        """Both indexes, read when they are first asked for."""
        indexes = self.loaded
        if indexes is None:
            self.fetch_seal()
            self.loaded = indexes = self.load_indexes()
            self.shared.opened(self)
        return indexes

    def handle(self) -> Handle:
        """Return the open `.log` file. The reference keeps it open."""
        handle = self._handle
        if handle is None:
            self.fetch_seal()
            handle = Handle(self.shared.files, self.path)
            # Segments are marked before any file is renamed, so what was opened before the mark is the old file.
            if self.is_replaced or not self._is_own(handle):
                raise SegmentReplaced(self.path)
            self._handle = handle
            self.shared.opened(self)
        return handle

    def _is_own(self, handle: Handle) -> bool:
        """Tell whether a file that was just opened is the one that was listed, whoever may write here."""
        if self.shared.writable or self.shared.renew is None:
            return True
        size, identity = self.shared.files.status_of(handle.number)
        if self.listed is not None and identity != self.listed.identity:
            return False
        if self.seal is None:
            return size == self._listed_size or not self.is_compacted()
        # A file that lost its end is still the segment's own, and whoever reads it must tell. But where the seal was
        # read after the file was listed, it may speak of the one that has replaced it.
        return size == self._listed_size or (size != self.seal.size and self._has_own_seal())

    def was_replaced(self) -> bool:
        """Tell whether another file, or one of another size, or none, has the segment's name since it was listed."""
        if self.listed is None:
            return False
        try:
            now = self.shared.files.status(self.path)
        except FileNotFoundError:
            return True
        may_grow = not self.is_bounded or self._next_offset == INT64_MAX
        is_same_size = now.size == self.listed.size or (may_grow and now.size > self.listed.size)
        return now.identity != self.listed.identity or not is_same_size

    def is_same_file(self, other: Segment | None) -> bool:
        """Tell whether another look at the directory has found the same file, which may have grown if it can."""
        if other is None or self.listed is None or other.listed is None:
            return self.listed is None and other is not None
        has_grown = other.listed.size > self.listed.size and not self.is_bounded
        return other.listed.identity == self.listed.identity and (has_grown or other.listed.size == self.listed.size)

    def exact_end(self) -> int:
        """Return the offset behind the last batch in the file, where `next_offset` may be that of the next segment."""
        self.fetch_seal()
        return self.seal.next_offset if self.seal is not None else self.scan_all().next_offset

    def is_compacted(self) -> bool:
        """Tell whether compaction has put another file where a segment lay that was not yet sealed."""
        seal = self.shared.read_seal(self.base_offset)
        return seal is not None and seal.clean_offset > 0

    def _has_own_seal(self) -> bool:
        """Tell whether no other seal has taken the place of the one that was read."""
        shared = self.shared
        return shared.writable or shared.read_seal(self.base_offset) in (None, self.seal)

    def release(self) -> None:
        """Let the open file and the maps go; the last reader that still uses them closes them."""
        self._handle = None
        self.loaded = None
        self.keys = None
        self._page_table = None

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes of batches at `position`. Raises if a page that was sealed is not the same."""
        start, data = self.read_on(size, position)
        return data if start == position and len(data) <= size else data[position - start : position - start + size]

    def read_on(self, size: int, position: int) -> tuple[int, bytes]:
        """Return (start, bytes from there): what `read` does, and what else was read of the pages that hold it."""
        handle = self.handle()
        size = max(0, min(size, self.size - position))
        if self.pages is not None and size:
            return self._read_pages(handle, self.pages, size, position)
        return position, self.shared.files.read(handle.number, size, position)

    def read_point(self, size: int, position: int) -> bytes:
        """Return about `size` bytes at `position`, also such as lie behind the last batch: the quick way.

        For a reader that knows by its offsets where to stop, and reads on if that is not enough.
        """
        handle = self._handle or self.handle()
        if self.pages is not None:
            # A wrong page behind costs those who want the records in it, and no others.
            start, data = self._read_pages(handle, self.pages, size, position, or_part=True)
            return data[position - start :]
        return self.shared.files.read(handle.number, size, position)

    def _read_pages(
        self, handle: Handle, pages: Pages, size: int, position: int, *, or_part: bool = False
    ) -> tuple[int, bytes]:
        """Return (start, bytes from there), whole pages that hold what is asked for, once they are proved.

        With `or_part` those that come before a wrong page, if it lies behind `position`.
        """
        start, stop = pages.around(position, size, end=self.size)
        if stop <= start:
            return position, b""
        data = self.shared.files.read(handle.number, stop - start, start)
        loaded = self._page_table
        table = loaded[1] if loaded is not None and loaded[0] is pages else self._load_page_table(handle, pages)
        wrong = wrong_page(table, pages, data, start)
        if wrong is None and len(data) == stop - start:
            return start, data
        if or_part and wrong is not None and wrong > position:
            return start, data[: wrong - start]
        if self.pages is not pages:
            return self.read_on(size, position)  # cut meanwhile
        if self._is_stale(pages, table, start if wrong is None else wrong):
            raise SegmentReplaced(self.path)
        if len(data) < stop - start:
            raise cut_short(self, start + len(data))
        raise CorruptBatch(
            f"the {pages.page_size} bytes from here on are not those that were sealed",
            path=self.path,
            position=wrong,
            advice=ADVICE,
        )

    def _load_page_table(self, handle: Handle, pages: Pages) -> bytes:
        shared = self.shared
        table = read_table(shared.files, shared.directory, self.base_offset, pages)
        if table is None:
            table = self._sum_pages(handle, pages)
        self._page_table = (pages, table)
        return table

    def _sum_pages(self, handle: Handle, pages: Pages) -> bytes:
        """Make the table anew from the log, which its CRC then proves; a writer also replaces the seal."""
        if self._is_resealed(pages):
            raise SegmentReplaced(self.path)
        logger.warning("%s: summing up its pages: the table in its seal is damaged or missing", self.path)
        files, sums = self.shared.files, PageSums(pages.page_size)
        for position in range(0, self.size, SCAN_CHUNK):
            sums.add(files.read(handle.number, min(SCAN_CHUNK, self.size - position), position))
        if sums.pages == pages:
            if self.shared.writable and self.seal is not None:
                with self.shared.replacing:
                    # A seal that is gone is left to the next open: the segment may have been deleted.
                    if not self.is_replaced and self._lies_there(self.seal):
                        self._try_to_write(partial(write_seal, files, self.shared.directory, self.seal, sums.table))
        elif self.pages is pages:
            raise CorruptBatch(
                "the table of page checksums in its seal is damaged, and the log is not the one that was sealed",
                path=self.path,
                advice=ADVICE,
            )
        return sums.table

    def _lies_there(self, seal: Seal) -> bool:
        return self.shared.read_seal(self.base_offset) == seal

    def _is_resealed(self, pages: Pages) -> bool:
        """Tell whether the seal that lies there by now is that of another file."""
        shared = self.shared
        if shared.writable or shared.renew is None:
            return False
        seal = shared.read_seal(self.base_offset)
        return seal is not None and seal.pages != pages

    def _is_stale(self, pages: Pages, table: bytes, position: int) -> bool:
        """Tell whether a page is wrong because file and seal are not of one time: compaction is at it, or was.

        The seal gets its name before the log does. So one who came between has the seal of the file that is new.
        """
        shared = self.shared
        if shared.writable or shared.renew is None:
            return False
        names_now = shared.files.list(shared.directory)
        if self._is_resealed(pages) or names.segment_name(self.base_offset, names.LOG + names.SWAP) in names_now:
            return True
        start, stop = pages.around(position, 1, end=self.size)
        handle = Handle(shared.files, self.path)
        data = shared.files.read(handle.number, stop - start, start)
        return len(data) == stop - start and wrong_page(table, pages, data, start) is None

    def max_timestamp_ms(self) -> int | None:
        """Return the largest timestamp in the segment, -1 if it has none, or None if nothing proves it."""
        self.fetch_seal()
        return self.seal.max_timestamp_ms if self.seal is not None else None

    def load_indexes(self) -> Indexes:
        """Read the index files and hold them against the seal; rebuild them where they are not its own."""
        if self.is_replaced:
            raise SegmentReplaced(self.path)
        tables = []
        for suffix, entry, crc in (
            (names.OFFSET_INDEX, OFFSET_ENTRY, self.seal.offset_index_crc if self.seal is not None else None),
            (names.TIME_INDEX, TIME_ENTRY, self.seal.time_index_crc if self.seal is not None else None),
        ):
            try:
                table = self._read_index(self.shared.path(self.base_offset, suffix), entry, crc)
            except OSError as error:
                return self.rebuild_indexes(f"{suffix} cannot be read: {error}")
            if table is None:
                if not self._has_own_seal():
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
        """Make both indexes anew from the log; a writer also replaces the files. Logged once each time.

        Raises `CorruptBatch` if every batch is whole and the file is not the one that was sealed: then it is the log
        that is damaged where no batch's CRC covers it, and a new index and seal would make that the truth.
        """
        if not self.shared.writable and self.shared.renew is not None and self.was_replaced():
            raise SegmentReplaced(self.path)
        logger.warning("%s: rebuilding the indexes: %s", self.path, reason)
        sums = PageSums()
        state = self.scan_all(sums=sums)
        state.finish_times()
        if self.seal is not None and state.problem is None and state.size == self.seal.size:
            self.check_sealed(state, self.seal)
        indexes = Indexes(
            OffsetIndex(self.base_offset, bytes(state.offset_table)),
            TimeIndex(self.base_offset, bytes(state.time_table)),
        )
        if self.shared.writable and self.seal is not None and state.problem is None:
            with self.shared.replacing:
                # A truncation may have removed the segment, and a roll made another at the same offset.
                if not self.is_replaced and self._lies_there(self.seal):
                    self._try_to_write(partial(self.write_sealed_again, state, self.seal, sums=sums))
        self.loaded = indexes
        return indexes

    def check_sealed(self, state: SegmentState, seal: Seal) -> None:
        """Raise `CorruptBatch` if the whole batches that add up to `state` are not those that were sealed."""
        if state.crc == seal.log_crc:
            return
        if not self._has_own_seal():
            raise SegmentReplaced(self.path)
        raise CorruptBatch(
            f"every batch is whole, but the file has the CRC {state.crc:#010x}, and was sealed with "
            f"{seal.log_crc:#010x}: a base offset or leader epoch is damaged",
            path=self.path,
            advice=ADVICE,
        )

    def _try_to_write(self, write: Callable[[], None]) -> None:
        """Replace files if the disk lets it: whoever reads has what is in them in memory all the same."""
        try:
            write()
        except OSError as error:
            logger.warning("%s: what was made anew stays in memory: %s", self.path, error)

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
    ) -> None:
        """Replace both index files and the seal by what `state` says. The caller syncs the directory."""
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

    def scan_to(self, position: int) -> SegmentState:
        """Check every batch before `position`, where one starts, and return what they add up to."""
        kept = Segment(self.shared, self.base_offset, size=position, next_offset=INT64_MAX, seal=None)
        state = kept.scan_all()
        if state.problem is not None:
            raise state.problem.located(self.path)
        return state

    def scan_all(self, *, sums: PageSums | None = None) -> SegmentState:
        """Check every batch below `size` and return what they add up to; `problem` tells the first damage.

        `sums` is given the bytes of those that are whole.
        """
        state = self.shared.new_state(self.base_offset)
        contiguous_from = self.base_offset if self.contiguous else INT64_MAX
        for _, data, size in scan_into(state, self, contiguous_from=contiguous_from):
            if sums is not None:
                sums.add(data, size)
        return state


class ActiveSegment(Segment):
    """The segment that grows. Only the writer, under its lock, calls what changes it."""

    def __init__(self, shared: Shared, state: SegmentState, handle: Handle) -> None:
        super().__init__(shared, state.base_offset, size=0, next_offset=0, seal=None)
        self._write = shared.files.write
        self._handle = handle
        self._number = handle.number
        self._become(state)
        self._has_indexes = False
        """Whether the index files are this segment's, and not yet to be written anew."""
        self._written = [0, 0]

    def _become(self, state: SegmentState) -> None:
        self.state = state
        self.contiguous = state.contiguous
        self.is_exact = True
        # The tables grow in place, so the indexes over them see every entry.
        self.loaded = Indexes(
            OffsetIndex(self.base_offset, state.offset_table), TimeIndex(self.base_offset, state.time_table)
        )

    @property
    def is_bounded(self) -> bool:
        return False

    def exact_end(self) -> int:
        return self.next_offset

    @classmethod
    def create(cls, shared: Shared, base_offset: int) -> ActiveSegment:
        """Make an empty segment. Its name is durable once the caller has synced the directory."""
        for suffix in names.BESIDE_LOG:
            with contextlib.suppress(FileNotFoundError):
                shared.files.remove(shared.path(base_offset, suffix))
        handle = Handle(shared.files, shared.path(base_offset, names.LOG), write=True, create=True)
        if shared.files.size(handle.number):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), shared.path(base_offset, names.LOG))
        segment = cls(shared, shared.new_state(base_offset), handle)
        try:
            segment.adopt_indexes()
        except OSError as error:
            if not is_full(error):
                raise
            # The log file is there, and so is the segment: the one before it must not grow past where this one begins.
            segment.say_indexes_wait(error)
        return segment

    @classmethod
    def reopen(cls, segment: Segment) -> ActiveSegment:
        """Return a sealed segment as one that grows again; the caller truncates it next."""
        handle = Handle(segment.shared.files, segment.path, write=True)
        return cls(segment.shared, segment.shared.new_state(segment.base_offset), handle)

    @property
    def size(self) -> int:
        return self.state.size

    @property
    def next_offset(self) -> int:
        return self.state.next_offset

    def handle(self) -> Handle:
        if self._handle is None:
            raise LogClosed(f"{self.shared.directory} is closed")
        return self._handle

    def release(self) -> None:
        """Nothing: what is written stays open."""

    def max_timestamp_ms(self) -> int:
        return self.state.max_timestamp

    def append(self, batches: bytes) -> None:
        """Write whole batches behind the others and take note of them. Raises `OSError`, having trimmed.

        A short index is no failure: it is advice, and what could not be written is written with the next
        entry, on roll or on close.
        """
        state = self.state
        try:
            self._write(self._number, batches, state.size)
        except BaseException:
            self.shared.files.truncate(self._number, state.size)
            raise
        if state.append(batches) and len(state.offset_table) - self._written[0] >= INDEX_WRITE_BYTES:
            self.write_indexes()

    def take_in(self, size: int) -> bytes | None:
        """Take note of the batches that another writer has appended, up to `size`, and return them.

        None if they are not all there, or more than is worth it: then the state is void.
        """
        state, handle = self.state, self.handle()
        missing = size - state.size
        if not 0 <= missing <= TAKEN_IN_BYTES or self.shared.files.size(handle.number) != size:
            return None
        data = self.shared.files.read(handle.number, missing, state.size)
        if state.scan(data, self.base_offset if self.contiguous else INT64_MAX) != missing:
            return None
        # The other writer's entries are in the files, and need not be those of the tables here.
        self._has_indexes = False
        return data

    def write_indexes(self) -> None:
        """Bring the index files up to date with the tables; what finds no room waits.

        They are opened for each write: a log of many partitions would otherwise hold two files more in each.
        """
        if not self._has_indexes:
            try:
                self.replace_indexes()
            except OSError as error:
                self.say_indexes_wait(error)
            return
        for number, (path, table) in enumerate(self._index_tables()):
            done = self._written[number]
            if len(table) == done:
                continue
            try:
                handle = Handle(self.shared.files, path, write=True, create=True)
                self.shared.files.write(handle.number, bytes(table[done:]), done)
            except OSError as error:
                logger.warning("%s: an index entry waits for the disk: %s", self.path, error)
            else:
                self._written[number] = len(table)

    def say_indexes_wait(self, error: OSError) -> None:
        logger.warning("%s: the indexes wait for the disk: %s", self.path, error)

    def _index_tables(self) -> Iterator[tuple[str, bytearray]]:
        for suffix, table in (
            (names.OFFSET_INDEX, self.state.offset_table),
            (names.TIME_INDEX, self.state.time_table),
        ):
            yield self.shared.path(self.base_offset, suffix), table

    def adopt_indexes(self) -> None:
        """Go on with the index files that are there: they hold what the tables hold. Missing ones are made."""
        for path, _ in self._index_tables():
            Handle(self.shared.files, path, write=True, create=True)
        self._have_written_all()

    def replace_indexes(self) -> None:
        """Write the index files anew and go on with those."""
        self.write_indexes_of(self.state)
        self._have_written_all()

    def _have_written_all(self) -> None:
        self._has_indexes = True
        self._written = [len(self.state.offset_table), len(self.state.time_table)]

    def _sync_index_files(self) -> None:
        for path, _ in self._index_tables():
            handle = Handle(self.shared.files, path, write=True)
            self.shared.files.sync(handle.number)

    def close_files(self) -> None:
        """Let the file go. Nothing is written any more."""
        self._handle = None
        self._number = -1

    def sync(self) -> None:
        """Make the batches durable."""
        handle = self.handle()  # held: a close may let the segment's own go meanwhile
        self.shared.files.sync(handle.number)

    def sync_indexes(self) -> None:
        """Complete the index files with the largest timestamp, as Kafka does on close, and sync them."""
        self.state.finish_times()
        self.write_indexes()
        if self._has_indexes:
            self._sync_index_files()

    def seal_up(self, *, sealed_at_ms: int) -> Segment:
        """Write the seal of a segment that was rolled away and synced; return it as a sealed segment.

        The indexes are written whole again if an entry is still owed. The caller syncs the directory.
        """
        sealed = Segment(
            self.shared, self.base_offset, size=self.state.size, next_offset=self.state.next_offset, seal=None
        )
        sums = None if self.state.contiguous else self._sums()
        if self._has_indexes and self._written == [len(self.state.offset_table), len(self.state.time_table)]:
            self._sync_index_files()
            seal = seal_of(self.state, sealed_at_ms=sealed_at_ms, sums=sums)
            write_seal(self.shared.files, self.shared.directory, seal, sums.table if sums is not None else b"")
            sealed.attach(seal)
        else:
            sealed.write_sealed(self.state, sealed_at_ms=sealed_at_ms, sums=sums)
        return sealed

    def _sums(self) -> PageSums | None:
        """Sum up the pages of a segment that a broker began, with gaps; None if it is not what was written."""
        sums, crc = PageSums(), 0
        for position in range(0, self.size, SCAN_CHUNK):
            data = self.read(SCAN_CHUNK, position)
            sums.add(data)
            crc = crc32c(data, crc)
        return sums if crc == self.state.crc else None

    def truncate(self, state: SegmentState) -> None:
        """Cut everything behind the batches that add up to `state`, and make that durable."""
        # The new state first: readers that hold an older view stop at its size.
        self._become(state)
        handle = self.handle()
        self.shared.files.truncate(handle.number, state.size)
        self.shared.files.sync(handle.number)
        self._has_indexes = False
        self.write_indexes()


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
