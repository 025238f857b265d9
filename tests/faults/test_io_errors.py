"""Disk failures at every sync and every write, and full disks. Acknowledged records survive."""

from __future__ import annotations

import contextlib
import errno
import itertools
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest

from crash.faulty import FaultyFiles
from crash.recorder import NEW_DISK, Content, read_everything
from crash.sim import SimFiles
from faults.children import acknowledged_end, can_strace, kill_config, run_under_strace, value_at
from faults.disks import ask, files_with, open_on
from log.workbench import value_of
from seeklog import Log, LogConfig, ProducerSequence, Record, names
from seeklog.errors import DiskFull, LogFailed, NotAccessible, SeeklogError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crash.sim import Disk

POLICIES = ["os", "interval", "batch"]
APPENDS = 9  # over three segments
long_value = partial(value_of, size=80)


def config_of(flush: str, **settings: object) -> LogConfig:
    return LogConfig.from_mapping(
        {"flush": flush, "segment_bytes": 400, "index_interval_bytes": 50, "retention_ms": -1} | settings
    )


def values_on(disk: Disk, config: LogConfig) -> list[bytes | None]:
    """Return the records of a reopened log."""
    with open_on(SimFiles(disk), config=config) as log:
        return [record.value for record in read_everything(log)]


def run_until_it_fails(files: FaultyFiles, config: LogConfig) -> tuple[Log | None, list[int], Exception | None]:
    """Append and flush until an error; return the log, the acknowledged offsets and the error."""
    acknowledged: list[int] = []
    log: Log | None = None
    try:
        log = open_on(files, config=config)
        for number in range(APPENDS):
            acknowledged.append(log.append(long_value(number)))
            if number % 3 == 2:
                log.flush()
    except SeeklogError as error:
        return log, acknowledged, error
    return log, acknowledged, None


@pytest.mark.id("sync-fails")
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("method", ["sync", "sync_directory"])
@pytest.mark.parametrize("flush", POLICIES)
def test_failed_sync_stops_log_and_reopen_has_all_acknowledged_records(flush: str, method: str, error: int) -> None:
    """Goal: at every sync n, the caller gets LogFailed, and no append is acknowledged after it."""
    config = config_of(flush)
    failed = 0
    for number in itertools.count(1):
        sim = SimFiles(NEW_DISK)
        files = FaultyFiles(sim, methods={method}, fail_at=number, error=error)
        log, acknowledged, failure = run_until_it_fails(files, config)
        if files.failures == 0:
            break
        failed += 1
        if failure is None:
            # On a full disk a side file may wait, as nothing depends on it; records may not.
            assert error == errno.ENOSPC, (number, files.failed_path)
            assert not files.failed_path.endswith(names.LOG), number
        else:
            # A log that could not be opened has not failed.
            assert isinstance(failure, (NotAccessible, DiskFull) if log is None else LogFailed), (number, failure)
            assert isinstance(failure.__cause__, OSError), number
        durable = 0
        if log is not None:
            if failure is not None:
                with pytest.raises(LogFailed):
                    log.append(b"after the failure")
                with pytest.raises(LogFailed):
                    log.flush()
            durable = min(log.recovery_point, len(acknowledged))
            close_quietly(log)
        # The process ends and the machine keeps running: the pages of the failed sync can still be read.
        sim.process_crash()
        kept = values_on(sim.disk(), config)
        assert kept[: len(acknowledged)] == [long_value(at) for at in acknowledged], number
        assert len(kept) <= len(acknowledged) + 1, number  # the failed append may exist or not
        # With a power loss: synced records exist.
        after_power_loss = values_on(sim.durable_disk(), config)
        assert after_power_loss[:durable] == [long_value(at) for at in range(durable)], number
        if flush == "batch":
            assert durable == len(acknowledged), number
        # A reopen on the same machine writes the lost pages again before it promises them.
        with open_on(sim, config=config) as log:
            vouched = log.recovery_point
        assert values_on(sim.durable_disk(), config) == kept, number
        assert vouched <= len(kept)
    print(f"flush={flush}, {method}: {failed} failures")
    assert failed >= (0 if flush == "os" and method == "sync" else 1)


