"""Kills of `to_lake` with all its processes: the lake is as before or after the job, and the next run continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seeklog.spark import jobs
from spark.test_lake import check_lake, lake_rows, manifest_of, source_rows
from spark.workbench import append, make_store, numbered
from store.workbench import open_store

HERE = Path(__file__).resolve().parent
# More than a driver needs on a slow and busy machine.
PATIENCE_S = 300

_DRIVER = """
import sys
from seeklog.spark import jobs, session

config = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.driver.memory": "600m"}
with session("a lake", master="local[2]", config=config) as spark:
    jobs.to_lake(spark, sys.argv[1], sys.argv[2], file_bytes=1000, progress=False)
"""
# The call to kill at, and the number of commits in the lake afterwards; the first commit is the empty manifest. The
# directory is synced before it is read, and for each of the two manifests.
KILLS = {
    "before the first manifest of an empty lake": ("rename _seeklog/manifest 1", None),
    "in a task, after some files": ("sync .parquet. 3", 0),
    "after some files are renamed": ("rename .parquet 5", 0),
    "after all files are renamed, before the manifest": ("rename _seeklog/manifest 2", 0),
    "after the manifest is renamed": ("sync_directory _seeklog 3", 1),
}
# Each kill starts a driver. The quick ones are those before and after the commit.
QUICK = {"after all files are renamed, before the manifest", "after the manifest is renamed"}


def run_killed(store: Path, lake: Path, kill: str) -> int:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE / "killing_at"), str(HERE.parents[1] / "src")]),
        "SEEKLOG_TEST_KILL": kill,
    }
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _DRIVER, str(store), str(lake)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return child.wait(PATIENCE_S)


@pytest.mark.id("lake-killed")
@pytest.mark.parametrize(
    "when", [when if when in QUICK else pytest.param(when, marks=pytest.mark.slow) for when in KILLS]
)
def test_kill_leaves_lake_before_or_after_and_next_run_continues(
    spark: SparkSession, tmp_path: Path, when: str
) -> None:
    kill, commit = KILLS[when]
    store, lake = make_store(tmp_path / "store", {"orders": [300, 200]}, segment_bytes=2000), tmp_path / "lake"
    expected = source_rows(spark, store)

    assert run_killed(store, lake, kill) == -signal.SIGKILL

    if commit is None:
        assert not (lake / "_seeklog" / "manifest").exists()
    else:
        assert manifest_of(lake).commit == commit
        assert lake_rows(spark, store, lake) == expected
    with open_store(store) as opened:
        append(opened, "orders", numbered(100, first=300), partition=0, batch_records=10)
    jobs.to_lake(spark, store, lake, progress=False)
    check_lake(lake)
    assert lake_rows(spark, store, lake) == source_rows(spark, store)
