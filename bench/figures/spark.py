"""Spark over the log on two cores, beside the limit of Python data sources and beside Parquet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import spark_data
from bench.measure import Bench, Stopwatch, best_of, warm_page_cache
from bench.row import Row, Unit
from bench.spark_data import DAY_MS, DAY_START_MS, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

MASTER = "local[2]"
BATCH_ROWS = 16_384
COPIES = 8
REPO = Path(__file__).resolve().parents[2]


def measure(bench: Bench) -> Iterator[Row]:
    # Workers also import `bench.peers`.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])])
    with bench.directory("spark") as root:
        datasets = {topic: spark_data.build(root, topic, bench.scale.spark_rows) for topic in ("random", "payments")}
        warm_page_cache(root)
        spark = _session()
        try:
            yield from _scanning(bench, spark, datasets)
            yield from _pruning(bench, spark, datasets["random"])
            yield from _sinking(bench, spark, datasets["random"], root)
        finally:
            spark.stop()
        yield from _jobs(bench, datasets["random"], root / "wide")
    yield from _starting()


def _session() -> SparkSession:
    from bench.peers.spark import CeilingSource, NullSink
    from seeklog.spark import session

    spark = session("seeklog bench", master=MASTER, memory="4g")
    spark.dataSource.register(CeilingSource)
    spark.dataSource.register(NullSink)
    return spark


def _read(spark: SparkSession, rows: Rows, **options: str) -> DataFrame:
    reader = spark.read.format("seeklog").option("path", str(rows.store)).option("subscribe", rows.topic)
    return reader.options(**options).load()


def _rate(rows: int, work: Callable[[DataFrame], None], read: Callable[[], DataFrame]) -> float:
    """Return the rows per second of a query, including its planning."""
    with Stopwatch() as clock:
        work(read())
    return rows / clock.seconds


def _check(count: int, expected: int) -> None:
    if count != expected:
        raise ValueError(f"the query returned {count:,} rows instead of {expected:,}")


def _scanning(bench: Bench, spark: SparkSession, datasets: dict[str, Rows]) -> Iterator[Row]:
    random, count = datasets["random"], bench.scale.spark_rows
    turns = bench.scale.spark_turns

    def ceiling() -> DataFrame:
        options = {"rows": str(count), "tasks": "8", "batchRows": str(BATCH_ROWS)}
        return spark.read.format("bench_ceiling").options(**options).load()

    def counted(frame: DataFrame) -> None:
        _check(frame.count(), count)

    def delivered(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    for name, work in (("every row delivered", delivered), ("count", counted)):
        rates = best_of(
            turns,
            {
                "ours": partial(_rate, count, work, partial(_read, spark, random)),
                "ceiling": partial(_rate, count, work, ceiling),
            },
        )
        yield Row(
            work=f"Spark: full scan, all columns, {name}",
            figure=rates["ours"],
            unit=Unit.RECORDS_PER_SECOND,
            peer="a source that repeats one batch",
            peer_figure=rates["ceiling"],
            target=0.8,
        )

    def summed(frame: DataFrame) -> None:
        frame.selectExpr("sum(length(value))").collect()

    for topic, rows in datasets.items():
        rates = best_of(
            turns,
            {
                "ours": partial(_rate, count, summed, partial(_read, spark, rows, columns="value")),
                "parquet": partial(_rate, count, summed, partial(spark.read.parquet, str(rows.parquet))),
            },
        )
        yield Row(
            work=f"Spark: sum(length(value)), {'incompressible' if topic == 'random' else topic}",
            figure=rates["ours"],
            unit=Unit.RECORDS_PER_SECOND,
            peer="Spark's Parquet scan",
            peer_figure=rates["parquet"],
            target=1.3 if topic == "random" else None,
        )


def _pruning(bench: Bench, spark: SparkSession, rows: Rows) -> Iterator[Row]:
    count, turns = bench.scale.spark_rows, bench.scale.spark_turns
    start, end = DAY_START_MS + DAY_MS // 2, DAY_START_MS + DAY_MS // 2 + DAY_MS // 100
    expected = _read(spark, rows, startingTimestamp=str(start), endingTimestamp=str(end)).count()

    everything = partial(_read, spark, rows)

    def counted(expected: int, frame: DataFrame) -> None:
        _check(frame.count(), expected)

    def filtered(frame: DataFrame) -> None:
        within = f"timestamp >= timestamp_millis({start}) and timestamp < timestamp_millis({end})"
        _check(frame.filter(within).count(), expected)

    def added_up(frame: DataFrame) -> None:
        _check(int(frame.selectExpr("sum(record_count)").collect()[0][0]), count)

    by_options = partial(_read, spark, rows, startingTimestamp=str(start), endingTimestamp=str(end))
    by_table = partial(_read, spark, rows, table="offsets")
    trials = {
        "options": partial(_rate, 1, partial(counted, expected), by_options),
        "filter": partial(_rate, 1, filtered, everything),
        "table": partial(_rate, 1, added_up, by_table),
        "scan": partial(_rate, 1, partial(counted, count), everything),
    }
    rates = best_of(turns, trials)
    for work, peer, ours, theirs in (
        ("Spark: 1 % of the time, by options", "full scan and filter", "options", "filter"),
        ("Spark: count through the offsets table", "full scan", "table", "scan"),
    ):
        yield Row(
            work=work,
            figure=1000 / rates[ours],
            unit=Unit.MILLISECONDS,
            peer=peer,
            peer_figure=1000 / rates[theirs],
            target=5,
        )


def _sinking(bench: Bench, spark: SparkSession, rows: Rows, root: Path) -> Iterator[Row]:
    import seeklog

    with seeklog.open(rows.store, background=False) as store:
        store.create_topic("sink", partitions=spark_data.PARTITIONS, config={"flush": "os"})

    def stream(sink: str, **options: str) -> float:
        checkpoint = root / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        frame = spark.readStream.schema(spark.read.parquet(str(rows.parquet)).schema).parquet(str(rows.parquet))
        writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).options(**options)
        with Stopwatch() as clock:
            writer.trigger(availableNow=True).start().awaitTermination()
        return rows.count / clock.seconds

    def ours() -> float:
        rate = stream("seeklog", path=str(rows.store), topic="sink")
        with seeklog.open(rows.store, background=False) as store:
            _check(sum(partition.high_watermark for partition in store.describe_topic("sink").partitions), rows.count)
            store.delete_topic("sink")
            store.create_topic("sink", partitions=spark_data.PARTITIONS, config={"flush": "os"})
        return rate

    rates = best_of(bench.scale.spark_turns, {"ours": ours, "null": lambda: stream("bench_null")})
    yield Row(
        work="Spark: stream into a topic, exactly once",
        figure=rates["ours"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="an Arrow writer that discards its rows",
        peer_figure=rates["null"],
        target=0.8,
    )


def _jobs(bench: Bench, rows: Rows, wide: Path) -> Iterator[Row]:
    """Measure verify and reindex in new processes, because a session cannot change its number of cores.

    The store has several copies of the same files, so that the work outweighs Spark's overhead per job.
    """
    size = spark_data.multiply(rows, wide, copies=COPIES)
    one, two = (_job_rates(wide, size, cores, bench.scale.spark_turns) for cores in (1, 2))
    for job in ("verify", "reindex"):
        yield Row(
            work=f"Spark: {job}, one core",
            figure=one[job],
            unit=Unit.GIGABYTES_PER_SECOND,
            target=1.0,
        )
        yield Row(
            work=f"Spark: {job}, two tasks at once",
            figure=two[job],
            unit=Unit.GIGABYTES_PER_SECOND,
            peer="one task",
            peer_figure=one[job],
            target=1.7,
        )


def _job_rates(wide: Path, size: int, cores: int, turns: int) -> dict[str, float]:
    arguments = [sys.executable, "-m", "bench.figures.spark", "jobs", str(wide), str(size), str(cores), str(turns)]
    run = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True, cwd=REPO)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def _run_jobs(wide: str, size: int, cores: int, turns: int) -> dict[str, float]:
    from seeklog.spark import jobs, session

    with session("seeklog bench", master=f"local[{cores}]", memory="2g") as spark:

        def verify() -> float:
            with Stopwatch() as clock:
                findings = jobs.verify(spark, wide, progress=False)
            _check(findings.where("severity = 'error'").count(), 0)
            return size / clock.seconds / 1e9

        def reindex() -> float:
            spark_data.drop_indexes(Path(wide))
            with Stopwatch() as clock:
                done = jobs.reindex(spark, wide, progress=False)
            _check(done.where("done = 'damaged'").count(), 0)
            return size / clock.seconds / 1e9

        # The first turn includes compiling code and starting workers.
        return best_of(turns + 1, {"verify": verify, "reindex": reindex})


def _starting() -> Iterator[Row]:
    """Measure the time from the start of Python to the first count, with a filled cache."""
    seconds = [_start_in_child() for _ in range(3)]
    yield Row(
        work="Spark: session() and the first count, later starts",
        figure=1000 * min(seconds[1:]),
        unit=Unit.MILLISECONDS,
        target=8000,
        note=f"the first start took {seconds[0]:.1f} s; it fills the cache unless an earlier run did",
    )


def _start_in_child() -> float:
    arguments = [sys.executable, "-m", "bench.figures.spark", "start", str(time.time())]
    run = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True, cwd=REPO)
    return float(run.stdout.splitlines()[-1])


def _start(started: float) -> float:
    """Return the seconds from `started`, when the parent started this process, to the first count."""
    import seeklog
    from seeklog.spark import session

    with tempfile.TemporaryDirectory() as path:
        with seeklog.open(path) as store:
            store.create_topic("payments", partitions=1)
            with store.producer() as producer:
                producer.send("payments", b"one")
        with session("seeklog bench", master=MASTER) as spark:
            count = spark.read.format("seeklog").option("path", path).option("subscribe", "payments").load().count()
            _check(count, 1)
            return time.time() - started


if __name__ == "__main__":
    if sys.argv[1] == "jobs":
        print(json.dumps(_run_jobs(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))))
    else:
        print(_start(float(sys.argv[2])))
