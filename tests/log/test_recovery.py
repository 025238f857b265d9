"""Opening for writing: what recovery decides and does, and that a refusal changes nothing on disk."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    BATCH_BYTES,
    START_MS,
    CountingFiles,
    FakeClock,
    Meanwhile,
    QuickFiles,
    contents,
    crashed_copy,
    fill,
    make_log,
    offsets,
    open_log,
    open_reader,
    segment_bases,
    value_of,
    values,
)
from record.batches import Row as HandMade
from record.batches import Sketch, with_field
from seeklog import Log, Record, names
from seeklog.errors import CorruptionError, LostRecords, UnsupportedMagic
from seeklog.log.recovery import MAX_LOOKS, Action, Stop, decide
from seeklog.log.segment import SCAN_CHUNK
from seeklog.record.batch import encode_batch

SEGMENT: dict[str, Any] = {"segment_bytes": 10 * BATCH_BYTES}
FIRST, SECOND, LAST = (f"{base:020d}.log" for base in (0, 10, 20))


# ---------------------------------------------------------------- the decision


@pytest.mark.parametrize("stop", Stop)
@pytest.mark.parametrize("next_offset", [9, 10, 11])
def test_only_unpromised_records_may_be_cut(stop: Stop, next_offset: int) -> None:
    """The recovery point is 10: below it every record was synced."""
    damaged = Action.REFUSE if next_offset < 10 else Action.CUT
    expected = Action.KEEP if stop is Stop.END else damaged

    assert decide(stop, next_offset=next_offset, recovery_point=10) is expected


# ---------------------------------------------------------------- logs to recover


@pytest.fixture(scope="module")
def closed_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("closed") / "log"
    make_log(path, 25, **SEGMENT)
    return path


@pytest.fixture
def closed(closed_template: Path, tmp_path: Path) -> Path:
    """25 records in three segments, closed cleanly: the recovery point is 25."""
    return crashed_copy(closed_template, tmp_path / "closed")


@pytest.fixture(scope="module")
def crashed_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crashed")
    clock = FakeClock()
    with open_log(path / "writer", clock=clock, **SEGMENT) as log:
        fill(log, 22)
        clock.advance(2000)  # a checkpoint is written about once a second
        log.flush()
        fill(log, 3)
        return crashed_copy(path / "writer", path / "log")


@pytest.fixture
def crashed(crashed_template: Path, tmp_path: Path) -> Path:
    """25 records in three segments; 22 were synced, as the checkpoint says, before the process crashed."""
    return crashed_copy(crashed_template, tmp_path / "crashed")


def durable(path: Path, *, but: str = names.WATERMARK) -> dict[str, bytes]:
    """The files without the published watermark, which the last writer changed."""
    return {name: data for name, data in contents(path).items() if not name.endswith((but, names.WATERMARK))}


class ReadFiles(CountingFiles):
    """The real disk, counting the bytes read from logs."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        if self._paths[handle].endswith(names.LOG):
            self.read_bytes += len(data)
        return data


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def expect(path: Path, count: int, *, torn: int = 0) -> None:
    """The log contains records 0 to `count - 1`, in order, and accepts the next one."""
    with open_log(path, **SEGMENT) as log:
        assert log.log_end_offset == log.recovery_point == log.high_watermark == count
        assert values(log.scan()) == [value_of(n) for n in range(count)]
        assert log.recovery.cut_bytes == torn
        assert log.append(value_of(count)) == count
    with open_log(path, **SEGMENT) as log:
        assert log.recovery.clean
        assert values(log.scan()) == [value_of(n) for n in range(count + 1)]


# ---------------------------------------------------------------- clean


def test_closed_log_is_opened_without_scanning(closed: Path) -> None:
    with open_log(closed, **SEGMENT) as log:
        report = log.recovery

        assert report.clean
        assert (report.scanned_segments, report.scanned_batches, report.scanned_bytes) == (0, 0, 0)
        assert (report.rebuilt_indexes, report.cut_bytes, report.torn_files) == (0, 0, [])
        assert offsets(log.scan()) == list(range(25))


