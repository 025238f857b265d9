"""The parts of an inspection that are off by default: every record of every whole batch, and the side files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from log.workbench import Meanwhile, QuickFiles, config_of, open_log
from record.batches import batch_of, varint
from seeklog import ProducerSequence, Record
from seeklog.log.check.finding import Kind, Severity
from seeklog.log.check.inspection import Plan, inspect_records, inspect_segment, inspect_snapshots, plan_inspection
from seeklog.log.check.salvage import read_batches
from seeklog.log.segment import SCAN_CHUNK
from seeklog.record.batch import encode_batch

# A record with a value of this many bytes, alone in a batch, adds this much: the header and the record's other fields.
AROUND_LARGE_VALUE = 61 + 3 + 1 + 1 + 1 + 1 + 3 + 1


@pytest.mark.parametrize("ahead", [1, 11, 60, 61, 62, 100, 200])
def test_batch_crossing_end_of_chunk_is_read_whole(tmp_path: Path, ahead: int) -> None:
    """Goal: if a chunk contains only part of a header or a body, the rest is read with the next chunk."""
    first = encode_batch([Record(bytes(SCAN_CHUNK - ahead - AROUND_LARGE_VALUE))])
    assert len(first) == SCAN_CHUNK - ahead
    with open_log(tmp_path / "log", max_message_bytes=1 << 20, segment_bytes=4 << 20) as log:
        log.append_batches(first)
        log.append_many([Record(bytes(30)) for _ in range(3)])
        log.append(b"last")
        segment = log._source.view.segments[0]

        batches = list(read_batches(segment, 0, segment.size))

        assert [batch.base_offset for _, batch in batches] == [0, 1, 4]
        assert b"".join(batch.raw for _, batch in batches) == segment.read(segment.size, 0)
        assert [position for position, _ in batches] == [0, len(first), segment.size - len(batches[2][1].raw)]


def plan(directory: Path, files: QuickFiles | None = None) -> Plan:
    return plan_inspection(str(directory), config=config_of(), files=files or QuickFiles())


def test_invalid_batch_is_reported_and_its_neighbours_are_read(tmp_path: Path) -> None:
    """Its CRC is correct, so only a check of the records finds it."""
    with open_log(tmp_path) as log:
        log.append(b"before")
        log.append_batches(batch_of(varint(100) + b"a record that is shorter"))
        log.append(b"behind")
        second = log.seek(1).position
    (task,) = plan(tmp_path).tasks
    assert inspect_segment(task, files=QuickFiles()).findings == []
    sizes: list[int] = []

    for findings in (
        inspect_records(task, files=QuickFiles()),
        inspect_records(task, files=QuickFiles(), advance=sizes.append),
    ):
        assert [(finding.kind, finding.severity, finding.position, finding.offset) for finding in findings] == [
            (Kind.RECORDS, Severity.ERROR, second, 1)
        ]
    assert (len(sizes), sum(sizes)) == (3, task.size)


def test_file_removed_after_listing_is_not_reported(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        log.append_many([Record(b"v")], producer=ProducerSequence(producer_id=1, epoch=0, sequence=0))
    listed = plan(tmp_path / "log")
    (snapshot,) = (tmp_path / "log").glob("*.snapshot")
    snapshot.write_bytes(b"no snapshot")
    assert [finding.kind for finding in inspect_snapshots(listed, files=QuickFiles())] == [Kind.SNAPSHOT]

    files = Meanwhile()
    files.after("list", "log", snapshot.unlink)
    assert inspect_snapshots(listed, files=files) == []
    assert files.is_over
    shutil.rmtree(tmp_path / "log")
    assert inspect_snapshots(listed, files=files) == []
    assert inspect_records(listed.tasks[0], files=files) == []
