"""`validate_index`, `rebuild_index`, `recover_or_rebuild`: the indexes of one segment as files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from log.workbench import BATCH_BYTES, QuickFiles, config_of, contents, make_log, open_log, values
from record.batches import Row, Sketch
from seeklog.errors import CorruptBatch, LogLocked, LostRecords, NotALog
from seeklog.log.check.reindex import rebuild_index, recover_or_rebuild, renew_index, validate_index

CONFIG = config_of(index_interval_bytes=0)
FILES = QuickFiles()


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A sealed segment of ten batches; all but the first have an entry in both indexes."""
    make_log(tmp_path / "log", 15, index_interval_bytes=0, segment_bytes=10 * BATCH_BYTES)
    return tmp_path / "log" / f"{0:020d}.log"


@pytest.fixture
def last_segment(tmp_path: Path) -> Path:
    """The last segment of a closed log, which has no seal."""
    make_log(tmp_path / "last", 10, index_interval_bytes=0)
    return tmp_path / "last" / f"{0:020d}.log"


def patched(index: Path, entry: int, size: int, at: int, code: str, value: int) -> None:
    data = bytearray(index.read_bytes())
    struct.pack_into(code, data, entry * size + at, value)
    index.write_bytes(data)


# Damage to an offset index, and the entries that are then reported (None: the file as a whole).
OFFSET_DAMAGES: dict[str, tuple[Callable[[Path], object], set[int | None]]] = {
    "offset": (lambda p: patched(p, 4, 8, 0, ">i", 6), {4, 5}),
    "position": (lambda p: patched(p, 4, 8, 4, ">i", 4 * BATCH_BYTES + 1), {4}),
    "negative": (lambda p: patched(p, 0, 8, 4, ">i", -5), {0}),
    "behind the end": (lambda p: patched(p, 8, 8, 4, ">i", 10**6), {8}),
    "incomplete": (lambda p: p.write_bytes(p.read_bytes()[:-3]), {None}),
    "zeros": (lambda p: p.write_bytes(p.read_bytes() + bytes(16)), {9, 10}),
}
TIME_DAMAGES: dict[str, tuple[Callable[[Path], object], set[int | None]]] = {
    "time": (lambda p: patched(p, 3, 12, 0, ">q", 5), {3}),
    "offset": (lambda p: patched(p, 3, 12, 8, ">i", 9), {3}),
    "incomplete": (lambda p: p.write_bytes(p.read_bytes()[:-3]), {None}),
}


def test_indexes_of_a_whole_segment_have_no_problems(segment: Path) -> None:
    before = contents(segment.parent)

    assert validate_index(segment, files=FILES) == []
    assert contents(segment.parent) == before


@pytest.mark.parametrize("way", OFFSET_DAMAGES)
def test_every_wrong_offset_entry_is_reported(segment: Path, way: str) -> None:
    damage, entries = OFFSET_DAMAGES[way]
    damage(segment.with_suffix(".index"))

    problems = validate_index(segment, files=FILES)

    assert {problem.entry for problem in problems} >= entries
    assert all(problem.path == str(segment.with_suffix(".index")) for problem in problems)
    assert all(problem.reason for problem in problems)


@pytest.mark.parametrize("way", TIME_DAMAGES)
def test_every_wrong_time_entry_is_reported(segment: Path, way: str) -> None:
    damage, entries = TIME_DAMAGES[way]
    damage(segment.with_suffix(".timeindex"))

    problems = validate_index(segment, files=FILES)

    assert {problem.entry for problem in problems} >= entries
    assert all(problem.path == str(segment.with_suffix(".timeindex")) for problem in problems)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("cut", [1, 5, 9])
def test_entries_missing_at_the_end_are_a_problem(segment: Path, suffix: str, cut: int) -> None:
    """Each remaining entry is right, but the seal has the CRC of the whole index."""
    index = segment.with_suffix(suffix)
    index.write_bytes(index.read_bytes()[: -cut * (8 if suffix == ".index" else 12)])

    assert [problem.path for problem in validate_index(segment, files=FILES)] == [str(index)]


