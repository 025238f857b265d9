"""Staged files: finished batches that lie in a partition's directory until their transaction is committed.

A staged file is a run of whole v2 batches, each with base offset 0. Those who stage need no lock: every file has a
name of its own. What is staged is no part of the log until a transaction (`storage.transaction`) names it; what no
transaction ever names is removed when it is a day old.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from seeklog import names
from seeklog.errors import CorruptBatch
from seeklog.files import Files
from seeklog.record.kernel import HEADER_SIZE, crc32c
from seeklog.storage.handle import Handle

# Long enough for the slowest job between its first task and its commit.
STALE_MS = 24 * 3600 * 1000
# What is appended with one write, unless a single batch is larger.
CHUNK = 4 << 20
# Batches are gathered to this size before they are written.
WRITE_BYTES = 1 << 20
ADVICE = (
    "The transaction that names it cannot be finished, so the partition is not opened for writing. Restore the file "
    "from a copy, or remove it to give up what the transaction had for this partition."
)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished staged file, and what it must be like when it is appended."""

    name: str
    size: int
    crc: int
    """CRC-32C of the whole file."""
    record_count: int
    """How many offsets its batches take."""


class Stager:
    """Writes one staged file. It belongs to the one thread that uses it."""

    def __init__(self, files: Files, directory: str, *, key: str, now_ms: int) -> None:
        self._files = files
        self._name = names.staged_name(key, now_ms=now_ms, unique=uuid.uuid4().hex)
        self._path = f"{directory}/{self._name}"
        self._handle: Handle | None = Handle(files, self._path, write=True, create=True)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._size = 0
        self._crc = 0
        self._record_count = 0

    def add(self, batch: bytes, *, record_count: int) -> None:
        """Add a whole batch behind the others."""
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        self._record_count += record_count
        if self._pending_bytes >= WRITE_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        data = b"".join(self._pending)
        if self._handle is not None:
            self._files.write(self._handle.number, data, self._size)
        self._crc = crc32c(data, self._crc)
        self._size += len(data)
        self._pending, self._pending_bytes = [], 0

    def finish(self) -> StagedFile:
        """Make the file's bytes durable and let it go. Its name is durable once the directory is synced."""
        self._write_out()
        if self._handle is not None:
            self._files.sync(self._handle.number)
        self._handle = None
        return StagedFile(self._name, self._size, self._crc, self._record_count)

    def discard(self) -> None:
        """Remove the file, as after an error."""
        self._handle = None
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self._path)


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """Where a batch lies in what was read of a staged file, and what tells it from others."""

    position: int
    size: int
    crc: int
    record_count: int


def _list_batches(data: bytes, *, path: str, origin: int) -> Iterator[StagedBatch]:
    """Yield the whole batches in `data`, read at `origin`; the last one may be incomplete and is left out."""
    at = 0
    while len(data) - at >= HEADER_SIZE:
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
        record_count = int.from_bytes(data[at + 23 : at + 27], "big", signed=True) + 1
        if size < HEADER_SIZE or record_count < 1:
            raise CorruptBatch("no batch starts here", path=path, position=origin + at, advice=ADVICE)
        if size > len(data) - at:
            return
        yield StagedBatch(at, size, int.from_bytes(data[at + 17 : at + 21], "big"), record_count)
        at += size


def read_staged(
    files: Files, directory: str, staged: StagedFile, *, chunk: int = CHUNK
) -> Iterator[tuple[bytes, list[StagedBatch]]]:
    """Yield the batches of a staged file in order: about `chunk` bytes at a time, and the places in them."""
    path = f"{directory}/{staged.name}"
    try:
        handle = Handle(files, path)
    except FileNotFoundError:
        raise CorruptBatch("the staged file is gone", path=path, advice=ADVICE) from None
    size = files.size(handle.number)
    if size != staged.size:
        raise CorruptBatch(f"the staged file has {size} bytes, {staged.size} were staged", path=path, advice=ADVICE)
    origin, wanted = 0, chunk
    while origin < staged.size:
        data = files.read(handle.number, min(wanted, staged.size - origin), origin)
        batches = list(_list_batches(data, path=path, origin=origin))
        if not batches:
            if origin + len(data) >= staged.size:
                raise CorruptBatch("the last batch is incomplete", path=path, position=origin, advice=ADVICE)
            wanted = 2 * wanted
            continue
        whole = batches[-1].position + batches[-1].size
        yield data[:whole], batches
        origin, wanted = origin + whole, chunk


def check_staged(files: Files, directory: str, staged: StagedFile) -> None:
    """Hold a staged file against its CRC, which covers also what the CRCs of its batches do not."""
    crc = 0
    for raw, _ in read_staged(files, directory, staged):
        crc = crc32c(raw, crc)
    if crc != staged.crc:
        raise CorruptBatch(
            f"stored CRC {staged.crc:#010x}, computed {crc:#010x}", path=f"{directory}/{staged.name}", advice=ADVICE
        )


def is_stale(name: str, *, now_ms: int) -> bool:
    """Tell whether a name is that of a staged file so old that nobody will commit it."""
    parsed = names.parse_staged_name(name)
    return parsed is not None and now_ms - parsed[1] > STALE_MS


def remove_staged(files: Files, directory: str, staged: list[str]) -> None:
    """Remove staged files, for good; those that are gone already are none."""
    for name in staged:
        with contextlib.suppress(FileNotFoundError):
            files.remove(f"{directory}/{name}")
    if staged:
        files.sync_directory(directory)
