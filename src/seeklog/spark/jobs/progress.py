"""How far a job is, in one line on stderr: updated in place on a terminal, elsewhere written every few seconds."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TextIO, TypeVar

from seeklog.clock import Clock, SystemClock

logger = logging.getLogger("seeklog")

Item = TypeVar("Item")

# Where lines are kept, one every so often is enough.
KEPT_LINE_EVERY_S = 10.0
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


class Progress:
    """The progress of a job whose tasks are `sizes` large, in bytes, and have `counts` segments each.

    Spark says how many tasks are done, not which: they are counted in the order in which they are started.
    """

    def __init__(
        self,
        what: str,
        *,
        counts: Sequence[int],
        sizes: Sequence[int],
        is_shown: bool,
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._what = what
        self._counts = [0, *accumulate(counts)]
        self._sizes = [0, *accumulate(sizes)]
        self._stream = stream or sys.stderr
        self._clock = clock or SystemClock()
        self._is_shown = is_shown
        self._is_terminal = self._stream.isatty()
        self._began = self._written = self._clock.monotonic()
        self._width = 0

    @classmethod
    def of(
        cls,
        what: str,
        packs: Sequence[Sequence[Item]],
        size_of: Callable[[Item], int],
        *,
        count_of: Callable[[Item], int] = lambda _: 1,
        is_shown: bool,
    ) -> Progress:
        """Return the progress of a job with a task for each pack."""
        counts, sizes = ([sum(map(measure, pack)) for pack in packs] for measure in (count_of, size_of))
        return cls(what, counts=counts, sizes=sizes, is_shown=is_shown)

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return max(self._clock.monotonic() - self._began, 1e-3)

    def update(self, done_tasks: int) -> None:
        """Show how many tasks are done."""
        now = self._clock.monotonic()
        if not self._is_shown or (not self._is_terminal and now - self._written < KEPT_LINE_EVERY_S):
            return
        self._written = now
        done = min(done_tasks, len(self._sizes) - 1)
        self._write(
            f"{self._what}: {self._counts[done]:,} of {self._counts[-1]:,} segments, "
            f"{readable(self._sizes[done])} of {readable(self._sizes[-1])}, "
            f"{self._sizes[done] / self.seconds / 1e6:,.0f} MB/s",
            end="" if self._is_terminal else "\n",
        )

    def finish(self, summary: str, *, path: str | os.PathLike[str] = "") -> None:
        """Show what came out, and log it with the path that the job was called with."""
        logger.info("%s %s: %s", self._what, os.fsdecode(path), summary)
        if self._is_shown:
            self._write(f"{self._what}: {summary}", end="\n")

    def _write(self, line: str, *, end: str) -> None:
        # What a longer line has left on the terminal is overwritten.
        start = "\r" if self._is_terminal else ""
        print(f"{start}{line:<{self._width}}", end=end, file=self._stream, flush=True)
        self._width = len(line) if self._is_terminal and not end else 0


def readable(size: int) -> str:
    """Return an amount of bytes for people."""
    for unit, factor in _UNITS:
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} bytes"


def counted(outcomes: Iterable[str]) -> str:
    """Return how often each outcome occurred, for people."""
    counts = sorted(Counter(outcomes).items())
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts) or "nothing to do"
