"""The contents of a log file as a sequence of parts: batches, records, gaps and damage. Reads any broker's files.

A part is a dict for JSON; `what` is its kind. Damage is a part, and the intact batches after it follow.
"""

from __future__ import annotations

import base64
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from seeklog import names
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import printable
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError
from seeklog.files import OsFiles
from seeklog.log import Segment, Shared
from seeklog.log.check import Damage, Salvage, read_batches
from seeklog.record.batch import DECOMPRESSED_LIMIT, BatchHeader, decode_records
from seeklog.record.codec import decompress
from seeklog.record.control import decode_end_marker
from seeklog.record.layout import CODEC_MASK, HEADER_SIZE
from seeklog.record.record import Record

Part = dict[str, Any]

# Logs, and bytes that were cut from logs.
LOG_SUFFIXES: Final = (names.LOG, names.TORN, names.DAMAGED)
LEAVING: Final = (names.DELETED, names.CLEANED, names.SWAP)
# Kafka's formats before version 2: offset (8), size (4), CRC (4), magic (1).
_OLD_HEAD: Final = 17
_MAGIC_AT: Final = 16
HEADER_FIELDS: Final = {
    "base offset": 8,
    "length": 4,
    "leader epoch": 4,
    "magic": 1,
    "crc": 4,
    "attributes": 2,
    "last offset delta": 4,
    "base timestamp": 8,
    "max timestamp": 8,
    "producer id": 8,
    "producer epoch": 2,
    "base sequence": 4,
    "record count": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The options of `seeklog dump`."""

    records: bool = False
    hex: bool = False
    start: int = 0
    stop: int = INT64_MAX
    utc: bool = False


def stem_of(name: str) -> str:
    """Return a file's name without suffixes such as .deleted and .swap."""
    for suffix in LEAVING:
        name = name.removesuffix(suffix)
    return name


def is_log(name: str) -> bool:
    return stem_of(name).endswith(LOG_SUFFIXES) or name.startswith(names.STAGED)


def dissect_log(path: str, wish: Wish) -> Iterator[Part]:
    """Yield the batches of a log file, gaps and damage between them, and a summary."""
    return _Dissection(path, wish).parts()


@dataclass(slots=True)
class _Producer:
    epoch: int = -1
    batches: int = 0
    records: int = 0
    first_sequence: int = -1
    last_sequence: int = -1


@dataclass(slots=True)
class _Totals:
    """The totals of a file."""

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

    def add(self, header: BatchHeader) -> None:
        self.batches += 1
        self.records += header.record_count
        self.codecs[header.codec] += 1
        if self.first_offset is None:
            self.first_offset = header.base_offset
        self.next_offset = header.next_offset
        if header.base_timestamp_ms >= 0 and (self.oldest_ms is None or header.base_timestamp_ms < self.oldest_ms):
            self.oldest_ms = header.base_timestamp_ms
        self.newest_ms = max(self.newest_ms, header.max_timestamp_ms)
        if header.producer_id >= 0:
            producer = self.producers.setdefault(header.producer_id, _Producer())
            producer.epoch = header.producer_epoch
            producer.batches += 1
            producer.records += header.record_count
            if header.base_sequence >= 0:
                if producer.first_sequence < 0:
                    producer.first_sequence = header.base_sequence
                producer.last_sequence = header.base_sequence + header.last_offset_delta

    def summary(self, size: int, *, utc: bool) -> Part:
        return {
            "type": "summary",
            "size": size,
            "batches": self.batches,
            "records": self.records,
            "old_batches": self.old_batches,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "oldest": amounts.moment(self.oldest_ms, utc=utc),
            "newest": amounts.moment(self.newest_ms, utc=utc),
            "codecs": dict(self.codecs),
            "ratio": round(self.plain / self.stored, 2) if self.stored else None,
            "gaps": self.gaps,
            "missing_offsets": self.missing,
            "late_batches": self.late,
            "producers": len(self.producers),
            "damages": self.damages,
        }


class _Dissection:
    def __init__(self, path: str, wish: Wish) -> None:
        self._wish = wish
        self._totals = _Totals()
        files = OsFiles()
        directory, name = os.path.split(os.path.abspath(path))
        base_offset = int(name[:20]) if re.match(r"\d{20}\.", name) else _first_offset(path)
        self._segment = Segment(
            Shared(files, directory, LogConfig(), writable=False),
            base_offset,
            size=files.file_size(path),
            next_offset=INT64_MAX,
            seal=None,
        )
        self._segment.path = path

    def parts(self) -> Iterator[Part]:
        segment, totals = self._segment, self._totals
        try:
            salvage = Salvage(segment, INT64_MAX, segment.shared.new_state)
            for part in salvage.parts():
                yield from self._between(part) if isinstance(part, Damage) else self._batches(*part)
            if salvage.is_given_up:
                yield {"type": "note", "detail": "too much is damaged; the rest of the file was not read"}
        finally:
            segment.shared.clear()
        for producer_id, producer in sorted(totals.producers.items()):
            yield {"type": "producer", "producer_id": producer_id, **asdict(producer)}
        yield totals.summary(segment.size, utc=self._wish.utc)

    def _batches(self, start: int, stop: int) -> Iterator[Part]:
        wish, totals = self._wish, self._totals
        for position, batch in read_batches(self._segment, start, stop):
            header = batch.header
            if header.last_offset < wish.start or header.base_offset >= wish.stop:
                continue
            if totals.next_offset is not None and header.base_offset > totals.next_offset:
                totals.gaps += 1
                totals.missing += header.base_offset - totals.next_offset
                yield {"type": "gap", "from": totals.next_offset, "to": header.base_offset - 1}
            yield self._batch(position, header, batch.raw)
            if wish.hex:
                yield from _fields(position, batch.raw)
            if wish.records and not header.is_control:
                try:
                    for record in decode_records(batch.raw):
                        if wish.start <= record.offset < wish.stop:
                            yield _record(record, utc=wish.utc)
                except CorruptionError as error:
                    totals.damages += 1
                    yield {"type": "damage", "position": position, "kind": "records", "detail": error.reason}

    def _batch(self, position: int, header: BatchHeader, raw: bytes) -> Part:
        totals, utc = self._totals, self._wish.utc
        late_ms = max(0, totals.newest_ms - header.max_timestamp_ms) if header.max_timestamp_ms >= 0 else 0
        totals.late += late_ms > 0
        part: Part = {
            "type": "batch",
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "position": position,
            "size": header.size,
            "records": header.record_count,
            "magic": 2,
            "crc": f"{header.crc:#010x}",
            "crc_ok": True,
            "codec": header.codec,
            "ratio": self._ratio(header, raw),
            "leader_epoch": header.leader_epoch,
            "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
            "base_timestamp": amounts.moment(header.base_timestamp_ms, utc=utc),
            "max_timestamp": amounts.moment(header.max_timestamp_ms, utc=utc),
            "late_ms": late_ms,
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
        totals.add(header)
        return part

    def _ratio(self, header: BatchHeader, raw: bytes) -> float | None:
        """Return the compression ratio of the records; None if it is unknown."""
        stored = plain = len(raw) - HEADER_SIZE
        codec = header.attributes & CODEC_MASK
        if codec and stored:
            try:
                plain = len(decompress(codec, memoryview(raw)[HEADER_SIZE:], limit=DECOMPRESSED_LIMIT))
            except CorruptionError:
                return None
        self._totals.stored += stored
        self._totals.plain += plain
        return round(plain / stored, 2) if stored else None

    def _between(self, damage: Damage) -> Iterator[Part]:
        """Yield the parts of a range without intact batches: batches in an old format, or damage."""
        segment, totals, position, stop = self._segment, self._totals, damage.start, damage.stop
        while stop - position >= _OLD_HEAD:
            head = segment.read(_OLD_HEAD, position)
            size = 12 + int.from_bytes(head[8:12], "big", signed=True)
            if head[_MAGIC_AT] > 1 or not _OLD_HEAD <= size <= stop - position:
                break
            totals.old_batches += 1
            yield {
                "type": "batch",
                "base_offset": int.from_bytes(head[:8], "big", signed=True),
                "position": position,
                "size": size,
                "magic": head[_MAGIC_AT],
                "detail": "a message set of a Kafka older than 0.11; its records are not decoded",
            }
            position += size
        # An empty range means missing or repeated offsets, which the batches show.
        if position >= stop:
            return
        totals.damages += 1
        yield {
            "type": "damage",
            "position": position,
            "size": stop - position,
            "kind": damage.kind.value,
            "offset": damage.offset,
            "detail": damage.reason + ("; only zeros follow" if damage.is_blank else ""),
        }
        if damage.next_offset is not None:
            totals.next_offset = damage.next_offset


def _first_offset(path: str) -> int:
    """Return the base offset in the first batch, for a file without an offset in its name."""
    with open(path, "rb") as file:
        head = file.read(8)
    offset = int.from_bytes(head, "big", signed=True)
    return offset if len(head) == 8 and 0 <= offset < 2**62 else 0


def _marker(raw: bytes) -> str | None:
    try:
        marker = decode_end_marker(raw)
    except CorruptionError:
        return None
    return None if marker is None else "commit" if marker.is_commit else "abort"


def _record(record: Record, *, utc: bool) -> Part:
    headers = [{"key": key} | _field("value", value) for key, value in record.headers]
    return (
        {"type": "record", "offset": record.offset, "timestamp": amounts.moment(record.timestamp_ms, utc=utc)}
        | _field("key", record.key)
        | _field("value", record.value)
        | ({"headers": headers} if headers else {})
    )


def _field(name: str, data: bytes | None) -> Part:
    """Return a field for JSON: UTF-8 as text, other bytes as base64 under another name."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError as error:
        return {f"{name}_base64": base64.b64encode(error.object).decode()}


def _fields(position: int, raw: bytes) -> Iterator[Part]:
    at = 0
    for name, size in HEADER_FIELDS.items():
        data = raw[at : at + size]
        number = int.from_bytes(data, "big", signed=name not in ("crc", "attributes"))
        yield {"type": "field", "position": position + at, "bytes": data.hex(" "), "name": name, "value": number}
        at += size
    for start in range(at, len(raw), 16):
        data = raw[start : start + 16]
        yield {"type": "bytes", "position": position + start, "bytes": data.hex(" "), "text": printable(data)}
