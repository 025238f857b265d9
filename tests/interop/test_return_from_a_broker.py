"""A store that was handed to a broker and returns, with no manual step: the broker's files are authoritative.

seeklog writes a store and closes it, or is killed. `broker_steps.py` does the file operations of the broker's visit
without seeklog's code. seeklog's seals, key indexes, and checkpoint remain, and may describe bytes that have changed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from interop.broker_steps import EPOCHS, BrokerPartition, row_of, split_batches, write_line
from interop.test_beside_a_broker import QUESTIONS, Answers, complaints
from interop.test_broker_directory import Row, rows_of
from interop.verbs import alarms, run_seeklog
from log.workbench import QuickFiles, config_of
from seeklog import Log, LogConfig, LogReader, Record, Store, TopicPartition, names
from seeklog.errors import CorruptBatch, CorruptionError, LostRecords, OffsetOutOfRange
from seeklog.log.broker_visit import known_checkpoint
from store.workbench import open_store, snapshot

PLACE: Final = "orders-0"
CONFIG: Final[dict[str, Any]] = {"segment_bytes": 4000, "index_interval_bytes": 500, "key_index": "seal"}
COUNTS: Final = (3, 1, 7, 2, 4, 1, 5) * 3
FLUSHED: Final = 200
"""In a store that is killed, records below were synced."""

stops = pytest.mark.parametrize("stop", ["clean", "killed"])
ends = pytest.mark.parametrize("end", ["closed", "killed"])


def open_ours(root: Path, **settings: Any) -> Store:
    return open_store(root, **CONFIG, **settings)


def fill(store: Store, count: int, *, start: int) -> list[Row]:
    """Append records with their offsets as values, in batches of seven."""
    rows = [row_of(start + n) for n in range(count)]
    with store._table.writing(TopicPartition("orders", 0)) as log:
        for at in range(0, count, 7):
            part = rows[at : at + 7]
            log.append_many([Record(row.value, key=row.key, timestamp_ms=row.timestamp_ms) for row in part])
            if start + at < FLUSHED <= start + at + 7:
                log.flush()
    return rows


def make_store(root: Path, *, end: str) -> list[Row]:
    """Create a store of one partition with several segments, their seals, and key indexes."""
    work = root.parent / "work"
    store = open_ours(work)
    store.create_topic("orders", partitions=1)
    rows = fill(store, 300, start=0)
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.make_key_indexes()
    if end == "killed":
        shutil.copytree(work, root)
        store.close()
    else:
        store.close()
        shutil.copytree(work, root)
    assert len(list((root / PLACE).glob("*.seal"))) >= 2
    assert list((root / PLACE).glob("*.keyindex"))
    return rows


# ---------------------------------------------------------------- what a broker may do

Visit = Callable[[BrokerPartition], None]


def nothing(broker: BrokerPartition) -> None:
    """The broker starts, becomes the leader, and stops."""


def appends(broker: BrokerPartition) -> None:
    broker.append(COUNTS)


def rolls(broker: BrokerPartition) -> None:
    for _ in range(3):
        broker.append(COUNTS)
        broker.roll()
    broker.append((2, 2))


def compacts_its_own(broker: BrokerPartition) -> None:
    """Compact above our recovery point: the first batch after our last one is removed."""
    broker.roll()
    ours = broker.bases[-1]
    for _ in range(3):
        broker.append(COUNTS, each_lives=0)
        broker.roll()
    broker.append(COUNTS)
    broker.roll()
    list(broker.clean(*[base for base in broker.bases[:-1] if base >= ours]))
    broker.append((3,))


def compacts_each_of_ours(broker: BrokerPartition) -> None:
    rolls(broker)
    for base in broker.bases[:-2]:
        list(broker.clean(base))


def merges_ours_and_its_own(broker: BrokerPartition) -> None:
    rolls(broker)
    list(broker.clean(*broker.bases[:3]))
    list(broker.clean(*broker.bases[1:-1]))


def raises_the_start_inside_a_segment(broker: BrokerPartition) -> None:
    appends(broker)
    list(broker.delete(broker.bases[1] + 10))


def raises_the_start_into_its_own(broker: BrokerPartition) -> None:
    rolls(broker)
    list(broker.delete(broker.bases[-2] + 5))


def deletes_all(broker: BrokerPartition) -> None:
    appends(broker)
    list(broker.delete(broker.next_offset))


def deletes_all_and_appends(broker: BrokerPartition) -> None:
    deletes_all(broker)
    broker.append((2,))


def cuts_the_end(broker: BrokerPartition) -> None:
    """Follow another leader, which has fewer of our records."""
    broker.truncate(broker.bases[-1] - 20)


def cuts_the_end_and_appends_less(broker: BrokerPartition) -> None:
    cuts_the_end(broker)
    broker.append((3, 2), each_lives=3)


def cuts_the_end_and_appends_more(broker: BrokerPartition) -> None:
    cuts_the_end(broker)
    broker.append(COUNTS * 2, each_lives=3)
    broker.roll()
    broker.append(COUNTS)


VISITS: Final = (
    nothing,
    appends,
    rolls,
    compacts_its_own,
    compacts_each_of_ours,
    merges_ours_and_its_own,
    raises_the_start_inside_a_segment,
    raises_the_start_into_its_own,
    deletes_all,
    deletes_all_and_appends,
    cuts_the_end,
    cuts_the_end_and_appends_less,
    cuts_the_end_and_appends_more,
)
every_visit = pytest.mark.parametrize("visit", VISITS, ids=lambda visit: visit.__name__)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "kafka-logs"


def visited(root: Path, visit: Visit, *, end: str, stop: str, epoch: int = 5) -> BrokerPartition:
    """Return the partition of a store after a broker's visit."""
    rows = make_store(root, end=end)
    broker = BrokerPartition.take_over(root / PLACE, rows, leader_epoch=epoch)
    visit(broker)
    broker.stop(root, clean=stop == "clean")
    return broker


