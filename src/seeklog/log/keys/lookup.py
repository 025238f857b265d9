"""Finding the newest record of a key: from the newest segment to the oldest, through their key indexes.

A sealed segment that readers see all of has its side file, which is mapped, or read by ranges where it lies at a URL;
one that is missing, damaged or another's is rebuilt, and kept on disk by a log that is open for writing. Of the
others, the active one above all, a table in memory is brought up to date at each lookup with what was appended since;
appends themselves do nothing for it.

A hash never decides. An entry is followed to its record, and where the record has another key, or lies after the
end of what was asked for, the segment itself is searched backwards.
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

# What a log that may not write keeps of the indexes it had to make: those of some 18 million keys.
MAX_MEMORY_BYTES = 256 << 20

_lookups: weakref.WeakSet[KeyLookup] = weakref.WeakSet()


class KeepsIndexes(Protocol):
    """A log that is open for writing."""

    def keep_key_index(self, segment: Segment, data: bytes) -> bool:
        """Write a segment's key index beside it, unless the segment has gone; return whether it is there."""
        ...


class _Tail:
    """The keys of a segment that has no side file of its own yet, up to where they were looked for."""

    __slots__ = ("position", "seen", "state", "table")

    def __init__(self, segment: Segment) -> None:
        self.table = KeyTable(segment.base_offset)
        self.position = 0
        self.state = _state_of(segment)
        self.seen = (0, 0)
        """The size and the high watermark that the table was last brought up to."""


def _state_of(segment: Segment) -> SegmentState | None:
    """Return what changes when an active segment is cut, though the segment stays the same."""
    return segment.state if isinstance(segment, ActiveSegment) else None


