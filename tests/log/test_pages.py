"""Page checksums: in a log that may have gaps, no batch is returned at a wrong offset."""

from __future__ import annotations

import contextlib
import errno
import logging
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from log.compacting import churn, everything, open_compacted, put
from log.workbench import FailingFiles, FakeClock, Meanwhile, QuickFiles, contents, open_log
from seeklog import Log, Record
from seeklog.errors import CorruptBatch, CorruptionError, LostRecords
from seeklog.files import OsFiles
from seeklog.log import reading
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.log.check.reindex import rebuild_index, renew_index
from seeklog.log.check.repair_plan import plan_repair
from seeklog.log.check.repair_work import repair
from seeklog.log.pinned import make_pin, pinned_view
from seeklog.log.segment import Phase
from seeklog.log.side.pages import PAGE_SIZE, Pages, PageSums, first_difference, wrong_page
from seeklog.log.side.seal import HEAD_SIZE, Seal, read_seal, read_table, write_seal
from seeklog.record.batch import encode_batch, read_header
from seeklog.record.crc import crc32c

SMALL = 64
FILES = QuickFiles()


# ---------------------------------------------------------------- sums


@pytest.mark.parametrize("step", [1, 7, 64, 65, 1000])
def test_page_sums_do_not_depend_on_chunking(step: int) -> None:
    data = bytes(range(256)) * 3
    sums = PageSums(SMALL)
    for at in range(0, len(data) - 5, step):
        sums.add(data[at:] + b"not this", min(step, len(data) - 5 - at))

    pieces = [data[: len(data) - 5][at : at + SMALL] for at in range(0, len(data) - 5, SMALL)]
    assert sums.table == b"".join(struct.pack(">I", crc32c(piece)) for piece in pieces)
    assert sums.pages == Pages(SMALL, crc32c(sums.table))


def test_full_pages_leave_no_partial_page() -> None:
    sums = PageSums(SMALL)
    assert sums.table == b""
    sums.add(bytes(2 * SMALL))
    assert len(sums.table) == 8


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [(0, 1, (0, 64)), (63, 1, (0, 64)), (63, 2, (0, 128)), (64, 64, (64, 128)), (130, 20, (128, 150))],
)
def test_whole_pages_are_read_around_a_range(position: int, size: int, expected: tuple[int, int]) -> None:
    assert Pages(SMALL, 0).around(position, size, end=150) == expected


def test_first_differing_page_is_returned() -> None:
    data = bytearray(200)
    sums = PageSums(SMALL)
    sums.add(data)
    assert wrong_page(sums.table, sums.pages, bytes(data), 0) is None
    data[130] ^= 1
    assert wrong_page(sums.table, sums.pages, bytes(data), 0) == 128
    assert wrong_page(sums.table, sums.pages, bytes(data[128:]), 128) == 128
    other = PageSums(SMALL)
    other.add(data)
    assert first_difference(sums.table, other.table, page_size=SMALL) == 128
    assert first_difference(sums.table, sums.table, page_size=SMALL) is None
    assert first_difference(sums.table, sums.table[:-4], page_size=SMALL) == 192


# ---------------------------------------------------------------- a log with gaps


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """A log whose first segment was compacted, with gaps between its batches, and pages of 64 bytes."""
    path = tmp_path / "log"
    make_compacted(path)
    set_page_size(path, SMALL)
    return path


def make_compacted(path: Path) -> None:
    with open_compacted(path, segment_bytes=2000) as log:
        for number in range(60):
            log.append_many(
                [Record(b"value %d" % number, key=b"k%d" % (number % 3 if number % 6 < 4 else number))],
            )
        log.flush()
        assert log.compact().removed_records > 0


def log_of(path: Path) -> Path:
    return path / f"{0:020d}.log"


def seal_of(path: Path) -> Seal:
    seal = read_seal(FILES, str(path), 0)
    assert seal is not None
    return seal


def set_page_size(path: Path, page_size: int | None) -> None:
    """Give the first segment a seal with another page size, or one from before page checksums."""
    sums = PageSums(page_size or PAGE_SIZE)
    sums.add(log_of(path).read_bytes())
    write_seal(FILES, str(path), replace(seal_of(path), pages=sums.pages if page_size else None), sums.table)


def positions(path: Path) -> list[int]:
    """Return the positions of the batches of the first segment."""
    data, found = log_of(path).read_bytes(), [0]
    while found[-1] < len(data):
        found.append(found[-1] + read_header(data, found[-1]).size)
    return found[:-1]


