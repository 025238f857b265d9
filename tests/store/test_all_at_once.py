"""One store, and all at work on it: a producer, compaction, retention, readers and an archive in other processes."""

from __future__ import annotations

import multiprocessing
import random
import time
import traceback
from pathlib import Path
from typing import Any

import seeklog

KEYS = 300
PARTITIONS = 2
CONFIG = {"flush": "os", "segment.bytes": 60_000}


def _number(record: seeklog.Record) -> int:
    assert record.value is not None
    return int(record.value)


def _read(store: Path, is_over: Any, reports: Any) -> None:
    """Hold what the indexes of keys say against what a scan has seen before."""
    chance = random.Random(7)
    scans = 0
    try:
        with seeklog.open(store, read_only=True) as opened:
            logs = [opened.log("state", number) for number in range(PARTITIONS)]
            while not is_over.is_set():
                log = chance.choice(logs)
                latest: dict[bytes | None, int] = {}
                last = -1
                for record in log.scan():
                    assert record.offset > last, f"offset {record.offset} came behind {last}"
                    last = record.offset
                    assert _number(record) > latest.get(record.key, -1), f"{record.key!r} went back at {last}"
                    latest[record.key] = _number(record)
                for key in chance.sample(sorted(key for key in latest if key is not None), 20):
                    found = log.latest_for_key(key)
                    assert found is not None, f"{key!r} has vanished"
                    assert _number(found) >= latest[key], f"{key!r} was {latest[key]}, and now is {_number(found)}"
                scans += 1
        reports.put(("scans", scans))
    except BaseException:
        reports.put(("failed", traceback.format_exc()))


def _archive(store: Path, archive: Path, is_over: Any, reports: Any) -> None:
    rounds = 0
    try:
        while not is_over.is_set():
            with seeklog.open(store, read_only=True) as source:
                source.archive(archive, allow_gaps=True)
            with seeklog.open(archive, read_only=True) as copy:
                for topic in copy.topics():
                    for number in range(PARTITIONS):
                        offsets = [record.offset for record in copy.log(topic, number).scan()]
                        assert offsets == sorted(set(offsets))
            rounds += 1
        reports.put(("archives", rounds))
    except BaseException:
        reports.put(("failed", traceback.format_exc()))


def test_nobody_reads_what_is_old_gone_or_twice_while_others_write_compact_delete_and_archive(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    is_over, reports = spawn.Event(), spawn.Queue()
    path, archive = tmp_path / "store", tmp_path / "archive"
    newest: dict[bytes, int] = {}
    with seeklog.open(path, config=CONFIG) as store:
        store.create_topic("state", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        store.create_topic("events", partitions=PARTITIONS, config={"retention.bytes": 300_000})
        producer = store.producer(idempotence=True)

        def write(key: bytes, number: int) -> None:
            for topic in ("state", "events"):
                producer.send(topic, b"%d" % number, key=key)
            newest[key] = number

        for number in range(KEYS):
            write(b"key-%d" % number, number)
        producer.flush()
        others = [spawn.Process(target=_read, args=(path, is_over, reports)) for _ in range(2)]
        others.append(spawn.Process(target=_archive, args=(path, archive, is_over, reports)))
        for other in others:
            other.start()
        number, until = KEYS, time.monotonic() + 8
        while time.monotonic() < until and reports.empty():
            for _ in range(2000):
                number += 1
                write(b"key-%d" % random.randrange(KEYS), number)
            producer.flush()
            store.compact("state")
            store.maintain()
        is_over.set()
        told = dict(reports.get(timeout=120) for _ in others)
        for other in others:
            other.join(60)
        assert "failed" not in told, told["failed"]
        producer.close()
    with seeklog.open(path) as store:
        found = {key: store.latest_for_key("state", key) for key in newest}
        assert {key: _number(record) for key, record in found.items() if record is not None} == newest
