"""Measurement: contenders take turns, and the best turn of each counts.

A shared or throttled machine slows the contender that runs at that moment. Turns spread this over all contenders, and
the best turn is the least disturbed. If possible there are many turns of a few milliseconds, which fit between two
interruptions of a busy machine.
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
"""One turn: includes its setup, returns units of work per second."""


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
    """Run every trial once per round, for `repetitions` rounds; return the highest rate of each."""
    best = dict.fromkeys(trials, 0.0)
    # The collector must not scan earlier objects while a clock runs.
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
    """The scale of a run, and the directory for its files."""

    root: Path
    scale: Scale
    large: bool = False

    @contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """Yield a path, not created yet, for a contender's files; remove them afterwards."""
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def log_size(directory: Path) -> int:
    """Return the size of a log's segments without indexes."""
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
    """Sync every file, so that its dirty pages are not written while another contender's clock runs."""
    for handle in _open_each(directory):
        os.fsync(handle)


def drop_page_cache(directory: Path) -> None:
    """Drop every file from the page cache. No page may be mapped: it would stay."""
    for handle in _open_each(directory):
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
