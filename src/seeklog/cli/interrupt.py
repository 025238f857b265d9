"""Ctrl-C that waits for the end of a short step, so that what the step does is also counted."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class HeldInterrupt:
    """Inside its `with`, Ctrl-C waits for the end of the `with`. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self._is_held = self._is_pending = False

    def __enter__(self) -> None:
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def receive(self, *_: object) -> None:
        """Handle the signal."""
        if not self._is_held or self._is_pending:
            raise KeyboardInterrupt
        self._is_pending = True


@contextlib.contextmanager
def held_interrupt() -> Iterator[HeldInterrupt]:
    """Yield the handler of Ctrl-C until the block ends, unless Ctrl-C is ignored or handled otherwise."""
    held = HeldInterrupt()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield held
        return
    signal.signal(signal.SIGINT, held.receive)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
