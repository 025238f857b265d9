"""Looking up the newest record of a key: from the newest segment to the oldest, using their key indexes.

The key index of a sealed segment below the high watermark is a side file. It is mapped, or read by ranges at a URL. One
that is missing, damaged or stale is rebuilt, and a log open for writing keeps it on disk. Every other segment, such as
the active one, has a table in memory, which each lookup updates with the records appended since. Appends do no work for
it.

A hash never decides. A lookup follows an entry to its record. If the record has another key, or is after the end of the
requested range, the segment itself is searched backwards.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol

from seeklog.config import LogConfig
from seeklog.errors import CorruptionError
from seeklog.files import ReadOnlyFiles
from seeklog.files.remote import is_remote
from seeklog.log import reading
from seeklog.log.active import ActiveSegment
from seeklog.log.keys.index import add_keys, collect_keys, encode_key_index, key_index_name, open_key_index
from seeklog.log.keys.ranges import PageDamaged, RangedKeys, open_ranged
from seeklog.log.segment import OpenKeyIndex, Segment, SegmentReplaced
from seeklog.log.side.seal import Content, Seal
from seeklog.log.view import View
from seeklog.record.key_hash import hash_key
from seeklog.record.key_table import KeyEntries, KeyTable
from seeklog.record.record import Record
from seeklog.record.segment_state import SegmentState

logger = logging.getLogger("seeklog")

# The limit for indexes that a read-only log builds in memory: about 18 million keys.
MAX_MEMORY_BYTES = 256 << 20

_lookups: weakref.WeakSet[KeyLookup] = weakref.WeakSet()


class KeepsIndexes(Protocol):
    """A log open for writing."""

    def keep_key_index(self, segment: Segment, data: bytes) -> bool:
        """Write a segment's key index next to it, unless the segment is gone; return whether it was written."""
        ...


class _Tail:
    """The keys of a segment without a side file, up to the position scanned so far."""

    __slots__ = ("base_offset", "position", "seen", "state", "table")

    def __init__(self, segment: Segment) -> None:
        self.base_offset = segment.base_offset
        self.table = KeyTable(segment.base_offset)
        self.position = 0
        self.state = _state_of(segment)
        self.seen = (0, 0)
        """The size and the high watermark at the last update."""


def _state_of(segment: Segment) -> SegmentState | None:
    """Return an object that is replaced when an active segment is cut, although the segment stays the same."""
    return segment.state if isinstance(segment, ActiveSegment) else None


