"""The data source on a cluster: a driver and two executors that share nothing but the file system.

One child process does it all, because such a cluster takes its time to come up; each test looks at a part of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark.conftest import SOURCES
from spark.workbench import everything, make_store
from store.workbench import open_store

ORDERS = [300, 100, 50]


def spark_home(target: Path) -> Path:
    """Return a Spark home over the installed package, where executors may put their working directories."""
    installed = Path(pyspark.__file__).parent
    target.mkdir()
    for name in ("bin", "jars", "python"):
        (target / name).symlink_to(installed / name)
    return target


def run_child(arguments: list[str], home: Path) -> tuple[dict[str, Any], str]:
    """Run a driver to its end; return what it found, and what it wrote beside that."""
    child = subprocess.run(
        [sys.executable, *arguments],
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "PYTHONPATH": str(SOURCES),
            "PYSPARK_PYTHON": sys.executable,
            # Some machines give themselves a name that does not lead back to them.
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found: dict[str, Any] = {}
    for line in child.stdout.splitlines():
        at = line.find("found {")  # a progress bar may stand before it
        if at >= 0:
            found |= json.loads(line[at + len("found ") :])
    return found, child.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_store(tmp_path_factory.mktemp("cluster") / "store", {"orders": ORDERS})
    with open_store(path) as opened:
        for topic in ("written", "retried", "copied"):
            opened.create_topic(topic, partitions=2)
    return path


@pytest.fixture(scope="module")
def found(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("work")
    script = Path(__file__).with_name("cluster_child.py")
    found, output = run_child(
        [str(script), "local-cluster[2,1,1024]", str(store), str(work)], spark_home(work / "home")
    )
    assert "stream_write" in found, output[-5000:]
    return found


def test_executors_read_a_batch_from_their_splits_alone(found: dict[str, Any], store: Path) -> None:
    read = found["batch_read"]
    assert read["executors"] == 2
    assert read["tasks"] >= 6
    assert read["rows"] == [list(place) for place in everything(store, "orders")]


def test_executors_read_the_batches_of_a_stream(found: dict[str, Any], store: Path) -> None:
    read = found["stream_read"]
    # 450 records, a hundred at most in a batch.
    assert read["batches"] == 5
    assert read["rows"] == [list(place) for place in everything(store, "orders")]


def test_rows_that_executors_stage_are_committed_by_the_driver(found: dict[str, Any]) -> None:
    assert found["batch_write"] == {"values": list(range(2000)), "partitions": 2}


def test_a_task_that_fails_and_is_tried_again_writes_its_rows_once(found: dict[str, Any]) -> None:
    assert found["retried_write"] == {"values": list(range(2000)), "partitions": 2}


def test_a_stream_is_copied_from_topic_to_topic_once(found: dict[str, Any]) -> None:
    expected = sorted(number for count in ORDERS for number in range(count))
    assert found["stream_write"] == {"values": expected, "partitions": 2}


def test_nothing_that_was_staged_is_left(found: dict[str, Any], store: Path) -> None:
    # What the attempt that failed has staged cannot be known to be dead; it is the only one that may be left.
    assert len({path.name for path in store.glob("*/seeklog-staged-*")}) <= 2
