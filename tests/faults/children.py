"""Child processes of the fault suites: forked here, or started as `python children.py …` under strace.

A child reports in lines on a pipe: the log end offset after each acknowledged append, or the name of an error. The
parent, strace, or the child's own `Files` may kill it at any moment.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import seeklog
from crash.recorder import read_everything
from measuring import unmeasured
from seeklog import Log, LogConfig, Record
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import DiskFull, LogFailed, NotAccessible
from seeklog.files import OsFiles

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from seeklog.files import Files

Way = Literal["append", "writer", "producer"]
STRACE: Final = shutil.which("strace")
MANY: Final = 10**5  # appends, more than any child makes before it is killed
LARGE: Final = 300  # records in a log that is read completely after each kill
PARTITIONS: Final = 2  # of the topic that a producer sends to
PATIENCE_SECONDS: Final = 30.0  # a child that reports nothing for this long is stuck


class Child:
    """A forked process that runs `action(report)` and exits."""

    def __init__(self, action: Callable[[Callable[[str], None]], object]) -> None:
        self._lines = b""
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        # No fixture or exit handler of the parent may run here.
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
        """Return the next line that the child reported, or an empty one at the end."""
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self._reader], [], [], PATIENCE_SECONDS)
            assert ready, f"child {self.pid} has reported nothing for {PATIENCE_SECONDS} seconds"
            chunk = os.read(self._reader, 1 << 16)
            if not chunk:
                return ""  # a line torn by a kill was not reported
            self._lines += chunk
        line, _, self._lines = self._lines.partition(b"\n")
        return line.decode()

    def wait_for_line(self) -> None:
        """Wait until there is something to read."""
        if not self._lines:
            select.select([self._reader], [], [], PATIENCE_SECONDS)

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
    """Return the value of an offset: different for each, up to 1,700 bytes."""
    return f"{offset:08d} ".encode() * (1 + offset * 7 % 190)


def kill_config(flush: str) -> LogConfig:
    # Rolls every few dozen records and adds an index entry every few, so that kills hit both.
    return LogConfig.from_mapping(
        {
            "flush": flush,
            "flush_interval_ms": 5,
            "segment_bytes": 20_000,
            "index_interval_bytes": 500,
            "retention_ms": -1,
        }
    )


def append_and_report(
    path: Path | str, flush: str, report: Callable[[str], None], *, count: int, files: Files | None = None
) -> None:
    """Append until the log has `count` records and report its end after each acknowledgement.

    On a full disk report it and retry at most three times; report a failed log and stop.
    """
    retries_left = 3
    try:
        with Log(path, config=kill_config(flush), files=files) as log:
            report(f"open {log.log_end_offset}")
            while log.log_end_offset < count:
                try:
                    offset = log.append(value_at(log.log_end_offset))
                except DiskFull:
                    report("DiskFull")
                    retries_left -= 1
                    if not retries_left:
                        return
                else:
                    report(f"{offset + 1}")
    except (LogFailed, NotAccessible, DiskFull) as error:
        report(type(error).__name__)


def append_by_writer_and_report(path: Path | str, flush: str, report: Callable[[str], None], *, count: int) -> None:
    """Append with the buffering writer; a record is acknowledged when its future is done."""
    with Log(path, config=kill_config(flush)) as log:
        first = log.log_end_offset
        report(f"open {first}")
        with LogWriter(log, batch_bytes=3000, linger_ms=1) as writer:
            for offset in range(first, first + count):
                future = writer.append(value_at(offset))
                future.add_done_callback(lambda done: report(f"{done.result() + 1}"))


def produce_and_report(path: Path | str, flush: str, report: Callable[[str], None], *, count: int) -> None:
    """Send with a named producer that continues after its records, one by one and many at once.

    The nth record of a partition has the nth value. A record is acknowledged when its future is done.
    """
    with seeklog.open(path, config=kill_config(flush)) as store:
        if "t" not in store.topics():
            store.create_topic("t", partitions=PARTITIONS)
        with store.producer(name="loader", resume=True, batch_bytes=3000, linger_ms=1) as producer:
            written = [producer.written(("t", number)) for number in range(PARTITIONS)]
            report(f"open {' '.join(map(str, written))}")
            for number in range(count):
                partition = number % PARTITIONS
                if number % 20 == 0:
                    several = [Record(value_at(written[partition] + more)) for more in range(7)]
                    producer.send_many("t", several, partition=partition)
                    written[partition] += len(several)
                else:
                    future = producer.send("t", value_at(written[partition]), partition=partition)
                    future.add_done_callback(lambda done: report(f"{done.partition} {done.result().offset + 1}"))
                    written[partition] += 1


def produced_violation(path: Path, flush: str, lines: list[str]) -> str:
    """Open the store as the next process and return what is wrong: each value must be there once, in order."""
    acknowledged = dict.fromkeys(range(PARTITIONS), 0)
    for line in lines:
        if line.count(" ") == 1 and line.replace(" ", "").isdigit():
            partition, end = map(int, line.split())
            acknowledged[partition] = max(acknowledged[partition], end)
    with seeklog.open(path, config=kill_config(flush)) as store:
        if "t" not in store.topics():
            return ""
        for partition, end in acknowledged.items():
            values = [record.value for record in read_everything(store.log("t", partition))]
            if len(values) < end:
                return f"partition {partition}: {end - len(values)} acknowledged records are lost"
            if values != [value_at(offset) for offset in range(len(values))]:
                return f"partition {partition}: other records than were sent, or some twice"
    return ""


def acknowledged_end(lines: list[str]) -> int:
    """Return the last reported end of the log."""
    return max((int(line.split()[-1]) for line in lines if line.split()[-1].isdigit()), default=0)


def survivors_violation(path: Path, flush: str, *, acknowledged: int, under_way: int = 1) -> str:
    """Open the log as the next writer and return what is wrong, given the number of appends in flight."""
    with Log(path, config=kill_config(flush)) as log:
        values = [record.value for record in read_everything(log)]
        if len(values) != log.log_end_offset:
            return f"{len(values)} records, the log ends at {log.log_end_offset}"
    if len(values) < acknowledged:
        return f"{acknowledged - len(values)} acknowledged records are lost"
    if len(values) > acknowledged + under_way:
        return f"{len(values)} records, {acknowledged} were acknowledged and {under_way} under way"
    return "" if values == [value_at(offset) for offset in range(len(values))] else "other records than were appended"


def kill_at_any_moment(path: Path, flush: str, chance: random.Random, *, way: Way) -> str:
    """Kill a child that appends for ever, and return what is wrong with its log.

    After a number of kills a new log is used, so that reading all of it stays fast.
    """
    append = {"append": append_and_report, "writer": append_by_writer_and_report, "producer": produce_and_report}[way]
    child = Child(lambda report: append(path, flush, report, count=MANY))
    lines = [child.line() for _ in range(chance.randrange(60))]
    # A random delay of up to a few appends: there is no condition to wait for.
    time.sleep(chance.random() * 0.002)
    child.kill()
    lines += child.rest()
    if child.wait() != -signal.SIGKILL:
        return f"it ended by itself: {lines[-1:]}"
    before = acknowledged_end(lines)
    if way == "producer":
        wrong = produced_violation(path, flush, lines)
    else:
        wrong = survivors_violation(path, flush, acknowledged=before, under_way=MANY if way == "writer" else 1)
    if before > (10 * LARGE if way == "producer" else LARGE):
        shutil.rmtree(path)
    return wrong


def can_strace() -> bool:
    """Tell whether strace is here and may inject."""
    if STRACE is None:
        return False
    injected = [STRACE, "-qq", "-o", os.devnull, "-e", "inject=getppid:signal=SIGKILL", sys.executable]
    program = [*injected, "-c", "import os; os.getppid()"]
    return subprocess.run(program, capture_output=True, check=False).returncode != 0


def run_under_strace(injection: str, path: Path, flush: str, *, count: int) -> tuple[int, list[str]]:
    """Run an appender while strace injects a fault; return its exit code and the lines it reported."""
    assert STRACE is not None
    tests = str(Path(__file__).resolve().parents[1])
    appender = [sys.executable, __file__, str(path), flush, str(count)]
    # Without --seccomp-bpf: with it strace 6.1 injects errors, but no signals.
    options = ["-f", "-qq", "-o", os.devnull, "-e", f"trace={injection.partition(':')[0]}"]
    result = subprocess.run(
        [STRACE, *options, "-e", f"inject={injection}", *appender],
        capture_output=True,
        text=True,
        env=unmeasured(os.environ) | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])},
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert "Traceback" not in result.stderr, result.stderr
    # A line torn by a kill was not reported.
    lines = [line.strip() for line in result.stdout.splitlines(keepends=True) if line.endswith("\n")]
    return result.returncode, lines


class KillingFiles(OsFiles):
    """The real disk, which kills the process just before or just after its nth change."""

    def __init__(self, *, kill_at: int, is_before: bool) -> None:
        self._kill_at = kill_at
        self._is_before = is_before
        self._changes = 0


def _kill_around(name: str) -> Callable[..., object]:
    def change(self: KillingFiles, *arguments: object, **keywords: object) -> object:
        self._changes += 1
        is_due = self._changes == self._kill_at
        if is_due and self._is_before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = getattr(OsFiles, name)(self, *arguments, **keywords)
        if is_due:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return change


for _name in ("write", "truncate", "sync", "rename", "remove", "make_directory", "sync_directory", "lock"):
    setattr(KillingFiles, _name, _kill_around(_name))


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    _, PATH_ARGUMENT, FLUSH, COUNT = sys.argv
    append_and_report(PATH_ARGUMENT, FLUSH, lambda line: _write_all(1, f"{line}\n".encode()), count=int(COUNT))
