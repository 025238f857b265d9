"""The contents of side files: indexes, which are checked against the log, seals, snapshots and checkpoints."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Final, NamedTuple

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

_ABORTED: Final = struct.Struct(">hqqqq")  # the version, and these fields
_ABORTED_FIELDS: Final = ("producer_id", "first_offset", "last_offset", "last_stable_offset")


class _File(NamedTuple):
    path: str
    data: bytes
    utc: bool


def dissect_side(path: str, *, utc: bool) -> Iterator[Part] | None:
    """Return the parts of a side file; None if its kind is unknown."""
    name = stem_of(os.path.basename(path))
    suffix = os.path.splitext(name)[1]
    if suffix in (names.OFFSET_INDEX, names.TIME_INDEX) and name[:20].isdigit():
        return _index(path, is_of_times=suffix == names.TIME_INDEX, utc=utc)
    dissect = _KINDS.get(suffix) or _KINDS.get(name)
    return None if dissect is None else _summed(_File(path, OsFiles().read_file(path), utc), dissect)


def is_dumpable(name: str, *, with_index: bool) -> bool:
    """Return whether the dump of a directory shows this file; it shows indexes only `with_index`."""
    stem = stem_of(name)
    suffix = os.path.splitext(stem)[1]
    if is_log(name) or stem in _KINDS:
        return True
    is_index = with_index and suffix in (names.OFFSET_INDEX, names.TIME_INDEX)
    return (is_index or suffix in _KINDS) and names.is_known(name)


def _damage(detail: str, position: int = 0) -> Part:
    return {"type": "damage", "position": position, "kind": "file", "detail": detail}


# ---------------------------------------------------------------- indexes


def _index(path: str, *, is_of_times: bool, utc: bool) -> Iterator[Part]:
    table = OsFiles().read_file(path)
    shape = TIME_ENTRY if is_of_times else OFFSET_ENTRY
    used = table[: -(-len(table.rstrip(b"\0")) // shape.size) * shape.size] or table[: shape.size]
    whole = len(used) - len(used) % shape.size
    base_offset = int(os.path.basename(path)[:20])
    problems = _problems(path, base_offset, used, is_of_times=is_of_times)
    for number, (first, second) in enumerate(shape.iter_unpack(used[:whole])):
        if is_of_times:
            entry: Part = {"timestamp": amounts.moment(first, utc=utc), "offset": base_offset + second}
        else:
            entry = {"offset": base_offset + first, "position": second}
        reason = None if problems is None else problems.get(number)
        proof: Part = {"is_proved": None if problems is None else reason is None}
        yield {"type": "entry", "entry": number} | entry | proof | ({"detail": reason} if reason else {})
    if problems is not None and None in problems:
        yield _damage(problems[None], whole)
    yield {
        "type": "summary",
        "size": len(table),
        "entries": len(used) // shape.size,
        "preallocated_bytes": len(table) - len(used),
        "is_checked": problems is not None,
        "damages": len(problems or ()),
    }


def _problems(path: str, base_offset: int, table: bytes, *, is_of_times: bool) -> dict[int | None, str] | None:
    """Check the entries against the log; return the problems by entry, or None if there is no log."""
    log = f"{path[: path.rindex('.')]}{names.LOG}"
    files = OsFiles()
    if path.endswith((names.DELETED, names.SWAP)) or not os.path.isfile(log):
        return None
    shared = Shared(files, os.path.dirname(os.path.abspath(path)), LogConfig(), writable=False)
    segment = Segment(shared, base_offset, size=files.file_size(log), next_offset=INT64_MAX, seal=None)
    try:
        batches = BatchMap(Salvage(segment, INT64_MAX, state_of_every_batch).state)
        # A broker preallocates an index with zeros.
        if not table.strip(b"\0"):
            return {}
        problems = index_problems(segment, TIMES if is_of_times else OFFSETS, table, batches)
        return {problem.entry: problem.reason for problem in problems}
    finally:
        shared.clear()


# ---------------------------------------------------------------- other files


def _summed(file: _File, dissect: Callable[[_File], Iterator[Part]]) -> Iterator[Part]:
    """Yield the parts of a file, and a summary, which counts the entries if the file is a list."""
    entries = damages = 0
    for part in dissect(file):
        if part["type"] == "damage":
            damages += 1
        else:
            entries += 1
        yield part
    counts = {"entries": entries} if dissect in _LISTS else {}
    yield {"type": "summary", "size": len(file.data), **counts, "damages": damages}


def _aborted(file: _File) -> Iterator[Part]:
    whole = len(file.data) - len(file.data) % _ABORTED.size
    for version, *fields in _ABORTED.iter_unpack(file.data[:whole]):
        if version != 0:
            yield _damage(f"unknown version {version} of an aborted transaction")
            return
        yield {"type": "aborted"} | dict(zip(_ABORTED_FIELDS, fields, strict=True))
    if whole != len(file.data):
        yield _damage("the last entry is incomplete", whole)


def _snapshot(file: _File) -> Iterator[Part]:
    entries = decode_snapshot(file.data)
    if entries is None:
        yield _damage(f"{amounts.counted(len(file.data), 'byte is', 'bytes are')} not a valid producer snapshot")
    for entry in entries or ():
        yield {
            "type": "producer",
            "producer_id": entry.producer_id,
            "epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "timestamp": amounts.moment(entry.timestamp_ms, utc=file.utc),
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_start": entry.transaction_start,
        }


def _seal(file: _File) -> Iterator[Part]:
    seal = decode_seal(file.data)
    if seal is None:
        yield _damage(f"{amounts.counted(len(file.data), 'byte is', 'bytes are')} not a valid seal")
        return
    found = asdict(seal)
    for name in ("max_timestamp", "sealed_at"):
        found[name] = amounts.moment(found.pop(f"{name}_ms"), utc=file.utc)
    for name in ("log_crc", "offset_index_crc", "time_index_crc"):
        found[name] = f"{found[name]:#010x}"
    del found["pages"]
    table = file.data[HEAD_SIZE:]
    if seal.pages is not None:
        found |= {"page_size": seal.pages.page_size, "pages": len(table) // SUM_SIZE}
    yield {"type": "seal", **found}
    if seal.pages is not None and crc32c(table) != seal.pages.table_crc:
        yield _damage("the table of page checksums fails its CRC")


def _key_index(file: _File) -> Iterator[Part]:
    directory, name = os.path.split(os.path.abspath(file.path))
    base_offset = int(name[:20])
    seal = read_seal(OsFiles(), directory, base_offset)
    if seal is None:
        yield {"type": "note", "detail": "not read, because its segment has no seal"}
        return
    found = open_key_index(file.data, seal)
    if isinstance(found, str):
        yield _damage(found)
    else:
        yield {"type": "key index", "keys": int.from_bytes(file.data[40:48], "big"), "base_offset": base_offset}


def _checkpoint(file: _File) -> Iterator[Part]:
    try:
        yield {"type": "checkpoint", **asdict(decode_checkpoint(file.data, path=file.path))}
    except CorruptionError as error:
        yield _damage(error.reason)


def _epochs(file: _File) -> Iterator[Part]:
    entries = decode_epochs(file.data)
    if entries is None:
        yield _damage("leader epochs are missing or out of order")
    for epoch, start in entries or ():
        yield {"type": "epoch", "epoch": epoch, "start_offset": start}


def _offsets(file: _File) -> Iterator[Part]:
    offsets = decode_offsets(file.data)
    if offsets is None:
        yield _damage("not a list of partition offsets")
    for (topic, partition), offset in sorted((offsets or {}).items()):
        yield {"type": "offset", "topic": topic, "partition": partition, "offset": offset}


def _lines(file: _File) -> Iterator[Part]:
    for line in file.data.decode("utf-8", "backslashreplace").splitlines():
        yield {"type": "line", "text": line}


_KINDS: Final = {
    names.TRANSACTION_INDEX: _aborted,
    names.SNAPSHOT: _snapshot,
    names.SEAL: _seal,
    names.KEY_INDEX: _key_index,
    names.CHECKPOINT: _checkpoint,
    names.LEADER_EPOCHS: _epochs,
    names.RECOVERY_POINTS: _offsets,
    names.LOG_START_OFFSETS: _offsets,
    names.HIGH_WATERMARKS: _offsets,
    names.PARTITION_METADATA: _lines,
    names.META_PROPERTIES: _lines,
}
_LISTS: Final = (_aborted, _snapshot, _epochs, _offsets)
