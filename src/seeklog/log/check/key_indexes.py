"""Whether the key index beside a segment is what its log makes, to the byte; and how it is made so.

A segment without a key index lacks nothing: whoever looks for a key makes one. One that is there must be that of the
segment as it is, and is only that if it has the same bytes as one that is made anew.
"""

from __future__ import annotations

from typing import NamedTuple

from seeklog import names
from seeklog.errors import CorruptionError, FormatError
from seeklog.files import replace_file
from seeklog.log.keys.index import ANOTHERS, collect_keys, encode_key_index, key_index_name, open_key_index
from seeklog.log.segment import Segment, seal_of
from seeklog.record.segment_state import SegmentState


class KeyIndexProblem(NamedTuple):
    """What is wrong with a key index."""

    path: str
    reason: str
    is_damage: bool
    """Whether its bytes are not what was written; else it is that of another state of the segment."""


def make_key_index(segment: Segment, state: SegmentState) -> bytes:
    """Return the key index of a segment whose batches add up to `state`."""
    limit = segment.shared.config.max_decompressed_bytes
    return encode_key_index(collect_keys(segment, limit=limit), seal_of(state, sealed_at_ms=0))


def key_index_problem(segment: Segment, state: SegmentState, *, is_whole: bool = True) -> KeyIndexProblem | None:
    """Hold a segment's key index, if there is one, against its log; return what is wrong with it.

    Of a log that is not whole, or whose records cannot be read, only the file itself is looked at.
    """
    path = segment.shared.path(segment.base_offset, names.KEY_INDEX)
    try:
        data = segment.shared.files.read_file(path)
    except FileNotFoundError:
        return None
    seal = seal_of(state, sealed_at_ms=0)
    if not is_whole and segment.seal is not None:
        seal = segment.seal  # what it was before it was damaged
    entries = open_key_index(data, seal)
    if entries == ANOTHERS and not is_whole:
        return None
    if isinstance(entries, str):
        return KeyIndexProblem(path, entries, is_damage=entries != ANOTHERS)
    try:
        is_same = not is_whole or make_key_index(segment, state) == data
    except FormatError:
        return None  # a batch that is larger than this reader takes, or packed in another way, is no damage
    except CorruptionError as error:
        return KeyIndexProblem(path, f"it cannot be held against the log: {error.reason}", is_damage=True)
    return None if is_same else KeyIndexProblem(path, "it is not the one that the log makes", is_damage=True)


def write_key_index(segment: Segment, data: bytes) -> None:
    """Put a key index beside its segment. The caller syncs the directory."""
    shared = segment.shared
    replace_file(shared.files, shared.directory, key_index_name(segment.base_offset), data)
