"""Other stores on the same disks: rows acknowledged as durable, and those found after a power loss."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from power.works import sync_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS: Final = 60
REFUSED: Final = "fails to open:"


class Peer(Protocol):
    """A store that makes each row durable before it acknowledges it."""

    @property
    def name(self) -> str: ...

    @property
    def module(self) -> str:
        """The required package."""
        ...

    @property
    def suffix(self) -> str:
        """The suffixes of files that have new rows."""
        ...

    def write(self, path: str) -> Iterator[int]:
        """Write rows, and yield the number of acknowledged rows after each."""
        ...

    def read(self, path: str) -> dict[int, bytes]:
        """Return the rows found."""
        ...


@dataclass(frozen=True, slots=True)
class Sqlite:
    checkpoint_pages: int = 1000
    """So many pages, and they go from the WAL into the database; 1000 unless it is asked for something else."""
    name: str = "SQLite (WAL, synchronous=FULL)"
    module: str = "sqlite3"
    suffix: str = "-wal"

    def write(self, path: str) -> Iterator[int]:
        connection = self._open(path)
        connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, value BLOB)")
        connection.execute(f"PRAGMA wal_autocheckpoint={self.checkpoint_pages}")
        yield 0
        for number in range(ROWS):
            connection.execute("INSERT INTO rows VALUES (?, ?)", (number, value_of(number)))
            yield number + 1
        connection.close()

    def read(self, path: str) -> dict[int, bytes]:
        connection = self._open(path)
        try:
            return dict(connection.execute("SELECT number, value FROM rows"))
        finally:
            connection.close()

    def _open(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(f"{path}/rows.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection


@dataclass(frozen=True, slots=True)
class Lmdb:
    name: str = "LMDB (sync)"
    module: str = "lmdb"
    suffix: str = "data.mdb"

    def write(self, path: str) -> Iterator[int]:
        import lmdb

        with lmdb.open(path, map_size=8 << 20) as database:
            yield 0
            for number in range(ROWS):
                with database.begin(write=True) as transaction:
                    transaction.put(b"%08d" % number, value_of(number))
                yield number + 1

    def read(self, path: str) -> dict[int, bytes]:
        import lmdb

        with lmdb.open(path, map_size=8 << 20) as database, database.begin() as transaction:
            return {int(key): bytes(value) for key, value in transaction.cursor()}


@dataclass(frozen=True, slots=True)
class LevelDb:
    buffer_bytes: int = 4 << 20
    """So many bytes, and they go from the log into a table; LevelDB's own word is 4 MiB."""
    name: str = "LevelDB (sync=True)"
    module: str = "plyvel"
    suffix: str = ".log"

    def write(self, path: str) -> Iterator[int]:
        database = self._open(path)
        yield 0
        for number in range(ROWS):
            database.put(b"%08d" % number, value_of(number), sync=True)
            yield number + 1
        database.close()

    def read(self, path: str) -> dict[int, bytes]:
        database = self._open(path)
        try:
            return {int(key): value for key, value in database}
        finally:
            database.close()

    def _open(self, path: str) -> Any:
        import plyvel

        return plyvel.DB(f"{path}/rows", create_if_missing=True, write_buffer_size=self.buffer_bytes)


def value_of(number: int) -> bytes:
    """Return the value of a row: different for each, up to 1,700 bytes."""
    return b"%08d " % number * (1 + number * 7 % 190)


@dataclass(frozen=True, slots=True)
class PeerWork:
    """Writes rows one by one; the promise is the number of acknowledged rows."""

    peer: Peer

    @property
    def name(self) -> str:
        return self.peer.name

    def run(self, root: str, *, seed: int, mark: Callable[[object], None]) -> None:
        sync_directories(root, ["/"])
        acknowledged = 0
        for count in self.peer.write(root):
            mark(acknowledged)
            acknowledged = count
        mark(acknowledged)

    def judge(self, root: str, promise: int) -> list[str]:
        verdict = look_apart(lambda: broken_rows(self.peer.read(root) if promise else {}, promise))
        return [verdict] if verdict else []


def look_apart(look: Callable[[], str]) -> str:
    """Return the verdict from a separate process, which a mapped damaged file may kill."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        verdict = ""
        try:
            verdict = look()
        except BaseException as error:
            verdict = f"{REFUSED} {type(error).__name__}: {error}"
        finally:
            os.write(writer, verdict.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        verdict = answer.read().decode()
    _, status = os.waitpid(pid, 0)
    return f"{REFUSED} the process ended with status {status}" if status else verdict


def broken_rows(found: dict[int, bytes], acknowledged: int) -> str:
    """Return the lost acknowledged rows and the rows that were never written, or nothing."""
    lost = [number for number in range(acknowledged) if number not in found]
    wrong = [number for number, value in found.items() if value != value_of(number)]
    return "; ".join(
        [*([f"{len(lost)} of {acknowledged} rows lost"] if lost else []), *([f"{len(wrong)} wrong"] if wrong else [])]
    )


# With little room, so that each store sometimes moves rows to their final location.
PEER_WORKS: Final = {
    peer.name: PeerWork(peer) for peer in (Sqlite(checkpoint_pages=20), Lmdb(), LevelDb(buffer_bytes=20_000))
}


def is_installed(peer: Peer) -> bool:
    return importlib.util.find_spec(peer.module) is not None
