"""Checking the indexes of a segment against its log: each entry of the sparse indexes, every byte of a key index.

A segment may lack a key index: a lookup builds one. An existing key index must match the current segment, and therefore
have exactly the bytes of one built from the log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from seeklog import names
from seeklog.config import INT32_MAX, INT64_MAX
from seeklog.errors import CorruptionError, FormatError
from seeklog.files import read_if_exists
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY
from seeklog.log.keys.index import STALE, collect_keys, encode_key_index, open_key_index
from seeklog.log.segment import Segment, seal_of
from seeklog.record.batch import read_header
from seeklog.record.index_lookup import floor_entry
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.saved_state import SavedState
from seeklog.record.segment_state import SegmentState


@dataclass(frozen=True, slots=True)
class IndexProblem:
    """A problem of an index file, or of one of its entries."""

    path: str
    entry: int | None
    reason: str
    is_damage: bool = True
    """Whether its bytes have changed. If not, it is a key index of another state of the segment."""


class BatchMap:
    """Every batch of a segment, and every batch that raised the largest timestamp, as tables of index entries.

    The compiled kernel builds and searches the tables.
    """

    def __init__(self, state: SegmentState) -> None:
        self._base_offset = state.base_offset
        self._batches = bytes(state.offset_table)
        # Shifted by half an entry, so that a search by the first field finds positions.
        self._positions = self._batches[4:] + bytes(4)
        self._newest = bytes(state.time_table)

    def starting_at(self, position: int) -> int:
        """Return the number of the batch that starts at `position`, or -1."""
        number = floor_entry(self._positions, OFFSET_ENTRY.size, False, position)
        return number if number >= 0 and self._entry(number)[1] == position else -1

    def last_offset(self, number: int) -> int:
        """Return the last offset of a batch; for number -1, the offset before the segment."""
        return self._base_offset + (self._entry(number)[0] if number >= 0 else -1)

    def newest(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the (first, last) offsets of the batch that first had `timestamp_ms` as the largest so far."""
        number = floor_entry(self._newest, TIME_ENTRY.size, True, timestamp_ms)
        if number < 0:
            return None
        largest, last = TIME_ENTRY.unpack_from(self._newest, number * TIME_ENTRY.size)
        if largest != timestamp_ms:
            return None
        batch = floor_entry(self._batches, OFFSET_ENTRY.size, False, last)
        return self.last_offset(batch - 1) + 1, self._base_offset + last

    def _entry(self, number: int) -> tuple[int, int]:
        last, position = OFFSET_ENTRY.unpack_from(self._batches, number * OFFSET_ENTRY.size)
        return last, position


def state_of_every_batch(base_offset: int) -> SegmentState:
    """Return an empty segment state that adds an index entry for every batch, including the first."""
    state = SegmentState(
        base_offset,
        interval_bytes=0,
        interval_records=0,
        segment_bytes=INT32_MAX,
        segment_ms=INT64_MAX,
        segment_index_bytes=INT32_MAX,
    )
    state.restore(tuple(SavedState(*state.save())._replace(bytes_since_entry=1)), b"", b"")
    return state


class IndexFile(NamedTuple):
    """One of the two sparse indexes."""

    suffix: str
    entry: struct.Struct
    find_problem: Callable[[Segment, BatchMap, int, int], str | None]
    """Returns the problem of an entry, given its two fields, or None."""


def _offset_problem(segment: Segment, batches: BatchMap, relative: int, position: int) -> str | None:
    batch = batches.starting_at(position)
    offset = segment.base_offset + relative
    if batch < 0:
        return f"no batch starts at byte {position}"
    if batches.last_offset(batch) == offset:
        return None
    # A broker may have written several batches at once, with one entry for the last offset of all.
    header = read_header(segment.read(HEADER_SIZE, position))
    if header.base_offset > offset or segment.is_exact:
        return f"offset {offset}, but the batch has {header.base_offset} to {header.last_offset}"
    return None


def _time_problem(segment: Segment, batches: BatchMap, timestamp_ms: int, relative: int) -> str | None:
    offset = segment.base_offset + relative
    newest = batches.newest(timestamp_ms)
    # Kafka before 4.0 gives the record with the timestamp, later versions the last record of its batch.
    if newest is None or not newest[0] <= offset <= newest[1]:
        return f"the largest timestamp is not {timestamp_ms} from offset {offset} on"
    return None


OFFSETS: Final = IndexFile(names.OFFSET_INDEX, OFFSET_ENTRY, _offset_problem)
TIMES: Final = IndexFile(names.TIME_INDEX, TIME_ENTRY, _time_problem)


def index_problems(segment: Segment, file: IndexFile, table: bytes, batches: BatchMap) -> Iterator[IndexProblem]:
    """Yield the problems of an index, in the order of its entries."""
    path = segment.shared.path(segment.base_offset, file.suffix)
    whole = len(table) - len(table) % file.entry.size
    if whole != len(table):
        yield IndexProblem(path, None, "the last entry is incomplete")
    before = (-1, -1)
    for number, (first, second) in enumerate(file.entry.iter_unpack(table[:whole])):
        problem = file.find_problem(segment, batches, first, second)
        if problem is not None:
            yield IndexProblem(path, number, problem)
        if first <= before[0] or (file is OFFSETS and second <= before[1]):
            yield IndexProblem(path, number, "it is not greater than the entry before")
        before = (first, second)


# ---------------------------------------------------------------- the key index


def build_key_index(segment: Segment, state: SegmentState) -> bytes:
    """Return the key index of a segment with the total state `state`."""
    limit = segment.shared.config.max_decompressed_bytes
    return encode_key_index(collect_keys(segment, limit=limit), seal_of(state, sealed_at_ms=0))


def key_index_problem(segment: Segment, state: SegmentState, *, is_whole: bool = True) -> IndexProblem | None:
    """Compare a segment's key index, if it has one, with its log; return the problem or None.

    If the log is damaged or its records cannot be read, only the file itself is checked.
    """
    path = segment.shared.path(segment.base_offset, names.KEY_INDEX)
    data = read_if_exists(segment.shared.files, path)
    if data is None:
        return None
    seal = seal_of(state, sealed_at_ms=0)
    if not is_whole and segment.seal is not None:
        seal = segment.seal  # the state before the damage
    entries = open_key_index(data, seal)
    if entries == STALE and not is_whole:
        return None
    if isinstance(entries, str):
        return IndexProblem(path, None, entries, is_damage=entries != STALE)
    try:
        is_same = not is_whole or build_key_index(segment, state) == data
    except FormatError:
        return None  # a batch too large for this reader, or in another compression, is not damage
    except CorruptionError as error:
        return IndexProblem(path, None, f"it cannot be compared with the log: {error.reason}")
    return None if is_same else IndexProblem(path, None, "it does not match the log")
