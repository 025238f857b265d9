"""The record layers of two Kafka clients for Python: aiokafka's, which is compiled, and kafka-python's.

Both decode the bytes of a seeklog segment from memory, in fetches of about 1 MB as in a consumer. Their clock does not
include reading the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.record import memory_records as aiokafka_records  # type: ignore[import-untyped]
from kafka.record import memory_records as kafka_python_records  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Sequence


class CompiledReaderMissing(Exception):
    """aiokafka is installed without its extension modules, which would be much slower."""


def count_with_aiokafka(fetches: Sequence[bytes], *, check_crc: bool) -> int:
    """Decode every record with aiokafka's compiled reader; return their number."""
    memory_records = aiokafka_records.MemoryRecords
    if "_crecords" not in memory_records.__module__:
        raise CompiledReaderMissing(memory_records.__module__)
    return _count(memory_records, fetches, check_crc=check_crc)


def count_with_kafka_python(fetches: Sequence[bytes], *, check_crc: bool) -> int:
    """Decode every record with kafka-python's reader; return their number."""
    return _count(kafka_python_records.MemoryRecords, fetches, check_crc=check_crc)


def _count(memory_records: Any, fetches: Sequence[bytes], *, check_crc: bool) -> int:
    count = 0
    for fetch in fetches:
        records = memory_records(fetch)
        while (batch := records.next_batch()) is not None:
            if check_crc and not batch.validate_crc():
                raise ValueError("a batch of the benchmark fails its CRC")
            for _record in batch:
                count += 1
    return count