class KeyLookup:
    """The key indexes of one log. Thread-safe; only building an index and updating a table take the lock.

    It keeps no segment and no view alive, because their files would stay open.
    """

    def __init__(self, config: LogConfig, *, writer: KeepsIndexes | None) -> None:
        self._limit = config.max_decompressed_bytes
        self._writer = writer if config.key_index != "none" else None
        self._lock = threading.Lock()
        self._tails: dict[weakref.ref[Segment], _Tail] = {}
        self._in_memory: dict[Content, KeyEntries] = {}
        self._memory_bytes = 0
        self._proved: set[Content] = set()
        """Segments whose index file has passed its CRC check."""
        self._present: set[Content] = set()
        """Segments whose index file exists, or cannot be built."""
        self._view: weakref.ref[View] | None = None
        """The view of the last lookup."""
        _lookups.add(self)

    def renew_lock(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Release everything.

        Does not take the lock: its holder may be waiting for the lock that a log holds while closing.
        """
        self._tails = {}
        self._in_memory = {}
        self._memory_bytes = 0
        self._view = None

    def latest(
        self, view: View, key: bytes, *, start: int, stop: int, high_watermark: int, is_last_try: bool = False
    ) -> Record | None:
        """Return the newest record with the key in [start, stop) below the high watermark, or None.

        Raises `SegmentReplaced` if a record that an index names is gone, unless this is the last try: compaction
        dropped it for a newer one, which this view may not include.
        """
        if self._view is None or view is not self._view():
            self._forget_all_but(view)
        first, second = hash_key(key)
        # A read-only file system, such as an archive, has no writer: its last segment is sealed, too.
        last = None if isinstance(view.last.shared.files, ReadOnlyFiles) else view.last
        for segment in reversed(view.segments):
            if segment.base_offset >= stop:
                continue
            if segment.next_offset <= start:
                return None
            if segment.seal is not None and segment is not last and segment.next_offset <= high_watermark:
                try:
                    relatives = (segment.loaded.keys or self._load(segment, segment.seal)).offsets_of(first)
                except PageDamaged as error:
                    relatives = self._rebuild_damaged(segment, segment.seal, error).offsets_of(first)
                if not relatives:
                    continue
                offsets = [segment.base_offset + relative for relative in relatives]
            else:
                table = self._catch_up(segment, high_watermark)
                end = min(stop, segment.next_offset)
                if table.next_offset < end:
                    # The table excludes a batch that extends past the watermark.
                    record = _search_back(view, key, max(start, table.next_offset), end, limit=self._limit)
                    if record is not None:
                        return record
                offsets = [offset] if (offset := table.offset_of(first, second)) >= 0 else []
            record = self._follow(view, segment, key, offsets, start=start, stop=stop, is_last_try=is_last_try)
            if record is not None:
                return record
        return None

    def _follow(
        self, view: View, segment: Segment, key: bytes, offsets: list[int], *, start: int, stop: int, is_last_try: bool
    ) -> Record | None:
        """Return the newest record with the key in [start, stop) of a segment whose index gives these offsets."""
        is_certain = True
        for offset in offsets:
            if offset < start:
                continue  # the last record with this key, so none is in the range
            if offset < stop:
                records = reading.read_records(view, offset, offset + 1, 1, 1, self._limit)
                if records and records[0].key == key:
                    return records[0]
                if not records and not is_last_try:
                    raise SegmentReplaced(segment.path)
            is_certain = False
        if is_certain:
            return None
        # The newest record may be after the end of the range, two keys may have the same hash, or the index may be
        # wrong: only the log can tell.
        first, end = max(start, segment.base_offset), min(stop, segment.next_offset)
        return _search_back(view, key, first, end, limit=self._limit)

    # ------------------------------------------------------------ sealed segments

    def _rebuild_damaged(self, segment: Segment, seal: Seal, error: PageDamaged) -> OpenKeyIndex:
        """Return a sealed segment's entries, rebuilt because its index file is damaged."""
        logger.warning("%s: rebuilding the key index: %s", _path(segment), error)
        with self._lock:
            segment.loaded.keys = None
            return self._in_memory.get(seal.content) or self._build(segment, seal)

    def _load(self, segment: Segment, seal: Seal) -> OpenKeyIndex:
        """Return a sealed segment's entries: from its file, from memory, or rebuilt."""
        with self._lock:
            if segment.loaded.keys is not None:
                return segment.loaded.keys
            entries = self._in_memory.get(seal.content) or self._open(segment, seal) or self._build(segment, seal)
            self._drop_table(segment)
            return entries

    def _open(self, segment: Segment, seal: Seal) -> OpenKeyIndex | None:
        """Return the entries of an existing file, read by ranges if it is large and at a URL, else mapped."""
        files, path = segment.shared.files, _path(segment)
        opened: KeyEntries | RangedKeys | str | None = None
        try:
            if is_remote(files):
                opened = open_ranged(files, path, seal)
            if opened is None:
                opened = open_key_index(files.map(path), seal, is_proved=seal.content in self._proved)
        except FileNotFoundError:
            return None
        except OSError as error:
            opened = f"it cannot be read: {error}"
        if isinstance(opened, str):
            logger.warning("%s: rebuilding the key index: %s", path, opened)
            return None
        if isinstance(opened, KeyEntries):
            self._proved.add(seal.content)
        segment.loaded.keys = opened
        segment.shared.opened(segment)
        return opened

    def _build(self, segment: Segment, seal: Seal, between: Callable[[], None] | None = None) -> OpenKeyIndex:
        logger.debug("%s: building the key index", segment.path)
        table = self._complete_table(seal) or collect_keys(segment, limit=self._limit, between=between)
        data = encode_key_index(table, seal)
        if self._writer is not None and self._writer.keep_key_index(segment, data):
            entries = self._open(segment, seal)
            if entries is not None:
                return entries
        built = open_key_index(data, seal)
        assert isinstance(built, KeyEntries)
        if self._memory_bytes + len(data) <= MAX_MEMORY_BYTES:
            self._in_memory[seal.content] = built
            self._memory_bytes += len(data)
        return built

    def _complete_table(self, seal: Seal) -> KeyTable | None:
        """Return the table of the segment from before it was sealed, if it is complete."""
        for tail in self._tails.values():
            state = tail.state
            if (
                tail.base_offset == seal.base_offset
                and state is not None
                and (state.crc, state.size, tail.position) == (seal.log_crc, seal.size, seal.size)
            ):
                return tail.table
        return None

    def _drop_table(self, sealed: Segment) -> None:
        own = weakref.ref(sealed)
        self._tails = {
            segment: tail
            for segment, tail in self._tails.items()
            if tail.base_offset != sealed.base_offset or segment == own
        }

    def build_missing(self, view: View, between: Callable[[], None]) -> int:
        """Build the missing key indexes of sealed segments; return their number. `between` is called every few ms.

        A segment that is damaged or too large is skipped and logged once. It must not fail a sync or a roll; a lookup
        of a key raises the error.
        """
        built = 0
        for segment in view.segments[:-1]:
            seal = segment.seal
            if seal is None or segment.loaded.keys is not None or seal.content in self._present:
                continue
            with self._lock:
                # An existing file is checked at its first use; checking here would read all of them at every open.
                if not self._is_there(segment):
                    try:
                        self._build(segment, seal, between)
                    except OSError as error:
                        logger.warning("%s: the key index was not written: %s", segment.path, error)
                        continue
                    except CorruptionError as error:
                        logger.error("%s: the key index cannot be built: %s", segment.path, error)
                    else:
                        self._drop_table(segment)
                        built += 1
                self._present.add(seal.content)
        return built

    def _is_there(self, segment: Segment) -> bool:
        try:
            segment.shared.files.file_size(_path(segment))
        except OSError:
            return False
        return True

    # ------------------------------------------------------------ segments that grow

    def _catch_up(self, segment: Segment, high_watermark: int) -> KeyTable:
        """Return the keys of a segment from memory, up to the last batch below the high watermark."""
        key = weakref.ref(segment)
        tail = self._tails.get(key)
        now = (segment.size, high_watermark)
        if tail is not None and tail.seen == now and tail.state is _state_of(segment):
            return tail.table
        with self._lock:
            tail = self._tails.get(key)
            if tail is None or tail.state is not _state_of(segment):
                self._tails[key] = tail = _Tail(segment)
            while tail.position < segment.size and tail.table.next_offset < high_watermark:
                taken = add_keys(tail.table, segment, tail.position, stop=high_watermark, limit=self._limit)
                if not taken:
                    break
                tail.position += taken
            tail.seen = now
            return tail.table

    def _forget_all_but(self, view: View) -> None:
        """Release the data of segments that are no longer in the view."""
        with self._lock:
            kept = {segment.seal.content for segment in view.segments if segment.seal is not None}
            self._in_memory = {content: self._in_memory[content] for content in kept & self._in_memory.keys()}
            self._memory_bytes = sum(entries.size_bytes for entries in self._in_memory.values())
            self._proved &= kept
            self._present &= kept
            bases = {segment.base_offset for segment in view.segments}
            here = {weakref.ref(segment) for segment in view.segments}
            # The table of a segment sealed since then can still become its side file.
            self._tails = {
                segment: tail
                for segment, tail in self._tails.items()
                if segment in here or (tail.state is not None and tail.base_offset in bases)
            }
            self._view = weakref.ref(view)


def _path(segment: Segment) -> str:
    return f"{segment.shared.directory}/{key_index_name(segment.base_offset)}"


def _search_back(view: View, key: bytes, start: int, stop: int, *, limit: int) -> Record | None:
    records: Iterator[Record] = reading.scan_reverse(view, start, stop, limit=limit)
    return next((record for record in records if record.key == key), None)


def _renew_locks() -> None:
    for lookup in list(_lookups):
        lookup.renew_lock()


os.register_at_fork(after_in_child=_renew_locks)
