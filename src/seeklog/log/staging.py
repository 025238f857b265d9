"""Staged files: finished batches that wait in a partition's directory until their transaction is committed.

A staged file is a run of whole v2 batches, each with base offset 0. Each file has a unique name, so staging needs no
lock. A staged file becomes part of the log only when a transaction (`seeklog.log.transaction`) names it. If none does,
it is removed after a day.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from seeklog import names
from seeklog.errors import CorruptBatch, counted
from seeklog.files import Files, Handle, remove_if_exists, translated
from seeklog.record.crc import crc32c

# Long enough for the slowest job between its first task and its commit.
STALE_MS = 24 * 3600 * 1000
# Batches are gathered into pieces of this size. The log later appends one piece with one write.
PIECE_BYTES = 1 << 20
ADVICE = (
    "The transaction that names it cannot be finished, so the partition is not opened for writing. Restore the file "
    "from a copy, or remove it to give up the records that the transaction staged for this partition."
)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished staged file."""

    name: str
    size: int
    crc: int
    """CRC-32C of the whole file."""
    record_count: int
    """The number of offsets that its batches take."""
    ends: tuple[int, ...]
    """The end positions of its pieces: runs of whole batches, each appended with one write."""


def _staging(path: str) -> translated:
    return translated(f"{path} cannot be staged", when_full="stage again when there is room")


class Stager:
    """Writes one staged file. Only one thread may use it."""

    def __init__(
        self, files: Files, directory: str, *, key: str, now_ms: int, max_piece_bytes: int = PIECE_BYTES
    ) -> None:
        self._files = files
        self._name = names.staged_name(key, now_ms=now_ms, unique=uuid.uuid4().hex)
        self._path = f"{directory}/{self._name}"
        with _staging(self._path):
            self._handle: Handle | None = Handle(files, self._path, write=True, create=True)
        self._piece_bytes = min(PIECE_BYTES, max_piece_bytes)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._ends: list[int] = []
        self._size = 0
        self._crc = 0
        self._record_count = 0

    def add(self, batch: bytes, *, record_count: int) -> None:
        if self._pending_bytes + len(batch) > self._piece_bytes:
            self._write_out()
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        self._record_count += record_count

    def _write_out(self) -> None:
        if not self._pending:
            return
        data = b"".join(self._pending)
        assert self._handle is not None, "nothing is added to a file that was finished or discarded"
        with _staging(self._path):
            self._files.write(self._handle.number, data, self._size)
        self._crc = crc32c(data, self._crc)
        self._size += len(data)
        self._ends.append(self._size)
        self._pending, self._pending_bytes = [], 0

    def finish(self) -> StagedFile:
        """Make the file's bytes durable and close it. The name is durable once the directory is synced."""
        self._write_out()
        assert self._handle is not None, "a file is finished once"
        with _staging(self._path):
            self._files.sync(self._handle.number)
        self._handle = None
        return StagedFile(self._name, self._size, self._crc, self._record_count, tuple(self._ends))

    def discard(self) -> None:
        self._handle = None
        with _staging(self._path), contextlib.suppress(FileNotFoundError):
            self._files.remove(self._path)


def read_staged(files: Files, directory: str, staged: StagedFile) -> Iterator[bytes]:
    path = f"{directory}/{staged.name}"
    try:
        handle = Handle(files, path)
    except FileNotFoundError:
        raise CorruptBatch("the staged file is gone", path=path, advice=ADVICE) from None
    size = files.size(handle.number)
    if size != staged.size:
        raise CorruptBatch(
            f"the staged file has {counted(size, 'byte')}, {staged.size:,} were staged", path=path, advice=ADVICE
        )
    start = 0
    for end in staged.ends:
        yield files.read(handle.number, end - start, start)
        start = end


def check_staged(files: Files, directory: str, staged: StagedFile) -> None:
    """Check a staged file against its CRC. The CRCs of its batches do not cover every byte."""
    crc = 0
    for piece in read_staged(files, directory, staged):
        crc = crc32c(piece, crc)
    if crc != staged.crc:
        raise CorruptBatch(
            f"stored CRC {staged.crc:#010x}, computed {crc:#010x}", path=f"{directory}/{staged.name}", advice=ADVICE
        )


def is_stale(name: str, *, now_ms: int) -> bool:
    """Return whether a name belongs to a staged file so old that it will never be committed."""
    parsed = names.parse_staged_name(name)
    return parsed is not None and now_ms - parsed[1] > STALE_MS


def remove_staged(files: Files, directory: str, staged: list[str]) -> None:
    """Remove staged files, durably. Files that are already gone are skipped."""
    for name in staged:
        remove_if_exists(files, f"{directory}/{name}")
    if staged:
        files.sync_directory(directory)
