"""Counting the records of a range by the headers of its batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from record.batches import LIMIT, Row, Sketch
from seeklog.storage.headers import take_census
from storage.workbench import open_log


@pytest.mark.parametrize("held", [(0, 1, 2, 3, 4), (0, 1, 3, 4), (0, 4), (0, 2, 4), (1, 2, 3, 4)])
def test_every_range_of_a_batch_has_the_records_that_lie_in_it(tmp_path: Path, held: tuple[int, ...]) -> None:
    """Goal: also where compaction has left holes, one or many, so that the offsets do not tell how many there are."""
    raw = Sketch(tuple(Row(delta=delta) for delta in held)).encode()
    with open_log(tmp_path / "log") as log:
        log.append_batches(raw)
        segment = log._partition.view.segments[0]
        for start in range(5):
            for stop in range(start + 1, 7):
                census = take_census(segment, start, stop, limit=LIMIT)
                assert (census.batch_count, census.record_count) == (1, sum(start <= offset < stop for offset in held))
