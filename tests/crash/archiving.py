"""A store that is archived to a directory of the same disk, and the reads of an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import seeklog
from log.workbench import START_MS
from seeklog import Record, Store, TopicPartition
from seeklog.errors import NotALog
from store.workbench import open_store

if TYPE_CHECKING:
    from seeklog.files import Files

ROOT: Final = "/data/store"
ARCHIVE: Final = "/data/cold/archive"


def open_on(files: Files) -> Store:
    # A segment has two batches.
    return open_store(ROOT, files=files, segment_bytes=500)  # type: ignore[arg-type]


def fill(store: Store, count: int) -> None:
    with store._table.writing(TopicPartition("orders", 0)) as log:
        for _ in range(count):
            first = log.log_end_offset
            log.append_many([Record(b"%0100d" % one, timestamp_ms=START_MS + one) for one in (first, first + 1)])
        log.flush()


def archived(files: Files) -> list[int] | None:
    """Return the offsets in an archive, or None if it has no valid manifest."""
    try:
        with seeklog.open(ARCHIVE, files=files, read_only=True, background=False) as cold:
            # While no segment was full there is a topic without partitions, or no topic.
            is_there = "orders" in cold.topics() and 0 in cold.topic("orders").partitions
            return [record.offset for record in cold.log("orders", 0).scan()] if is_there else []
    except NotALog:
        return None
