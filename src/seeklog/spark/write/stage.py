"""The task of a write: assigns rows to topics and partitions, encodes them, and stages the batches.

A row goes to the partition in its `partition` column, else to that of its key by Kafka's murmur2. All rows of an Arrow
batch without a key go to one partition, and those of the next batch to the next one. Kafka's producer picks partitions
at random; here the order is fixed, so that the same rows in the same tasks get the same partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, IntegerType, LongType, StructType

from seeklog.clock import SystemClock
from seeklog.errors import InvalidRecord, SeeklogError, UsageError
from seeklog.files import translated
from seeklog.log import Stager
from seeklog.names import TopicPartition
from seeklog.record import rows
from seeklog.record.codec import CODEC_IDS
from seeklog.spark.read.schema import RECORD_SCHEMA
from seeklog.spark.write.options import WriteOptions
from seeklog.store import Store, transactions_of
from seeklog.topics.transactions import Staged, Target

if TYPE_CHECKING:
    import pyarrow

_BYTES: Final = ("binary", "string")
_TYPES: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": (RECORD_SCHEMA["headers"].dataType.simpleString(),),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


def record_columns(schema: StructType, options: WriteOptions) -> tuple[str, ...]:
    """Return the columns of a DataFrame that are written; refuse a missing column and a wrong type.

    Other columns are ignored, as by Spark's Kafka sink.
    """
    fields = [field for field in schema.fields if field.name in _TYPES]
    names = [field.name for field in fields]
    for field in fields:
        if names.count(field.name) > 1:
            raise UsageError(f"the DataFrame has column {field.name} twice; rename or drop one")
        _check_type(field.name, field.dataType)
    if "value" not in names:
        raise UsageError(
            f"the DataFrame has no column value (binary or string); it has {', '.join(schema.fieldNames())}"
        )
    if "topic" not in names and options.topic is None:
        raise UsageError("the topic of the rows is missing: set option topic, or add a string column topic")
    return tuple(name for name in names if name != "topic" or options.topic is None)


def _check_type(name: str, given: DataType) -> None:
    wanted = _TYPES[name]
    if given.simpleString() in wanted:
        return
    hint = ""
    if name == "partition" and isinstance(given, LongType | IntegerType):
        hint = "; cast it to int"
    elif wanted is _BYTES:
        hint = "; cast it, or write a struct with to_json"
    raise UsageError(f"column {name} is {given.simpleString()}, but must be {' or '.join(wanted)}{hint}")


def stage_rows(
    store: Store,
    batches: Iterator[pyarrow.RecordBatch],
    *,
    columns: Sequence[str],
    options: WriteOptions,
    app: str,
    task: int,
) -> list[Staged]:
    """Stage all rows of a task and return the staged files. After an error none is left."""
    staging = _Staging(store, columns, options, app, task)
    try:
        with translated(f"rows cannot be staged in {store.path}"):
            for batch in batches:
                staging.add(batch)
            return staging.finish()
    except BaseException:
        staging.discard()
        raise


class _Staging:
    """The staged files of one task."""

    def __init__(self, store: Store, columns: Sequence[str], options: WriteOptions, app: str, task: int) -> None:
        self._store = store
        self._columns = columns
        self._options = options
        self._app = app
        self._clock = SystemClock()
        self._turn = task
        self._targets: dict[str, Target] = {}
        self._stagers: dict[TopicPartition, Stager] = {}

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Stage the rows of one Arrow batch."""
        if not batch.num_rows:
            return
        if self._options.topic is not None:
            self._add(self._options.topic, batch)
        else:
            for topic, part in _by_topic(batch):
                self._add(topic, part)
        self._turn += 1

    def _add(self, topic: str, batch: pyarrow.RecordBatch) -> None:
        target = self._target(topic)
        columns = {name: batch.column(name) for name in self._columns if name != "topic"}
        codec = CODEC_IDS[self._options.compression or target.config.compression_type]
        largest = min(target.config.max_message_bytes, target.config.segment_bytes)
        try:
            if target.config.compacts and ("key" not in columns or columns["key"].null_count):
                raise InvalidRecord("the topic is compacted, and a row has no key; nothing was written")
            partitions = self._partitions(target, columns, batch.num_rows)
            records = rows.record_rows(**{name: column for name, column in columns.items() if name != "partition"})
            for partition, selected in rows.group_rows(partitions, count=target.partition_count):
                stager = self._stager(TopicPartition(topic, partition))
                for encoded, count in rows.encode_rows(
                    records,
                    rows=selected,
                    now_ms=self._clock.now_ms(),
                    codec=codec,
                    batch_bytes=self._options.batch_bytes,
                    max_batch_bytes=largest,
                    limit=target.config.max_decompressed_bytes,
                ):
                    stager.add(encoded, record_count=count)
        except SeeklogError as error:
            error.args = (f"topic {topic}: {error.args[0]}", *error.args[1:])
            raise

    def _partitions(self, target: Target, columns: dict[str, Any], row_count: int) -> Any:
        """Return the partition of each row."""
        return rows.choose_partitions(columns, row_count=row_count, count=target.partition_count, turn=self._turn)

    def _target(self, topic: str) -> Target:
        if topic not in self._targets:
            self._targets[topic] = transactions_of(self._store).target(topic)
        return self._targets[topic]

    def _stager(self, partition: TopicPartition) -> Stager:
        if partition not in self._stagers:
            self._stagers[partition] = transactions_of(self._store).stager(self._app, partition)
        return self._stagers[partition]

    def finish(self) -> list[Staged]:
        """Make the staged files durable and return them."""
        return [
            Staged(at.topic, self._targets[at.topic].topic_id, at.partition, stager.finish())
            for at, stager in sorted(self._stagers.items())
        ]

    def discard(self) -> None:
        for stager in self._stagers.values():
            stager.discard()


def _by_topic(batch: pyarrow.RecordBatch) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """Yield the rows of each topic, in order."""
    import pyarrow.compute as pc

    topics = batch.column("topic")
    if topics.null_count:
        row = pc.index(pc.is_null(topics), True).as_py()
        raise InvalidRecord(
            f"[NULL_TOPIC_IN_DATA] row {row} of an Arrow batch has no topic: fill the column, or set option topic"
        )
    distinct = pc.unique(topics).to_pylist()
    for topic in distinct:
        yield topic, batch if len(distinct) == 1 else batch.filter(pc.equal(topics, topic))
