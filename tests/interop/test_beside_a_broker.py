"""Readers beside a simulated broker that writes, rolls, compacts, and deletes.

`broker_steps.py` does the broker's file operations one by one. Between any two a reader must be right and must not
warn.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import seeklog
from interop.broker_directories import NAMES, unpack
from interop.broker_steps import PREALLOCATED, UNIQUE, BrokerPartition, delete_topic, split_batches, write_line
from interop.test_broker_directory import Row, rows_of
from interop.verbs import alarms, run_seeklog
from log.workbench import PathFiles, QuickFiles
from seeklog import Log, LogReader, names
from seeklog.errors import LogLocked, LostRecords, NotALog, SeeklogError, TopicNotFound
from seeklog.files import Buffer
from seeklog.log.check.finding import Kind, Severity
from seeklog.log.check.inspection import conclude, has_changed, inspect_segment, plan_inspection
from store.workbench import Holder, append, open_store, snapshot
from store.workbench import read as values_of

PLACE: Final = "orders-0"
COUNTS: Final = (3, 1, 7, 2, 4, 1, 5) * 4
"""Of the batches in a segment: more bytes than two index entries are apart."""

every_opening = pytest.mark.parametrize("through", ["store", "log"])


def make_partition(root: Path, *, segments: int = 4, index_bytes: int = 4096) -> BrokerPartition:
    """Create the data directory of a running broker with one partition, whose second segment keeps none of its keys."""
    made = BrokerPartition.create(root / PLACE, index_bytes=index_bytes)
    for number in range(segments - 1):
        made.append(COUNTS, each_lives=0 if number == 1 else 8)
        made.roll()
    made.append(COUNTS[:5])
    made.stop(root, clean=False)
    (root / names.LOCK).touch()
    return made


@contextmanager
def opened(root: Path, through: str) -> Iterator[Log]:
    """Open the partition for reading, in a store or alone."""
    if through == "log":
        with LogReader(root / PLACE, files=QuickFiles()) as log:
            yield log
    else:
        with open_store(root, read_only=True) as store:
            yield store.log("orders", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "kafka-logs"


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "seeklog"]


# ---------------------------------------------------------------- indexes that a broker grows and trims

READ_AGAIN: Final = """
import sys
from seeklog import LogReader
directory, rounds, last_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
for _ in range(rounds):
    with LogReader(directory) as log:
        assert log.offset_at_time(last_ms) is not None
        assert next(log.read(log.log_end_offset - 1)).offset == log.log_end_offset - 1
