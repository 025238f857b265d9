"""Kills a Spark driver with all its processes at one call to the disk. Python imports it where it is on the path.

SEEKLOG_TEST_KILL is `<method> <part of the path> <number>`: the process that is about to make the call for the
numbered time kills the whole session, itself as the last.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from spark.killing.sitecustomize import Finder, Watch, kill_session


class KillAt(Watch):
    """Counts the calls of one kind."""

    def __init__(self, method: str, part: str, number: int) -> None:
        super().__init__(Path())
        self._wanted = (method, part)
        self._left = number

    def before(self, method: str, path: str) -> str:
        if method == self._wanted[0] and self._wanted[1] in path:
            self._left -= 1
            if not self._left:
                kill_session(os.getsid(0))
                os.kill(os.getpid(), signal.SIGKILL)
        return ""


if "SEEKLOG_TEST_KILL" in os.environ:
    method, part, number = os.environ["SEEKLOG_TEST_KILL"].split()
    sys.meta_path.insert(0, Finder(KillAt(method, part, int(number))))