@pytest.mark.parametrize("verb", [rebuild_index, recover_or_rebuild])
def test_last_segment_of_closed_log_is_repaired_for_a_clean_open(
    last_segment: Path, verb: Callable[..., object]
) -> None:
    before = contents(last_segment.parent)
    last_segment.with_suffix(".index").write_bytes(b"nonsense")

    verb(last_segment, config=CONFIG, files=FILES)

    assert contents(last_segment.parent) == before
    with open_log(last_segment.parent, index_interval_bytes=0) as log:
        assert log.recovery.clean


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_index_is_a_problem(segment: Path, suffix: str) -> None:
    segment.with_suffix(suffix).unlink()

    (problem,) = validate_index(segment, files=FILES)

    assert "missing" in problem.reason


def test_damage_in_the_log_is_reported_with_its_file(segment: Path) -> None:
    raw = bytearray(segment.read_bytes())
    raw[5 * BATCH_BYTES + 70] ^= 1
    segment.write_bytes(raw)

    assert str(segment) in {problem.path for problem in validate_index(segment, files=FILES)}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
@pytest.mark.parametrize("verb", [rebuild_index, recover_or_rebuild])
def test_damaged_index_is_rebuilt_from_the_log(
    segment: Path, suffix: str, damage: bytes | None, verb: Callable[..., object]
) -> None:
    before = contents(segment.parent)
    index = segment.with_suffix(suffix)
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)

    verb(segment, config=CONFIG, files=FILES)

    assert contents(segment.parent) == before
    assert validate_index(segment, files=FILES) == []
    with open_log(segment.parent, index_interval_bytes=0) as log:
        assert log.recovery.clean
        assert len(values(log.scan())) == 15


def test_valid_indexes_are_returned_unchanged(segment: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in segment.parent.glob("*index")}

    indexes = recover_or_rebuild(segment, config=CONFIG, files=FILES)

    assert [entry.offset for entry in indexes.offsets] == list(range(1, 10))
    assert len(indexes.times) == 9
    assert before == {path: path.stat().st_mtime_ns for path in segment.parent.glob("*index")}


def test_rebuild_uses_the_interval_of_its_config(segment: Path) -> None:
    indexes = rebuild_index(segment, config=config_of(index_interval_records=5), files=FILES)

    assert [entry.offset for entry in indexes.offsets] == [5]
    assert segment.with_suffix(".index").read_bytes() == struct.pack(">ii", 5, 5 * BATCH_BYTES)


@pytest.mark.parametrize("verb", [rebuild_index, recover_or_rebuild])
def test_damaged_log_does_not_get_an_index(segment: Path, verb: Callable[..., object]) -> None:
    raw = bytearray(segment.read_bytes())
    raw[5 * BATCH_BYTES + 70] ^= 1
    segment.write_bytes(raw)
    before = contents(segment.parent)

    with pytest.raises(CorruptBatch) as caught:
        verb(segment, config=CONFIG, files=FILES)

    assert (caught.value.path, caught.value.position) == (str(segment), 5 * BATCH_BYTES)
    assert contents(segment.parent) == before


@pytest.mark.parametrize("verb", [rebuild_index, recover_or_rebuild])
def test_log_open_for_writing_is_left_alone(segment: Path, verb: Callable[..., object]) -> None:
    with open_log(segment.parent, index_interval_bytes=0), pytest.raises(LogLocked):
        verb(segment, config=CONFIG, files=FILES)


@pytest.mark.parametrize("name", [f"{5:020d}.log", f"{0:020d}.index", "x.log", ".lock"])
@pytest.mark.parametrize("verb", [rebuild_index, recover_or_rebuild, validate_index])
def test_file_that_is_not_a_segment_is_refused(segment: Path, name: str, verb: Callable[..., object]) -> None:
    before = contents(segment.parent)

    with pytest.raises(NotALog):
        verb(segment.parent / name, files=FILES)

    assert contents(segment.parent) == before


class ShrunkFiles(QuickFiles):
    """The real disk, on which every file has just become shorter; fails if it is read forever."""

    def __init__(self) -> None:
        self.reads = 0

    def size(self, handle: int) -> int:
        return super().size(handle) + 100

    def read(self, handle: int, size: int, position: int) -> bytes:
        self.reads += 1
        assert self.reads < 1000, "it reads forever"
        return super().read(handle, size, position)


def test_file_cut_during_a_scan_is_reported_and_not_indexed(segment: Path) -> None:
    before = contents(segment.parent)
    reason = f"the file ends after {10 * BATCH_BYTES} bytes, the segment holds {10 * BATCH_BYTES + 100}"

    assert [problem.reason for problem in validate_index(segment, files=ShrunkFiles())] == [reason]
    for verb in (rebuild_index, recover_or_rebuild):
        with pytest.raises(LostRecords, match=reason):
            verb(segment, config=CONFIG, files=ShrunkFiles())
    renewed = renew_index(segment, config=CONFIG, files=ShrunkFiles())

    assert (renewed.done, renewed.detail) == ("damaged", f"byte {10 * BATCH_BYTES}: {reason}")
    assert contents(segment.parent) == before


