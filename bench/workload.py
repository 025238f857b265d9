"""The records that every contender is given: 8-byte keys, 100-byte values, no headers, no compression.

Records repeat after `CYCLE`, so that a log of any size is built from one ready piece of bytes and every
record in it can still be foretold from its offset.
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
# 140 such records make a batch of 16,517 bytes: the first round number of them above 16 KB.
RECORDS_PER_16KB_BATCH: Final = 140
# 64 of those batches: 1.06 MB, one `append_batches` of the durable bulk figure.
CYCLE: Final = 64 * RECORDS_PER_16KB_BATCH
# Stamped with the present: retention by time must find nothing to delete.
TIMESTAMP_MS: Final = int(time.time() * 1000)
SEED: Final = 20_240_229


@cache
def pairs() -> list[tuple[bytes, bytes]]:
    """Return one cycle of (key, value)."""
    source = random.Random(SEED)
    return [(number.to_bytes(KEY_SIZE, "big"), source.randbytes(VALUE_SIZE)) for number in range(CYCLE)]


def make_records(count: int) -> list[Record]:
    """Return new records, each its own object, as a caller would have made them."""
    return [Record(value=pairs()[n % CYCLE][1], key=pairs()[n % CYCLE][0]) for n in range(count)]


def make_rows(start: int, count: int) -> list[Row]:
    """Return the same records as rows of a table."""
    cycle = pairs()
    return [(offset, TIMESTAMP_MS, *cycle[offset % CYCLE]) for offset in range(start, start + count)]


@cache
def encoded_cycle(records_per_batch: int) -> bytes:
    """Return one cycle as raw batches with `records_per_batch` records each."""
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
    """Append whole cycles, at least `count` records, through the door that takes ready batches."""
    piece = encoded_cycle(records_per_batch)
    for _ in range(whole_cycles(count) // CYCLE):
        log.append_batches(piece)


def build_log(path: Path, count: int, *, records_per_batch: int) -> None:
    """Make a closed seeklog log of whole cycles."""
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


def check_record(offset: int, found: tuple[int, bytes | None, bytes | None]) -> None:
    """Raise unless a contender returned the record that was asked for: a fast wrong answer is no figure."""
    if found != (offset, *pairs()[offset % CYCLE]):
        raise ValueError(f"offset {offset} came back as another record, at {found[0]}")


def segment_fetches(directory: Path) -> Iterator[bytes]:
    """Yield the bytes of a log of 16 KB batches in pieces of one cycle, about 1 MB, cut between batches."""
    size = len(encoded_cycle(RECORDS_PER_16KB_BATCH))
    for path in sorted(directory.glob("*.log")):
        with path.open("rb") as file:
            while piece := file.read(size):
                yield piece