def move_a_batch(path: Path) -> int:
    """Give a batch of the first segment another offset within its gap; return its position."""
    data = bytearray(log_of(path).read_bytes())
    end = 0
    for position in positions(path):
        header = read_header(bytes(data), position)
        if end and header.base_offset > end:
            data[position : position + 8] = end.to_bytes(8, "big")
            log_of(path).write_bytes(data)
            return position
        end = header.next_offset
    raise AssertionError("there is no gap")


def damage_table(path: Path) -> None:
    seal = log_of(path).with_suffix(".seal")
    data = bytearray(seal.read_bytes())
    data[-1] ^= 1
    seal.write_bytes(data)


def seal_errors(path: Path) -> list[Finding]:
    """Return what verify finds wrong with seals; an index that contradicts a moved batch is reported separately."""
    return [finding for finding in inspect_partition(str(path)) if finding.kind is Kind.SEAL]


def test_only_seals_of_compacted_segments_have_pages(tmp_path: Path) -> None:
    make_compacted(tmp_path)
    data = log_of(tmp_path).read_bytes()
    seal = seal_of(tmp_path)
    assert not seal.contiguous
    assert seal.pages == Pages(PAGE_SIZE, crc32c(struct.pack(">I", crc32c(data))))
    assert read_table(FILES, str(tmp_path), 0, seal.pages) == struct.pack(">I", crc32c(data))

    with open_log(tmp_path / "plain", segment_bytes=300) as log:
        churn(log, 30)
    assert seal_of(tmp_path / "plain").contiguous
    assert seal_of(tmp_path / "plain").pages is None


WAYS: dict[str, Callable[[Log], object]] = {
    "scan": lambda log: list(log.scan()),
    "scan_reverse": lambda log: list(log.scan_reverse()),
    "read": lambda log: [list(log.read(at, max_records=1)) for at in range(log.log_end_offset)],
    "read_batches": lambda log: list(log.read_batches(0, max_bytes=1 << 20)),
    "read_ranges": lambda log: [
        (part.position, part.size, part.base_offset) for part in log.read_ranges(0, max_bytes=1 << 20)
    ],
    "seek": lambda log: [log.seek(at) for at in range(log.log_end_offset)],
    "key": lambda log: [log.latest_for_key(b"k%d" % number) for number in range(60)],
    "pin": lambda log: list(
        reading.scan_chunks(
            pinned_view(OsFiles(), str(log.path), make_pin(log._source.view, 0, log.log_end_offset)),
            0,
            log.log_end_offset,
            limit=1 << 20,
        )
    ),
}


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("page_size", [1, SMALL, 300, PAGE_SIZE])
def test_reads_across_pages_return_the_written_bytes(
    compacted: Path, way: str, page_size: int, read_only: bool
) -> None:
    set_page_size(compacted, None)
    with open_compacted(compacted, read_only=True) as log:
        expected = WAYS[way](log)
    set_page_size(compacted, page_size)

    with open_compacted(compacted, read_only=read_only) as log:
        assert WAYS[way](log) == expected


@pytest.mark.id("batch-moved-in-gap")
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_batch_moved_within_its_gap_is_never_returned(compacted: Path, way: str, read_only: bool) -> None:
    position = move_a_batch(compacted)

    with (
        open_compacted(compacted, read_only=read_only, key_index="none") as log,
        pytest.raises(CorruptBatch, match="do not match the seal") as raised,
    ):
        WAYS[way](log)

    assert raised.value.path == str(log_of(compacted))
    assert raised.value.position is not None
    assert raised.value.position // SMALL <= (position + 7) // SMALL
    assert "verify" in str(raised.value)


def test_other_pages_are_readable_next_to_a_damaged_one(compacted: Path) -> None:
    expected = everything_in(compacted)
    position = move_a_batch(compacted)

    with open_compacted(compacted, read_only=True) as log:
        found = []
        for record in expected:
            with contextlib.suppress(CorruptBatch):
                found += log.read(record.offset, max_records=1)
    assert [record for record in expected if record in found] == found
    assert position > SMALL
    assert found[0] == expected[0]
    assert found[-1] == expected[-1]
    assert len(found) < len(expected)


@pytest.mark.parametrize("page_size", [1, SMALL])
def test_nothing_after_the_sealed_size_is_read(compacted: Path, page_size: int) -> None:
    set_page_size(compacted, page_size)
    with open_compacted(compacted, read_only=True) as log:
        segment = log._source.view.segments[0]
        with log_of(compacted).open("ab") as file:
            file.write(b"more")
        assert segment.read_point(10, segment.size) == b""
        assert segment.read(10, segment.size) == b""
        assert segment.read(10, segment.size - 4) == log_of(compacted).read_bytes()[-8:-4]


