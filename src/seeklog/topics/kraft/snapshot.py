"""Snapshots of a KRaft cluster's metadata, of which `bootstrap.checkpoint` is one.

A snapshot is a file of record batches of magic 2, offsets from 0 on:

    a control batch    one SnapshotHeaderRecord: key int16 0, int16 3; value int16 0, int64 timestamp, no tagged fields
    batches            the values are metadata records (`metadata`)
    a control batch    one SnapshotFooterRecord: key int16 0, int16 4; value int16 0, no tagged fields

A formatted broker without `__cluster_metadata-0` reads `bootstrap.checkpoint` as the first records of its cluster. It
accepts any metadata records there, so they can include the topics of a store.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from seeklog.errors import CorruptionError, counted
from seeklog.record.batch import decode_records, encode_batch, split_batches
from seeklog.record.record import Record
from seeklog.topics.kraft.metadata import FeatureLevel, MetadataRecord, Written, decode_metadata, encode_metadata

_HEADER_KEY: Final = struct.pack(">hh", 0, 3)
_FOOTER_KEY: Final = struct.pack(">hh", 0, 4)
_FOOTER_VALUE: Final = struct.pack(">hb", 0, 0)
# A batch of metadata may have 8 MiB; a record here has at most a few hundred bytes.
RECORDS_PER_BATCH: Final = 1000

# The features of each version by `StorageTool version-mapping`, in the order in which `StorageTool format` writes them.
_FEATURES: Final = (
    "metadata.version",
    "eligible.leader.replicas.version",
    "group.version",
    "share.version",
    "streams.version",
    "transaction.version",
)
FEATURE_LEVELS: Final = {
    "4.0": (25, 0, 1, 0, 0, 2),
    "4.1": (27, 1, 1, 0, 0, 2),
    "4.2": (29, 1, 1, 1, 1, 2),
    "4.3": (30, 1, 1, 1, 1, 2),
}
"""The levels of these features in each version of Kafka; 0 if it does not have the feature."""


def feature_records(kafka_version: str) -> list[FeatureLevel]:
    """Return the features of a new cluster of a Kafka version."""
    levels = zip(_FEATURES, FEATURE_LEVELS[kafka_version], strict=True)
    return [FeatureLevel(name=name, level=level) for name, level in levels if level]


def encode_snapshot(values: Sequence[bytes], *, now_ms: int) -> bytes:
    """Encode metadata records as a snapshot."""
    header = Record(struct.pack(">hqb", 0, 0, 0), key=_HEADER_KEY)
    parts = [encode_batch([header], now_ms=now_ms, control=True)]
    next_offset = 1
    for start in range(0, len(values), RECORDS_PER_BATCH):
        records = [Record(value) for value in values[start : start + RECORDS_PER_BATCH]]
        parts.append(encode_batch(records, now_ms=now_ms, base_offset=next_offset))
        next_offset += len(records)
    footer = Record(_FOOTER_VALUE, key=_FOOTER_KEY)
    parts.append(encode_batch([footer], now_ms=now_ms, base_offset=next_offset, control=True))
    return b"".join(parts)


def encode_bootstrap(records: Sequence[Written], *, now_ms: int) -> bytes:
    """Encode a `bootstrap.checkpoint`."""
    return encode_snapshot([encode_metadata(record) for record in records], now_ms=now_ms)


def decode_snapshot(data: bytes, *, path: str) -> list[MetadataRecord]:
    """Decode the metadata records that seeklog uses. Raises `CorruptionError` if the snapshot is torn or damaged."""
    try:
        batches = list(split_batches(data))
        size = sum(batch.header.size for batch in batches)
        if (
            size != len(data)
            or len(batches) < 2
            or not all(batch.header.is_control for batch in (batches[0], batches[-1]))
        ):
            raise CorruptionError(
                f"a snapshot of {counted(len(data), 'byte')} does not end with its footer", position=size
            )
        return [
            record
            for batch in batches
            for stored in decode_records(batch.raw)
            if stored.value is not None and (record := decode_metadata(stored.value)) is not None
        ]
    except CorruptionError as error:
        raise error.located(path) from error