@pytest.mark.id("truncation-sync-fails")
@pytest.mark.parametrize("flush", POLICIES)
def test_cut_records_do_not_return_after_failed_sync_of_truncation(flush: str) -> None:
    """Goal: a reopen shows the log without it, and a later power loss takes nothing back."""
    config = config_of(flush)
    sim = SimFiles(NEW_DISK)
    files = FaultyFiles(sim, only=names.LOG)
    with open_on(files, config=config) as log:
        for number in range(5):
            log.append(long_value(number))
        log.flush()
        files.fail_at = files.calls + 1
        with pytest.raises(LogFailed):
            log.truncate_to(3)
        files.heal()
        close_quietly(log)
    sim.process_crash()
    with open_on(sim, config=config) as log:
        shown = [record.value for record in read_everything(log)]

    assert values_on(sim.durable_disk(), config) == shown == [long_value(number) for number in range(3)]


@pytest.mark.id("write-fails")
@pytest.mark.parametrize("prefix", [0, 1, 40, 100])
@pytest.mark.parametrize("flush", POLICIES)
def test_failed_write_stops_log_and_loses_nothing(flush: str, prefix: int) -> None:
    """Goal: EIO at every write n; an index write may fail without the caller knowing, a log write may not."""
    config = config_of(flush)
    failed = 0
    for number in itertools.count(1):
        sim = SimFiles(NEW_DISK)
        files = FaultyFiles(sim, methods={"write"}, fail_at=number, prefix=prefix)
        log, acknowledged, failure = run_until_it_fails(files, config)
        if files.failures == 0:
            break
        failed += 1
        assert failure is None or isinstance(failure, (NotAccessible, DiskFull) if log is None else LogFailed), number
        if log is not None:
            if failure is not None:
                with pytest.raises(LogFailed):
                    log.append(b"after the failure")
            close_quietly(log)
        sim.process_crash()
        kept = values_on(sim.disk(), config)
        assert kept[: len(acknowledged)] == [long_value(at) for at in acknowledged], number
        assert len(kept) <= len(acknowledged) + 1, number
    print(f"flush={flush}, prefix {prefix}: {failed} failures")
    assert failed >= APPENDS


@pytest.mark.id("disk-full-at-append")
@pytest.mark.parametrize("prefix", [0, 1, 40, 100])
@pytest.mark.parametrize("flush", POLICIES)
def test_full_disk_refuses_append_and_log_continues_when_there_is_room(flush: str, prefix: int) -> None:
    """Goal: ENOSPC at every write n: DiskFull, the file trimmed back, nothing lost, no reopen needed."""
    config = config_of(flush)
    refusals = 0
    for number in itertools.count(1):
        sim = SimFiles(NEW_DISK)
        files = FaultyFiles(sim, methods={"write"}, error=errno.ENOSPC, prefix=prefix, lasting=True)
        with open_on(files, config=config) as log:
            files.calls = 0
            files.fail_at = number
            for at in range(APPENDS):
                before = {path: len(data) for path, data in sim.disk().files.items() if path.endswith(names.LOG)}
                try:
                    assert log.append(long_value(at)) == at
                except DiskFull:
                    refusals += 1
                    after = {path: len(data) for path, data in sim.disk().files.items() if path.endswith(names.LOG)}
                    assert {path: after[path] for path in before} == before, (number, at)
                    assert log.log_end_offset == at, (number, at)
                    with pytest.raises(DiskFull):
                        log.append(long_value(at))
                    files.heal()
                    assert log.append(long_value(at)) == at, number
            failures = files.failures
            assert [record.value for record in read_everything(log)] == [long_value(at) for at in range(APPENDS)]
        assert values_on(sim.disk(), config) == [long_value(at) for at in range(APPENDS)], number
        assert values_on(sim.durable_disk(), config) == [long_value(at) for at in range(APPENDS)], number
        assert not files_with(sim.disk(), names.TORN), number
        if failures == 0:
            break
    print(f"flush={flush}, prefix {prefix}: {number - 1} writes failed, {refusals} appends refused")
    assert refusals >= APPENDS