@pytest.mark.id("clean-marker-void")
def test_clean_marker_is_void_after_an_append(closed: Path, tmp_path: Path) -> None:
    """The marker describes a file of a certain size, so an open alone need not remove it."""
    with open_log(closed, **SEGMENT) as log:
        untouched = crashed_copy(closed, tmp_path / "untouched")
        log.append(b"one more")
        copy = crashed_copy(closed, tmp_path / "copy")

    with open_log(untouched, **SEGMENT) as log:
        assert log.recovery.clean
        assert offsets(log.scan()) == list(range(25))
    with open_log(copy, **SEGMENT) as log:
        assert not log.recovery.clean
        assert offsets(log.scan()) == list(range(26))


def test_opening_and_closing_changes_no_log_and_no_index(closed: Path) -> None:
    before = durable(closed)

    with open_log(closed, **SEGMENT):
        pass

    assert durable(closed) == before


def test_new_log_starts_empty_at_its_initial_offset(tmp_path: Path) -> None:
    with open_log(tmp_path / "a/b/c", initial_offset=77) as log:
        assert log.log_start_offset == log.high_watermark == log.log_end_offset == log.recovery_point == 77
        assert log.append(b"v") == 77


def test_initial_offset_applies_only_to_a_new_log(closed: Path) -> None:
    with open_log(closed, initial_offset=77, **SEGMENT) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 25)


# ---------------------------------------------------------------- a crash


def test_crash_recovery_scans_only_above_the_recovery_point(crashed: Path) -> None:
    with open_log(crashed, **SEGMENT) as log:
        assert not log.recovery.clean
        assert log.recovery.scanned_segments == 1
        assert log.recovery.scanned_batches == 5
        assert log.recovery.scanned_bytes == 5 * BATCH_BYTES
        assert log.recovery.cut_bytes == 0


def test_recovery_reads_a_synced_last_segment_once(tmp_path: Path) -> None:
    """Its size is not trusted: after a truncation whose sync failed, the disk may have more."""
    clock = FakeClock()
    with open_log(tmp_path / "writer", clock=clock) as log:
        fill(log, 20)
        clock.advance(2000)  # a checkpoint is written about once a second
        log.flush()
        crashed_copy(tmp_path / "writer", tmp_path / "log")
    files = ReadFiles()

    with open_log(tmp_path / "log", files=files) as log:
        assert log.recovery.scanned_bytes == files.read_bytes == 20 * BATCH_BYTES
        assert log.recovery_point == 20

    assert files.diary.index(("truncate", FIRST)) < files.diary.index(("sync", FIRST))
    assert files.count("write") == 0


def test_recovery_does_not_rewrite_synced_chunks(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path / "writer", clock=clock) as log:
        log.append(bytes(SCAN_CHUNK - 100))
        log.append(b"does not fit in the first chunk")
        clock.advance(2000)
        log.flush()
        log.append(b"not synced")
        crashed_copy(tmp_path / "writer", tmp_path / "log")
    files = CountingFiles()

    with open_log(tmp_path / "log", files=files) as log:
        assert log.log_end_offset == 3
    assert files.count("write") == 1


def test_no_record_is_lost_by_a_crash(crashed: Path) -> None:
    expect(crashed, 25)


def test_indexes_after_a_crash_equal_those_of_a_clean_close(crashed: Path, closed: Path) -> None:
    """Both contain the same 25 records; only the way they were closed differs."""
    with open_log(crashed, **SEGMENT):
        pass

    for path in closed.glob("*index"):
        assert (crashed / path.name).read_bytes() == path.read_bytes()


