"""Kills processes of a Spark session at a step of a commit. Python imports this module if it is on its path.

Every process of a driver that has this directory on PYTHONPATH and SEEKLOG_TEST_PLAN in its environment records its
calls to the disk while it stages or commits:

    steps       one step per line: the version of the batch (`-` in a task), the call, and the file
    armed-000   the step and the target of one kill; the process that kills renames the file to `fired-000`

A step is identified by its name (`name_of`), else by its number in a commit. A kill ends this process, or the whole
session: the driver, its JVM, all workers, and this process last.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

WATCHED = {"seeklog.files.local", "seeklog.topics.transactions"}
# Calls that change files or make changes durable.
CHANGES = ("write", "truncate", "sync", "rename", "remove", "sync_directory")


class Watch:
    """The steps of this process, and the check for a kill."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self.version: int | None = None
        """Of the transaction that is being committed."""
        self._steps = 0
        self._renames = 0
        self._logs: list[str] = []

    def begin(self, version: int) -> None:
        self.version = version
        self._steps = self._renames = 0
        self._logs = []

    def before(self, method: str, path: str) -> str:
        """Record the next step, and die if a plan chose it; return its name."""
        is_staged = "seeklog-staged-" in path
        if self.version is None and not is_staged:
            return ""
        self._steps += 1
        name = self.name_of(method, path, is_staged=is_staged)
        shown = "-" if self.version is None else str(self.version)
        with (self._plan / "steps").open("a") as steps:
            steps.write(f"{shown} {method} {os.path.basename(path)}{f' ({name})' if name else ''}\n")
        self.die_if(name)
        return name

    def name_of(self, method: str, path: str, *, is_staged: bool) -> str:
        if self.version is None:
            return "staged" if method == "sync" else ""
        if method == "rename" and "seeklog-transaction-" in path:
            self._renames += 1
            return "intent" if self._renames == 1 else "done"
        if method == "write" and path.endswith(".log") and self._renames == 1 and path not in self._logs:
            self._logs.append(path)
            return f"append {len(self._logs)}"
        return "sweep" if method == "remove" and is_staged else ""

    def die_if(self, name: str) -> None:
        for armed in sorted(self._plan.glob("armed-*")):
            try:
                plan = json.loads(armed.read_text())
                if plan["version"] not in (self.version, None) or plan["step"] not in (name, self._number()):
                    continue
                armed.rename(armed.with_name(armed.name.replace("armed", "fired")))
            except FileNotFoundError:
                continue  # another process was faster
            if plan["whole"]:
                kill_session(os.getsid(0))
            os.kill(os.getpid(), signal.SIGKILL)

    def _number(self) -> int | None:
        return None if self.version is None else self._steps


def kill_session(session: int) -> None:
    """Kill every other process of a session: the driver and all of its descendants."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[3]) == session:
                    os.kill(int(entry), signal.SIGKILL)
            except (OSError, ValueError):
                continue  # it ended meanwhile


def watch_files(module: ModuleType, watch: Watch) -> None:
    def watched(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, first: Any, *others: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
            if method == "rename":
                path = others[0]
            name = watch.before(method, path)
            answer = original(self, first, *others)
            if name:
                watch.die_if(f"after {name}")
            return answer

        return call

    for method in CHANGES:
        setattr(module.OsFiles, method, watched(method, getattr(module.OsFiles, method)))


def watch_commits(module: ModuleType, watch: Watch) -> None:
    original = module.Transactions.commit

    def commit(self: Any, app: str, version: int, *others: Any, **keywords: Any) -> Any:
        watch.begin(version)
        try:
            answer = original(self, app, version, *others, **keywords)
            watch.die_if("returned")
            return answer
        finally:
            watch.version = None

    module.Transactions.commit = commit


class Finder(importlib.abc.MetaPathFinder):
    """Patches a watched module after it is loaded."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._is_looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in WATCHED or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                (watch_files if name == "seeklog.files.local" else watch_commits)(module, self._watch)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "SEEKLOG_TEST_PLAN" in os.environ:
    sys.meta_path.insert(0, Finder(Watch(Path(os.environ["SEEKLOG_TEST_PLAN"]))))
