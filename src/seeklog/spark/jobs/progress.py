"""The progress of a job, one line on stderr: updated in place on a terminal, else repeated every few seconds."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TextIO, TypeVar

from seeklog.clock import Clock, SystemClock
from seeklog.errors import counted

logger = logging.getLogger("seeklog")

Item = TypeVar("Item")

# Between two lines of a log file.
LINE_INTERVAL_S = 10.0
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


class Progress:
    """The progress of a job whose tasks have `sizes` bytes and `counts` segments.

    Spark reports how many tasks are done but not which, so they are counted in the order in which they start.
    """

    def __init__(
        self,
        job: str,
        *,
        counts: Sequence[int],
        sizes: Sequence[int],
        is_shown: bool,
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._job = job
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
        job: str,
        packs: Sequence[Sequence[Item]],
        size_of: Callable[[Item], int],
        *,
        count_of: Callable[[Item], int] = lambda _: 1,
        is_shown: bool,
    ) -> Progress:
        """Return the progress of a job with one task per pack."""
        counts, sizes = ([sum(map(measure, pack)) for pack in packs] for measure in (count_of, size_of))
        return cls(job, counts=counts, sizes=sizes, is_shown=is_shown)

    @property
    def seconds(self) -> float:
        """The time since the job began."""
        return max(self._clock.monotonic() - self._began, 1e-3)

    def update(self, done_tasks: int) -> None:
        """Show the progress after this many tasks."""
        now = self._clock.monotonic()
        if not self._is_shown or (not self._is_terminal and now - self._written < LINE_INTERVAL_S):
            return
        self._written = now
        done = min(done_tasks, len(self._sizes) - 1)
        self._write(
            f"{self._job}: {self._counts[done]:,} of {counted(self._counts[-1], 'segment')}, "
            f"{readable(self._sizes[done])} of {readable(self._sizes[-1])}, "
            f"{self._sizes[done] / self.seconds / 1e6:,.0f} MB/s",
            end="" if self._is_terminal else "\n",
        )

    def finish(self, summary: str, *, path: str | os.PathLike[str] = "") -> None:
        """Show the result, and log it with the path of the job."""
        logger.info("%s %s: %s", self._job, os.fsdecode(path), summary)
        if self._is_shown:
            self._write(f"{self._job}: {summary}", end="\n")

    def _write(self, line: str, *, end: str) -> None:
        # Padded to overwrite a longer line.
        start = "\r" if self._is_terminal else ""
        print(f"{start}{line:<{self._width}}", end=end, file=self._stream, flush=True)
        self._width = len(line) if self._is_terminal and not end else 0


def readable(size: int) -> str:
    """Return an amount of bytes in human-readable form, such as 1.5 GB."""
    for unit, factor in _UNITS:
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return counted(size, "byte")


def tally(outcomes: Iterable[str]) -> str:
    """Return how often each outcome occurred, such as "3 rebuilt, 1 unchanged"."""
    counts = sorted(Counter(outcomes).items())
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts) or "nothing to do"
