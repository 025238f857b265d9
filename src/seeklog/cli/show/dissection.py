"""What stands in a file, part by part: batches, records, index entries, notes. Any Kafka broker's files are read.

Each part is a dict with `what` it is, as JSON says it. Damage is a part as well, and what is whole behind it follows.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog import names
from seeklog.cli.show import amounts
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError
from seeklog.files import OsFiles
from seeklog.log import Segment, Shared
from seeklog.log.check import Damage, Salvage, read_batches
from seeklog.record.batch import DECOMPRESSED_LIMIT, BatchHeader, decode_records
from seeklog.record.codec import decompress
from seeklog.record.control import decode_end_marker
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.record import Record

Part = dict[str, Any]

# A log, whatever became of it, and bytes that were cut from one.
LOG_SUFFIXES: Final = (names.LOG, names.TORN, names.DAMAGED)
LEAVING: Final = (names.DELETED, names.CLEANED, names.SWAP)
# Kafka's formats before version 2: offset (8), size (4), CRC (4), magic (1).
_OLD_HEAD: Final = 17
_MAGIC_AT: Final = 16
HEADER_FIELDS: Final = (
    ("base offset", 8),
    ("length", 4),
    ("leader epoch", 4),
    ("magic", 1),
    ("crc", 4),
    ("attributes", 2),
    ("last offset delta", 4),
    ("base timestamp", 8),
    ("max timestamp", 8),
    ("producer id", 8),
    ("producer epoch", 2),
    ("base sequence", 4),
    ("record count", 4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How much of a log is to be shown."""

    records: bool = False
    hex: bool = False
    start: int = 0
    stop: int = INT64_MAX
    utc: bool = False


def stem_of(name: str) -> str:
    """Return a file's name without what says that it is leaving or arriving."""
    for suffix in LEAVING:
        name = name.removesuffix(suffix)
    return name


def is_log(name: str) -> bool:
    return stem_of(name).endswith(LOG_SUFFIXES) or name.startswith(names.STAGED)


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: int = 0
    records: int = 0
    first_sequence: int = -1
    last_sequence: int = -1


@dataclass(slots=True)
class _Totals:
    """What the batches of one file add up to."""

    batches: int = 0
    records: int = 0
    old_batches: int = 0
    damages: int = 0
    gaps: int = 0
    missing: int = 0
    late: int = 0
    stored: int = 0
    plain: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    oldest_ms: int | None = None
    newest_ms: int = -1
    codecs: Counter[str] = field(default_factory=Counter)
    producers: dict[int, _Producer] = field(default_factory=dict)


def dissect_log(path: str, wish: Wish) -> Iterator[Part]:
    """Yield the batches of a log file, what is between them, and a summary."""
    files = OsFiles()
    size = files.file_size(path)
    segment = _segment(files, path, size)
    totals = _Totals()
    try:
        salvage = Salvage(segment, INT64_MAX, segment.shared.new_state)
        for place in salvage.places():
            if isinstance(place, Damage):
                yield from _between(segment, place, totals)
            else:
                yield from _batches(segment, place[0], place[1], wish, totals)
        if salvage.is_given_up:
            yield {"what": "note", "detail": "too much is damaged; what lies behind is not looked at"}
    finally:
        segment.shared.clear()
    for producer_id, known in sorted(totals.producers.items()):
        yield {
            "what": "producer",
            "producer_id": producer_id,
            "epoch": known.epoch,
            "batches": known.batches,
            "records": known.records,
            "first_sequence": known.first_sequence,
            "last_sequence": known.last_sequence,
        }
    yield _summary(size, totals, utc=wish.utc)


def _segment(files: OsFiles, path: str, size: int) -> Segment:
    directory, name = os.path.split(os.path.abspath(path))
    base_offset = int(name[:20]) if name[:20].isdigit() and len(name) > 20 else 0
    if not name[:20].isdigit():
        handle = files.open(path)
        try:
            head = files.read(handle, 8, 0)
        finally:
            files.close(handle)
        # A file of another name: its first batch tells where it begins.
        base_offset = max(0, int.from_bytes(head, "big", signed=True)) if len(head) == 8 else 0
        base_offset = base_offset if base_offset < 2**62 else 0
    shared = Shared(files, directory, LogConfig(), writable=False)
    segment = Segment(shared, base_offset, size=size, next_offset=INT64_MAX, seal=None)
    segment.path = path
    return segment


def _batches(segment: Segment, start: int, stop: int, wish: Wish, totals: _Totals) -> Iterator[Part]:
    for position, batch in read_batches(segment, start, stop):
        header = batch.header
        if header.last_offset < wish.start or header.base_offset >= wish.stop:
            continue
        if totals.next_offset is not None and header.base_offset > totals.next_offset:
            totals.gaps += 1
            totals.missing += header.base_offset - totals.next_offset
            yield {"what": "gap", "from": totals.next_offset, "to": header.base_offset - 1}
        part = _batch_part(position, header, batch.raw, totals, utc=wish.utc)
        yield part
        if wish.hex:
            yield from _fields(position, batch.raw)
        if wish.records and not header.is_control:
            try:
                for record in decode_records(batch.raw):
                    if wish.start <= record.offset < wish.stop:
                        yield _record_part(record, utc=wish.utc)
            except CorruptionError as error:
                totals.damages += 1
                yield {"what": "damage", "position": position, "kind": "records", "detail": error.reason}


