"""Workloads in child processes on real files, killed around any change, at any moment, or inside a system call.

A child reports its promises on a pipe, in one line before each of its changes or before it kills itself. The parent
judges the files by the last complete line.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from faults.children import STRACE, Child
from faults.real_disk import RealDisk, Watch, take_disk
from seeklog import names
from seeklog.errors import LogClosed, LogFailed, SeeklogError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from crash.sim import Disk
    from faults.works import Work

SEED: Final = 1
# Every system call with which `OsFiles` changes a file; openat may create one.
UNDONE: Final = ("is not recovered", "an interrupted transaction is not finished")
SYSTEM_CALLS: Final = ("pwrite64", "fdatasync", "fsync", "ftruncate", "renameat", "unlinkat", "mkdir", "openat")


Side: TypeAlias = Literal["before", "after"]


class Dying(Watch):
    """Dies just before and just after chosen changes, without an end of the workload: a twin dies in its place.

    The twin is a fork, with the same files open. The process itself waits until the files that the twin leaves were
    judged, and continues: the workload runs once for all its kills.
    """

    def __init__(self, points: Collection[tuple[int, Side]] = ()) -> None:
        self.points = frozenset(points)
        """The changes, by number from 1."""
        self.changes = 0
        self.report: Callable[[str], None] = lambda line: None
        self.tell: Callable[[], None] = lambda: None
        self.wait: Callable[[], None] = lambda: None
        """Returns after the files were judged."""
        self.is_counting: Callable[[], bool] = lambda: True
        """A work may prepare what it is about: the deaths in that are another's."""
        self._is_waiting = False

    def before(self) -> None:
        assert not self._is_waiting, "a thread has changed the files of a twin that died"
        if self.is_counting():
            self.changes += 1
            self._die("before")

    def after(self) -> None:
        if self.is_counting():
            self._die("after")

    def _die(self, side: Side) -> None:
        if (self.changes, side) not in self.points:
            return
        self.tell()
        self._is_waiting = True
        twin = os.fork()
        if not twin:
            os.kill(os.getpid(), signal.SIGKILL)
        _, status = os.waitpid(twin, 0)
        self.report(f"died {side} {self.changes}, {os.waitstatus_to_exitcode(status)}")
        self.wait()
        self._is_waiting = False


class Telling(Watch):
    """Reports the promises before each change."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None

    def before(self) -> None:
        self.tell()


@dataclass(slots=True)
class Ending:
    """The end of a child."""

    exit_code: int
    message: str = ""
    """`done`, `warned`, the error that ended the work, or what was wrong with it; nothing if it was killed."""
    promise: str = ""
    injected: list[str] = field(default_factory=list)
    """The system calls that failed or were deadly, as strace shows them."""

    @property
    def is_killed(self) -> bool:
        return self.exit_code == -signal.SIGKILL


class Hearing(logging.Filter):
    """Hides the warnings of thousands of recoveries, and records two: a failed recovery and an unfinished transaction.

    A reader of a killed process's log gets this warning and reads the log unchanged. The next open of the store for
    writing finishes the transaction.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_warned = False

    def filter(self, record: logging.LogRecord) -> bool:
        self.has_warned |= any(warning in record.getMessage() for warning in UNDONE)
        return False


def perform(
    work: Work, root: Path, watch: Dying | Telling, report: Callable[[str], None], go: Callable[[], None]
) -> None:
    """Run the workload in this process and report how it ended."""
    hearing = Hearing()
    logging.getLogger("seeklog").addFilter(hearing)
    on = work.begin(partial(RealDisk, root=root, watch=watch), SEED)
    watch.tell = lambda: report(f"promise {work.promise_line(on)}")
    if isinstance(watch, Dying):
        watch.report = report
        watch.is_counting = lambda: getattr(on, "is_observed", True)
    watch.tell()
    go()
    try:
        work.run(on)
        message = "warned" if hearing.has_warned else "done"
    except SeeklogError as error:
        message = f"error {type(error).__name__}: {error}"
        message += after_the_error(on, error)
    except (AssertionError, OSError) as error:
        message = f"wrong {type(error).__name__}: {error}"
    watch.tell()
    report(message.replace("\n", " | "))
    # No cleanup: the files stay as they are at the end of the process.
    os._exit(0)


def after_the_error(on: object, error: SeeklogError) -> str:
    """Try to append to a failed log, which must refuse; return what was wrong."""
    log = getattr(on, "_log", None)
    if log is None or not isinstance(error, LogFailed):
        return ""
    for call in (lambda: log.append(b"after the failure", key=b"key"), log.flush):
        try:
            call()
        except (LogFailed, LogClosed):
            continue
        except SeeklogError as other:
            return f" | wrong: {type(other).__name__} from a log that has failed: {other}"
        return " | wrong: a log that has failed acknowledged a call"
    return ""


def run_child(work: Work, root: Path, watch: Telling, *, until: Callable[[Child], None] = lambda child: None) -> Ending:
    """Run a workload in a child; `until` may act on it."""
    _prepare_to_fork()
    child = Child(lambda report: perform(work, root, watch, report, lambda: None))
    until(child)
    lines = child.rest()
    return _ending_of(lines, child.wait())


def _prepare_to_fork() -> None:
    gc.collect()
    gc.freeze()  # children share existing objects, which their collectors skip; collect garbage before


def _ending_of(lines: list[str], exit_code: int) -> Ending:
    ending = Ending(exit_code)
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "promise":
            ending.promise = rest
        else:
            ending.message = line
    return ending


