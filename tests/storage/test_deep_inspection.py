"""Reading the whole batches of a segment chunk by chunk."""

from __future__ import annotations

from pathlib import Path

import pytest

from seeklog import Record
from seeklog.record.batch import encode_batch
from seeklog.storage.deep_inspection import read_batches
from seeklog.storage.segment import SCAN_CHUNK
from storage.workbench import open_log

# Around a value of that many bytes in a batch of its own: the header, and the record's other fields.
AROUND_LARGE_VALUE = 61 + 3 + 1 + 1 + 1 + 1 + 3 + 1


@pytest.mark.parametrize("ahead", [1, 11, 60, 61, 62, 100, 200])
def test_a_batch_that_begins_before_the_end_of_a_chunk_is_read_whole(tmp_path: Path, ahead: int) -> None:
    """Goal: a header, or a body, that a chunk holds only part of is read with the next one."""
    first = encode_batch([Record(bytes(SCAN_CHUNK - ahead - AROUND_LARGE_VALUE))])
    assert len(first) == SCAN_CHUNK - ahead
    with open_log(tmp_path / "log", max_message_bytes=1 << 20, segment_bytes=4 << 20) as log:
        log.append_batches(first)
        log.append_many([Record(bytes(30)) for _ in range(3)])
        log.append(b"last")
        segment = log._partition.view.segments[0]

        batches = list(read_batches(segment, 0, segment.size))

        assert [batch.base_offset for _, batch in batches] == [0, 1, 4]
        assert b"".join(batch.raw for _, batch in batches) == segment.read(segment.size, 0)
        assert [position for position, _ in batches] == [0, len(first), segment.size - len(batches[2][1].raw)]