"""


@pytest.mark.id("index-shrinks-while-read")
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("which", ["closed", "active"])
def test_reader_survives_index_that_shrinks_while_read(root: Path, suffix: str, which: str) -> None:
    """A broker preallocates an index and trims it when it rolls; of a mapped file that ends its readers with SIGBUS."""
    made = make_partition(root)
    base = made.active if which == "active" else made.bases[1]
    path = made.path(base, suffix)
    table = path.read_bytes()
    used = len(table.rstrip(b"\0")) + 12
    last = made.rows[-1] if which == "active" else made.segments[base][-1].rows[-1]
    command = [sys.executable, "-c", READ_AGAIN, str(root / PLACE), "100", str(last.timestamp_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        while reader.poll() is None:
            os.truncate(path, PREALLOCATED)
            os.truncate(path, used)
        _, errors = reader.communicate()
    assert (reader.returncode, errors) == (0, "")


class MeteredFiles(PathFiles):
    """The real disk, counting the bytes read from index files, and noting mapped files."""

    def __init__(self) -> None:
        super().__init__()
        self.index_bytes = 0
        self.mapped: list[str] = []

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        self._count(self._paths[handle], len(data))
        return data

    def map(self, path: str) -> Buffer:
        data = super().map(path)
        self.mapped.append(Path(path).name)
        self._count(path, len(data))
        return data

    def read_file(self, path: str) -> bytes:
        data = super().read_file(path)
        self._count(path, len(data))
        return data

    def _count(self, path: str, size: int) -> None:
        if path.endswith((".index", ".timeindex")):
            self.index_bytes += size


def test_preallocated_index_is_read_up_to_its_first_zeros(root: Path) -> None:
    made = make_partition(root, index_bytes=PREALLOCATED)
    files = MeteredFiles()
    with LogReader(root / PLACE, files=files) as log:
        assert log.log_end_offset == made.next_offset
        assert log.offset_at_time(made.rows[-1].timestamp_ms) == made.rows[-1].offset
        assert rows_of(log.read(made.next_offset - 2)) == made.rows[-2:]
    # One read per index of four segments, of at most 64 KiB each.
    assert files.index_bytes <= 8 * (64 << 10)


def test_indexes_that_a_broker_trims_are_not_mapped(root: Path) -> None:
    made = make_partition(root)
    files = MeteredFiles()
    with LogReader(root / PLACE, files=files) as log:
        assert rows_of(log.scan()) == made.rows
        for row in made.rows:
            assert log.offset_at_time(row.timestamp_ms) == row.offset
    assert files.mapped == []


# ---------------------------------------------------------------- what a reader asks for


class Answers:
    """The records of a partition before the broker's steps and now; a reader may see either state, each record once."""

    def __init__(self, before: BrokerPartition) -> None:
        self.before, self.after = before, before
        self.rows_before = self.rows_after = before.rows
        self.batches = set(before.batches)
        self.positions = before.positions()
        self.start = before.start
        self.end = before.next_offset

    def take_in(self, after: BrokerPartition) -> None:
        self.rows_after = after.rows
        self.batches |= set(after.batches)
        self.positions |= after.positions()

    def check(self, found: list[Row], start: int = 0) -> None:
        """Compare records with both states: records in both must be read, records in neither must not."""
        before = [row for row in self.rows_before if row.offset >= start]
        after = {row for row in self.rows_after if row.offset >= start}
        offsets = [row.offset for row in found]
        assert offsets == sorted(set(offsets))
        assert set(found) <= set(before)
        assert after & set(before) <= set(found)

    def check_first(self, found: int | None, fits: list[bool]) -> None:
        """Compare an offset with the first matching record now, or an earlier one that was removed.

        `fits` has a flag for each record of the state before.
        """
        fitting = [row.offset for row, does in zip(self.rows_before, fits, strict=True) if does]
        there = {row.offset for row in self.rows_after}
        last = next((offset for offset in fitting if offset in there), None)
        lawful = [offset for offset in fitting if last is None or offset <= last]
        assert found in lawful or (found is None and last is None), (found, lawful)


Question = Callable[[Log, Answers], None]


def scan(log: Log, answers: Answers) -> None:
    answers.check(rows_of(log.scan()))


def scan_reverse(log: Log, answers: Answers) -> None:
    answers.check(rows_of(log.scan_reverse())[::-1])


def scan_arrow(log: Log, answers: Answers) -> None:
    table = log.scan_arrow(columns=["offset", "timestamp", "key", "value"]).read_all()
    times = table.column("timestamp").cast("int64").to_pylist()
    columns = [table.column(name).to_pylist() for name in ("offset", "key", "value")]
    answers.check([Row(offset, at, key, value) for offset, key, value, at in zip(*columns, times, strict=True)])


def read(log: Log, answers: Answers) -> None:
    found: list[Row] = []
    position = log.log_start_offset
    while part := rows_of(log.read(position, max_records=7)):
        found += part
        position = part[-1].offset + 1
    answers.check(found)


def read_from_every_offset(log: Log, answers: Answers) -> None:
    for offset in range(log.log_start_offset, log.high_watermark, 3):
        found = rows_of(log.read(offset, max_records=1))
        fits = [row.offset >= offset for row in answers.rows_before]
        answers.check_first(found[0].offset if found else None, fits)


def latest_for_key(log: Log, answers: Answers) -> None:
    latest = {row.key: row for row in answers.rows_after}
    for key, row in latest.items():
        assert key is not None
        found = log.latest_for_key(key)
        assert found is not None
        assert rows_of([found]) == [row]


def seek(log: Log, answers: Answers) -> None:
    for offset in range(log.log_start_offset, log.log_end_offset, 3):
        found = log.seek(offset)
        assert (found.segment, found.position) in answers.positions


