"""Runs the command line and finds alarms in its output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def run_seeklog(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seeklog.cli", *arguments], capture_output=True, text=True, timeout=180
    )


def alarms(verb: str, done: subprocess.CompletedProcess[str]) -> Iterator[str]:
    """Yield the alarms of verify or ls. The last segment may end with a batch that is being written."""
    if done.returncode < 0:
        yield f"{verb} ended by signal {-done.returncode}"
    elif done.returncode:
        yield f"{verb} exits with {done.returncode}: {' / '.join(done.stderr.splitlines()[:3])}"
    for line in done.stdout.splitlines():
        row = json.loads(line)
        if row.get("severity") in ("error", "warning"):
            path = Path(row["file"])
            newest = max((each.name for each in path.parent.glob("*.log")), default="")
            if row["severity"] == "error" or path.name < newest:
                yield f"{verb}, {row['severity']}: {path.parent.name}/{path.name}: {row['kind']}: {row['detail']}"
