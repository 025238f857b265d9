"""Runs a function on items in Spark tasks, and returns results as a DataFrame.

The items are pickled with the function, and each row of a range of numbers is one task's work. That needs no RDD, so
it works in Spark Connect too.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from seeklog.errors import SeeklogError
from seeklog.spark.jobs.progress import Progress
from seeklog.spark.local.session import make_active
from seeklog.spark.read import plan
from seeklog.spark.read.schema import arrow_schema

Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting a task takes 60 to 70 ms of a slot, and the kernel checks several GB a second. A full segment has 1 GB;
# smaller ones share a task.
PACK_BYTES = 256 << 20
# The cost of opening a segment's files, in bytes read in that time.
ITEM_BYTES = 1 << 20
# Between two updates of the progress line.
POLL_S = 0.25


def pack(items: Iterable[Item], size_of: Callable[[Item], int]) -> list[list[Item]]:
    """Group items so that each task has enough work, the largest first."""
    largest_first = sorted(items, key=size_of, reverse=True)
    return plan.pack(largest_first, lambda item: size_of(item) + ITEM_BYTES, PACK_BYTES)


def run_tasks(
    spark: SparkSession, packs: Sequence[Sequence[Item]], work: Callable[[Item], Result], *, progress: Progress
) -> list[Result]:
    """Return the results of `work`, a module-level function, for all items.

    The first `SeeklogError` is raised after all tasks are done, because Spark would retry the task and wrap the error.
    Any other error, and Ctrl-C, ends the Spark job.
    """
    if not packs:
        return []

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                results = pickle.dumps([_result_of(work, item) for item in packs[number]])
                yield pa.record_batch({"results": [results]})

    with _without_pandas_warning():
        frame = spark.range(0, len(packs), 1, len(packs)).mapInArrow(task, "results binary")
        watch = _watch_remote if _is_remote(spark) else _watch_classic
        with watch(spark, progress, tag=f"seeklog-{uuid.uuid4().hex}"):
            rows = frame.collect()
    results = [result for row in rows for result in pickle.loads(row["results"])]
    failure = next((result for result in results if isinstance(result, SeeklogError)), None)
    if failure is not None:
        raise failure
    return results


def _result_of(work: Callable[[Any], Any], item: Any) -> Any:
    try:
        return work(item)
    except SeeklogError as error:
        return error


@contextlib.contextmanager
def _watch_classic(spark: SparkSession, progress: Progress, *, tag: str) -> Iterator[None]:
    """Show the progress of the jobs that this thread starts in a classic session; cancel them on any error."""
    context = spark.sparkContext
    is_over = threading.Event()

    def watch() -> None:
        tracker = context._jsc.sc().statusTracker()
        stages = context.statusTracker()
        while not is_over.wait(POLL_S):
            # An error here must not end the job.
            with contextlib.suppress(Exception):
                jobs = [stages.getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
                infos = [stages.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
                progress.update(sum(info.numCompletedTasks for info in infos if info is not None))

    watcher = threading.Thread(target=watch, name="seeklog-progress", daemon=True)
    context.addJobTag(tag)
    watcher.start()
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            context.cancelJobsWithTag(tag)
            # Ctrl-C breaks the connection to the JVM thread; the next connection has a thread without a session.
            make_active(spark)
        raise
    finally:
        is_over.set()
        watcher.join()
        context.removeJobTag(tag)


@contextlib.contextmanager
def _watch_remote(spark: SparkSession, progress: Progress, *, tag: str) -> Iterator[None]:
    """Show the progress of the jobs of a Spark Connect session; cancel them on any error."""

    def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        progress.update(sum(stage.num_completed_tasks for stage in stages or ()))

    spark.addTag(tag)
    spark.registerProgressHandler(handler)  # type: ignore[arg-type]  # any function will do
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            spark.interruptTag(tag)
        raise
    finally:
        spark.removeProgressHandler(handler)  # type: ignore[arg-type]
        spark.removeTag(tag)


def frame_of(spark: SparkSession, schema: StructType, rows: Sequence[Mapping[str, object]]) -> DataFrame:
    """Return rows as a DataFrame, null where a row has no value for a column.

    The rows go to Spark as Arrow, which keeps them in the plan and starts no task.
    """
    with _without_pandas_warning():
        if not rows and _is_remote(spark):
            # Spark Connect refuses an Arrow table without rows.
            return spark.createDataFrame([], schema)
        return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=arrow_schema(schema)))


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextlib.contextmanager
def _without_pandas_warning() -> Iterator[None]:
    """Silence PySpark's warning about a pandas version that is too new; pandas is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        yield
