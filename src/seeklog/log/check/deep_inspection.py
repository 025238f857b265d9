"""What an inspection leaves out because it costs more: every record read, and the files that are only advice.

`inspect_records` decompresses and decodes what the CRCs already vouch for, so what it finds was written wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from seeklog import names
from seeklog.errors import CorruptionError
from seeklog.files import Files, OsFiles
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.inspection import Plan, Subject
from seeklog.log.check.salvage import Salvage
from seeklog.log.segment import SCAN_CHUNK, Segment, Shared
from seeklog.log.side.producer_snapshot import decode_snapshot
from seeklog.record.batch import Batch, decode_records, read_header
from seeklog.record.layout import HEADER_SIZE


def whole_ranges(salvage: Salvage) -> Iterator[tuple[int, int]]:
    """Yield where whole batches stand, one behind the other: [start, stop) in bytes."""
    at = 0
    for damage in salvage.damages:
        if damage.position > at:
            yield at, damage.position
        if damage.resumed_at is None:
            return
        at = damage.resumed_at
    if salvage.state.size > at:
        yield at, salvage.state.size


def read_batches(segment: Segment, start: int, stop: int) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) of batches that are known to be whole."""
    position, origin, data = start, start, b""
    while position < stop:
        at = position - origin
        if len(data) - at < HEADER_SIZE:
            origin, at, data = position, 0, segment.read(SCAN_CHUNK, position)
        header = read_header(data, at)
        if header.size > len(data) - at:
            origin, at, data = position, 0, segment.read(max(SCAN_CHUNK, header.size), position)
        yield position, Batch(header, data[at : at + header.size])
        position += header.size


def inspect_records(
    subject: Subject, *, files: Files | None = None, advance: Callable[[int], None] | None = None
) -> list[Finding]:
    """Read every record of a segment's whole batches; return the batches of which that fails."""
    shared = Shared(files or OsFiles(), subject.directory, subject.config, writable=False)
    segment = Segment(shared, subject.base_offset, size=subject.size, next_offset=2**63 - 1, seal=None)
    segment.path = subject.path
    findings = []
    try:
        salvage = Salvage(segment, 2**63 - 1, shared.new_state, end_offset=subject.end_offset)
        for start, stop in whole_ranges(salvage):
            for position, batch in read_batches(segment, start, stop):
                try:
                    decode_records(batch.raw, limit=subject.config.max_decompressed_bytes)
                except CorruptionError as error:
                    findings.append(
                        subject.finding(
                            Kind.RECORDS, Severity.ERROR, error.reason, position=position, offset=batch.base_offset
                        )
                    )
                if advance is not None:
                    advance(batch.header.size)
    except OSError:
        pass  # told already by the inspection that came before
    finally:
        shared.clear()
    return findings


def inspect_sides(plan: Plan, *, files: Files | None = None) -> list[Finding]:
    """Check the producer snapshots of a partition."""
    files = files or OsFiles()
    findings = []
    try:
        listing = sorted(files.list(plan.directory))
    except OSError:
        return []
    for name in listing:
        parsed = names.parse_segment_name(name)
        if parsed is None or parsed[1] != names.SNAPSHOT:
            continue
        path = f"{plan.directory}/{name}"
        try:
            data = files.read_file(path)
        except OSError:
            continue
        if decode_snapshot(data) is None:
            detail = f"{len(data)} bytes that are no whole snapshot of producers"
            findings.append(
                Finding(kind=Kind.SNAPSHOT, severity=Severity.WARNING, path=path, detail=detail, position=0)
            )
    return findings
