"""The result of inspecting a partition: one `Finding` for each problem.

An *error* means that bytes have changed or that synced records are lost. A *warning* means that something is missing or
cut short, but can be rebuilt or was never promised. A *note* describes a valid state that is worth knowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The subject of a finding."""

    CRC = "crc"  # a batch whose bytes do not match its CRC
    HEADER = "header"  # bytes that cannot start a batch, or impossible numbers
    FORMAT = "format"  # a batch format that seeklog cannot read
    TRUNCATED = "truncated"  # the log ends within a batch, or before the recovery point
    GAP = "gap"  # offsets are missing
    OVERLAP = "overlap"  # offsets are repeated
    OFFSET = "offset"  # a batch whose offsets do not fit between its neighbours
    INDEX = "index"  # an entry of an offset index, or the whole index
    INDEX_MISSING = "index-missing"
    TIME_INDEX = "time-index"
    TIME_INDEX_MISSING = "time-index-missing"
    KEY_INDEX = "key-index"  # a key index that is damaged or stale; a missing one is valid
    SEAL = "seal"
    SEAL_MISSING = "seal-missing"
    CHECKPOINT = "checkpoint"
    RECORDS = "records"  # a batch that passes its CRC, but whose records cannot be read
    SNAPSHOT = "snapshot"
    UNREADABLE = "unreadable"  # the disk or the operating system refused
    CHANGED = "changed"  # the log was cut during the inspection


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, or one fact worth knowing."""

    kind: Kind
    severity: Severity
    path: str
    detail: str
    segment: int | None = None
    """The base offset of the segment; None for the partition as a whole."""
    position: int | None = None
    """The byte position in the file `path`."""
    offset: int | None = None
