"""Every file name in a partition directory, and the rules for names.

Kafka's own:
    %020d.log .index .timeindex   a segment, named after its base offset
    leader-epoch-checkpoint       where each leader epoch starts
    .deleted .cleaned .swap       suffixes of segments that are leaving or arriving

seeklog's, which Kafka ignores inside a partition directory:
    %020d.seal                    proof of a sealed segment
    %020d.<position>.torn         bytes that recovery cut from a segment, kept as evidence
    seeklog-checkpoint            recovery point, start offset, high watermark, clean shutdown
    seeklog-watermark             the high watermark, published for other processes
    .lock                         held by the one writer, holds its pid
"""

from __future__ import annotations

import re
from typing import Final

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
SEAL: Final = ".seal"
TORN: Final = ".torn"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

CHECKPOINT: Final = "seeklog-checkpoint"
WATERMARK: Final = "seeklog-watermark"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
LOCK: Final = ".lock"

SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, SEAL)
_SEGMENT_NAME: Final = re.compile(r"(\d{20})(\.[a-z]+)\Z", re.ASCII)
_KNOWN_NAME: Final = re.compile(
    r"(\d{20}\..+"
    r"|seeklog-(checkpoint|watermark)(\.tmp)?"
    r"|leader-epoch-checkpoint(\.tmp)?"
    r"|partition\.metadata(\.tmp)?"
    r"|\.lock)\Z",
    re.ASCII,
)


def segment_name(base_offset: int, suffix: str) -> str:
    """Return a segment file's name: the base offset in 20 digits, and the suffix."""
    return f"{base_offset:020d}{suffix}"


def torn_name(base_offset: int, position: int, attempt: int = 0) -> str:
    """Return the name under which bytes cut at `position` are kept; `attempt` tells apart later cuts there."""
    number = f".{attempt}" if attempt else ""
    return f"{base_offset:020d}.{position}{number}{TORN}"


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) of a segment file's name, or None if it is not one."""
    match = _SEGMENT_NAME.match(name)
    return (int(match[1]), match[2]) if match else None


def is_known(name: str) -> bool:
    """Tell whether a name in a directory speaks for a partition."""
    return _KNOWN_NAME.match(name) is not None
