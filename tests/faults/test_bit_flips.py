"""Every single bit of a small log, flipped: an error or the same answers, never silence."""

from __future__ import annotations

import posixpath
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from crash.recorder import START_MS
from faults.disks import ask_disk, files_with, fill_three_segments, make_disk, make_unclean_disk
from seeklog import LogConfig, Record, names
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crash.recorder import FakeClock
    from crash.sim import Disk
    from faults.disks import Answers
    from seeklog import Log

INDEXES = (names.OFFSET_INDEX, names.TIME_INDEX)
OURS = (names.LOG, *INDEXES, names.SEAL, names.CHECKPOINT, names.WATERMARK)
# Coprime to 8, so that every bit of a byte is met; at this step both short runs take some ten seconds.
SHORT_STEP = 7


def fill_with_a_raised_start(log: Log, clock: FakeClock) -> None:
    log.begin_epoch(2)
    fill_three_segments(log, clock)
    log.delete_before(1)


def flips(disk: Disk, *, step: int, only: tuple[str, ...]) -> Iterator[tuple[str, int, Disk]]:
    """Yield each `step`th bit of the files that end so: path, bit, and the disk with it flipped."""
    number = 0
    for path in files_with(disk, *only):
        content = disk.files[path]
        for bit in range(len(content) * 8):
            number += 1
            if number % step == 0:
                flipped = bytearray(content)
                flipped[bit // 8] ^= 1 << bit % 8
                yield path, bit, disk.with_file(path, bytes(flipped))


def classify(disk: Disk, expected: Answers, *, read_only: bool) -> str:
    try:
        found = ask_disk(disk, read_only=read_only, expected=expected)
    except SeeklogError:
        return "error"
    return "same" if found == expected else "SILENT"


def run(disk: Disk, *, read_only: bool, step: int, only: tuple[str, ...] = ()) -> tuple[Counter[str], list[str]]:
    expected = ask_disk(disk, read_only=read_only)
    counts: Counter[str] = Counter()
    silent = []
    for path, bit, flipped in flips(disk, step=step, only=only):
        verdict = classify(flipped, expected, read_only=read_only)
        kind = posixpath.splitext(path)[1] or posixpath.basename(path)
        counts[f"{kind} {verdict}"] += 1
        if verdict == "SILENT":
            silent.append(f"{posixpath.basename(path)}, byte {bit // 8}, bit {bit % 8}")
    print(dict(sorted(counts.items())))
    return counts, silent


@pytest.mark.parametrize("read_only", [True, False])
def test_no_single_bit_flip_is_silent(read_only: bool) -> None:
    disk = make_disk(fill_with_a_raised_start)
    assert len(files_with(disk, names.LOG)) >= 3

    counts, silent = run(disk, read_only=read_only, step=SHORT_STEP, only=OURS)

    assert silent == []
    assert counts[".log error"] > 0


@pytest.mark.parametrize("read_only", [True, False])
def test_no_single_bit_flip_below_the_recovery_point_of_an_open_log_is_silent(read_only: bool) -> None:
    """Goal: without the marker of a clean close the last segment is walked; damage is no end of the log."""
    disk = make_unclean_disk(lambda log, clock: None, start=make_disk(fill_with_a_raised_start))

    counts, silent = run(disk, read_only=read_only, step=SHORT_STEP, only=OURS)

    assert silent == []
    assert counts[".log error"] > 0


@pytest.mark.parametrize("read_only", [True, False])
def test_no_single_bit_flip_of_the_leader_epochs_is_silent(read_only: bool) -> None:
    """Goal: Kafka's file has no checksum, but the batches carry their epochs and our checkpoint has one."""
    disk = make_disk(fill_with_a_raised_start)

    _, silent = run(disk, read_only=read_only, step=1, only=(names.LEADER_EPOCHS,))

    assert silent == []


@pytest.mark.parametrize("read_only", [True, False])
def test_no_single_bit_flip_of_an_index_is_ever_noticed_by_a_caller(read_only: bool) -> None:
    """Goal: an index is advice. Its damage is neither an error nor another answer."""
    disk = make_disk(fill_with_a_raised_start)

    counts, silent = run(disk, read_only=read_only, step=1, only=INDEXES)

    assert silent == []
    assert {kind.split()[1] for kind in counts} == {"same"}


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("read_only", [True, False])
def test_no_bit_of_a_larger_log_flips_in_silence(read_only: bool, codec: str) -> None:
    """Goal: reliability target 3, every bit, over 200,000 flips in all."""
    config = LogConfig.from_mapping(
        {"flush": "os", "segment_bytes": 1600, "index_interval_bytes": 50, "compression_type": codec}
    )

    def fill(log: Log, clock: FakeClock) -> None:
        for number in range(24):
            log.append_many(
                [Record(f"{number} {index}".encode() * 8, timestamp_ms=START_MS + number) for index in range(4)]
            )

    disk = make_disk(fill, config=config)

    _, silent = run(disk, read_only=read_only, step=1, only=OURS)

    assert silent == []
