"""Truncated files: every byte prefix of the last batch, of the indexes, of the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crash.sim import SimFiles
from faults.disks import ask, evidence, files_with, fill_three_segments, in_log, make_disk, open_on
from faults.log_victims import CODECS, LogVictim, closed_log, compacted_log, killed_log, repaired_log
from faults.tears import ONE_SEGMENT, WHOLE_RECORDS, log_with_a_last_batch, prefixes_of, tail_objection, try_tears
from seeklog import names
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from crash.sim import Disk


@pytest.mark.id("torn-tail")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 100])
def test_torn_last_batch_is_cut_at_every_byte(codec: str, count: int) -> None:
    """Goal: no prefix of the last batch survives as a record, none hides an earlier one, none is lost.

    Each third byte here; each byte, for writers and for readers, is the proof's.
    """
    disk, whole_size = log_with_a_last_batch(codec, count)

    for cut in range(0, len(disk.files[ONE_SEGMENT]) - whole_size, 3):
        assert tail_objection(codec, count, cut, read_only=False) == "", cut


@pytest.mark.id("whole-tail")
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 100])
def test_whole_last_batch_is_kept_without_torn_file(codec: str, count: int, read_only: bool) -> None:
    disk, whole_size = log_with_a_last_batch(codec, count)

    assert tail_objection(codec, count, len(disk.files[ONE_SEGMENT]) - whole_size, read_only=read_only) == ""


@pytest.mark.id("garbage-tail")
@pytest.mark.parametrize("tail", [b"\0", bytes(61), bytes(4096), b"\xa5" * 100], ids=len)
def test_zeros_or_garbage_after_last_batch_are_cut_and_kept(tail: bytes) -> None:
    disk, _ = log_with_a_last_batch("none", 1)
    log_bytes = disk.files[ONE_SEGMENT]
    sim = SimFiles(disk.with_file(ONE_SEGMENT, log_bytes + tail))

    with open_on(sim) as log:
        assert log.log_end_offset == WHOLE_RECORDS + 1

    assert sim.disk().files[ONE_SEGMENT] == log_bytes
    assert evidence(sim.disk()) == {names.torn_name(0, len(log_bytes)): tail}


@pytest.mark.parametrize("tail", [b"\0", bytes(61), bytes(4096), b"\xa5" * 100], ids=len)
def test_reader_stops_before_zeros_or_garbage_and_changes_nothing(tail: bytes) -> None:
    disk, _ = log_with_a_last_batch("none", 1)
    sim = SimFiles(disk.with_file(ONE_SEGMENT, disk.files[ONE_SEGMENT] + tail))

    with open_on(sim, read_only=True) as log:
        assert log.log_end_offset == WHOLE_RECORDS + 1
        assert len(list(log.scan())) == WHOLE_RECORDS + 1

    assert not sim.pending


@pytest.mark.parametrize("count", [1, 100])
def test_reader_stops_before_torn_batch_and_changes_nothing(count: int) -> None:
    """Goal: for another process an incomplete tail is "not yet", never an error and never a record."""
    disk, whole_size = log_with_a_last_batch("none", count)

    for cut in range(0, len(disk.files[ONE_SEGMENT]) - whole_size, 3):
        assert tail_objection("none", count, cut, read_only=True) == "", cut


@pytest.mark.id("torn-tail-twice")
def test_second_cut_at_same_position_keeps_both_pieces() -> None:
    disk, whole_size = log_with_a_last_batch("none", 1)
    log_bytes = disk.files[ONE_SEGMENT]
    first, second = log_bytes[: whole_size + 30], log_bytes[: whole_size + 50]

    sim = SimFiles(disk.with_file(ONE_SEGMENT, first))
    with open_on(sim):
        pass
    sim = SimFiles(sim.disk().with_file(ONE_SEGMENT, second))
    # The clean close moved the recovery point to the end; the tail is after it and is cut, not refused.
    with open_on(sim) as log:
        assert log.log_end_offset == WHOLE_RECORDS

    assert sorted(evidence(sim.disk()).values(), key=len) == [first[whole_size:], second[whole_size:]]


@pytest.mark.id("torn-index")
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("victim", [closed_log("none"), killed_log("none")], ids=["closed", "killed"])
def test_index_torn_at_any_byte_changes_no_answer(victim: LogVictim, read_only: bool) -> None:
    paths = files_with(victim.disk, names.OFFSET_INDEX, names.TIME_INDEX, names.KEY_INDEX, names.SNAPSHOT)

    tally = try_tears(victim, list(prefixes_of(victim.disk, paths))[::5], read_only=read_only)

    assert tally.broken == []
    assert set(tally.counts) == {"same"}


@pytest.mark.id("torn-checkpoint")
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", [names.CHECKPOINT, names.WATERMARK, names.LEADER_EPOCHS])
def test_checkpoint_torn_at_any_byte_raises_or_changes_no_answer(name: str, read_only: bool) -> None:
    """Goal: records deleted by delete_before do not return silently, and no other record is hidden."""
    victim = closed_log("none")

    tally = try_tears(victim, prefixes_of(victim.disk, [in_log(name)]), read_only=read_only)

    assert tally.broken == []
    assert set(tally.counts) <= {"same", "error"}


@pytest.mark.id("torn-segment")
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "victim", [closed_log("none"), compacted_log("none"), repaired_log()], ids=["closed", "compacted", "repaired"]
)
def test_segment_without_its_end_is_never_read_as_shorter_one(victim: LogVictim, read_only: bool) -> None:
    """Goal: if gaps are valid, or a segment is empty, no offset seems to be missing: the seal reveals the loss."""
    tears = prefixes_of(victim.disk, files_with(victim.disk, names.LOG))

    tally = try_tears(victim, [(path, size) for path, size in tears if size % 9 == 0], read_only=read_only)

    assert tally.broken == []
    assert set(tally.counts) == {"error"}


@pytest.mark.id("torn-below-recovery-point")
def test_segment_cut_below_recovery_point_is_refused_and_unchanged() -> None:
    """Goal: a clean close promised every byte; a shorter file is damage, not a torn tail."""
    disk = make_disk(fill_three_segments)

    for path in files_with(disk, names.LOG):
        content = disk.files[path]
        for size in range(len(content)):
            sim = SimFiles(disk.with_file(path, content[:size]))
            before = sim.disk()
            with pytest.raises(SeeklogError) as refusal, open_on(sim) as log:
                ask(log)
            assert path in str(refusal.value), (path, size)
            assert _without_side_files(sim.disk()) == _without_side_files(before), (path, size)


def _without_side_files(disk: Disk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files.items() if path.endswith((names.LOG, names.TORN))}
