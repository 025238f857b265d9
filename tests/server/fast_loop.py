"""An event loop whose time passes at once: where others would wait for a timer, it moves its clock there."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Selector(selectors.SelectSelector):
    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.skipped += timeout
        return ready


class FastLoop(asyncio.SelectorEventLoop):
    """Has no waits but for timers: a wait for anything else never ends."""

    def __init__(self) -> None:
        self._fast = _Selector()
        super().__init__(self._fast)

    def time(self) -> float:
        return self._fast.skipped


def run_fast(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a loop of its own."""
    loop = FastLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
