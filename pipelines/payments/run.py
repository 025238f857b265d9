"""The pipeline as three streaming queries that process all new records and stop.

Each query reads the topic and keeps its own checkpoint, so that none waits for another:

    dead letters   bad records -> a topic
    payments       good payments without duplicates -> Parquet
    windows        good payments without duplicates, by merchant and window -> Parquet, and alerts -> a topic

To continue after a kill, run it again: Spark repeats the interrupted batch with the same records and the same
watermark, and a repeated batch changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import seeklog
from pipelines.payments import transformations
from pipelines.payments.rules import Rules, Topics

MAX_OFFSETS_PER_TRIGGER = 25_000
# The number of state partitions. A checkpoint keeps the number it was created with.
STATE_PARTITIONS = 2


def run(
    spark: SparkSession,
    *,
    store: str | Path,
    output: str | Path,
    max_offsets_per_trigger: int = MAX_OFFSETS_PER_TRIGGER,
    rules: Rules | None = None,
    topics: Topics | None = None,
) -> None:
    """Process the payments in the store that no earlier run has processed, and return when all are done.

    `output` has the tables and the checkpoints. To start over, remove all of it, and the topics that were written, or
    they will have every record twice.
    """
    rules, topics = rules or Rules(), topics or Topics()
    create_topics(store, topics)
    session = pipeline_session(spark)

    def records() -> DataFrame:
        return read_records(
            session, store=store, topic=topics.payments, max_offsets_per_trigger=max_offsets_per_trigger
        )

    output = Path(output).absolute()
    queries: list[StreamingQuery] = []
    try:
        queries.append(
            start_dead_letters(records(), store=store, output=output, rules=rules, topic=topics.dead_letters)
        )
        queries.append(start_payments(records(), output=output, rules=rules))
        queries.append(start_windows(records(), store=store, output=output, rules=rules, topic=topics.alerts))
        await_all(queries)
    finally:
        for query in queries:
            if query.isActive:
                query.stop()


def create_topics(store: str | Path, topics: Topics) -> None:
    """Create the output topics if they are missing, with one partition each to keep a total order."""
    with seeklog.open(store, read_only=True) as opened:
        opened.describe_topic(topics.payments)  # refuse a wrong store before creating anything in it
    with seeklog.open(store) as opened:
        for name in {topics.dead_letters, topics.alerts}.difference(opened.topics()):
            opened.create_topic(name, partitions=1)


def pipeline_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings of these queries; the caller's session is not changed."""
    session = spark.newSession()
    # After a kill Spark does not repeat a batch without records, which only closes windows. With such batches the
    # tables would depend on the moment of a kill; without them the first batch after its end closes a window.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(STATE_PARTITIONS))
    # Spark's default, INT96, is deprecated in Parquet.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return session


def read_records(
    session: SparkSession, *, store: str | Path, topic: str, max_offsets_per_trigger: int | None = None
) -> DataFrame:
    """Return all records of the topic as a stream."""
    reader = session.readStream.format("seeklog").option("path", str(store)).option("subscribe", topic)
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return reader.option("startingOffsets", "earliest").option("includeHeaders", "true").load()


def start_dead_letters(
    records: DataFrame, *, store: str | Path, output: Path, rules: Rules, topic: str
) -> StreamingQuery:
    """Write bad records to a topic. There is no shuffle, so the sink alone makes the topic the same after a kill."""
    letters = transformations.dead_letters(transformations.parse(records, rules=rules))
    return (
        letters.writeStream.format("seeklog")
        .queryName("dead letters")
        .option("path", str(store))
        .option("topic", topic)
        .option("checkpointLocation", checkpoint(output, "dead_letters"))
        .trigger(availableNow=True)
        .start()
    )


def start_payments(records: DataFrame, *, output: Path, rules: Rules) -> StreamingQuery:
    """Write good payments without duplicates to the table `payments`."""
    payments = transformations.good_payments(transformations.parse(records, rules=rules))
    unique = transformations.deduplicate(payments, within_s=rules.remember_s)

    def write(batch: DataFrame, batch_id: int) -> None:
        write_part(batch, table=output / "payments", batch_id=batch_id)

    return (
        unique.writeStream.foreachBatch(write)
        .queryName("payments")
        .option("checkpointLocation", checkpoint(output, "payments"))
        .trigger(availableNow=True)
        .start()
    )


def start_windows(records: DataFrame, *, store: str | Path, output: Path, rules: Rules, topic: str) -> StreamingQuery:
    """Write closed windows to the table `merchant_windows`, and their alerts to a topic."""
    payments = transformations.good_payments(transformations.parse(records, rules=rules))
    unique = transformations.deduplicate(payments, within_s=rules.lateness_s)
    windows = transformations.merchant_windows(unique, window_s=rules.window_s)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()  # written twice
        try:
            write_part(batch.repartition(1), table=output / "merchant_windows", batch_id=batch_id)
            alerts = transformations.alerts(batch, rules=rules)
            # A shuffle has no order, and a repeated batch must write the same topic.
            ordered = alerts.repartition(1).sortWithinPartitions("timestamp", "key", "value")
            (
                ordered.write.format("seeklog")
                .option("path", str(store))
                .option("topic", topic)
                # The id of the query changes with its checkpoint, so a query that starts over writes its batches.
                .option("txnAppId", f"{topic}-{query_id(batch)}")
                .option("txnVersion", batch_id)
                .mode("append")
                .save()
            )
        finally:
            batch.unpersist()

    return (
        windows.writeStream.foreachBatch(write)
        .queryName("windows")
        .option("checkpointLocation", checkpoint(output, "windows"))
        .trigger(availableNow=True)
        .start()
    )


def checkpoint(output: Path, query: str) -> str:
    return str(output / "checkpoints" / query)


def query_id(batch: DataFrame) -> str:
    """Return the id of the query of a batch in `foreachBatch`."""
    identifier = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert identifier is not None, "Spark sets it in the thread of a query"
    return identifier


def write_part(batch: DataFrame, *, table: Path, batch_id: int) -> None:
    """Write a batch as one directory of a Parquet table, which a repeated batch replaces.

    Spark's file sink is exactly-once only for readers of its file log; others also read the files of a killed task.
    Directories that are replaced as a whole are correct for every reader of Parquet.
    """
    batch.write.mode("overwrite").parquet(str(table / f"batch={batch_id}"))


def await_all(queries: list[StreamingQuery]) -> None:
    """Wait for all queries; raise the error of the first that fails, even if others still run."""
    running = queries
    while running:
        running = [query for query in running if not query.awaitTermination(1)]
