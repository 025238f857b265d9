"""Writing rows to topics, exactly once.

A task encodes its rows into finished record batches and stages them in the directories of their partitions
(`spark.stage`). The driver's commit appends all that the tasks of one job staged as one transaction of the store,
which is named after the streaming query and its batch, or after `txnAppId` and `txnVersion`: one that was committed
before adds nothing. A batch without these options is a transaction, too, but none that would be known again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from seeklog.errors import SeeklogError, UsageError
from seeklog.spark.write.options import WriteOptions, parse_write_options
from seeklog.spark.write.stage import RowColumns, stage_rows
from seeklog.store import Store, open_store
from seeklog.topics.transactions import Staged

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

logger = logging.getLogger("seeklog")

QUERY_ID = "sql.streaming.queryId"


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task has staged, and for which application."""

    app: str
    staged: list[Staged]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch."""
    if overwrite:
        raise UsageError('a topic is only ever appended to: use mode("append"), or delete and create the topic')
    parsed = parse_write_options(options, streaming=False)
    writer = BatchWriter(parsed, schema)
    # What every task would stumble over is told once, before there are any.
    with open_store(parsed.path, read_only=True, background=False) as store:
        if parsed.topic is not None:
            store.transactions.target(parsed.topic)
    return writer


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a stream's batches.

    In complete mode (`overwrite`) the whole result is appended each time, as Spark's Kafka sink does.
    """
    return StreamWriter(parse_write_options(options, streaming=True), schema)


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = RowColumns.of(schema, options)
        # Spark makes one writer for a job and copies it to the tasks.
        self._app = app_name(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        return StagedRows(self._app, _stage(self._options, self._columns, self._app, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        is_named = self._options.txn_app_id is not None
        with _open(self._options.path) as store:
            _commit(store, self._options, self._app, self._options.txn_version, messages, keep=is_named)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _discard(self._options, self._app)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a query. Spark makes one for each batch, and another one to commit it."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = RowColumns.of(schema, options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        if query_id is None:
            raise UsageError("Spark does not tell which query writes; seeklog needs PySpark 4.2 or newer")
        app = f"spark-query-{query_id}"
        return StagedRows(app, _stage(self._options, self._columns, app, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        app = _app_of(messages)
        if app is not None:
            with _open(self._options.path) as store:
                _commit(store, self._options, app, batchId, messages, keep=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        app = _app_of(messages)
        if app is not None:
            _discard(self._options, app)


def app_name(options: WriteOptions) -> str:
    """Return what the transactions of a batch are named after.

    The topic is part of it: who writes one batch to two topics does so under one `txnAppId`, and means both.
    """
    if options.txn_app_id is None:
        return f"spark-job-{uuid.uuid4()}"
    # No topic has a blank in its name, so no two of these are the same.
    return f"{options.txn_app_id} to {options.topic or 'many topics'}"


def _open(path: str) -> Store:
    # A store that is not there must not be made by a commit to it.
    open_store(path, read_only=True, background=False).close()
    return open_store(path, background=False)


def _stage(
    options: WriteOptions, columns: RowColumns, app: str, batches: Iterator[pyarrow.RecordBatch]
) -> list[Staged]:
    context = TaskContext.get()
    with open_store(options.path, read_only=True, background=False) as store:
        return stage_rows(
            store, batches, columns=columns, options=options, app=app, task=context.partitionId() if context else 0
        )


def _app_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.app for message in messages if isinstance(message, StagedRows)), None)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Return what was staged in the order of the tasks, so that the same rows give the same log."""
    return [each for message in messages if isinstance(message, StagedRows) for each in message.staged]


def _commit(
    store: Store,
    options: WriteOptions,
    app: str,
    version: int,
    messages: Sequence[WriterCommitMessage | None],
    *,
    keep: bool,
) -> None:
    staged = _staged(messages)
    is_new = store.transactions.commit(app, version, staged, keep=keep, wait_s=options.lock_timeout_s)
    if not is_new:
        logger.info("version %d of %s is in the topics already: nothing was written", version, app)


def _discard(options: WriteOptions, app: str) -> None:
    """Remove what a job has staged. Why it failed is on its way to the user, and must not be lost behind this."""
    try:
        with open_store(options.path, read_only=True, background=False) as store:
            store.transactions.discard(app)
    except SeeklogError as error:
        logger.warning("what %s has staged stays for a day: %s", app, error)
