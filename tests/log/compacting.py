"""Helpers for tests of compaction: a compacted log with few keys, and the records that must stay in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from log.workbench import QuickFiles, open_log, segment_bases
from seeklog import Log, Record

DAY_MS = 24 * 3600 * 1000
WORDS: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 700, "index_interval_bytes": 100}
MORE = ("none", "gzip", "snappy", "lz4", "zstd")


def open_compacted(path: Path, **settings: Any) -> Log:
    return open_log(path, **(WORDS | settings))


def put(log: Log, key: str, value: bytes | None) -> int:
    return log.append(value, key=key.encode())


def churn(log: Log, count: int, *, keys: int = 7, seed: int = 1, tombstones: float = 0.0) -> None:
    """Append records of a few keys, in batches of several sizes."""
    chance = random.Random(seed)
    while count > 0:
        some = [
            Record(
                None if chance.random() < tombstones else b"%d" % chance.randrange(10**6),
                key=b"k%d" % chance.randrange(keys),
            )
            for _ in range(chance.randrange(1, 5))
        ]
        log.append_many(some)
        count -= len(some)


def everything(log: Log) -> list[Record]:
    return list(log.scan())


def latest(records: Sequence[Record], *, below: int) -> list[Record]:
    """Return the records that must stay: the last one of each key below an offset, and every record after it."""
    last = {record.key: record.offset for record in records if record.offset < below}
    return [record for record in records if record.offset >= below or last[record.key] == record.offset]


def active_base(path: Path) -> int:
    return segment_bases(path)[-1]


class Crashed(BaseException):
    """The process has crashed."""


class CrashingFiles(QuickFiles):
    """A disk whose process crashes at the nth rename, removal or sync of the directory."""

    def __init__(self) -> None:
        self.left = -1

    def step(self) -> None:
        if self.left == 0:
            raise Crashed
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.step()
