"""A process of a soak: reads a store that stays open, with every read method of a log.

    python -m soak.reader DIRECTORY LEDGER REPORT SEED

It runs until its stdin ends, then writes its report: the numbers of checked records and answers, wrong answers,
failures, and messages of the `seeklog` logger. Each fault is also printed to stderr at once.
"""

from __future__ import annotations

import json
import logging
import os
import random
import struct
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import seeklog
from seeklog import Log, Store
from seeklog.errors import OffsetOutOfRange, TopicNotFound
from soak.ledger import (
    COMPACTED,
    FLEETING,
    KEYS,
    PARTITIONS,
    PLAIN,
    Ledger,
    T,
    WrongAnswer,
    check_value,
    key_number,
    key_of,
)

PART = 3000
"""Of how many records an answer is at most: a question of a soak is short, so that many are asked."""


def expect(holds: bool, *facts: object) -> None:
    if not holds:
        raise WrongAnswer(" ".join(map(str, facts)))


class Reader:
    """The reads and their results."""

    def __init__(self, root: Path, ledger: Ledger, seed: int) -> None:
        self.ledger = ledger
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._random = random.Random(seed)
        self._store: Store = seeklog.open(root, read_only=True)
        self._questions: list[Callable[[], int]] = [
            *(partial(self._plain, ask) for ask in PLAIN_QUESTIONS),
            self._compacted_scan,
            self._compacted_keys,
            self._fleeting,
            self._describe,
        ]

    def ask_one(self) -> None:
        """Do the next read and record its result."""
        question = self._random.choice(self._questions)
        try:
            self.counts["records"] += question()
            self.counts["answers"] += 1
        except Exception as error:
            kind = "wrong answer" if isinstance(error, WrongAnswer) else "false alarm"
            self.fault(f"{kind}: {error!r} at {'; '.join(_lines(error))}")

    def fault(self, text: str) -> None:
        self.faults.append(text)
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._store.close()

    # ------------------------------------------------------------ nothing missing, nothing else

    def _plain(self, ask: Callable[[Log, int, int, Ledger], Iterator[tuple[int, bytes | None]]]) -> int:
        """Read from a known offset: all acknowledged records must be returned, up to a length."""
        partition = self._random.randrange(PARTITIONS)
        ledger = self.ledger
        acked, start = ledger.acked(partition), ledger.start(partition)
        if acked - start < 10:
            return 0
        offset = self._random.choice((start, max(start, acked - PART), self._random.randrange(start, acked)))
        log = self._store.log(PLAIN, partition)
        expected = offset
        try:
            for found, value in ask(log, offset, min(offset + PART, acked), ledger):
                if found != expected:
                    # Only a deletion may cause a gap, and only at the start.
                    expect(
                        expected < found <= ledger.start(partition),
                        ask.__name__, "of", PLAIN, partition, "from", offset, "gives", found, "for", expected,
                    )  # fmt: skip
                fields = check_value(value)
                expect((fields.topic, fields.partition, fields.number) == (PLAIN, partition, found), found, fields)
                expected = found + 1
        except OffsetOutOfRange as error:
            facts = (ask.__name__, "of", PLAIN, partition, "start", start, "acknowledged:", acked, error)
            expect(offset < ledger.start(partition), *facts)
            return 0
        end = min(offset + PART, acked)
        expect(
            expected >= end or end <= ledger.start(partition),
            ask.__name__, "of", PLAIN, partition, "from", offset, "ends at", expected, "acknowledged:", end,
        )  # fmt: skip
        return expected - offset

    # ------------------------------------------------------------ compaction: the newest of each key

    def _compacted_scan(self) -> int:
        before = [self.ledger.acked_of_key(key) for key in range(KEYS)]
        newest = [-1] * KEYS
        last, count = -1, 0
        for record in self._store.log(COMPACTED, 0).scan():
            expect(record.offset > last, COMPACTED, record.offset, "after", last)
            fields = check_value(record.value)
            expect(fields.topic == COMPACTED, record.offset, fields)
            expect(record.key == key_of(fields.number), record.offset, record.key, fields)
            expect(record.timestamp_ms == T + fields.number, record.offset, record.timestamp_ms, fields)
            number = key_number(record.key or b"")
            expect(fields.number > newest[number], "offset", record.offset, fields, "is not after", newest[number])
            newest[number] = fields.number
            last, count = record.offset, count + 1
        self.counts["keys at rest"] += self.ledger.check_newest(before, newest, "of", count, "up to", last)
        return count

    def _compacted_keys(self) -> int:
        log = self._store.log(COMPACTED, 0)
        for key in self._random.sample(range(KEYS), 8):
            acked = self.ledger.acked_of_key(key)
            record = log.latest_for_key(b"key-%d" % key)
            if acked < 0 and record is None:
                continue
            expect(record is not None, "no record of key", key, "though acknowledged:", acked)
            assert record is not None
            fields = check_value(record.value)
            expect(key_of(fields.number) == record.key == b"key-%d" % key, record.key, fields)
            sent = self.ledger.sent_of_key(key)
            expect(acked <= fields.number <= sent, "key", key, "has", fields.number, "not in", acked, sent)
        return 8

    # ------------------------------------------------------------ a topic that is deleted and created again

    def _fleeting(self) -> int:
        incarnation, is_there, acked = self.ledger.fleeting
        try:
            records = list(self._store.log(FLEETING, 0).scan())
        except TopicNotFound as error:
            is_still = is_there and self.ledger.fleeting[:2] == (incarnation, True)
            expect(not is_still, FLEETING, incarnation, "is there:", repr(error), "at", *_lines(error))
            return 0
        all_fields = [check_value(record.value) for record in records]
        expect(all(fields.topic == FLEETING for fields in all_fields), all_fields[:1])
        expect(len({fields.incarnation for fields in all_fields}) <= 1, "two incarnations in one scan")
        expect(
            [r.offset for r in records] == [t.number for t in all_fields] == list(range(len(all_fields))),
            all_fields[:3],
        )
        if is_there and self.ledger.fleeting[:2] == (incarnation, True):
            expect(not all_fields or all_fields[0].incarnation == incarnation, all_fields[:1], "is not", incarnation)
            expect(len(all_fields) >= acked, FLEETING, "has", len(all_fields), "acknowledged:", acked)
        return len(all_fields)

    def _describe(self) -> int:
        ends = [self.ledger.acked(partition) for partition in range(PARTITIONS)]
        topics = self._store.topics()
        expect({PLAIN, COMPACTED} <= set(topics), topics)
        for each in self._store.describe_topic(PLAIN).partitions:
            expect(each.high_watermark >= ends[each.partition], each, ends)
            expect(each.log_start_offset <= self.ledger.start(each.partition), each)
        return 0


