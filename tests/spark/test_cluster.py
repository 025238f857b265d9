"""The data source on a cluster: a driver and two executors that share only the file system.

The cluster starts slowly, so one child process runs all checks, and each test asserts one result.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark.streams import SOURCES
from spark.workbench import everything, make_store
from store.workbench import open_store

ORDERS = [300, 100, 50]


def spark_home(target: Path) -> Path:
    """Return a Spark home that links to the installed package and has room for working directories of executors.

    It lacks the zip of PySpark, so workers import the installed package, which is faster.
    """
    installed = Path(pyspark.__file__).parent
    target.mkdir()
    for name in ("bin", "jars"):
        (target / name).symlink_to(installed / name)
    return target


def run_child(arguments: list[str], home: Path) -> tuple[dict[str, Any], str]:
    """Run a driver to its end; return its results and its other output."""
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("cluster_child.py")), *arguments],
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "PYTHONPATH": str(SOURCES),
            "PYSPARK_PYTHON": sys.executable,
            # The host name of some machines does not resolve to them.
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found: dict[str, Any] = {}
    for line in child.stdout.splitlines():
        at = line.find("found {")  # a progress bar may precede it
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
    found, output = run_child(["all", "local-cluster[2,1,1024]", str(store), str(work)], spark_home(work / "home"))
    assert "stream_write" in found, output[-5000:]
    return found


def test_executors_need_only_their_splits(found: dict[str, Any], store: Path) -> None:
    read = found["batch_read"]
    assert read["executors"] == 2
    assert read["tasks"] >= 6
    assert read["rows"] == [list(place) for place in everything(store, "orders")]


def test_executors_read_the_batches_of_a_stream(found: dict[str, Any], store: Path) -> None:
    read = found["stream_read"]
    # 450 records, at most a hundred in a batch.
    assert read["batches"] == 5
    assert read["rows"] == [list(place) for place in everything(store, "orders")]


def test_driver_commits_rows_staged_by_executors(found: dict[str, Any]) -> None:
    assert found["batch_write"] == {"values": list(range(2000)), "partitions": 2}


@pytest.mark.id("spark-task-retried")
def test_retried_task_writes_its_rows_once(found: dict[str, Any]) -> None:
    # The first attempt of the second task failed after staging all of its rows.
    assert found["retried_write"] == {
        "values": list(range(2000)),
        "partitions": 2,
        "attempts": ["0-0", "1-0", "1-1", "2-0", "3-0"],
    }


def test_stream_copies_topic_exactly_once(found: dict[str, Any]) -> None:
    expected = sorted(number for count in ORDERS for number in range(count))
    assert found["stream_write"] == {"values": expected, "partitions": 2}


# ---------------------------------------------------------------- two attempts of one task at the same time


class Cluster:
    """A standalone cluster with workers on two addresses, because a speculative task runs only on another host."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._processes: list[subprocess.Popen[str]] = []
        self.master = self._start(
            "master.Master", "--host", "127.0.0.1", "--port", "0", says=r"spark://127\.0\.0\.1:\d+"
        )
        for number in (1, 2):
            arguments = (self.master, "--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g", "--port", "0")
            self._start("worker.Worker", *arguments, "--work-dir", str(home / f"worker-{number}"), says="registered")

    def _start(self, class_name: str, *arguments: str, says: str) -> str:
        process = subprocess.Popen(
            [
                str(self._home / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{class_name}",
                *arguments,
                "--webui-port",
                "0",
            ],
            env={**os.environ, "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            found = re.search(says, line)
            if found is not None:
                # Its output is not used, but must not fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return found[0]
        raise AssertionError("".join(seen))

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait()


@pytest.mark.slow
def test_two_concurrent_attempts_of_a_task_write_rows_once(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"retried": [0, 0]})
    home = spark_home(tmp_path / "home")
    cluster = Cluster(home)
    try:
        found, output = run_child(["speculation", cluster.master, str(path), str(tmp_path)], home)
    finally:
        cluster.stop()
    assert "speculative_write" in found, output[-5000:]
    written = found["speculative_write"]
    assert written["values"] == list(range(2000))
    assert {"1-0", "1-1"} <= set(written["attempts"]), "both attempts had staged all of their rows"
