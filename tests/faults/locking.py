"""Locks: one process may write, and its death releases the log. Readers may always open."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from faults.children import Child, kill_config, value_at
from seeklog import Log, LogReader
from seeklog.errors import LogClosed, LogLocked
from seeklog.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOCKED_WITHIN_SECONDS: Final = 10.0  # usually a tenth of a second; the machine may be busy


def hold_log(path: Path) -> Callable[[Callable[[str], None]], None]:
    """Return the action of a child that has a log open for writing until it is killed."""

    def hold(report: Callable[[str], None]) -> None:
        with Log(path, config=kill_config("os")) as log:
            log.append(value_at(log.log_end_offset))
            report(f"{log.log_end_offset}")
            threading.Event().wait()

    return hold


def hold_partition(path: Path) -> Callable[[Callable[[str], None]], None]:
    """Return the action of a child that has a partition of a store open for writing until it is killed."""

    def hold(report: Callable[[str], None]) -> None:
        store = open_store(path)
        with store.producer() as producer:
            sent = producer.send("orders", b"value", partition=0)
            producer.flush()
            report(f"{sent.result(timeout=30).offset + 1}")
            threading.Event().wait()

    return hold


def two_writers_of_a_log(path: Path) -> Iterator[str]:
    """Open a log for writing in a child, try here, kill the child, and try again; yield what is wrong."""
    yield from _two_writers(path, hold_log(path), lambda: Log(path, config=kill_config("os")))


def two_writers_of_a_store(path: Path) -> Iterator[str]:
    """Do the same with a partition of a store, while readers and writers of other partitions open and close."""
    with open_store(path) as store:
        if "orders" not in store.topics():
            store.create_topic("orders", partitions=2)
    yield from _two_writers(path / "orders-0", hold_partition(path), lambda: Log(path / "orders-0"), store=path)


def _two_writers(
    path: Path,
    hold: Callable[[Callable[[str], None]], None],
    open_here: Callable[[], Log],
    *,
    store: Path | None = None,
) -> Iterator[str]:
    child = Child(hold)
    acknowledged = int(child.line())
    started = time.perf_counter()
    try:
        open_here().close()
        yield "a second writer was let in"
    except LogLocked as refusal:
        elapsed = time.perf_counter() - started
        if refusal.owner_pid != child.pid or str(child.pid) not in str(refusal):
            yield f"{refusal} does not name process {child.pid}"
        if elapsed > LOCKED_WITHIN_SECONDS:
            yield f"refused after {elapsed:.2f} s"
    with LogReader(path) as reader:
        if len(list(reader.scan())) != acknowledged:
            yield f"a reader sees {len(list(reader.scan()))} of {acknowledged} records"
    if store is not None:
        with open_store(store) as beside, beside.producer() as producer:
            sent = producer.send("orders", b"beside it", partition=1)
            producer.flush()
            sent.result(timeout=30)
    child.kill()
    child.rest()
    child.wait()
    with open_here() as log:
        if log.log_end_offset != acknowledged:
            yield f"the log of the killed process ends at {log.log_end_offset}, not {acknowledged}"


def fork_of_a_writer(path: Path) -> Iterator[str]:
    """Fork while a log is open for writing: the child may not write, and does not keep the lock."""
    log = Log(path, config=kill_config("interval"))
    end = log.append(value_at(log.log_end_offset)) + 1

    def misbehave(report: Callable[[str], None]) -> None:
        for name, act in (("append", lambda: log.append(b"from the child")), ("flush", log.flush)):
            try:
                act()
                report(f"{name} was let through")
            except LogClosed:
                pass
        try:
            Log(path, config=kill_config("os"))
            report("the child was let in beside its parent")
        except LogLocked as refusal:
            if refusal.owner_pid != os.getppid():
                report(f"{refusal} does not name the parent")
        log.close()
        report("closed")
        threading.Event().wait()

    child = Child(misbehave)
    line = child.line()
    while line and line != "closed":
        yield line
        line = child.line()
    if log.append(value_at(end)) != end:
        yield "the parent lost its place"
    try:
        Log(path, config=kill_config("os")).close()
        yield "the child's close gave the lock away"
    except LogLocked:
        pass
    log.close()
    try:
        # The child continues, and shares the handles that were open at the fork.
        Log(path, config=kill_config("os")).close()
    except LogLocked as refusal:
        yield f"the child keeps the lock: {refusal}"
    child.kill()
    child.rest()
    child.wait()
