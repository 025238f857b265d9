"""The traffic of a broker in a soak: produces, deletes, recreates, restarts, and counts.

`Traffic` updates the ledger (`ledger.py`). `Readers` are the reading processes, which report at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop.make_broker_golden import TIMEOUT_S, config
from interop.real_broker import RealBroker
from interop.verbs import alarms, run_seeklog
from soak.ledger import COMPACTED, FLEETING, PARTITIONS, PLAIN, Ledger, T, encode_value, key_number, key_of

HERE: Final = Path(__file__).parent
# The broker's default, because its preallocated size is a difficulty for readers.
PROPERTIES: Final = {
    "log.index.size.max.bytes": "10485760",
    "log.cleaner.backoff.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.segment.delete.delay.ms": "2000",
    # A killed broker can return when its session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
SEGMENT_BYTES: Final = 200_000
RATE: Final = 1000
"""Records a second of each partition: a core is shared with the broker and its readers."""
KEPT: Final = 15_000
"""Records of a partition that DeleteRecords leaves: fifteen seconds' worth."""


NOISE: Final = "noise"
"""A topic that is written while the broker is killed, and that nobody checks."""


def create(admin: AdminClient, name: str, partitions: int, **words: str) -> None:
    words = {word.replace("_", "."): value for word, value in words.items()}
    # Brokers from 4.0 on refuse segments below 1 MiB without this internal setting.
    words = {"internal.segment.bytes": str(SEGMENT_BYTES), **words}
    admin.create_topics([NewTopic(name, partitions, 1, config=words)])[name].result(TIMEOUT_S)


