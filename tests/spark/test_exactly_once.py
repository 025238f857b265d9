"""The Spark sink writes each row once: whoever is killed, whenever, and whoever else writes at the same time.

Drivers are processes of their own here, because they are killed: the JVM, Python's workers and all.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import seeklog
from seeklog import names
from seeklog.errors import LogLocked
from seeklog.spark.write.sink import BatchWriter, StagedRows, batch_writer
from spark.checker import Row, judge, rows_of, staged_files, transaction_states
from spark.children import BATCH_RECORDS, PARTITIONS, SINK, SOURCE, rows_of_version, stage
from spark.killing.sitecustomize import kill_session
from store.workbench import open_store, send

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "src"
# What a driver needs for one batch on a slow and busy machine; only a driver that hangs takes so long.
PATIENCE_S = 300


@pytest.fixture(autouse=True)
def _only_if_asked_for(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("slow") and not request.config.option.markexpr:
        pytest.skip("slow: run with -m slow")


# ---------------------------------------------------------------- the checker itself


def test_the_checker_tells_what_is_lost_doubled_strange_and_reordered() -> None:
    """Goal: what the other tests rely on can fail."""
    a, b, c = (b"k", b"a"), (b"k", b"b"), (b"other", b"c")
    written = [a, b, c]
    assert not judge(written, {0: [a, b], 1: [c]})
    assert not judge(written, {0: [a, c, b], 1: []})
    assert judge(written, {0: [a, b], 1: []}).lost == [c]
    assert judge(written, {0: [a, b, a], 1: [c]}).doubled == [a]
    assert judge(written, {0: [a, b], 1: [c, a]}).doubled == [a]
    assert judge(written, {0: [a, b], 1: [c, (b"k", b"x")]}).strange == [(b"k", b"x")]
    assert judge(written, {0: [b, a], 1: [c]}).reordered == [b"k"]
    assert judge(written, {0: [a], 1: [c, b]}).reordered == [b"k"]
    assert str(judge(written, {0: [a, a], 1: []})) == ("2 lost, such as (b'k', b'b'); 1 doubled, such as (b'k', b'a')")


# ---------------------------------------------------------------- drivers that are killed


class Ended(NamedTuple):
    """How a driver has ended, and what it has said."""

    returncode: int
    stdout: str


class Query:
    """A streaming query that copies one topic to another in batches, and the plan by which it is killed."""

    def __init__(self, work: Path, *, batches: int) -> None:
        self.root = work / "store"
        self._checkpoint = work / "checkpoint"
        self._plan = work / "plan"
        self._plan.mkdir()
        with open_store(self.root) as store:
            store.create_topic(SOURCE, partitions=2)
            store.create_topic(SINK, partitions=PARTITIONS)
            # As many of one partition as of the other, so that each batch has both.
            self.rows: list[Row] = []
            for partition in range(2):
                rows = [
                    (b"key-%d-%d" % (partition, number % 7), b"%d-%d" % (partition, number))
                    for number in range(batches * BATCH_RECORDS // 2)
                ]
                with store.producer() as producer:
                    for key, value in rows:
                        producer.send(SOURCE, value, key=key, partition=partition)
                self.rows += rows

    def arm(self, step: str | int, *, version: int | None = None, whole: bool = True) -> None:
        """Let a process die at a step, or all of them; later plans count when earlier ones were carried out."""
        number = len(list(self._plan.glob("*-*")))
        plan = {"step": step, "version": version, "whole": whole}
        (self._plan / f"armed-{number:03d}").write_text(json.dumps(plan))

    @property
    def armed(self) -> list[str]:
        return sorted(path.name for path in self._plan.glob("armed-*"))

    def disarm(self) -> None:
        for name in self.armed:
            (self._plan / name).unlink()

    @property
    def steps(self) -> list[str]:
        """What was asked of the disk while rows were staged and committed."""
        return (self._plan / "steps").read_text().splitlines()

    def run(self, *, starts: int = 1, fails_in: int = -1) -> Ended:
        """Run a driver until it ends or is killed; in it the query is started again if it fails, so often."""
        words = ("stream", self.root, self._checkpoint, starts, fails_in)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE / "killing"), str(SOURCES)]),
            "SEEKLOG_TEST_PLAN": str(self._plan),
        }
        driver = subprocess.Popen(
            [sys.executable, str(HERE / "children.py"), *map(str, words)],
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = driver.communicate(timeout=PATIENCE_S)
        finally:
            # Workers may outlive a driver that has ended, for a moment.
            kill_session(driver.pid)
            driver.wait()
        return Ended(driver.returncode, output)

    def check_half_way(self) -> None:
        """Nothing is there twice, or that was not written."""
        verdict = judge(self.rows, rows_of(self.root, SINK))
        assert not verdict.doubled
        assert not verdict.strange

    def check_at_the_end(self) -> None:
        verdict = judge(self.rows, rows_of(self.root, SINK))
        assert not verdict, str(verdict)
        assert staged_files(self.root) == []
        assert transaction_states(self.root) == ["done"]


# Before a task has made its first staged file durable, and between the first partition and the second. Workers are
# killed at more of the steps below, and drivers at each in a slow test.
KILLS = ["staged", "append 2"]


def test_a_driver_that_is_killed_with_all_its_workers_at_a_step_of_a_commit_writes_each_row_once(
    tmp_path: Path,
) -> None:
    """Goal: each restart proves the last kill, because it does that batch again, and runs into the next kill."""
    query = Query(tmp_path, batches=len(KILLS) + 1)
    for version, step in enumerate(KILLS):
        query.arm(step, version=None if step == "staged" else version)
        ended = query.run()
        assert ended.returncode == -signal.SIGKILL, ended.stdout
        assert query.armed == []
        query.check_half_way()
    ended = query.run()
    assert ended.returncode == 0, ended.stdout
    query.check_at_the_end()


# The process that stages or commits, one for each kind of step. Spark lives on, and sees its worker die.
WORKER_KILLS = [
    ("after staged", None),
    ("intent", 0),
    ("after intent", 1),
    ("append 1", 2),
    ("append 2", 3),
    ("sweep", 4),
    ("done", 5),
    ("after done", 6),
    ("returned", 7),
]


def test_a_worker_that_is_killed_while_its_driver_lives_on_writes_each_row_once(tmp_path: Path) -> None:
    """Goal: a task is tried again, what the attempt had staged is swept; a commit is aborted and then repeated."""
    query = Query(tmp_path, batches=len(WORKER_KILLS) + 1)
    for step, version in WORKER_KILLS:
        query.arm(step, version=version, whole=False)
    # In the last batch no worker is killed, but attempts fail by themselves.
    ended = query.run(starts=len(WORKER_KILLS), fails_in=len(WORKER_KILLS) - 1)
    assert ended.returncode == 0, ended.stdout
    assert query.armed == []
    assert (tmp_path / "failed attempt").exists()
    # The first kill was of a task, which is not the end of a query.
    assert ended.stdout.count("failed") == len(WORKER_KILLS) - 1
    query.check_at_the_end()


@pytest.mark.slow
def test_a_driver_that_is_killed_at_every_single_step_of_a_commit_writes_each_row_once(tmp_path: Path) -> None:
    """Goal: a kill at each step of a commit that goes well, and a batch in peace behind it: that one proves the log."""
    most = 100  # more steps than a commit has
    query = Query(tmp_path, batches=2 * most)
    for kills in range(most):
        query.arm(kills + 1, version=2 * kills)
        ended = query.run()
        if query.armed:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stdout
        query.check_half_way()
    assert ended.returncode == 0, ended.stdout
    assert kills > 50, "a commit to three partitions has more steps than that"
    query.check_at_the_end()


# ---------------------------------------------------------------- attempts that lost


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        store.create_topic(SINK, partitions=PARTITIONS)
    return tmp_path / "store"


SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


def write_attempt(writer: BatchWriter, rows: list[Row]) -> StagedRows:
    """Do what an attempt of a task does."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([key for key, _ in rows], pa.binary()), pa.array([value for _, value in rows], pa.binary())],
        names=["key", "value"],
    )
    return writer.write(iter([batch]))


