"""A log in a store: open files that many logs share, the source of records, and checkpoints in a broker's root."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interop.test_broker_directory import SEGMENT_BYTES, make_broker, rows_of
from log.workbench import (
    BATCH_BYTES,
    FakeClock,
    QuickFiles,
    config_of,
    contents,
    fill,
    make_log,
    offsets,
    open_log,
    open_reader,
    value_of,
    values,
)
from open_files import open_paths
from seeklog import Log, LogConfig, LogReader, TopicPartition, names
from seeklog.clock import SystemClock
from seeklog.config import INT64_MAX
from seeklog.errors import LostRecords, NotALog, UnsupportedMagic
from seeklog.log.background import Maintenance, Watch, WatchedLog
from seeklog.log.host import MAX_INDEX_BYTES, Host, OpenSegments
from seeklog.log.side.checkpoint import Checkpoint, read_checkpoint

SOURCE = TopicPartition("orders", 3)
# The log and its two indexes: Python's map of a file holds a descriptor, too.
FILES_OF_A_SEGMENT = 3


def host_of(
    *,
    open_segments: OpenSegments | None = None,
    inherited: Checkpoint | None = None,
    maintenance: Maintenance | None = None,
) -> Host:
    return Host(
        source=SOURCE,
        open_segments=open_segments or OpenSegments(8),
        inherited=lambda: inherited,
        maintenance=maintenance,
    )


def open_hosted(path: Path, host: Host, *, read_only: bool = False, background: bool = False, **settings: Any) -> Any:
    config, clock, files = config_of(**settings), FakeClock(), QuickFiles()
    if read_only:
        return LogReader(path, config=config, clock=clock, files=files, host=host)
    return Log(path, config=config, clock=clock, files=files, background=background, host=host)


# ---------------------------------------------------------------- shared files


class HeldSegment:
    """A segment that counts how often it was released."""

    def __init__(self, shared: object, *, index_bytes: int = 0) -> None:
        self.shared = shared
        self.index_bytes = index_bytes
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


def test_segment_opened_first_is_released_first() -> None:
    bound = OpenSegments(2)
    segments = [HeldSegment(None) for _ in range(4)]
    for segment in segments:
        bound.opened(segment)

    assert [segment.releases for segment in segments] == [1, 1, 0, 0]


def test_memory_for_indexes_of_open_segments_is_bounded() -> None:
    bound = OpenSegments(100)
    segments = [HeldSegment(None, index_bytes=MAX_INDEX_BYTES // 2) for _ in range(3)]
    for segment in segments:
        bound.opened(segment)
    assert [segment.releases for segment in segments] == [1, 0, 0]


def test_segment_whose_indexes_fill_memory_is_open_alone() -> None:
    bound = OpenSegments(100)
    small, large = HeldSegment(None, index_bytes=1), HeldSegment(None, index_bytes=2 * MAX_INDEX_BYTES)
    bound.opened(small)
    bound.opened(large)
    assert (small.releases, large.releases) == (1, 0)


def test_segment_with_two_open_files_counts_once() -> None:
    bound = OpenSegments(2)
    first, second = HeldSegment(None), HeldSegment(None)
    for segment in (first, second, first, second, first):
        bound.opened(segment)

    assert (first.releases, second.releases) == (0, 0)


def test_closing_log_releases_only_its_own_segments() -> None:
    bound = OpenSegments(9)
    mine, other = object(), object()
    segments = [HeldSegment(owner) for owner in (mine, other, mine)]
    for segment in segments:
        bound.opened(segment)
    bound.forget(mine)
    bound.forget(mine)

    assert [segment.releases for segment in segments] == [1, 0, 1]


def test_bound_keeps_no_segment_alive() -> None:
    bound = OpenSegments(1)
    gone, kept = HeldSegment(None), HeldSegment(None)
    bound.opened(gone)
    del gone
    bound.opened(kept)

    assert kept.releases == 0
    assert len(bound._open) == 1


def open_files(directory: Path) -> int:
    return sum(path.startswith(str(directory)) for path in open_paths())


@pytest.mark.parametrize("most", [1, 2, 5])
def test_logs_with_shared_bound_keep_that_many_segments_open(tmp_path: Path, most: int) -> None:
    """Each of four logs has six segments. All are read in turn, from both ends."""
    paths = [tmp_path / f"orders-{number}" for number in range(4)]
    for path in paths:
        make_log(path, 6, segment_bytes=BATCH_BYTES)
    shared = OpenSegments(most)
    logs = [open_hosted(path, host_of(open_segments=shared), read_only=True) for path in paths]
    gc.collect()
    for _ in range(2):
        for log in logs:
            assert values(log.scan()) == list(map(value_of, range(6)))
            assert offsets(log.scan_reverse()) == list(range(5, -1, -1))
            for offset in range(6):
                assert next(log.read(offset, max_records=1)).offset == offset
            assert len(shared._open) <= most
            assert open_files(tmp_path) <= FILES_OF_A_SEGMENT * most
    for log in logs:
        log.close()
    assert open_files(tmp_path) == 0
    assert not shared._open


def test_running_scan_survives_release_of_its_files(tmp_path: Path) -> None:
    for number in range(2):
        make_log(tmp_path / f"{number}", 6, segment_bytes=2 * BATCH_BYTES)
    shared = OpenSegments(1)
    first, second = (open_hosted(tmp_path / f"{n}", host_of(open_segments=shared), read_only=True) for n in range(2))
    scan = first.scan()
    seen = []
    for record in scan:
        seen.append(record.offset)
        assert offsets(second.scan()) == list(range(6))

    assert seen == list(range(6))


def test_lone_log_has_its_own_bound(tmp_path: Path) -> None:
    make_log(tmp_path, 6, segment_bytes=BATCH_BYTES)
    with open_reader(tmp_path, max_open_segments=2) as log:
        assert len(list(log.scan())) == 6
        assert open_files(tmp_path) <= FILES_OF_A_SEGMENT * 2


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("read_only", [False, True])
def test_every_read_returns_records_with_topic_and_partition(tmp_path: Path, read_only: bool) -> None:
    make_log(tmp_path, 9, segment_bytes=4 * BATCH_BYTES)
    with open_hosted(tmp_path, host_of(), read_only=read_only) as log:
        ways = [log.scan(), log.scan(2, 5), log.scan_reverse(), log.read(3), [log.last()], log.follow(0, timeout_ms=0)]
        for records in ways:
            found = list(records)
            assert found
            assert {(record.topic, record.partition) for record in found} == {SOURCE}


def test_records_just_appended_have_topic_and_partition(tmp_path: Path) -> None:
    make_log(tmp_path, 1)
    with open_hosted(tmp_path, host_of(), compression_type="gzip") as log:
        log.append(b"x", key=b"k", headers=[("h", b"v")])
        record = log.last()
        assert (record.topic, record.partition, record.offset, record.key) == ("orders", 3, 1, b"k")


def test_new_record_has_no_topic_or_partition(tmp_path: Path) -> None:
    make_log(tmp_path, 1)
    with open_log(tmp_path) as log:
        assert (log.last().topic, log.last().partition) == (None, None)


# ---------------------------------------------------------------- a directory that a store created


def test_hosted_log_does_not_create_its_directory(tmp_path: Path) -> None:
    """The store creates it; a missing directory was deleted or lost."""
    for read_only in (False, True):
        with pytest.raises(NotALog):
            open_hosted(tmp_path / "missing", host_of(), read_only=read_only)
    assert not (tmp_path / "missing").exists()


def test_hosted_log_notifies_host_of_appends_and_rolls(tmp_path: Path) -> None:
    noted: list[str] = []

    class Noted(Watch):
        def appended(self) -> None:
            noted.append("appended")

        def rolled(self) -> None:
            noted.append("rolled")

        def stop(self) -> None:
            noted.append("stop")

    class Notes(Maintenance):
        def watch(self, log: WatchedLog, config: LogConfig) -> Watch:
            assert log.directory == str(tmp_path)
            return Noted(self, log, config)

    make_log(tmp_path, 0)
    host = host_of(maintenance=Notes(SystemClock()))
    with open_hosted(tmp_path, host, background=True, flush="interval", segment_bytes=2 * BATCH_BYTES) as log:
        fill(log, 3)
    assert noted == ["appended", "appended", "rolled", "appended", "stop"]


# ---------------------------------------------------------------- checkpoints of a broker


def inherited(recovery_point: int, *, log_start_offset: int = 0, high_watermark: int = 0) -> Checkpoint:
    return Checkpoint(
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        contiguous_from=INT64_MAX,
        foreign=True,
    )


class Partition:
    """A partition that a broker wrote."""

    def __init__(self, path: Path, *, stop: str = "clean") -> None:
        self.path = path
        self.broker = make_broker("4.x")
        self.broker.write(path, stop=stop)
        self.end = self.broker.next_offset
        self.active = path / f"{self.broker.segments[-1].base_offset:020d}.log"

    def open(self, checkpoint: Checkpoint | None, *, read_only: bool = False) -> Any:
        return open_hosted(self.path, host_of(inherited=checkpoint), read_only=read_only, segment_bytes=SEGMENT_BYTES)

    def cut(self, size: int) -> None:
        self.active.write_bytes(self.active.read_bytes()[:-size])


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "orders-3")


@pytest.mark.parametrize("read_only", [False, True])
def test_log_start_offset_is_inherited(partition: Partition, read_only: bool) -> None:
    with partition.open(inherited(partition.end, log_start_offset=37), read_only=read_only) as log:
        assert log.log_start_offset == 37
        assert rows_of(log.scan()) == [row for row in partition.broker.rows if row.offset >= 37]


@pytest.mark.parametrize("read_only", [False, True])
def test_inherited_start_hides_segments_below_it(partition: Partition, read_only: bool) -> None:
    start = partition.broker.segments[1].base_offset
    with partition.open(inherited(partition.end, log_start_offset=start), read_only=read_only) as log:
        assert log.log_start_offset == start
        assert log.segment_count == len(partition.broker.segments) - 1
        assert rows_of(log.scan()) == [row for row in partition.broker.rows if row.offset >= start]


@pytest.mark.parametrize("start", [1, 10])
def test_inherited_start_below_first_segment_is_not_loss(tmp_path: Path, start: int) -> None:
    """A broker deletes by age without updating its checkpoint, so an old line may be left."""
    partition = Partition(tmp_path / "orders-3")
    first = partition.broker.segments[0]
    for suffix in (".log", ".index", ".timeindex"):
        (partition.path / f"{first.base_offset:020d}{suffix}").unlink()
    kept_from = partition.broker.segments[1].base_offset
    for read_only in (True, False):
        with partition.open(inherited(partition.end, log_start_offset=start), read_only=read_only) as log:
            assert log.log_start_offset == kept_from


def test_gaps_and_epochs_of_broker_are_valid(partition: Partition) -> None:
    with partition.open(inherited(partition.end)) as log:
        assert log.leader_epoch == 9
        assert log.end_offset_for_epoch(2)[0] == 2
        assert rows_of(log.scan()) == partition.broker.rows
    with partition.open(inherited(partition.end)) as log:
        assert log.recovery.clean


@pytest.mark.parametrize("recovery_point", [0, 5, 300])
def test_torn_tail_above_inherited_recovery_point_is_cut_and_kept(partition: Partition, recovery_point: int) -> None:
    partition.cut(5)
    with partition.open(inherited(recovery_point)) as log:
        assert 300 < log.log_end_offset < partition.end
        assert log.recovery.cut_bytes > 0
        assert list(partition.path.glob("*.torn"))


def test_torn_tail_below_inherited_recovery_point_is_refused(partition: Partition) -> None:
    partition.cut(5)
    before = contents(partition.path)
    with pytest.raises(LostRecords, match=f"below {partition.end} were synced"):
        partition.open(inherited(partition.end))
    assert contents(partition.path) == before


def test_missing_batches_below_inherited_recovery_point_are_refused(partition: Partition) -> None:
    before = contents(partition.path)
    for read_only in (False, True):
        with pytest.raises(LostRecords), partition.open(inherited(partition.end + 1), read_only=read_only) as log:
            list(log.scan())
    assert contents(partition.path) == before


def test_own_checkpoint_overrides_inherited_one(partition: Partition) -> None:
    with partition.open(inherited(partition.end, log_start_offset=37)) as log:
        log.append(b"ours")
    other = inherited(partition.end + 900, log_start_offset=90)
    for read_only in (True, False):
        with partition.open(other, read_only=read_only) as log:
            assert (log.log_start_offset, log.log_end_offset) == (37, partition.end + 1)


def test_first_open_for_writing_creates_own_checkpoint(partition: Partition) -> None:
    assert read_checkpoint(QuickFiles(), str(partition.path)) is None
    with partition.open(inherited(partition.end, log_start_offset=37)):
        pass
    own = read_checkpoint(QuickFiles(), str(partition.path))

    assert own is not None
    assert (own.log_start_offset, own.recovery_point, own.foreign) == (37, partition.end, False)


def test_reader_creates_no_checkpoint_and_changes_nothing(partition: Partition) -> None:
    before = contents(partition.path)
    with partition.open(inherited(partition.end, log_start_offset=37, high_watermark=50), read_only=True) as log:
        # A broker's watermark may be older than its log; the rest of the log may still be read.
        assert log.high_watermark == partition.end
        assert log.recovery_point == partition.end
        assert len(list(log.scan())) > 0
    assert contents(partition.path) == before


def test_reader_switches_to_checkpoint_of_writer(partition: Partition) -> None:
    with partition.open(inherited(partition.end), read_only=True) as reader:
        assert reader.log_start_offset == 0
        with partition.open(inherited(partition.end)) as writer:
            writer.delete_before(37)
            writer.append(b"new")
            assert reader.log_start_offset == 37
            assert reader.last().value == b"new"


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_old_format_of_broker_is_refused_and_not_cut(partition: Partition, has_checkpoint: bool) -> None:
    data = bytearray(partition.active.read_bytes())
    data[16] = 1  # the magic byte of the first batch
    partition.active.write_bytes(data)
    before = contents(partition.path)
    with pytest.raises(UnsupportedMagic):
        partition.open(inherited(0) if has_checkpoint else None)
    assert contents(partition.path) == before


def test_empty_partition_starts_at_inherited_offset(tmp_path: Path) -> None:
    """Every segment was deleted by age, and the broker's empty one is at the end offset."""
    path = tmp_path / "orders-3"
    path.mkdir()
    for suffix in (".log", ".index", ".timeindex"):
        (path / f"{500:020d}{suffix}").touch()
    checkpoint = inherited(500, log_start_offset=500, high_watermark=500)
    for read_only in (True, False):
        with open_hosted(path, host_of(inherited=checkpoint), read_only=read_only) as log:
            assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    with open_hosted(path, host_of(inherited=replace(checkpoint, recovery_point=0))) as log:
        assert log.append(b"x") == 500
    assert (path / names.CHECKPOINT).exists()


