"""What stands in the files beside a log: indexes, held against the log, and what was noted of it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from seeklog import names
from seeklog.cli.show import amounts
from seeklog.cli.show.dissection import Part, is_log, stem_of
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError
from seeklog.files import OsFiles
from seeklog.log import OFFSET_ENTRY, TIME_ENTRY, Segment, Shared, open_key_index
from seeklog.log.check import OFFSETS, TIMES, BatchMap, Salvage, index_problems, state_of_every_batch
from seeklog.log.side import (
    HEAD_SIZE,
    SUM_SIZE,
    decode_checkpoint,
    decode_epochs,
    decode_offsets,
    decode_seal,
    decode_snapshot,
    read_seal,
)
from seeklog.record.crc import crc32c

# version, producer id, first offset, last offset, last stable offset
_ABORTED: Final = struct.Struct(">hqqqq")
_OFFSET_TABLES: Final = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)
_TEXTS: Final = (names.PARTITION_METADATA, names.META_PROPERTIES)


def dissect_side(path: str, *, utc: bool) -> Iterator[Part] | None:
    """Return the parts of a file that is no log; None if it is none that is known."""
    name = stem_of(os.path.basename(path))
    suffix = os.path.splitext(name)[1]
    if suffix in (names.OFFSET_INDEX, names.TIME_INDEX) and name[:20].isdigit():
        return _index(path, is_of_times=suffix == names.TIME_INDEX, utc=utc)
    readers = {
        names.TRANSACTION_INDEX: _aborted,
        names.SNAPSHOT: _snapshot,
        names.SEAL: _seal,
        names.KEY_INDEX: _key_index,
    }
    if suffix in readers:
        return readers[suffix](path, utc)
    if name == names.CHECKPOINT:
        return _checkpoint(path)
    if name == names.LEADER_EPOCHS:
        return _epochs(path)
    if name in _OFFSET_TABLES:
        return _offsets(path)
    return _text(path) if name in _TEXTS else None


def _read(path: str) -> bytes:
    return OsFiles().read_file(path)


def _damage(detail: str, position: int | None = 0) -> Part:
    return {"what": "damage", "position": position, "kind": "file", "detail": detail}


def _summary(**found: Any) -> Part:
    return {"what": "summary", **found}


def _index(path: str, *, is_of_times: bool, utc: bool) -> Iterator[Part]:
    table = _read(path)
    shape = TIME_ENTRY if is_of_times else OFFSET_ENTRY
    used = table[: -(-len(table.rstrip(b"\0")) // shape.size) * shape.size] or table[: shape.size]
    base_offset = int(os.path.basename(path)[:20])
    problems = _proofs(path, base_offset, used, is_of_times=is_of_times)
    damages = 0
    for number, fields in enumerate(shape.iter_unpack(used[: len(used) - len(used) % shape.size])):
        part: Part = {"what": "entry", "entry": number}
        if is_of_times:
            part |= {"timestamp": amounts.moment(fields[0], utc=utc), "offset": base_offset + fields[1]}
        else:
            part |= {"offset": base_offset + fields[0], "position": fields[1]}
        wrong = None if problems is None else problems.get(number)
        damages += wrong is not None
        yield part | {"proved": None if problems is None else wrong is None} | ({"detail": wrong} if wrong else {})
    if problems is not None and None in problems:
        damages += 1
        yield _damage(problems[None] or "", len(used) - len(used) % shape.size)
    yield _summary(
        size=len(table),
        entries=len(used) // shape.size,
        room_bytes=len(table) - len(used),
        is_proved=problems is not None,
        damages=damages,
    )


def _proofs(path: str, base_offset: int, table: bytes, *, is_of_times: bool) -> dict[int | None, str] | None:
    """Hold the entries against the log beside the index; None if there is none."""
    log = f"{path[: path.rindex('.')]}{names.LOG}" if not path.endswith((names.DELETED, names.SWAP)) else ""
    files = OsFiles()
    if not log or not os.path.isfile(log):
        return None
    shared = Shared(files, os.path.dirname(os.path.abspath(path)), LogConfig(), writable=False)
    segment = Segment(shared, base_offset, size=files.file_size(log), next_offset=INT64_MAX, seal=None)
    try:
        salvage = Salvage(segment, INT64_MAX, state_of_every_batch)
        batches = BatchMap(salvage.state)
        # A fresh file of a broker's has room for entries, all zeros, and no entry.
        if not table.strip(b"\0"):
            return {}
        problems = index_problems(segment, TIMES if is_of_times else OFFSETS, table, batches)
        return {problem.entry: problem.reason for problem in problems}
    finally:
        shared.clear()


def _aborted(path: str, utc: bool) -> Iterator[Part]:
    data = _read(path)
    whole = len(data) - len(data) % _ABORTED.size
    for version, producer_id, first, last, stable in _ABORTED.iter_unpack(data[:whole]):
        if version != 0:
            yield _damage(f"version {version} of an aborted transaction")
            return
        yield {
            "what": "aborted",
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
    if whole != len(data):
        yield _damage("the last entry is incomplete", whole)
    yield _summary(size=len(data), entries=whole // _ABORTED.size, damages=int(whole != len(data)))


def _snapshot(path: str, utc: bool) -> Iterator[Part]:
    data = _read(path)
    entries = decode_snapshot(data)
    if entries is None:
        yield _damage(f"{len(data)} bytes that are no whole snapshot of producers")
    for entry in entries or ():
        yield {
            "what": "producer",
            "producer_id": entry.producer_id,
            "epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "timestamp": amounts.moment(entry.timestamp_ms, utc=utc),
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_start": entry.transaction_start,
        }
    yield _summary(size=len(data), entries=len(entries or ()), damages=int(entries is None))


def _seal(path: str, utc: bool) -> Iterator[Part]:
    data = _read(path)
    seal = decode_seal(data)
    is_damaged = seal is None
    if seal is None:
        yield _damage(f"{len(data)} bytes that are no whole seal")
    else:
        found = asdict(seal)
        for word in ("max_timestamp", "sealed_at"):
            found[word] = amounts.moment(found.pop(f"{word}_ms"), utc=utc)
        for word in ("log_crc", "offset_index_crc", "time_index_crc"):
            found[word] = f"{found[word]:#010x}"
        del found["pages"]
        if seal.pages is not None:
            found |= {"page_size": seal.pages.page_size, "pages": len(data[HEAD_SIZE:]) // SUM_SIZE}
        yield {"what": "seal", **found}
        if seal.pages is not None and crc32c(data[HEAD_SIZE:]) != seal.pages.table_crc:
            is_damaged = True
            yield _damage("the table of page checksums fails its CRC")
    yield _summary(size=len(data), damages=int(is_damaged))


def _key_index(path: str, utc: bool) -> Iterator[Part]:
    data = _read(path)
    base_offset = int(os.path.basename(path)[:20])
    seal = read_seal(OsFiles(), os.path.dirname(os.path.abspath(path)), base_offset)
    if seal is None:
        yield {"what": "note", "detail": "the segment that it belongs to has no seal, so it is not looked into"}
        yield _summary(size=len(data), damages=0)
        return
    found = open_key_index(data, seal)
    if isinstance(found, str):
        yield _damage(found)
    else:
        yield {"what": "key index", "keys": int.from_bytes(data[40:48], "big"), "base_offset": base_offset}
    yield _summary(size=len(data), damages=int(isinstance(found, str)))


def _checkpoint(path: str) -> Iterator[Part]:
    data = _read(path)
    damages = 0
    try:
        yield {"what": "checkpoint", **asdict(decode_checkpoint(data, path=path))}
    except CorruptionError as error:
        damages = 1
        yield _damage(error.reason)
    yield _summary(size=len(data), damages=damages)


def _epochs(path: str) -> Iterator[Part]:
    data = _read(path)
    entries = decode_epochs(data)
    if entries is None:
        yield _damage("no leader epochs, or not in order")
    for epoch, start in entries or ():
        yield {"what": "epoch", "epoch": epoch, "start_offset": start}
    yield _summary(size=len(data), entries=len(entries or ()), damages=int(entries is None))


def _offsets(path: str) -> Iterator[Part]:
    data = _read(path)
    offsets = decode_offsets(data)
    if offsets is None:
        yield _damage("no offsets of partitions")
    for (topic, partition), offset in sorted((offsets or {}).items()):
        yield {"what": "offset", "topic": topic, "partition": partition, "offset": offset}
    yield _summary(size=len(data), entries=len(offsets or {}), damages=int(offsets is None))


def _text(path: str) -> Iterator[Part]:
    data = _read(path)
    for line in data.decode("utf-8", "backslashreplace").splitlines():
        yield {"what": "line", "text": line}
    yield _summary(size=len(data), damages=0)


def is_dumpable(name: str, *, with_index: bool) -> bool:
    """Tell whether a file of a directory is shown when the directory is named; indexes only if they are asked for."""
    stem = stem_of(name)
    if is_log(name):
        return True
    if stem.endswith((names.OFFSET_INDEX, names.TIME_INDEX)):
        return with_index and names.is_known(name)
    known = (names.TRANSACTION_INDEX, names.SNAPSHOT, names.SEAL, names.KEY_INDEX)
    return (stem.endswith(known) and names.is_known(name)) or stem in (
        names.CHECKPOINT,
        names.LEADER_EPOCHS,
        *_OFFSET_TABLES,
        *_TEXTS,
    )
