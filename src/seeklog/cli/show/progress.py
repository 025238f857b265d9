"""The progress of a command: a bar, and the message after Ctrl-C."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from seeklog.cli.show import amounts

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress as Bar

Item = TypeVar("Item")

SILENT_S = 0.5
REDRAW_EVERY_S = 0.1


class Progress:
    """Counts what is done inside its `with`. A bar appears after half a second; rich is imported only then.

    After Ctrl-C, `report` is called with what was done so far and, from `stopped`, what remains or how to continue.
    """

    def __init__(
        self,
        doing: str,
        *,
        total: int | None,
        unit: str,
        is_shown: bool,
        stopped: str | Callable[[], str] | None,
        report: Callable[[str], object],
    ) -> None:
        self.done = 0
        self._stopped, self._report = stopped, report
        self._began = time.monotonic()
        self._doing, self._total, self._unit = doing, total, unit
        self._is_shown = is_shown
        self._next_draw = math.inf
        self._bar: Bar | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def advance(self, amount: int = 1) -> None:
        """Add to the amount that is done."""
        self.done += amount
        if self._is_shown and (now := time.monotonic()) >= self._next_draw:
            self._next_draw = now + REDRAW_EVERY_S
            if self._bar is None:
                self._bar = _make_bar(self._unit)
                self._bar.add_task(self._doing, total=self._total)
                self._bar.start()
            self._bar.update(self._bar.task_ids[0], completed=self.done, total=self._total)

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, and count each as done after it was processed."""
        for item in items:
            yield item
            self.advance()

    def reach(self, done: int, total: int) -> None:
        """Set the amount that is done, and the total."""
        self._total = total
        self.advance(done - self.done)

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        self._next_draw = self._began + SILENT_S
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if isinstance(error, KeyboardInterrupt) and self._stopped is not None:
            rest = self._stopped if isinstance(self._stopped, str) else self._stopped()
            self._report(f"stopped {self._doing}{self._so_far()}; {rest}")

    def _so_far(self) -> str:
        if not self._total:
            return ""
        if self._unit == "bytes":
            return f" after {amounts.size(self.done)} of {amounts.size(self._total)}"
        return f" after {amounts.count(self.done)} of {amounts.counted(self._total, self._unit.removesuffix('s'))}"


def _make_bar(unit: str) -> Bar:
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            # The speed is unknown before the second step.
            return Text(unit if task.speed is None else f"{unit}, {task.speed:,.0f}/s")

    is_bytes = unit == "bytes"
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn() if is_bytes else progress.MofNCompleteColumn(),
        progress.TransferSpeedColumn() if is_bytes else Rate(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
