"""The entry point: runs a command, and turns an error into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from seeklog.cli.exits import Exit


def _replace_closed_streams() -> None:
    """Open /dev/null for standard streams that the caller has closed, or the next open file would get their numbers.

    A closed stdin stays without a file object, so that a command that needs it can refuse.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of the process, and return the exit code."""
    _replace_closed_streams()
    try:
        from seeklog.cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print('seeklog: the command line needs click and rich: pip install "seeklog[cli]"', file=sys.stderr)
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = Exit.PIPE_CLOSED
    if code == Exit.PIPE_CLOSED:
        # Python flushes stdout again at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
