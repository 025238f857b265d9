"""Checks that a segment of the source is a compaction of archived segments, before it replaces them.

Compaction only removes records. So every record of the source within the offsets of archived segments must be in these
segments, too; otherwise the log was truncated and written again. A record that a repair has given up is missing for
another reason, and the archive may hold its last copy. One case cannot be distinguished from compaction: a truncated
log from which compaction then removed everything written at the old offsets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from seeklog import names
from seeklog.errors import ArchiveMismatch
from seeklog.record.batch import split_batches
from seeklog.record.record import Record


def check_compacted(
    archived: Iterable[Record], kept: Iterable[Record], *, lost: Sequence[tuple[int, int]], location: str
) -> None:
    """Raise `ArchiveMismatch` unless `kept` can be a compaction of `archived`. Both are in offset order."""
    sides = heapq.merge(
        ((record.offset, False, record) for record in archived),
        ((record.offset, True, record) for record in kept),
        key=itemgetter(0, 1),
    )
    for offset, group in groupby(sides, key=itemgetter(0)):
        found = {is_kept: record for _, is_kept, record in group}
        if True in found and found.get(False) != found[True]:
            raise ArchiveMismatch(
                f"{location}: the record at offset {offset} differs from the source's, and compaction changes no "
                "records: the source's log was truncated and written again, or is another log; archive to another "
                "location, or move this archive aside; nothing was overwritten"
            )
        if True not in found and any(first <= offset < end for first, end in lost):
            raise ArchiveMismatch(
                f"{location} holds offset {offset}, which a repair of the source has given up: this may be the last "
                f"copy. Copy the segment back from there, and remove {names.LOSSES} at the source; or archive to "
                "another location. Nothing was overwritten"
            )


def between(bounds: Iterable[tuple[int, int]], records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records within bounds, each a first offset and an end. Bounds and records are in offset order."""
    ahead = iter(bounds)
    first, end = next(ahead)
    for record in records:
        while record.offset >= end:
            following = next(ahead, None)
            if following is None:
                return
            first, end = following
        if record.offset >= first:
            yield record


def records_in(parts: Iterable[bytes], *, limit: int) -> Iterator[Record]:
    """Yield the records of a segment that is read in parts. Every CRC is checked."""
    rest = b""
    for part in parts:
        rest += part
        taken = 0
        for batch in split_batches(rest):
            taken += len(batch.raw)
            yield from batch.records(limit=limit)
        rest = rest[taken:]
