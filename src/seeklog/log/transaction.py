"""Transactions: staged batches that are appended to many partitions, all or nothing and only once.

An application, such as a streaming query, numbers its transactions with a version that grows. Its last transaction is
in one file in the root of the store, `seeklog-transaction-<key>`, which is always replaced whole:

    seeklog-transaction 1
    {"app": "spark-query-5d0e…", "version": 12, "state": "committing", "parts": [{"partition": "alerts-0",
      "topic_id": "5JdN…", "base_offset": 1042, "files": [["seeklog-staged-…", 81920, 3735928559, 512, [81920]]]}],
      "kept": true}
    crc32c 5d1c9ad2

(The JSON is one line. The fields of a file are name, size, CRC-32C, record count, and the ends of its pieces.) Writing
this file with the state "committing" is the commit: before it, no batch is in any log; after it, every batch will be.
The file is synced before the first batch is appended. If the process crashes, the next open of a partition for writing
first appends the batches that are missing from its part. Each batch at or after the base offset is compared one by one:
a batch that was damaged and removed by a repair is appended again after the others. A part is finished when its staged
files are gone; the transaction is "done" when all parts are finished. The file with its topics is kept until the next
transaction.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, LostRecords
from seeklog.files import Files, read_if_exists, remove_if_exists, replace_file
from seeklog.log import reading, staging
from seeklog.log.segment import ADVICE
from seeklog.log.staging import StagedFile
from seeklog.record.batch import BatchHeader, split_batches
from seeklog.record.encode import stamp_append_time
from seeklog.record.framed import decode_framed, encode_framed, parse_json, whole_number

if TYPE_CHECKING:
    from seeklog.log.partition import Partition

logger = logging.getLogger("seeklog")

_FIRST_LINE = "seeklog-transaction 1"
_DAMAGED = (
    "Restore the file from a copy. Removing it forgets whether the application's last transaction was committed: its "
    "records may then be missing or duplicated."
)
State: TypeAlias = Literal["committing", "done"]
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """The batches that a transaction appends to one partition."""

    partition: str
    """The name of its directory."""
    topic_id: str
    base_offset: int
    files: tuple[StagedFile, ...]

    @property
    def topic(self) -> str:
        return self.partition.rpartition("-")[0]

    @property
    def record_count(self) -> int:
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The last transaction of an application."""

    app: str
    version: int
    state: State
    parts: tuple[Part, ...] = ()
    is_kept: bool = True
    """Whether the file is kept when the transaction is done. An application that runs once does not need it."""

    @property
    def is_open(self) -> bool:
        return self.state == "committing"


def encode_transaction(transaction: Transaction) -> bytes:
    parts = [
        {
            "partition": part.partition,
            "topic_id": part.topic_id,
            "base_offset": part.base_offset,
            "files": [astuple(file) for file in part.files],
        }
        for part in transaction.parts
    ]
    fields = {
        "app": transaction.app,
        "version": transaction.version,
        "state": transaction.state,
        "parts": parts,
        "kept": transaction.is_kept,
    }
    return encode_framed(_FIRST_LINE, [json.dumps(fields)])


def decode_transaction(data: bytes, *, path: str) -> Transaction:
    lines = decode_framed(data, _FIRST_LINE, subject="the transaction", path=path, advice=_DAMAGED)
    try:
        fields = parse_json("".join(lines))
        app, version, state, is_kept = (fields[name] for name in ("app", "version", "state", "kept"))
        names.app_key(app)
        if type(is_kept) is not bool or state not in ("committing", "done"):
            raise ValueError(f"the state {state!r}, kept {is_kept!r}")
        parts = tuple(map(_part, fields["parts"]))
        return Transaction(app, whole_number(version, minimum=-INT64_MAX), state, parts, is_kept)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"the transaction does not parse: {error}", path=path, advice=_DAMAGED) from error


def _part(fields: Mapping[str, Any]) -> Part:
    """Parse a part. Its names become paths, so names that no writer would use are refused."""
    part = Part(
        partition=fields["partition"],
        topic_id=fields["topic_id"],
        base_offset=whole_number(fields["base_offset"]),
        files=tuple(map(_staged_file, fields["files"])),
    )
    if names.parse_partition_name(part.partition) is None or not isinstance(part.topic_id, str):
        raise ValueError(f"a part for {part.partition!r}, topic id {part.topic_id!r}")
    whole_number(part.base_offset + part.record_count)
    return part


def _staged_file(fields: Sequence[Any]) -> StagedFile:
    name, size, crc, record_count, ends = fields
    if names.parse_staged_name(name) is None:
        raise ValueError(f"{name!r} is not a staged file")
    edges = [0, *(whole_number(end) for end in ends)]
    if edges[-1] != size or any(end <= start for start, end in pairwise(edges)):
        raise ValueError(f"{name} of {size!r} bytes, in pieces that end at {ends!r}")
    crc = whole_number(crc, maximum=2**32 - 1)
    return StagedFile(name, whole_number(size), crc, whole_number(record_count), tuple(ends))


def read_transaction(files: Files, root: str, key: str) -> Transaction | None:
    """Return the last transaction of the application with this key, or None."""
    path = f"{root}/{names.transaction_name(key)}"
    data = read_if_exists(files, path)
    return None if data is None else decode_transaction(data, path=path)


