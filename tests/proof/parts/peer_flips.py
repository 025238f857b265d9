"""Target 3, with peers: one bit of data just written and synced is flipped, and the store is reopened."""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from power.peers import REFUSED, ROWS, LevelDb, Lmdb, Peer, Sqlite, broken_rows, is_installed, look_apart, value_of
from proof.part import Run, part
from seeklog import Log, LogConfig, names

if TYPE_CHECKING:
    from collections.abc import Iterator

FLIPS: Final = 1000  # of each store
SHORT_FLIPS: Final = 10
PEERS: Final[tuple[Peer, ...]] = (Sqlite(), Lmdb(), LevelDb())
IN_MEMORY: Final = Path("/dev/shm")  # each open syncs: here that costs nothing


@dataclass(frozen=True, slots=True)
class Seeklog:
    name: str = "seeklog (flush=batch)"
    module: str = "seeklog"
    suffix: str = names.LOG

    def write(self, path: str) -> Iterator[int]:
        with self._open(path) as log:
            for number in range(ROWS):
                log.append(value_of(number))
                yield number + 1

    def read(self, path: str) -> dict[int, bytes]:
        # The warnings of a thousand recoveries would drown all other output.
        logging.getLogger("seeklog").setLevel(logging.CRITICAL)
        with self._open(path) as log:
            rows = {record.offset: record.value or b"" for record in log.scan()}
            # Cut records are kept, counted and reported: they are missing, but not silently.
            if log.recovery.cut_bytes and log.recovery.torn_files:
                raise Told(log.recovery.cut_reason)
            return rows

    def _open(self, path: str) -> Log:
        return Log(f"{path}/rows-0", config=LogConfig(flush="batch"))


class Told(Exception):
    """The store was opened, and reports missing records."""


@part(3, "Flip one bit of data that was just written and synced, in seeklog and in other stores", covers=("log",))
def peer_flips(run: Run) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else run.scratch) as scratch:
        ours = flip(run, Seeklog(), Path(scratch))
        run.case(sum(ours.values()))
        if ours["silent"]:
            run.violation(f"{ours['silent']} flips of {sum(ours.values())} are silent")
        run.note(
            f"{ours['refused']} refused or raised, {ours['told']} cut, kept and reported, {ours['same']} without effect"
        )
        for peer in filter(is_installed, PEERS):
            found = flip(run, peer, Path(scratch))
            run.peer(peer.name, f"{found['silent']} of {sum(found.values())} silent, {found['same']} without effect")


def flip(run: Run, store: Peer, scratch: Path) -> Counter[str]:
    """Flip random bits, one at a time, in a copy of the files of a store that is still open."""
    whole, damaged = scratch / f"{store.module}-whole", scratch / f"{store.module}-damaged"
    chance = random.Random(f"{store.module}, seed {run.seed}")
    places = [(path, position) for path in write_rows(store, whole) for position in range(path.stat().st_size)]
    found: Counter[str] = Counter()
    for path, position in chance.sample(places, SHORT_FLIPS if run.is_short else FLIPS):
        shutil.copytree(whole, damaged)
        flip_bit(damaged / path.relative_to(whole), position, chance.randrange(8))
        said = look_apart(lambda: broken_rows(store.read(str(damaged)), ROWS))
        found[kind_of(said)] += 1
        shutil.rmtree(damaged)
    return found


def kind_of(said: str) -> str:
    """Return the kind of outcome that an answer counts as."""
    if said.startswith(f"{REFUSED} {Told.__name__}"):
        return "told"
    if said.startswith(REFUSED):
        return "refused"
    return "silent" if said else "same"


def write_rows(store: Peer, copy: Path) -> list[Path]:
    """Let a store write, copy its directory while it is open, and return the files of the copy with the rows."""
    live = copy.with_suffix(".live")
    live.mkdir()
    rows = store.write(str(live))
    while next(rows) < ROWS:
        pass
    shutil.copytree(live, copy)
    rows.close()
    return [path for path in sorted(copy.rglob("*")) if path.name.endswith(store.suffix)]


def flip_bit(path: Path, position: int, bit: int) -> None:
    with open(path, "r+b") as file:
        byte = os.pread(file.fileno(), 1, position)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), position)
