"""Checksums of pages: where gaps are lawful no batch is shown at an offset that is not its own."""

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
def test_pages_are_summed_up_however_their_bytes_come(step: int) -> None:
    data = bytes(range(256)) * 3
    sums = PageSums(SMALL)
    for at in range(0, len(data) - 5, step):
        sums.add(data[at:] + b"not this", min(step, len(data) - 5 - at))

    pieces = [data[: len(data) - 5][at : at + SMALL] for at in range(0, len(data) - 5, SMALL)]
    assert sums.table == b"".join(struct.pack(">I", crc32c(piece)) for piece in pieces)
    assert sums.pages == Pages(SMALL, crc32c(sums.table))


def test_pages_that_are_full_leave_none_begun() -> None:
    sums = PageSums(SMALL)
    assert sums.table == b""
    sums.add(bytes(2 * SMALL))
    assert len(sums.table) == 8


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [(0, 1, (0, 64)), (63, 1, (0, 64)), (63, 2, (0, 128)), (64, 64, (64, 128)), (130, 20, (128, 150))],
)
def test_whole_pages_are_read_around_what_is_wanted(position: int, size: int, expected: tuple[int, int]) -> None:
    assert Pages(SMALL, 0).around(position, size, end=150) == expected


def test_the_first_page_that_differs_is_named() -> None:
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
    """Give the first segment a seal with pages of another size, or one from before there were pages."""
    sums = PageSums(page_size or PAGE_SIZE)
    sums.add(log_of(path).read_bytes())
    write_seal(FILES, str(path), replace(seal_of(path), pages=sums.pages if page_size else None), sums.table)


def positions(path: Path) -> list[int]:
    """Return where the batches of the first segment stand."""
    data, found = log_of(path).read_bytes(), [0]
    while found[-1] < len(data):
        found.append(found[-1] + read_header(data, found[-1]).size)
    return found[:-1]


def move_a_batch(path: Path) -> int:
    """Give a batch of the first segment another offset within its gap; return where it stands."""
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
    """Return what verify finds wrong about seals: an index that contradicts a moved batch is told apart."""
    return [each for each in inspect_partition(str(path)) if each.kind is Kind.SEAL]