@pytest.mark.id("disk-full-at-roll")
@pytest.mark.parametrize("suffix", [names.LOG, names.OFFSET_INDEX, names.TIME_INDEX])
@pytest.mark.parametrize("flush", POLICIES)
def test_full_disk_at_roll_leaves_no_partial_new_segment(flush: str, suffix: str) -> None:
    """Goal: a new segment is created completely or not at all, even if the old one has room for the next record."""
    config = config_of(flush)
    sim = SimFiles(NEW_DISK)
    files = FaultyFiles(sim, methods={"create"}, error=errno.ENOSPC, lasting=True, only=suffix)
    expected = [b"almost fills a segment " * 9]
    with open_on(files, config=config) as log:
        log.append(expected[0])
        files.calls = 0
        files.fail_at = 1
        for value in (b"needs a new one" * 12, b"small"):
            with contextlib.suppress(DiskFull):
                log.append(value)
                expected.append(value)
        assert files.failures
        files.heal()
        log.flush()
        assert [record.value for record in read_everything(log)] == expected
    assert expected[-1] == b"small"
    for disk in (sim.disk(), sim.durable_disk()):
        with open_on(SimFiles(disk), config=config, read_only=True) as reader:
            assert [record.value for record in read_everything(reader)] == expected
        assert values_on(disk, config) == expected


@pytest.mark.parametrize("flush", POLICIES)
def test_log_closes_without_room_for_indexes_of_last_segment(flush: str) -> None:
    config = config_of(flush)
    sim = SimFiles(NEW_DISK)
    files = FaultyFiles(sim, methods={"create"}, error=errno.ENOSPC, lasting=True, only=names.OFFSET_INDEX)
    whole = FaultyFiles(
        files, methods={"create"}, error=errno.ENOSPC, lasting=True, only=names.OFFSET_INDEX + names.TEMPORARY
    )
    values = [long_value(number) for number in range(4)]
    with open_on(whole, config=config) as log:
        log.append(values[0])
        files.calls = whole.calls = 0
        files.fail_at = whole.fail_at = 1
        for value in values[1:]:
            log.append(value)
    assert files.failures
    assert whole.failures
    assert values_on(sim.disk(), config) == values
    assert values_on(sim.durable_disk(), config) == values


@pytest.mark.parametrize("suffix", [names.LOG, names.OFFSET_INDEX])
def test_roll_that_fails_for_another_reason_stops_log(suffix: str) -> None:
    config = config_of("os")
    sim = SimFiles(NEW_DISK)
    files = FaultyFiles(sim, methods={"create"}, error=errno.EIO, lasting=True, only=suffix)
    values = [long_value(number) for number in range(4)]
    acknowledged = []
    with open_on(files, config=config) as log:
        log.append(values[0])
        files.calls = 0
        files.fail_at = 1
        with contextlib.suppress(LogFailed):
            for value in values[1:]:
                log.append(value)
                acknowledged.append(value)
        assert files.failures
        files.heal()
        with pytest.raises(LogFailed):
            log.append(b"once more")
        close_quietly(log)
    assert values_on(sim.disk(), config) == [values[0], *acknowledged]