@pytest.mark.parametrize("winner", [0, 1])
def test_of_two_attempts_of_a_task_that_both_staged_their_rows_one_is_committed_and_both_are_swept(
    root: Path, winner: int
) -> None:
    """Goal: what speculation leaves behind. A task killed before its end has left a file that was never finished."""
    rows = [(b"key-%d" % (number % 7), b"%d" % number) for number in range(100)]
    options = {"path": str(root), "topic": SINK, "txnAppId": "job", "txnVersion": "1"}
    writer = batch_writer(options, SCHEMA, overwrite=False)
    attempts = [write_attempt(writer, rows[:60]) for _ in range(2)]
    other = write_attempt(writer, rows[60:])
    with seeklog.open(root, read_only=True) as store:
        store.transactions.stager(f"job to {SINK}", seeklog.TopicPartition(SINK, 0))

    writer.commit([attempts[winner], other])

    verdict = judge(rows, rows_of(root, SINK))
    assert not verdict, str(verdict)
    assert staged_files(root) == []


# ---------------------------------------------------------------- processes that write at the same time


@pytest.fixture
def children(root: Path) -> Iterator[Children]:
    started = Children(root)
    yield started
    started.end()


class Children:
    """Processes that write to one store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, what: str, *words: str, plan: Path | None = None) -> subprocess.Popen[str]:
        """Start one, which is killed by a plan if there is one."""
        killing = {} if plan is None else {"SEEKLOG_TEST_PLAN": str(plan)}
        child = subprocess.Popen(
            [sys.executable, str(HERE / "children.py"), what, str(self._root), *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE / "killing"), str(SOURCES)]), **killing},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(child)
        return child

    def end(self) -> None:
        for child in self._processes:
            child.kill()
            child.communicate()


def said(child: subprocess.Popen[str], *words: object) -> list[str]:
    """Return the line that begins so, the next of its kind."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.split()[: len(words)] == [str(word) for word in words]:
            return line.split()
    raise AssertionError(f"the process has ended without saying {words}")


