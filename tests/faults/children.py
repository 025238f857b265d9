"""Child processes of the fault suites: forked here, or started as `python children.py …` under strace.

A child reports by lines on a pipe; the parent may kill it at any moment.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Final

from seeklog import Log, LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE_SECONDS: Final = 30.0  # a child that says nothing for so long is stuck


class Child:
    """A forked process that runs `action(report)` and exits."""

    def __init__(self, action: Callable[[Callable[[str], None]], object]) -> None:
        self._lines = b""
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        # Nothing of the parent may run here: no fixture, no exit handler.
        status = 1
        try:
            os.close(self._reader)
            action(lambda line: _write_all(writer, f"{line}\n".encode()))
            status = 0
        except BaseException:
            _write_all(writer, ("error " + traceback.format_exc().replace("\n", " | ") + "\n").encode())
        finally:
            os._exit(status)

    def line(self) -> str:
        """Return the next line that the child reported; an empty one at the end."""
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self._reader], [], [], PATIENCE_SECONDS)
            assert ready, f"child {self.pid} has said nothing for {PATIENCE_SECONDS} seconds"
            chunk = os.read(self._reader, 1 << 16)
            if not chunk:
                # What is left was torn by a kill in the middle of a line: it was not reported.
                return ""
            self._lines += chunk
        line, _, self._lines = self._lines.partition(b"\n")
        return line.decode()

    def rest(self) -> list[str]:
        """Return every line up to the child's end."""
        return list(iter(self.line, ""))

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return the exit code, negative for a signal."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._reader)
        return os.waitstatus_to_exitcode(status)


def value_at(offset: int) -> bytes:
    """Return the value that belongs at an offset: different for each, up to 1,700 bytes."""
    return f"{offset:08d} ".encode() * (1 + offset * 7 % 190)


def kill_config(flush: str) -> LogConfig:
    # Rolls every few dozen records and indexes every few, so that kills meet both.
    return LogConfig.from_mapping(
        {
            "flush": flush,
            "flush_interval_ms": 5,
            "segment_bytes": 20_000,
            "index_interval_bytes": 500,
            "retention_ms": -1,
        }
    )


def append_and_report(path: Path | str, flush: str, report: Callable[[str], None], *, count: int) -> None:
    """Append `count` records and report the end of the log after each acknowledgement."""
    with Log(path, config=kill_config(flush)) as log:
        report(f"open {log.log_end_offset}")
        for _ in range(count):
            offset = log.append(value_at(log.log_end_offset))
            report(f"{offset + 1}")


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once a condition of another process holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)  # another process: there is nothing here to wait on


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    _, PATH_ARGUMENT, FLUSH, COUNT = sys.argv
    append_and_report(
        PATH_ARGUMENT, FLUSH, lambda line: _write_all(1, f"{line}\n".encode()), count=int(COUNT)
    )
