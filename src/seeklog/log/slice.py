"""A slice of a segment's file, for a fetch: found by the index, with a walk over headers to its start alone.

A slice begins with the batch that holds an offset, and is a part of one file. Its last batch may be cut, as in Kafka: a
client ignores the end of a batch that is incomplete. Nothing is decoded, and no CRC is checked; the client does that.
"""

from __future__ import annotations

from dataclasses import dataclass

from seeklog.config import INT64_MAX
from seeklog.files import Files, Handle
from seeklog.log.headers import scan_headers
from seeklog.log.segment import Segment
from seeklog.log.view import View


@dataclass(frozen=True, slots=True)
class Slice:
    """Batches as a part of an open file, the last one perhaps cut. Holding it keeps the file open."""

    files: Files
    handle: Handle
    position: int
    size: int
    base_offset: int
    """Of its first batch, which may be below the offset that was asked for."""

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self.handle.fileno()

    def read(self) -> bytes:
        return self.files.read(self.handle.number, self.size, self.position)


def find_slice(view: View, offset: int, stop: int, *, max_bytes: int) -> Slice | None:
    """Return the batches from the one that holds `offset` to `stop`, at most `max_bytes` but for a larger first batch.

    `stop` is the end of a batch. None if no batch between the two is left.
    """
    for index in range(view.find(offset), len(view.segments)):
        segment = view.segments[index]
        # Before the end of its offsets: an append between the two looks may make the size larger than that.
        size = segment.size
        found = next(scan_headers(segment, offset, stop), None)
        if found is None:
            continue  # compaction has removed the batch, and those after it in this segment
        position, header = found
        end = size if segment.next_offset <= stop else _position_of(segment, stop, default=size)
        wanted = max(max_bytes, header.size)
        return Slice(
            segment.shared.files,
            segment.handle(),
            position,
            min(wanted, max(end - position, header.size)),
            header.base_offset,
        )
    return None


def _position_of(segment: Segment, offset: int, *, default: int) -> int:
    """Return where the first batch at or after an offset begins."""
    found = next(scan_headers(segment, offset, INT64_MAX), None)
    return found[0] if found is not None else default
