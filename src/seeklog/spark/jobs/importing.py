"""`load_into`, the import of the command line: anything that Spark reads, into a topic.

Rows become records by an expression for each part of a record. Columns that no part takes go into the value, as JSON.
The data source writes: tasks stage finished batches, and all of them are appended as one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession, functions

from seeklog import names
from seeklog.errors import TopicNotFound, UsageError
from seeklog.files import OsFiles
from seeklog.log import read_transaction
from seeklog.names import check_topic_name
from seeklog.spark.option_map import local_path
from seeklog.spark.write.options import parse_write_options
from seeklog.spark.write.sink import app_name
from seeklog.store import open_store


class Imported(NamedTuple):
    """The outcome of an import."""

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

    With `create_partitions` a missing topic is created, with that many partitions and `config`. With an `import_id` the
    same import, however often it is tried, is appended once. Types that do not fit raise `UsageError`.
    """
    check_topic_name(topic)
    if import_id is not None and not import_id.strip():
        raise UsageError("import_id is blank; give a name that this import, and no other, has")
    frame = _frame(rows, source, location, options)
    expressions = {"key": key, "value": value, "timestamp": timestamp, "partition": partition}
    records = _records(frame, expressions, headers)
    root = os.path.abspath(local_path("path", os.fsdecode(path)))
    written: dict[str, str] = {"path": root, "topic": topic}
    if compression is not None:
        written["compression"] = compression
    if import_id is not None:
        written |= {"txnAppId": f"import {import_id}", "txnVersion": "0"}
    # What is wrong with them is raised before a topic is created.
    parsed = parse_write_options(written, streaming=False)
    _provide(root, topic, create_partitions, config)
    if import_id is not None and _is_there(root, app_name(parsed), topic):
        return Imported(topic, 0, is_new=False)
    return Imported(topic, _write(records, written), is_new=True)


def _write(records: DataFrame, written: Mapping[str, str]) -> int:
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
    if isinstance(rows, DataFrame):
        if source is not None or location is not None or options:
            raise UsageError("source, location and options are for a session; a DataFrame has its rows already")
        return rows
    if source is None:
        raise UsageError('say what to read: a DataFrame, or a session with source="parquet" and location')
    reader = rows.read.format(source).options(**dict(options or {}))
    return reader.load(location if location is None or isinstance(location, str) else list(location))


def _records(frame: DataFrame, expressions: Mapping[str, str | None], headers: Sequence[str]) -> DataFrame:
    """Return the columns of records: expressions by their names, and columns that become headers."""
    if isinstance(headers, str):
        raise UsageError(f"headers is a list of columns: [{headers!r}]")
    for name in headers:
        if name not in frame.columns:
            raise UsageError(f"there is no column {name} for a header; there are {', '.join(frame.columns)}")
    chosen = {name: _column(frame, name, each) for name, each in expressions.items() if each is not None}
    if "value" not in chosen:
        taken = {*headers, *expressions.values()}
        left = [functions.col(_quoted(name)) for name in frame.columns if name not in taken]
        if not left:
            raise UsageError("key, headers and the others take all columns, and none is left for the value: give value")
        chosen["value"] = functions.to_json(functions.struct(*left))
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


def _column(frame: DataFrame, name: str, expression: str) -> Column:
    """Return an expression as the type that this part of a record has."""
    try:
        column = functions.expr(expression)
        kind = frame.select(column).schema.fields[0].dataType.simpleString()
    except PySparkException as error:
        reason = " ".join(str(error).splitlines()[0].split())
        raise UsageError(
            f"{name} is {expression!r}, no expression over the columns {', '.join(frame.columns)}: {reason}"
        ) from error
    if name == "partition":
        if kind not in ("tinyint", "smallint", "int"):
            raise UsageError(f"partition is {expression}, which is {kind}; it must be int: cast({expression} as int)")
        return column.cast("int")
    if name == "timestamp":
        if kind in ("bigint", "int"):
            # Milliseconds, as Kafka has them.
            return functions.timestamp_millis(column.cast("bigint"))
        if kind not in ("timestamp", "timestamp_ntz", "date"):
            raise UsageError(
                f"timestamp is {expression}, which is {kind}; it can be a timestamp, a date, or milliseconds since "
                f"1970: to_timestamp({expression}), perhaps"
            )
        return column.cast("timestamp")
    if kind in ("binary", "string"):
        return column
    return functions.to_json(column) if kind.startswith(("struct", "map", "array")) else column.cast("string")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _provide(path: str, topic: str, create_partitions: int | None, config: Mapping[str, Any] | None) -> None:
    """Create the topic if it is missing and may be created."""
    if create_partitions is None:
        if config:
            raise UsageError("config is for a topic that is created here: give create_partitions, too")
        with open_store(path, read_only=True, background=False) as store:
            if topic not in store.topics():
                raise TopicNotFound(
                    f"there is no topic {topic!r} in {path}; give create_partitions to create it, or store.create_topic"
                )
        return
    with open_store(path, background=False) as store:
        if topic not in store.topics():
            store.create_topic(topic, partitions=create_partitions, config=config)


def _is_there(path: str, app: str, topic: str) -> bool:
    """Tell whether this import was committed before, and to this very topic: a topic recreated since has lost it.

    Opening the store finishes an import that a kill interrupted.
    """
    with open_store(path, background=False) as store:
        last = read_transaction(OsFiles(), path, names.app_key(app))
        topic_id = store.transactions.target(topic).topic_id
        return last is not None and not last.is_open and all(part.topic_id == topic_id for part in last.parts)
