"""The binary side files of a log: indexes, seal, watermark, producer snapshot, key index."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Final

from fuzz.mutation import ODD_NUMBERS, put_number
from fuzz.target import Broken, Scramble, Target, enter
from record.batches import SMALL
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from seeklog.log.keys.index import HEAD_SIZE, encode_key_index, open_key_index, with_crcs
from seeklog.log.producers import ProducerEntry, WrittenBatch
from seeklog.log.side.producer_snapshot import decode_snapshot, encode_snapshot
from seeklog.log.side.seal import Seal, decode_seal, encode_seal
from seeklog.log.side.transaction_index import AbortedTransaction, encode_aborted
from seeklog.log.side.watermark import EXPLICIT, FOLLOWS_WRITE, decode_watermark, encode_watermark
from seeklog.record.crc import crc32c
from seeklog.record.index_lookup import entries_around
from seeklog.record.key_hash import hash_key
from seeklog.record.key_table import KeyTable

SEAL = Seal(40, 44, 500, 3, 1, 1_700_000_000_005, 1_700_000_001_000, 1, 2, 3, True)
_KEYS = [hash_key(key) for key in (b"k0", b"", b"k1")]


def mutator(reseal: Callable[[bytes], bytes]) -> Callable[[bytes, random.Random, Scramble], bytes]:
    """Return a mutator of numbers and bytes that usually corrects the checksum."""

    def mutate(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
        damaged = put_number(data, chance) if chance.randrange(2) else scramble(data)
        return reseal(damaged) if chance.randrange(8) else damaged

    return mutate


# ---------------------------------------------------------------- indexes, which have no checksum


def offset_index_seeds() -> Iterator[bytes]:
    yield from (b"", bytes(80))
    yield b"".join(OFFSET_ENTRY.pack(10 * n, 4096 * n) for n in range(1, 20))


def time_index_seeds() -> Iterator[bytes]:
    yield from (b"", bytes(120))
    yield b"".join(TIME_ENTRY.pack(1_700_000_000_000 + n, 10 * n) for n in range(1, 20))


_OFFSETS: Final = (40, 41, 49, *(number for number in ODD_NUMBERS if number >= 0))


def read_offset_index(data: bytes) -> None:
    index = OffsetIndex(40, data)
    entries = len(index)
    for number in _OFFSETS:
        found, floor = index.lookup(number), index.floor(number)
        if floor >= entries or (floor >= 0 and found.offset > number):
            raise Broken(f"offset {number} is found at {found}")
    entries_around(data, 57)
    list(index)


def read_time_index(data: bytes) -> None:
    index = TimeIndex(40, data)
    for number in ODD_NUMBERS:
        found = index.lookup(number)
        if found is not None and found.timestamp_ms > number:
            raise Broken(f"time {number} is found at {found}")
    list(index)


# ---------------------------------------------------------------- files with a checksum


def seal_seeds() -> Iterator[bytes]:
    yield encode_seal(SEAL)
    yield encode_seal(Seal(0, 2**62, 2**40, 2**40, 2**40, -1, 0, 0, 2**32 - 1, 0, False, clean_offset=2**61))


def seal_tail(data: bytes) -> bytes:
    return data[:-4] + struct.pack(">I", crc32c(data[:-4]))


def watermark_seeds() -> Iterator[bytes]:
    yield from (encode_watermark(FOLLOWS_WRITE, 0), encode_watermark(EXPLICIT, 2**62))


def seal_watermark(data: bytes) -> bytes:
    return struct.pack(">I", crc32c(data[4:])) + data[4:]


def snapshot_seeds() -> Iterator[bytes]:
    yield encode_snapshot([])
    batch = WrittenBatch(7, 900, 3, 1_700_000_000_000)
    yield encode_snapshot([ProducerEntry(id_, 1, (batch,), 1_700_000_000_000, -1, -1) for id_ in range(5)])


def seal_snapshot(data: bytes) -> bytes:
    return data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:]


def key_index_seeds() -> Iterator[bytes]:
    table = KeyTable(40)
    table.add(SMALL.encode(), 0, False, 2**62, 1 << 20)
    yield encode_key_index(table, SEAL)
    yield encode_key_index(KeyTable(40), SEAL)


def seal_key_index(data: bytes) -> bytes:
    pages = -(-len(data) // 4100)  # four bytes of CRC for each 4,096
    return with_crcs(data[: max(HEAD_SIZE, len(data) - 4 - 4 * pages)])


def read_key_index(data: bytes) -> None:
    entries = open_key_index(data, SEAL)
    if isinstance(entries, str):
        return
    for first in (0, 1, 2**63, 2**64 - 1, *(key[0] for key in _KEYS)):
        entries.may_hold(first)
        if any(not 0 <= offset < 2**32 + 40 for offset in entries.offsets_of(first)):
            raise Broken(f"offsets {entries.offsets_of(first)}")


def aborted_seeds() -> Iterator[bytes]:
    yield encode_aborted([AbortedTransaction(5, 1, 2, 3), AbortedTransaction(6, 2, 9, 10)])


enter(Target("offset_index", read_offset_index, offset_index_seeds, mutator(bytes), bytes, size_most=512))
enter(Target("time_index", read_time_index, time_index_seeds, mutator(bytes), bytes, size_most=512))
enter(Target("seal", decode_seal, seal_seeds, mutator(seal_tail), seal_tail, size_most=128))
enter(Target("watermark", decode_watermark, watermark_seeds, mutator(seal_watermark), seal_watermark, size_most=64))
enter(Target("snapshot", decode_snapshot, snapshot_seeds, mutator(seal_snapshot), seal_snapshot, size_most=1024))
enter(Target("key_index", read_key_index, key_index_seeds, mutator(seal_key_index), seal_key_index, size_most=8192))
