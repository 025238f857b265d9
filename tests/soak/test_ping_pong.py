"""A directory that a broker and seeklog write in turn, with no manual step between them.

Half of the turns end with SIGKILL during appends. After every turn the other side must read each acknowledged record
once at its offset, except for deleted and compacted records, and must not assign an offset twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from interop.kafka_jars import VERSIONS, jars_or_skip
from interop.make_broker_golden import TIMEOUT_S, config, consumer, wait_until
from interop.real_broker import RealBroker, retry_until_ready
from interop.verbs import alarms, run_seeklog
from soak.history import COMPACTED, GROUP, KEPT, PLACES, TRIMMED, History, Seen
from soak.ledger import T, WrongAnswer, encode_value, key_of
from soak.table import put_row
from soak.traffic import PROPERTIES, create
from soak.visitor import read_diary, split

HERE = Path(__file__).parent
RECORDS = 400
TRIM = 60
ENDS = (("clean", "closed"), ("kill -9", "killed"), ("clean", "killed"), ("kill -9", "closed"))


class Game:
    """A broker, seeklog's processes, and the acknowledged records of both."""

    def __init__(self, version: str, work: Path) -> None:
        self.work = work
        self.broker = RealBroker(jars_or_skip(version), work, properties=PROPERTIES)
        self.history = History()
        self.turns = 0

    def begin(self) -> None:
        self.broker.format()
        self.broker.start()
        admin = AdminClient(config(self.broker))
        small = {"internal_segment_bytes": "50000"}
        create(admin, "kept", len(KEPT), **small)
        create(admin, "trimmed", 1, **small)
        create(admin, "compacted", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **small)

    # ------------------------------------------------------------ the broker's turn

    def check_broker(self) -> None:
        places = {TopicPartition(*split(place)): place for place in PLACES}
        found: dict[str, list[Seen]] = {place: [] for place in PLACES}
        with consumer(self.broker, enable_partition_eof=True, check_crcs=True) as reader:
            marks = {
                name: retry_until_ready(lambda place=place: reader.get_watermark_offsets(place, TIMEOUT_S))
                for place, name in places.items()
            }
            reader.assign([TopicPartition(*split(place), OFFSET_BEGINNING) for place in PLACES])
            reading = set(PLACES)
            while reading:
                message = reader.poll(TIMEOUT_S)
                assert message is not None, f"{reading} do not end"
                name = f"{message.topic()}-{message.partition()}"
                error, offset = message.error(), message.offset()
                if error is None and offset is not None:
                    found[name].append(Seen(offset, message.timestamp()[1], message.key(), message.value()))
                else:
                    assert error is not None
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    reading.discard(name)
        for place in PLACES:
            start, end = marks[place]
            self.history.check(place, found[place], start=start, end=end)
        admin = AdminClient(config(self.broker))
        asked = [ConsumerGroupTopicPartitions(GROUP)]
        answer = retry_until_ready(lambda: admin.list_consumer_group_offsets(asked)[GROUP].result(TIMEOUT_S))
        offsets = {f"{at.topic}-{at.partition}": at.offset for at in answer.topic_partitions or ()}
        if offsets != self.history.groups:
            raise WrongAnswer(f"the broker's group has committed {offsets}, not {self.history.groups}")

    def broker_turn(self, end: str) -> None:
        """Check, delete, commit, append, run the cleaner, and end."""
        self.check_broker()
        self._trim()
        self._commit()
        compacted = self.history.end(COMPACTED)
        is_killed = end == "kill -9"
        producer = self._producer()
        self._send(producer, RECORDS)
        assert producer.flush(TIMEOUT_S) == 0
        if not compacted or not is_killed:
            wait_until(lambda: self._cleaned() > compacted, "the cleaner")
        if is_killed:
            self._send(producer, 100)
            producer.poll(0.02)
            self.broker.kill()
            producer.purge(in_flight=True, in_queue=True)
            producer.flush(TIMEOUT_S)
        else:
            self.broker.stop()
        self.turns += 1

    def _producer(self) -> Producer:
        settings: dict[str, Any] = {"linger_ms": 5, "batch_size": 10_000, "enable_idempotence": True}
        return Producer(config(self.broker, **settings))

    def _send(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            for place in PLACES:
                topic, partition = split(place)
                number = self.history.number()
                self.history.maybe[place].append(number)
                producer.produce(
                    topic,
                    encode_value(topic, 0, partition, number),
                    key=key_of(number),
                    partition=partition,
                    timestamp=T + number,
                    on_delivery=self._acknowledge(place, number),
                )
            producer.poll(0)

    def _acknowledge(self, place: str, number: int) -> Callable[[Any, Any], None]:
        def acknowledge(error: Any, message: Any) -> None:
            if error is None:
                self.history.maybe[place].remove(number)
                self.history.acknowledge(place, message.offset(), number)

        return acknowledge

    def _trim(self) -> None:
        if end := self.history.end(TRIMMED):
            start = min(self.history.starts[TRIMMED] + TRIM, end)
            admin = AdminClient(config(self.broker))
            (deleted,) = admin.delete_records([TopicPartition(*split(TRIMMED), start)]).values()
            deleted.result(TIMEOUT_S)
            self.history.starts[TRIMMED] = start
            # A kill before the checkpoint would restore the deleted records, as is usual for a broker.
            wait_until(lambda: self._is_durable(start), "the start's checkpoint")

    def _is_durable(self, start: int) -> bool:
        """Return whether the start of the trimmed partition is on disk, as a line or in the first file name."""
        first = min(path.stem for path in (self.broker.data / TRIMMED).glob("*.log"))
        line = f"{' '.join(map(str, split(TRIMMED)))} {start}"
        return int(first) == start or line in self._lines("log-start-offset-checkpoint")

    def _commit(self) -> None:
        reader = Consumer(config(self.broker, group_id=GROUP, enable_auto_commit=False))
        for place in KEPT:
            if end := self.history.end(place):
                reader.commit(offsets=[TopicPartition(*split(place), end - 3)], asynchronous=False)
                self.history.groups[place] = end - 3
        reader.close()

    def _lines(self, checkpoint: str) -> list[str]:
        path = self.broker.data / checkpoint
        return path.read_text().splitlines()[2:] if path.exists() else []

    def _cleaned(self) -> int:
        lines = dict(line.rsplit(" ", 1) for line in self._lines("cleaner-offset-checkpoint"))
        return int(lines.get(" ".join(map(str, split(COMPACTED))), 0))

    # ------------------------------------------------------------ seeklog's turn

    def our_turn(self, end: str) -> None:
        saved, diary = self.work / "history.json", self.work / "diary"
        self.history.save(saved)
        command = [sys.executable, "-m", "soak.visitor", str(self.broker.data), str(saved), str(diary), end]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
        read_diary(diary, self.history)
        assert done.returncode == (-9 if end == "killed" else 0), done.stderr[-3000:]
        wrong = list(alarms("verify", run_seeklog("verify", str(self.broker.data))))
        assert not wrong, "\n".join(wrong[:10])
        self.turns += 1


def play(version: str, work: Path, rounds: int, first: int = 0, *, is_shown: bool = False) -> None:
    """Play rounds, and optionally write the row for the docs."""
    game = Game(version, work)
    done = 0
    fault = "0 lost, 0 offsets given twice"
    try:
        game.begin()
        for number in range(first, first + rounds):
            theirs, ours = ENDS[number % len(ENDS)]
            fault = f"in round {done + 1} ({theirs}, {ours})"
            game.broker_turn(theirs)
            game.our_turn(ours)
            game.broker.start()
            done += 1
        fault = "in the last look of the broker"
        game.check_broker()
        fault = "0 lost, 0 offsets given twice"
    finally:
        game.broker.kill()
        if is_shown:
            show(game, done, fault)


def show(game: Game, done: int, fault: str) -> None:
    history = game.history
    put_row(
        "a directory written in turn by a broker and by seeklog",
        kafka=game.broker.version,
        rounds=f"{done}, half of the {game.turns} ends by SIGKILL",
        records=history.record_count,
        faults=f"{fault}; {history.checked:,} reads checked, {len(history.adopted)} kept that nobody acknowledged",
    )


@pytest.mark.id("ping-pong-twice")
def test_broker_and_seeklog_write_in_turn_twice(tmp_path: Path) -> None:
    play(VERSIONS[0], tmp_path, rounds=2, first=2)


@pytest.mark.id("ping-pong-ten-times")
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_broker_and_seeklog_write_in_turn_ten_times(tmp_path: Path, version: str) -> None:
    play(version, tmp_path, rounds=10, is_shown=True)