# ---------------------------------------------------------------- files released while in use


class EvictingFiles(QuickFiles):
    """The real disk, but before every access to a file, another thread opens a segment and releases this one."""

    def __init__(self, bound: OpenSegments) -> None:
        self.bound = bound

    def size(self, handle: int) -> int:
        self.bound.opened(HeldSegment(None))
        return super().size(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        self.bound.opened(HeldSegment(None))
        return super().read(handle, size, position)


@pytest.mark.parametrize("read_only", [False, True])
def test_file_in_use_is_not_closed(tmp_path: Path, read_only: bool) -> None:
    """Threads that read other partitions may need the room at any moment. A file in use stays open for its user."""
    make_log(tmp_path, 9, segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0)
    bound = OpenSegments(1)
    with (LogReader if read_only else Log)(
        tmp_path,
        config=config_of(segment_bytes=4 * BATCH_BYTES),
        clock=FakeClock(),
        files=EvictingFiles(bound),
        host=host_of(open_segments=bound),
    ) as log:
        for _ in range(2):
            assert log.log_end_offset == 9
            assert offsets(log.scan()) == list(range(9))
            assert offsets(log.scan_reverse()) == list(range(8, -1, -1))
            assert [next(log.read(offset, max_records=1)).offset for offset in range(9)] == list(range(9))
            assert offsets(log.follow(0, timeout_ms=0)) == list(range(9))
            assert sum(batch.record_count for batch in log.read_batches(0)) == 9
