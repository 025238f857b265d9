"""Runs tests against a changed copy of the source: `python tests/proof/arena.py <copy of src>`.

The process has pytest and the slow imports loaded, but nothing of seeklog. It takes requests on its standard input, one
line of JSON each, and forks for each: the child imports seeklog from the copy as it is then, and runs the named tests
in order until one fails or the processor time is used up.

    {"tests": [["tests/log/test_seal.py::test_…", 0.2], …], "interpreted": true, "seconds": 30}
    {"failed": "tests/log/test_seal.py::test_…", "why": "assert 1 == 2", "run": 12, "skipped": [], "seconds": 3.1}

A test that takes ten times as long as usual, plus some seconds, counts as failed: the change made it hang.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
# Tests are collected in groups whose times add up to this: the first tests notice most changes.
FIRST_SECONDS: Final = 4.0
HANG_FACTOR: Final = 10
HANG_SECONDS: Final = 20


class Arena:
    """An arena in a separate process, over a copy of the source."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(source)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def try_tests(self, tests: Sequence[tuple[str, float]], *, interpreted: bool, seconds: float) -> dict[str, Any]:
        """Run tests, each with its usual time. Return the first that failed, or "" """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"tests": list(tests), "interpreted": interpreted, "seconds": seconds}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    @contextlib.contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """Replace the text of one file of the copy for a while."""
        file = self.source / path
        before = file.read_text()
        file.write_text(text)
        try:
            yield
        finally:
            file.write_text(before)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# ---------------------------------------------------------------- in the process


class Order:
    """A pytest plugin: runs the named tests in order and records the first that fails."""

    def __init__(self, tests: Sequence[tuple[str, float]], deadline: float, report: Any) -> None:
        self._places = {test: number for number, (test, _) in enumerate(tests)}
        self._seconds = [seconds for _, seconds in tests]
        self._deadline = deadline
        self._report = report
        self.has_failed = False

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        placed = [(self._place(item.nodeid), number, item) for number, item in enumerate(items)]
        items[:] = [item for place, _, item in sorted(placed, key=lambda one: one[:2]) if place >= 0]

    def _place(self, nodeid: str) -> int:
        """Return the place of a test in the order. It may be named with its case, without it, or by its file."""
        function, file = nodeid.partition("[")[0], nodeid.partition("::")[0]
        return next((self._places[name] for name in (nodeid, function, file) if name in self._places), -1)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._report(running=nodeid)
        signal.alarm(int(HANG_SECONDS + HANG_FACTOR * self._seconds[self._place(nodeid)]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            self._report(skipped=str(report.longrepr[-1]) if isinstance(report.longrepr, tuple) else "")
        if report.failed and not self.has_failed:
            self.has_failed = True
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message if crash is not None else str(report.longrepr)
            self._report(failed=report.nodeid, why=why[:200])

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.has_failed:
            self.has_failed = True
            self._report(failed=report.nodeid, why=f"import failed: {str(report.longrepr)[-200:]}")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.alarm(0)
        if time.process_time() > self._deadline:
            self._report(ended="")
            os._exit(0)


def main() -> None:
    source = sys.argv[1]
    _load_what_is_slow()
    # A child must not leave or find byte code of a file that has changed since.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line), source)), flush=True)


def _load_what_is_slow() -> None:
    import cramjam  # noqa: F401
    import cython  # noqa: F401
    import fastcrc  # noqa: F401
    import hypothesis.stateful  # noqa: F401
    import pyarrow  # noqa: F401
    import pytest  # noqa: F401


def _answer(question: dict[str, Any], source: str) -> dict[str, Any]:
    started = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(reading)
        _fight(question, source, writing)
        os._exit(0)
    os.close(writing)
    answer: dict[str, Any] = {"failed": "", "why": "", "run": 0, "skipped": []}
    running = ""
    has_ended = False
    for line in _lines_of(child, reading, until=started + 10 * question["seconds"] + 60):
        told = json.loads(line)
        has_ended = has_ended or "ended" in told
        if "running" in told:
            running = told["running"]
            answer["run"] += 1
        elif "skipped" in told:
            answer["skipped"].append(told["skipped"])
        elif "failed" in told and not answer["failed"]:
            answer |= told
    os.close(reading)
    # With all processes that it has started.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    if not answer["failed"] and not has_ended:
        answer |= {"failed": running or "collecting", "why": "hangs, or is killed"}
    return {**answer, "seconds": round(time.monotonic() - started, 1)}


def _lines_of(child: int, reading: int, *, until: float) -> Iterator[str]:
    """Yield the output of a child until it ends: its own children may hold the pipe for longer."""
    rest, is_over = "", False
    while not is_over and time.monotonic() < until:
        is_over = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        while select.select([reading], [], [], 0 if is_over else 0.5)[0]:
            data = os.read(reading, 65536).decode()
            if not data:
                return
            *whole, rest = (rest + data).split("\n")
            yield from whole
            if '"ended"' in data:
                return


def _fight(question: dict[str, Any], source: str, writing: int) -> None:
    import pytest

    # The output of threads and child processes is discarded too.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    # Child processes inherit this, not the pipe.
    os.environ["SEEKLOG_PURE"] = "1" if question["interpreted"] else ""
    os.environ["PYTHONPATH"] = os.pathsep.join([source, str(ROOT / "tests")])
    sys.path[:0] = [source, str(ROOT / "tests")]

    def report(**told: str) -> None:
        os.write(writing, (json.dumps(told) + "\n").encode())

    deadline = time.process_time() + question["seconds"]
    for tests in _rounds([(test, seconds) for test, seconds in question["tests"]]):
        order = Order(tests, deadline, report)
        files = list(dict.fromkeys(test.partition("::")[0] for test, _ in tests))
        # A separate directory: pytest removes old entries of its common one at each use.
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={source}-tests"]
        code = pytest.main([*options, *files], plugins=[order])
        if order.has_failed or time.process_time() > deadline:
            break
        if code not in (0, 5):
            report(failed="pytest", why=f"ended with {int(code)}")
            break
    report(ended="")
    os._exit(0)


def _rounds(tests: Sequence[tuple[str, float]]) -> Iterator[list[tuple[str, float]]]:
    total, first = 0.0, 0
    while first < len(tests) and (not first or total < FIRST_SECONDS):
        total += tests[first][1]
        first += 1
    yield from filter(None, (list(tests[:first]), list(tests[first:])))


if __name__ == "__main__":
    main()