ROUNDS = 50


@pytest.mark.parametrize("others", [0, 1], ids=["two drivers", "two drivers and one whose jobs fail"])
def test_drivers_that_commit_the_same_version_at_the_same_time_add_it_once(
    root: Path, children: Children, others: int
) -> None:
    """Goal: a driver that was taken for dead and lives on does no harm, nor does one that removes its staging."""
    drivers = [children.start("commit_in_rounds", "query", str(ROUNDS)) for _ in range(2)]
    everybody = drivers + [children.start("discard_in_rounds", "query", str(ROUNDS)) for _ in range(others)]
    for child in everybody:
        said(child, "ready")
    for version in range(ROUNDS):
        for child in everybody:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        added = [int(said(child, "committed", version)[2]) for child in everybody]
        assert sum(added) == 1, f"version {version}: {added}"
    assert [child.wait(PATIENCE_S) for child in everybody] == [0] * len(everybody)

    rows = [row for number in range(PARTITIONS) for version in range(ROUNDS) for row in expected(version, number)]
    verdict = judge(rows, rows_of(root, SINK))
    assert not verdict, str(verdict)
    assert staged_files(root) == []
    assert transaction_states(root) == ["done"]


def expected(version: int, partition: int, app: str = "query") -> list[Row]:
    return rows_of_version(app, version, partition)


VERSIONS = 25


APPS = ["first", "second", "third"]


def test_three_writers_and_a_producer_for_each_partition_lose_and_double_nothing(
    root: Path, children: Children, tmp_path: Path
) -> None:
    writers = [children.start("commit_many", app, str(VERSIONS), str(tmp_path / app)) for app in APPS]
    writers += [children.start("produce_many", str(number), str(VERSIONS)) for number in range(PARTITIONS)]
    for child in writers:
        said(child, "ended")
    assert [child.wait(PATIENCE_S) for child in writers] == [0] * len(writers)
    check_all_writers(root)