@pytest.mark.id("stale-index-after-crash")
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_stale_index_of_last_segment_is_rebuilt_after_a_crash(crashed: Path, closed: Path, suffix: str) -> None:
    """An index left by a crash proves nothing about the records that recovery kept, whether it is longer or differs."""
    stale = (crashed / LAST).with_suffix(suffix)
    stale.write_bytes(bytes([0, 0, 0, 1] * 30))

    with open_log(crashed, **SEGMENT):
        pass

    assert stale.read_bytes() == (closed / stale.name).read_bytes()
    with open_log(crashed, **SEGMENT) as log:
        assert log.recovery.clean


def test_crash_before_any_sync_scans_and_seals_all_segments(tmp_path: Path) -> None:
    with open_log(tmp_path / "writer", **SEGMENT) as log:
        fill(log, 25)
        copy = crashed_copy(tmp_path / "writer", tmp_path / "copy")
    assert list(copy.glob("*.seal")) == []

    with open_log(copy, **SEGMENT) as log:
        assert log.recovery.scanned_segments == 3
        assert sorted(path.name for path in copy.glob("*.seal")) == [f"{0:020d}.seal", f"{10:020d}.seal"]
    expect(copy, 25)


@pytest.mark.id("torn-tail-kept")
@pytest.mark.parametrize("torn", range(1, BATCH_BYTES))
def test_torn_last_batch_is_cut_and_kept(crashed: Path, torn: int) -> None:
    """Offset 24 is above the recovery point."""
    path = crashed / LAST
    tail = path.read_bytes()[4 * BATCH_BYTES : 4 * BATCH_BYTES + torn]
    cut(path, 4 * BATCH_BYTES + torn)

    with open_log(crashed, **SEGMENT) as log:
        assert offsets(log.scan()) == list(range(24))
        assert log.recovery.cut_bytes == torn
        (name,) = log.recovery.torn_files
        assert log.recovery.cut_reason
    assert name == names.torn_name(20, 4 * BATCH_BYTES)
    assert (crashed / name).read_bytes() == tail
    assert path.stat().st_size == 4 * BATCH_BYTES


@pytest.mark.parametrize("record", [22, 23, 24])
def test_damage_above_recovery_point_is_cut_and_later_batches_are_counted(
    crashed: Path, record: int, caplog: pytest.LogCaptureFixture
) -> None:
    at = (record - 20) * BATCH_BYTES
    tail = bytearray((crashed / LAST).read_bytes()[at:])
    tail[70] ^= 0x10
    flip(crashed / LAST, at + 70)

    with caplog.at_level(logging.WARNING, "seeklog"), open_log(crashed, **SEGMENT) as log:
        report = log.recovery
        assert offsets(log.scan()) == list(range(record))
    assert (report.cut_batches, report.cut_records) == (24 - record, 24 - record)
    assert report.cut_bytes == len(tail)
    assert "CRC" in report.cut_reason
    assert [(crashed / name).read_bytes() for name in report.torn_files] == [bytes(tail)]
    assert any("recovery cut" in entry.message for entry in caplog.records)


def test_segments_after_the_damage_are_kept_as_torn_files(tmp_path: Path) -> None:
    """Nothing was synced, so nothing was promised."""
    with open_log(tmp_path / "writer", **SEGMENT) as log:
        fill(log, 35)
        copy = crashed_copy(tmp_path / "writer", tmp_path / "copy")
    before = contents(copy)
    flip(copy / SECOND, 5 * BATCH_BYTES + 70)

    with open_log(copy, **SEGMENT) as log:
        assert offsets(log.scan()) == list(range(15))
        # The damaged segment after its first batch, and both segments after it.
        assert log.recovery.cut_batches == log.recovery.cut_records == 4 + 10 + 5
        assert len(log.recovery.torn_files) == 3
    assert segment_bases(copy) == [0, 10]
    for base in (20, 30):
        assert (copy / names.torn_name(base, 0)).read_bytes() == before[f"{base:020d}.log"]
    assert not list(copy.glob(f"{20:020d}.*index"))


