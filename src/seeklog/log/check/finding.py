"""What an inspection of a partition tells: one `Finding` for each thing that is not as it should be.

A finding is an *error* where bytes are not what was written or records that were promised durable are lost; a
*warning* where something is missing or cut short that will be made anew, or was never promised; a *note* where all
is lawful but worth knowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a finding is about."""

    CRC = "crc"  # a batch whose bytes are not those that its CRC was made of
    HEADER = "header"  # bytes with which no batch can begin, or numbers that cannot be
    FORMAT = "format"  # a batch format that seeklog does not read
    TRUNCATED = "truncated"  # the log ends in the middle of a batch, or before what was promised
    GAP = "gap"  # offsets are missing
    OVERLAP = "overlap"  # offsets come again
    OFFSET = "offset"  # a batch between two others that has not the offsets between theirs
    INDEX = "index"  # an entry of an offset index, or the whole of it
    INDEX_MISSING = "index-missing"
    TIME_INDEX = "time-index"
    TIME_INDEX_MISSING = "time-index-missing"
    KEY_INDEX = "key-index"  # a key index that is damaged, or that of another segment; to lack one is lawful
    SEAL = "seal"
    SEAL_MISSING = "seal-missing"
    CHECKPOINT = "checkpoint"
    RECORDS = "records"  # a batch that is as it was written, and whose records cannot be read
    SNAPSHOT = "snapshot"
    UNREADABLE = "unreadable"  # the disk or the operating system refused
    CHANGED = "changed"  # the log was cut while it was looked at


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be, or worth knowing."""

    kind: Kind
    severity: Severity
    path: str
    detail: str
    segment: int | None = None
    """The base offset of the segment; None: the partition as a whole."""
    position: int | None = None
    """The byte in the file `path`."""
    offset: int | None = None
