"""What a finding means for the owner of a log, and what to do next."""

from __future__ import annotations

from typing import Final

from seeklog.log.check import Finding, Kind, Severity

_MEANINGS: Final[dict[Kind, str]] = {
    Kind.CRC: "bytes of this batch have changed since they were written, so none of its records can be believed",
    Kind.HEADER: "no batch can begin with these bytes: they were overwritten, or a header's length was",
    Kind.FORMAT: "written by a Kafka before 0.11, in a format that seeklog does not read",
    Kind.TRUNCATED: "the end of the file is missing",
    Kind.GAP: "records that were here are gone, a file perhaps with them",
    Kind.OVERLAP: "two batches claim the same offsets",
    Kind.OFFSET: "a whole batch whose offset, which no CRC covers, was changed",
    Kind.INDEX: "a reader could land in the wrong place; the log itself is not touched by it",
    Kind.INDEX_MISSING: "lookups by offset walk the segment until the index is made anew",
    Kind.TIME_INDEX: "a lookup by time could land in the wrong place; the log itself is not touched by it",
    Kind.TIME_INDEX_MISSING: "lookups by time walk the segment until the index is made anew",
    Kind.SEAL: "what was noted when the segment was finished is not what is there",
    Kind.SEAL_MISSING: "nothing proves the segment's indexes until it is sealed anew",
    Kind.CHECKPOINT: "where the log starts and what was promised durable cannot be known",
    Kind.UNREADABLE: "the disk or the operating system refused to read it",
    Kind.CHANGED: "somebody has changed the log meanwhile",
    Kind.RECORDS: "the batch is as it was written, but what wrote it was wrong, or its codec is not known here",
    Kind.KEY_INDEX: "lookups by key read the segment until the index is made anew; the log itself is not touched by it",
    Kind.SNAPSHOT: "what is known of producers is read from the log instead",
}
_REINDEX: Final = (Kind.INDEX, Kind.INDEX_MISSING, Kind.TIME_INDEX, Kind.TIME_INDEX_MISSING, Kind.KEY_INDEX)
# Reopening or reading again mends these, or nothing does.
_NOT_REPAIRED: Final = (Kind.SEAL_MISSING, Kind.RECORDS, Kind.SNAPSHOT)


def meaning(finding: Finding) -> str:
    """Return what a finding means, in a sentence without its full stop."""
    if finding.kind is Kind.GAP and finding.severity is Severity.NOTE:
        return "nothing is wrong: a reader goes on with the next record"
    return _MEANINGS[finding.kind]


def next_step(finding: Finding, *, place: str) -> str | None:
    """Return what to do about a finding, `place` being the words that name the partition; None: nothing."""
    if finding.kind is Kind.UNREADABLE:
        return "look at the disk (dmesg, smartctl), then restore the file from a copy"
    if finding.kind is Kind.CHANGED:
        return f"seeklog verify {place}"
    if finding.kind is Kind.FORMAT:
        return "let a Kafka of version 0.11 to 3 rewrite it, or copy the topic with a client"
    if finding.kind in _REINDEX:
        return f"seeklog reindex {place}"
    if finding.severity is Severity.ERROR and finding.kind not in _NOT_REPAIRED:
        return f"restore the file from a copy, or: seeklog repair {place}"
    return None
