"""Writes rows to topics exactly once.

A task encodes its rows into record batches and stages them in the directories of their partitions (`stage`). The
driver's commit appends everything that the tasks of a job staged, in one transaction of the store. The transaction is
identified by the streaming query and its batch, or by `txnAppId` and `txnVersion`; a repeated commit adds nothing. A
batch write without these options gets a unique identifier.
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
from seeklog.store import open_store, transactions_of
from seeklog.topics.transactions import Staged

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("seeklog")

QUERY_ID = "sql.streaming.queryId"


@dataclass
class StagedRows(WriterCommitMessage):
    """The batches that one task has staged, and the application of their transaction."""

    app: str
    staged: list[Staged]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch write."""
    if overwrite:
        raise UsageError('rows can only be appended to a topic: use mode("append"), or delete and create the topic')
    parsed = parse_write_options(options, streaming=False)
    writer = BatchWriter(parsed, schema)
    # A missing store or topic is reported once, before any task starts.
    with open_store(parsed.path, read_only=True, background=False) as store:
        if parsed.topic is not None:
            transactions_of(store).target(parsed.topic)
    return writer


class _Writer:
    """The common part of the writers of a batch and of a stream."""

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
        # In the order of the tasks, so that the same rows always give the same log.
        staged = [part for message in messages if isinstance(message, StagedRows) for part in message.staged]
        path = self._options.path
        # Raises if the store does not exist: opening it for writing would create it.
        open_store(path, read_only=True, background=False).close()
        with open_store(path, background=False) as store:
            is_new = transactions_of(store).commit(app, version, staged, keep=keep, wait_s=self._options.lock_timeout_s)
        if not is_new:
            logger.info("%s: version %d of %s is already committed, and nothing was written", path, version, app)

    def _discard(self, app: str) -> None:
        """Remove everything that a job has staged. An error here must not hide the cause of the job's failure."""
        try:
            with open_store(self._options.path, read_only=True, background=False) as store:
                transactions_of(store).discard(app)
        except SeeklogError as error:
            logger.warning("%s: batches staged by %s remain for a day: %s", self._options.path, app, error)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Spark creates one writer per job and copies it to the tasks.
        self._app = app_name(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        return self._stage(self._app, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._options
        self._commit(self._app, options.txn_version, messages, keep=options.txn_app_id is not None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._discard(self._app)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query. Spark creates one for each batch, and another to commit it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(parse_write_options(options, streaming=True), schema)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        if query_id is None:
            raise UsageError("Spark does not pass the id of the query; seeklog needs PySpark 4.2 or newer")
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
    """Return the application that identifies the transaction of a batch write.

    It includes the topic, because a job may write one batch to two topics under one `txnAppId`.
    """
    if options.txn_app_id is None:
        return f"spark-job-{uuid.uuid4()}"
    # Topic names have no blank, so two applications never get the same name.
    return f"{options.txn_app_id} to {options.topic or 'many topics'}"


def _app_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.app for message in messages if isinstance(message, StagedRows)), None)
