"""Leader epochs: Kafka's file, and the end offset of each epoch."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from crash.faulty import FaultyFiles
from log.workbench import QuickFiles, crashed_copy, fill, open_log, open_reader
from seeklog import names
from seeklog.errors import LogFailed, UsageError
from seeklog.log.side.epochs import LeaderEpochs, decode_epochs, encode_epochs
from seeklog.record.batch import read_header

ENTRIES = [(0, 0), (2, 10), (5, 30)]


# ---------------------------------------------------------------- the file


def test_file_has_kafka_format() -> None:
    assert encode_epochs(ENTRIES) == b"0\n3\n0 0\n2 10\n5 30\n"
    assert encode_epochs([]) == b"0\n0\n"


@pytest.mark.parametrize("entries", [[], [(0, 0)], ENTRIES, [(1, 5), (2, 5)], [(2**31 - 1, 2**62)]])
def test_epochs_round_trip(entries: list[tuple[int, int]]) -> None:
    assert decode_epochs(encode_epochs(entries)) == entries


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"1\n1\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0\n1 5\n",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\nx 0\n",
        b"0\nx\n0 0\n",
        b"0\n2\n1 0\n1 5\n",
        b"0\n2\n2 0\n1 5\n",
        b"0\n2\n1 5\n2 4\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n0 -1\n",
        b"0\n1\n2147483648 0\n",
        b"0\n1\n0 9223372036854775808\n",
        b"\xff\xfe",
        bytes(100),
    ],
)
def test_invalid_file_gives_no_epochs(data: bytes, tmp_path: Path) -> None:
    (tmp_path / names.LEADER_EPOCHS).write_bytes(data)

    assert decode_epochs(data) is None
    assert LeaderEpochs.read(QuickFiles(), str(tmp_path)).entries == []


def test_directory_without_file_has_no_epochs(tmp_path: Path) -> None:
    epochs = LeaderEpochs.read(QuickFiles(), str(tmp_path))

    assert (epochs.entries, epochs.latest) == ([], -1)


def test_staged_epochs_replace_file_when_published(tmp_path: Path) -> None:
    epochs, files = LeaderEpochs(ENTRIES), QuickFiles()
    path = tmp_path / names.LEADER_EPOCHS

    assert not epochs.is_written
    epochs.stage(files, str(tmp_path))
    assert not path.exists()
    epochs.publish(files, str(tmp_path))
    assert epochs.is_written
    assert path.read_bytes() == encode_epochs(ENTRIES)
    epochs.begin(9, 50)
    assert not epochs.is_written


# ---------------------------------------------------------------- end offsets


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (0, 10)), (2, (2, 30)), (3, (2, 30)), (5, (5, 99)), (6, (5, 99))],
)
def test_epoch_ends_where_next_begins(epoch: int, expected: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset(epoch, log_end_offset=99) == expected


def test_end_offset_is_unknown_without_epochs() -> None:
    assert LeaderEpochs().end_offset(5, log_end_offset=99) == (-1, -1)


def test_epoch_without_records_is_replaced_by_next() -> None:
    epochs = LeaderEpochs(ENTRIES)

    epochs.begin(7, 30)

    assert epochs.entries == [(0, 0), (2, 10), (7, 30)]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (99, ENTRIES),
        (30, ENTRIES),
        (29, [(0, 0), (2, 10), (5, 29)]),
        (11, [(0, 0), (2, 10), (5, 11)]),
        (10, [(0, 0), (5, 10)]),
        (5, [(0, 0), (5, 5)]),
        (0, [(5, 0)]),
    ],
)
def test_truncation_keeps_newest_epoch(end: int, expected: list[tuple[int, int]]) -> None:
    """Its leader makes the next append."""
    epochs = LeaderEpochs(ENTRIES)

    epochs.truncate(end)

    assert epochs.entries == expected


def test_epochs_found_in_batches_are_added() -> None:
    epochs = LeaderEpochs(ENTRIES)

    epochs.merge([(2, 10), (5, 30), (6, 40), (8, 50)], log_start_offset=0, log_end_offset=60)

    assert epochs.entries == [*ENTRIES, (6, 40), (8, 50)]


@pytest.mark.parametrize(
    ("start", "expected"), [(0, ENTRIES), (5, [(0, 5), (2, 10), (5, 30)]), (10, ENTRIES[1:]), (40, [(5, 40)])]
)
def test_epochs_before_log_start_are_dropped(start: int, expected: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)

    epochs.merge([], log_start_offset=start, log_end_offset=60)

    assert epochs.entries == expected


# ---------------------------------------------------------------- in a log


def test_batches_are_stamped_with_current_epoch(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert log.leader_epoch == 0
        fill(log, 3)
        log.begin_epoch(4)
        fill(log, 2)
        log.append_batches(next(log.read_batches(0)).raw)

        assert log.leader_epoch == 4
        assert [read_header(batch.raw).leader_epoch for batch in log.read_batches(0)] == [0, 0, 0, 4, 4, 4]
        assert log.end_offset_for_epoch(0) == (0, 3)
        assert log.end_offset_for_epoch(4) == (4, 6)
    assert (tmp_path / names.LEADER_EPOCHS).read_bytes() == b"0\n2\n0 0\n4 3\n"


@pytest.mark.parametrize("epoch", [-1, 0, 4, 2**31])
def test_epoch_not_above_current_one_is_refused(tmp_path: Path, epoch: int) -> None:
    with open_log(tmp_path) as log:
        log.begin_epoch(4)
        with pytest.raises(UsageError, match="must be above"):
            log.begin_epoch(epoch)

        assert log.leader_epoch == 4


@pytest.mark.parametrize("is_clean", [True, False])
def test_epochs_survive_reopen_and_crash(tmp_path: Path, is_clean: bool) -> None:
    path = tmp_path / "log"
    with open_log(path) as log:
        fill(log, 3)
        log.begin_epoch(2)
        fill(log, 3)
        log.begin_epoch(7)
        if not is_clean:
            path = crashed_copy(path, tmp_path / "crashed")

    with open_log(path) as log:
        assert log.leader_epoch == 7
        assert [log.end_offset_for_epoch(epoch) for epoch in (0, 2, 7)] == [(0, 3), (2, 6), (7, 6)]


def test_truncation_removes_later_epochs_and_keeps_current_one(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 3)
        log.begin_epoch(2)
        fill(log, 3)
        log.begin_epoch(7)
        fill(log, 3)

        log.truncate_to(4)

        assert log.leader_epoch == 7
        assert [log.end_offset_for_epoch(epoch) for epoch in (0, 2, 7)] == [(0, 3), (2, 4), (7, 4)]
        log.append(b"next")
        assert [batch.header.leader_epoch for batch in log.read_batches(0)] == [0, 0, 0, 2, 7]


@pytest.mark.id("epochs-without-room")
def test_truncation_stops_if_disk_has_no_room_for_epochs(tmp_path: Path) -> None:
    """Otherwise new records would have another epoch than the one on disk for their offsets."""
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only="seeklog-checkpoint.tmp")
    with open_log(tmp_path, files=files) as log:
        fill(log, 3)
        log.begin_epoch(2)
        fill(log, 3)
        log.begin_epoch(7)
        fill(log, 3)
        files.fail_at = files.calls + 2  # the checkpoint before the cut is written, the one after it is not

        with pytest.raises(LogFailed):
            log.truncate_to(2)
        with pytest.raises(LogFailed):
            log.append(b"next")

    with open_log(tmp_path) as log:
        fill(log, 5)
        assert [log.end_offset_for_epoch(epoch) for epoch in (0, 2, 7)] == [(0, 2), (0, 2), (7, 7)]


def test_reader_knows_epochs(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 3)
        log.begin_epoch(2)
        fill(log, 1)
        with open_reader(tmp_path) as reader:
            assert reader.leader_epoch == 2
            assert reader.end_offset_for_epoch(0) == (0, 3)
