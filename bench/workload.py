"""The records of all contenders: 8-byte keys, 100-byte values, no headers, no compression.

Records repeat after `CYCLE`, so that a log of any size can be built from one encoded piece, and every record can be
computed from its offset.
"""

from __future__ import annotations

import random
import time
from functools import cache
from typing import TYPE_CHECKING, Final

from seeklog import Log, LogConfig, Record
from seeklog.record.batch import encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.peers.naive import NaiveLog
    from bench.peers.sqlite import Row, SqliteLog

KEY_SIZE: Final = 8
VALUE_SIZE: Final = 100
# 140 records make a batch of 16,517 bytes, just above 16 KB.
RECORDS_PER_16KB_BATCH: Final = 140
# 64 of these batches have 1.06 MB, one `append_batches` of the durable bulk figure.
CYCLE: Final = 64 * RECORDS_PER_16KB_BATCH
# The current time, so that retention deletes nothing.
TIMESTAMP_MS: Final = int(time.time() * 1000)
SEED: Final = 20_240_229


@cache
def pairs() -> list[tuple[bytes, bytes]]:
    """Return one cycle of (key, value)."""
    source = random.Random(SEED)
    return [(number.to_bytes(KEY_SIZE, "big"), source.randbytes(VALUE_SIZE)) for number in range(CYCLE)]


def make_records(count: int) -> list[Record]:
    """Return new `Record` objects."""
    return [Record(value=pairs()[n % CYCLE][1], key=pairs()[n % CYCLE][0]) for n in range(count)]


def make_rows(start: int, count: int) -> list[Row]:
    """Return the same records as rows of a table."""
    cycle = pairs()
    return [(offset, TIMESTAMP_MS, *cycle[offset % CYCLE]) for offset in range(start, start + count)]


@cache
def encoded_cycle(records_per_batch: int) -> bytes:
    """Return one cycle encoded as batches of `records_per_batch` records."""
    records = [Record(value=value, key=key, timestamp_ms=TIMESTAMP_MS) for key, value in pairs()]
    return b"".join(
        encode_batch(records[first : first + records_per_batch], base_offset=first)
        for first in range(0, CYCLE, records_per_batch)
    )


def whole_cycles(count: int) -> int:
    """Return `count` rounded up to whole cycles."""
    return -(-count // CYCLE) * CYCLE


def random_offsets(count: int, *, below: int) -> list[int]:
    source = random.Random(SEED)
    return [source.randrange(below) for _ in range(count)]


def fill(log: Log, count: int, *, records_per_batch: int) -> None:
    """Append whole cycles, at least `count` records, with `append_batches`."""
    piece = encoded_cycle(records_per_batch)
    for _ in range(whole_cycles(count) // CYCLE):
        log.append_batches(piece)


def build_log(path: Path, count: int, *, records_per_batch: int) -> None:
    """Create a log of whole cycles and close it."""
    with Log(path, config=LogConfig(flush="os")) as log:
        fill(log, count, records_per_batch=records_per_batch)


def fill_naive(log: NaiveLog, count: int) -> None:
    cycle = pairs()
    append = log.append
    for _ in range(whole_cycles(count) // CYCLE):
        for key, value in cycle:
            append(key, value)


def fill_sqlite(log: SqliteLog, count: int) -> None:
    for start in range(0, whole_cycles(count), CYCLE):
        log.append_many(make_rows(start, CYCLE))
    log.checkpoint()


def check_record(offset: int, record: tuple[int, bytes | None, bytes | None]) -> None:
    """Raise `ValueError` unless a contender returned the record at an offset."""
    if record != (offset, *pairs()[offset % CYCLE]):
        raise ValueError(f"a read of offset {offset} returned another record, at {record[0]}")


def segment_fetches(directory: Path) -> Iterator[bytes]:
    """Yield a log of 16 KB batches in pieces of one cycle, about 1 MB, cut between batches."""
    size = len(encoded_cycle(RECORDS_PER_16KB_BATCH))
    for path in sorted(directory.glob("*.log")):
        with path.open("rb") as file:
            while piece := file.read(size):
                yield piece