def offset_at_time(log: Log, answers: Answers) -> None:
    for each in answers.rows_before[::3]:
        at = each.timestamp_ms
        answers.check_first(log.offset_at_time(at), [row.timestamp_ms >= at for row in answers.rows_before])


def read_batches(log: Log, answers: Answers) -> None:
    position = log.log_start_offset
    raws: list[bytes] = []
    while position < log.high_watermark:
        batches = list(log.read_batches(position, max_bytes=700))
        if not batches:
            break
        raws += [bytes(batch.raw) for batch in batches]
        position = batches[-1].next_offset
    check_batches(raws, answers)


def read_ranges(log: Log, answers: Answers) -> None:
    position = log.log_start_offset
    raws: list[bytes] = []
    while position < log.high_watermark:
        ranges = log.read_ranges(position, max_bytes=700)
        if not ranges:
            break
        for found in ranges:
            raws += split_batches(os.pread(found.fileno(), found.size, found.position))
        position = ranges[-1].next_offset
    check_batches(raws, answers)


def check_batches(raws: list[bytes], answers: Answers) -> None:
    known = {batch.raw: batch for batch in answers.batches}
    assert all(raw in known for raw in raws)
    # Batches are returned whole, including the one with the start offset.
    answers.check([row for raw in raws for row in known[raw].rows if row.offset >= answers.start])


QUESTIONS: Final = (
    scan,
    scan_reverse,
    scan_arrow,
    read,
    read_from_every_offset,
    latest_for_key,
    seek,
    offset_at_time,
    read_batches,
    read_ranges,
)
every_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)

Steps = Callable[[BrokerPartition], Iterator[str]]


class Faults:
    """The failures after each step. All steps are tried before a test fails with a list of them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.found: list[str] = []

    @contextmanager
    def after(self, step: object) -> Iterator[None]:
        self._caplog.clear()
        try:
            yield
        except (AssertionError, SeeklogError, OSError) as error:
            self.found.append(f"after {step}: {error!r}")
        else:
            self.found += [f"after {step}, a complaint: {warning}" for warning in complaints(self._caplog)]

    def check(self) -> None:
        assert not self.found, "\n".join(self.found)


def merge(made: BrokerPartition) -> Iterator[str]:
    return made.clean(*made.bases[:3])


def clean_each(made: BrokerPartition) -> Iterator[str]:
    return itertools.chain(made.clean(made.bases[0]), made.clean(made.bases[1]))


every_cleaning = pytest.mark.parametrize("cleaning", [merge, clean_each], ids=["merged", "each"])
# One step in five, each in a new directory; `make test-slow` runs all of them.
every_stride = pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])


def at_each_step(
    root: Path, steps: Steps, faults: Faults, ask: Callable[[Answers, Iterator[str]], None], *, stride: int = 1
) -> None:
    """For each number of steps, call `ask` with a new directory; it opens, does the steps, and reads."""
    notes = ["none", *steps(make_partition(root))]
    shutil.rmtree(root)
    for number, note in itertools.islice(enumerate(notes), 0, None, stride):
        made = make_partition(root)
        answers = Answers(made)

        def some_steps(made: BrokerPartition = made, answers: Answers = answers, number: int = number) -> Iterator[str]:
            yield from itertools.islice(steps(made), number)
            answers.take_in(made)

        with faults.after(note):
            ask(answers, some_steps())
        shutil.rmtree(root)
    faults.check()


@every_question
@every_opening
@every_cleaning
@every_stride
def test_open_reader_is_right_between_any_two_steps_of_the_cleaner(
    root: Path, question: Question, through: str, cleaning: Steps, caplog: pytest.LogCaptureFixture, stride: int
) -> None:
    """Goal: a reader without open files."""

    def ask(answers: Answers, steps: Iterator[str]) -> None:
        with opened(root, through) as log:
            list(steps)
            question(log, answers)

    at_each_step(root, cleaning, Faults(caplog), ask, stride=stride)


@every_question
@every_opening
@every_cleaning
def test_reader_with_open_files_is_right_between_any_steps_of_the_cleaner(
    root: Path, question: Question, through: str, cleaning: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a reader with all files and indexes open during each step."""
    made = make_partition(root)
    answers = Answers(made)
    faults = Faults(caplog)
    with opened(root, through) as log:
        question(log, answers)
        for note in cleaning(made):
            answers.take_in(made)
            with faults.after(note):
                question(log, answers)
    faults.check()


