"""Stores to archive, their archives, and a directory that keeps a diary."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from log.workbench import START_MS, QuickFiles, segment_bases, value_of
from seeklog import Record, Store, TopicPartition, names
from seeklog.archive.archiving import archive as archive_to_depot
from seeklog.archive.manifest import Manifest, decode_manifest
from seeklog.archive.planning import Rules
from seeklog.files.depot import DirectoryDepot
from seeklog.store import archive_source
from seeklog.topics.description import Archived

SEGMENT_BYTES = 23_000
VALUE_BYTES = 100


def fill(store: Store, count: int, *, topic: str = "orders", partition: int = 0) -> None:
    """Append batches of ten records, a second apart, about 20 per segment. Then seal the rolled segments."""
    with store._table.writing(TopicPartition(topic, partition)) as log:
        for first in range(log.log_end_offset, log.log_end_offset + count, 10):
            log.append_many(
                Record(value_of(number, size=VALUE_BYTES), key=b"", timestamp_ms=START_MS + number * 1000)
                for number in range(first, first + 10)
            )
        log.flush()


def sealed_end(root: Path, partition: str = "orders-0") -> int:
    return segment_bases(root / partition)[-1]


def manifest_of(archive: Path) -> Manifest:
    return decode_manifest((archive / names.ARCHIVE).read_bytes(), path="")


def check_same(cold: Store, store: Store, *, topic: str = "orders", partition: int = 0) -> None:
    """Goal: the archive holds exactly the records below the source's active segment."""
    theirs, ours = store.log(topic, partition), cold.log(topic, partition)
    end = sealed_end(store.path, f"{topic}-{partition}")
    assert ours.high_watermark == ours.log_end_offset == end
    assert list(ours.scan()) == list(theirs.scan(ours.log_start_offset, end))


class CountingDepot(DirectoryDepot):
    """A directory with a diary of the files written and removed."""

    def __init__(self, path: Path, *, fail_at: int = -1) -> None:
        super().__init__(str(path), files=QuickFiles())
        self.puts: list[str] = []
        self.removed: list[str] = []
        self.fail_at = fail_at

    def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
        if len(self.puts) == self.fail_at:
            raise OSError(5, "the network went away", path)
        self.puts.append(path)
        super().put(path, parts)

    def remove(self, path: str) -> None:
        self.removed.append(path)
        super().remove(path)


def archive_to(depot: CountingDepot, store: Store, **rules: Any) -> Archived:
    source = archive_source(store, include_active=rules.get("include_active", False))
    return archive_to_depot(source, depot, Rules(**rules))