def check_all_writers(root: Path) -> None:
    rows = [
        row
        for app in [*APPS, "plain"]
        for number in range(PARTITIONS)
        for version in range(VERSIONS)
        for row in expected(version, number, app)
    ]
    verdict = judge(rows, rows_of(root, SINK))
    assert not verdict, str(verdict)
    assert transaction_states(root) == ["done"] * len(APPS)


def test_writers_that_are_killed_beside_each_other_lose_and_double_nothing(
    root: Path, children: Children, tmp_path: Path
) -> None:
    """Goal: what one of them leaves behind is finished by the others, while it comes back itself."""
    chance = random.Random(1)
    for app in APPS:
        (tmp_path / f"plan of {app}").mkdir()
        for version in chance.sample(range(VERSIONS), 8):
            # A commit has some fifty steps, of which a third comes before the first append.
            plan = {"step": chance.choice((chance.randrange(1, 20), chance.randrange(1, 55))), "version": version}
            (tmp_path / f"plan of {app}" / f"armed-{version:03d}").write_text(json.dumps({**plan, "whole": False}))

    def start(app: str) -> subprocess.Popen[str]:
        words = (app, str(VERSIONS), str(tmp_path / app))
        return children.start("commit_many", *words, plan=tmp_path / f"plan of {app}")

    producers = [children.start("produce_many", str(number), str(VERSIONS)) for number in range(PARTITIONS)]
    writers = {app: start(app) for app in APPS}
    kills = 0
    while writers:
        for app, child in list(writers.items()):
            try:
                returncode = child.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
            if returncode == -signal.SIGKILL:
                kills += 1
                writers[app] = start(app)
            else:
                assert returncode == 0
                del writers[app]
    assert [child.wait(PATIENCE_S) for child in producers] == [0] * PARTITIONS
    assert kills >= 15
    check_all_writers(root)


def test_a_producer_of_the_store_that_commits_goes_on_beside_it(root: Path) -> None:
    """Goal: transactions of a process get between what its producers send, and neither disturbs the other."""
    rows = [row for version in range(200) for row in expected(version, 0, "plain")]
    with seeklog.open(root) as store:
        with store.producer(linger_ms=0, batch_bytes=200) as producer:

            def send_all() -> None:
                for key, value in rows:
                    producer.send(SINK, value, key=key, partition=0)

            sending = threading.Thread(target=send_all)
            sending.start()
            for version in range(VERSIONS):
                assert store.transactions.commit("query", version, stage(store, "query", version))
            sending.join()
        assert not store.transactions.commit("query", VERSIONS - 1, stage(store, "query", VERSIONS - 1))
    rows += [row for number in range(PARTITIONS) for version in range(VERSIONS) for row in expected(version, number)]
    verdict = judge(rows, rows_of(root, SINK))
    assert not verdict, str(verdict)
    assert staged_files(root) == []


def test_a_partition_that_is_held_too_long_is_told_and_the_commit_can_be_repeated(root: Path) -> None:
    """Goal: a writer that keeps a partition open costs a commit its patience, and nothing else."""
    options = {"path": str(root), "topic": SINK, "txnAppId": "job", "txnVersion": "1", "lockTimeout": "50ms"}
    writer = batch_writer(options, SCHEMA, overwrite=False)
    rows = [(b"key-%d" % number, b"%d" % number) for number in range(30)]
    with seeklog.open(root, background=False) as holding:
        send(holding, SINK, [b"held"], partition=1)
        with pytest.raises(LogLocked, match="nothing was committed"):
            writer.commit([write_attempt(writer, rows)])
        writer.abort([])
    assert staged_files(root) == []
    assert not list(root.glob(f"{names.TRANSACTION}*[0-9a-f]"))

    writer.commit([write_attempt(writer, rows)])
    with open_store(root, read_only=True) as store:
        values = [record.value for number in range(PARTITIONS) for record in store.log(SINK, number).scan()]
    assert sorted(values) == sorted([b"held", *(value for _, value in rows)])
