"""The background thread: whenever it is told to stop, it ends, and not before."""

from __future__ import annotations

import itertools
import threading
import weakref
from types import FrameType
from typing import Any

import pytest

from log.workbench import PATIENCE_S, wait_until
from seeklog import LogConfig
from seeklog.errors import FormatError, LogClosed, LogFailed, SeeklogError
from seeklog.log.flusher import Flusher


class TwoFlushes:
    """A log with work for two rounds of its thread; the second round finds it closed. Once stopped it has none."""

    directory = "log"
    is_over = False

    def __init__(self, config: LogConfig) -> None:
        self.flusher = Flusher(self, config)
        self.flushes = 0
        self.is_stopped = False

    def flush(self) -> None:
        if self.is_stopped:
            return  # nothing is appended any more that would wake the thread again
        self.flushes += 1
        if self.flushes == 2:
            raise LogClosed("closed")
        self.flusher.rolled()

    def stop(self) -> None:
        self.is_stopped = True
        self.flusher.stop()


class StopAtLine:
    """A trace that stops the flusher just before the nth line that its thread runs of `_run`.

    `stop` is called in the thread itself, where it waits for nothing: so no other line runs in between.
    """

    def __init__(self, log: TwoFlushes, number: int) -> None:
        self.log = log
        self.number = number
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> StopAtLine | None:
        if frame.f_code is not Flusher._run.__code__:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                self.log.stop()
        return self


@pytest.mark.parametrize("flush", ["os", "interval"])
def test_a_stop_before_any_line_of_the_thread_ends_it(flush: str) -> None:
    """Goal: no moment at which a stop is forgotten and `close`, which waits for the thread, waits for ever."""
    config = LogConfig.from_mapping({"flush": flush, "flush_interval_ms": 1})
    before = threading.gettrace()  # a coverage tool may have one
    for number in itertools.count(1):
        log = TwoFlushes(config)
        trace = StopAtLine(log, number)
        threading.settrace(trace)
        try:
            log.flusher.rolled()
        finally:
            threading.settrace(before)
        thread = log.flusher._thread
        assert thread is not None
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"stopped before line {number}, the thread goes on"
        if trace.lines < number:
            break
    print(f"flush={flush}: stopped before each of {number - 1} lines")
    assert number > 10


def test_a_stop_while_the_thread_is_being_started_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a `close` beside the first append neither fails, as a join before the start does, nor leaves a thread."""
    log = TwoFlushes(LogConfig(flush="os"))
    start = threading.Thread.start
    threads: list[threading.Thread] = []

    def stop_and_start(thread: threading.Thread) -> None:
        log.stop()
        start(thread)
        threads.append(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", stop_and_start)
        log.flusher.rolled()

    (thread,) = threads
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


class Ended:
    """A log that ends when it is flushed."""

    directory = "log"
    is_over = True

    def __init__(self, error: SeeklogError) -> None:
        self.error = error
        self.flushes = 0
        self.flusher = Flusher(self, LogConfig(flush="interval", flush_interval_ms=1))

    def flush(self) -> None:
        self.flushes += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [(LogClosed("closed"), []), (LogFailed("no disk"), ["log: the background sync failed: no disk"])],
    ids=["closed", "failed"],
)
def test_a_log_that_has_ended_ends_its_thread(
    error: SeeklogError, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a failure is told once; the caller of the next append gets it, and not the thread again and again."""
    log = Ended(error)
    log.flusher.appended()
    thread = log.flusher._thread
    assert thread is not None
    thread.join(PATIENCE_S)

    assert not thread.is_alive()
    assert log.flushes == 1
    assert caplog.messages == told


class Stumbles(Ended):
    """A log whose flush raises what the log survives."""

    is_over = False


def test_a_log_that_goes_on_is_synced_on(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: no append is left unsynced for good because of something that did not stop the log."""
    log = Stumbles(FormatError("a bomb"))
    for number in (1, 2):
        log.flusher.appended()
        wait_until(lambda number=number: len(caplog.messages) == number, "the background sync")  # type: ignore[misc]
    log.flusher.stop()

    assert log.flushes == 2
    assert caplog.messages == ["log: the background sync failed: a bomb"] * 2


def test_a_log_that_was_dropped_ends_its_thread() -> None:
    log = Ended(LogClosed("closed"))
    flusher = log.flusher
    alive = weakref.ref(log)
    del log
    assert alive() is None, "the flusher does not keep its log"
    flusher.appended()
    thread = flusher._thread
    assert thread is not None
    thread.join(PATIENCE_S)

    assert not thread.is_alive()
