"""The command as its users run it: a process of its own, in a pipe or before a terminal."""

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
from cli.workbench import COMMAND, MORNING_MS, PATIENCE_S, Ran, Run, surroundings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background without Ctrl-C, and children inherit that: these tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    """A process from which commands are forked."""
    with forking(surroundings(tmp_path_factory.mktemp("forking"))) as process:
        yield process


# What Python and the package look at only when they start.
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
                timeout=PATIENCE_S,
                check=False,
            )
            return Ran(done.returncode, done.stdout, done.stderr.decode())
        code, out, err = forked.run(words, stdin=data, cwd=tmp_path, env=around, timeout=PATIENCE_S)
        return Ran(code, out, err.decode())

    return run_in_pipe


@pytest.fixture
def run_on_terminal(home: Path, tmp_path: Path) -> Run:
    """Run the command before a terminal, in the test's directory; `typed` is what the user types, `out` all that shows.

    With `interrupt_after` Ctrl-C is pressed when that text has been shown.
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
        ends = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < ends:
                if not select.select([master], [], [], 0.1)[0]:
                    if process.poll() is not None:
                        break
                    continue
                try:
                    chunk = os.read(master, 65536)
                except OSError:
                    break  # Linux says so when the other side is closed
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
    """A store `data` with `orders`, two partitions and twenty records a minute apart, and an empty `refunds`."""
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
