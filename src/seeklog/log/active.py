"""The active segment: the last segment of a log that is open for writing."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.errors import LogClosed
from seeklog.files import Handle, is_full
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from seeklog.log.segment import SCAN_CHUNK, Indexes, Segment, Shared, Trust
from seeklog.log.side.pages import PageSums
from seeklog.record.crc import crc32c
from seeklog.record.segment_state import SegmentState

logger = logging.getLogger("seeklog")

# Index entries are written 32 at a time, and on sync, roll and close: otherwise each entry would cost a system call.
# The tables in memory are always complete. A process that only reads has to scan at most this much further.
INDEX_WRITE_BYTES = 32 * OFFSET_ENTRY.size
# What another writer appended is read in pieces of this size. After a batch that is larger, only a page is read, for
# the next header.
SKIM_BYTES = 32768
HEADERS_BYTES = 4096


class ActiveSegment(Segment):
    """The segment that grows. Only the writer changes it, under its lock."""

    def __init__(self, shared: Shared, state: SegmentState, handle: Handle) -> None:
        super().__init__(shared, state.base_offset, size=0, next_offset=0, seal=None)
        self._write = shared.files.write
        self.loaded.handle = handle
        self._number = handle.number
        self._use_state(state)
        self._written: list[int] | None = None
        """How much of each table is in its index file; None: the files must be replaced."""

    def _use_state(self, state: SegmentState) -> None:
        self.state = state
        self.trust = Trust(contiguous=state.contiguous, is_exact=True)
        # The tables grow in place, so the indexes over them include every later entry.
        self.loaded.indexes = Indexes(
            OffsetIndex(self.base_offset, state.offset_table), TimeIndex(self.base_offset, state.time_table)
        )

    @classmethod
    def create(cls, shared: Shared, base_offset: int) -> ActiveSegment:
        """Create an empty segment. Its name is durable once the caller has synced the directory."""
        shared.remove(base_offset, *names.BESIDE_LOG)
        handle = Handle(shared.files, shared.path(base_offset, names.LOG), write=True, create=True)
        if shared.files.size(handle.number):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), shared.path(base_offset, names.LOG))
        segment = cls(shared, shared.new_state(base_offset), handle)
        try:
            segment.adopt_indexes()
        except OSError as error:
            if not is_full(error):
                raise
            # The log file exists, so the segment does: the previous one must not grow past its base offset.
            segment._log_delay(error)
        return segment

    @classmethod
    def reopen(cls, segment: Segment) -> ActiveSegment:
        """Open a sealed segment for appending again. The caller truncates it next."""
        handle = Handle(segment.shared.files, segment.path, write=True)
        return cls(segment.shared, segment.shared.new_state(segment.base_offset), handle)

    @property
    def is_bounded(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return self.state.size

    @property
    def next_offset(self) -> int:
        return self.state.next_offset

    def exact_end(self) -> int:
        return self.state.next_offset

    def handle(self) -> Handle:
        if self.loaded.handle is None:
            raise LogClosed(f"{self.shared.directory} is closed; open it again")
        return self.loaded.handle

    def release(self) -> None:
        """Do nothing: the file stays open while the segment is written."""

    def max_timestamp_ms(self) -> int:
        return self.state.max_timestamp

    def append(self, batches: bytes) -> None:
        """Write whole batches at the end of the file and index them. Raises `OSError` after trimming a partial write.

        An index that cannot be written is not an error. The missing entries are written with the next one, on roll or
        on close.
        """
        state = self.state
        try:
            self._write(self._number, batches, state.size)
        except BaseException:
            self.shared.files.truncate(self._number, state.size)
            raise
        if state.append(batches):
            written = 0 if self._written is None else self._written[0]
            if len(state.offset_table) - written >= INDEX_WRITE_BYTES:
                self.write_indexes()

    def follow(self, size: int, *, crc: int) -> bool:
        """Add the batches that another writer appended, up to `size`; return whether any has a producer.

        Reads the headers, because the other writer has checked the records. Raises `CorruptionError` if the file has
        another size, or the headers do not lead to it. The state is then unusable.
        """
        state, files, number = self.state, self.shared.files, self.handle().number
        contiguous_from = self.base_offset if self.contiguous else INT64_MAX
        has_producers, wanted = False, SKIM_BYTES
        is_whole = state.size <= size == files.size(number)
        while is_whole and state.size < size:
            start = state.size
            data = files.read(number, wanted, start)
            skimmed, has_some = state.skim(data, size - start, contiguous_from, crc)
            has_producers = has_producers or has_some
            is_whole = skimmed > 0
            wanted = HEADERS_BYTES if skimmed > len(data) else SKIM_BYTES
        if not is_whole:
            raise self.damaged(f"whole batches do not end at byte {size:,}, as noted by the last writer", state.size)
        return has_producers

    def follow_indexes(self) -> bool:
        """Continue the index files after another writer's entries; False if they are not those of the tables here.

        The entries depend on the batches alone, but for the last time index entry of a clean close: a log that was
        opened after that has it, and one that was opened by a recovery has not.
        """
        written = []
        for path, table in self._index_tables():
            try:
                handle = Handle(self.shared.files, path)
            except FileNotFoundError:
                return False
            size = self.shared.files.size(handle.number)
            last = max(0, size - TIME_ENTRY.size)
            if table[last:size] != self.shared.files.read(handle.number, size - last, last):
                return False
            written.append(size)
        self._written = written
        return True

    def sync(self) -> None:
        handle = self.handle()  # keeps the file open if the log is closed during the sync
        self.shared.files.sync(handle.number)

    def close_files(self) -> None:
        self.loaded.handle = None
        self._number = -1

    # ------------------------------------------------------------ index files

    def _index_tables(self) -> Iterator[tuple[str, bytearray]]:
        yield self.shared.path(self.base_offset, names.OFFSET_INDEX), self.state.offset_table
        yield self.shared.path(self.base_offset, names.TIME_INDEX), self.state.time_table

    def write_indexes(self) -> None:
        """Append what is new in the tables to the index files. On a full disk they are written later.

        The files are opened for each write: otherwise a log of many partitions would hold two more open files in each.
        """
        if self._written is None:
            try:
                self.replace_indexes()
            except OSError as error:
                self._log_delay(error)
            return
        for number, (path, table) in enumerate(self._index_tables()):
            done = self._written[number]
            if len(table) == done:
                continue
            try:
                handle = Handle(self.shared.files, path, write=True, create=True)
                self.shared.files.write(handle.number, bytes(table[done:]), done)
            except OSError as error:
                self._log_delay(error)
            else:
                self._written[number] = len(table)

    def _log_delay(self, error: OSError) -> None:
        logger.warning("%s: index entries cannot be written yet: %s", self.path, error)

    def adopt_indexes(self) -> None:
        """Continue the existing index files, which match the tables; create missing ones."""
        for path, _ in self._index_tables():
            Handle(self.shared.files, path, write=True, create=True)
        self._written = self._table_sizes()

    def replace_indexes(self) -> None:
        self.write_indexes_of(self.state)
        self._written = self._table_sizes()

    def _table_sizes(self) -> list[int]:
        return [len(self.state.offset_table), len(self.state.time_table)]

    def sync_indexes(self, *, finishes: bool) -> None:
        """Sync the index files. With `finishes`, add the final time index entry, as Kafka does on close."""
        if finishes:
            self.state.finish_times()
        self.write_indexes()
        if self._written is not None:
            self._sync_index_files()

    def _sync_index_files(self) -> None:
        for path, _ in self._index_tables():
            handle = Handle(self.shared.files, path, write=True)
            self.shared.files.sync(handle.number)

    # ------------------------------------------------------------ sealing and truncating

    def seal_up(self, *, sealed_at_ms: int) -> Segment:
        """Write the seal of a segment that was rolled and synced, and return it as a sealed segment.

        The index files are rewritten if they lack entries. The caller syncs the directory.
        """
        state = self.state
        sealed = Segment(self.shared, self.base_offset, size=state.size, next_offset=state.next_offset, seal=None)
        sums = None if state.contiguous else self._sums()
        has_indexes = self._written == self._table_sizes()
        if has_indexes:
            self._sync_index_files()
        sealed.write_sealed(state, sealed_at_ms=sealed_at_ms, sums=sums, writes_indexes=not has_indexes)
        return sealed

    def _sums(self) -> PageSums | None:
        """Compute the page checksums of a segment that a broker began; None if the file has changed."""
        sums, crc = PageSums(), 0
        for position in range(0, self.size, SCAN_CHUNK):
            data = self.read(SCAN_CHUNK, position)
            sums.add(data)
            crc = crc32c(data, crc)
        return sums if crc == self.state.crc else None

    def truncate(self, state: SegmentState) -> None:
        """Cut everything after the batches that make up `state`. Durable on return."""
        # The new state first: readers with an older view then stop at its size.
        self._use_state(state)
        handle = self.handle()
        self.shared.files.truncate(handle.number, state.size)
        self.shared.files.sync(handle.number)
        self._written = None
        self.write_indexes()