def test_segment_after_a_gap_is_kept_as_a_torn_file(tmp_path: Path) -> None:
    """Offsets 15 to 19 are lost with the end of their segment: keeping the next one would leave a gap."""
    with open_log(tmp_path / "writer", **SEGMENT) as log:
        fill(log, 25)
        copy = crashed_copy(tmp_path / "writer", tmp_path / "copy")
    cut(copy / SECOND, 5 * BATCH_BYTES)

    with open_log(copy, **SEGMENT) as log:
        assert offsets(log.scan()) == list(range(15))
        assert log.recovery.cut_records == 5


def test_evidence_is_never_overwritten(crashed: Path) -> None:
    """Two crashes that tear at the same byte leave two files."""
    for attempt, junk in enumerate((b"first", b"second!")):
        with (crashed / LAST).open("ab") as file:
            file.write(junk)
        kept = (crashed / names.CHECKPOINT).read_bytes()
        with open_log(crashed, **SEGMENT) as log:
            assert log.recovery.torn_files == [names.torn_name(20, 5 * BATCH_BYTES, attempt)]
        (crashed / names.CHECKPOINT).write_bytes(kept)

    assert sorted(path.read_bytes() for path in crashed.glob("*.torn")) == [b"first", b"second!"]


def test_log_continues_where_it_was_cut(crashed: Path) -> None:
    flip(crashed / LAST, 3 * BATCH_BYTES + 70)

    expect(crashed, 23, torn=2 * BATCH_BYTES)


# ---------------------------------------------------------------- refusals


def remove(*paths: Path) -> None:
    for path in paths:
        path.unlink()


CLEAN_DAMAGES: dict[str, Callable[[Path], object]] = {
    "first segment missing": lambda log: remove(log / FIRST),
    "middle segment missing": lambda log: remove(log / SECOND),
    "last segment missing": lambda log: remove(log / LAST),
    "every segment missing": lambda log: remove(*log.glob("*.log")),
    "first segment short by a byte": lambda log: cut(log / FIRST, 10 * BATCH_BYTES - 1),
    "first segment short by a batch": lambda log: cut(log / FIRST, 9 * BATCH_BYTES),
    "middle segment empty": lambda log: cut(log / SECOND, 0),
    "last segment short by a byte": lambda log: cut(log / LAST, 5 * BATCH_BYTES - 1),
    "last segment short by a batch": lambda log: cut(log / LAST, 4 * BATCH_BYTES),
    "last segment empty": lambda log: cut(log / LAST, 0),
    "checkpoint damaged": lambda log: flip(log / names.CHECKPOINT, 40),
    "checkpoint empty": lambda log: cut(log / names.CHECKPOINT, 0),
}


@pytest.mark.parametrize("damage", CLEAN_DAMAGES)
@pytest.mark.parametrize("leftover", [None, f"{0:020d}.log.deleted", f"{5:020d}.index", f"{0:020d}.log.cleaned"])
def test_loss_below_recovery_point_is_refused_without_changes(closed: Path, damage: str, leftover: str | None) -> None:
    CLEAN_DAMAGES[damage](closed)
    if leftover:
        (closed / leftover).write_bytes(b"left over")
    before = contents(closed)

    with pytest.raises(CorruptionError) as caught:
        open_log(closed, **SEGMENT)

    assert contents(closed) == before
    assert caught.value.path is not None
    assert caught.value.path.startswith(str(closed))
    assert caught.value.advice
    if not damage.startswith("checkpoint"):
        assert isinstance(caught.value, LostRecords)