def _batch_part(position: int, header: BatchHeader, raw: bytes, totals: _Totals, *, utc: bool) -> Part:
    late = max(0, totals.newest_ms - header.max_timestamp_ms) if header.max_timestamp_ms >= 0 else 0
    part: Part = {
        "what": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": position,
        "size": header.size,
        "records": header.record_count,
        "magic": 2,
        "crc": f"{header.crc:#010x}",
        "crc_ok": True,
        "codec": header.codec,
        "ratio": _ratio(header, raw, totals),
        "leader_epoch": header.leader_epoch,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": amounts.moment(header.base_timestamp_ms, utc=utc),
        "max_timestamp": amounts.moment(header.max_timestamp_ms, utc=utc),
        "late_ms": late,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
    }
    if header.delete_horizon_ms is not None:
        part["delete_horizon"] = amounts.moment(header.delete_horizon_ms, utc=utc)
    if header.is_control:
        part["marker"] = _marker(raw)
    _count(header, totals, is_late=late > 0)
    return part


def _count(header: BatchHeader, totals: _Totals, *, is_late: bool) -> None:
    totals.batches += 1
    totals.records += header.record_count
    totals.codecs[header.codec] += 1
    totals.late += is_late
    totals.first_offset = header.base_offset if totals.first_offset is None else totals.first_offset
    totals.next_offset = header.next_offset
    if header.base_timestamp_ms >= 0:
        oldest = totals.oldest_ms
        totals.oldest_ms = header.base_timestamp_ms if oldest is None else min(oldest, header.base_timestamp_ms)
    totals.newest_ms = max(totals.newest_ms, header.max_timestamp_ms)
    if header.producer_id >= 0:
        known = totals.producers.setdefault(header.producer_id, _Producer(header.producer_epoch))
        known.epoch = header.producer_epoch
        known.batches += 1
        known.records += header.record_count
        if header.base_sequence >= 0:
            known.first_sequence = header.base_sequence if known.first_sequence < 0 else known.first_sequence
            known.last_sequence = header.base_sequence + header.last_offset_delta


def _ratio(header: BatchHeader, raw: bytes, totals: _Totals) -> float | None:
    """Return how many bytes one stored byte of records stands for; None where that cannot be told."""
    stored = len(raw) - HEADER_SIZE
    plain = stored
    codec = header.attributes & 0x07
    if codec and stored:
        try:
            plain = len(decompress(codec, memoryview(raw)[HEADER_SIZE:], limit=DECOMPRESSED_LIMIT))
        except CorruptionError:
            return None
    totals.stored += stored
    totals.plain += plain
    return round(plain / stored, 2) if stored else None


def _marker(raw: bytes) -> str | None:
    try:
        marker = decode_end_marker(raw)
    except CorruptionError:
        return None
    return None if marker is None else "commit" if marker.is_commit else "abort"


def _record_part(record: Record, *, utc: bool) -> Part:
    headers = [{"key": key} | _field("value", value) for key, value in record.headers]
    return (
        {"what": "record", "offset": record.offset, "timestamp": amounts.moment(record.timestamp_ms, utc=utc)}
        | _field("key", record.key)
        | _field("value", record.value)
        | ({"headers": headers} if headers else {})
    )


def _field(name: str, data: bytes | None) -> Part:
    """Return bytes as JSON has them: text where they are UTF-8, else base64 under another name."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _fields(position: int, raw: bytes) -> Iterator[Part]:
    at = 0
    for name, size in HEADER_FIELDS:
        data = raw[at : at + size]
        number = int.from_bytes(data, "big", signed=name not in ("crc", "attributes"))
        yield {"what": "field", "position": position + at, "bytes": data.hex(" "), "name": name, "value": number}
        at += size
    for start in range(at, len(raw), 16):
        data = raw[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)
        yield {"what": "bytes", "position": position + start, "bytes": data.hex(" "), "text": text}


def _between(segment: Segment, damage: Damage, totals: _Totals) -> Iterator[Part]:
    """Yield what stands where no whole batch does: batches of an old format, or damage."""
    position = damage.position
    stop = segment.size if damage.resumed_at is None else damage.resumed_at
    while stop - position >= _OLD_HEAD:
        head = segment.read(_OLD_HEAD, position)
        size = 12 + int.from_bytes(head[8:12], "big", signed=True)
        if head[_MAGIC_AT] > 1 or not _OLD_HEAD <= size <= stop - position:
            break
        totals.old_batches += 1
        yield {
            "what": "batch",
            "base_offset": int.from_bytes(head[:8], "big", signed=True),
            "position": position,
            "size": size,
            "magic": head[_MAGIC_AT],
            "detail": "a message set of a Kafka before 0.11; its records are not read",
        }
        position += size
    if position >= stop:
        return
    if damage.resumed_at == damage.position:
        return  # offsets that are missing or come again: the batches tell
    totals.damages += 1
    detail = damage.reason + ("; nothing but zeros follows" if damage.is_blank else "")
    yield {
        "what": "damage",
        "position": position,
        "size": stop - position,
        "kind": damage.kind.value,
        "offset": damage.offset,
        "detail": detail,
    }
    if damage.resumed_offset is not None:
        totals.next_offset = damage.resumed_offset


def _summary(size: int, totals: _Totals, *, utc: bool) -> Part:
    return {
        "what": "summary",
        "size": size,
        "batches": totals.batches,
        "records": totals.records,
        "old_batches": totals.old_batches,
        "first_offset": totals.first_offset,
        "next_offset": totals.next_offset,
        "oldest": amounts.moment(totals.oldest_ms, utc=utc),
        "newest": amounts.moment(totals.newest_ms, utc=utc),
        "codecs": dict(totals.codecs),
        "ratio": round(totals.plain / totals.stored, 2) if totals.stored else None,
        "gaps": totals.gaps,
        "missing_offsets": totals.missing,
        "late_batches": totals.late,
        "producers": len(totals.producers),
        "damages": totals.damages,
    }
