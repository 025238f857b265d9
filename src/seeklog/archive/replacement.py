"""Whether what a source has in the place of archived segments is what compaction has left of them.

Compaction takes records away, and does nothing else. So each record that the source has among the offsets of an
archived segment must be in that one, too: else the log was cut, and written otherwise. And a record that a repair has
given up is gone for another reason: there the archive may have the last copy. One case is not told from compaction: a
log that was cut, and of which compaction then took all that was written at the old offsets.
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
    archived: Iterable[Record], kept: Iterable[Record], *, lost: Sequence[tuple[int, int]], place: str
) -> None:
    """Raise `ArchiveMismatch` unless compaction may have made `kept` of `archived`, both in the order of offsets."""
    sides = heapq.merge(
        ((record.offset, False, record) for record in archived),
        ((record.offset, True, record) for record in kept),
        key=itemgetter(0, 1),
    )
    for offset, group in groupby(sides, key=itemgetter(0)):
        found = {is_kept: record for _, is_kept, record in group}
        if True in found and found.get(False) != found[True]:
            raise ArchiveMismatch(
                f"{place}: the record at offset {offset} is not the one that the source has, and compaction changes "
                "none: its log was cut and written otherwise, or is another one; archive to another place, or move "
                "that one aside; nothing was overwritten"
            )
        if True not in found and any(first <= offset < end for first, end in lost):
            raise ArchiveMismatch(
                f"{place} holds offset {offset}, which a repair of the source has given up: that may be the last copy. "
                f"Copy the segment back from there, and remove {names.LOSSES} at the source; or archive to another "
                "place. Nothing was overwritten"
            )


def between(bounds: Iterable[tuple[int, int]], records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records whose offsets lie within bounds, each a first offset and an end; all are in order."""
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
    """Yield the records of the batches that the parts of a segment make up, every CRC checked."""
    rest = b""
    for part in parts:
        rest += part
        taken = 0
        for batch in split_batches(rest):
            taken += len(batch.raw)
            yield from batch.records(limit=limit)
        rest = rest[taken:]
