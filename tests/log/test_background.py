"""The background thread: it ends only when it is stopped, and the logs that it syncs may fail, close, or be dropped."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from log.workbench import PATIENCE_S, QuickFiles, wait_until
from seeklog import Log, LogConfig
from seeklog.clock import SystemClock
from seeklog.errors import FormatError, LogClosed, LogFailed, SeeklogError
from seeklog.log.background import Maintenance, Watch

INTERVAL = LogConfig(flush="interval", flush_interval_ms=1)


@pytest.fixture
def maintenance() -> Iterator[Maintenance]:
    maintenance = Maintenance(SystemClock())
    yield maintenance
    maintenance.stop()


class TwoRounds:
    """A log with work for two rounds of its thread. In the second round it is closed; once stopped, it has no work."""

    directory = "log"

    def __init__(self, config: LogConfig) -> None:
        self.maintenance = Maintenance(SystemClock())
        self.watch = self.maintenance.watch(self, config)
        self.rounds = 0
        self.is_stopped = False

    def do_background_work(self) -> None:
        if self.is_stopped:
            return  # no later append would wake the thread again
        self.rounds += 1
        if self.rounds == 2:
            raise LogClosed("closed")
        self.watch.rolled()

    def stop(self) -> None:
        self.is_stopped = True
        self.maintenance.stop()


class StopAtLine:
    """A trace function that stops the thread just before the nth line of its loop.

    Another thread calls stop and gets a moment to run. If the loop holds its lock, the stop takes effect later.
    """

    CODES = (Maintenance._run.__code__, Maintenance._next.__code__)

    def __init__(self, log: TwoRounds, number: int) -> None:
        self.log = log
        self.number = number
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> StopAtLine | None:
        if frame.f_code not in self.CODES:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                stopper = threading.Thread(target=self.log.stop)
                stopper.start()
                stopper.join(0.01)
        return self


@pytest.mark.parametrize("flush", ["os", "interval"])
def test_stop_before_any_line_of_thread_ends_it(flush: str) -> None:
    """Goal: no stop is missed, because then `close`, which waits for the thread, would wait forever."""
    config = LogConfig.from_mapping({"flush": flush, "flush_interval_ms": 1})
    before = threading.gettrace()  # a coverage tool may have set one
    for number in itertools.count(1):
        log = TwoRounds(config)
        trace = StopAtLine(log, number)
        threading.settrace(trace)
        try:
            log.watch.rolled()
            thread = log.maintenance._thread
            assert thread is not None
            wait_until(lambda log=log: log.is_stopped or log.rounds == 2, "the end")  # type: ignore[misc]
        finally:
            threading.settrace(before)
        log.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"stopped before line {number}, the thread still runs"
        if trace.lines < number:
            break
    print(f"flush={flush}: stopped before each of {number - 1} lines")
    assert number > 10


class EndingLog:
    """A log that ends when it is synced."""

    directory = "log"

    def __init__(self, error: SeeklogError) -> None:
        self.error = error
        self.rounds = 0

    def do_background_work(self) -> None:
        self.rounds += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "logged"),
    [(LogClosed("closed"), []), (LogFailed("no disk"), ["log: the background sync failed: no disk"])],
    ids=["closed", "failed"],
)
def test_closed_or_failed_log_is_not_synced_again(
    maintenance: Maintenance, error: SeeklogError, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a failure is reported once, to the next append; the thread does not report it again and again."""
    log = EndingLog(error)
    maintenance.watch(log, INTERVAL).appended()
    wait_until(lambda: log.rounds == 1, "the background sync")
    maintenance.stop()

    assert log.rounds == 1
    assert caplog.messages == logged


def test_sync_error_that_does_not_fail_log_is_retried(
    maintenance: Maintenance, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: an error that does not fail the log leaves no append unsynced."""
    log = EndingLog(FormatError("a bomb"))
    watch = maintenance.watch(log, INTERVAL)
    for number in (1, 2):
        watch.appended()
        wait_until(lambda number=number: len(caplog.messages) == number, "the background sync")  # type: ignore[misc]
    maintenance.stop()

    assert log.rounds == 2
    assert caplog.messages == ["log: the background sync failed: a bomb"] * 2


class BrokenJob:
    """An object whose method has a defect."""

    rounds = 0

    def work(self) -> None:
        self.rounds += 1
        raise RuntimeError("a defect")


def test_defect_in_job_is_logged_and_thread_continues(
    maintenance: Maintenance, caplog: pytest.LogCaptureFixture
) -> None:
    broken = BrokenJob()
    maintenance.every(0.001, broken.work)
    wait_until(lambda: broken.rounds == 2, "the second round")
    maintenance.stop()

    assert set(caplog.messages) == {"maintenance failed"}
    # Not `caplog.text`: PySpark replaces the format of the root logger.
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info is not None]
    assert {repr(error) for error in errors} == {"RuntimeError('a defect')"}


def test_dropped_log_is_not_synced_again(maintenance: Maintenance) -> None:
    log = EndingLog(LogClosed("closed"))
    watch: Watch = maintenance.watch(log, INTERVAL)
    alive = weakref.ref(log)
    del log
    assert alive() is None, "the thread does not keep its log"
    watch.appended()
    wait_until(lambda: not watch._is_waiting, "a round without a log")


def test_thread_of_lone_log_ends_when_log_is_dropped(tmp_path: Path) -> None:
    log = Log(tmp_path, config=INTERVAL, files=QuickFiles())
    log.append(b"x")
    assert log._maintenance is not None
    thread = log._maintenance._thread
    assert thread is not None
    del log
    gc.collect()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()


def test_thread_of_lone_log_ends_when_log_is_closed(tmp_path: Path) -> None:
    with Log(tmp_path, config=INTERVAL, files=QuickFiles()) as log:
        log.append(b"x")
        assert log._maintenance is not None
        thread = log._maintenance._thread
        assert thread is not None
        wait_until(lambda: log.recovery_point == 1, "the background sync")
    assert not thread.is_alive()
