"""How far a log was promised durable, where its checkpoint is damaged and does not say so any more.

What is asked instead was written behind a sync of what it speaks of: seals, snapshots of producers, a published
watermark, a broker's checkpoint in the root, and the damaged checkpoint itself where two of its numbers agree. So the
answer may be too low, if nothing is left that tells. A watermark that is set by hand may be ahead of the sync; what it
showed to readers and is gone then counts as lost, and is not given to other records either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.files import Files
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.seal import read_seal
from seeklog.log.side.watermark import EXPLICIT, decode_watermark

# The recovery point and the watermark, and the end of the last segment where the log was closed. They are the same but
# where the log was being written; any two that are the same stand for what was synced.
_ENDS: Final = re.compile(rb"^(?:recovery_point|high_watermark|active \d{1,19}) (\d{1,19})\b", re.MULTILINE)


def promised_offset(files: Files, directory: str, *, inherited: Checkpoint | None) -> int:
    """Return the offset below which all was promised durable, as far as anything but the checkpoint tells."""
    told = [0 if inherited is None else inherited.recovery_point]
    for name in files.list(directory):
        told += _told_by(files, directory, name)
    return max(told)


def _told_by(files: Files, directory: str, name: str) -> Iterator[int]:
    if name == names.WATERMARK:
        published = decode_watermark(files.read_file(f"{directory}/{name}"))
        if published is not None and published[0] == EXPLICIT:
            yield published[1]
    elif name == names.CHECKPOINT:
        # One place that has rotted does not change two numbers to the same.
        ends = [int(end) for end in _ENDS.findall(files.read_file(f"{directory}/{name}"))]
        yield from (end for end in ends if ends.count(end) > 1 and end <= INT64_MAX)
    else:
        base_offset, suffix = names.parse_segment_name(name) or (0, "")
        if suffix == names.SNAPSHOT:
            yield base_offset
        elif suffix == names.SEAL:
            seal = read_seal(files, directory, base_offset)
            if seal is not None:
                yield seal.next_offset
