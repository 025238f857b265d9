"""Runs the command in its own process, in a pipe or on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import seeklog
from cli.forking import Forking, forking
from cli.workbench import COMMAND, MORNING_MS, TIMEOUT_S, Ran, Run, surroundings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell disables Ctrl-C for background jobs, and their children inherit that; these tests need Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    """A process that forks commands."""
    with forking(surroundings(tmp_path_factory.mktemp("forking"))) as process:
        yield process


# Variables that Python and the package read only at start-up.
AT_START = ("PYTHON", "LANG", "LC_", "SEEKLOG_PURE")


@pytest.fixture
def run(home: Path, tmp_path: Path, forked: Forking) -> Run:
    """Run the command in a pipe, in the test's directory."""

    def run_in_pipe(*arguments: object, stdin: bytes | str = b"", env: dict[str, str] | None = None) -> Ran:
        words = list(map(str, arguments))
        data = stdin.encode() if isinstance(stdin, str) else stdin
        around = surroundings(home, **(env or {}))
        if any(name.startswith(AT_START) for name in env or {}):
            done = subprocess.run(
                [*COMMAND, *words],
                input=data,
                capture_output=True,
                cwd=tmp_path,
                env=around,
                timeout=TIMEOUT_S,
                check=False,
            )
            return Ran(done.returncode, done.stdout, done.stderr.decode())
        code, out, err = forked.run(words, stdin=data, cwd=tmp_path, env=around, timeout=TIMEOUT_S)
        return Ran(code, out, err.decode())

    return run_in_pipe


@pytest.fixture
def run_on_terminal(home: Path, tmp_path: Path) -> Run:
    """Run the command on a terminal, in the test's directory; `typed` is the input, `out` everything on the screen.

    `interrupt_after`: press Ctrl-C when this text is on the screen.
    """

    def run_in_pty(
        *arguments: object, typed: str = "", interrupt_after: str | None = None, env: dict[str, str] | None = None
    ) -> Ran:
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=tmp_path,
            env=surroundings(home, **(env or {})),
            start_new_session=True,
        )
        os.close(slave)
        os.write(master, typed.encode())
        shown = b""
        ends = time.monotonic() + TIMEOUT_S
        try:
            while time.monotonic() < ends:
                if not select.select([master], [], [], 0.1)[0]:
                    if process.poll() is not None:
                        break
                    continue
                try:
                    chunk = os.read(master, 65536)
                except OSError:
                    break  # Linux raises this when the other side is closed
                if not chunk:
                    break
                shown += chunk
                if interrupt_after is not None and interrupt_after.encode() in shown:
                    process.send_signal(signal.SIGINT)
                    interrupt_after = None
            code = process.wait(timeout=max(1.0, ends - time.monotonic()))
        finally:
            process.kill()
            process.wait()
            os.close(master)
        return Ran(code, shown.replace(b"\r\n", b"\n"), "")

    return run_in_pty


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store `data` with `orders` (two partitions, twenty records a minute apart) and an empty `refunds`."""
    path = tmp_path / "data"
    with seeklog.open(path, background=False) as made:
        made.create_topic("orders", partitions=2)
        made.create_topic("refunds", partitions=1)
        for number in range(20):
            with made.writer("orders", number % 2) as log:
                log.append(
                    b'{"id": %d, "paise": %d}' % (number, 100 * number),
                    key=b"customer_%d" % (number % 5),
                    timestamp_ms=MORNING_MS + number * 60_000,
                    headers=[("source", b"web" if number % 3 else b"app")],
                )
    return path
