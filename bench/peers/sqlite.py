"""SQLite as a log: WAL, one table with the offset as its key.

Page cache, page size, and checkpoints have their defaults. `synchronous` is OFF to compare with `flush="os"`, and FULL
if a commit must survive a power loss.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Row = tuple[int, int, bytes, bytes]
"""offset, timestamp_ms, key, value"""

INSERT = "INSERT INTO log VALUES (?, ?, ?, ?)"
SELECT_ONE = "SELECT offset, timestamp_ms, key, value FROM log WHERE offset = ?"
# The unary plus prevents the use of the key, so that SQLite reads all rows before the result.
SELECT_ONE_WITHOUT_INDEX = "SELECT offset, timestamp_ms, key, value FROM log WHERE +offset = ? LIMIT 1"
SELECT_ALL = "SELECT offset, timestamp_ms, key, value FROM log ORDER BY offset"


class SqliteLog:
    """One table, one connection, explicit transactions."""

    def __init__(self, directory: Path, *, synchronous: Literal["OFF", "NORMAL", "FULL"] = "OFF") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS log"
            " (offset INTEGER PRIMARY KEY, timestamp_ms INTEGER NOT NULL, key BLOB, value BLOB)"
        )

    def append_many(self, rows: Iterable[Row]) -> None:
        """Insert rows in one transaction."""
        self._connection.execute("BEGIN")
        self._connection.executemany(INSERT, rows)
        self._connection.execute("COMMIT")

    def append(self, row: Row) -> None:
        """Insert one row in one transaction."""
        self._connection.execute(INSERT, row)

    def read(self, offset: int) -> Row:
        row: Row = self._connection.execute(SELECT_ONE, (offset,)).fetchone()
        return row

    def read_without_index(self, offset: int) -> Row:
        row: Row = self._connection.execute(SELECT_ONE_WITHOUT_INDEX, (offset,)).fetchone()
        return row

    def scan(self) -> Iterator[Row]:
        return self._connection.execute(SELECT_ALL)

    def checkpoint(self) -> None:
        """Move the WAL into the database file, so that reads use one file."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._connection.close()
