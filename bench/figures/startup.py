"""The start of the command line: `seeklog --help` and `seeklog ls` as installed, beside `python -c pass`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import seeklog
from bench.row import Row, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.measure import Bench

TARGET_MS = 150
TOPICS = 10
RECORDS = 100
# The installed command's code, for a Python without the command.
SCRIPT = "import sys; from seeklog.cli.main import main; sys.exit(main())"


def measure(bench: Bench) -> Iterator[Row]:
    installed = Path(sys.executable).with_name("seeklog")
    command = [str(installed)] if installed.exists() else [sys.executable, "-c", SCRIPT]
    turns = 2 * bench.scale.repetitions
    with bench.directory("startup") as path:
        with seeklog.open(path, background=False) as store:
            for number in range(TOPICS):
                store.create_topic(f"topic-{number}", partitions=1)
                with store.writer(f"topic-{number}", 0) as log:
                    for _ in range(RECORDS):
                        log.append(bytes(100))
        starts = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "seeklog --help": [*command, "--help"],
            f"seeklog ls, {TOPICS} topics": [*command, "ls", str(path)],
        }
        spans: dict[str, list[float]] = {name: [] for name in starts}
        with bench.directory("startup-bytecode") as bytecode:
            for start in starts.values():
                _run(start, bytecode)
            for _ in range(turns):
                for name, start in starts.items():
                    spans[name].append(_run(start, bytecode))
    bare_python = median(spans.pop("python -c pass"))
    for name, taken in spans.items():
        yield Row(
            work=name,
            figure=median(taken) * 1e3,
            unit=Unit.MILLISECONDS,
            target=TARGET_MS,
            note=f"the whole process, median of {turns}; python -c pass takes {bare_python * 1e3:.0f} ms",
        )


def _run(command: Sequence[str], bytecode: Path) -> float:
    """Return the seconds of a process that imports this `seeklog`.

    Its bytecode goes to a separate directory, so that everything is compiled from the second run on, as after pip.
    """
    paths = [str(Path(seeklog.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONPYCACHEPREFIX": str(bytecode),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return perf_counter() - started