@pytest.mark.id("damage-below-recovery-point")
@pytest.mark.parametrize("record", [20, 21])
@pytest.mark.parametrize("at", [0, 8, 17, 30, 70])
def test_damage_below_recovery_point_is_reported_by_file_and_byte(crashed: Path, record: int, at: int) -> None:
    """Base offset, length, CRC, timestamp, value of synced records."""
    flip(crashed / LAST, (record - 20) * BATCH_BYTES + at)
    before = contents(crashed)

    with pytest.raises(LostRecords) as caught:
        open_log(crashed, **SEGMENT)

    assert contents(crashed) == before
    assert caught.value.path == str(crashed / LAST)
    assert caught.value.position == (record - 20) * BATCH_BYTES
    assert "22" in str(caught.value)


def test_refused_log_can_be_read_up_to_the_damage(crashed: Path) -> None:
    flip(crashed / LAST, BATCH_BYTES + 70)

    with open_reader(crashed, **SEGMENT) as log:
        assert offsets(itertools.islice(log.scan(), 20)) == list(range(20))
        assert offsets(log.scan(0, 21)) == list(range(21))
        with pytest.raises(CorruptionError) as caught:
            list(log.scan())
    assert (caught.value.path, caught.value.position) == (str(crashed / LAST), BATCH_BYTES)


def test_refusal_releases_the_lock(closed: Path) -> None:
    whole = (closed / FIRST).read_bytes()
    cut(closed / FIRST, 100)
    with pytest.raises(LostRecords):
        open_log(closed, **SEGMENT)
    (closed / FIRST).write_bytes(whole)

    expect(closed, 25)


def test_refused_log_with_unfinished_compaction_stays_unchanged(closed: Path) -> None:
    """The swap of the first segment would be completed if the last one had not lost synced records."""
    (closed / f"{FIRST}.swap").write_bytes((closed / FIRST).read_bytes())
    cut(closed / LAST, 0)
    before = contents(closed)

    with pytest.raises(LostRecords):
        open_log(closed, **SEGMENT)

    assert contents(closed) == before


@pytest.mark.parametrize("magic", [0, 1])
def test_segment_in_older_format_is_refused_by_name_and_unchanged(tmp_path: Path, magic: int) -> None:
    old = with_field(Sketch((HandMade(b"old"),)).encode(), "magic", magic)
    (tmp_path / FIRST).write_bytes(old)
    before = contents(tmp_path)

    with pytest.raises(UnsupportedMagic, match=f"magic {magic}") as caught:
        open_log(tmp_path)

    assert contents(tmp_path) == before
    assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST), 0)


# ---------------------------------------------------------------- what recovery rebuilds silently


MENDABLE: dict[str, Callable[[Path], object]] = {
    "seal missing": lambda log: remove(log / f"{0:020d}.seal"),
    "seal damaged": lambda log: flip(log / f"{10:020d}.seal", 30),
    "seal empty": lambda log: cut(log / f"{10:020d}.seal", 0),
    "seal of another segment": lambda log: (log / f"{0:020d}.seal").write_bytes((log / f"{10:020d}.seal").read_bytes()),
    "offset index missing": lambda log: remove(log / f"{0:020d}.index"),
    "time index missing": lambda log: remove(log / f"{10:020d}.timeindex"),
    "active offset index missing": lambda log: remove(log / f"{20:020d}.index"),
    "active time index damaged": lambda log: flip(log / f"{20:020d}.timeindex", 3),
    "watermark missing": lambda log: remove(log / names.WATERMARK),
    "watermark damaged": lambda log: flip(log / names.WATERMARK, 9),
    "epochs missing": lambda log: remove(log / names.LEADER_EPOCHS),
    "epochs damaged": lambda log: (log / names.LEADER_EPOCHS).write_bytes(b"nonsense"),
}


@pytest.mark.parametrize("way", MENDABLE)
def test_files_derived_from_the_log_are_rebuilt(closed: Path, way: str) -> None:
    # Except for the time at which a segment was sealed.
    before = durable(closed, but=names.SEAL)
    seals = sorted(path.name for path in closed.glob("*.seal"))
    MENDABLE[way](closed)

    with open_log(closed, **SEGMENT) as log:
        assert values(log.scan()) == [value_of(n) for n in range(25)]
        assert [log.offset_at_time(START_MS + n * 1000) for n in range(25)] == list(range(25))
        assert (log.leader_epoch, log.high_watermark) == (0, 25)

    assert durable(closed, but=names.SEAL) == before
    assert sorted(path.name for path in closed.glob("*.seal")) == seals


