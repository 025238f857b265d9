"""A bar for what takes long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

SILENT_S = 0.5
# How often the clock is looked at: every so many units done.
LOOK_EVERY_S = 0.1


class Progress:
    """Counts what is done. What is shorter than half a second shows nothing, and loads nothing to show it."""

    def __init__(self, doing: str, *, total: int | None, unit: str, is_shown: bool) -> None:
        self.done = 0
        self.began = time.monotonic()
        self._doing, self._total, self._unit = doing, total, unit
        self._is_shown = is_shown
        self._next_look = self.began + SILENT_S
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def advance(self, amount: int = 1) -> None:
        """Note that so much more is done."""
        self.done += amount
        if self._is_shown and (now := time.monotonic()) >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            self._show()

    def reach(self, done: int, total: int) -> None:
        """Note that so much is done of so much, which may only be known by now."""
        self._total = total
        self.advance(done - self.done)

    def _show(self) -> None:
        if self._bar is None:
            self._bar = self._make_bar()
            self._task = self._bar.add_task(self._doing, total=self._total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=self.done, total=self._total)

    def _make_bar(self) -> Bar:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            ProgressColumn,
            Task,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bar
        from rich.text import Text

        unit = self._unit

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                # There is no speed before two steps were made.
                return Text(unit if task.speed is None else f"{unit}, {task.speed:,.0f}/s")

        amounts: tuple[ProgressColumn, ...] = (
            (DownloadColumn(), TransferSpeedColumn()) if self._unit == "bytes" else (MofNCompleteColumn(), Rate())
        )
        columns = (TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn())
        return Bar(*columns, console=Console(stderr=True), transient=True)

    def close(self) -> None:
        """Take the bar away; what was done is told by a line of its own."""
        if self._bar is not None:
            self._bar.stop()