def _lines(error: BaseException) -> list[str]:
    return [f"{Path(at.filename).name}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__)][-6:]


# The reads of the topic without gaps, each as (offset, value).

Pairs = Iterator[tuple[int, bytes | None]]


def scan(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    for record in log.scan(offset, end):
        yield record.offset, record.value


def scan_reverse(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    yield from reversed([(record.offset, record.value) for record in log.scan_reverse(offset, end)])


def scan_arrow(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    for batch in log.scan_arrow(offset, end, columns=["offset", "value"]):
        yield from zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)


def read(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    while offset < end:
        before = offset
        for record in log.read(offset, max_records=200):
            yield record.offset, record.value
            offset = record.offset + 1
        if offset == before:
            return


def follow(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    for record in log.follow(offset, timeout_ms=100):
        yield record.offset, record.value
        if record.offset >= end + 50:
            return


def at_time(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    try:
        found = log.offset_at_time(T + offset)
    except OffsetOutOfRange as error:
        raise WrongAnswer(f"offset_at_time of {offset} fails: {error}") from error
    expect(found is not None and found >= offset, "the time of", offset, "is found at", found)
    if found != offset:
        record = next(log.read(found or 0), None)
        start = ledger.start(check_value(record.value).partition) if record is not None else -1
        expect(found is not None and found <= start, "the time of", offset, "is found at", found, "start", start)
    yield from scan(log, offset, end, ledger)


def latest_of_key(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    key = key_of(end - 1)
    found = log.latest_for_key(key, end=end)
    if found is None:
        partition = check_value(next(log.read(log.log_start_offset)).value).partition
        expect(end <= ledger.start(partition), "no record of key", key, "below", end)
        return
    expect((found.offset, found.key) == (end - 1, key), key, "below", end, "is found at", found.offset)
    yield from scan(log, offset, end, ledger)


def seek(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    place = log.seek(offset)
    expect(place.segment <= offset, place, "for", offset)
    yield from read(log, offset, end, ledger)


def read_batches(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    position = offset
    while position < end:
        batches = list(log.read_batches(position, max_bytes=100_000))
        if not batches:
            break
        expect(batches[0].base_offset <= position <= batches[0].last_offset, batches[0].header, "for", position)
        for batch in batches:
            expect(batch.base_offset <= position, "a gap before", batch.header)
            position = batch.next_offset
    expect(position >= end, "batches end at", position, "acknowledged:", end)
    yield from scan(log, offset, end, ledger)


def read_ranges(log: Log, offset: int, end: int, ledger: Ledger) -> Pairs:
    position = offset
    while position < end:
        ranges = log.read_ranges(position, max_bytes=100_000)
        if not ranges:
            break
        for each in ranges:
            data = os.pread(each.fileno(), each.size, each.position)
            expect(len(data) == each.size, each)
            expect(struct.unpack_from(">q", data)[0] == each.base_offset <= position, each, "for", position)
            position = each.next_offset
    expect(position >= end, "ranges end at", position, "acknowledged:", end)
    yield from scan(log, offset, end, ledger)


PLAIN_QUESTIONS = (
    scan,
    scan_reverse,
    scan_arrow,
    read,
    follow,
    at_time,
    latest_of_key,
    seek,
    read_batches,
    read_ranges,
)


class Complaints(logging.Handler):
    """Records the messages of seeklog's logger."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(logging.WARNING)
        self._reader = reader

    def emit(self, record: logging.LogRecord) -> None:
        self._reader.fault(f"false alarm: logged {record.getMessage()}")


def when_input_ends() -> threading.Event:
    """Return an event that is set when the parent closes stdin or ends."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    return over


def main() -> None:
    root, ledger, report, seed = sys.argv[1:]
    over = when_input_ends()
    reader = Reader(Path(root), Ledger(Path(ledger)), int(seed))
    logging.getLogger("seeklog").addHandler(Complaints(reader))
    reader.ask_one()
    while not over.is_set():
        reader.ask_one()
    reader.close()
    Path(report).write_text(json.dumps({"counts": reader.counts, "faults": reader.faults}))


if __name__ == "__main__":
    main()
