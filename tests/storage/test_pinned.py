"""Pinned parts of a log, read after compaction has replaced their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from seeklog import Log, LogConfig, Record
from seeklog.files import OsFiles
from seeklog.storage import reading
from seeklog.storage.pinned import make_pin, pinned_view

KEYS = 7
CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1500, index_interval_bytes=200, flush="os")


def _append(log: Log, first: int, count: int) -> None:
    for number in range(first, first + count):
        log.append_many([Record(b"%d" % number, key=b"key-%d" % (number % KEYS))])


def _keys(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


@pytest.mark.parametrize("start", [0, 20, 55])
def test_a_pin_that_compaction_overtakes_still_gives_the_newest_record_of_every_key(tmp_path: Path, start: int) -> None:
    with Log(tmp_path / "log", config=CONFIG) as log:
        _append(log, 0, 60)
        end = log.log_end_offset
        pin = make_pin(log.view, start, end)
        assert not pin.segments[-1].is_final
        before = _keys(list(log.scan(start)))
        # None of the keys that were pinned comes again, so nothing newer takes their place.
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
