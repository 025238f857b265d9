"""The pipeline as three streaming queries that process what is there and stop.

Each reads the payments on its own and keeps its own checkpoint, so that none waits for another:

    dead letters   bad records -> a topic
    payments       good ones, without copies -> Parquet
    windows        good ones, without copies, by merchant and window -> Parquet, and alerts -> a topic

A killed run is simply run again: Spark repeats the batch that was under way with the same records and the same
watermark, and everything below is written so that a repeated batch changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import seeklog
from pipelines.payments import transformations
from pipelines.payments.rules import Rules, Topics

MAX_OFFSETS_PER_TRIGGER = 25_000
# How many pieces the state is cut into. A checkpoint keeps the number that it began with.
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
    """Process the payments that the store holds and that no earlier run has, and return when all are done.

    The tables and the checkpoints are kept in `output`. They belong together: remove all of it to begin anew, and the
    topics that were written, too, or they will hold everything twice.
    """
    rules, topics = rules or Rules(), topics or Topics()
    make_topics(store, topics)
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


def make_topics(store: str | Path, topics: Topics) -> None:
    """Make the topics that are written, if they are missing: small ones, each in one order from end to end."""
    with seeklog.open(store, read_only=True) as opened:
        opened.describe_topic(topics.payments)  # a wrong store is to be told before anything is made in it
    with seeklog.open(store) as opened:
        for name in {topics.dead_letters, topics.alerts}.difference(opened.topics()):
            # Their records have the times of payments, and are not to be deleted for the age of those.
            opened.create_topic(name, partitions=1, config={"retention.ms": -1})


def pipeline_session(spark: SparkSession) -> SparkSession:
    """Return a session beside the caller's with what these queries need; the caller's is left as it is."""
    session = spark.newSession()
    # A batch without records, made only to close windows, is not made again after a kill in front of it: with them,
    # the tables would depend on when the kill came. Without, a window is closed by the first batch after its time.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(STATE_PARTITIONS))
    # Spark's own default is a type that other readers of Parquet have given up.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return session


def read_records(
    session: SparkSession, *, store: str | Path, topic: str, max_offsets_per_trigger: int | None = None
) -> DataFrame:
    """Return the topic's records from the beginning as a stream."""
    reader = session.readStream.format("seeklog").option("path", str(store)).option("subscribe", topic)
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return reader.option("startingOffsets", "earliest").option("includeHeaders", "true").load()


def start_dead_letters(
    records: DataFrame, *, store: str | Path, output: Path, rules: Rules, topic: str
) -> StreamingQuery:
    """Write bad records to a topic. Nothing reorders them on the way, so the sink alone makes it exactly once."""
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
    """Write good payments, each once, to the table `payments`."""
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
    """Write closed windows to the table `merchant_windows`, and what is wrong with them to a topic of alerts."""
    payments = transformations.good_payments(transformations.parse(records, rules=rules))
    unique = transformations.deduplicate(payments, within_s=rules.lateness_s)
    windows = transformations.merchant_windows(unique, window_s=rules.window_s)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()  # computed once for both
        try:
            write_part(batch.repartition(1), table=output / "merchant_windows", batch_id=batch_id)
            alerts = transformations.alerts(batch, rules=rules)
            # A shuffle promises no order, and a topic is nothing but one: it is made here.
            ordered = alerts.repartition(1).sortWithinPartitions("timestamp", "key", "value")
            (
                ordered.write.format("seeklog")
                .option("path", str(store))
                .option("topic", topic)
                # The query's id is the checkpoint's: one that begins anew is not mistaken for a repetition.
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
    """Return the id of the query that a batch given to `foreachBatch` belongs to."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found is not None, "Spark sets it for the thread that runs a query"
    return found


def write_part(batch: DataFrame, *, table: Path, batch_id: int) -> None:
    """Write a batch as a part of a Parquet table; when it is repeated, the part is replaced.

    Spark's own file sink is exactly once for readers that know its log of files, and leaves what a kill cut short
    lying there for all others. Parts that are replaced whole are right for every reader of Parquet.
    """
    batch.write.mode("overwrite").parquet(str(table / f"batch={batch_id}"))


def await_all(queries: list[StreamingQuery]) -> None:
    """Wait for all queries, and raise what one fails with, though others still run."""
    running = queries
    while running:
        running = [query for query in running if not query.awaitTermination(1)]
