"""What a scan knows of a segment's batches around damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.workbench import BATCH_BYTES, make_log
from seeklog import LogConfig
from seeklog.errors import CorruptBatch
from seeklog.files import OsFiles
from seeklog.log.check.salvage import Salvage
from seeklog.log.segment import Segment, Shared, check_fits

NEVER = 2**63 - 1


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    """Ten batches of one record, not damaged yet."""
    make_log(tmp_path / "log", 10)
    shared = Shared(OsFiles(), str(tmp_path / "log"), LogConfig(), writable=False)
    return Segment(shared, 0, size=10 * BATCH_BYTES, next_offset=10, seal=None)


@pytest.mark.parametrize("harmed", [0, 3, 8, 9])
def test_only_the_damaged_range_counts_as_unread(segment: Segment, harmed: int) -> None:
    data = bytearray(Path(segment.path).read_bytes())
    data[(harmed + 1) * BATCH_BYTES - 5] ^= 1
    Path(segment.path).write_bytes(data)

    salvage = Salvage(segment, NEVER, segment.shared.new_state, end_offset=10)

    begin, end = harmed * BATCH_BYTES, (harmed + 1) * BATCH_BYTES
    assert [damage.start for damage in salvage.damages] == [begin]
    for position in range(10 * BATCH_BYTES):
        assert salvage.has_read(position) == (not begin <= position < end)
    assert [offset for offset in range(10) if not salvage.has_read_offset(offset)] == [harmed]


@pytest.mark.parametrize("position", [0, 1, BATCH_BYTES, 9 * BATCH_BYTES, 10 * BATCH_BYTES - 20])
def test_batch_fits_if_it_ends_exactly_with_its_segment(segment: Segment, position: int) -> None:
    left = segment.size - position

    def claim(size: int) -> bytes:
        return bytes(8) + (size - 12).to_bytes(4, "big", signed=True) + bytes(8)

    assert check_fits(claim(left), position=position, segment=segment) == left
    for more in (1, 100, 2**30):
        with pytest.raises(
            CorruptBatch, match=f"claims {left + more:,} bytes, the segment ends after {left}"
        ) as caught:
            check_fits(claim(left + more), position=position, segment=segment)
        assert caught.value.position == position
    with pytest.raises(CorruptBatch, match="11 bytes where a batch should be"):
        check_fits(bytes(11), position=position, segment=segment)