@every_opening
@every_cleaning
@every_stride
@pytest.mark.parametrize("how", ["scan", "scan_reverse", "scan_chunks", "scan_arrow"])
def test_running_iteration_continues_across_any_step_of_the_cleaner(
    root: Path, how: str, through: str, cleaning: Steps, caplog: pytest.LogCaptureFixture, stride: int
) -> None:
    def ask(answers: Answers, steps: Iterator[str]) -> None:
        with opened(root, through) as log:
            items: Any = iter(log.scan_arrow(batch_rows=16) if how == "scan_arrow" else getattr(log, how)())
            first = next(items)
            list(steps)
            found = [first, *items]
            if how == "scan_arrow":
                offsets = [offset for part in found for offset in part.column("offset").to_pylist()]
                by_offset = {row.offset: row for row in answers.rows_before}
                answers.check([by_offset[offset] for offset in offsets])
            else:
                flat = rows_of(itertools.chain.from_iterable(found) if how == "scan_chunks" else found)
                answers.check(flat[::-1] if how == "scan_reverse" else flat)

    at_each_step(root, cleaning, Faults(caplog), ask, stride=stride)


@pytest.mark.id("broker-cuts-under-reader")
@every_opening
@pytest.mark.parametrize("how", ["scan_chunks", "scan_arrow", "read_batches"])
def test_iteration_ends_where_a_broker_truncates_the_log(
    root: Path, how: str, through: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that becomes a follower truncates its log. The reader has read more than a chunk before that."""
    made = make_partition(root)
    made.append((7,) * 1000)
    with opened(root, through) as log:
        start = made.active
        if how == "read_batches":
            items: Iterator[Any] = log.read_batches(start, max_bytes=1 << 30)
        else:
            items = log.scan_chunks(start) if how == "scan_chunks" else iter(log.scan_arrow(start, batch_rows=100))
        first = next(items)
        made.truncate(made.next_offset - 100)
        found = [first, *items]
    if how == "read_batches":
        assert found[-1].next_offset == made.next_offset
    elif how == "scan_chunks":
        assert rows_of(itertools.chain.from_iterable(found)) == [row for row in made.rows if row.offset >= start]
    else:
        offsets = [offset for part in found for offset in part.column("offset").to_pylist()]
        assert offsets == list(range(start, made.next_offset))
    assert complaints(caplog) == []


@every_opening
@pytest.mark.parametrize("how", ["scan", "scan_arrow"])
def test_scan_continues_after_a_broker_truncated_and_appended(
    root: Path, how: str, through: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its new batches start at other positions than the next chunk."""
    made = make_partition(root)
    made.append((7,) * 1600)
    start = made.active
    with opened(root, through) as log:
        if how == "scan":
            offsets = (record.offset for record in log.scan(start))
        else:
            parts = log.scan_arrow(start, columns=["offset"], batch_rows=10)
            offsets = (offset for part in parts for offset in part.column("offset").to_pylist())
        first = next(offsets)
        made.truncate(start + 200)
        made.append((5,) * 1900)
        assert [first, *offsets] == list(range(start, made.next_offset))
    assert complaints(caplog) == []


@every_opening
def test_truncation_by_a_running_broker_is_not_a_loss(root: Path, through: str) -> None:
    """It writes the recovery point once a minute. Without a running broker, missing records below it are lost."""
    made = make_partition(root)
    write_line(root, "recovery-point-offset-checkpoint", PLACE, made.next_offset)
    made.truncate(made.next_offset - 4)
    with Holder(root / names.LOCK, "broker"), opened(root, through) as log:
        assert rows_of(log.scan()) == made.rows

    with pytest.raises(LostRecords), opened(root, through) as log:
        list(log.scan())


@pytest.mark.id("cleaner-steps")
@every_question
@every_cleaning
@every_stride
def test_store_opened_between_any_two_steps_of_the_cleaner_is_right(
    root: Path, question: Question, cleaning: Steps, caplog: pytest.LogCaptureFixture, stride: int
) -> None:
    def ask(answers: Answers, steps: Iterator[str]) -> None:
        list(steps)
        with opened(root, "store") as log:
            question(log, answers)

    at_each_step(root, cleaning, Faults(caplog), ask, stride=stride)


def test_follower_sees_each_record_once_across_a_cleaning(root: Path) -> None:
    made = make_partition(root)
    with opened(root, "store") as log:
        follower = log.follow(made.next_offset, timeout_ms=5000)
        end = made.next_offset
        for _ in made.clean(*made.bases[:3]):
            made.append((2,))
        expected = [row for row in made.rows if row.offset >= end]
        assert rows_of(itertools.islice(follower, len(expected))) == expected


@every_opening
def test_open_reader_follows_a_broker_that_rolls(root: Path, through: str, caplog: pytest.LogCaptureFixture) -> None:
    made = make_partition(root)
    with opened(root, through) as log:
        for turn in range(12):
            made.append(COUNTS[:9])
            assert log.high_watermark == made.next_offset
            if turn % 2:
                made.roll()
                assert log.high_watermark == made.next_offset
            assert rows_of(log.scan()) == made.rows
            for row in made.rows[::17]:
                assert log.offset_at_time(row.timestamp_ms) == row.offset
                assert rows_of(log.read(row.offset, max_records=1)) == [row]
    assert complaints(caplog) == []


@every_question
def test_open_reader_is_right_between_any_two_steps_of_a_deletion(
    root: Path, question: Question, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker raises the start in memory, deletes the segments below, and writes its checkpoint within a minute."""

    def steps(made: BrokerPartition) -> Iterator[str]:
        return made.delete(made.bases[2])

    def ask(answers: Answers, steps: Iterator[str]) -> None:
        with opened(root, "store") as log:
            question(log, answers)
            list(steps)
            question(log, answers)

    at_each_step(root, steps, Faults(caplog), ask)


# ---------------------------------------------------------------- verify and ls


@pytest.mark.parametrize("verb", ["verify", "ls"])
def test_verify_finds_no_damage_during_a_cleaning(root: Path, verb: str, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: at the steps after which names and sizes do not fit together; a process for each is too long for all."""
    made = make_partition(root)
    faults = Faults(caplog)
    for note in made.clean(*made.bases[:3]):
        if note.endswith((".log.swap", ".log.deleted", "swap to .log")):
            with faults.after(note):
                wrong = list(alarms(verb, run_seeklog(verb, str(root))))
                assert not wrong, wrong
    faults.check()


def cleans(made: BrokerPartition) -> None:
    list(made.clean(*made.bases[:3]))


def deletes(made: BrokerPartition) -> None:
    list(made.delete(made.bases[2]))


def cuts(made: BrokerPartition) -> None:
    made.truncate(made.bases[1] + 10)


@pytest.mark.parametrize(("work", "change"), [
    (BrokerPartition.append, None),
    (BrokerPartition.roll, None),
    (cleans, "3 segments were"),
    (deletes, "2 segments were"),
    (cuts, "3 segments were"),
], ids=lambda each: getattr(each, "__name__", ""))  # fmt: skip
def test_changes_by_a_broker_during_an_inspection_are_not_damage(
    root: Path, work: Callable[[BrokerPartition], None], change: str | None
) -> None:
    """Goal: replaced and deleted segments are skipped and reported to the caller."""
    made = make_partition(root)
    plan = plan_inspection(str(root / PLACE), files=QuickFiles())
    work(made)
    inspections = [inspect_segment(task, files=QuickFiles()) for task in plan.tasks]
    findings = conclude(plan, inspections, files=QuickFiles())
    changes = [finding.detail for finding in findings if finding.kind is Kind.CHANGED]
    assert [each.partition(" replaced")[0] for each in changes] == ([] if change is None else [change])
    assert not [finding for finding in findings if finding.severity is Severity.ERROR], findings
    assert has_changed(findings) == (change is not None)


# ---------------------------------------------------------------- topics that go, and directories that are none


@every_opening
@pytest.mark.parametrize("is_used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("question", QUESTIONS[:4], ids=lambda question: question.__name__)
def test_topic_deleted_under_an_open_log_is_not_found(
    root: Path, through: str, is_used: bool, question: Question, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a log that was opened before the deletion."""
    made = make_partition(root)
    BrokerPartition.create(root / "other-0").stop(root, clean=False)
    answers = Answers(made)
    with opened(root, through) as log:
        if is_used:
            question(log, answers)
        gone = delete_topic(root, "orders")
        shutil.rmtree(gone)
        # A log without a store has no topic.
        with pytest.raises(TopicNotFound if through == "store" else (TopicNotFound, NotALog)):
            question(log, answers)
    assert complaints(caplog) == []


def test_topic_deleted_under_an_open_store_is_not_found(root: Path) -> None:
    made = make_partition(root)
    BrokerPartition.create(root / "other-0").stop(root, clean=False)
    with open_store(root, read_only=True) as store:
        assert rows_of(store.log("orders", 0).scan()) == made.rows
        delete_topic(root, "orders")
        with pytest.raises(TopicNotFound):
            list(store.log("orders", 0).scan())
        assert store.topics() == ["other"]


def test_topic_recreated_under_an_open_store_is_the_new_one(root: Path) -> None:
    make_partition(root)
    with open_store(root, read_only=True) as store:
        assert store.log("orders", 0).high_watermark > 5
        delete_topic(root, "orders")
        new = BrokerPartition.create(root / PLACE)
        new.append((2,))
        assert rows_of(store.log("orders", 0).scan()) == new.rows


class RecreatingFiles(QuickFiles):
    """The disk of a broker that deletes a topic just before it is opened, and creates it again just after."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_next = False
        self.recreated: BrokerPartition | None = None

    def list(self, directory: str) -> list[str]:
        if directory != str(self.root / PLACE) or not self.is_next:
            return super().list(directory)
        self.is_next = False
        delete_topic(self.root, "orders")
        try:
            return super().list(directory)
        finally:
            self.recreated = BrokerPartition.create(self.root / PLACE)
            name_topic(self.recreated, "y" * 22)
            self.recreated.append((2,))


def name_topic(made: BrokerPartition, topic_id: str) -> None:
    (made.directory / names.PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id}")


def test_topic_recreated_while_it_is_opened_is_the_new_one(root: Path) -> None:
    name_topic(make_partition(root), "x" * 22)
    files = RecreatingFiles(root)
    with open_store(root, read_only=True, files=files) as store:
        assert store.topics() == ["orders"]
        files.is_next = True
        rows = rows_of(store.log("orders", 0).scan())
    assert files.recreated is not None
    assert rows == files.recreated.rows


@pytest.mark.parametrize("kind", ["stray", "future"])
@pytest.mark.parametrize("read_only", [True, False], ids=["reading", "writing"])
def test_stray_directory_of_a_broker_is_not_a_topic(root: Path, kind: str, read_only: bool) -> None:
    made = make_partition(root)
    aside = root / f"late-3.{UNIQUE}-{kind}"
    shutil.copytree(root / PLACE, aside)
    before = snapshot(aside)
    with open_store(root, read_only=read_only) as store:
        assert store.topics() == ["orders"]
        assert rows_of(store.log("orders", 0).scan()) == made.rows
    assert snapshot(aside) == before


@pytest.mark.parametrize("kind", ["stray", "future"])
def test_ls_names_a_stray_directory_of_a_broker(root: Path, kind: str) -> None:
    make_partition(root)
    aside = root / f"late-3.{UNIQUE}-{kind}"
    shutil.copytree(root / PLACE, aside)
    done = run_seeklog("ls", str(root))
    assert done.returncode == 0
    assert "orders" in done.stdout
    assert aside.name in done.stdout + done.stderr


# ---------------------------------------------------------------- the start that a broker raises


def test_open_store_follows_start_offset_raised_by_a_broker(root: Path) -> None:
    """DeleteRecords into the middle of a segment: no file of the partition tells it."""
    made = make_partition(root)
    start = made.segments[made.bases[1]][2].last_offset
    with open_store(root, read_only=True) as store:
        log = store.log("orders", 0)
        assert rows_of(log.scan()) == made.rows
        write_line(root, names.LOG_START_OFFSETS, PLACE, start)
        made.start = start
        give_up = time.monotonic() + 1
        while log.log_start_offset != start and time.monotonic() < give_up:
            list(log.read(made.next_offset - 1))  # as every reader does
        assert log.log_start_offset == start
        assert rows_of(log.scan()) == made.rows
        assert store.describe_topic("orders").partitions[0].log_start_offset == start


@pytest.mark.parametrize("name", NAMES)
def test_adopted_offsets_topic_stays_compacted(tmp_path: Path, name: str) -> None:
    """With Kafka's default, deletion, a group would lose its offsets when their records are old."""
    unpack(tmp_path)
    for read_only in (True, False):
        with seeklog.open(tmp_path / name, read_only=read_only) as store:
            assert store.topic("__consumer_offsets").config.cleanup_policy == "compact"
            assert store.topic("plain").config.cleanup_policy == "delete"


# ---------------------------------------------------------------- one partition, where a broker runs


def contents(root: Path) -> dict[str, bytes | str]:
    return snapshot(root, locks=True)


@pytest.mark.parametrize("has_catalog", [False, True], ids=["a broker's directory", "a store"])
def test_log_is_not_opened_for_writing_while_a_broker_runs(root: Path, has_catalog: bool) -> None:
    make_partition(root)
    if has_catalog:
        with open_store(root):
            pass
    before = contents(root)
    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it
        with pytest.raises(LogLocked, match="broker"):
            Log(root / PLACE)
        assert contents(root) == before


def test_broker_cannot_start_while_a_log_is_open_for_writing(root: Path) -> None:
    make_partition(root)
    with Log(root / PLACE), Holder(root / names.LOCK, "broker") as broker:
        assert not broker.got_it
    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it


def test_log_that_fails_to_open_releases_the_lock_of_the_root(root: Path) -> None:
    make_partition(root)
    with Log(root / PLACE), pytest.raises(LogLocked):
        Log(root / PLACE)
    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it


@pytest.mark.parametrize("closes_first", ["log", "store"])
def test_log_may_be_open_for_writing_beside_its_store(root: Path, closes_first: str) -> None:
    """Also in one process, where a lock of POSIX goes with the first handle that is closed."""
    make_partition(root)
    other = BrokerPartition.create(root / "other-0")
    other.append((4,))
    other.stop(root, clean=False)
    store = open_store(root)
    log = Log(root / PLACE, files=QuickFiles())
    end = log.append(b"by the log")
    append(store, "other", [b"by the store"])
    first, second = (log, store) if closes_first == "log" else (store, log)
    first.close()
    with Holder(root / names.LOCK, "broker") as broker:
        assert not broker.got_it
    second.close()
    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it
    with open_store(root, read_only=True) as reader:
        assert next(reader.log("orders", 0).read(end)).value == b"by the log"
        assert values_of(reader, "other")[-1] == b"by the store"


def test_log_may_be_open_for_writing_beside_a_store_in_another_process(root: Path) -> None:
    make_partition(root)
    hold = "import seeklog, sys; s = seeklog.open(sys.argv[1]); print('open', flush=True); sys.stdin.read(); s.close()"
    command = [sys.executable, "-c", hold, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with Log(root / PLACE) as log:
            assert log.append(b"x") == log.log_end_offset - 1
        other.communicate()
    assert other.returncode == 0


def test_reader_of_one_partition_does_not_stop_a_broker_from_starting(root: Path) -> None:
    make_partition(root)
    with LogReader(root / PLACE), Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it


def test_log_outside_a_store_takes_only_its_own_lock(tmp_path: Path) -> None:
    with Log(tmp_path / "alone-0") as log:
        log.append(b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone-0"]