def test_compaction_of_damaged_segment_is_refused_without_changes(compacted: Path) -> None:
    with open_compacted(compacted, segment_bytes=2000) as log:
        churn(log, 200)
        log.flush()
    move_a_batch(compacted)
    with open_compacted(compacted, segment_bytes=2000) as log:
        before = contents(compacted)
        with pytest.raises(CorruptBatch, match="do not match the seal"):
            log.compact()
        assert contents(compacted) == before


def test_truncated_file_is_reported(compacted: Path) -> None:
    with open_compacted(compacted) as log:
        data = log_of(compacted).read_bytes()
        log_of(compacted).write_bytes(data[:-70])
        with pytest.raises(LostRecords, match=f"ends after {len(data) - 70} bytes"):
            everything(log)


# ---------------------------------------------------------------- a damaged table


@pytest.mark.parametrize("read_only", [True, False])
def test_damaged_table_is_rebuilt_and_replaced_by_a_writer(
    compacted: Path, read_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with open_compacted(compacted, read_only=True) as log:
        expected = everything(log)
    whole = log_of(compacted).with_suffix(".seal").read_bytes()
    damage_table(compacted)

    with caplog.at_level(logging.WARNING), open_compacted(compacted, read_only=read_only) as log:
        assert everything(log) == expected
        assert everything(log) == expected

    assert [record.message.count("rebuilding the page checksums") for record in caplog.records] == [1]
    assert (log_of(compacted).with_suffix(".seal").read_bytes() == whole) is not read_only


@pytest.mark.parametrize("read_only", [True, False])
def test_missing_seal_is_not_recreated_by_a_read(compacted: Path, read_only: bool) -> None:
    """Goal: a reader that a deletion overtakes creates no file."""
    expected = everything_in(compacted)
    with open_compacted(compacted, read_only=read_only) as log:
        log_of(compacted).with_suffix(".seal").unlink()
        before = contents(compacted)
        assert everything(log) == expected
        assert contents(compacted) == before


def test_table_is_not_compared_with_pages_of_another_size(compacted: Path) -> None:
    with open_compacted(compacted) as log:
        expected = everything(log)
        set_page_size(compacted, 300)
        log._source.view.segments[0].attach(seal_of(compacted))
        assert everything(log) == expected


@pytest.mark.parametrize("read_only", [True, False])
def test_damaged_table_does_not_hide_damage(compacted: Path, read_only: bool) -> None:
    move_a_batch(compacted)
    damage_table(compacted)

    with (
        open_compacted(compacted, read_only=read_only) as log,
        pytest.raises(CorruptBatch, match="the log does not match the seal"),
    ):
        everything(log)


def test_full_disk_leaves_the_table_in_memory(compacted: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage_table(compacted)
    files = FailingFiles("write", ".seal", error=errno.ENOSPC)
    with open_compacted(compacted, files=files) as log:
        files.fails = True
        assert everything(log)
        assert "stay in memory" in caplog.text


# ---------------------------------------------------------------- seals without pages


def test_seal_without_pages_is_read(compacted: Path) -> None:
    set_page_size(compacted, None)
    with open_compacted(compacted) as log:
        expected = everything(log)
    move_a_batch(compacted)

    with open_compacted(compacted) as log:
        assert [record.value for record in everything(log)] == [record.value for record in expected]
    assert renew_index(log_of(compacted), files=FILES).done == "damaged"
    assert [finding.position for finding in seal_errors(compacted)] == [None]


def test_old_seal_gets_pages_when_compaction_removes_nothing(compacted: Path) -> None:
    for is_damaged in (False, True):
        seal = replace(seal_of(compacted), clean_offset=1, pages=None)
        write_seal(FILES, str(compacted), seal)
        if is_damaged:
            move_a_batch(compacted)
        with open_compacted(compacted, segment_bytes=2000) as log:
            log.compact()
        assert seal_of(compacted).clean_offset > 1
        assert (seal_of(compacted).pages is None) is is_damaged


def test_reindexing_adds_pages_only_to_rewritten_seals(compacted: Path) -> None:
    set_page_size(compacted, None)
    arguments: dict[str, Any] = {"files": FILES, "config": None}
    with open_compacted(compacted) as log:
        arguments["config"] = log.config
    assert renew_index(log_of(compacted), **arguments).done == "unchanged"
    log_of(compacted).with_suffix(".index").unlink()
    assert renew_index(log_of(compacted), **arguments).done == "rebuilt"
    pages = seal_of(compacted).pages
    assert pages is not None
    assert pages.page_size == PAGE_SIZE
    assert renew_index(log_of(compacted), **arguments).done == "unchanged"
    damage_table(compacted)
    assert renew_index(log_of(compacted), **arguments).done == "rebuilt"
    assert read_table(FILES, str(compacted), 0, pages) is not None


def test_indexes_are_not_rebuilt_from_a_log_that_differs_from_its_seal(compacted: Path) -> None:
    move_a_batch(compacted)
    before = contents(compacted)
    with pytest.raises(CorruptionError, match="sealed"):
        rebuild_index(log_of(compacted), files=FILES)
    assert contents(compacted) == before


# ---------------------------------------------------------------- verify and repair


@pytest.mark.parametrize("page_size", [7, SMALL, 300, PAGE_SIZE])
def test_verify_names_the_page_of_a_moved_batch(compacted: Path, page_size: int) -> None:
    set_page_size(compacted, page_size)
    assert seal_errors(compacted) == []
    position = move_a_batch(compacted)

    (found,) = seal_errors(compacted)

    assert found.position in (position // page_size * page_size, (position + 7) // page_size * page_size)
    assert f"the page that starts at byte {found.position}" in found.detail


@pytest.mark.id("repair-moved-batch")
def test_repair_keeps_a_segment_of_whole_batches_and_reports_it(compacted: Path) -> None:
    """Goal: nothing proves which batch was moved, or from where; the page becomes readable, and no byte changes."""
    move_a_batch(compacted)
    moved = log_of(compacted).read_bytes()

    plan = plan_repair(str(compacted), files=FILES)
    repair(str(compacted), files=FILES, clock=FakeClock())

    assert (plan.segments, plan.losses) == ((), ())
    assert "the page that starts at byte" in plan.resealed[0]
    assert log_of(compacted).read_bytes() == moved
    assert [finding for finding in inspect_partition(str(compacted)) if finding.severity is Severity.ERROR] == []
    assert len(everything_in(compacted)) > 0


def test_verify_finds_a_damaged_table_and_repair_rebuilds_it(compacted: Path) -> None:
    damage_table(compacted)
    (found,) = seal_errors(compacted)
    assert found.path.endswith(".seal")
    assert found.position == HEAD_SIZE
    assert "the table of page checksums" in found.detail

    repair(str(compacted), files=FILES, clock=FakeClock())

    assert seal_errors(compacted) == []
    assert seal_of(compacted).pages is not None


def test_verify_finds_a_wrong_table_with_valid_crc(compacted: Path) -> None:
    sums = PageSums(SMALL)
    sums.add(bytes(len(log_of(compacted).read_bytes())))
    write_seal(FILES, str(compacted), replace(seal_of(compacted), pages=sums.pages), sums.table)
    (found,) = seal_errors(compacted)
    assert found.path.endswith(".seal")
    assert "another checksum of the page at byte 0" in found.detail


# ---------------------------------------------------------------- next to writers


def test_reader_continues_during_a_compaction(compacted: Path) -> None:
    """Goal: the table of a new seal is not compared with an old file, nor a new file with an old table."""
    for has_read in (True, False):
        with (
            open_compacted(compacted, segment_bytes=2000) as writer,
            open_compacted(compacted, read_only=True, max_open_segments=2) as reader,
        ):
            scan = reader.scan()
            if has_read:
                next(scan)
            churn(writer, 200, seed=3 + has_read)
            writer.flush()
            writer.compact()
            put(writer, "last", b"")
            found = list(scan)
            assert [record.offset for record in found] == sorted({record.offset for record in found})
            assert everything(reader) == everything(writer)
            set_page_size(compacted, SMALL)


def reader_of_two_times(compacted: Path, meddle: Callable[[], object], when: str) -> list[Record]:
    """Read while an action runs at the first opening of a file."""
    files = Meanwhile()
    with open_compacted(compacted, read_only=True, files=files) as reader:
        files.before("open", when, meddle)
        found = everything(reader)
        assert files.is_over
        return found


def replaced_by_another(compacted: Path, *, steps: str) -> None:
    """Do parts of a swap: the seal gets its name (s), the log gets its name (l)."""
    if "s" in steps:
        new = bytearray(log_of(compacted).read_bytes())
        # Another leader epoch, which readers ignore: another file of the same size.
        new[12:16] = b"\0\0\0\7"
        sums = PageSums(SMALL)
        sums.add(new)
        seal = replace(seal_of(compacted), pages=sums.pages, log_crc=crc32c(bytes(new)))
        log_of(compacted).with_suffix(".log.swap").write_bytes(new)
        write_seal(FILES, str(compacted), seal, sums.table)
    if "l" in steps:
        log_of(compacted).with_suffix(".log.swap").rename(log_of(compacted))


def test_file_replaced_while_it_is_opened_is_not_damage(compacted: Path) -> None:
    """The reader has the old seal and the new file."""
    expected = everything_in(compacted)
    assert reader_of_two_times(compacted, partial(replaced_by_another, compacted, steps="sl"), ".log") == expected


def test_seal_replaced_while_its_table_is_read_is_not_damage(compacted: Path) -> None:
    """The reader has the old file and the old head; the table is that of the new file."""
    expected = everything_in(compacted)
    assert reader_of_two_times(compacted, partial(replaced_by_another, compacted, steps="sl"), ".seal") == expected


@pytest.mark.parametrize("is_completed", [True, False])
def test_new_seal_next_to_an_old_file_is_not_damage(compacted: Path, is_completed: bool) -> None:
    """The reader opened the log when only the seal was renamed; it had listed the directory before."""
    expected = everything_in(compacted)
    files = Meanwhile()
    # The seal is read when the log is opened: the action runs before that, and after the listing.
    files.before("open", ".seal", partial(replaced_by_another, compacted, steps="s"))
    with open_compacted(compacted, read_only=True, files=files) as reader:
        assert files.is_over
        if is_completed:
            reader._source.view.segments[0].handle()
            replaced_by_another(compacted, steps="l")
        assert everything(reader) == expected


def everything_in(path: Path) -> list[Record]:
    with open_compacted(path, read_only=True) as log:
        return everything(log)


@pytest.mark.parametrize("has_table", [True, False])
def test_truncated_segment_is_not_compared_with_its_old_pages(compacted: Path, has_table: bool) -> None:
    """Goal: a reader with an older view finds the end too early, as in any segment, and no damage."""
    files = Meanwhile()
    with open_compacted(compacted, files=files) as log:
        segment = log._source.view.segments[0]
        end = positions(compacted)[3]
        if has_table:
            segment.read(10, 0)
        else:
            damage_table(compacted)
        cut_at = read_header(log_of(compacted).read_bytes(), end).base_offset
        handle = segment.handle()
        files.before("read", ".log", partial(log.truncate_to, cut_at))
        start, data = segment._read_pages(handle, segment.pages or Pages(1, 1), segment.size, 0)
        assert (start, len(data)) == (0, end)


def test_replaced_segment_does_not_get_its_seal_back(compacted: Path) -> None:
    with open_compacted(compacted, segment_bytes=2000) as log:
        segment = log._source.view.segments[0]
        segment.handle()
        damage_table(compacted)
        segment.phase = Phase.REPLACED
        before = contents(compacted)
        segment.read(10, 0)
        assert contents(compacted) == before


# ---------------------------------------------------------------- segments of a broker


def broker_batches(path: Path, *, count: int, first: int = 0) -> bytes:
    """Write a segment as a broker's cleaner leaves it, with missing offsets. Return its bytes."""
    path.mkdir()
    raw = b"".join(
        encode_batch([Record(b"value", key=b"%d" % number)], base_offset=first + 3 * number) for number in range(count)
    )
    log_of(path).write_bytes(raw)
    return raw


def test_segments_of_a_broker_get_pages_when_sealed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    raw = broker_batches(path, count=5)
    (path / f"{20:020d}.log").write_bytes(encode_batch([Record(b"", key=b"")], base_offset=20))

    with open_compacted(path) as log:
        assert len(everything(log)) == 6

    sums = PageSums()
    sums.add(raw)
    assert seal_of(path).pages == sums.pages


@pytest.mark.parametrize("is_damaged", [True, False])
def test_last_segment_of_a_broker_gets_pages_when_rolled(tmp_path: Path, is_damaged: bool) -> None:
    path = tmp_path / "log"
    broker_batches(path, count=5)
    with open_compacted(path) as log:
        put(log, "more", b"more")
        if is_damaged:
            move_a_batch(path)
        churn(log, 20)
        log.flush()

    sums = PageSums()
    sums.add(log_of(path).read_bytes())
    assert seal_of(path).pages == (None if is_damaged else sums.pages)