def test_log_without_checkpoint_is_scanned_without_losses(closed: Path) -> None:
    """Like a broker's directory: without a recovery point, nothing is refused and everything is read."""
    (closed / names.CHECKPOINT).unlink()

    with open_log(closed, **SEGMENT) as log:
        assert log.recovery.scanned_segments == 3
    expect(closed, 25)


# ---------------------------------------------------------------- leftovers of a crash


LEFTOVERS = [
    f"{0:020d}.log.deleted",
    f"{0:020d}.index.deleted",
    f"{10:020d}.log.cleaned",
    f"{10:020d}.timeindex.cleaned",
    f"{20:020d}.log.swap",
    f"{3:020d}.index",
    f"{3:020d}.timeindex",
    f"{3:020d}.seal",
    f"{names.CHECKPOINT}.tmp",
    f"{0:020d}.index.tmp",
    f"{0:020d}.seal.tmp",
]


@pytest.mark.parametrize("name", LEFTOVERS)
def test_leftover_file_is_deleted_by_the_next_open(closed: Path, name: str) -> None:
    """The swap is above a `.cleaned` file with a smaller base, so it was never finished."""
    if name.endswith(".swap"):
        (closed / f"{10:020d}.log.cleaned").write_bytes(b"")
    (closed / name).write_bytes(b"left over")

    with open_log(closed, **SEGMENT) as log:
        assert values(log.scan()) == [value_of(n) for n in range(25)]

    assert not (closed / name).exists()
    assert not list(closed.glob("*.cleaned"))


@pytest.mark.parametrize("name", ["notes.txt", f"{0:020d}.snapshot", f"{0:020d}.txnindex", "partition.metadata"])
def test_unknown_files_are_left_alone(closed: Path, name: str) -> None:
    (closed / name).write_bytes(b"not ours")

    with open_log(closed, **SEGMENT) as log:
        fill(log, 1)

    assert (closed / name).read_bytes() == b"not ours"


def test_finished_swap_replaces_its_segment(closed: Path) -> None:
    """In a broker's directory; compaction kept offsets 4 and 9 of the first ten."""
    for path in [*closed.glob("seeklog-*"), *closed.glob("*.seal")]:
        path.unlink()
    kept = b"".join(
        encode_batch([Record(value_of(n), timestamp_ms=START_MS + n * 1000)], base_offset=n) for n in (4, 9)
    )
    (closed / f"{FIRST}.swap").write_bytes(kept)

    with open_log(closed, **SEGMENT) as log:
        assert offsets(log.scan()) == [4, 9, *range(10, 25)]
    assert (closed / FIRST).read_bytes() == kept
    with open_log(closed, **SEGMENT) as log:
        assert log.recovery.clean
        assert offsets(log.scan()) == [4, 9, *range(10, 25)]


def test_segments_below_the_start_are_removed_after_a_crash(closed: Path) -> None:
    before = contents(closed)
    with open_log(closed, **SEGMENT) as log:
        log.delete_before(12)
    for name, data in before.items():
        if name.startswith(f"{0:020d}"):
            (closed / name).write_bytes(data)

    with open_log(closed, **SEGMENT) as log:
        assert (log.log_start_offset, offsets(log.scan())) == (12, list(range(12, 25)))
    assert segment_bases(closed) == [10, 20]


# ---------------------------------------------------------------- files that appear and disappear under a reader


