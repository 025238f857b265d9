"""The Spark sink writes each row once, whichever process is killed at any step, and beside other writers.

Drivers run in separate processes, which are killed with the JVM and all Python workers.
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
from seeklog.store import transactions_of
from spark.checker import Row, judge, rows_of, staged_files, transaction_states
from spark.children import BATCH_RECORDS, PARTITIONS, SINK, SOURCE, rows_of_version, stage
from spark.killing.sitecustomize import kill_session
from store.workbench import open_store, send

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "src"
# More than a driver needs for one batch on a slow and busy machine.
PATIENCE_S = 300
reads_proc = pytest.mark.skipif(not Path("/proc").exists(), reason="finds files and processes in /proc; run on Linux")


@pytest.fixture(autouse=True)
def _only_if_asked_for(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("slow") and not request.config.option.markexpr:
        pytest.skip("slow: run with -m slow")


# ---------------------------------------------------------------- the checker itself


def test_checker_finds_lost_duplicate_foreign_and_reordered_rows() -> None:
    """Goal: the checker of the other tests can fail."""
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
    """The exit code and the output of a driver."""

    returncode: int
    stdout: str


class Query:
    """A streaming query that copies one topic to another in batches, and the plans of its kills."""

    def __init__(self, work: Path, *, batches: int) -> None:
        self.root = work / "store"
        self._checkpoint = work / "checkpoint"
        self._plan = work / "plan"
        self._plan.mkdir()
        with open_store(self.root) as store:
            store.create_topic(SOURCE, partitions=2)
            store.create_topic(SINK, partitions=PARTITIONS)
        self.rows: list[Row] = []
        self.add(batches)

    def add(self, batches: int) -> None:
        """Append the records of so many batches to the source."""
        # The partitions have equal numbers of records, so that each batch has both.
        first, count = len(self.rows) // 2, batches * BATCH_RECORDS // 2
        with open_store(self.root) as store, store.producer() as producer:
            for partition in range(2):
                rows = [
                    (b"key-%d-%d" % (partition, number % 7), b"%d-%d" % (partition, number))
                    for number in range(first, first + count)
                ]
                for key, value in rows:
                    producer.send(SOURCE, value, key=key, partition=partition)
                self.rows += rows

    def arm(self, step: str | int, *, version: int | None = None, whole: bool = True) -> None:
        """Plan the kill of a process or of the session at a step. Plans are carried out in order."""
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
        """The calls to the disk while rows were staged and committed."""
        return (self._plan / "steps").read_text().splitlines()

    def start(self, *, starts: int = 1, fails_in: int = -1) -> subprocess.Popen[str]:
        """Start a driver, in a session of its own; it starts the query at most `starts` times."""
        arguments = ("stream", self.root, self._checkpoint, starts, fails_in)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE / "killing"), str(SOURCES)]),
            "SEEKLOG_TEST_PLAN": str(self._plan),
        }
        return subprocess.Popen(
            [sys.executable, str(HERE / "children.py"), *map(str, arguments)],
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *, starts: int = 1, fails_in: int = -1) -> Ended:
        """Run a driver until it ends or is killed."""
        return self.end(self.start(starts=starts, fails_in=fails_in))

    @staticmethod
    def end(driver: subprocess.Popen[str]) -> Ended:
        """Wait for a driver, and kill what it leaves."""
        try:
            output, _ = driver.communicate(timeout=PATIENCE_S)
        finally:
            # Workers may outlive their driver for a moment.
            kill_session(driver.pid)
            driver.wait()
        return Ended(driver.returncode, output)

    def check_so_far(self) -> None:
        """Check that no row is duplicated or foreign."""
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


@reads_proc
def test_session_killed_at_a_commit_step_writes_each_row_once(
    tmp_path: Path,
) -> None:
    """Goal: each restart repeats the batch of the last kill, and runs into the next kill."""
    query = Query(tmp_path, batches=len(KILLS) + 1)
    for version, step in enumerate(KILLS):
        query.arm(step, version=None if step == "staged" else version)
        ended = query.run()
        assert ended.returncode == -signal.SIGKILL, ended.stdout
        assert query.armed == []
        query.check_so_far()
    ended = query.run()
    assert ended.returncode == 0, ended.stdout
    query.check_at_the_end()


# Kills of the process that stages or commits, one for each kind of step. Spark continues and sees its worker die.
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


@reads_proc
def test_killed_worker_writes_each_row_once(tmp_path: Path) -> None:
    """Goal: a task is retried and its first staged files are removed; a commit is aborted and repeated."""
    query = Query(tmp_path, batches=len(WORKER_KILLS) + 1)
    for step, version in WORKER_KILLS:
        query.arm(step, version=version, whole=False)
    # In the last batch no worker is killed, but attempts fail.
    ended = query.run(starts=len(WORKER_KILLS), fails_in=len(WORKER_KILLS) - 1)
    assert ended.returncode == 0, ended.stdout
    assert query.armed == []
    assert (tmp_path / "failed attempt").exists()
    # The first kill was of a task, which does not end the query.
    assert ended.stdout.count("failed") == len(WORKER_KILLS) - 1
    query.check_at_the_end()


@reads_proc
@pytest.mark.slow
def test_session_killed_at_every_commit_step_writes_each_row_once(tmp_path: Path) -> None:
    """Goal: kill at each step of a commit, then run a batch without a kill, which checks the log."""
    most = 100  # more than the steps of a commit
    query = Query(tmp_path, batches=2 * most)
    for kills in range(most):
        query.arm(kills + 1, version=2 * kills)
        ended = query.run()
        if query.armed:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stdout
        query.check_so_far()
    assert ended.returncode == 0, ended.stdout
    assert kills > 50, "a commit to three partitions has more steps"
    query.check_at_the_end()


# ---------------------------------------------------------------- attempts that lost


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        store.create_topic(SINK, partitions=PARTITIONS)
    return tmp_path / "store"


SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


def write_attempt(writer: BatchWriter, rows: list[Row]) -> StagedRows:
    """Stage rows as an attempt of a task."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([key for key, _ in rows], pa.binary()), pa.array([value for _, value in rows], pa.binary())],
        names=["key", "value"],
    )
    return writer.write(iter([batch]))