@pytest.mark.id("disk-full-at-a-change")
@pytest.mark.parametrize("call", ["truncate_to", "delete_before", "begin_epoch"])
@pytest.mark.parametrize("flush", POLICIES)
def test_full_disk_refuses_change_completely_or_not_at_all(flush: str, call: str) -> None:
    """Goal: after DiskFull nothing has changed for a caller, and the same call succeeds when there is room."""
    config = config_of(flush)
    for number in itertools.count(1):
        sim = SimFiles(NEW_DISK)
        files = FaultyFiles(sim, methods={"write"}, error=errno.ENOSPC, lasting=True)
        with open_on(files, config=config) as log:
            for at in range(APPENDS):
                log.append(long_value(at))
            log.flush()
            before = offsets_of(log)
            files.calls = 0
            files.fail_at = number
            try:
                getattr(log, call)(4)
            except DiskFull:
                assert offsets_of(log) == before, number
                files.heal()
                getattr(log, call)(4)
            except LogFailed:
                # A lowered promise cannot be raised again without a reopen.
                pass
            failures = files.failures
            files.heal()
        sim.process_crash()
        with open_on(sim, config=config) as log:
            start, end, _, epoch = offsets_of(log)
            assert [record.value for record in read_everything(log)] == [long_value(at) for at in range(start, end)]
            if call == "truncate_to":
                assert (start, epoch) == (0, 0), number
                assert end in (4, APPENDS), number
            else:
                assert (start, end, epoch) == ((4, APPENDS, 0) if call == "delete_before" else (0, APPENDS, 4))
        if failures == 0:
            break
    print(f"flush={flush}, {call}: {number - 1} writes failed")
    assert number > 1


@pytest.mark.id("disk-full-at-sync")
@pytest.mark.parametrize("call", ["truncate_to", "delete_before", "begin_epoch"])
@pytest.mark.parametrize("flush", POLICIES)
def test_disk_full_is_not_raised_for_records_that_readers_saw(flush: str, call: str) -> None:
    """Goal: ENOSPC from every sync n; after DiskFull a reader reads the same as before, else the log has stopped."""
    config = config_of(flush)
    stopped = 0
    for number in itertools.count(1):
        sim = SimFiles(NEW_DISK)
        files = FaultyFiles(sim, methods={"sync", "sync_directory"}, error=errno.ENOSPC)
        with open_on(files, config=config) as log:
            log.append_many([Record(long_value(0))], producer=PRODUCER)
            for at in range(1, APPENDS):
                log.append(long_value(at))
            log.flush()
            before = seen_on(sim.disk(), config)
            files.calls = 0
            files.fail_at = number
            try:
                getattr(log, call)(4)
            except DiskFull:
                assert seen_on(sim.disk(), config) == before, number
            except LogFailed:
                stopped += 1
                with pytest.raises(LogFailed):
                    log.append(b"after the failure")
            failures = files.failures
            files.heal()
        if failures == 0:
            break
    assert stopped > 0


def seen_on(disk: Disk, config: LogConfig) -> tuple[int, ...]:
    with open_on(SimFiles(disk), config=config, read_only=True) as reader:
        return (*offsets_of(reader), reader.recovery_point)


CHANGING = frozenset({"write", "truncate", "rename", "remove", "sync", "sync_directory"})
PRODUCER = ProducerSequence(producer_id=7, epoch=0, sequence=0)


@pytest.mark.parametrize("call", ["truncate_to", "delete_before", "begin_epoch", "flush"])
@pytest.mark.parametrize("flush", POLICIES)
def test_disk_failure_in_change_stops_log_without_gap_or_partial_change(flush: str, call: str) -> None:
    """Goal: EIO at every changing call n; the state of producers survives."""
    config = config_of(flush)
    stopped = 0
    for number in itertools.count(1):
        sim = SimFiles(NEW_DISK)
        files = FaultyFiles(sim, methods=CHANGING)
        with open_on(files, config=config) as log:
            log.append_many([Record(long_value(0))], producer=PRODUCER)
            for at in range(1, APPENDS):
                log.append(long_value(at))
            if call != "flush":
                log.flush()
            before = offsets_of(log)
            files.calls = 0
            files.fail_at = number
            try:
                getattr(log, call)(*(() if call == "flush" else (4,)))
            except LogFailed:
                stopped += 1
                with pytest.raises(LogFailed):
                    log.append(b"after the failure")
            else:
                # These can be retried later: removing the files of a deleted segment, cutting indexes.
                after = {
                    "truncate_to": (0, 4, 4, 0),
                    "delete_before": (4, *before[1:]),
                    "begin_epoch": (*before[:3], 4),
                }
                assert offsets_of(log) == after.get(call, before), number
            failures = files.failures
            files.heal()
        sim.process_crash()
        with open_on(sim, config=config) as log:
            start, end, _, epoch = offsets_of(log)
            assert [record.value for record in read_everything(log)] == [long_value(at) for at in range(start, end)]
            if call == "truncate_to":
                # Segments are removed from the end, so that the rest has no gap.
                assert (start, epoch) == (0, 0), number
                assert 4 <= end <= APPENDS, number
            else:
                done = (4, APPENDS, 0) if call == "delete_before" else (0, APPENDS, 4)
                assert (start, end, epoch) in {(0, APPENDS, 0), done}, number
            place = log.next_sequence(PRODUCER.producer_id)
            assert place is not None, number
            assert place.sequence == 1, number
        if failures == 0:
            break
    print(f"flush={flush}, {call}: {number - 1} calls failed, {stopped} of them stopped the log")
    assert stopped > 0 or (call, flush) == ("flush", "batch")  # nothing is left to flush