def write_transaction(files: Files, root: str, transaction: Transaction) -> None:
    """Replace the application's transaction; durable on return."""
    replace_file(files, root, names.transaction_name(names.app_key(transaction.app)), encode_transaction(transaction))
    files.sync_directory(root)


def last_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the last part of each topic, without files. Its topic id shows whether the topic was recreated."""
    return tuple({part.topic: replace(part, files=()) for part in parts}.values())


def end_transaction(files: Files, root: str, transaction: Transaction) -> None:
    """Mark a transaction as done and keep its topics, or remove its file if it need not be kept.

    Durable on return.
    """
    if transaction.is_kept:
        write_transaction(files, root, replace(transaction, state="done", parts=last_parts(transaction.parts)))
        return
    remove_if_exists(files, f"{root}/{names.transaction_name(names.app_key(transaction.app))}")
    files.sync_directory(root)


def finish_interrupted(partition: Partition, listing: Sequence[str]) -> None:
    """Append what committed transactions still miss in a partition that was just opened, and remove stale staged files.

    Does nothing if the listing contains no staged file.
    """
    staged = [name for name in listing if name.startswith(names.STAGED)]
    if not staged:
        return
    files, directory = partition.files, partition.directory
    root, name = os.path.split(directory)
    keys = {parsed[0] for parsed in map(names.parse_staged_name, staged) if parsed is not None}
    named: set[str] = set()
    for key in sorted(keys):
        transaction = read_transaction(files, root, key)
        if transaction is None or not transaction.is_open:
            continue
        for part in transaction.parts:
            if part.partition == name:
                # The transaction's writer may have crashed before the file's name was durable. The file must not be
                # lost after its batches are appended.
                files.sync_directory(root)
                named.update(file.name for file in part.files)
                finish_part(partition, part, staged=staged)
    now_ms = partition.clock.now_ms()
    stale = [name for name in staged if name not in named and staging.is_stale(name, now_ms=now_ms)]
    if stale:
        logger.info("%s: removed %d staged files that were never committed", directory, len(stale))
        staging.remove_staged(files, directory, stale)


def finish_part(partition: Partition, part: Part, *, staged: Sequence[str]) -> None:
    """Append the missing batches of an interrupted part. `staged` lists the staged files that exist."""
    remaining = [file for file in part.files if file.name in staged]
    if not remaining:
        return
    end = part.base_offset + part.record_count
    if partition.log_end_offset < part.base_offset:
        raise LostRecords(
            f"the log ends at offset {partition.log_end_offset}, but a transaction continues at {part.base_offset}",
            path=partition.directory,
            advice=ADVICE,
        )
    if len(remaining) == len(part.files):
        # Staged files are removed only after all of them are appended.
        for file in part.files:
            staging.check_staged(partition.files, partition.directory, file)
        append_part(partition, part)
        logger.info("%s: finished a transaction, offsets %d to %d", partition.directory, part.base_offset, end - 1)
    close_part(partition, part)


def append_part(partition: Partition, part: Part) -> None:
    """Append the batches of a part that are not in the log yet, and make them durable."""
    candidates = _candidates(partition, part)
    for file in part.files:
        for piece in staging.read_staged(partition.files, partition.directory, file):
            if candidates:
                piece = b"".join(batch.raw for batch in split_batches(piece) if not _take_match(candidates, batch.raw))
            if piece:
                partition.append_staged(piece)
    partition.flush()


def _candidates(partition: Partition, part: Part) -> dict[int, list[BatchHeader]]:
    """Return the headers of batches in the log that may belong to the part, from its base offset on, by batch size.

    Other writers' batches may be among them, for example those of a broker that took over the directory.
    """
    if partition.log_end_offset == part.base_offset:
        return {}
    candidates: dict[int, list[BatchHeader]] = {len(batch): [] for batch in _staged_batches(partition, part)}
    for header in _headers_in_log(partition, part.base_offset):
        if header.size in candidates:
            candidates[header.size].append(header)
    return candidates


def _take_match(candidates: Mapping[int, list[BatchHeader]], staged: bytes) -> bool:
    """Return whether a staged batch is in the log, and remove the match, so that it counts only once."""
    headers = candidates[len(staged)]
    for index, header in enumerate(headers):
        if _is_same(header, staged):
            del headers[index]
            return True
    return False


def _staged_batches(partition: Partition, part: Part) -> Iterator[bytes]:
    for file in part.files:
        for piece in staging.read_staged(partition.files, partition.directory, file):
            yield from (batch.raw for batch in split_batches(piece))


def _headers_in_log(partition: Partition, offset: int) -> Iterator[BatchHeader]:
    offset = max(offset, partition.log_start_offset)
    while offset < partition.log_end_offset:
        end = partition.log_end_offset
        batches = list(reading.read_batches(partition.view, offset, end, max_bytes=_READ_BYTES))
        if not batches:
            return  # the end was lost: a repair has left only an empty segment after it
        yield from (batch.header for batch in batches)
        offset = batches[-1].next_offset


def _is_same(header: BatchHeader, staged: bytes) -> bool:
    """Return whether a batch in the log, of the same size, is the staged one. Offset and epoch have no CRC."""
    if header.is_log_append_time:
        # The log has stamped its own time, which the CRC covers.
        staged = stamp_append_time(staged, header.max_timestamp_ms)
    return header.crc == int.from_bytes(staged[17:21], "big")


def close_part(partition: Partition, part: Part) -> None:
    staging.remove_staged(partition.files, partition.directory, [file.name for file in part.files])
