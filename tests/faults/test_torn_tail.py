"""Files that end too early: every byte prefix of the last batch, of the indexes, of the checkpoint."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from crash.recorder import START_MS, Content, read_everything
from crash.sim import SimFiles
from faults.disks import (
    CONFIG,
    ask,
    ask_disk,
    evidence,
    files_with,
    fill_three_segments,
    in_log,
    make_disk,
    make_unclean_disk,
    open_on,
)
from seeklog import LogConfig, Record, names
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from crash.recorder import FakeClock
    from crash.sim import Disk
    from seeklog import Log

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ONE_SEGMENT = in_log(names.segment_name(0, names.LOG))
WHOLE_RECORDS = 4  # two batches of two, durable before the last batch is written


def records_of(count: int) -> list[Record]:
    return [
        Record(f"value {number} of {count}".encode(), key=b"key", timestamp_ms=START_MS + number)
        for number in range(count)
    ]


@functools.cache
def log_with_a_last_batch(codec: str, count: int) -> tuple[Disk, int]:
    """Return a log whose last batch was never synced, and where that batch starts."""
    config = LogConfig.from_mapping({"flush": "os", "compression_type": codec, "retention_ms": -1})

    def two_batches(log: Log, _: FakeClock) -> None:
        log.append_many(records_of(2))
        log.append_many(records_of(2))

    whole = make_disk(two_batches, config=config)
    torn = make_unclean_disk(lambda log, _: log.append_many(records_of(count)), config=config, start=whole)
    return torn, len(whole.files[ONE_SEGMENT])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 100])
def test_a_torn_last_batch_is_cut_whole_at_every_byte(codec: str, count: int) -> None:
    """Goal: no prefix of the last batch survives as a record, none hides an earlier one, none is lost."""
    disk, whole_size = log_with_a_last_batch(codec, count)
    log_bytes = disk.files[ONE_SEGMENT]
    expected = [Content.of(record) for record in records_of(2) * 2]

    for cut in range(len(log_bytes) - whole_size):
        sim = SimFiles(disk.with_file(ONE_SEGMENT, log_bytes[: whole_size + cut]))
        with open_on(sim, config=CONFIG) as log:
            assert log.log_end_offset == WHOLE_RECORDS, cut
            assert [Content.of(record) for record in read_everything(log)] == expected, cut
        after = sim.disk()
        assert after.files[ONE_SEGMENT] == log_bytes[:whole_size], cut
        kept = {names.torn_name(0, whole_size): log_bytes[whole_size : whole_size + cut]} if cut else {}
        assert evidence(after) == kept, cut
    print(f"{codec}, {count} records: {len(log_bytes) - whole_size} prefixes")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 100])
def test_a_whole_last_batch_is_kept_and_nothing_is_set_aside(codec: str, count: int) -> None:
    disk, _ = log_with_a_last_batch(codec, count)
    sim = SimFiles(disk)

    with open_on(sim) as log:
        assert log.log_end_offset == WHOLE_RECORDS + count
        assert len(list(read_everything(log))) == WHOLE_RECORDS + count

    assert sim.disk().files[ONE_SEGMENT] == disk.files[ONE_SEGMENT]
    assert evidence(sim.disk()) == {}


@pytest.mark.parametrize("tail", [b"\0", bytes(61), bytes(4096), b"\xa5" * 100], ids=len)
def test_zeros_or_garbage_behind_the_last_batch_are_cut_and_kept(tail: bytes) -> None:
    disk, _ = log_with_a_last_batch("none", 1)
    log_bytes = disk.files[ONE_SEGMENT]
    sim = SimFiles(disk.with_file(ONE_SEGMENT, log_bytes + tail))

    with open_on(sim) as log:
        assert log.log_end_offset == WHOLE_RECORDS + 1

    assert sim.disk().files[ONE_SEGMENT] == log_bytes
    assert evidence(sim.disk()) == {names.torn_name(0, len(log_bytes)): tail}


@pytest.mark.parametrize("tail", [b"\0", bytes(61), bytes(4096), b"\xa5" * 100], ids=len)
def test_a_reader_stops_before_zeros_or_garbage_and_changes_nothing(tail: bytes) -> None:
    disk, _ = log_with_a_last_batch("none", 1)
    sim = SimFiles(disk.with_file(ONE_SEGMENT, disk.files[ONE_SEGMENT] + tail))

    with open_on(sim, read_only=True) as log:
        assert log.log_end_offset == WHOLE_RECORDS + 1
        assert len(list(log.scan())) == WHOLE_RECORDS + 1

    assert not sim.pending


@pytest.mark.parametrize("count", [1, 100])
def test_a_reader_stops_before_a_torn_batch_and_changes_nothing(count: int) -> None:
    """Goal: for another process an incomplete tail is "not yet", never an error and never a record."""
    disk, whole_size = log_with_a_last_batch("none", count)
    log_bytes = disk.files[ONE_SEGMENT]
    expected = [Content.of(record) for record in records_of(2) * 2]

    for cut in range(len(log_bytes) - whole_size):
        sim = SimFiles(disk.with_file(ONE_SEGMENT, log_bytes[: whole_size + cut]))
        with open_on(sim, read_only=True) as log:
            assert [Content.of(record) for record in log.scan()] == expected, cut
        assert not sim.pending, cut


def test_a_second_cut_at_the_same_place_keeps_both_pieces() -> None:
    disk, whole_size = log_with_a_last_batch("none", 1)
    log_bytes = disk.files[ONE_SEGMENT]
    first, second = log_bytes[: whole_size + 30], log_bytes[: whole_size + 50]

    sim = SimFiles(disk.with_file(ONE_SEGMENT, first))
    with open_on(sim):
        pass
    sim = SimFiles(sim.disk().with_file(ONE_SEGMENT, second))
    # The clean close made the end the recovery point; the tail lies behind it, so it is cut, not refused.
    with open_on(sim) as log:
        assert log.log_end_offset == WHOLE_RECORDS

    assert sorted(evidence(sim.disk()).values(), key=len) == [first[whole_size:], second[whole_size:]]


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
@pytest.mark.parametrize("is_clean", [True, False])
def test_an_index_torn_at_any_byte_changes_no_answer(suffix: str, read_only: bool, is_clean: bool) -> None:
    disk = (make_disk if is_clean else make_unclean_disk)(fill_three_segments)
    expected = ask_disk(disk, read_only=read_only)
    assert len(expected.records) == 9

    for path in files_with(disk, suffix):
        for size in range(len(disk.files[path])):
            torn = disk.with_file(path, disk.files[path][:size])
            assert ask_disk(torn, read_only=read_only, expected=expected) == expected, (path, size)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", [names.CHECKPOINT, names.WATERMARK, names.LEADER_EPOCHS])
def test_a_checkpoint_torn_at_any_byte_is_an_error_or_changes_no_answer(name: str, read_only: bool) -> None:
    """Goal: what delete_before hid does not come back in silence, and no record is hidden."""

    def fill(log: Log, clock: FakeClock) -> None:
        log.begin_epoch(3)
        fill_three_segments(log, clock)
        log.delete_before(2)

    disk = make_disk(fill)
    expected = ask_disk(disk, read_only=read_only)
    content = disk.files.get(in_log(name))
    if content is None:
        pytest.skip(f"a closed log has no {name}")

    for size in range(len(content)):
        torn = disk.with_file(in_log(name), content[:size])
        try:
            found = ask_disk(torn, read_only=read_only, expected=expected)
        except SeeklogError:
            continue
        assert found == expected, size


def test_a_segment_cut_below_the_recovery_point_is_refused_and_left_alone() -> None:
    """Goal: a clean close promised every byte; a file that lost some is damage, not a torn tail."""
    disk = make_disk(fill_three_segments)

    for path in files_with(disk, names.LOG):
        content = disk.files[path]
        for size in range(len(content)):
            sim = SimFiles(disk.with_file(path, content[:size]))
            before = sim.disk()
            with pytest.raises(SeeklogError) as refusal, open_on(sim) as log:
                ask(log)
            assert path in str(refusal.value), (path, size)
            assert _without_side_files(sim.disk()) == _without_side_files(before), (path, size)


def _without_side_files(disk: Disk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files.items() if path.endswith((names.LOG, names.TORN))}
