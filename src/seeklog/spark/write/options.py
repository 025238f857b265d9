"""The options of a write, named as in Spark's Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from seeklog.errors import InvalidConfig
from seeklog.names import check_topic_name
from seeklog.record.codec import CODEC_IDS
from seeklog.spark.option_map import OptionMap, store_path

# Larger batches compress better, but a reader must decode a whole batch to reach one record.
BATCH_BYTES: Final = 64 << 10
LOCK_TIMEOUT_MS: Final = 30_000
_SHARED: Final = (
    "path",
    "topic",
    "compression",
    "kafka.compression.type",
    "batchBytes",
    "kafka.batch.size",
    "lockTimeout",
)
_BATCH_ONLY: Final = ("txnAppId", "txnVersion")
OPTIONS: Final = (*_SHARED, *_BATCH_ONLY)
# Spark adds these to the options of a stream.
_FROM_SPARK: Final = ("checkpointLocation", "queryName")
_REFUSED_ALL: Final[Mapping[str, str]] = {
    "subscribe": "it selects what to read; use topic to write",
    "assign": "it selects what to read; use topic to write",
    "includeHeaders": "a column named headers is always written; remove it",
}
_REFUSED_IN_STREAM: Final = {
    **_REFUSED_ALL,
    **dict.fromkeys(_BATCH_ONLY, "a stream writes each batch once anyway, by query id and batch id; remove it"),
}
_REFUSED_IN_BATCH: Final = {
    **_REFUSED_ALL,
    "checkpointLocation": "only a stream has one; use txnAppId and txnVersion to write a batch once",
    "queryName": "only a stream has one; remove it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of one write."""

    path: str
    topic: str | None
    """The topic of all rows; None if the column topic gives it."""
    compression: str | None
    """None for the topic's compression.type."""
    batch_bytes: int
    lock_timeout_s: float
    txn_app_id: str | None = None
    txn_version: int = 0


def parse_write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the checked options of a write."""
    if not given:
        raise InvalidConfig(
            "options path and topic are missing. Spark does not pass a table's options to writeTo, insertInto and "
            "CREATE TABLE ... AS SELECT: use writeTo(...).option('path', ...).option('topic', ...), or INSERT INTO an "
            "existing table"
        )
    known = (*_SHARED, *(_FROM_SPARK if streaming else _BATCH_ONLY))
    options = OptionMap(given, known=known, refused=_REFUSED_IN_STREAM if streaming else _REFUSED_IN_BATCH)
    topic = options.text("topic")
    if topic is not None:
        check_topic_name(topic)
    lock_timeout_ms = options.duration_ms("lockTimeout")
    app, version = options.text("txnAppId"), options.number("txnVersion", minimum=0)
    if (app is None) != (version is None):
        missing, named = ("txnAppId", "txnVersion") if app is None else ("txnVersion", "txnAppId")
        raise InvalidConfig(f"option {named} needs {missing}: together they identify a write that must happen once")
    compression = options.either("compression", "kafka.compression.type")
    batch_bytes = options.either("batchBytes", "kafka.batch.size")
    return WriteOptions(
        path=store_path(options),
        topic=topic,
        compression=options.choice(compression, CODEC_IDS, default="") or None,
        batch_bytes=options.size_bytes(batch_bytes, minimum=512) or BATCH_BYTES,
        lock_timeout_s=(LOCK_TIMEOUT_MS if lock_timeout_ms is None else lock_timeout_ms) / 1000,
        txn_app_id=app,
        txn_version=version or 0,
    )
