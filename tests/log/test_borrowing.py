"""A log that stays open while others write it: it releases its lock after a change, and borrows it before the next."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faults.children import Child
from log.workbench import (
    BATCH_BYTES,
    PATIENCE_S,
    CountingFiles,
    FailingFiles,
    QuickFiles,
    offsets,
    open_log,
    open_reader,
    wait_until,
)
from seeklog import Log, Record
from seeklog.errors import LogClosed, LogFailed, LogLocked
from seeklog.log import ProducerSequence
from seeklog.log.borrowing import read_note
from seeklog.names import LOCK


def value(number: int) -> bytes:
    return b"%010d" % number


def returned(log: Log) -> Log:
    log.give_back()
    return log


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Log, Log]:
    """Two objects that have the same log open, both returned. The first one opened it first."""
    first = open_log(tmp_path, background=False)
    first.append(value(0))
    first.give_back()
    second = returned(open_log(tmp_path, background=False))
    assert first.borrow()
    first.give_back()
    return first, second


def test_returned_log_refuses_changes_until_it_is_borrowed(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(value(0))
        log.give_back()
        for change in (lambda: log.append(value(1)), log.flush, lambda: log.truncate_to(0), log.roll):
            with pytest.raises(LogClosed, match="was returned"):
                change()

        assert log.borrow()
        assert log.append(value(1)) == 1
    with open_log(tmp_path) as log:
        assert offsets(log.scan()) == [0, 1]


@pytest.mark.id("given-back-durable")
def test_returning_log_makes_it_durable(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files, background=False) as log:
        log.append(value(0))
        before = len(files.diary)
        log.give_back()

        assert [operation for operation, _ in files.diary[before:] if operation == "sync"] == ["sync"]
        assert log.recovery_point == 1


def test_borrowing_log_that_nobody_held_opens_no_file(tmp_path: Path) -> None:
    class NoOpens(QuickFiles):
        is_strict = False

        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            assert not self.is_strict, path
            return super().open(path, write=write, create=create)

    files = NoOpens()
    with open_log(tmp_path, files=files, background=False) as log:
        for number in range(5):
            log.append(value(number))
            files.is_strict = True
            log.give_back()
            assert log.borrow()
        files.is_strict = False


@pytest.mark.id("borrowed-in-turn")
def test_alternating_writers_see_records_of_each_other(pair: tuple[Log, Log]) -> None:
    for number in range(1, 100):
        log = pair[number % 2]
        assert log.borrow()
        assert offsets(log.scan()) == list(range(number))
        assert log.append(value(number)) == number
        log.give_back()
    for log in pair:
        log.close()

    with open_log(Path(pair[0].path)) as log:
        assert [record.value for record in log.scan()] == [value(number) for number in range(100)]
        assert log.recovery.clean


def test_borrowing_is_refused_while_another_process_writes(pair: tuple[Log, Log]) -> None:
    first, second = pair
    assert first.borrow()
    with pytest.raises(LogLocked, match=str(os.getpid())):
        second.borrow()
    first.close()
    second.close()


@pytest.mark.id("borrowed-after-more-than-appends")
@pytest.mark.parametrize("change", ["rolls", "truncates", "deletes", "begins an epoch"])
def test_log_must_be_reopened_if_another_did_more_than_append(pair: tuple[Log, Log], change: str) -> None:
    first, second = pair
    assert second.borrow()
    second.append_many([Record(value(number)) for number in range(3)])
    match change:
        case "rolls":
            second.roll()
        case "truncates":
            second.truncate_to(1)
        case "deletes":
            second.delete_before(2)
        case "begins an epoch":
            second.begin_epoch(7)
    second.append(value(9))
    second.give_back()

    assert not first.borrow()
    assert first.is_closed or first.has_failed
    second.close()


def test_log_stays_open_if_another_closes_it(pair: tuple[Log, Log]) -> None:
    """Goal: processes that come and go must not make those that stay open the log again and again."""
    first, second = pair
    assert second.borrow()
    second.append(value(1))
    second.close()

    assert first.borrow()
    assert first.append(value(2)) == 2
    first.close()
    with open_log(first.path) as log:
        assert log.recovery.clean
        assert offsets(log.scan()) == [0, 1, 2]


def test_borrowing_reads_any_number_of_appended_bytes(pair: tuple[Log, Log]) -> None:
    """Goal: in pieces, because a process may not have had its turn for long. The last batch is larger than a piece."""
    first, second = pair
    assert second.borrow()
    for size in (*[100_000] * 30, 900_000):
        second.append(bytes(size))
    second.give_back()

    assert first.borrow()
    assert first.append(value(1)) == 32
    assert [len(record.value or b"") for record in first.scan()] == [10, *[100_000] * 30, 900_000, 10]
    first.close()
    second.close()


@pytest.mark.parametrize("position", [7, 11, 16], ids=["base offset", "length", "magic"])
def test_damaged_header_of_another_writer_is_not_followed(pair: tuple[Log, Log], position: int) -> None:
    first, second = pair
    path = first.path / f"{0:020d}.log"
    assert second.borrow()
    second.append(value(1))
    second.give_back()
    data = bytearray(path.read_bytes())
    data[BATCH_BYTES + position] ^= 1
    path.write_bytes(data)

    assert not first.borrow()
    second.close()


@pytest.mark.parametrize("sizes", [[1], [10] * 700, [40_000] * 9, [10, 40_000, 10] * 5, [32_768 - 61 - 8], [3900] * 90])
def test_state_of_followed_batches_is_that_of_a_scan(pair: tuple[Log, Log], sizes: list[int]) -> None:
    """Goal: only headers are read, at any distance from each other."""
    first, second = pair
    assert second.borrow()
    for size in sizes:
        second.append(bytes(size))
    second.give_back()
    assert first.borrow()

    active = first._partition.unsealed.active
    assert active.state.save() == second._partition.unsealed.active.state.save() == active.scan_all().save()
    first.close()
    second.close()


def test_crashed_holder_leaves_no_note(pair: tuple[Log, Log]) -> None:
    first, second = pair
    assert second.borrow()
    second.append(value(1))
    second._partition.writer_lock.close()  # as the kernel does for a killed process

    assert not first.borrow()


def test_torn_append_of_crashed_holder_is_cut_by_next_open(pair: tuple[Log, Log]) -> None:
    first, second = pair
    path = first.path / f"{0:020d}.log"
    assert second.borrow()
    with path.open("ab") as file:
        file.write(b"torn")
    second._partition.writer_lock.close()

    assert not first.borrow()
    with open_log(first.path) as log:
        assert log.recovery.cut_bytes == 4
        assert path.stat().st_size == BATCH_BYTES


def test_log_must_be_reopened_if_its_lock_file_was_removed(pair: tuple[Log, Log]) -> None:
    first, second = pair
    os.remove(first.path / LOCK)
    third = open_log(first.path)
    third.append(value(1))

    assert not first.borrow()
    assert not second.borrow()
    third.close()


def test_failed_sync_does_not_return_log(tmp_path: Path) -> None:
    class Failing(QuickFiles):
        fails = False

        def sync(self, handle: int) -> None:
            if self.fails:
                raise OSError(5, "Input/output error")

    files = Failing()
    log = open_log(tmp_path, files=files, background=False)
    log.append(value(0))
    files.fails = True
    for _ in range(2):
        with pytest.raises(LogFailed):
            log.give_back()
    with pytest.raises(LogLocked):
        open_log(tmp_path)
    log.close()

    assert len((tmp_path / LOCK).read_text().split()) == 1, "a note would claim that everything is synced"


def test_log_without_room_for_seal_is_closed_instead_of_returned(tmp_path: Path) -> None:
    """The note could not tell the next writer that a seal is missing."""
    files = FailingFiles("write", ".seal", error=errno.ENOSPC)
    log = open_log(tmp_path, files=files, background=False)
    log.append(value(0))
    log.roll()
    log.append(value(1))
    files.fails = True
    log.give_back()

    assert not log.borrow()
    with open_log(tmp_path) as next_log:
        assert offsets(next_log.scan()) == [0, 1]
        assert next_log.recovery.rebuilt_indexes


def test_log_is_closed_cleanly_if_its_note_cannot_be_written(tmp_path: Path) -> None:
    class FailingNotes(QuickFiles):
        def unlock(self, handle: int, note: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log = open_log(tmp_path, files=FailingNotes(), background=False)
    log.append(value(0))
    log.give_back()

    assert not log.borrow()
    with open_log(tmp_path) as next_log:
        assert offsets(next_log.scan()) == [0]
        assert next_log.recovery.clean


def test_append_of_another_writer_stays_above_manual_watermark(tmp_path: Path) -> None:
    first = returned(open_log(tmp_path, background=False, high_watermark="manual"))
    second = open_log(tmp_path, background=False, high_watermark="manual")
    second.append(value(0))
    second.give_back()
    assert first.borrow()

    assert (first.high_watermark, first.log_end_offset) == (0, 1)
    first.close()
    second.close()


@pytest.mark.id("borrowed-producer-sequences")
def test_borrowing_reads_producer_sequences_of_another_writer(pair: tuple[Log, Log]) -> None:
    first, second = pair
    producer = ProducerSequence(producer_id=7, epoch=0, sequence=0)
    assert second.borrow()
    second.append_many([Record(value(1))], producer=producer)
    second.give_back()

    assert first.borrow()
    assert first.append_many([Record(value(1))], producer=producer) == range(1, 2)
    assert first.log_end_offset == 2
    first.close()
    second.close()


def test_returned_log_closes_cleanly(pair: tuple[Log, Log]) -> None:
    first, second = pair
    assert second.borrow()
    second.append(value(1))
    second.give_back()
    first.close()
    second.close()

    with open_log(first.path) as log:
        assert log.recovery.clean
        assert offsets(log.scan()) == [0, 1]


def test_closing_log_that_another_writes_leaves_it_to_the_other(pair: tuple[Log, Log]) -> None:
    first, second = pair
    assert second.borrow()
    first.close()
    assert second.append(value(1)) == 1
    second.close()


def test_reader_treats_returned_log_as_clean(pair: tuple[Log, Log]) -> None:
    first, second = pair
    with open_reader(first.path) as reader:
        assert not reader.needs_recovery
        assert first.borrow()
        first.append(value(1))
        assert reader.log_end_offset == 2
        assert reader.needs_recovery
        first.give_back()
        assert not reader.needs_recovery
    first.close()
    second.close()


def test_index_entries_of_both_writers_are_proved(tmp_path: Path) -> None:
    """The two may index different batches. The sealed index is that of the writer that rolls."""
    small = {"index_interval_bytes": 200}
    first = open_log(tmp_path, background=False, **small)
    first.append(value(0))
    first.give_back()
    logs = first, returned(open_log(tmp_path, background=False, **small))
    for number in range(1, 120):
        log = logs[number % 2]
        assert log.borrow()
        log.append(value(number))
        log.give_back()
    assert log.borrow()
    log.roll()
    log.flush()
    log.close()
    logs[0].close()

    with open_log(tmp_path, **small) as log:
        assert log.recovery.clean
        assert [next(log.read(number, max_records=1)).value for number in range(120)] == list(map(value, range(120)))
        assert not log.recovery.rebuilt_indexes


def test_failed_borrow_releases_lock(pair: tuple[Log, Log], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = pair
    assert second.borrow()
    second.append(value(1))
    second.give_back()

    def fail(size: int, *, crc: int) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(first._partition.unsealed.active, "follow", fail)
    assert not first.borrow()
    with open_log(first.path) as log:
        assert offsets(log.scan()) == [0, 1]
    second.close()


# ---------------------------------------------------------------- without a sync


def noted_recovery_point(log: Log) -> int:
    note = read_note(QuickFiles(), str(log.path))
    assert note is not None
    return note.recovery_point


def pair_of(path: Path, files: CountingFiles | FailingFiles, **settings: object) -> tuple[Log, Log]:
    """Return two objects that have the same log open, both returned. The second one uses `files`."""
    first = returned(open_log(path, background=False, **settings))
    return first, returned(open_log(path, background=False, files=files, **settings))


@pytest.mark.id("passed-on-with-its-recovery-point")
@pytest.mark.parametrize("flush", ["os", "interval"])
def test_next_writer_takes_over_records_that_are_not_synced(tmp_path: Path, flush: str) -> None:
    files = CountingFiles()
    first, second = pair_of(tmp_path, files, flush=flush)
    assert first.borrow()
    first.append(value(0))
    first.flush()
    first.append(value(1))
    first.pass_on()
    assert noted_recovery_point(first) == 1

    assert second.borrow()
    assert (second.recovery_point, second.log_end_offset, second.high_watermark) == (1, 2, 2)
    before = len(files.diary)
    second.flush()
    assert [name.endswith(".log") for operation, name in files.diary[before:] if operation == "sync"][:1] == [True]
    assert second.recovery_point == 2
    second.pass_on()
    assert first.borrow()
    assert first.recovery_point == 2
    first.close()
    second.close()


def test_log_whose_appends_wait_for_sync_is_synced_before_it_is_passed_on(tmp_path: Path) -> None:
    first, second = pair_of(tmp_path, CountingFiles(), flush="batch")
    assert first.borrow()
    first.append_many([Record(value(0))], wait=False)
    first.pass_on()

    assert noted_recovery_point(first) == 1
    assert second.borrow()
    assert second.high_watermark == 1
    first.close()
    second.close()


@pytest.mark.id("passed-on-without-unsealed-segments")
def test_rolled_segments_are_sealed_before_log_is_passed_on(tmp_path: Path) -> None:
    """Goal: the note names the last segment only, so nobody else would sync or seal the others."""
    first, second = pair_of(tmp_path, CountingFiles(), flush="os")
    assert first.borrow()
    first.append(value(0))
    first.roll()
    first.pass_on()

    assert first.is_returned, "it had to be closed instead"
    assert (tmp_path / f"{0:020d}.seal").exists()
    assert noted_recovery_point(first) == 1
    assert not second.borrow()
    first.close()


@pytest.mark.id("passed-on-sync-comes-back")
def test_background_syncs_records_of_returned_log_unless_another_writes_it(tmp_path: Path) -> None:
    files = CountingFiles()
    other, log = pair_of(tmp_path, files, flush="interval")
    assert log.borrow()
    log.append(value(0))
    log.pass_on()
    assert other.borrow()
    before = len(files.diary)

    log._partition.do_background_work()
    assert not [operation for operation, _ in files.diary[before:] if operation == "sync"]
    other.pass_on()
    log._partition.do_background_work()
    assert [operation for operation, _ in files.diary[before:] if operation == "sync"]
    assert noted_recovery_point(log) == 1
    assert log.is_returned
    log.close()
    other.close()


def test_interval_of_next_writer_covers_records_of_the_one_before(tmp_path: Path) -> None:
    """Goal: the writer before may be killed, and then nobody else syncs them."""
    first = returned(open_log(tmp_path, background=False, flush="interval"))
    second = returned(open_log(tmp_path, background=True, flush="interval", flush_interval_ms=1))
    assert first.borrow()
    first.append(value(0))
    first.pass_on()

    assert second.borrow()
    wait_until(lambda: second.recovery_point == 1, "the background thread syncs")
    second.close()
    first.close()


@pytest.mark.id("failed-sync-is-not-passed-on")
def test_failed_sync_of_one_writer_is_recovered_by_the_next(tmp_path: Path) -> None:
    """Goal: pages of a failed sync read back fine, and a second sync succeeds without writing them."""
    files = FailingFiles("sync", ".log")
    first, second = pair_of(tmp_path, files, flush="interval")
    assert first.borrow()
    first.append(value(0))
    first.pass_on()
    assert second.borrow()
    files.fails = True
    with pytest.raises(LogFailed):
        second.flush()
    with pytest.raises(LogFailed):
        second.pass_on()
    files.fails = False
    second.close()

    assert read_note(QuickFiles(), str(tmp_path)) is None
    assert not first.borrow()
    written = CountingFiles()
    with open_log(tmp_path, files=written) as log:
        operations = [operation for operation, name in written.diary if name.endswith(".log")]
        assert operations[: operations.index("sync") + 1][-3:] == ["write", "truncate", "sync"]
        assert offsets(log.scan()) == [0]


@pytest.mark.id("changed-log-is-reopened-once")
def test_a_changed_log_is_reopened_once_by_each_of_the_others(tmp_path: Path) -> None:
    """Goal: an open that counted as one after a kill would make the others open the log again, and so on."""
    first = returned(open_log(tmp_path, background=False))
    logs = [first, *(returned(open_log(tmp_path, background=False)) for _ in range(2))]
    assert logs[0].borrow()
    logs[0].append(value(0))
    logs[0].roll()
    logs[0].append(value(1))
    logs[0].pass_on()
    generation = logs[0]._partition.promises.generation
    for number in (1, 2):
        assert not logs[number].borrow()
        logs[number] = returned(open_log(tmp_path, background=False))
        assert logs[number]._partition.promises.generation == generation

    for _ in range(2):
        for log in logs:
            assert log.borrow()
            log.append(value(2))
            log.pass_on()
    for log in logs:
        log.close()


def test_index_files_are_continued_after_entries_of_another_writer(tmp_path: Path) -> None:
    """Goal: replacing them after each turn would write megabytes, and sync them."""
    small = {"index_interval_bytes": 100, "flush": "os"}
    files = CountingFiles()
    first, second = pair_of(tmp_path, files, **small)
    before = len(files.diary)
    for _ in range(10):
        for log in (first, second):
            assert log.borrow()
            for number in range(40):
                log.append(value(number), timestamp_ms=1000 * log.log_end_offset)
            log.pass_on()

    assert not [name for operation, name in files.diary[before:] if operation == "rename"]
    assert first.borrow()
    first.roll()
    first.close()
    second.close()
    with open_log(tmp_path, **small) as log:
        assert [log.offset_at_time(1000 * number) for number in range(800)] == list(range(800))
        assert not log.recovery.rebuilt_indexes


def test_forked_child_cannot_borrow_a_returned_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, background=False)
    log.append(value(0))
    log.give_back()

    def borrow(report: Callable[[str], None]) -> None:
        report(f"{log.borrow()}")
        with pytest.raises(LogClosed, match="forked"):
            log.append(value(1))
        log.close()

    child = Child(borrow)
    assert child.rest() == ["False"]
    assert child.wait() == 0
    assert log.borrow()
    assert log.append(value(1)) == 1
    log.close()


def test_manual_watermark_of_another_writer_is_followed(tmp_path: Path) -> None:
    first, second = pair_of(tmp_path, CountingFiles(), high_watermark="manual")
    assert second.borrow()
    second.append(value(0))
    second.advance_high_watermark(1)
    second.give_back()

    assert first.borrow()
    assert first.high_watermark == 1
    first.close()
    second.close()


@pytest.mark.id("background-sync-is-not-a-turn")
def test_log_borrowed_for_a_background_sync_is_not_taken_for_held(tmp_path: Path) -> None:
    """Goal: the thread returns it at its end, and an append of another thread would fail."""

    class Waiting(CountingFiles):
        began, may_end = threading.Event(), threading.Event()
        waits = False

        def sync(self, handle: int) -> None:
            super().sync(handle)
            if self.waits:
                self.began.set()
                self.may_end.wait(PATIENCE_S)

    files = Waiting()
    other, log = pair_of(tmp_path, files, flush="interval")
    assert log.borrow()
    log.append(value(0))
    log.pass_on()
    files.waits = True
    with ThreadPoolExecutor(2) as threads:
        syncing = threads.submit(log._partition.do_background_work)
        assert files.began.wait(PATIENCE_S)
        borrowing = threads.submit(log.borrow)
        assert not borrowing.done()
        files.may_end.set()
        syncing.result(PATIENCE_S)
        assert borrowing.result(PATIENCE_S)
    assert log.append(value(1)) == 1
    log.pass_on()
    log.pass_on()  # does nothing
    assert other.borrow()
    other.close()
    log.close()
