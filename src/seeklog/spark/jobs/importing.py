"""`load_into`: appends anything that Spark reads to a topic, as `seeklog pipeline import` does.

One SQL expression gives each part of a record. Columns used by no expression go into the value as JSON. The data
source writes: tasks stage finished batches, and one transaction appends them all.
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
from seeklog.store import open_store, transactions_of


class Imported(NamedTuple):
    """The outcome of an import."""

    topic: str
    records: int
    """The number of records appended."""
    is_new: bool
    """False if this import id was committed before; then nothing was read or appended."""


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
    """Append all rows of a DataFrame to a topic, or none of them, and return their number.

    Instead of a DataFrame, pass the session with `source` ("parquet", "csv", "json", …), `location`, and `options`.
    `key`, `value`, `timestamp`, and `partition` are SQL expressions over the columns, such as a column name. `value`
    defaults to the JSON of all unused columns. `headers` lists columns that become headers of the same name. Rows keep
    their order within a Spark task, and keys go to the same partitions as with a producer.

    `create_partitions` creates a missing topic with that many partitions and `config`. With an `import_id` the same
    import is appended once, however often it is run. A type that does not fit raises `UsageError`.
    """
    check_topic_name(topic)
    if import_id is not None and not import_id.strip():
        raise UsageError("import_id is blank; pass a name that is unique to this import")
    frame = _frame(rows, source, location, options)
    expressions = {"key": key, "value": value, "timestamp": timestamp, "partition": partition}
    records = _records(frame, expressions, headers)
    root = os.path.abspath(local_path("path", os.fsdecode(path)))
    written: dict[str, str] = {"path": root, "topic": topic}
    if compression is not None:
        written["compression"] = compression
    if import_id is not None:
        written |= {"txnAppId": f"import {import_id}", "txnVersion": "0"}
    # Invalid options are refused before a topic is created.
    parsed = parse_write_options(written, streaming=False)
    _provide(root, topic, create_partitions, config)
    if import_id is not None and _is_imported(root, app_name(parsed), topic):
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
            raise UsageError("source, location and options need a session; a DataFrame already has its rows")
        return rows
    if source is None:
        raise UsageError('nothing to read: pass a DataFrame, or a session with source="parquet" and location')
    reader = rows.read.format(source).options(**dict(options or {}))
    return reader.load(location if location is None or isinstance(location, str) else list(location))


def _records(frame: DataFrame, expressions: Mapping[str, str | None], headers: Sequence[str]) -> DataFrame:
    """Return the columns of the records, named after the parts of a record."""
    if isinstance(headers, str):
        raise UsageError(f"headers must be a list of columns: [{headers!r}]")
    for name in headers:
        if name not in frame.columns:
            raise UsageError(f"there is no column {name} for a header; the columns are {', '.join(frame.columns)}")
    columns = {name: _column(frame, name, text) for name, text in expressions.items() if text is not None}
    if "value" not in columns:
        used = {*headers, *expressions.values()}
        unused = [functions.col(_quoted(name)) for name in frame.columns if name not in used]
        if not unused:
            raise UsageError("key, headers and the others use all columns, and none is left for the value: pass value")
        columns["value"] = functions.to_json(functions.struct(*unused))
    if headers:
        pairs = [
            functions.struct(
                functions.lit(name).alias("key"),
                functions.col(_quoted(name)).cast("string").cast("binary").alias("value"),
            )
            for name in headers
        ]
        columns["headers"] = functions.array(*pairs)
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def _column(frame: DataFrame, name: str, expression: str) -> Column:
    """Return an expression cast to the type of this part of a record."""
    try:
        column = functions.expr(expression)
        kind = frame.select(column).schema.fields[0].dataType.simpleString()
    except PySparkException as error:
        reason = " ".join(str(error).splitlines()[0].split())
        raise UsageError(
            f"{name} is {expression!r}, not an expression over the columns {', '.join(frame.columns)}: {reason}"
        ) from error
    if name == "partition":
        if kind not in ("tinyint", "smallint", "int"):
            raise UsageError(f"partition is {expression}, which is {kind}; it must be int: cast({expression} as int)")
        return column.cast("int")
    if name == "timestamp":
        if kind in ("bigint", "int"):
            # Milliseconds, as in Kafka.
            return functions.timestamp_millis(column.cast("bigint"))
        if kind not in ("timestamp", "timestamp_ntz", "date"):
            raise UsageError(
                f"timestamp is {expression}, which is {kind}; it must be a timestamp, a date, or milliseconds since "
                f"1970. Try to_timestamp({expression})"
            )
        return column.cast("timestamp")
    if kind in ("binary", "string"):
        return column
    return functions.to_json(column) if kind.startswith(("struct", "map", "array")) else column.cast("string")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _provide(path: str, topic: str, create_partitions: int | None, config: Mapping[str, Any] | None) -> None:
    """Create the topic if it is missing and `create_partitions` allows it."""
    if create_partitions is None:
        if config:
            raise UsageError("config applies only to a topic created here: pass create_partitions too")
        with open_store(path, read_only=True, background=False) as store:
            if topic not in store.topics():
                raise TopicNotFound(
                    f"there is no topic {topic!r} in {path}; pass create_partitions, or call store.create_topic first"
                )
        return
    with open_store(path, background=False) as store:
        if topic not in store.topics():
            store.create_topic(topic, partitions=create_partitions, config=config)


def _is_imported(path: str, app: str, topic: str) -> bool:
    """Return whether this import was committed to this topic. A topic that was recreated has lost it.

    Opening the store finishes an import that was killed while it committed.
    """
    with open_store(path, background=False) as store:
        last = read_transaction(OsFiles(), path, names.app_key(app))
        topic_id = transactions_of(store).target(topic).topic_id
        return last is not None and not last.is_open and all(part.topic_id == topic_id for part in last.parts)