@dataclass
class Traffic:
    """Producers and an administrator of one broker."""

    broker: RealBroker
    ledger: Ledger
    rate: int = RATE
    kept: int = KEPT
    sent: int = 0
    deletions: int = 0
    incarnations: int = 0
    restarts: dict[str, int] = field(default_factory=lambda: {"clean": 0, "kill -9": 0})
    failures: list[str] = field(default_factory=list)
    """Of the traffic itself, which would make what readers find worth nothing."""

    def begin(self) -> None:
        self.admin = AdminClient(config(self.broker))
        create(self.admin, PLAIN, PARTITIONS)
        create(self.admin, COMPACTED, 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1000")
        create(self.admin, NOISE, 1)
        self._over = threading.Event()
        self._shall_rest = threading.Event()
        self._meeting = threading.Barrier(2, timeout=180)
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def end(self) -> None:
        """Stop after all sent records are acknowledged."""
        self._over.set()
        self._thread.join(180)
        if self._thread.is_alive():
            self.failures.append("the producer does not end")

    def _produce(self) -> None:
        producer = Producer(
            config(
                self.broker,
                enable_idempotence=True,
                linger_ms=20,
                batch_size=SEGMENT_BYTES // 4,  # a broker refuses a batch that is larger than its segments
                delivery_timeout_ms=170_000,
                acks="all",
            )
        )
        numbers = [0] * PARTITIONS
        compacted = 0
        begun = time.monotonic()
        while not self._over.is_set():
            due = int((time.monotonic() - begun) * self.rate) - numbers[0]
            for _ in range(min(due, 100)):
                for partition in range(PARTITIONS):
                    self._send_plain(producer, partition, numbers[partition])
                    numbers[partition] += 1
                key = key_number(key_of(compacted))
                self.ledger.send_key(key, compacted)
                producer.produce(
                    COMPACTED,
                    encode_value(COMPACTED, 0, 0, compacted),
                    key=key_of(compacted),
                    timestamp=T + compacted,
                    on_delivery=self._acknowledge_key(key, compacted),
                )
                compacted += 1
            producer.poll(0.02)
            if self._shall_rest.is_set():
                if producer.flush(170):
                    self.failures.append("records are left that nobody acknowledged")
                self._meeting.wait()  # all is acknowledged
                self._meeting.wait()  # and may go on
                begun = time.monotonic() - numbers[0] / self.rate
            # Limited, because the producer waits while the broker is down.
            while len(producer) > 5000 and not self._over.is_set():
                producer.poll(0.1)
                begun = time.monotonic() - numbers[0] / self.rate
        if producer.flush(170):
            self.failures.append("records are left that nobody acknowledged")
        self.sent += sum(numbers) + compacted

    def _send_plain(self, producer: Producer, partition: int, number: int) -> None:
        def acknowledge(error: Any, message: Any) -> None:
            if error is not None or message.offset() != number:
                self.failures.append(f"{PLAIN}-{partition} {number}: {error or message.offset()}")
            else:
                self.ledger.acknowledge(partition, number + 1)

        value = encode_value(PLAIN, 0, partition, number)
        key = key_of(number)
        producer.produce(PLAIN, value, key=key, partition=partition, timestamp=T + number, on_delivery=acknowledge)

    def _acknowledge_key(self, key: int, number: int) -> Callable[[Any, Any], None]:
        def acknowledge(error: Any, _: Any) -> None:
            if error is not None:
                self.failures.append(f"{COMPACTED} {number}: {error}")
            else:
                self.ledger.acknowledge_key(key, number)

        return acknowledge

    # ------------------------------------------------------------ what an administrator does

    def delete_records(self) -> None:
        """Delete all but the latest records of each partition."""
        for partition in range(PARTITIONS):
            start = self.ledger.acked(partition) - self.kept
            if start > self.ledger.start(partition):
                self.ledger.raise_start(partition, start)  # from here on a reader may miss records below
                at = TopicPartition(PLAIN, partition, start)
                self._patiently(lambda at=at: self._delete_before(at))  # type: ignore[misc]
                self.deletions += 1

    def _delete_before(self, at: TopicPartition) -> None:
        (deleted,) = self.admin.delete_records([at]).values()
        deleted.result(TIMEOUT_S)

    def recreate_fleeting(self, count: int = 300) -> None:
        """Recreate a topic, with other records at the same offsets."""
        incarnation, is_there, acked = self.ledger.fleeting
        if is_there:
            self.ledger.fleeting = (incarnation, False, acked)
            self._patiently(lambda: self.admin.delete_topics([FLEETING])[FLEETING].result(TIMEOUT_S))
        incarnation += 1
        self.ledger.fleeting = (incarnation, False, 0)
        self._patiently(lambda: create(self.admin, FLEETING, 1))
        producer = Producer(config(self.broker, enable_idempotence=True))
        errors: list[Any] = []
        for number in range(count):
            value = encode_value(FLEETING, incarnation, 0, number)
            producer.produce(FLEETING, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        if producer.flush(TIMEOUT_S) or any(errors):
            self.failures.append(f"{FLEETING}: {errors[:1]}")
        self.ledger.fleeting = (incarnation, True, count)
        self.incarnations += 1

    def restart(self, how: str) -> None:
        """Restart the broker."""
        if how == "clean":
            self.broker.stop()
            self.broker.start()
        else:
            self._kill()
        self.restarts[how] += 1

    def _kill(self) -> None:
        """Kill the broker while it appends, except to the topic whose numbers are offsets.

        A killed broker may append a batch twice when its idempotent producer retries with the same sequence number
        (seen with 4.3.1). After that a record's number is not its offset.
        """
        self._shall_rest.set()
        self._meeting.wait()
        self._shall_rest.clear()
        producer = Producer(config(self.broker, linger_ms=1))
        for number in range(5000):
            producer.produce(NOISE, encode_value(NOISE, 0, 0, number), partition=0)
        producer.poll(0.05)
        self.broker.kill()
        producer.purge(in_flight=True, in_queue=True)
        producer.flush(TIMEOUT_S)
        self.broker.start()
        self._meeting.wait()

    def _patiently(self, do: Callable[[], object]) -> None:
        """Retry a request that a broker may refuse for a moment, such as after the deletion of a topic."""
        give_up = time.monotonic() + TIMEOUT_S
        while True:
            try:
                do()
                return
            except KafkaException:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.1)  # nothing reports its end


@dataclass
class Found:
    """The result of a run."""

    counts: dict[str, int] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
    false_alarms: list[str] = field(default_factory=list)

    def take(self, fault: str) -> None:
        (self.wrong_answers if fault.startswith("wrong answer") else self.false_alarms).append(fault)

    @property
    def faults(self) -> list[str]:
        return self.crashes + self.wrong_answers + self.false_alarms

    def summary(self) -> str:
        kinds = (self.crashes, "crashes"), (self.wrong_answers, "wrong answers"), (self.false_alarms, "false alarms")
        head = ", ".join(f"{len(faults)} {what}" for faults, what in kinds)
        return "\n".join([head, *(fault[:600] for faults, _ in kinds for fault in faults[:8])])


class Readers:
    """Reading processes, each restarted if it ends early."""

    def __init__(self, root: Path, work: Path, ledger: Path) -> None:
        self._root, self._work, self._ledger = root, work, ledger
        self._running: list[tuple[str, subprocess.Popen[str], Path]] = []
        self._count = 0
        self._verbs = threading.Thread(target=self._run_verbs)
        self._over = threading.Event()
        self.found = Found()

    def start(self, module: str) -> None:
        self._count += 1
        report = self._work / f"report-{self._count}.json"
        path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(self._root), str(self._ledger), str(report), str(self._count)],
            stdin=subprocess.PIPE,
            stderr=(self._work / f"stderr-{self._count}").open("w"),
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._running.append((module, process, report))

    def start_verbs(self) -> None:
        self._verbs.start()

    def _run_verbs(self) -> None:
        """Run verify and ls again and again."""
        while not self._over.is_set():
            for verb in ("verify", "ls"):
                done = run_seeklog(verb, str(self._root))
                self.found.counts[verb] = self.found.counts.get(verb, 0) + 1
                if done.returncode < 0:
                    self.found.crashes += alarms(verb, done)
                else:
                    self.found.false_alarms += alarms(verb, done)

    def look(self) -> None:
        """Restart crashed processes."""
        for module, process, report in list(self._running):
            if process.poll() is not None:
                self._gather(module, process, report)
                self._running.remove((module, process, report))
                self.start(module)

    def _gather(self, module: str, process: subprocess.Popen[str], report: Path) -> None:
        number = report.stem.rpartition("-")[2]
        if process.returncode or not report.exists():
            errors = (self._work / f"stderr-{number}").read_text()
            for line in errors.splitlines():
                if "wrong answer: " in line or "false alarm: " in line:
                    self.found.take(line.partition(" ")[2])
            self.found.crashes.append(f"{module} ended with {process.returncode}: {errors[-300:]}")
            return
        result = json.loads(report.read_text())
        for name, count in result["counts"].items():
            self.found.counts[name] = self.found.counts.get(name, 0) + count
        for fault in result["faults"]:
            self.found.take(fault)

    def stop(self) -> Found:
        self._over.set()
        for _, process, _ in self._running:
            assert process.stdin is not None
            process.stdin.close()
        for module, process, report in self._running:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._gather(module, process, report)
        if self._verbs.is_alive():
            self._verbs.join()
        return self.found


@contextmanager
def running(readers: Readers) -> Iterator[Readers]:
    """End the processes, also if the test fails."""
    try:
        yield readers
    finally:
        for _, process, _ in readers._running:
            if process.poll() is None:
                process.kill()
                process.wait()
        readers._over.set()
