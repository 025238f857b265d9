"""`to_lake` beside Spark's rewrite of the same rows from Parquet to Parquet, with the same codec and two cores."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from bench import spark_data
from bench.measure import Bench, Stopwatch, best_of, settle, warm_page_cache
from bench.row import Row, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from bench.spark_data import Rows

MASTER = "local[2]"
COMPRESSION = "zstd"
# Small, so that nearly all of the log is sealed. A task copies many segments.
SEGMENT_BYTES = 16 << 20


def measure(bench: Bench) -> Iterator[Row]:
    from seeklog.spark import session

    with bench.directory("lake") as root:
        datasets = [
            spark_data.build(root, topic, bench.scale.spark_rows, segment_bytes=SEGMENT_BYTES)
            for topic in ("payments", "random")
        ]
        settle(root)
        warm_page_cache(root)
        with session("seeklog bench", master=MASTER, memory="4g") as spark:
            for rows in datasets:
                yield _copying(bench, spark, rows, root)


def _copying(bench: Bench, spark: SparkSession, rows: Rows, root: Path) -> Row:
    """Measure a copy. Only sealed segments are copied, so the peer rewrites the files of the first copy."""
    from seeklog.spark import jobs

    lake, rewritten = root / f"lake-{rows.topic}", root / "rewritten"

    def copy(target: Path) -> tuple[int, float]:
        shutil.rmtree(target, ignore_errors=True)
        with Stopwatch() as clock:
            done = jobs.to_lake(spark, rows.store, target, topics=[rows.topic], compression=COMPRESSION, progress=False)
        return sum(row.records for row in done.collect()), clock.seconds

    count, _ = copy(lake)
    in_lake = jobs.read_lake(spark, None, lake).count()
    if in_lake != count or count < rows.count // 2:
        raise ValueError(f"{in_lake:,} rows are in the lake, and {count:,} of {rows.count:,} were copied")
    size = sum(path.stat().st_size for path in lake.rglob("*.parquet"))

    def ours() -> float:
        copied, seconds = copy(root / "copied")
        if copied != count:
            raise ValueError(f"{copied:,} records were copied instead of {count:,}")
        return copied / seconds

    def theirs() -> float:
        shutil.rmtree(rewritten, ignore_errors=True)
        with Stopwatch() as clock:
            frame = spark.read.parquet(str(lake))
            frame.write.mode("overwrite").option("compression", COMPRESSION).parquet(str(rewritten))
        settle(rewritten)
        return count / clock.seconds

    # The first turn includes compiling code and starting workers.
    rates = best_of(bench.scale.spark_turns + 1, {"ours": ours, "theirs": theirs})
    theirs_size = sum(path.stat().st_size for path in rewritten.rglob("*.parquet"))
    return Row(
        work=f"Spark: to_lake, {'incompressible' if rows.topic == 'random' else rows.topic}",
        figure=rates["ours"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="Spark's Parquet rewrite",
        peer_figure=rates["theirs"],
        target=0.5,
        note=f"{size / 1e6:,.0f} MB of Parquet, synced; Spark's {theirs_size / 1e6:,.0f} MB are not",
    )
