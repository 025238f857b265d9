"""Runs commands without their start-up time, by forking a process that has imported all of them.

    python tests/cli/forking.py <path of a socket>

A connection passes stdin, stdout and stderr of one command, and a line of JSON with its arguments, directory and
environment. The answer is a line with its pid and a line with its exit code. The process exits when its stdin closes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO


class Forking:
    """The client of the process."""

    def __init__(self, path: str) -> None:
        self._path = path

    def run(
        self, arguments: list[str], *, stdin: bytes, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Run a command; return its exit code as `subprocess` does, its stdout and its stderr."""
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [os.fdopen(pipes[0][1], "wb"), os.fdopen(pipes[1][0], "rb"), os.fdopen(pipes[2][0], "rb")]
        with socket.socket(socket.AF_UNIX) as connection, ThreadPoolExecutor(3) as threads:
            connection.settimeout(timeout)
            connection.connect(self._path)
            socket.send_fds(connection, [b"0"], theirs)
            for handle in theirs:
                os.close(handle)
            request = {"arguments": arguments, "cwd": str(cwd), "env": dict(env)}
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = connection.makefile("r")
            pid = int(answer.readline())
            feeding = threads.submit(_feed, ours[0], stdin)
            out, err = threads.submit(_read, ours[1]), threads.submit(_read, ours[2])
            try:
                code = int(answer.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            feeding.result()
            return code, out.result(), err.result()


def _feed(pipe: BinaryIO, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(data)


def _read(pipe: BinaryIO) -> bytes:
    with pipe:
        return pipe.read()


@contextlib.contextmanager
def forking(env: Mapping[str, str]) -> Iterator[Forking]:
    """Start the process, and stop it at the end."""
    with tempfile.TemporaryDirectory() as directory:  # the path of a socket must be short
        path = os.path.join(directory, "socket")
        command = [sys.executable, __file__, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield Forking(path)
            process.stdin.close()


# ---------------------------------------------------------------- in the process


def main() -> int:
    """Fork a process for each command; in that process, return the exit code of the command."""
    from seeklog.cli import verbs

    for module in pkgutil.iter_modules(verbs.__path__):
        importlib.import_module(f"{verbs.__name__}.{module.name}")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for the answering processes
    print("ready", flush=True)
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _answer(connection)
        connection.close()
    return 0


def _answer(connection: socket.socket) -> int:
    """Fork the command and send its exit code; return only in the command's process."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(connection.makefile().readline())
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        connection.sendall(b"%d\n" % pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(b"%d\n" % code)
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    from seeklog.cli.main import main as command

    return command(request["arguments"])


if __name__ == "__main__":
    sys.exit(main())
