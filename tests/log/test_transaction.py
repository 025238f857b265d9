"""An interrupted part of a transaction: batches missing in the log are appended, once, and nothing else."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Literal

import pytest

from log.workbench import START_MS, QuickFiles, fill, open_log, value_of, values
from record.batches import Row, Sketch
from seeklog import Log
from seeklog.errors import CorruptionError, LostRecords
from seeklog.log.check.repair_work import repair
from seeklog.log.staging import Stager
from seeklog.log.transaction import Part, Transaction, decode_transaction, encode_transaction, finish_part
from seeklog.names import app_key
from seeklog.record.framed import encode_framed

FILES = 2


def batch(number: int) -> bytes:
    return Sketch([Row(value_of(number))]).encode()


def staged_part(path: Path, *, base_offset: int) -> Part:
    """Stage two files of two batches each."""
    files = []
    for file in range(FILES):
        stager = Stager(QuickFiles(), str(path), key=app_key("app"), now_ms=START_MS)
        for number in (2 * file, 2 * file + 1):
            stager.add(batch(base_offset + number), record_count=1)
        files.append(stager.finish())
    return Part(partition="orders-0", topic_id="id", base_offset=base_offset, files=tuple(files))


def finish(log: Log, part: Part, *, staged: list[str] | None = None) -> None:
    finish_part(log._partition, part, staged=[file.name for file in part.files] if staged is None else staged)


def staged_names(path: Path, part: Part) -> list[str]:
    return [file.name for file in part.files if (path / file.name).exists()]


@pytest.mark.parametrize("applied", range(5))
@pytest.mark.parametrize("others", [0, 1])
def test_missing_batches_are_appended_whatever_was_appended_before(tmp_path: Path, applied: int, others: int) -> None:
    """Goal: even if a writer without the transaction appended in between."""
    with open_log(tmp_path) as log:
        fill(log, 3)
        part = staged_part(tmp_path, base_offset=3)
        for number in range(applied):
            log.append_batches(batch(3 + number))
        for _ in range(others):
            log.append(b"other")
        finish(log, part)

        found = [value for value in values(log.scan()) if value != b"other"]
        assert found == [value_of(number) for number in range(7)]
        assert staged_names(tmp_path, part) == []


@pytest.mark.id("transaction-after-repair")
@pytest.mark.parametrize("left", [left for count in range(5) for left in itertools.combinations(range(4), count)])
@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
def test_only_batches_removed_by_a_repair_are_appended_again(
    tmp_path: Path, left: tuple[int, ...], stamped: Literal["CreateTime", "LogAppendTime"]
) -> None:
    """Goal: any of the appended batches may have been damaged since; none of the others is appended twice."""
    with open_log(tmp_path, message_timestamp_type=stamped) as log:
        fill(log, 3)
        part = staged_part(tmp_path, base_offset=3)
        for number in left:
            log.append_batches(batch(3 + number))
        finish(log, part)

        gone = [number for number in range(4) if number not in left]
        assert values(log.scan()) == [value_of(number) for number in (0, 1, 2, *(3 + each for each in (*left, *gone)))]
        assert staged_names(tmp_path, part) == []


@pytest.mark.parametrize("applied", range(5))
def test_identical_batches_are_counted(tmp_path: Path, applied: int) -> None:
    with open_log(tmp_path) as log:
        stager = Stager(QuickFiles(), str(tmp_path), key=app_key("app"), now_ms=START_MS)
        for _ in range(4):
            stager.add(batch(0), record_count=1)
        part = Part(partition="orders-0", topic_id="id", base_offset=0, files=(stager.finish(),))
        for _ in range(applied):
            log.append_batches(batch(0))
        finish(log, part)

        assert values(log.scan()) == [value_of(0)] * 4


def test_part_is_finished_after_an_end_that_a_repair_gave_up(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with open_log(path) as log:
        for number in range(4):
            log.append_batches(batch(number))
    (file,) = path.glob("*.log")
    file.write_bytes(file.read_bytes()[: len(batch(0)) + 1])
    assert repair(path).roll_at == 4

    with open_log(path) as log:
        finish(log, staged_part(path, base_offset=0))
        assert [record.offset for record in log.scan()] == [0, 4, 5, 6]
        assert values(log.scan()) == [value_of(number) for number in range(4)]


def test_part_without_files_is_complete(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        finish(log, staged_part(tmp_path, base_offset=0), staged=[])
        assert log.log_end_offset == 0


def test_part_with_a_removed_file_is_complete(tmp_path: Path) -> None:
    """Goal: files are removed only when all of them are durable in the log: nothing is appended twice."""
    with open_log(tmp_path) as log:
        part = staged_part(tmp_path, base_offset=0)
        fill(log, 4)
        (tmp_path / part.files[0].name).unlink()
        finish(log, part, staged=[part.files[1].name])
        assert log.log_end_offset == 4
        assert staged_names(tmp_path, part) == []


def test_log_that_ends_before_the_part_has_lost_records(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 2)
        part = staged_part(tmp_path, base_offset=3)
        with pytest.raises(LostRecords, match="the log ends at offset 2, but a transaction continues at 3"):
            finish(log, part)
        assert log.log_end_offset == 2
        assert len(staged_names(tmp_path, part)) == FILES


@pytest.mark.parametrize("is_kept", [True, False])
def test_transaction_round_trips(tmp_path: Path, is_kept: bool) -> None:
    transaction = Transaction("app", 7, "committing", (staged_part(tmp_path, base_offset=3),), is_kept)

    assert decode_transaction(encode_transaction(transaction), path="here") == transaction


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        '{"app": "a", "version": 1, "state": "begun", "parts": [], "kept": true}',
        '{"app": "a", "version": 1, "state": "done", "parts": [], "kept": 1}',
        '{"app": "a", "version": "1", "state": "done", "parts": [], "kept": true}',
        '{"app": 5, "version": 1, "state": "done", "parts": [], "kept": true}',
        '{"app": "a", "version": 1, "state": "done", "parts": [{}], "kept": true}',
        (
            '{"app": "a", "version": 1, "state": "done", "kept": true, "parts": '
            '[{"partition": "../x-0", "topic_id": "t", "base_offset": 0, "files": []}]}'
        ),
        (
            '{"app": "a", "version": 1, "state": "done", "kept": true, "parts": '
            '[{"partition": "x-0", "topic_id": "t", "base_offset": 0, "files": [["../name", 1, 1, 1, [1]]]}]}'
        ),
    ],
)
def test_line_that_no_writer_produces_is_refused(line: str) -> None:
    with pytest.raises(CorruptionError, match="the transaction does not parse"):
        decode_transaction(encode_framed("seeklog-transaction 1", [line]), path="here")


@pytest.mark.parametrize("ends", [[], [5], [10, 5], [0, 10], [5, 5, 10], [-1, 10], ["10"]])
def test_pieces_that_do_not_add_up_to_their_file_are_refused(tmp_path: Path, ends: list[object]) -> None:
    name = staged_part(tmp_path, base_offset=0).files[0].name
    line = (
        '{"app": "a", "version": 1, "state": "done", "kept": true, "parts": [{"partition": "x-0", "topic_id": "t", '
        f'"base_offset": 0, "files": [["{name}", 10, 1, 1, {str(ends).replace(chr(39), chr(34))}]]}}]}}'
    )
    with pytest.raises(CorruptionError, match="the transaction does not parse"):
        decode_transaction(encode_framed("seeklog-transaction 1", [line]), path="here")
