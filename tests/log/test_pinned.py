"""Pinned parts of a log, read after compaction has replaced their files."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from log.workbench import Meanwhile, QuickFiles
from record.batches import with_field
from seeklog import Log, LogConfig, LogReader, Record, names
from seeklog.errors import CorruptBatch
from seeklog.files import OsFiles
from seeklog.log import reading
from seeklog.log.pinned import Pin, make_pin, pinned_view
from seeklog.log.side.seal import read_seal, write_seal

KEYS = 7
CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1500, index_interval_bytes=200, flush="os")


def _append(log: Log, first: int, count: int) -> None:
    for number in range(first, first + count):
        log.append_many([Record(b"%d" % number, key=b"key-%d" % (number % KEYS))])


def _keys(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


@pytest.mark.parametrize("start", [0, 20, 55])
def test_pin_overtaken_by_compaction_gives_newest_record_of_each_key(tmp_path: Path, start: int) -> None:
    with Log(tmp_path / "log", config=CONFIG) as log:
        _append(log, 0, 60)
        end = log.log_end_offset
        pin = make_pin(log._source.view, start, end)
        assert not pin.segments[-1].is_final
        before = _keys(list(log.scan(start)))
        # None of the pinned keys is appended again, so no newer record replaces them.
        for number in range(200):
            log.append(b"x" * 20, key=b"other-%d" % number)
        log.flush()
        assert log.compact().removed_records > 0

        view = pinned_view(OsFiles(), str(tmp_path / "log"), pin)
        chunks = reading.scan_chunks(view, start, end, limit=1 << 20)
        found = [record for chunk in chunks for record in chunk]

    assert _keys(found) == before
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    assert all(start <= record.offset < end for record in found)


def _read(path: Path, pin: Pin, start: int, end: int) -> list[Record]:
    view = pinned_view(OsFiles(), str(path), pin)
    return [record for chunk in reading.scan_chunks(view, start, end, limit=1 << 20) for record in chunk]


@pytest.mark.parametrize("start", [0, 20, 55])
def test_pin_of_sealed_segments_is_read_before_and_after_compaction(tmp_path: Path, start: int) -> None:
    with Log(tmp_path / "log", config=CONFIG, files=QuickFiles()) as log:
        _append(log, 0, 60)
        log.flush()
        end = log._source.view.last.base_offset
        pin = make_pin(log._source.view, min(start, end - 1), end)
        assert all(one.is_final for one in pin.segments)
        before = list(log.scan(start, end))
        assert _read(log.path, pin, start, end) == before

        assert log.compact().removed_records > 0
        # Segments that are rolled and not yet sealed come after the compacted ones.
        _append(log, 60, 60)
        found = _read(log.path, pin, start, end)

    assert _keys(found) == _keys(before)
    assert len(found) < len(before) or start > 20


def test_pin_of_deleted_records_is_out_of_range_on_read(tmp_path: Path) -> None:
    with Log(tmp_path / "log", config=CONFIG, files=QuickFiles()) as log:
        _append(log, 0, 60)
        log.flush()
        with LogReader(log.path, config=CONFIG) as reader:
            view = reader._source.view
            end = view.segments[0].next_offset
            log.delete_before(end)

            pin = make_pin(view, 3, end)

            assert pin.entry == b""
            with pytest.raises(FileNotFoundError):
                _read(log.path, pin, 3, end)


@pytest.mark.parametrize(("times", "found"), [(2, [0, 1, 2]), (100, None)])
def test_missing_pinned_file_is_looked_up_a_few_times(tmp_path: Path, times: int, found: list[int] | None) -> None:
    """Goal: a file that is replaced twice is found; a file that is listed but never there is given up."""

    def vanish() -> None:
        raise FileNotFoundError(errno.ENOENT, "between two names")

    files = Meanwhile()
    with Log(tmp_path / "log", config=CONFIG, files=QuickFiles()) as log:
        _append(log, 0, 3)
        view = pinned_view(files, str(log.path), make_pin(log._source.view, 0, 3))
        for _ in range(times):
            files.before("open", names.LOG, vanish)
        chunks = reading.scan_chunks(view, 0, 3, limit=1 << 20)
        if found is None:
            with pytest.raises(FileNotFoundError, match="between two names"):
                next(chunks)
        else:
            assert [record.offset for record in next(chunks)] == found


def test_pinned_batch_with_offsets_of_the_next_segment_is_damage(tmp_path: Path) -> None:
    """Goal: where compaction left gaps, only the end of its segment reveals a wrong base offset."""
    with Log(tmp_path / "log", config=CONFIG, files=QuickFiles()) as log:
        _append(log, 0, 60)
        log.flush()
        assert log.compact().removed_records > 0
        first = log._source.view.segments[0]
        pin = make_pin(log._source.view, 0, first.next_offset)
        assert not pin.segments[0].trust.contiguous
        # A seal from before page checksums; with them the page would reveal it.
        pin = pin._replace(segments=tuple(one._replace(trust=one.trust._replace(pages=None)) for one in pin.segments))
        *_, last = log.read_batches(0, max_bytes=first.size)
        path = Path(first.path)
        whole = path.read_bytes()
        assert whole.endswith(last.raw)
        path.write_bytes(whole[: -len(last.raw)] + with_field(last.raw, "base_offset", first.next_offset + 5))

        with pytest.raises(CorruptBatch, match=f"ends with offset {first.next_offset + 5}") as caught:
            _read(log.path, pin, 0, first.next_offset)

    assert caught.value.path == str(path)


LONG = replace(CONFIG, segment_bytes=30_000, index_interval_bytes=1 << 20)


def test_seek_overtaken_by_compaction_walks_the_new_file(tmp_path: Path) -> None:
    """Goal: even if the offset is more than one read away, with no index entry between."""
    with Log(tmp_path / "log", config=LONG, files=QuickFiles()) as log:
        _append(log, 0, 100)
        for number in range(100, 800):
            log.append(b"x", key=b"own-%d" % number)
        log.flush()
        assert log.segment_count > 1
        end = log._source.view.segments[0].next_offset
        pin = make_pin(log._source.view, 0, end)
        assert log.compact().removed_records > 0

        found = reading.seek(pinned_view(OsFiles(), str(log.path), pin), end - 5)

        assert found.position == log.seek(end - 5).position
        assert found.position > reading.POINT_READ

        # Damage in the new file is reported with its position; without pages, which would report it first.
        path = Path(log._source.view.segments[0].path)
        seal = read_seal(QuickFiles(), str(log.path), 0)
        assert seal is not None
        write_seal(QuickFiles(), str(log.path), replace(seal, pages=None))
        second = next(batch.header.size for batch in log.read_batches(0))
        data = bytearray(path.read_bytes())
        data[second + 16] = 9  # the magic
        path.write_bytes(data)
        with pytest.raises(CorruptBatch) as caught:
            reading.seek(pinned_view(OsFiles(), str(log.path), pin), end - 5)
        assert (caught.value.path, caught.value.position) == (str(path), second)


def test_reader_overtaken_by_compaction_continues_without_a_seal(tmp_path: Path) -> None:
    """Goal: a full disk delays sealing, and a seal may be lost: the records are read all the same."""
    with Log(tmp_path / "log", config=LONG, files=QuickFiles()) as log:
        _append(log, 0, 100)
        for number in range(100, 1500):
            log.append(b"x", key=b"own-%d" % number)
        log.flush()
        pin = make_pin(log._source.view, 0, log.log_end_offset)
        assert log.compact().removed_records > 0
        first, second, *_, _ = log._source.view.segments
        Path(second.path).with_suffix(".seal").unlink()

        found = reading.scan_chunks(pinned_view(OsFiles(), str(log.path), pin), 0, log.log_end_offset, limit=1 << 20)

        assert [record.offset for chunk in found for record in chunk] == [record.offset for record in log.scan()]
        assert first.next_offset < second.next_offset
