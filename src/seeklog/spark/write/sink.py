"""Writing rows to topics, exactly once.

A task encodes its rows into finished record batches and stages them in the directories of their partitions
(`stage`). The driver's commit appends all that the tasks of one job staged as one transaction of the store, which is
named after the streaming query and its batch, or after `txnAppId` and `txnVersion`: a transaction that was committed
before adds nothing. A batch without these options is a transaction, too, but under a name that is never used again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from seeklog.errors import SeeklogError, UsageError
from seeklog.spark.write.options import WriteOptions, parse_write_options
from seeklog.spark.write.stage import record_columns, stage_rows
from seeklog.store import open_store
from seeklog.topics.transactions import Staged

if TYPE_CHECKING:
    import pyarrow

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
        raise UsageError('rows are only ever appended to a topic: use mode("append"), or delete and create the topic')
    parsed = parse_write_options(options, streaming=False)
    writer = BatchWriter(parsed, schema)
    # What would stop every task is raised once, before there are any.
    with open_store(parsed.path, read_only=True, background=False) as store:
        if parsed.topic is not None:
            store.transactions.target(parsed.topic)
    return writer


class _Writer:
    """What tasks and driver do for a batch and for a stream."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = record_columns(schema, options)

    def _stage(self, app: str, batches: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        options, context = self._options, TaskContext.get()
        task = context.partitionId() if context else 0
        with open_store(options.path, read_only=True, background=False) as store:
            return StagedRows(
                app, stage_rows(store, batches, columns=self._columns, options=options, app=app, task=task)
            )

    def _commit(self, app: str, version: int, messages: Sequence[WriterCommitMessage | None], *, keep: bool) -> None:
        # In the order of the tasks, so that the same rows give the same log.
        staged = [each for message in messages if isinstance(message, StagedRows) for each in message.staged]
        path = self._options.path
        # Opening a store that is not there to write would create it.
        open_store(path, read_only=True, background=False).close()
        with open_store(path, background=False) as store:
            is_new = store.transactions.commit(app, version, staged, keep=keep, wait_s=self._options.lock_timeout_s)
        if not is_new:
            logger.info("version %d of %s is in the topics already: nothing was written", version, app)

    def _discard(self, app: str) -> None:
        """Remove what a job has staged. An error here must not hide from the user why the job failed."""
        try:
            with open_store(self._options.path, read_only=True, background=False) as store:
                store.transactions.discard(app)
        except SeeklogError as error:
            logger.warning("what %s has staged stays for a day: %s", app, error)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes one DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Spark makes one writer for a job and copies it to the tasks.
        self._app = app_name(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        return self._stage(self._app, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._options
        self._commit(self._app, options.txn_version, messages, keep=options.txn_app_id is not None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._discard(self._app)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a query. Spark makes one for each batch, and another one to commit it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(parse_write_options(options, streaming=True), schema)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        if query_id is None:
            raise UsageError("Spark does not say which query writes; seeklog needs PySpark 4.2 or newer")
        return self._stage(f"spark-query-{query_id}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        app = _app_of(messages)
        if app is not None:
            self._commit(app, batchId, messages, keep=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        app = _app_of(messages)
        if app is not None:
            self._discard(app)


def app_name(options: WriteOptions) -> str:
    """Return what the transactions of a batch are named after.

    The topic is part of it: a job that writes one batch to two topics does so under one `txnAppId`, and means both.
    """
    if options.txn_app_id is None:
        return f"spark-job-{uuid.uuid4()}"
    # No topic has a blank in its name, so no two of these are the same.
    return f"{options.txn_app_id} to {options.topic or 'many topics'}"


def _app_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.app for message in messages if isinstance(message, StagedRows)), None)