@pytest.mark.parametrize("winner", [0, 1])
def test_one_of_two_staged_attempts_is_committed_and_both_are_swept(root: Path, winner: int) -> None:
    """Goal: the files of speculative attempts. A killed task leaves an unfinished file."""
    rows = [(b"key-%d" % (number % 7), b"%d" % number) for number in range(100)]
    options = {"path": str(root), "topic": SINK, "txnAppId": "job", "txnVersion": "1"}
    writer = batch_writer(options, SCHEMA, overwrite=False)
    attempts = [write_attempt(writer, rows[:60]) for _ in range(2)]
    other = write_attempt(writer, rows[60:])
    with seeklog.open(root, read_only=True) as store:
        transactions_of(store).stager(f"job to {SINK}", seeklog.TopicPartition(SINK, 0))

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

    def start(self, task: str, *arguments: str, plan: Path | None = None) -> subprocess.Popen[str]:
        """Start a process, with a plan to kill it if given."""
        killing = {} if plan is None else {"SEEKLOG_TEST_PLAN": str(plan)}
        child = subprocess.Popen(
            [sys.executable, str(HERE / "children.py"), task, str(self._root), *arguments],
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


def next_line(child: subprocess.Popen[str], *arguments: object) -> list[str]:
    """Return the next line with this beginning."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.split()[: len(arguments)] == [str(word) for word in arguments]:
            return line.split()
    raise AssertionError(f"the process ended without the line {arguments}")


ROUNDS = 50


@pytest.mark.parametrize("others", [0, 1], ids=["two drivers", "two drivers and one whose jobs fail"])
def test_concurrent_commits_of_one_version_append_it_once(root: Path, children: Children, others: int) -> None:
    """Goal: a driver that was considered dead does no harm, even if its staged files are removed."""
    drivers = [children.start("commit_in_rounds", "query", str(ROUNDS)) for _ in range(2)]
    everybody = drivers + [children.start("discard_in_rounds", "query", str(ROUNDS)) for _ in range(others)]
    for child in everybody:
        next_line(child, "ready")
    for version in range(ROUNDS):
        for child in everybody:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        added = [int(next_line(child, "committed", version)[2]) for child in everybody]
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


def test_three_writers_and_producers_lose_and_duplicate_nothing(root: Path, children: Children, tmp_path: Path) -> None:
    writers = [children.start("commit_many", app, str(VERSIONS), str(tmp_path / app)) for app in APPS]
    writers += [children.start("produce_many", str(number), str(VERSIONS)) for number in range(PARTITIONS)]
    for child in writers:
        next_line(child, "ended")
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


@reads_proc
def test_killed_concurrent_writers_lose_and_duplicate_nothing(root: Path, children: Children, tmp_path: Path) -> None:
    """Goal: other writers finish the transaction of a killed writer while it restarts."""
    chance = random.Random(1)
    for app in APPS:
        (tmp_path / f"plan of {app}").mkdir()
        for version in chance.sample(range(VERSIONS), 8):
            # A commit has some fifty steps, a third of them before the first append.
            plan = {"step": chance.choice((chance.randrange(1, 20), chance.randrange(1, 55))), "version": version}
            (tmp_path / f"plan of {app}" / f"armed-{version:03d}").write_text(json.dumps({**plan, "whole": False}))

    def start(app: str) -> subprocess.Popen[str]:
        arguments = (app, str(VERSIONS), str(tmp_path / app))
        return children.start("commit_many", *arguments, plan=tmp_path / f"plan of {app}")

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


def test_producers_continue_beside_commits_of_their_store(root: Path) -> None:
    """Goal: transactions and producers of one process append to the same partitions without disturbing each other."""
    rows = [row for version in range(200) for row in expected(version, 0, "plain")]
    with seeklog.open(root) as store:
        with store.producer(linger_ms=0, batch_bytes=200) as producer:

            def send_all() -> None:
                for key, value in rows:
                    producer.send(SINK, value, key=key, partition=0)

            sending = threading.Thread(target=send_all)
            sending.start()
            for version in range(VERSIONS):
                assert transactions_of(store).commit("query", version, stage(store, "query", version))
            sending.join()
        assert not transactions_of(store).commit("query", VERSIONS - 1, stage(store, "query", VERSIONS - 1))
    rows += [row for number in range(PARTITIONS) for version in range(VERSIONS) for row in expected(version, number)]
    verdict = judge(rows, rows_of(root, SINK))
    assert not verdict, str(verdict)
    assert staged_files(root) == []


def test_commit_reports_locked_partition_and_can_be_repeated(root: Path) -> None:
    """Goal: a writer that keeps a partition open fails a commit after its timeout, and nothing else."""
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
