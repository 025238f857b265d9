"""Child processes of the group tests, started as `python children.py <what> <store> ...`.

A child reports in lines on its standard output, each with the machine's monotonic clock in nanoseconds, which all
processes share. It ends when its standard input is closed, or when it is killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

import seeklog
from log.workbench import QuickFiles, value_of
from seeklog import LogConfig, Store, TopicPartition
from seeklog.clients import SendFuture
from seeklog.errors import CommitRefused

TOPIC: Final = "events"
GROUP: Final = "group"
PATIENCE_S: Final = 30.0  # a child that is silent this long is stuck
# Small enough to roll every few hundred records, so that kills and readers meet rolls.
CONFIG: Final = LogConfig(flush="os", segment_bytes=20_000, retention_ms=-1)


# ---------------------------------------------------------------- in the child


def open_store(path: str, *, read_only: bool = False) -> Store:
    """Open the store with a disk that returns from syncs at once: a killed process loses none of its writes."""
    return seeklog.open(path, config=CONFIG, read_only=read_only, files=QuickFiles())


def report(*words: object) -> None:
    data = (" ".join(map(str, (*words, time.monotonic_ns()))) + "\n").encode()
    os.write(1, data)  # one write: a line is complete, or the kill came before it


def must_end() -> bool:
    return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 1)


def produce(path: str, count: str) -> None:
    """For each byte of input, send that many numbered records, by their keys; report what is acknowledged."""

    def acknowledge(number: int) -> Callable[[SendFuture], None]:
        def note(future: SendFuture) -> None:
            where = future.result()
            report("acknowledged", number, where.partition, where.offset)

        return note

    with open_store(path) as store, store.producer(batch_bytes=500, linger_ms=1) as producer:
        report("ready")
        first = 0
        while os.read(0, 1):
            for number in range(first, first + int(count)):
                value = value_of(number)
                producer.send(TOPIC, value, key=value).add_done_callback(acknowledge(number))
            first += int(count)
    report("end")


def consume(path: str, most: str) -> None:
    """Read as a member of the group: report the returned records, commit them, and report that."""

    def tell(what: str) -> Callable[[frozenset[TopicPartition]], None]:
        return lambda partitions: report(what, ",".join(str(each.partition) for each in sorted(partitions)) or "-")

    with (
        open_store(path) as store,
        store.consumer(
            [TOPIC],
            group=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=10,
            on_assign=tell("assigned"),
            on_revoke=tell("revoked"),
        ) as consumer,
    ):
        report("ready")
        while not must_end():
            began = time.monotonic_ns()
            records = consumer.poll(timeout_ms=10, max_records=int(most))
            if not records:
                continue
            for record in records:
                report("got", record.partition, record.offset, (record.value or b"").decode(), began)
            ends = {TopicPartition(TOPIC, record.partition): record.offset + 1 for record in records}
            try:
                consumer.commit(ends)
            except CommitRefused:
                report("refused")
                continue
            for partition, offset in ends.items():
                report("committed", partition.partition, offset)
    report("end")


def follow(path: str) -> None:
    """Read everything from the beginning, without a group and read-only."""
    with (
        open_store(path, read_only=True) as store,
        store.consumer([TOPIC], auto_offset_reset="earliest") as consumer,
    ):
        report("ready")
        while not must_end():
            began = time.monotonic_ns()
            for record in consumer.poll(timeout_ms=10):
                report("got", record.partition, record.offset, (record.value or b"").decode(), began)
    report("end")


def commit(path: str, partition: str, count: str) -> None:
    """Commit the offsets 1 to `count` of one partition, one by one, without being a member."""
    with open_store(path) as store, store.consumer(group=GROUP, enable_auto_commit=False) as consumer:
        report("ready")
        os.read(0, 1)
        for offset in range(1, int(count) + 1):
            consumer.commit({TopicPartition(TOPIC, int(partition)): offset})
            report("committed", partition, offset)
    report("end")


# ---------------------------------------------------------------- in the parent


class Event(NamedTuple):
    """One line of a child's output."""

    child: str
    what: str
    words: tuple[str, ...]
    at_ns: int


class Child:
    """A process that runs one of the functions above. A thread reads its lines as they come."""

    def __init__(self, name: str, what: str, path: Path, *arguments: object) -> None:
        tests = str(Path(__file__).resolve().parents[1])
        self.name = name
        self.events: list[Event] = []
        self._process = subprocess.Popen(
            [sys.executable, __file__, what, str(path), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, *words, at_ns = line.decode().split()
            self.events.append(Event(self.name, what, tuple(words), int(at_ns)))

    def count(self, what: str) -> int:
        return sum(event.what == what for event in list(self.events))

    def wait_for(self, what: str, count: int = 1) -> None:
        """Wait until the child has reported `what` this many times."""
        give_up = time.monotonic() + PATIENCE_S
        pause = threading.Event()
        while self.count(what) < count:
            assert time.monotonic() < give_up, f"{self.name} has not reported {count} times {what!r}"
            assert self._process.poll() is None or self._reader.is_alive() or self.count(what) >= count, (
                self.complaint()
            )
            pause.wait(0.002)

    def complaint(self) -> str:
        assert self._process.stderr is not None
        return f"{self.name} ended: {self._process.stderr.read().decode()}"

    def go(self) -> None:
        """Let a waiting child begin, or continue with its next step."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._finish()

    def end(self) -> None:
        """End the child, and check that it ended in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._finish()
        assert self._process.returncode == 0, self.complaint()
        assert self.count("end") == 1

    def _finish(self) -> None:
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


if __name__ == "__main__":
    {"produce": produce, "consume": consume, "follow": follow, "commit": commit}[sys.argv[1]](*sys.argv[2:])