class Judge:
    """Judges the files of children, each combination of disk and promise once."""

    def __init__(self) -> None:
        self._judged: dict[tuple[str, bytes], list[str]] = {}

    def violations(self, work: Work, ending: Ending, root: Path) -> list[str]:
        """Return what is wrong with the end of a child and with its files, and remove them."""
        violations = self.violations_now(work, ending, root)
        shutil.rmtree(root)
        return violations

    def violations_now(self, work: Work, ending: Ending, root: Path) -> list[str]:
        """Return what is wrong with the end of a child and with its files."""
        disk = without_owners(take_disk(root))
        key = ending.promise, disk.digest()
        if key not in self._judged:
            self._judged[key] = work.judge_told(ending.promise, disk)
        violations = list(self._judged[key])
        if "wrong" in ending.message:
            violations.append(ending.message)
        if ending.exit_code not in (0, -signal.SIGKILL):
            violations.append(f"exit code {ending.exit_code}: {ending.message}")
        return violations


def without_owners(disk: Disk) -> Disk:
    """Return the disk without the owners of locks, which differ in each run."""
    for path in [path for path in disk.files if path.endswith(("lock", names.WAITING))]:
        disk = disk.with_file(path, b"")
    return disk


def kill_around_changes(
    work: Work, root: Path, points: Collection[tuple[int, Side]]
) -> Iterator[tuple[int, Side, Ending]]:
    """Run a workload in a child that dies around these changes; yield each death while the files are as it left them.

    Nobody dies after a change that failed. The files are removed at the end.
    """
    _prepare_to_fork()
    go_reader, go_writer = os.pipe()
    watch = Dying(points)

    def act(report: Callable[[str], None]) -> None:
        os.close(go_writer)
        watch.wait = lambda: _expect_go(go_reader)
        perform(work, root, watch, report, lambda: None)

    child = Child(act)
    os.close(go_reader)
    promise = ""
    left = set(points)
    try:
        while line := child.line():
            kind, _, rest = line.partition(" ")
            if kind == "promise":
                promise = rest
            elif kind == "died":
                side, number, exit_code = re.fullmatch(r"(before|after) (\d+), (-?\d+)", rest).groups()
                yield int(number), side, Ending(int(exit_code), promise=promise)
                left.remove((int(number), side))
                os.write(go_writer, b".")
            else:
                assert line in ("done", "warned"), line
        assert all(side == "after" for _, side in left), f"nobody died at {sorted(left)}"
    finally:
        os.close(go_writer)
        child.wait()
        shutil.rmtree(root)


def _expect_go(reader: int) -> None:
    if not os.read(reader, 1):
        os._exit(0)  # nobody wants to see the rest


def count_changes(work: Work, root: Path) -> int:
    """Return the number of changes of a workload."""
    watch = Dying()

    def count(report: Callable[[str], None]) -> None:
        def tell_count(line: str) -> None:
            report(f"{watch.changes}" if line == "done" else line[:200])

        perform(work, root, watch, tell_count, lambda: None)

    child = Child(count)
    lines = child.rest()
    assert child.wait() == 0, lines[-1:]
    assert lines[-1].isdigit(), lines[-1]
    shutil.rmtree(root)
    return int(lines[-1])


# From outside, by strace.


@dataclass(slots=True)
class Traced:
    """The report of a child under strace, and the output of strace."""

    exit_code: int
    lines: list[str]
    injected: list[str]
    """The calls that were traced, or with an injection those that it hit."""


def trace_child(
    act: Callable[[Callable[[str], None], Callable[[], None]], object],
    trace_path: Path,
    *,
    inject: str = "",
    trace: str = "",
) -> Traced:
    """Run `act(report, go)` in a child that strace attaches to when it calls `go`, after its first report."""
    assert STRACE is not None
    _prepare_to_fork()
    go_reader, go_writer = os.pipe()
    child = Child(lambda report: act(report, lambda: _wait_for(go_reader, go_writer)))
    first = child.line()
    options = ["-f", "-y", "-p", str(child.pid), "-o", str(trace_path)]
    options += ["-e", f"trace={trace or inject.partition(':')[0]}"]
    if inject:
        options += ["-e", f"inject={inject}"]
    with subprocess.Popen([STRACE, *options], stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        attached = tracer.stderr.readline()
        assert "attached" in attached, attached
        os.close(go_reader)
        os.close(go_writer)
        lines = [first, *child.rest()]
        exit_code = child.wait()
        tracer.stderr.read()
    traced = trace_path.read_text().splitlines()
    trace_path.unlink()
    return Traced(exit_code, lines, traced if trace else [line for line in traced if "INJECTED" in line])


def run_traced(work: Work, root: Path, *, inject: str = "", trace: str = "") -> Ending:
    """Run a workload in a child under strace from its first change on, with a fault injected."""
    traced = trace_child(
        lambda report, go: perform(work, root, Telling(), report, go),
        root.with_name(f"{root.name}.strace"),
        inject=inject,
        trace=trace,
    )
    ending = _ending_of(traced.lines, traced.exit_code)
    ending.injected = traced.injected
    return ending


def _wait_for(reader: int, writer: int) -> None:
    """Wait until the parent has closed the other end."""
    os.close(writer)
    os.read(reader, 1)


_CALL: Final = re.compile(r"^(\d+) +(\w+)\(")


def count_system_calls(work: Work, root: Path, calls: tuple[str, ...] = SYSTEM_CALLS) -> dict[str, int]:
    """Return the number of each call in the thread that makes it most often."""
    ending = run_traced(work, root, trace=",".join(calls))
    assert ending.message == "done", ending.message
    shutil.rmtree(root)
    counts = Counter(match.groups() for match in map(_CALL.match, ending.injected) if match is not None)
    return {call: max((n for (_, name), n in counts.items() if name == call), default=0) for call in calls}
