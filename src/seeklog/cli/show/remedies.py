"""What a finding means, and what to do next."""

from __future__ import annotations

from typing import Final

from seeklog.log.check import Finding, Kind, Severity

_MEANINGS: Final[dict[Kind, str]] = {
    Kind.CRC: "bytes of this batch changed after they were written; none of its records can be trusted",
    Kind.HEADER: "no batch can start with these bytes: they, or the length of the batch before, were overwritten",
    Kind.FORMAT: "written by a Kafka older than 0.11, in a format that seeklog does not read",
    Kind.TRUNCATED: "the end of the file is missing",
    Kind.GAP: "records are missing, perhaps a whole file",
    Kind.OVERLAP: "two batches claim the same offsets",
    Kind.OFFSET: "the batch is intact, but its offset, which the CRC does not cover, was changed",
    Kind.INDEX: "a lookup by offset could return the wrong position; the log itself is intact",
    Kind.INDEX_MISSING: "lookups by offset scan the segment until the index is rebuilt",
    Kind.TIME_INDEX: "a lookup by time could return the wrong position; the log itself is intact",
    Kind.TIME_INDEX_MISSING: "lookups by time scan the segment until the index is rebuilt",
    Kind.SEAL: "the segment differs from what was recorded when it was sealed",
    Kind.SEAL_MISSING: "the segment's indexes cannot be verified until it is sealed again",
    Kind.CHECKPOINT: "the log start offset and the recovery point are unknown",
    Kind.UNREADABLE: "the disk or the operating system refused to read it",
    Kind.CHANGED: "another process changed the log during the check",
    Kind.RECORDS: "the batch is intact, but its writer encoded it wrongly, or its codec is not supported here",
    Kind.KEY_INDEX: "lookups by key scan the segment until the index is rebuilt; the log itself is intact",
    Kind.SNAPSHOT: "the state of producers is read from the log instead",
}
_REINDEX: Final = (Kind.INDEX, Kind.INDEX_MISSING, Kind.TIME_INDEX, Kind.TIME_INDEX_MISSING, Kind.KEY_INDEX)
# A repair does not help: these go away when the log is reopened, or stay.
_NOT_REPAIRED: Final = (Kind.SEAL_MISSING, Kind.RECORDS, Kind.SNAPSHOT)


def meaning(finding: Finding) -> str:
    """Return what a finding means, as a sentence without a full stop."""
    if finding.kind is Kind.GAP and finding.severity is Severity.NOTE:
        return "nothing is wrong: readers continue with the next record"
    return _MEANINGS[finding.kind]


def next_step(finding: Finding, *, where: str) -> str | None:
    """Return what to do about a finding, None for nothing; `where` names the partition on a command line."""
    if finding.kind is Kind.UNREADABLE:
        return "check the disk (dmesg, smartctl), then restore the file from a copy"
    if finding.kind is Kind.CHANGED:
        return f"run it again: seeklog verify {where}"
    if finding.kind is Kind.FORMAT:
        return "rewrite it with Kafka 0.11 to 3, or copy the topic with a client"
    if finding.kind in _REINDEX:
        return f"seeklog reindex {where}"
    if finding.severity is Severity.ERROR and finding.kind not in _NOT_REPAIRED:
        return f"restore the file from a copy, or run: seeklog repair {where}"
    return None
