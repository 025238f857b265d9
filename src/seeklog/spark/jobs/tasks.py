"""Work done by Spark's tasks on things that are named in the driver: one row a task, results back as they are.

The things travel inside the function, and a range of numbers says which task does which. That needs no RDD, so that it
works in Spark Connect, too.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from seeklog.spark.jobs.frame import is_remote, no_word_of_pandas
from seeklog.spark.jobs.progress import Progress
from seeklog.spark.local.active import make_active

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

# A task costs 60 to 70 ms of a slot before it does anything, and a kernel checks several GB a second. A segment is as a
# rule 1 GB; the small ones are put together.
PACK_BYTES = 256 << 20
# What opening a segment's files costs, as bytes that could have been read in that time.
ITEM_BYTES = 1 << 20
# How often the line is updated.
POLL_S = 0.25


def pack(items: Sequence[Item], size_of: Callable[[Item], int]) -> list[list[Item]]:
    """Put small items together, so that each task has enough to do; the largest come first, to leave no late rest."""
    packs: list[list[Item]] = []
    room = 0
    for item in sorted(items, key=size_of, reverse=True):
        cost = size_of(item) + ITEM_BYTES
        if cost > room:
            packs.append([])
            room = PACK_BYTES
        packs[-1].append(item)
        room -= cost
    return packs


def run_tasks(
    spark: SparkSession, packs: Sequence[Sequence[Item]], work: Callable[[Item], Result], *, progress: Progress
) -> list[Result]:
    """Return what `work`, a function of a module, makes of every item. An error or Ctrl-C ends the Spark job."""
    if not packs:
        return []

    def task(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        yield from _work_on(batches, packs, work)

    with no_word_of_pandas():
        frame = spark.range(0, len(packs), 1, len(packs)).mapInArrow(task, "results binary")
        with _watched(spark, progress):
            rows = frame.collect()
    return [result for row in rows for result in pickle.loads(row["results"])]


def _work_on(
    batches: Iterator[pyarrow.RecordBatch], packs: Sequence[Sequence[Any]], work: Callable[[Any], Any]
) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    for batch in batches:
        for number in batch.column(0).to_pylist():
            results = [work(item) for item in packs[number]]
            yield pyarrow.record_batch({"results": pyarrow.array([pickle.dumps(results)], pyarrow.binary())})


def _watched(spark: SparkSession, progress: Progress) -> contextlib.AbstractContextManager[None]:
    return _watched_remotely(spark, progress) if is_remote(spark) else _watched_here(spark, progress)


@contextlib.contextmanager
def _watched_here(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Watch the jobs that this thread starts in a classic session; end them if anything goes wrong."""
    context = spark.sparkContext
    tag = _new_tag()
    is_over = threading.Event()

    def watch() -> None:
        tracker = context._jsc.sc().statusTracker()
        stages = context.statusTracker()
        while not is_over.wait(POLL_S):
            # It is only told: whatever goes wrong here must not end a job that goes well.
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
            # Ctrl-C breaks the connection to the JVM's thread. The next one gets another, which knows of no session.
            make_active(spark)
        raise
    finally:
        is_over.set()
        watcher.join()
        context.removeJobTag(tag)


@contextlib.contextmanager
def _watched_remotely(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """The same in Spark Connect, which tells of its progress itself."""
    tag = _new_tag()

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


def _new_tag() -> str:
    return f"seeklog-{uuid.uuid4().hex}"
