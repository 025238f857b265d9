"""Embedded stores under the same faults: SQLite, LMDB and LevelDB, each with durable writes."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, Final, Protocol

from faults.children import Child
from faults.dying import trace_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VALUE: Final = bytes(range(256)) * 4
COMMITS: Final = 12
FAILS_AT: Final = 5
MORE: Final = 20  # writes after there is room again


class Peer(Protocol):
    """A store of numbered values."""

    def put(self, number: int) -> None: ...

    def numbers(self) -> set[int]: ...

    def close(self) -> None: ...


class Sqlite:
    """In WAL mode with synchronous=FULL."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path / "db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, value BLOB)")

    def put(self, number: int) -> None:
        self._connection.execute("INSERT INTO records VALUES (?, ?)", (number, VALUE))

    def numbers(self) -> set[int]:
        return {number for (number,) in self._connection.execute("SELECT number FROM records")}

    def close(self) -> None:
        self._connection.close()


class Lmdb:
    def __init__(self, path: Path) -> None:
        import lmdb

        self._environment = lmdb.open(str(path / "lmdb"), map_size=1 << 28)

    def put(self, number: int) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(b"%08d" % number, VALUE)

    def numbers(self) -> set[int]:
        with self._environment.begin() as transaction:
            return {int(bytes(key)) for key, _ in transaction.cursor()}

    def close(self) -> None:
        self._environment.close()


class LevelDb:
    """With sync=True."""

    def __init__(self, path: Path) -> None:
        import plyvel

        self._database = plyvel.DB(str(path / "leveldb"), create_if_missing=True)

    def put(self, number: int) -> None:
        self._database.put(b"%08d" % number, VALUE, sync=True)

    def numbers(self) -> set[int]:
        return {int(key) for key, _ in self._database}

    def close(self) -> None:
        self._database.close()


PEERS: Final[dict[str, Callable[[Path], Peer]]] = {
    "SQLite (WAL, synchronous=FULL)": Sqlite,
    "LMDB": Lmdb,
    "LevelDB (sync=True)": LevelDb,
}


def fail_one_sync(name: str, path: Path) -> str:
    """Make one fdatasync of a peer fail, and return the effect on that commit and later ones."""
    path.mkdir()

    def commit(report: Callable[[str], None], go: Callable[[], None]) -> None:
        peer = PEERS[name](path)
        for number in range(3):
            peer.put(number)
        report("prepared")
        go()
        for number in range(3, 3 + COMMITS):
            try:
                peer.put(number)
                report(f"{number} accepted")
            except Exception as error:
                report(f"{number} {type(error).__name__}")
        os._exit(0)  # as after a killed process: accepted values must be found

    # LMDB syncs its pages with fdatasync and its root by a write that is synchronous by itself.
    traced = trace_child(commit, path.with_suffix(".strace"), inject=f"fdatasync:error=EIO:when={FAILS_AT}")
    commits = traced.lines[1:]
    failed = [line for line in commits if not line.endswith("accepted")]
    if not failed or not traced.injected:
        return "the failure reached nobody"
    later = commits[commits.index(failed[0]) + 1 :]
    accepted = [line for line in later if line.endswith("accepted")]
    effect = (
        "later commits are accepted"
        if len(accepted) == len(later)
        else f"{len(accepted)} of {len(later)} later commits are accepted"
    )
    return f"the commit fails, {effect if accepted else 'and so do later commits until the store is reopened'}"


def fill_disk(name: str, disk: Path) -> str:
    """Fill a disk with a peer's records and free room; return the numbers of acknowledged, found, and lost records."""

    def fill(report: Callable[[str], None]) -> None:
        (disk / "filler").write_bytes(bytes(2 << 20))
        peer: Any = PEERS[name](disk)
        number = 0
        try:
            while True:
                peer.put(number)
                number += 1
                report(f"{number}")
        except Exception as error:
            report(f"full {type(error).__name__}")
        (disk / "filler").unlink()
        acknowledged, goes_on = number, True
        for more in range(number + 1, number + 1 + MORE):
            try:
                peer.put(more)
                acknowledged += 1
            except Exception:
                goes_on = False
        report(f"then {acknowledged} {'yes' if goes_on else 'no'}")
        os._exit(0)

    child = Child(fill)
    lines = child.rest()
    code = child.wait()
    if code or not lines[-1].startswith("then"):
        return f"the process died with {code} after {len(lines)} commits"
    _, acknowledged, goes_on = lines[-1].split()
    peer = PEERS[name](disk)
    found = len(peer.numbers())
    peer.close()
    lost = max(0, int(acknowledged) - found)
    return f"{int(acknowledged):,} acknowledged, {found:,} found, {lost} lost; resumes without reopen: {goes_on}"