def offsets_of(log: Log) -> tuple[int, int, int, int]:
    return log.log_start_offset, log.log_end_offset, log.high_watermark, log.leader_epoch


@pytest.mark.id("disk-full-at-creation")
@pytest.mark.parametrize("flush", POLICIES)
def test_full_disk_creates_no_partial_log(flush: str) -> None:
    sim = SimFiles(NEW_DISK)
    files = FaultyFiles(sim, methods={"write"}, error=errno.ENOSPC, fail_at=1, lasting=True)
    try:
        log = open_on(files, config=config_of(flush))
    except DiskFull:
        sim.process_crash()
    else:
        with pytest.raises(DiskFull):
            log.append(b"value")
        close_quietly(log)
        sim.process_crash()

    files.heal()
    with open_on(sim, config=config_of(flush)) as log:
        assert log.append(b"value") == 0


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("method", ["read", "map", "read_file", "list", "open"])
def test_failed_read_raises_declared_error_or_changes_no_answer(method: str, read_only: bool) -> None:
    """Goal: EIO at every reading call n; no bare OSError, and no missing record without an error."""
    sim = SimFiles(NEW_DISK)
    config = config_of("os")
    with open_on(sim, config=config) as log:
        for number in range(APPENDS):
            log.append(long_value(number))
    disk = sim.disk()
    with open_on(SimFiles(disk), config=config, read_only=read_only) as log:
        expected = ask(log)

    for number in itertools.count(1):
        files = FaultyFiles(SimFiles(disk), methods={method}, fail_at=number)
        found = None
        with contextlib.suppress(SeeklogError), open_on(files, config=config, read_only=read_only) as log:
            found = ask(log, expected=expected)
        assert found in (None, expected), (number, files.failed_path)
        if files.failures == 0:
            break
    print(f"{method}, read_only={read_only}: {number - 1} failures")


@pytest.mark.parametrize("method", ["open", "read"])
def test_truncation_that_cannot_read_its_cut_changes_nothing(method: str) -> None:
    config = config_of("os")
    sim = SimFiles(make_disk_of(config))
    files = FaultyFiles(sim, methods={method}, only=names.LOG, lasting=True)
    with open_on(files, config=config) as log:
        before = offsets_of(log)
        files.calls = 0
        files.fail_at = 1
        for change in (log.plan_truncate_to, log.truncate_to):
            with pytest.raises(NotAccessible, match="cannot be read at offset 4"):
                change(4)
        assert offsets_of(log) == before
        files.heal()
        assert log.truncate_to(4) == 4
    assert values_on(sim.disk(), config) == [long_value(at) for at in range(4)]


def make_disk_of(config: LogConfig) -> Disk:
    sim = SimFiles(NEW_DISK)
    with open_on(sim, config=config) as log:
        for at in range(APPENDS):
            log.append(long_value(at))
    return sim.disk()