def test_the_seal_of_what_was_compacted_has_pages_and_others_have_none(tmp_path: Path) -> None:
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
        (each.position, each.size, each.base_offset) for each in log.read_ranges(0, max_bytes=1 << 20)
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
def test_what_is_read_across_pages_is_what_was_written(
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
def test_a_batch_that_was_moved_within_its_gap_is_never_shown(compacted: Path, way: str, read_only: bool) -> None:
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


def test_other_pages_are_read_beside_a_wrong_one(compacted: Path) -> None:
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
def test_nothing_behind_what_was_sealed_is_read(compacted: Path, page_size: int) -> None:
    set_page_size(compacted, page_size)
    with open_compacted(compacted, read_only=True) as log:
        segment = log._source.view.segments[0]
        with log_of(compacted).open("ab") as file:
            file.write(b"more")
        assert segment.read_point(10, segment.size) == b""
        assert segment.read(10, segment.size) == b""
        assert segment.read(10, segment.size - 4) == log_of(compacted).read_bytes()[-8:-4]


def test_compaction_of_what_is_damaged_is_refused_and_nothing_changes(compacted: Path) -> None:
    with open_compacted(compacted, segment_bytes=2000) as log:
        churn(log, 200)
        log.flush()
    move_a_batch(compacted)
    with open_compacted(compacted, segment_bytes=2000) as log:
        before = contents(compacted)
        with pytest.raises(CorruptBatch, match="do not match the seal"):
            log.compact()
        assert contents(compacted) == before


def test_a_file_that_lost_its_end_is_told(compacted: Path) -> None:
    with open_compacted(compacted) as log:
        data = log_of(compacted).read_bytes()
        log_of(compacted).write_bytes(data[:-70])
        with pytest.raises(LostRecords, match=f"ends after {len(data) - 70} bytes"):
            everything(log)


# ---------------------------------------------------------------- a damaged table


@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_table_is_made_anew_and_a_writer_replaces_it(
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
def test_a_seal_that_is_gone_is_summed_up_and_not_brought_back(compacted: Path, read_only: bool) -> None:
    """Goal: a reader that is overtaken by a deletion leaves no file behind."""
    expected = everything_in(compacted)
    with open_compacted(compacted, read_only=read_only) as log:
        log_of(compacted).with_suffix(".seal").unlink()
        before = contents(compacted)
        assert everything(log) == expected
        assert contents(compacted) == before


def test_a_table_is_not_held_against_pages_of_another_size(compacted: Path) -> None:
    with open_compacted(compacted) as log:
        expected = everything(log)
        set_page_size(compacted, 300)
        log._source.view.segments[0].attach(seal_of(compacted))
        assert everything(log) == expected


@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_table_hides_no_damage(compacted: Path, read_only: bool) -> None:
    move_a_batch(compacted)
    damage_table(compacted)

    with (
        open_compacted(compacted, read_only=read_only) as log,
        pytest.raises(CorruptBatch, match="the log does not match the seal"),
    ):
        everything(log)


def test_a_disk_that_is_full_leaves_the_table_in_memory(compacted: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage_table(compacted)
    files = FailingFiles("write", ".seal", error=errno.ENOSPC)
    with open_compacted(compacted, files=files) as log:
        files.fails = True
        assert everything(log)
        assert "stay in memory" in caplog.text


# ---------------------------------------------------------------- seals from before


def test_a_seal_without_pages_is_read_as_ever(compacted: Path) -> None:
    set_page_size(compacted, None)
    with open_compacted(compacted) as log:
        expected = everything(log)
    move_a_batch(compacted)

    with open_compacted(compacted) as log:
        assert [record.value for record in everything(log)] == [record.value for record in expected]
    assert renew_index(log_of(compacted), files=FILES).done == "damaged"
    assert [each.position for each in seal_errors(compacted)] == [None]


def test_an_old_seal_gets_pages_when_compaction_has_seen_all_and_nothing_goes(compacted: Path) -> None:
    for is_damaged in (False, True):
        seal = replace(seal_of(compacted), clean_offset=1, pages=None)
        write_seal(FILES, str(compacted), seal)
        if is_damaged:
            move_a_batch(compacted)
        with open_compacted(compacted, segment_bytes=2000) as log:
            log.compact()
        assert seal_of(compacted).clean_offset > 1
        assert (seal_of(compacted).pages is None) is is_damaged


def test_reindexing_leaves_old_seals_alone_and_writes_pages_where_it_writes(compacted: Path) -> None:
    set_page_size(compacted, None)
    words: dict[str, Any] = {"files": FILES, "config": None}
    with open_compacted(compacted) as log:
        words["config"] = log.config
    assert renew_index(log_of(compacted), **words).done == "unchanged"
    log_of(compacted).with_suffix(".index").unlink()
    assert renew_index(log_of(compacted), **words).done == "rebuilt"
    pages = seal_of(compacted).pages
    assert pages is not None
    assert pages.page_size == PAGE_SIZE
    assert renew_index(log_of(compacted), **words).done == "unchanged"
    damage_table(compacted)
    assert renew_index(log_of(compacted), **words).done == "rebuilt"
    assert read_table(FILES, str(compacted), 0, pages) is not None


def test_indexes_are_not_made_anew_of_a_log_that_is_not_the_one_that_was_sealed(compacted: Path) -> None:
    move_a_batch(compacted)
    before = contents(compacted)
    with pytest.raises(CorruptionError, match="sealed"):
        rebuild_index(log_of(compacted), files=FILES)
    assert contents(compacted) == before


# ---------------------------------------------------------------- looking for damage


@pytest.mark.parametrize("page_size", [7, SMALL, 300, PAGE_SIZE])
def test_verify_names_the_page_of_a_moved_batch(compacted: Path, page_size: int) -> None:
    set_page_size(compacted, page_size)
    assert seal_errors(compacted) == []
    position = move_a_batch(compacted)

    (found,) = seal_errors(compacted)

    assert found.position in (position // page_size * page_size, (position + 7) // page_size * page_size)
    assert f"the page that starts at byte {found.position}" in found.detail


@pytest.mark.id("repair-moved-batch")
def test_a_repair_takes_a_segment_of_whole_batches_as_it_is_and_says_so(compacted: Path) -> None:
    """Goal: which batch was moved, and from where, nothing proves; the page can be read again, and no byte changes."""
    move_a_batch(compacted)
    moved = log_of(compacted).read_bytes()

    plan = plan_repair(str(compacted), files=FILES)
    repair(str(compacted), files=FILES, clock=FakeClock())

    assert (plan.segments, plan.losses) == ((), ())
    assert "the page that starts at byte" in plan.resealed[0]
    assert log_of(compacted).read_bytes() == moved
    assert [each for each in inspect_partition(str(compacted)) if each.severity is Severity.ERROR] == []
    assert len(everything_in(compacted)) > 0


def test_verify_finds_a_damaged_table_and_repair_makes_it_anew(compacted: Path) -> None:
    damage_table(compacted)
    (found,) = seal_errors(compacted)
    assert found.path.endswith(".seal")
    assert found.position == HEAD_SIZE
    assert "the table of page checksums" in found.detail

    repair(str(compacted), files=FILES, clock=FakeClock())

    assert seal_errors(compacted) == []
    assert seal_of(compacted).pages is not None


def test_verify_finds_a_table_that_was_written_wrong(compacted: Path) -> None:
    sums = PageSums(SMALL)
    sums.add(bytes(len(log_of(compacted).read_bytes())))
    write_seal(FILES, str(compacted), replace(seal_of(compacted), pages=sums.pages), sums.table)
    (found,) = seal_errors(compacted)
    assert found.path.endswith(".seal")
    assert "another checksum of the page at byte 0" in found.detail


# ---------------------------------------------------------------- beside others that write


def test_a_reader_beside_a_compaction_goes_on(compacted: Path) -> None:
    """Goal: the table of a new seal is not held against an old file, and a new file not against an old table."""
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
    """Read while something is done as soon as a file is opened for the first time."""
    files = Meanwhile()
    with open_compacted(compacted, read_only=True, files=files) as reader:
        files.before("open", when, meddle)
        found = everything(reader)
        assert files.is_over
        return found


def replaced_by_another(compacted: Path, *, steps: str) -> None:
    """Do what a swap does, in parts: the seal gets its name (s), the log gets its name (l)."""
    if "s" in steps:
        new = bytearray(log_of(compacted).read_bytes())
        # Another leader epoch, which is nothing to readers: another file of the same size.
        new[12:16] = b"\0\0\0\7"
        sums = PageSums(SMALL)
        sums.add(new)
        seal = replace(seal_of(compacted), pages=sums.pages, log_crc=crc32c(bytes(new)))
        log_of(compacted).with_suffix(".log.swap").write_bytes(new)
        write_seal(FILES, str(compacted), seal, sums.table)
    if "l" in steps:
        log_of(compacted).with_suffix(".log.swap").rename(log_of(compacted))


def test_a_file_that_is_replaced_when_it_is_opened_is_not_damaged(compacted: Path) -> None:
    """The reader has the old seal, and the new file in hand."""
    expected = everything_in(compacted)
    assert reader_of_two_times(compacted, partial(replaced_by_another, compacted, steps="sl"), ".log") == expected


def test_a_seal_that_is_replaced_when_its_table_is_read_is_not_damaged(compacted: Path) -> None:
    """The reader has the old file and the old head; the table is that of the new file."""
    expected = everything_in(compacted)
    assert reader_of_two_times(compacted, partial(replaced_by_another, compacted, steps="sl"), ".seal") == expected


@pytest.mark.parametrize("is_completed", [True, False])
def test_a_new_seal_beside_an_old_file_is_not_damage(compacted: Path, is_completed: bool) -> None:
    """The reader came when the seal had its name, and the log had not; it had listed the directory before."""
    expected = everything_in(compacted)
    files = Meanwhile()
    # The seal is read when the log is opened: what is done then comes before it, and after the listing.
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
def test_a_segment_that_is_cut_is_not_held_against_the_pages_that_it_had(compacted: Path, has_table: bool) -> None:
    """Goal: one who holds the view from before finds the end too early, as in any segment, and no damage."""
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


def test_a_segment_that_compaction_replaced_does_not_get_its_seal_back(compacted: Path) -> None:
    with open_compacted(compacted, segment_bytes=2000) as log:
        segment = log._source.view.segments[0]
        segment.handle()
        damage_table(compacted)
        segment.phase = Phase.REPLACED
        before = contents(compacted)
        segment.read(10, 0)
        assert contents(compacted) == before


# ---------------------------------------------------------------- what a broker began


def broker_batches(path: Path, *, count: int, first: int = 0) -> bytes:
    """Write a segment as a broker has it after its cleaner: offsets are missing. Returns its bytes."""
    path.mkdir()
    raw = b"".join(
        encode_batch([Record(b"value", key=b"%d" % number)], base_offset=first + 3 * number) for number in range(count)
    )
    log_of(path).write_bytes(raw)
    return raw


def test_the_segments_of_a_broker_get_pages_when_they_are_sealed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    raw = broker_batches(path, count=5)
    (path / f"{20:020d}.log").write_bytes(encode_batch([Record(b"", key=b"")], base_offset=20))

    with open_compacted(path) as log:
        assert len(everything(log)) == 6

    sums = PageSums()
    sums.add(raw)
    assert seal_of(path).pages == sums.pages


@pytest.mark.parametrize("is_damaged", [True, False])
def test_the_last_segment_of_a_broker_gets_pages_when_it_is_rolled(tmp_path: Path, is_damaged: bool) -> None:
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
