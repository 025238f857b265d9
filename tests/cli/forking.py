"""Commands without what each start costs: they are forked from a process that has imported all of them.

    python tests/cli/forking.py <path of a socket>

A connection brings stdin, stdout and stderr of one command, and a line of JSON with its arguments, its directory and
its environment; the answer is its pid in one line, and its exit code in another. It ends when its own stdin does.
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
    """The other side: asks such a process for commands."""

    def __init__(self, path: str) -> None:
        self._path = path

    def run(
        self, arguments: list[str], *, stdin: bytes, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Run one command; return its exit code, as `subprocess` has it, and what it wrote to stdout and stderr."""
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
    """Start such a process, and end it."""
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
    """Fork a process for each command; return what a command ends with, in its process."""
    from seeklog.cli import verbs

    for module in pkgutil.iter_modules(verbs.__path__):
        importlib.import_module(f"{verbs.__name__}.{module.name}")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
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
    """Fork the command, and say how it ends; return only in the command's process, with its exit code."""
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