@pytest.mark.parametrize("left", [1, 11, 12, BATCH_BYTES - 1])
def test_file_cut_inside_a_batch_during_a_scan_is_reported_by_byte(segment: Path, left: int) -> None:
    data = segment.read_bytes()
    segment.write_bytes(data[: 4 * BATCH_BYTES + left])
    end = 4 * BATCH_BYTES + left

    with pytest.raises(LostRecords, match=f"the file ends after {end} bytes, the segment holds {end + 100}") as caught:
        rebuild_index(segment, config=CONFIG, files=ShrunkFiles())

    assert caught.value.position == end


# ---------------------------------------------------------------- renew_index


def test_valid_indexes_are_not_rewritten(segment: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in segment.parent.iterdir()}

    renewed = renew_index(segment, config=CONFIG, files=FILES)

    assert (renewed.done, renewed.detail) == ("unchanged", "")
    assert (renewed.batch_count, renewed.record_count, renewed.size) == (10, 10, 10 * BATCH_BYTES)
    assert renewed.sizes_before == renewed.sizes_after == (9 * 8, 9 * 12)
    assert before == {path: path.stat().st_mtime_ns for path in segment.parent.iterdir()}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_index_that_does_not_match_the_log_is_rebuilt(segment: Path, suffix: str, damage: bytes | None) -> None:
    before = contents(segment.parent)
    index = segment.with_suffix(suffix)
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)

    renewed = renew_index(segment, config=CONFIG, files=FILES)

    assert renewed.done == "rebuilt"
    assert renewed.sizes_before[suffix == ".timeindex"] == (None if damage is None else len(damage))
    assert contents(segment.parent) == before


def test_seal_of_other_indexes_is_rewritten_with_them(segment: Path) -> None:
    renewed = renew_index(segment, config=config_of(index_interval_records=5), files=FILES)

    assert (renewed.done, renewed.sizes_after) == ("rebuilt", (8, 24))
    assert validate_index(segment, files=FILES) == []
    assert renew_index(segment, config=config_of(index_interval_records=5), files=FILES).done == "unchanged"


def test_holder_of_the_lock_may_rebuild_indexes(segment: Path) -> None:
    with open_log(segment.parent, index_interval_bytes=0):
        assert renew_index(segment, config=CONFIG, files=FILES).done == "unchanged"


@pytest.mark.parametrize("at", [5 * BATCH_BYTES + 70, 5 * BATCH_BYTES + 15], ids=["a record", "a leader epoch"])
def test_log_that_differs_from_its_seal_keeps_its_indexes(segment: Path, at: int) -> None:
    """Only the seal's CRC covers a leader epoch."""
    raw = bytearray(segment.read_bytes())
    raw[at] ^= 1
    segment.write_bytes(raw)
    segment.with_suffix(".index").write_bytes(b"nonsense")
    before = contents(segment.parent)

    renewed = renew_index(segment, config=CONFIG, files=FILES)

    assert renewed.done == "damaged"
    assert "CRC" in renewed.detail
    assert contents(segment.parent) == before


def test_log_with_an_unfinished_batch_keeps_its_indexes(last_segment: Path) -> None:
    last_segment.write_bytes(last_segment.read_bytes()[:-5])
    before = contents(last_segment.parent)

    renewed = renew_index(last_segment, config=CONFIG, files=FILES)

    assert (renewed.done, renewed.detail) == ("damaged", f"byte {9 * BATCH_BYTES}: the last batch is incomplete")
    assert contents(last_segment.parent) == before


def test_entry_of_a_broker_may_cover_batches_of_one_append(tmp_path: Path) -> None:
    """It gives the last offset of all and the position of the first; no seal or checkpoint proves it."""
    batches = [Sketch([Row()], base_offset=base).encode() for base in range(4)]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    path.with_suffix(".timeindex").write_bytes(b"")
    for entry, problems in {(2, len(batches[0])): 0, (0, len(batches[0])): 1}.items():
        path.with_suffix(".index").write_bytes(struct.pack(">ii", *entry))
        assert len(validate_index(path)) == problems
