"""The files that compaction replaces: disk space, damage, other writers, readers, and a crash at every step."""

from __future__ import annotations

import errno
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from crash.faulty import FaultyFiles
from log.compacting import DAY_MS, Crashed, CrashingFiles, active_base, churn, everything, latest, open_compacted, put
from log.workbench import (
    PATIENCE_S,
    FailingFiles,
    FakeClock,
    Meanwhile,
    QuickFiles,
    contents,
    crashed_copy,
    open_reader,
    segment_bases,
)
from seeklog import Record, names
from seeklog.errors import CorruptionError, DiskFull, LogClosed, LogFailed, NotAccessible, UsageError
from seeklog.log.clean import compaction
from seeklog.log.side.seal import read_seal

# ---------------------------------------------------------------- files


def test_seal_records_clean_offset_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.compact()
        names = sorted(path.name for path in tmp_path.iterdir())
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        seal = read_seal(QuickFiles(), str(tmp_path), 0)
        assert seal is not None
        assert seal.clean_offset == seal.next_offset == active_base(tmp_path)
        assert len(segment_bases(tmp_path)) == 2


def test_compaction_refuses_damage_and_changes_nothing(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        victim = tmp_path / f"{segment_bases(tmp_path)[2]:020d}.log"
        data = bytearray(victim.read_bytes())
        data[100] ^= 1
        victim.write_bytes(data)
        before = contents(tmp_path)
        with pytest.raises(CorruptionError, match=victim.name):
            log.compact()
        assert contents(tmp_path) == before


def test_full_disk_leaves_log_unchanged(tmp_path: Path) -> None:
    files = FailingFiles("write", ".cleaned", error=errno.ENOSPC)
    with open_compacted(tmp_path, files=files) as log:
        churn(log, 100)
        log.flush()
        before = contents(tmp_path)
        files.fails = True
        with pytest.raises(DiskFull, match="the segment was not changed"):
            log.compact()
        assert contents(tmp_path) == before
        put(log, "goes on", b"")
        files.fails = False
        assert log.compact().removed_records > 0


def test_full_disk_at_checkpoint_leaves_log_unchanged(tmp_path: Path) -> None:
    """Goal: the checkpoint allows gaps before there are any; if the disk has no room for it, there are none."""
    files = FailingFiles("write", names.CHECKPOINT, error=errno.ENOSPC)
    with open_compacted(tmp_path, files=files) as log:
        churn(log, 100)
        log.flush()
        before, records = segment_bases(tmp_path), everything(log)
        files.fails = True
        with pytest.raises(DiskFull, match="nothing was changed"):
            log.compact()
        assert (segment_bases(tmp_path), log._source.contiguous_from) == (before, 0)
        assert everything(log) == records
        files.fails = False
        assert log.compact().removed_records > 0
        assert log._source.contiguous_from == before[-1]


def test_retention_may_delete_segments_during_compaction(tmp_path: Path) -> None:
    """Goal: deleting segments while they are read or copied is not an error, and they do not come back."""
    for number, suffix in enumerate((".log", ".log.cleaned", ".seal.cleaned")):
        files = Meanwhile()
        with open_compacted(tmp_path / str(number), files=files, max_open_segments=2) as log:
            churn(log, 200)
            log.flush()
            bases = segment_bases(tmp_path / str(number))
            records = everything(log)
            files.before("open", suffix, partial(log.delete_before, bases[2]))
            result = log.compact()

            assert files.is_over
            assert log.log_start_offset == bases[2]
            left = [record for record in records if record.offset >= bases[2]]
            assert everything(log) == latest(left, below=bases[-1])
            assert result.first_dirty_offset == bases[-1]
            assert not [*(tmp_path / str(number)).glob("*.cleaned")]


@pytest.mark.id("compaction-overtaken-by-truncation")
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("suffix", [".log.cleaned", ".index.cleaned", ".seal.cleaned"])
def test_truncation_may_cut_segments_during_compaction(tmp_path: Path, suffix: str, place: int) -> None:
    """Goal: records truncated while they are copied do not come back, and no other record is lost."""
    files = Meanwhile()
    with open_compacted(tmp_path / "log", files=files) as log:
        churn(log, 200)
        log.flush()
        end = segment_bases(log.path)[place] + 3
        records = everything(log)
        files.before("open", suffix, partial(log.truncate_to, end))
        log.compact()

        assert files.is_over
        assert log.log_end_offset in (end, end - 1, end - 2, end - 3)  # the base offset of the batch that held it
        kept = [record for record in records if record.offset < log.log_end_offset]
        below = log._source.view.last.base_offset
        assert latest(everything(log), below=below) == latest(kept, below=below)
        assert not [*log.path.glob("*.cleaned"), *log.path.glob("*.swap")]
        put(log, "goes on", b"")
        crashed = crashed_copy(log.path, tmp_path / "crashed")
        after = everything(log)
    for path in (crashed, tmp_path / "log"):
        with open_compacted(path) as log:
            assert everything(log) == after


@pytest.mark.id("compaction-after-truncation")
@pytest.mark.parametrize(
    ("call", "suffix"),
    [("read", ".log"), ("open", ".log.cleaned"), ("remove", ".log.cleaned"), ("open", ".seal.cleaned")],
)
def test_appends_after_truncation_are_not_compacted_by_truncated_offsets(
    tmp_path: Path, call: str, suffix: str
) -> None:
    """Goal: the newest record of a key stays, though the map has a higher offset for the key, now truncated."""
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        while len(segment_bases(tmp_path)) < 2:
            put(log, f"own {log.log_end_offset}", b"")
        second = active_base(tmp_path)
        while len(segment_bases(tmp_path)) < 3:
            put(log, "changed", bytes(20))
        log.flush()
        third = active_base(tmp_path)
        expected: list[Record] = []

        def rewrite() -> None:
            assert log.truncate_to(second) == second
            put(log, "changed", b"newest")
            while active_base(tmp_path) == second:
                put(log, f"new {log.log_end_offset}", bytes(60))
            while log.log_end_offset <= third:
                put(log, f"new {log.log_end_offset}", b"")
            log.flush()
            expected.extend(everything(log))

        files.before(call, suffix, rewrite)
        done = log.compact()

        assert files.is_over
        assert everything(log) == expected
        assert done.first_dirty_offset == active_base(tmp_path)
        assert not [*tmp_path.glob("*.cleaned"), *tmp_path.glob("*.swap")]


@pytest.mark.id("compaction-waits-for-truncation")
@pytest.mark.parametrize("method", ["sync", "sync_directory"])
def test_compaction_waits_for_truncation_in_progress(tmp_path: Path, method: str) -> None:
    """Goal: a file that is truncated or gone, though the log does not know it yet, is not damage."""
    cutting, is_over = threading.Event(), threading.Event()

    class Slow(Meanwhile):
        def sync(self, handle: int) -> None:
            self.pause("sync", self._paths[handle].endswith(names.LOG))
            super().sync(handle)

        def sync_directory(self, path: str) -> None:
            self.pause("sync_directory", True)
            super().sync_directory(path)

        def pause(self, called: str, is_for_log: bool) -> None:
            is_cut = bool(bases) and not (tmp_path / names.segment_name(bases[-2], names.LOG)).exists()
            if called == method and is_for_log and is_cut and not cutting.is_set():
                cutting.set()
                is_over.wait(0.5)  # compaction should wait for us; only if it does not, the event is set

    bases: list[int] = []
    files = Slow()
    with open_compacted(tmp_path, files=files, max_open_segments=1) as log:
        churn(log, 200)
        log.flush()
        bases += segment_bases(tmp_path)
        other = threading.Thread(target=log.truncate_to, args=(bases[1] + 3,))

        def cut() -> None:
            other.start()
            assert cutting.wait(PATIENCE_S)

        # One segment that is truncated, and one that is removed.
        met = bases[1] if method == "sync" else bases[-2]
        files.before("open", names.segment_name(met, names.LOG), cut)
        try:
            log.compact()
        finally:
            is_over.set()
            other.join()
        assert files.is_over
        assert log.log_end_offset <= bases[1] + 3


def test_segment_truncated_during_compaction_gets_no_clean_seal(tmp_path: Path) -> None:
    """Goal: compaction marks a segment as clean in its seal, but not a segment that changed meanwhile."""
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        for number in range(40):
            put(log, f"own {number}", b"")
        log.flush()
        first, second, *_ = segment_bases(tmp_path)
        # No record is removed, so nothing is copied: the new file is removed, and only the seal is rewritten.
        files.before("remove", ".log.cleaned", lambda: files.before("remove", ".log.cleaned", cut))

        def cut() -> None:
            assert log.truncate_to(second + 2) == second + 2

        log.compact()

        assert files.is_over
        assert segment_bases(tmp_path) == [first, second]
        assert read_seal(files, str(tmp_path), first) is not None
        assert read_seal(files, str(tmp_path), second) is None


def test_segment_deleted_during_compaction_gets_no_seal(tmp_path: Path) -> None:
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        for number in range(40):
            put(log, f"own {number}", b"")
        log.flush()
        first, second, *_ = segment_bases(tmp_path)
        files.before("remove", ".log.cleaned", partial(log.delete_before, second))
        log.compact()

        assert files.is_over
        assert segment_bases(tmp_path)[0] == second
        assert read_seal(files, str(tmp_path), first) is None


def test_missing_segment_is_reported(tmp_path: Path) -> None:
    with open_compacted(tmp_path, max_open_segments=2) as log:
        churn(log, 200)
        log.flush()
        victim = tmp_path / f"{segment_bases(tmp_path)[2]:020d}.log"
        victim.unlink()
        with pytest.raises(NotAccessible, match=rf"cannot be compacted: .*{victim.name}"):
            log.compact()


def test_disk_failure_while_replacing_segments_fails_log(tmp_path: Path) -> None:
    """Goal: the next open completes a replacement that was half done; nothing is lost."""
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        churn(log, 200)
        log.flush()
        records, end = everything(log), active_base(tmp_path)

        def fail() -> None:
            raise OSError(5, "Input/output error")

        files.before("rename", ".swap", fail)
        with pytest.raises(LogFailed, match="replacing segments failed"):
            log.compact()
    with open_compacted(tmp_path) as log:
        assert latest(everything(log), below=end) == latest(records, below=end)


@pytest.mark.parametrize("chunk", [1, 61, 100])
def test_batches_larger_than_read_chunk_are_compacted(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "READ_CHUNK", max(chunk, 12))
    with open_compacted(tmp_path) as log:
        churn(log, 100)
        log.flush()
        records = everything(log)
        log.compact()
        assert everything(log) == latest(records, below=active_base(tmp_path))


@pytest.mark.parametrize("cut", [1, 20, 70])
def test_shortened_segment_is_refused_and_nothing_changes(tmp_path: Path, cut: int) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        victim = tmp_path / f"{segment_bases(tmp_path)[2]:020d}.log"
        victim.write_bytes(victim.read_bytes()[:-cut])
        before = contents(tmp_path)
        with pytest.raises(CorruptionError, match=victim.name):
            log.compact()
        assert contents(tmp_path) == before


def test_copy_too_large_for_one_segment_is_refused_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: another version of a codec may make a copy larger, but a position has only 31 bits."""
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        records, end = everything(log), active_base(tmp_path)
        monkeypatch.setattr(compaction, "INT32_MAX", 100)
        with pytest.raises(UsageError, match="no longer fit in one segment; it was not changed"):
            log.compact()
        assert latest(everything(log), below=end) == latest(records, below=end)
        assert not [*tmp_path.glob("*.cleaned")]


def test_compaction_works_without_index_file(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        records = everything(log)
        for path in [*tmp_path.glob("*.index"), *tmp_path.glob("*.timeindex")]:
            path.unlink()
        log.compact()
        assert everything(log) == latest(records, below=active_base(tmp_path))


def test_reader_reports_cleanable_bytes_before_segments_are_sealed(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        assert compaction.clean_offset_of(log._source.view) is None
        with open_compacted(tmp_path, read_only=True) as reader:
            early = reader.cleanable()
        log.flush()
        assert early == log.cleanable()
        log.compact()
        assert compaction.clean_offset_of(log._source.view) == active_base(tmp_path)


def test_truncation_into_compacted_part_and_further(tmp_path: Path) -> None:
    for place in range(0, 120, 3):
        path = tmp_path / str(place)
        with open_compacted(path) as log:
            churn(log, 120)
            log.compact()
            kept = everything(log)
            end = log.truncate_to(place)
            assert end <= place
            # The batch that holds the offset is removed whole.
            left = everything(log)
            assert left == kept[: len(left)]
            assert all(record.offset < place for record in left)
            put(log, "new", b"")
            expected = everything(log)
        with open_compacted(path) as log:
            assert everything(log) == expected
            log.append(bytes(600), key=b"roll")
            log.compact()
            assert {record.key for record in expected} <= {record.key for record in everything(log)}


def test_gaps_are_invalid_again_after_truncation_removes_them(tmp_path: Path) -> None:
    """Goal: this also holds if the truncation was interrupted and the next open finds how far it came."""
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only="seeklog-checkpoint.tmp")
    with open_compacted(tmp_path / "log", files=files) as log:
        churn(log, 120)
        log.compact()
        assert log._source.contiguous_from == active_base(log.path)
        whole = crashed_copy(log.path, tmp_path / "whole")
        files.fail_at = files.calls + 2  # the checkpoint before the cut is written, the one after it is not
        with pytest.raises(LogFailed):
            log.truncate_to(50)
    with open_compacted(tmp_path / "log") as log:
        assert log._source.contiguous_from == log.log_end_offset <= 50
    with open_compacted(whole) as log:
        end = log.truncate_to(50)
        put(log, "new", b"")
        assert log._source.contiguous_from == end
    with open_compacted(whole) as log:
        assert log._source.contiguous_from == end


def test_compaction_and_retention_work_together(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = {"cleanup_policy": "compact,delete", "retention_ms": DAY_MS}
    with open_compacted(tmp_path, clock=clock, **settings) as log:
        churn(log, 100)
        log.compact()
        clock.advance(2 * DAY_MS)
        churn(log, 10, seed=2)
        log.retain()
        assert log.log_start_offset > 0
        log.compact()
        assert everything(log)[0].offset >= log.log_start_offset


def test_close_stops_compaction(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    churn(log, 100)
    log._partition.remover._is_closing = True
    with pytest.raises(LogClosed):
        log.compact()
    log.close()
    assert not list(tmp_path.glob("*.cleaned"))


# ---------------------------------------------------------------- readers


@pytest.mark.id("compaction-under-scan")
def test_running_scan_continues_through_compaction(tmp_path: Path) -> None:
    with open_compacted(tmp_path, max_open_segments=1) as log, open_reader(tmp_path) as other:
        churn(log, 400, keys=30)
        before = everything(log)
        for reader in (log, other):
            scan = reader.scan_chunks()
            got = list(next(scan))
            back = reader.scan_reverse()
            got_back = [next(back)]
            batches = iter(reader.read_batches(0, max_bytes=10**6))
            bases = [next(batches).base_offset]
            churn(log, 200, keys=30, seed=3)
            log.compact()
            for chunk in scan:
                got += chunk
            got_back += back
            bases += [batch.base_offset for batch in batches]
            final = everything(log)
            for found in (got, got_back[::-1]):
                offsets = [record.offset for record in found]
                assert offsets == sorted(set(offsets))
                assert set(found) <= {*before, *final}
            assert bases == sorted(set(bases))
            # Each record that was removed has a later one with its key, maybe after the end of the scan.
            assert {record for record in final if record.offset <= before[-1].offset} <= set(got)
            before = final
        assert everything(other) == final


def test_reader_from_before_seal_continues_through_compaction(tmp_path: Path) -> None:
    """Goal: a segment may be listed between its roll and its seal, and compacted before it is opened."""
    with open_compacted(tmp_path) as log:
        churn(log, 400, keys=30)
        before = everything(log)
        seals = {path: path.read_bytes() for path in tmp_path.glob("*.seal")}
        for path in seals:
            path.unlink()
        with open_reader(tmp_path) as reader:
            scan = reader.scan()
            for path, data in seals.items():
                path.write_bytes(data)
            log.compact()
            got = list(scan)
        assert got == [record for record in before if record in set(got)]
        assert set(everything(log)) <= set(got)


@pytest.mark.id("compaction-merges-under-reader")
def test_reader_continues_after_its_last_segment_was_merged(tmp_path: Path) -> None:
    with open_compacted(tmp_path, segment_bytes=2000) as log:
        churn(log, 10)
        with open_reader(tmp_path) as reader:
            assert everything(reader) == everything(log)
            churn(log, 200, seed=2)
            log.compact()
            assert everything(reader) == everything(log)
            churn(log, 10, seed=3)
            assert everything(reader) == everything(log)


# ---------------------------------------------------------------- crashes


@pytest.mark.id("compaction-death")
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_crash_between_any_two_steps_leaves_old_or_new_segments(tmp_path: Path, stride: int) -> None:
    step = 0
    while True:
        path = tmp_path / str(step)
        files = CrashingFiles()
        log = open_compacted(path, files=files, segment_bytes=500)
        churn(log, 150)
        log.flush()
        before = everything(log)
        expected = latest(before, below=active_base(path))
        files.left = step
        try:
            log.compact()
        except Crashed:
            has_died = True
        else:
            has_died = False
        files.left = -1
        left = crashed_copy(path, tmp_path / f"{step} left")
        with open_reader(left) as reader:
            assert everything(reader)[-1] == before[-1]
            assert {r.key: r.value for r in everything(reader)} == {r.key: r.value for r in before}
        with open_compacted(left, segment_bytes=500) as again:
            assert again.recovery.cut_bytes == 0
            after = everything(again)
            assert set(expected) <= set(after) <= set(before)
            assert {r.key: r.value for r in after} == {r.key: r.value for r in before}
            again.compact()
            assert everything(again) == expected
            assert not [p for p in left.iterdir() if p.name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]
        with open_compacted(left, segment_bytes=500) as again:
            assert again.recovery.clean
            assert everything(again) == expected
        log.close() if not has_died else None
        if not has_died:
            break
        step += stride
    assert step > 15


def test_segments_are_contiguous_after_compaction(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 300, keys=60)
        log.compact()
        seals = [read_seal(QuickFiles(), str(tmp_path), base) for base in segment_bases(tmp_path)[:-1]]
        for seal, following in pairwise(seals):
            assert seal is not None
            assert following is not None
            assert seal.next_offset == following.base_offset
    assert compaction.BUFFER_BYTES == 128 << 20
