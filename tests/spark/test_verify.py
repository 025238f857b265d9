"""`jobs.verify`: damage is reported with file and byte; sound logs, also a broker's and open ones, have no finding.

`tests/log/test_inspection.py` tests the findings for one partition.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from log.workbench import FakeClock, wait_until
from seeklog import Log
from seeklog.errors import InvalidConfig, NotALog, TopicNotFound, UsageError
from seeklog.spark import jobs
from seeklog.spark.jobs.progress import LINE_INTERVAL_S, Progress
from seeklog.spark.jobs.tasks import ITEM_BYTES, PACK_BYTES, pack, run_tasks
from spark.workbench import BROKERS, append, make_store, numbered, unpack_broker
from store.workbench import open_store, snapshot

# Segments of a few batches of ten records.
SEGMENT_BYTES = 2000
SOURCES = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "store"
    counts = {"orders": [300, 300, 300, 300, 300, 300], "quiet": [50, 0]}
    return make_store(root, counts, segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def logs(root: Path, partition: str) -> list[Path]:
    found = sorted((root / partition).glob("*.log"))
    assert len(found) >= 4
    return found


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def second_batch(log: Path) -> int:
    """Return the position of the second batch of a segment."""
    return int.from_bytes(log.read_bytes()[8:12], "big") + 12


def found(spark: SparkSession, path: Path, **options: object) -> list[Row]:
    return jobs.verify(spark, path, progress=False, **options).collect()  # type: ignore[arg-type]


def test_sound_store_has_no_finding_and_is_unchanged(spark: SparkSession, store: Path) -> None:
    before = snapshot(store)

    findings = jobs.verify(spark, store, progress=False)

    assert findings.count() == 0
    assert findings.columns == [
        "topic",
        "partition",
        "segment",
        "file",
        "position",
        "offset",
        "kind",
        "severity",
        "detail",
    ]
    assert snapshot(store) == before


def test_each_damage_is_reported_with_partition_file_and_byte(spark: SparkSession, store: Path) -> None:
    """One store with a different damage in each partition."""
    record, base, missing, index, seal = (logs(store, f"orders-{number}") for number in range(5))
    flip(record[1], second_batch(record[1]) + 70)
    flip(base[1], second_batch(base[1]) + 6)
    for path in missing[1].parent.glob(f"{missing[1].stem}.*"):
        path.unlink()
    flip(index[0].with_suffix(".index"), 7)
    flip(seal[2].with_suffix(".seal"), 40)

    rows = found(spark, store)

    assert [(row.topic, row.partition, row.kind, row.severity, row.file, row.position) for row in rows] == [
        ("orders", 0, "crc", "error", str(record[1]), second_batch(record[1])),
        ("orders", 1, "offset", "error", str(base[1]), second_batch(base[1])),
        ("orders", 2, "gap", "error", str(missing[0]), missing[0].stat().st_size),
        ("orders", 3, "index", "error", str(index[0].with_suffix(".index")), 0),
        ("orders", 4, "seal", "error", str(seal[2].with_suffix(".seal")), 0),
    ]
    assert [row.segment for row in rows] == [int(Path(row.file).stem) for row in rows]
    assert "whole batches" in rows[0].detail


def test_missing_directory_is_reported(spark: SparkSession, store: Path) -> None:
    shutil.rmtree(store / "orders-5")

    (row,) = found(spark, store)

    assert (row.topic, row.partition, row.kind, row.file) == ("orders", 5, "unreadable", str(store / "orders-5"))


def test_only_chosen_topics_are_checked(spark: SparkSession, store: Path) -> None:
    flip(logs(store, "orders-0")[0], 70)

    assert found(spark, store, topics=["quiet"]) == []
    assert len(found(spark, store, topics=["orders", "quiet"])) == 1


def test_one_partition_can_be_checked(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    flip(logs(store, "orders-0")[0], 70)
    with Log(tmp_path / "lone", background=False) as log:
        log.append(b"value")
    flip(tmp_path / "lone" / f"{0:020d}.log", 65)

    assert [(row.topic, row.partition) for row in found(spark, store / "orders-0")] == [("orders", 0)]
    assert [(row.topic, row.partition) for row in found(spark, tmp_path / "lone")] == [("lone", None)]


@pytest.mark.parametrize("name", BROKERS)
def test_broker_directory_has_only_notes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Goal: no error for traces of the cleaner, transactions, and deletions, or for zeros after a broker was killed."""
    root = unpack_broker(name, tmp_path)
    before = snapshot(root)

    rows = found(spark, root)

    assert {row.severity for row in rows} == {"note"}
    assert {(row.topic, row.kind) for row in rows} == {("compacted", "gap"), ("emptied", "gap")}
    assert snapshot(root) == before


