"""`import`, which is called `load_into` because Python keeps that word: anything that Spark reads, into a topic.

Rows become records by an expression for each part of a record. What is not asked for goes into the value, as JSON. The
writing is the data source's: tasks stage finished batches, and all of them are appended as one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seeklog import names
from seeklog.errors import TopicNotFound, UsageError
from seeklog.files import OsFiles
from seeklog.log import read_transaction
from seeklog.names import check_topic_name
from seeklog.spark.option_map import local_path
from seeklog.spark.write.options import parse_write_options
from seeklog.spark.write.sink import app_name
from seeklog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

# Spark's names of what is written as it is.
_BYTES: Final = ("binary", "string")


class Imported(NamedTuple):
    """What has come of an import."""

    topic: str
    records: int
    """How many were appended."""
    is_new: bool
    """False: an import of this id was there before, and nothing was read or appended."""


def load_into(
    rows: DataFrame | SparkSession,
    path: str | os.PathLike[str],
    topic: str,
    *,
    source: str | None = None,
    location: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    key: str | None = None,
    value: str | None = None,
    timestamp: str | None = None,
    partition: str | None = None,
    headers: Sequence[str] = (),
    create_partitions: int | None = None,
    config: Mapping[str, Any] | None = None,
    compression: str | None = None,
    import_id: str | None = None,
) -> Imported:
    """Append the rows of a DataFrame to a topic, all of them or none, and return how many that were.

    In place of a DataFrame, give the session with `source` ("parquet", "csv", "json", …), `location` and `options`.
    `key`, `value`, `timestamp` and `partition` are SQL expressions over the columns, such as the name of one. Without
    `value` it is the JSON of all columns that nothing else takes. `headers` are columns that become headers of their
    own names. Rows keep their order within a task of Spark's; a key keeps its partition as with every producer.

    With `create_partitions` a topic that is not there is made, with so many and `config`. With an `import_id` the same
    import, however often it is tried, is appended once. Types that do not fit raise `UsageError`.
    """
    check_topic_name(topic)
    if import_id is not None and not import_id.strip():
        raise UsageError("import_id is blank; give a name that this import, and no other, has")
    frame = _frame(rows, source, location, options)
    records = _records(frame, key=key, value=value, timestamp=timestamp, partition=partition, headers=headers)
    root = os.path.abspath(local_path("path", os.fsdecode(path)))
    written: dict[str, str] = {"path": root, "topic": topic}
    if compression is not None:
        written["compression"] = compression
    if import_id is not None:
        written |= {"txnAppId": f"import {import_id}", "txnVersion": "0"}
    # What is wrong with them is told before a topic is made.
    parsed = parse_write_options(written, streaming=False)
    _provide(root, topic, create_partitions, config)
    if import_id is not None and _is_there(root, app_name(parsed), topic):
        return Imported(topic, 0, is_new=False)
    return Imported(topic, _write(records, written), is_new=True)


def _write(records: DataFrame, written: Mapping[str, str]) -> int:
    from pyspark.sql import Observation, functions

    observation = Observation("import")
    observed = records.observe(observation, functions.count(functions.lit(1)).alias("records"))
    observed.write.format("seeklog").mode("append").options(**written).save()
    return int(observation.get["records"])


def _frame(
    rows: DataFrame | SparkSession,
    source: str | None,
    location: str | Sequence[str] | None,
    options: Mapping[str, str] | None,
) -> DataFrame:
    from pyspark.sql import DataFrame

    if isinstance(rows, DataFrame):
        if source is not None or location is not None or options:
            raise UsageError("source, location and options are for a session; a DataFrame has its rows already")
        return rows
    if source is None:
        raise UsageError('say what to read: a DataFrame, or a session with source="parquet" and location')
    reader = rows.read.format(source).options(**dict(options or {}))
    if location is None:
        return reader.load()
    return reader.load(location if isinstance(location, str) else list(location))


def _records(
    frame: DataFrame,
    *,
    key: str | None,
    value: str | None,
    timestamp: str | None,
    partition: str | None,
    headers: Sequence[str],
) -> DataFrame:
    from pyspark.sql import functions

    if isinstance(headers, str):
        raise UsageError(f"headers is a list of columns: [{headers!r}]")
    for name in headers:
        if name not in frame.columns:
            raise UsageError(f"there is no column {name} for a header; there are {', '.join(frame.columns)}")
    taken = {*headers, *(one for one in (key, timestamp, partition) if one in frame.columns)}
    left = [name for name in frame.columns if name not in taken]
    chosen: dict[str, Column] = {}
    if key is not None:
        chosen["key"] = _as_bytes(frame, "key", key)
    if value is not None:
        chosen["value"] = _as_bytes(frame, "value", value)
    elif left:
        chosen["value"] = functions.to_json(functions.struct(*(functions.col(_quoted(name)) for name in left)))
    else:
        raise UsageError("key, headers and the others take all columns, and none is left for the value: give value")
    if timestamp is not None:
        chosen["timestamp"] = _as_timestamp(frame, timestamp)
    if partition is not None:
        chosen["partition"] = _as_partition(frame, partition)
    if headers:
        pairs = [
            functions.struct(
                functions.lit(name).alias("key"),
                functions.col(_quoted(name)).cast("string").cast("binary").alias("value"),
            )
            for name in headers
        ]
        chosen["headers"] = functions.array(*pairs)
    return frame.select(*(column.alias(name) for name, column in chosen.items()))


def _as_bytes(frame: DataFrame, word: str, expression: str) -> Column:
    """Return text and bytes as they are, numbers and times as text, what has parts as JSON."""
    from pyspark.sql import functions

    kind = _kind_of(frame, word, expression).typeName()
    column = functions.expr(expression)
    if kind in _BYTES:
        return column
    return functions.to_json(column) if kind in ("struct", "map", "array") else column.cast("string")


def _as_timestamp(frame: DataFrame, expression: str) -> Column:
    """Return a timestamp; whole numbers are milliseconds, as Kafka has them."""
    from pyspark.sql import functions

    kind = _kind_of(frame, "timestamp", expression).simpleString()
    if kind in ("bigint", "int"):
        return functions.timestamp_millis(functions.expr(expression).cast("bigint"))
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return functions.expr(expression).cast("timestamp")
    raise UsageError(
        f"timestamp is {expression}, which is {kind}; it can be a timestamp, a date, or milliseconds since 1970: "
        f"to_timestamp({expression}), perhaps"
    )


def _as_partition(frame: DataFrame, expression: str) -> Column:
    from pyspark.sql import functions

    kind = _kind_of(frame, "partition", expression).simpleString()
    if kind not in ("tinyint", "smallint", "int"):
        raise UsageError(f"partition is {expression}, which is {kind}; it must be int: cast({expression} as int)")
    return functions.expr(expression).cast("int")


def _kind_of(frame: DataFrame, word: str, expression: str) -> DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    try:
        return frame.select(functions.expr(expression)).schema.fields[0].dataType
    except PySparkException as error:
        told = " ".join(str(error).splitlines()[0].split())
        raise UsageError(
            f"{word} is {expression!r}, no expression over the columns {', '.join(frame.columns)}: {told}"
        ) from error


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _provide(path: str, topic: str, create_partitions: int | None, config: Mapping[str, Any] | None) -> None:
    """See that the topic is there."""
    if create_partitions is None:
        if config:
            raise UsageError("config is for a topic that is made here: give create_partitions, too")
        with open_store(path, read_only=True, background=False) as store:
            if topic not in store.topics():
                raise TopicNotFound(
                    f"there is no topic {topic!r} in {path}; give create_partitions to make it, or store.create_topic"
                )
        return
    with open_store(path, background=False) as store:
        if topic not in store.topics():
            store.create_topic(topic, partitions=create_partitions, config=config)


def _is_there(path: str, app: str, topic: str) -> bool:
    """Tell whether this import was committed before, and to this very topic: one made anew since has lost it.

    Opening the store finishes an import that a kill interrupted.
    """
    with open_store(path, background=False) as store:
        last = read_transaction(OsFiles(), path, names.app_key(app))
        topic_id = store.transactions.target(topic).topic_id
        return last is not None and not last.is_open and all(part.topic_id == topic_id for part in last.parts)
