"""Kills a Spark driver with all its processes at one call to the disk. Python imports this module if it is on its path.

SEEKLOG_TEST_KILL is `<method> <part of the path> <number>`. Before the numbered call the process kills the whole
session, itself last.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from spark.killing.sitecustomize import Finder, Watch, kill_session


class KillAt(Watch):
    """Counts calls of one method."""

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