def test_store_open_for_writing_has_no_finding(spark: SparkSession, store: Path) -> None:
    stop = threading.Event()
    with open_store(store, segment_bytes=SEGMENT_BYTES, index_interval_bytes=300) as writing:

        def write() -> None:
            first = 300
            while not stop.is_set():
                append(writing, "orders", numbered(20, first=first), partition=first // 20 % 6, batch_records=3)
                first += 20

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(3):
                assert found(spark, store) == []
        finally:
            stop.set()
            writer.join()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topics": ["ordres"]}, TopicNotFound),
        ({"topics": "orders"}, UsageError),
        ({"config": {"index.interval": 3}}, UsageError),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    spark: SparkSession, store: Path, options: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        found(spark, store, **options)


def test_path_that_is_not_a_store_is_refused(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("nothing")
    for path in (tmp_path / "nowhere", tmp_path / "other", tmp_path / "other" / "notes.txt"):
        with pytest.raises(NotALog):
            found(spark, path)
    with pytest.raises(UsageError):
        found(spark, store / "orders-0", topics=["orders"])
    with pytest.raises(InvalidConfig, match='path is "file://host/store", but must be a directory'):
        jobs.verify(spark, "file://host/store")
    with pytest.raises(NotALog):
        jobs.verify(spark, "memory://nowhere")
    assert jobs.verify(spark, store.as_uri(), progress=False).count() == 0


def test_last_line_is_a_summary(spark: SparkSession, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(logs(store, "orders-0")[0].with_suffix(".seal"), 40)
    jobs.verify(spark, store)
    lines = capsys.readouterr().err.splitlines()
    jobs.verify(spark, store, progress=False)

    assert len(lines) == 1
    assert lines[0].startswith("verify: ")
    assert "1,850 records" in lines[0]
    assert lines[0].endswith(": 1 error")
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------- how the work is divided, reported, and ended


def test_small_segments_share_a_task() -> None:
    small, large = [ITEM_BYTES] * 300, [PACK_BYTES * 2, PACK_BYTES]

    packs = pack([*small, *large], lambda size: size)

    assert packs[:2] == [[PACK_BYTES * 2], [PACK_BYTES]]
    assert [len(each) for each in packs[2:]] == [128, 128, 44]
    assert pack([], len) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_progress_is_one_line_on_a_terminal_else_periodic(stream: io.StringIO) -> None:
    clock = FakeClock()
    progress = Progress(
        "verify", counts=[3, 2], sizes=[8_000_000, 1_000_000], is_shown=True, stream=stream, clock=clock
    )
    for done in (0, 1, 1, 2):
        clock.advance(int(LINE_INTERVAL_S * 500))
        progress.update(done)
    progress.finish("all is well")

    if stream.isatty():
        assert stream.getvalue().count("\n") == 1
        lines = [line.rstrip() for line in stream.getvalue().split("\r")[1:]]
        assert len(lines) == 5
    else:
        lines = stream.getvalue().splitlines()
        assert len(lines) == 3
    assert "verify: 3 of 5 segments, 8.0 MB of 9.0 MB, 1 MB/s" in lines
    assert lines[-1] == "verify: all is well"


def test_ctrl_c_ends_the_spark_job(spark: SparkSession) -> None:
    _interrupt(spark)

    progress = Progress("work", counts=[1, 1], sizes=[1, 1], is_shown=False)
    assert run_tasks(spark, [[1, 2], [3]], lambda number: 2 * number, progress=progress) == [2, 4, 6]


def test_write_works_right_after_ctrl_c(spark: SparkSession, store: Path) -> None:
    rows = spark.createDataFrame([(b"after",)], "value binary").coalesce(1)
    _interrupt(spark)

    rows.write.format("seeklog").option("path", str(store)).option("topic", "orders").mode("append").save()

    read = spark.read.format("seeklog").option("path", str(store)).option("subscribe", "orders").load()
    assert read.where("cast(value as string) = 'after'").count() == 1


def _interrupt(spark: SparkSession) -> None:
    """Start a long job and end it with Ctrl-C."""
    tracker = spark.sparkContext.statusTracker()

    def interrupt() -> None:
        wait_until(lambda: bool(tracker.getActiveJobsIds()), "the job")
        os.kill(os.getpid(), signal.SIGINT)

    progress = Progress("work", counts=[1, 1], sizes=[1, 1], is_shown=False)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        # Longer than any wait in these tests.
        run_tasks(spark, [[600], [600]], lambda seconds: time.sleep(seconds), progress=progress)
    interrupter.join()
    wait_until(lambda: not tracker.getActiveJobsIds(), "the end of the job")


_CONNECT = """
import sys
from pyspark.sql import SparkSession
from seeklog.spark import jobs

spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
try:
    print([(row.kind, row.position) for row in jobs.verify(spark, sys.argv[1]).collect()])
    outcomes = jobs.reindex(spark, sys.argv[1], config={"index.interval.bytes": 300}).collect()
    print([row.done for row in outcomes if row.done != "unchanged"])
    print(jobs.verify(spark, sys.argv[1], progress=False).count())
finally:
    spark.stop()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("connect_alone")
def test_both_jobs_work_in_spark_connect(spark: SparkSession, store: Path) -> None:
    index = logs(store, "orders-0")[0].with_suffix(".index")
    flip(index, 7)
    paths = [str(SOURCES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}

    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CONNECT, str(store)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines()[-3:] == ["[('index', 0)]", "['rebuilt']", "0"]
    assert "verify: " in child.stderr
    assert "reindex: " in child.stderr
