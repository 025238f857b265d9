"""A child process that opens a decompression bomb through one entry point, and reports the cost.

`python tests/proof/bombing.py DOOR DIRECTORY` reads a whole batch from its input and prints (outcome, growth of
the process in bytes, seconds of work) as JSON. The peers get the same batch.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def memory(name: str) -> int:
    """Return a memory figure of this process. Its peak belongs to the address space, not to the parent process."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


def seeklog_door(door: str, batch: bytes, directory: str) -> Callable[[], Any]:
    """Return the function that opens the bomb, after all preparation is done."""
    from record.batches import SMALL_ROWS, Sketch
    from seeklog import Log, LogConfig
    from seeklog.log.check.inspection import inspect_records, plan_inspection
    from seeklog.log.check.repair_plan import plan_repair
    from seeklog.record.batch import decode_records

    sound = Sketch(SMALL_ROWS[:2]).encode()
    decode_records(sound)
    if door in ("arrow", "cat"):
        # Their imports must not be measured.
        with Log(f"{directory}.sound/orders-0", background=False) as log:
            log.append_batches(sound)
            list(log.scan_arrow())
        if door == "cat":
            cat(f"{directory}.sound")
    words: dict[str, Any] = {"flush": "os", "retention_ms": -1, "max_message_bytes": 1 << 28}
    plain = LogConfig(**words, segment_bytes=len(batch) + 10)
    compacted = LogConfig(**words, segment_bytes=len(batch) + 10, cleanup_policy="compact")
    if door == "decode":
        return lambda: decode_records(batch)
    if door == "append":
        log = Log(directory, config=compacted, background=False)
        return lambda: log.append_batches(batch)
    with Log(directory, config=plain, background=False) as log:
        log.append_batches(batch)
        log.append_batches(sound)
        log.append_batches(sound)
    if door in ("verify", "repair"):
        plan = plan_inspection(directory)
        if door == "repair":
            return lambda: plan_repair(directory)
        return lambda: [found for task in plan.tasks for found in inspect_records(task)]
    if door == "cat":
        return lambda: cat(str(Path(directory).parent))
    log = Log(directory, config=compacted if door == "compact" else plain, background=False)
    doors: dict[str, Callable[[], Any]] = {
        "read": lambda: list(log.read(0)),
        "scan": lambda: list(log.scan()),
        "arrow": lambda: list(log.scan_arrow()),
        "backwards": lambda: list(log.scan_reverse()),
        "key": lambda: log.latest_for_key(b"nobody"),
        "compact": lambda: log.compact(buffer_bytes=1 << 20),
        "time": lambda: log.offset_at_time(5),
    }
    return doors[door]


def cat(root: str) -> None:
    """Print a topic with the command line, and raise its error message."""
    from seeklog.cli.main import main as run_command

    said = io.StringIO()
    sys.argv = ["seeklog", "cat", root, "orders", "--from", "earliest"]
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        run_command()
    if said.getvalue():
        raise RuntimeError(said.getvalue())


def peer_door(door: str, batch: bytes) -> Callable[[], Any]:
    from fuzz.peers import reader_of

    read, _ = reader_of(door)
    return lambda: read(batch)


DOORS: Final = ("decode", "append", "read", "scan", "arrow", "backwards", "key", "compact", "verify", "repair", "cat")
PEERS: Final = ("aiokafka (C)", "kafka-python")


def main() -> None:
    door, directory = sys.argv[1:]
    batch = sys.stdin.buffer.read()
    call = peer_door(door, batch) if door in PEERS else seeklog_door(door, batch, directory)
    before = memory("VmRSS")
    started = time.process_time()
    try:
        found = call()
        outcome = f"accepted {str(found)[:80]}" if door != "verify" else " ".join(str(one.detail) for one in found)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    print("\n" + json.dumps([outcome, memory("VmHWM") - before, time.process_time() - started]))


if __name__ == "__main__":
    main()
