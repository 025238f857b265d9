"""Target 9: all kinds of work on one store at once, in threads and processes, checked by Jepsen's rules.

    events   two writing threads, deleted by size
    state    two writing threads, compacted
    orders   written by a separate process, read by a group of two consumers

Other threads and processes scan, follow from an offset and look up keys, and one archives.
"""

from __future__ import annotations

import multiprocessing
import pickle
import random
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import seeklog
from proof.history import History, Identity, Reading, Sent, check
from proof.part import Run, part
from seeklog import Store
from seeklog.errors import LogClosed, NotAccessible, OffsetOutOfRange

PARTITIONS: Final = 2
KEYS: Final = 300
CONFIG: Final = {"flush": "os", "segment.bytes": 60_000, "index.interval.bytes": 2_000}
TOPICS: Final = {
    "events": {"retention.bytes": 400_000},
    "state": {"cleanup.policy": "compact"},
    "orders": {"flush": "batch"},
}
COMPACTED: Final = [f"state-{number}" for number in range(PARTITIONS)]
TAIL: Final = 1_500  # the limit for repeated reads of a partition that only grows
PATIENCE_S: Final = 120


@part(
    9,
    "Write, read, roll, delete, compact, archive and consume in groups at once, from threads and processes",
    covers=("archive", "clients", "groups", "store"),
)
def all_at_once(run: Run) -> None:
    seconds = 4 if run.is_short else 60
    path, archive = run.scratch / "store", run.scratch / "archive"
    spawn = multiprocessing.get_context("spawn")
    is_over = spawn.Event()
    history = History()
    counts: Counter[str] = Counter()
    with seeklog.open(path, config=CONFIG) as store:
        for topic, config in TOPICS.items():
            store.create_topic(topic, partitions=PARTITIONS, config=config)
        works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (_write_orders, (path,)),
            (_consume_orders, (path, "first")),
            (_consume_orders, (path, "second")),
            (_read_in_process, (path, 1)),
            (_read_in_process, (path, 2)),
            (_archive, (path, archive)),
        ]
        processes = [
            spawn.Process(target=_in_process, args=(work, arguments, is_over, run.scratch / f"history-{number}"))
            for number, (work, arguments) in enumerate(works)
        ]
        threads = [
            _Thread(_write, store, ["events", "state"], number, is_over, random.Random(run.seed + number))
            for number in (1, 2)
        ]
        threads += [_Thread(_read_on, store, f"thread {number}", is_over) for number in (1, 2)]
        for each in [*processes, *threads]:
            each.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and all(each.is_alive() for each in [*processes, *threads]):
            counts["compactions"] += len(store.compact("state"))
            counts["segments deleted"] += store.maintain()
            time.sleep(0.05)  # so that the writers get their turn
        is_over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
            _collect(run, history, thread.history, thread.failure, "a thread")
        for number, process in enumerate(processes):
            process.join(PATIENCE_S)
            what = f"{works[number][0].__name__[1:]}"
            if process.exitcode != 0:
                process.kill()
                died = signal.Signals(-process.exitcode).name if (process.exitcode or 0) < 0 else process.exitcode
                run.violation(f"{what}: ended with {died}")
                continue
            mine, failure = pickle.loads((run.scratch / f"history-{number}").read_bytes())
            _collect(run, history, mine, failure, what)
    with seeklog.open(path) as store:
        history.add(_read_all(store, "the last reader", list(TOPICS), tail=None))
        _check_keys(run, store, history)
    for anomaly in check(history, compacted=COMPACTED):
        run.violation(anomaly)
    counts["archives"] = sum(reading.reader == "archive" for reading in history.readings) // PARTITIONS
    run.case(len(history.sent) + sum(len(reading.seen) for reading in history.readings))
    run.note(
        f"{seconds} s, {len(history.sent):,} acknowledged, {len(history.readings):,} reads, "
        + ", ".join(f"{count:,} {what}" for what, count in counts.items())
    )


def _collect(run: Run, history: History, mine: History, failure: str, who: str) -> None:
    history.add(mine)
    if failure:
        run.violation(f"{who}: {failure}")


def _identity(record: seeklog.Record) -> Identity:
    assert record.value is not None
    writer, number = record.value.split(b" ")[:2]
    return Identity(int(writer), int(number))


