"""Leader epochs that were changed on disk: told only where the CRC of the whole file proves what they were."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from log.workbench import BATCH_BYTES, make_log, open_reader
from seeklog.log.check import unprotected
from seeklog.log.check.unprotected import EPOCH_AT, ChangedEpoch, changed_epochs
from seeklog.log.segment import Segment
from seeklog.record.crc import crc32c

BATCHES = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_log(tmp_path, BATCHES)
    return tmp_path / f"{0:020d}.log"


def segment_of(path: Path) -> Segment:
    with open_reader(path.parent) as log:
        return log._source.view.segments[0]


def change(path: Path, number: int, epoch: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, number * BATCH_BYTES + EPOCH_AT, epoch)
    path.write_bytes(data)


@pytest.mark.parametrize("number", range(BATCHES))
@pytest.mark.parametrize(("epoch", "byte"), [(1, 3), (1 << 24, 0), (-1, 0)])
def test_a_changed_epoch_is_found_in_any_batch_to_the_byte(path: Path, number: int, epoch: int, byte: int) -> None:
    crc = crc32c(path.read_bytes())
    segment = segment_of(path)
    change(path, number, epoch)

    (found,) = changed_epochs(segment, crc=crc)
    assert found == ChangedEpoch(number * BATCH_BYTES, epoch, 0)
    assert found.position == number * BATCH_BYTES + EPOCH_AT + byte


@pytest.mark.parametrize("chunk", [13, 14, 15, 100])
def test_an_epoch_across_the_edge_of_what_is_read_at_once_is_put_right_whole(
    path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    crc = crc32c(path.read_bytes())
    segment = segment_of(path)
    change(path, 0, 0x01020304)
    change(path, 3, 0x01020304)
    monkeypatch.setattr(unprotected, "SCAN_CHUNK", chunk)

    assert [found.batch_position for found in changed_epochs(segment, crc=crc)] == [0, 3 * BATCH_BYTES]


def test_a_guess_that_the_crc_does_not_prove_is_none(path: Path) -> None:
    crc = crc32c(path.read_bytes())
    segment = segment_of(path)
    change(path, 2, 1)

    assert changed_epochs(segment, crc=crc ^ 1) == []


def test_epochs_that_lie_like_their_neighbours_are_none(path: Path) -> None:
    segment = segment_of(path)

    assert changed_epochs(segment, crc=1) == []


def test_a_file_whose_headers_are_damaged_tells_nothing(path: Path) -> None:
    crc = crc32c(path.read_bytes())
    segment = segment_of(path)
    change(path, 2, 1)
    data = bytearray(path.read_bytes())
    data[3 * BATCH_BYTES + 16] = 9
    path.write_bytes(data)

    assert changed_epochs(segment, crc=crc) == []
