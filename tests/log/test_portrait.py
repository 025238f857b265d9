"""The portrait of a partition, from its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.workbench import (
    BATCH_BYTES,
    Meanwhile,
    QuickFiles,
    config_of,
    contents,
    crashed_copy,
    fill,
    make_log,
    offset_entries,
    open_log,
)
from seeklog import names
from seeklog.log.check.portrait import take_portrait

SETTINGS = {"segment_bytes": 5 * BATCH_BYTES, "index_interval_bytes": 100}
CONFIG = config_of(**SETTINGS)


@pytest.mark.parametrize("is_checked", [True, False])
def test_portrait_shows_segments_points_and_offsets_without_changes(tmp_path: Path, is_checked: bool) -> None:
    make_log(tmp_path, 12, **SETTINGS)
    (tmp_path / f"{5:020d}.index").unlink()
    before = contents(tmp_path)

    portrait = take_portrait(str(tmp_path), config=CONFIG, files=QuickFiles(), is_checked=is_checked)

    assert [(one.base_offset, one.next_offset, one.is_active) for one in portrait.segments] == [
        (0, 5, False),
        (5, 10, False),
        (10, 12, True),
    ]
    assert [one.record_count for one in portrait.segments] == [5, 5, 2]
    # Without its index a segment has no points; a reader rebuilds it.
    assert [one.index_points for one in portrait.segments] == [tuple(offset_entries(tmp_path)), (), ()]
    assert portrait.size_bytes == 12 * BATCH_BYTES
    assert (portrait.log_start_offset, portrait.high_watermark, portrait.log_end_offset) == (0, 12, 12)
    assert (portrait.problem, portrait.is_ours, portrait.torn_files) == ("", True, {})
    assert bool(portrait.findings) == is_checked
    assert contents(tmp_path) == before


def test_portrait_lists_bytes_that_recovery_cut(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", **SETTINGS) as log:
        fill(log, 8)
        path = crashed_copy(tmp_path / "log", tmp_path / "crashed")
    last = path / f"{5:020d}.log"
    last.write_bytes(last.read_bytes()[:-1])
    with open_log(path, **SETTINGS) as log:
        assert log.recovery.cut_bytes == BATCH_BYTES - 1

    portrait = take_portrait(str(path), config=CONFIG, files=QuickFiles())

    assert portrait.torn_files == {f"{5:020d}.{2 * BATCH_BYTES}{names.TORN}": BATCH_BYTES - 1}


def test_portrait_of_a_log_being_created_has_an_end_but_no_segments(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    files = Meanwhile()
    files.after("list", "log", lambda: files.after("list", "log", lambda: make_log(path, 3)))

    portrait = take_portrait(str(path), config=CONFIG, files=files)

    assert files.is_over
    assert (portrait.segments, portrait.log_end_offset, portrait.problem) == ((), 3, "")
