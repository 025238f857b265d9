"""Staged files: finished batches that lie in a partition's directory until their transaction is committed.

A staged file is a run of whole v2 batches, each with base offset 0. Staging needs no lock: every file has a
name of its own. What is staged is not part of the log until a transaction (`seeklog.log.transaction`) names it; what no
transaction ever names is removed when it is a day old.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from seeklog import names
from seeklog.errors import CorruptBatch
from seeklog.files import Files, Handle, remove_if_exists, translated
from seeklog.record.crc import crc32c

# Long enough for the slowest job between its first task and its commit.
STALE_MS = 24 * 3600 * 1000
# Batches are gathered to this size, and a file is appended to its log in the same pieces.
PIECE_BYTES = 1 << 20
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
    ends: tuple[int, ...]
    """Where its pieces end: runs of whole batches that are appended with one write each."""


def _staging(path: str) -> translated:
    return translated(f"{path} cannot be staged", when_full="stage again when there is room")


class Stager:
    """Writes one staged file. It belongs to the one thread that uses it."""

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
        """Add a whole batch after the others."""
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
        """Make the file's bytes durable and release it. Its name is durable once the directory is synced."""
        self._write_out()
        assert self._handle is not None, "a file is finished once"
        with _staging(self._path):
            self._files.sync(self._handle.number)
        self._handle = None
        return StagedFile(self._name, self._size, self._crc, self._record_count, tuple(self._ends))

    def discard(self) -> None:
        """Remove the file, as after an error."""
        self._handle = None
        with _staging(self._path), contextlib.suppress(FileNotFoundError):
            self._files.remove(self._path)


def read_staged(files: Files, directory: str, staged: StagedFile) -> Iterator[bytes]:
    """Yield a staged file piece by piece."""
    path = f"{directory}/{staged.name}"
    try:
        handle = Handle(files, path)
    except FileNotFoundError:
        raise CorruptBatch("the staged file is gone", path=path, advice=ADVICE) from None
    size = files.size(handle.number)
    if size != staged.size:
        raise CorruptBatch(f"the staged file has {size} bytes, {staged.size} were staged", path=path, advice=ADVICE)
    start = 0
    for end in staged.ends:
        yield files.read(handle.number, end - start, start)
        start = end


def check_staged(files: Files, directory: str, staged: StagedFile) -> None:
    """Hold a staged file against its CRC, which covers also what the CRCs of its batches do not."""
    crc = 0
    for piece in read_staged(files, directory, staged):
        crc = crc32c(piece, crc)
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
        remove_if_exists(files, f"{directory}/{name}")
    if staged:
        files.sync_directory(directory)