def test_sync_survives_key_index_that_cannot_be_built(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a key index is advice; it is built when the disk works again."""
    sim = SimFiles(make_disk_of(config_of("os", key_index="none")))
    files = FaultyFiles(sim, methods={"open"}, only=names.LOG, lasting=True)
    with open_on(files, config=config_of("os", key_index="seal")) as log:
        files.calls = 0
        files.fail_at = 1
        log.flush()
        assert log.make_key_indexes() == 0
        assert "the key index was not written" in caplog.text
        files.heal()
        assert log.make_key_indexes() > 0
        assert files_with(sim.disk(), names.KEY_INDEX)


def test_log_continues_after_failed_read() -> None:
    sim = SimFiles(NEW_DISK)
    config = config_of("os")
    with open_on(sim, config=config) as log:
        for number in range(APPENDS):
            log.append(long_value(number))
    files = FaultyFiles(sim, methods={"read"})
    with open_on(files, config=config) as log:
        files.fail_at = files.calls + 1
        with pytest.raises(SeeklogError):
            list(read_everything(log))
        found = [Content.of(record).value for record in read_everything(log)]
        assert found == [long_value(number) for number in range(APPENDS)]
        assert log.append(b"more") == APPENDS


def close_quietly(log: Log) -> None:
    """Close a failed log, which may raise again."""
    with contextlib.suppress(SeeklogError):
        log.close()


needs_strace = pytest.mark.skipif(not can_strace(), reason="strace is missing or may not inject here")
COUNT = 60  # some 40 kB of records: two rolls


@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("number", [1, 2, 3, 10])
def test_process_whose_sync_fails_stops_and_keeps_acknowledged_records(number: int, error: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    _, lines = run_under_strace(f"fdatasync:error={error}:when={number}", path, "batch", count=COUNT)

    opened_full = "DiskFull" if error == "ENOSPC" else "NotAccessible"
    assert lines[-1] == ("LogFailed" if lines[0] == "open 0" else opened_full)
    with Log(path, config=kill_config("batch")) as log:
        assert log.log_end_offset >= acknowledged_end(lines)
        assert [record.value for record in read_everything(log)] == [
            value_at(offset) for offset in range(log.log_end_offset)
        ]


@needs_strace
@pytest.mark.parametrize("flush", POLICIES)
def test_process_on_full_disk_loses_nothing_and_continues(flush: str, tmp_path: Path) -> None:
    """Goal: at every twelfth write; the two writes after it fail as well, then there is room again."""
    for number in range(1, COUNT, 12):
        path = tmp_path / f"{number}"
        _, lines = run_under_strace(f"pwrite64:error=ENOSPC:when={number}..{number + 1}", path, flush, count=COUNT)
        assert lines[-1] == (str(COUNT) if lines[0] == "open 0" else "DiskFull"), lines
        with Log(path, config=kill_config(flush)) as log:
            assert log.log_end_offset >= acknowledged_end(lines)
            assert [record.value for record in read_everything(log)] == [
                value_at(offset) for offset in range(log.log_end_offset)
            ]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    where = tmp_path / "small"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", where], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount a tmpfs here")
    yield where
    subprocess.run(["umount", "--lazy", where], check=True)


def append_for_ever(log: Log) -> None:
    while True:
        log.append(value_at(log.log_end_offset))


@pytest.mark.id("disk-fills")
@pytest.mark.parametrize("flush", POLICIES)
def test_small_disk_fills_and_log_continues_when_there_is_room(flush: str, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(300_000))
    with Log(small_disk / "log", config=kill_config(flush)) as log:
        with pytest.raises(DiskFull):
            append_for_ever(log)
        full_at = log.log_end_offset
        assert full_at > 100
        with pytest.raises(DiskFull):
            log.append(value_at(full_at))
        (small_disk / "filler").unlink()
        for offset in range(full_at, full_at + 50):
            assert log.append(value_at(offset)) == offset
    with Log(small_disk / "log", config=kill_config(flush)) as log:
        assert [record.value for record in read_everything(log)] == [value_at(offset) for offset in range(full_at + 50)]