class _Thread(threading.Thread):
    """Works in this process."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        super().__init__()
        self._work, self._arguments = work, arguments
        self.history = History()
        self.failure = ""

    def run(self) -> None:
        try:
            self._work(self.history, *self._arguments)
        except BaseException:
            self.failure = traceback.format_exc()


def _in_process(work: Callable[..., None], arguments: tuple[Any, ...], is_over: Any, answer: Path) -> None:
    history, failure = History(), ""
    try:
        work(history, *arguments, is_over)
    except BaseException:
        failure = traceback.format_exc()
    answer.write_bytes(pickle.dumps((history, failure)))


def _write(history: History, store: Store, topics: list[str], writer: int, is_over: Any, chance: random.Random) -> None:
    number = 0
    with store.producer(idempotence=True, linger_ms=1) as producer:
        while not is_over.is_set():
            began = time.monotonic()
            under_way = []
            for _ in range(chance.randrange(1, 60)):
                key = b"key-%d" % chance.randrange(KEYS)
                padding = b"." * chance.randrange(200)
                under_way += [
                    (key, number, producer.send(topic, b"%d %d %s" % (writer, number, padding), key=key))
                    for topic in topics
                ]
                number += 1
            producer.flush()
            ended = time.monotonic()
            for key, sent_number, future in under_way:
                topic, partition, offset = future.result(PATIENCE_S)
                identity = Identity(writer, sent_number)
                history.sent.append(Sent(f"{topic}-{partition}", identity, offset, key, began, ended))
            time.sleep(chance.random() * 0.04)  # so that readers get to the end now and then


def _write_orders(history: History, path: Path, is_over: Any) -> None:
    with seeklog.open(path) as store:
        _write(history, store, ["orders"], 3, is_over, random.Random(3))


def _consume_orders(history: History, path: Path, name: str, is_over: Any) -> None:
    """Consume as a member of a group: no member sees a record that another has committed."""
    readings: dict[tuple[str, int], Reading] = {}
    with (
        seeklog.open(path) as store,
        store.consumer(["orders"], group="fraud", auto_offset_reset="earliest", client_id=name) as consumer,
    ):
        while not is_over.is_set():
            for record in consumer.poll(50):
                place = (record.topic, record.partition)
                reading = readings.get(place)
                if reading is None or record.offset != reading.end:
                    # The first record, or another member had the partition in between.
                    reading = Reading(f"{name} of the group", f"orders-{record.partition}", time.monotonic(), 0)
                    reading.start = reading.end = record.offset
                    reading.is_whole = False
                    readings[place] = reading
                    history.readings.append(reading)
                reading.seen.append((record.offset, _identity(record)))
                reading.end = record.offset + 1
            consumer.commit()


def _read_in_process(history: History, path: Path, number: int, is_over: Any) -> None:
    """Scan with an open store and with a reopened one, and look up keys."""
    chance = random.Random(number)
    with seeklog.open(path, read_only=True) as standing:
        while not is_over.is_set():
            if chance.random() < 0.7:
                history.add(_read_all(standing, f"process {number}", list(TOPICS)))
            else:
                with seeklog.open(path, read_only=True) as fresh:
                    history.add(_read_all(fresh, f"process {number}", list(TOPICS)))
            _ask_for_keys(standing, history, chance)
            time.sleep(chance.random() * 0.2)


def _read_all(store: Store, reader: str, topics: list[str], *, tail: int | None = TAIL) -> History:
    history = History()
    for topic in topics:
        for number in store.topic(topic).partitions:
            log = store.log(topic, number)
            began = time.monotonic()
            start, end = log.log_start_offset, log.high_watermark
            if tail is not None and topic != "state":
                start = max(start, end - tail)
            reading = Reading(reader, f"{topic}-{number}", began, start, end)
            try:
                for record in log.scan(reading.start, reading.end):
                    reading.seen.append((record.offset, _identity(record)))
            except OffsetOutOfRange as error:
                # Retention deleted the rest before it was read, and the reader got an error.
                last = reading.seen[-1][0] + 1 if reading.seen else reading.start
                if last >= error.log_start_offset:
                    raise
                reading.gone.append(range(last, reading.end))
            reading.ended = time.monotonic()
            history.readings.append(reading)
    return history


def _ask_for_keys(store: Store, history: History, chance: random.Random) -> None:
    """Compare key lookups with an earlier scan: no key goes back."""
    number = chance.randrange(PARTITIONS)
    seen = next(each for each in reversed(history.readings) if each.place == f"state-{number}").seen
    log = store.log("state", number)
    for offset, _ in chance.sample(seen, min(20, len(seen))):
        record = next(log.read(offset, max_records=1))
        if record.offset == offset:
            assert record.key is not None
            found = log.latest_for_key(record.key)
            assert found is not None, f"{record.key!r} has vanished"
            assert found.offset >= offset, f"{record.key!r} was at {offset}, and now is at {found.offset}"


def _read_on(history: History, store: Store, reader: str, is_over: Any) -> None:
    """Read from one offset to the next, as a follower does, and from the start after retention has overtaken it."""
    readings = [Reading(reader, f"events-{number}", began=0.0, start=0) for number in range(PARTITIONS)]
    while not is_over.is_set():
        for number, reading in enumerate(readings):
            try:
                for record in store.log("events", number).read(reading.end, max_records=100):
                    assert record.offset == reading.end, f"{reading.place}: {record.offset} after {reading.end - 1}"
                    reading.seen.append((record.offset, _identity(record)))
                    reading.end += 1
            except OffsetOutOfRange as error:
                if reading.end >= error.log_start_offset:
                    raise
                reading.gone.append(range(reading.end, error.log_start_offset))
                reading.end = error.log_start_offset
            except LogClosed:
                continue  # the store has opened the partition for writing: get the log again
        time.sleep(0.005)
    for reading in readings:
        reading.ended = time.monotonic()
        history.readings.append(reading)


def _archive(history: History, path: Path, archive: Path, is_over: Any) -> None:
    while not is_over.is_set():
        try:
            with seeklog.open(path, read_only=True) as source:
                source.archive(archive, allow_gaps=True)
        except NotAccessible as error:
            # The same segments are compacted far more often here than in practice.
            if "changes faster than it can be copied" not in str(error):
                raise
            continue
        with seeklog.open(archive, read_only=True) as copy:
            # Each archive is a copy of one moment: its manifest declares the ranges that compaction removed.
            copied = _read_all(copy, "archive", [topic for topic in TOPICS if topic in copy.topics()])
        for reading in copied.readings:
            reading.is_whole = False
        history.add(copied)


def _check_keys(run: Run, store: Store, history: History) -> None:
    """Check that a lookup finds the last record of each key."""
    last: dict[bytes, Sent] = {}
    for sent in history.sent:
        if sent.place in COMPACTED and (sent.key not in last or sent.offset > last[sent.key].offset):
            last[sent.key] = sent
    for key, sent in last.items():
        found = store.topic("state").latest(key)
        if found is None or found.offset != sent.offset:
            run.violation(f"{sent.place}: {key!r} was last sent to {sent.offset}, found {found}")
    run.case(len(last))
