"""How a figure is taken: contenders take turns, and each one's best turn counts.

A machine that is shared or throttled slows whoever runs at that moment. Turns spread that over everyone, and
the best turn is the one least disturbed. Where the work allows, turns are many and take a few milliseconds:
on a busy machine, only those fit between two interruptions.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench.scale import Scale

Trial = Callable[[], float]
"""One turn: does its own set-up, returns units of work per second."""


@dataclass
class Stopwatch:
    """Seconds spent inside `with` blocks."""

    seconds: float = 0.0
    _started: float = field(default=0.0, repr=False)

    def __enter__(self) -> Stopwatch:
        self._started = perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds += perf_counter() - self._started


def best_of(repetitions: int, trials: Mapping[str, Trial]) -> dict[str, float]:
    """Run every trial once a round, `repetitions` rounds; return each one's highest rate."""
    best = dict.fromkeys(trials, 0.0)
    # What was made before is not looked through on anyone's clock.
    gc.collect()
    gc.freeze()
    try:
        for _ in range(repetitions):
            for name, trial in trials.items():
                gc.collect()
                best[name] = max(best[name], trial())
    finally:
        gc.unfreeze()
    return best


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What one run is given: how much to do, and the directory that it fills and empties."""

    root: Path
    scale: Scale
    large: bool = False

    @contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """Give a path for one contender's files, not made yet; remove what is there afterwards."""
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def log_size(directory: Path) -> int:
    """Return the bytes of a log's segments, without indexes."""
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def _open_each(directory: Path) -> Iterator[int]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                yield handle
            finally:
                os.close(handle)


def warm_page_cache(directory: Path) -> None:
    """Read every file once."""
    for handle in _open_each(directory):
        while os.read(handle, 1 << 20):
            pass


def settle(directory: Path) -> None:
    """Write every file to the disk, so that no one's dirty pages are written on another's clock."""
    for handle in _open_each(directory):
        os.fsync(handle)


def drop_page_cache(directory: Path) -> None:
    """Take every file out of the page cache. Pages that are dirty or mapped would stay: none may be."""
    for handle in _open_each(directory):
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