class KeyLookup:
    """The key indexes of one log. Any thread may call anything; only making an index and catching up take the lock."""

    def __init__(self, config: LogConfig, *, writer: KeepsIndexes | None) -> None:
        self._limit = config.max_decompressed_bytes
        self._writer = writer if config.key_index != "none" else None
        self._lock = threading.Lock()
        self._tails: dict[Segment, _Tail] = {}
        self._in_memory: dict[Content, KeyEntries] = {}
        self._memory_bytes = 0
        self._proved: set[Content] = set()
        """Whose files were seen to hold their CRC."""
        self._present: set[Content] = set()
        """Whose files need not be made, or cannot be."""
        self._view: View | None = None
        _lookups.add(self)

    def renew_lock(self) -> None:
        """In a forked child: a thread that is not in it may have held it."""
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Release everything, and the files of segments with it.

        The lock is not taken: its holder may be waiting for the lock that a log holds while it is closed.
        """
        self._tails = {}
        self._in_memory = {}
        self._memory_bytes = 0
        self._view = None

    def latest(
        self, view: View, key: bytes, *, start: int, stop: int, high_watermark: int, is_last_try: bool = False
    ) -> Record | None:
        """Return the newest record with the key in [start, stop), or None. No offset of it is above the watermark.

        Raises `SegmentReplaced`, unless it is the last try, if a record is gone that an index has named: compaction has
        found a newer one, which the view may not reach.
        """
        if view is not self._view:
            self._forget_all_but(view)
        first, second = hash_key(key)
        # Where nobody writes, as in an archive, the last one is sealed, too.
        last = None if isinstance(view.last.shared.files, ReadOnlyFiles) else view.last
        for segment in reversed(view.segments):
            if segment.base_offset >= stop:
                continue
            if segment.next_offset <= start:
                return None
            if segment.seal is not None and segment is not last and segment.next_offset <= high_watermark:
                try:
                    found = (segment.loaded.keys or self._load(segment, segment.seal)).offsets_of(first)
                except PageDamaged as error:
                    found = self._made_for(segment, segment.seal, error).offsets_of(first)
                if not found:
                    continue
                offsets = [segment.base_offset + relative for relative in found]
            else:
                table = self._caught_up(segment, high_watermark)
                end = min(stop, segment.next_offset)
                if table.next_offset < end:
                    # A batch that the watermark cuts in two is not in the table.
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
        """Return the newest record with the key in [start, stop) of a segment whose index names these offsets."""
        is_certain = True
        for offset in offsets:
            if offset < start:
                continue  # the last of its key, so none comes after it
            if offset < stop:
                found = reading.read_records(view, offset, offset + 1, 1, 1, self._limit)
                if found and found[0].key == key:
                    return found[0]
                if not found and not is_last_try:
                    raise SegmentReplaced(segment.path)
            is_certain = False
        if is_certain:
            return None
        # The newest record of the key may lie after the end that was asked for; else two keys have one hash, or the
        # index is wrong: then only the log knows.
        first, end = max(start, segment.base_offset), min(stop, segment.next_offset)
        return _search_back(view, key, first, end, limit=self._limit)

    # ------------------------------------------------------------ sealed segments

    def _made_for(self, segment: Segment, seal: Seal, error: PageDamaged) -> OpenKeyIndex:
        """Return a sealed segment's entries, rebuilt because its file turned out to be damaged."""
        logger.warning("%s: rebuilding the key index: %s", _path(segment), error)
        with self._lock:
            segment.loaded.keys = None
            return self._in_memory.get(seal.content) or self._made(segment, seal)

    def _load(self, segment: Segment, seal: Seal) -> OpenKeyIndex:
        """Return a sealed segment's entries: mapped, or from memory, or rebuilt."""
        with self._lock:
            if segment.loaded.keys is not None:
                return segment.loaded.keys
            entries = self._in_memory.get(seal.content) or self._opened(segment, seal) or self._made(segment, seal)
            self._drop_table(segment)
            return entries

    def _opened(self, segment: Segment, seal: Seal) -> OpenKeyIndex | None:
        """Return the entries of a file that is there: by ranges where it lies at a URL and is large, else mapped."""
        files, path = segment.shared.files, _path(segment)
        found: KeyEntries | RangedKeys | str | None = None
        try:
            if is_remote(files):
                found = open_ranged(files, path, seal)
            if found is None:
                found = open_key_index(files.map(path), seal, is_proved=seal.content in self._proved)
        except FileNotFoundError:
            return None
        except OSError as error:
            found = f"it cannot be read: {error}"
        if isinstance(found, str):
            logger.warning("%s: rebuilding the key index: %s", path, found)
            return None
        if isinstance(found, KeyEntries):
            self._proved.add(seal.content)
        segment.loaded.keys = found
        segment.shared.opened(segment)
        return found

    def _made(self, segment: Segment, seal: Seal, between: Callable[[], None] | None = None) -> OpenKeyIndex:
        logger.debug("%s: making the key index", segment.path)
        table = self._complete_table(seal) or collect_keys(segment, limit=self._limit, between=between)
        data = encode_key_index(table, seal)
        if self._writer is not None and self._writer.keep_key_index(segment, data):
            entries = self._opened(segment, seal)
            if entries is not None:
                return entries
        made = open_key_index(data, seal)
        assert isinstance(made, KeyEntries)
        if self._memory_bytes + len(data) <= MAX_MEMORY_BYTES:
            self._in_memory[seal.content] = made
            self._memory_bytes += len(data)
        return made

    def _complete_table(self, seal: Seal) -> KeyTable | None:
        """Return the table that was kept of the segment while it grew, if it has all of it."""
        for segment, tail in self._tails.items():
            state = tail.state
            if (
                segment.base_offset == seal.base_offset
                and state is not None
                and (state.crc, state.size, tail.position) == (seal.log_crc, seal.size, seal.size)
            ):
                return tail.table
        return None

    def _drop_table(self, sealed: Segment) -> None:
        for segment in [each for each in self._tails if each.base_offset == sealed.base_offset and each is not sealed]:
            del self._tails[segment]

    def make_missing(self, view: View, between: Callable[[], None]) -> int:
        """Make the key indexes that sealed segments lack; return how many. `between` is called every few ms.

        A segment that is damaged, or too large to be read, is passed over and reported once: it is no concern of a sync
        or a roll, and a lookup of a key raises.
        """
        made = 0
        for segment in view.segments[:-1]:
            seal = segment.seal
            if seal is None or segment.loaded.keys is not None or seal.content in self._present:
                continue
            with self._lock:
                # One that is there is proved when it is first used: here that would read all of them at every open.
                if not self._is_there(segment):
                    try:
                        self._made(segment, seal, between)
                    except OSError as error:
                        logger.warning("%s: the key index waits for the disk: %s", segment.path, error)
                        continue
                    except CorruptionError as error:
                        logger.error("%s: there is no key index: %s", segment.path, error)
                    else:
                        self._drop_table(segment)
                        made += 1
                self._present.add(seal.content)
        return made

    def _is_there(self, segment: Segment) -> bool:
        try:
            segment.shared.files.file_size(_path(segment))
        except OSError:
            return False
        return True

    # ------------------------------------------------------------ segments that grow

    def _caught_up(self, segment: Segment, high_watermark: int) -> KeyTable:
        """Return the keys of a segment in memory, up to the last batch that readers see all of."""
        tail = self._tails.get(segment)
        now = (segment.size, high_watermark)
        if tail is not None and tail.seen == now and tail.state is _state_of(segment):
            return tail.table
        with self._lock:
            tail = self._tails.get(segment)
            if tail is None or tail.state is not _state_of(segment):
                self._tails[segment] = tail = _Tail(segment)
            while tail.position < segment.size and tail.table.next_offset < high_watermark:
                taken = add_keys(tail.table, segment, tail.position, stop=high_watermark, limit=self._limit)
                if not taken:
                    break
                tail.position += taken
            tail.seen = now
            return tail.table

    def _forget_all_but(self, view: View) -> None:
        """Release what was kept of segments that the view no longer has."""
        with self._lock:
            kept = {segment.seal.content for segment in view.segments if segment.seal is not None}
            self._in_memory = {content: self._in_memory[content] for content in kept & self._in_memory.keys()}
            self._memory_bytes = sum(entries.size_bytes for entries in self._in_memory.values())
            self._proved &= kept
            self._present &= kept
            bases = {segment.base_offset for segment in view.segments}
            here = set(view.segments)
            # The table of a segment that was sealed since becomes its side file, if that is asked for.
            self._tails = {
                segment: tail
                for segment, tail in self._tails.items()
                if segment in here or (tail.state is not None and segment.base_offset in bases)
            }
            self._view = view


def _path(segment: Segment) -> str:
    return f"{segment.shared.directory}/{key_index_name(segment.base_offset)}"


def _search_back(view: View, key: bytes, start: int, stop: int, *, limit: int) -> Record | None:
    records: Iterator[Record] = reading.scan_reverse(view, start, stop, limit=limit)
    return next((record for record in records if record.key == key), None)


def _renew_locks() -> None:
    for lookup in list(_lookups):
        lookup.renew_lock()


os.register_at_fork(after_in_child=_renew_locks)
