"""The record layers of other clients, on every bit of one batch."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from faults.flips import flipped
from log.workbench import START_MS
from seeklog import Record
from seeklog.record.batch import encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Facts = list[tuple[int, bytes | None, bytes | None]]

# Three records: a batch of about 170 bytes.
BATCH: Final = encode_batch(
    [
        Record(b"value %d of three" % number, key=b"key %d" % number, timestamp_ms=START_MS + number)
        for number in range(3)
    ],
    base_offset=1000,
)


def read_with(memory_records: Any, raw: bytes) -> Facts:
    """Read like a consumer that checks CRCs: a batch that fails is declared damage."""
    found: Facts = []
    records = memory_records(raw)
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise FailedCrc
        found += [(record.offset, record.key, record.value) for record in batch]
    return found


class FailedCrc(Exception):
    """The error of a consumer."""


def classify(read: Callable[[bytes], Facts], raw: bytes, *, expected: Facts, declared: tuple[type, ...]) -> str:
    """Return the verdict of a reader on a damaged batch."""
    try:
        found = read(raw)
    except FailedCrc:
        return "error"
    except Exception as error:  # declared errors are the library's
        return "error" if isinstance(error, declared) else "undeclared exception"
    if found == expected:
        return "same"
    return "fewer records" if len(found) < len(expected) else "wrong offsets or records"


def flips_read_by(peer: str, bits: Iterable[int]) -> Counter[str]:
    """Return the verdict on each flip for aiokafka, compiled or pure, or kafka-python."""
    package, _, is_pure = peer.partition(", ")
    module = {"aiokafka": "aiokafka", "kafka-python": "kafka"}[package]
    memory = importlib.import_module(f"{module}.record.memory_records")
    declared = (importlib.import_module(f"{module}.errors").KafkaError,)
    reader = memory.MemoryRecords
    pure: dict[str, Any] = {}
    if is_pure == "pure":
        reader = memory._MemoryRecordsPy
        default = importlib.import_module("aiokafka.record.default_records")
        legacy = importlib.import_module("aiokafka.record.legacy_records")
        pure = {"DefaultRecordBatch": default._DefaultRecordBatchPy, "LegacyRecordBatch": legacy._LegacyRecordBatchPy}

    def read(raw: bytes) -> Facts:
        return read_with(reader, raw)

    with mock.patch.dict(memory.__dict__, pure):
        expected = read(BATCH)
        return Counter(classify(read, flipped(BATCH, bit), expected=expected, declared=declared) for bit in bits)
