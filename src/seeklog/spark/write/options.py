"""The options of a write, checked. Names are those of Spark's Kafka sink where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from seeklog.errors import InvalidConfig
from seeklog.names import check_topic_name
from seeklog.record.codec import CODEC_IDS
from seeklog.spark.option_map import OptionMap, store_path

# A reader decodes whole batches, and an index entry names one: larger ones compress better and seek worse.
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
# What Spark itself puts into the map of a stream.
_FROM_SPARK: Final = ("checkpointLocation", "queryName")
_REFUSED_ALL: Final[Mapping[str, str]] = {
    "subscribe": "it says what is read; use topic to write",
    "assign": "it says what is read; use topic to write",
    "includeHeaders": "a column called headers is written whenever there is one; leave it out",
}
_REFUSED_IN_STREAM: Final = {
    **_REFUSED_ALL,
    **dict.fromkeys(_BATCH_ONLY, "a stream's batches are written once as it is, by query and batch; leave it out"),
}
_REFUSED_IN_BATCH: Final = {
    **_REFUSED_ALL,
    "checkpointLocation": "only a stream has one; use txnAppId and txnVersion to write a batch once",
    "queryName": "only a stream has one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where rows go, and how."""

    path: str
    topic: str | None
    """The topic of all rows; if None, each row has its own."""
    compression: str | None
    """None: as the topic's configuration has it."""
    batch_bytes: int
    lock_timeout_s: float
    txn_app_id: str | None = None
    txn_version: int = 0


def parse_write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the options of a write, checked."""
    if not given:
        raise InvalidConfig(
            "options path and topic are missing. Spark hands on none of a table's with writeTo, insertInto and CREATE "
            "TABLE ... AS SELECT: use writeTo(...).option('path', ...).option('topic', ...), or INSERT INTO a table "
            "that is there"
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
        raise InvalidConfig(f"option {named} needs {missing}: together they name a write that is to happen once")
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
