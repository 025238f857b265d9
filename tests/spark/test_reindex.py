"""`jobs.reindex`: indexes are restored exactly; locked and damaged logs are not changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from log.workbench import QuickFiles, wait_until
from seeklog import Log, LogConfig, names
from seeklog.errors import LogLocked, TopicNotFound, UsageError
from seeklog.spark import jobs
from spark.workbench import make_store, unpack_broker
from store.workbench import Holder, Snapshot, open_store, read, snapshot

SEGMENT_BYTES = 2000
INTERVAL = {"index.interval.bytes": 300}
SOURCES = Path(__file__).resolve().parents[2] / "src"
INDEXES = (".index", ".timeindex")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "store"
    counts = {"orders": [300, 300], "other": [100]}
    return make_store(root, counts, segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def reindexed(spark: SparkSession, path: Path, **options: object) -> list[Row]:
    return jobs.reindex(spark, path, progress=False, **{"config": INTERVAL, **options}).collect()  # type: ignore[arg-type]


def contents(root: Path) -> Snapshot:
    """Return all files except locks and watermarks, which every writer publishes again."""
    return {name: data for name, data in snapshot(root, locks=False).items() if not name.endswith(names.WATERMARK)}


def indexes(root: Path, partition: str) -> list[Path]:
    return sorted(path for path in (root / partition).iterdir() if path.suffix in INDEXES)


def test_good_indexes_are_unchanged(spark: SparkSession, store: Path) -> None:
    before = contents(store)
    times = {path: path.stat().st_mtime_ns for path in store.glob("*/*") if path.suffix in (*INDEXES, ".seal")}

    rows = reindexed(spark, store)

    assert {row.done for row in rows} == {"unchanged"}
    assert len(rows) == len(list(store.glob("*/*.log")))
    assert contents(store) == before
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_missing_cut_and_wrong_indexes_are_restored_exactly(spark: SparkSession, store: Path) -> None:
    """Goal: the indexes of every segment, including the last one, which recovery rebuilds."""
    before = contents(store)
    for number, path in enumerate(indexes(store, "orders-0")):
        match number % 3:
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(path.read_bytes()[:-3])
            case _:
                path.write_bytes(b"nonsense")

    rows = reindexed(spark, store)

    assert contents(store) == before
    assert {(row.topic, row.partition): row.done for row in rows} == {
        ("orders", 0): "rebuilt",
        ("orders", 1): "unchanged",
        ("other", 0): "unchanged",
    }
    first = rows[0]
    assert (first.segment, first.index_bytes_before, first.detail) == (0, None, "")
    assert first.index_bytes_after == (store / "orders-0" / f"{0:020d}.index").stat().st_size
    assert first.records * len(rows) > 0
    assert {row.done for row in reindexed(spark, store)} == {"unchanged"}


@pytest.mark.id("spark-reindex")
def test_existing_key_indexes_are_checked_and_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    root = make_store(
        tmp_path / "keyed", {"orders": [300]}, segment_bytes=4_000, index_interval_bytes=300, key_index="seal"
    )
    with open_store(root, segment_bytes=4_000, index_interval_bytes=300, key_index="seal") as writing:
        writing.maintain()
    first, second, *_ = sorted((root / "orders-0").glob("*.keyindex"))
    assert jobs.verify(spark, root, progress=False).count() == 0
    before = contents(root)
    second.write_bytes(first.read_bytes())
    data = bytearray(first.read_bytes())
    data[60] ^= 4
    first.write_bytes(data)

    found = jobs.verify(spark, root, progress=False).collect()
    assert [(row.kind, row.severity, Path(row.file).name) for row in found] == [
        ("key-index", "error", first.name),
        ("key-index", "warning", second.name),
    ]
    rows = reindexed(spark, root)
    assert [row.done for row in rows][:3] == ["rebuilt", "rebuilt", "unchanged"]
    assert rows[0].key_index_bytes_before == rows[0].key_index_bytes_after == first.stat().st_size
    assert contents(root) == before
    assert jobs.verify(spark, root, progress=False).count() == 0


def test_indexes_with_another_interval_are_accepted(spark: SparkSession, store: Path) -> None:
    rows = reindexed(spark, store, config={"index.interval.bytes": 1000})

    assert {row.done for row in rows if row.segment == 0} == {"rebuilt"}
    assert jobs.verify(spark, store, progress=False).count() == 0
    with open_store(store, read_only=True) as reading:
        assert len(read(reading, "orders")) == 300


def test_damaged_segment_is_reported_and_unchanged(spark: SparkSession, store: Path) -> None:
    logs = sorted((store / "orders-0").glob("*.log"))
    raw = bytearray(logs[1].read_bytes())
    raw[70] ^= 1
    logs[1].write_bytes(raw)
    for path in indexes(store, "orders-0"):
        path.write_bytes(b"nonsense")

    rows = reindexed(spark, store, topics=["orders"])

    (damaged,) = (row for row in rows if row.done == "damaged")
    assert (damaged.file, damaged.index_bytes_after) == (str(logs[1]), len(b"nonsense"))
    assert damaged.detail.startswith("byte 0: stored CRC")
    assert logs[1].with_suffix(".index").read_bytes() == b"nonsense"
    assert {row.done for row in rows if row.partition == 0 and row is not damaged} == {"rebuilt"}


def test_log_with_lost_records_is_refused(spark: SparkSession, store: Path) -> None:
    last = sorted((store / "orders-0").glob("*.log"))[-1]
    os.truncate(last, 10)
    before = contents(store / "orders-0")

    (refused,) = (row for row in reindexed(spark, store) if row.done == "refused")

    assert (refused.topic, refused.partition, refused.segment) == ("orders", 0, None)
    assert str(last) in refused.detail
    assert "\n" not in refused.detail
    assert contents(store / "orders-0") == before


def test_locked_partition_is_reported_before_any_change(spark: SparkSession, store: Path) -> None:
    for path in indexes(store, "orders-0"):
        path.unlink()
    before = contents(store)

    with Holder(store / "orders-1" / ".lock") as holder:
        with pytest.raises(LogLocked) as caught:
            reindexed(spark, store)
        assert caught.value.owner_pid == holder.pid

    assert contents(store) == before


def test_only_chosen_topics_change(spark: SparkSession, store: Path) -> None:
    before = contents(store)
    for partition in ("orders-0", "other-0"):
        for path in indexes(store, partition):
            path.unlink()

    reindexed(spark, store, topics=["other"])
    assert indexes(store, "orders-0") == []
    reindexed(spark, store / "orders-0")

    assert contents(store) == before
    with pytest.raises(TopicNotFound):
        reindexed(spark, store, topics=["ordres"])


@pytest.mark.parametrize("name", ["kafka-3.9.2-clean", "kafka-4.3.1-clean"])
def test_broker_indexes_are_restored_exactly(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = unpack_broker(name, tmp_path)
    before = contents(root)
    own = sorted({path.parent.name.rsplit("-", 1)[0] for path in root.glob("*/*.log")} - {"__transaction_state"})
    for path in root.glob("*/*"):
        if path.suffix in INDEXES and not path.parent.name.startswith("__transaction_state"):
            path.unlink()

    rows = reindexed(spark, root, topics=[topic for topic in own if not topic.startswith("__")])
    rows += reindexed(spark, root, topics=["__consumer_offsets"], config=None)

    assert {row.done for row in rows} == {"rebuilt"}
    assert contents(root) == before


def test_directory_of_a_running_broker_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = unpack_broker("kafka-4.3.1-clean", tmp_path)
    before = contents(root)

    with Holder(root / ".lock", "broker"), pytest.raises(LogLocked, match="broker"):
        reindexed(spark, root)
    with pytest.raises(UsageError, match="__transaction_state"):
        reindexed(spark, root, topics=["__transaction_state"])

    assert contents(root) == before


_KILLED = """
import sys
from pyspark.sql import SparkSession
from seeklog.spark import jobs

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
with builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate() as spark:
    print("ready", flush=True)
    jobs.reindex(spark, sys.argv[1], progress=False)
"""


@pytest.mark.slow
def test_killed_job_can_be_run_again(spark: SparkSession, tmp_path: Path) -> None:
    """The job is killed after the first rebuilt index. Its tasks may still write others, with the same bytes."""
    # One record per segment, to give the job work.
    config = LogConfig(segment_bytes=100, flush="os")
    with Log(tmp_path / "log", config=config, files=QuickFiles(), background=False) as log:
        for number in range(500):
            log.append(b"%d" % number, timestamp_ms=1000 + number)
    before = contents(tmp_path / "log")
    for path in (tmp_path / "log").iterdir():
        if path.suffix in INDEXES:
            path.unlink()
    paths = [str(SOURCES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _KILLED, str(tmp_path / "log")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    wait_until(lambda: any(path.suffix == ".index" for path in (tmp_path / "log").iterdir()), "an index")
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()

    rows = reindexed(spark, tmp_path / "log", config=None)

    assert {row.done for row in rows} <= {"rebuilt", "unchanged"}
    assert len(rows) == 500
    after = {name: data for name, data in contents(tmp_path / "log").items() if not name.endswith(".tmp")}
    assert after == before
    assert jobs.verify(spark, tmp_path / "log", progress=False).count() == 0
