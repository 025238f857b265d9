"""Waiting for a lock that another process holds for a moment only: a commit, a change of topics, maintenance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from seeklog.clock import Clock
from seeklog.errors import LogLocked

Taken = TypeVar("Taken")

# What others do with a partition for a moment takes some milliseconds; who holds one longer writes it.
MOMENT_S = 1.0
PAUSE_FIRST_S = 0.001
PAUSE_MOST_S = 0.02


def patiently(clock: Clock, patience_s: float, attempt: Callable[[], Taken]) -> Taken:
    """Call `attempt` until it no longer raises `LogLocked`, or the time is over: then that is raised."""
    give_up = clock.monotonic() + patience_s
    pause = PAUSE_FIRST_S
    while True:
        try:
            return attempt()
        except LogLocked:
            if clock.monotonic() >= give_up:
                raise
        clock.sleep(pause)
        pause = min(2 * pause, PAUSE_MOST_S)