def check_bytes(broker: BrokerPartition) -> None:
    """Check that every byte of the broker is unchanged; more may follow."""
    for base, batches in broker.segments.items():
        if base >= broker.start or base == broker.active or any(b.last_offset >= broker.start for b in batches):
            assert broker.path(base).read_bytes().startswith(b"".join(batch.raw for batch in batches)), base
    assert list(broker.directory.glob("*.torn")) == []


# ---------------------------------------------------------------- coming back


@pytest.mark.id("return-reader")
@every_visit
@ends
@stops
def test_reader_sees_what_the_broker_left_and_changes_nothing(
    root: Path, visit: Visit, end: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seeklog")
    broker = visited(root, visit, end=end, stop=stop)
    caplog.clear()
    before = snapshot(root)
    with open_ours(root, read_only=True) as store:
        log = store.log("orders", 0)
        assert rows_of(log.scan()) == broker.rows
        assert (log.log_start_offset, log.high_watermark) == (broker.start, broker.next_offset)
        for question in QUESTIONS:
            question(log, Answers(broker))
    assert len(complaints(caplog)) <= 1, complaints(caplog)
    assert snapshot(root) == before


@pytest.mark.id("return-writer")
@every_visit
@ends
@stops
def test_writer_keeps_what_the_broker_left_and_appends_after_it(
    root: Path, visit: Visit, end: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seeklog")
    broker = visited(root, visit, end=end, stop=stop)
    caplog.clear()
    with open_ours(root) as store:
        expected = [*broker.rows, *fill(store, 20, start=broker.next_offset)]
        warnings = complaints(caplog)
        log = store.log("orders", 0)
        assert rows_of(log.scan()) == expected
        assert log.log_start_offset == broker.start
        store.maintain()
    check_bytes(broker)
    # If the broker only appended, our files are still valid.
    assert len(warnings) == 1 or (len(warnings) == 0 and visit in VISITS[:3]), warnings
    caplog.clear()
    with open_ours(root) as store:
        expected += fill(store, 3, start=broker.next_offset + 20)
        assert rows_of(store.log("orders", 0).scan()) == expected
    assert complaints(caplog) == []


@every_visit
@pytest.mark.parametrize("mode", ["reading", "writing"])
def test_single_partition_is_as_the_broker_left_it(root: Path, visit: Visit, mode: str) -> None:
    """Goal: without a store around it. The start inside a segment is in the root, which a log alone does not ask."""
    broker = visited(root, visit, end="closed", stop="clean")
    kind = LogReader if mode == "reading" else Log
    with kind(root / PLACE, config=config_of(**CONFIG), files=QuickFiles()) as log:
        found = rows_of(log.scan())
        assert [row for row in found if row.offset >= broker.start] == broker.rows
        assert all(row.offset >= broker.bases[0] for row in found)
        if isinstance(log, Log):
            assert log.append(b"next") == broker.next_offset
    check_bytes(broker)


def compacts_alone(broker: BrokerPartition) -> None:
    """Compact without appending, so that no batch has the broker's epoch."""
    for base in broker.bases[:-1]:
        list(broker.clean(base))


KEEPING_END: Final = [
    compacts_alone,
    *(visit for visit in VISITS[1:] if visit not in (cuts_the_end, cuts_the_end_and_appends_less)),
]


@pytest.mark.parametrize("visit", KEEPING_END, ids=lambda visit: visit.__name__)
def test_visit_is_detected_by_files_without_a_brokers_root(root: Path, visit: Visit) -> None:
    """Somebody has removed the broker's `meta.properties`; its other files in the root are there."""
    broker = visited(root, visit, end="closed", stop="clean")
    (root / "meta.properties").unlink()
    with open_ours(root, read_only=True) as store:
        log = store.log("orders", 0)
        assert rows_of(log.scan()) == broker.rows
        assert (log.log_start_offset, log.high_watermark) == (broker.start, broker.next_offset)
    with open_ours(root) as store:
        expected = [*broker.rows, *fill(store, 20, start=broker.next_offset)]
        assert rows_of(store.log("orders", 0).scan()) == expected
    check_bytes(broker)


@pytest.mark.parametrize("visit", [cuts_the_end, cuts_the_end_and_appends_less], ids=lambda visit: visit.__name__)
def test_truncated_end_is_a_loss_without_a_brokers_root(root: Path, visit: Visit) -> None:
    """Goal: only the directory of a broker, which took our offsets over, lets it take back what we had synced."""
    visited(root, visit, end="closed", stop="clean")
    (root / "meta.properties").unlink()
    before = snapshot(root / PLACE, locks=False)
    with open_ours(root, read_only=True) as store, pytest.raises(LostRecords):
        store.log("orders", 0)
    with open_ours(root) as store, pytest.raises(LostRecords):
        fill(store, 1, start=0)
    assert snapshot(root / PLACE, locks=False) == before


def test_missing_line_of_a_broker_revokes_no_promise(root: Path) -> None:
    """A broker writes its lines once a minute. Without one, records that seeklog synced still count as synced."""
    broker = visited(root, appends, end="closed", stop="killed")
    for path in root.glob("*-checkpoint"):
        path.unlink()
    with LogReader(root / PLACE, config=config_of(**CONFIG), files=QuickFiles()) as log:
        assert rows_of(log.scan()) == broker.rows
        assert log.recovery_point == 300
    with broker.path(broker.active).open("r+b") as last:
        last.truncate(0)
    with pytest.raises(LostRecords), Log(root / PLACE, config=config_of(**CONFIG), files=QuickFiles()):
        pass


def test_epochs_without_a_segment_do_not_prove_a_visit(root: Path) -> None:
    visited(root, appends, end="closed", stop="clean")
    (root / "meta.properties").unlink()
    for path in (root / PLACE).glob("*.log"):
        path.unlink()
    found = known_checkpoint(QuickFiles(), str(root / PLACE), inherited=None)
    assert found is not None
    assert not found.is_visited
    with pytest.raises(LostRecords), Log(root / PLACE, config=config_of(**CONFIG), files=QuickFiles()):
        pass


@every_visit
def test_verify_accepts_what_the_broker_left(root: Path, visit: Visit) -> None:
    visited(root, visit, end="closed", stop="clean")
    for verb in ("verify", "ls"):
        wrong = list(alarms(verb, run_seeklog(verb, str(root))))
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("visits", list(itertools.permutations(VISITS[3:6], 2)), ids=lambda pair: "-".join(
    visit.__name__ for visit in pair))  # fmt: skip
def test_second_visit_is_handled_like_the_first(root: Path, visits: tuple[Visit, Visit]) -> None:
    first, second = visits
    broker = visited(root, first, end="closed", stop="killed")
    with open_ours(root) as store:
        rows = [*broker.rows, *fill(store, 100, start=broker.next_offset)]
        assert rows_of(store.log("orders", 0).scan()) == rows
    broker = BrokerPartition.take_over(root / PLACE, rows, leader_epoch=7)
    second(broker)
    broker.stop(root, clean=True)
    with open_ours(root) as store:
        rows = [*broker.rows, *fill(store, 10, start=broker.next_offset)]
        assert rows_of(store.log("orders", 0).scan()) == rows
    check_bytes(broker)


@pytest.mark.parametrize("direction", ["forward", "backward", "columns"])
@every_visit
@ends
def test_scan_continues_across_a_visit_and_the_next_open(root: Path, visit: Visit, end: str, direction: str) -> None:
    """Goal: seals written after the visit describe segments that end before the next one starts."""
    rows = make_store(root, end=end)
    with open_ours(root, read_only=True) as reader:
        log = reader.log("orders", 0)
        scans = []
        for count in range(0, 300, 7):
            scan = offsets_of(log, direction)
            scans.append((list(itertools.islice(scan, count)), scan))
        broker = BrokerPartition.take_over(root / PLACE, rows, leader_epoch=5)
        visit(broker)
        broker.stop(root, clean=True)
        with open_ours(root) as store:
            fill(store, 20, start=broker.next_offset)
        kept = {row.offset for row in rows} & {row.offset for row in broker.rows}
        for seen, scan in scans:
            with contextlib.suppress(OffsetOutOfRange):
                seen += scan
                assert kept <= set(seen)
            assert seen == sorted(set(seen), reverse=direction == "backward")


def offsets_of(log: Log, direction: str) -> Iterator[int]:
    if direction == "columns":
        batches = log.scan_arrow(columns=["offset"], batch_rows=16)
        return (offset for batch in batches for offset in batch.column("offset").to_pylist())
    records = log.scan() if direction == "forward" else log.scan_reverse()
    return (record.offset for record in records)


def test_torn_tail_of_a_killed_broker_is_cut_and_kept(root: Path) -> None:
    broker = visited(root, rolls, end="closed", stop="killed")
    path = broker.path(broker.active)
    whole = path.read_bytes()
    torn = broker.batches[-1].raw[:-3]
    path.write_bytes(whole + torn)
    with open_ours(root) as store:
        rows = [*broker.rows, *fill(store, 1, start=broker.next_offset)]
        assert rows_of(store.log("orders", 0).scan()) == rows
    (evidence,) = (root / PLACE).glob("*.torn")
    assert evidence.read_bytes() == torn


# ---------------------------------------------------------------- damage is damage


@pytest.mark.id("return-damage")
@pytest.mark.parametrize("visit", [appends, compacts_its_own, merges_ours_and_its_own], ids=lambda v: v.__name__)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_damage_after_a_visit_is_reported_and_not_cut(root: Path, visit: Visit, number: int) -> None:
    """Goal: a visit excuses our side files, and not the disk. All of it is below the broker's recovery point."""
    broker = visited(root, visit, end="closed", stop="clean")
    path = broker.path(broker.bases[number])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    logs = {each: each.read_bytes() for each in (root / PLACE).glob("*.log")}

    with open_ours(root, read_only=True) as store, pytest.raises(CorruptionError):
        list(store.log("orders", 0).scan())
    with open_ours(root) as store, pytest.raises(CorruptionError):
        append_and_read(store, broker.next_offset)
    assert list((root / PLACE).glob("*.torn")) == []
    for each, before in logs.items():
        assert each.read_bytes().startswith(before)
    assert run_seeklog("verify", str(root)).returncode == 3


@pytest.mark.parametrize("lost", ["the end of a file", "a file"])
def test_missing_last_batch_after_a_visit_is_reported(root: Path, lost: str) -> None:
    """Goal: a missing batch that only the broker's recovery point reveals."""
    broker = visited(root, rolls, end="closed", stop="clean")
    path = broker.path(broker.active)
    if lost == "a file":
        for suffix in (".log", ".index", ".timeindex"):
            broker.path(broker.active, suffix).unlink()
    else:
        path.write_bytes(path.read_bytes()[: -len(broker.batches[-1].raw)])
    before = snapshot(root / PLACE, locks=False)
    with open_ours(root) as store:
        with pytest.raises(LostRecords):
            fill(store, 1, start=broker.next_offset)
        assert snapshot(root / PLACE, locks=False) == before


def append_and_read(store: Store, offset: int) -> None:
    fill(store, 1, start=offset)
    list(store.log("orders", 0).scan())


WITNESSES: Final = ("none", "meta.properties", "a visit before")


def store_without_a_visit(root: Path, witness: str) -> tuple[BrokerPartition, list[Row]]:
    """Return a store that seeklog closed last, and its records."""
    if witness == "a visit before":
        broker = visited(root, rolls, end="closed", stop="clean")
        with open_ours(root) as store:
            rows = [*broker.rows, *fill(store, 200, start=broker.next_offset)]
    else:
        rows = make_store(root, end="closed")
        if witness == "meta.properties":
            (root / "meta.properties").write_text("#\nversion=1\nnode.id=1\ncluster.id=x\n")
    saved = BrokerPartition(root / PLACE)
    for path in (root / PLACE).glob("*.log"):
        saved.segments[int(path.stem)] = []
    return saved, rows


@pytest.mark.parametrize("witness", WITNESSES)
@pytest.mark.parametrize("number", [0, 2, -2])
def test_sealed_segment_without_its_end_is_refused_without_a_visit(root: Path, witness: str, number: int) -> None:
    """Goal: the opposite. Whatever takes a loss for a visit would cut or hide records."""
    store, _ = store_without_a_visit(root, witness)
    path = store.path(store.bases[number])
    data = path.read_bytes()
    sizes = list(itertools.accumulate(map(len, split_batches(data))))
    path.write_bytes(data[: sizes[-3]])
    before = snapshot(root / PLACE, locks=False)

    with open_ours(root) as opened:
        with pytest.raises(LostRecords):
            fill(opened, 1, start=0)
        assert snapshot(root / PLACE, locks=False) == before
    with open_ours(root, read_only=True) as opened, pytest.raises(CorruptionError):
        list(opened.log("orders", 0).scan())


@pytest.mark.parametrize("witness", WITNESSES)
def test_last_segment_without_its_end_is_refused_without_a_visit(root: Path, witness: str) -> None:
    store, _ = store_without_a_visit(root, witness)
    path = store.path(store.active)
    data = path.read_bytes()
    sizes = list(itertools.accumulate(map(len, split_batches(data))))
    path.write_bytes(data[: sizes[-2]])
    before = snapshot(root / PLACE, locks=False)

    with open_ours(root) as opened:
        with pytest.raises(LostRecords):
            fill(opened, 1, start=0)
        assert snapshot(root / PLACE, locks=False) == before


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_bit_flip_in_leader_epochs_alone_changes_no_answer(
    root: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: in a store that no broker ever had. Each bit of the file, for a reader and for a writer."""
    rows = make_store(root, end=end)
    path = root / PLACE / EPOCHS
    whole = path.read_bytes()
    shutil.copytree(root, root.parent / "whole")
    for bit in range(len(whole) * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        shutil.rmtree(root)
        shutil.copytree(root.parent / "whole", root)
        path.write_bytes(data)
        with open_ours(root, read_only=True) as store:
            assert rows_of(store.log("orders", 0).scan()) == rows, bit
        with open_ours(root) as store:
            more = fill(store, 1, start=len(rows))
            assert rows_of(store.log("orders", 0).scan()) == rows + more, bit
        assert list((root / PLACE).glob("*.torn")) == [], bit


def test_reader_continues_after_segment_with_compacted_end(tmp_path: Path) -> None:
    """The reader has an older view, and a writer of ours has sealed what the broker left since."""
    root = tmp_path / "kafka-logs"
    made = BrokerPartition.create(root / PLACE)
    made.append((7,) * 2000, each_lives=0)
    made.roll()
    made.append((7,) * 40, each_lives=0)
    made.roll()
    made.append()
    made.stop(root, clean=True)
    first, second = made.bases[:2]
    with LogReader(root / PLACE, config=LogConfig(max_open_segments=1)) as reader:
        items = reader.read_batches(0, max_bytes=1 << 30)
        found = [next(items)]
        for _ in made.clean(first):
            pass
        made.stop(root, clean=True)
        with open_ours(root) as store, store.writer("orders", 0):
            pass
        assert next(reader.read(second)).offset >= second  # opens another file, which closes the first
        found += items
    assert made.segments[first] == []
    assert [batch.base_offset for batch in found if batch.base_offset >= second]
    assert found[-1].next_offset == made.next_offset


def test_start_offset_raised_by_seeklog_stays(root: Path) -> None:
    """Our checkpoint and the root's line agree; a visit that only appends keeps them."""
    make_store(root, end="closed")
    with open_ours(root) as store, store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(33)
        rows = rows_of(log.scan())
    broker = BrokerPartition.take_over(root / PLACE, rows, leader_epoch=5, start=33)
    broker.append(COUNTS)
    broker.stop(root, clean=False)
    write_line(root, names.LOG_START_OFFSETS, PLACE, 33)
    with open_ours(root) as store:
        rows = [*broker.rows, *fill(store, 5, start=broker.next_offset)]
        log = store.log("orders", 0)
        assert (log.log_start_offset, rows_of(log.scan())) == (33, rows)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_epoch_begun_by_our_writer_during_a_check_is_not_a_visit(tmp_path: Path, number: int) -> None:
    """Goal: the writer replaces its checkpoint and Kafka's file after the reader has read the one, before the other."""
    (tmp_path / "meta.properties").write_text("#\nversion=1\nnode.id=1\ncluster.id=x\n")
    place, manual = tmp_path / PLACE, config_of(high_watermark="manual")
    with Log(place, config=manual, files=QuickFiles()) as writer:
        writer.append_many([Record(b"x")] * 5)
        writer.advance_high_watermark(2)
        files = Interrupted(names.CHECKPOINT)
        files.interrupt(number, lambda: writer.begin_epoch(3))
        with LogReader(place, config=manual, files=files) as reader:
            assert reader.high_watermark == 2
        files.interrupt(1, lambda: writer.begin_epoch(4))
        found = known_checkpoint(files, str(place), inherited=None)
        assert found is not None
        assert not found.is_visited


class Interrupted(QuickFiles):
    """A disk that calls a function after the nth read of a file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = 0
        self._happens: Callable[[], object] = lambda: None

    def interrupt(self, number: int, happens: Callable[[], object]) -> None:
        self._left, self._happens = number, happens

    def read_file(self, path: str) -> bytes:
        data = super().read_file(path)
        if path.endswith(f"/{self._name}"):
            self._left -= 1
            if self._left == 0:
                self._happens()
        return data


def test_damage_in_last_segment_does_not_look_like_the_end(tmp_path: Path) -> None:
    """Goal: to find out whether a broker has replaced files must not make the reader stop before the damage."""
    place, config = tmp_path / "log", config_of(**CONFIG)
    with Log(place, config=config, files=QuickFiles()) as writer:
        writer.flush()
        for n in range(40):
            writer.append(b"value %d" % n)
        with LogReader(place, config=config, files=QuickFiles()) as reader:
            assert reader.high_watermark == 40
            path = place / f"{0:020d}.log"
            at = sum(map(len, itertools.islice(split_batches(path.read_bytes()), 20)))
            with path.open("r+b") as log:
                log.seek(at)
                log.write(b"\x10")  # of the base offset
            for _ in range(2):
                with pytest.raises(CorruptBatch) as caught:
                    list(reader.scan())
                assert caught.value.path == str(path)
                assert caught.value.position == at
                assert reader.high_watermark == 40