def test_file_that_is_only_named_like_a_log_is_ignored(tmp_path: Path) -> None:
    make_log(tmp_path, 25, **SEGMENT)
    (tmp_path / "notes.log").write_bytes(b"not ours")

    for read_only in (True, False):
        with open_log(tmp_path, read_only=read_only, **SEGMENT) as log:
            assert offsets(log.scan()) == list(range(25))
    assert (tmp_path / "notes.log").read_bytes() == b"not ours"


@pytest.mark.parametrize("method", ["status", "open"])
def test_swap_renamed_during_a_readers_check_is_read(tmp_path: Path, method: str) -> None:
    settings: dict[str, Any] = {**SEGMENT, "cleanup_policy": "compact"}
    files, swapped = Meanwhile(), tmp_path / "swapped"
    with open_log(tmp_path / "log", files=files, **settings) as log:
        for number in range(30):
            log.append(value_of(number), key=b"k%d" % (number % 2))
        log.flush()
        # The last of its renames: all merged segments are gone by then.
        files.before("rename", FIRST, lambda: crashed_copy(log.path, swapped))
        log.compact()
        expected = offsets(log.scan())
    swap = swapped / (FIRST + names.SWAP)
    assert swap.exists()

    files.before(method, swap.name, lambda: swap.rename(swapped / FIRST))
    with open_reader(swapped, files=files, **settings) as reader:
        assert files.is_over
        assert offsets(reader.scan()) == expected


def test_reader_of_a_changing_directory_uses_its_last_listing(tmp_path: Path) -> None:
    """Goal: retention that deletes a segment at each check does not delay a reader forever."""

    class Retiring(QuickFiles):
        writer: Log | None = None

        def list(self, directory: str) -> list[str]:
            if self.writer is not None:
                self.writer.delete_before(self.writer._source.view.segments[1].base_offset)
            return super().list(directory)

    files = Retiring()
    settings = {"segment_bytes": BATCH_BYTES}
    with open_log(tmp_path, **settings) as writer:
        fill(writer, 4 * MAX_LOOKS)
        files.writer = writer
        with open_reader(tmp_path, files=files, **settings) as reader:
            files.writer = None
            start = writer.log_start_offset

            assert 3 * MAX_LOOKS <= start < 4 * MAX_LOOKS
            assert offsets(reader.scan()) == list(range(start, 4 * MAX_LOOKS))


def test_sealed_segment_that_has_grown_is_checked(closed: Path) -> None:
    """Goal: bytes after the sealed size are checked: here they are not a batch, so nothing more was promised."""
    first = closed / FIRST
    whole = first.read_bytes()
    first.write_bytes(whole + b"stray bytes")
    before = contents(closed)

    with pytest.raises(CorruptionError) as caught:
        open_log(closed, **SEGMENT)

    assert (caught.value.path, caught.value.position) == (str(first), len(whole))
    assert contents(closed) == before


def test_cut_segment_leaves_no_transaction_index_to_the_next_one(tmp_path: Path) -> None:
    """Goal: no consumer of a broker skips committed records at offsets that were cut before."""
    settings: dict[str, Any] = {"segment_bytes": 3 * BATCH_BYTES, "flush": "os"}
    with open_log(tmp_path / "log", **settings) as log:
        fill(log, 9)
        path = crashed_copy(tmp_path / "log", tmp_path / "crashed")
    index = path / f"{6:020d}.txnindex"
    index.write_bytes(bytes(34))
    second = path / f"{3:020d}.log"
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    with open_log(path, **settings) as log:
        assert log.log_end_offset == 5
        assert index.exists()  # for a repair that restores the segment
        fill(log, 3)
        assert segment_bases(path) == [0, 3, 6]
        assert not index.exists()


def test_new_segment_ignores_old_files_with_its_number(tmp_path: Path) -> None:
    index = tmp_path / f"{3:020d}.txnindex"
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES) as log:
        index.write_bytes(bytes(34))
        fill(log, 4)
        assert segment_bases(tmp_path) == [0, 3]
        assert not index.exists()
