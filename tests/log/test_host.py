"""A log in a store: files that many logs share, where records say they come from, and what a broker's root says."""

from __future__ import annotations

import gc
import os
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
from seeklog import Log, LogConfig, LogReader, TopicPartition, names
from seeklog.clock import SystemClock
from seeklog.config import INT64_MAX
from seeklog.errors import LostRecords, NotALog, UnsupportedMagic
from seeklog.log.background import Maintenance, Watch, WatchedLog
from seeklog.log.host import MAX_INDEX_BYTES, Host, OpenSegments
from seeklog.log.side.checkpoint import Checkpoint, read_checkpoint

SOURCE = TopicPartition("orders", 3)
# Its log, and its two indexes: Python's map of a file keeps a descriptor of it.
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


# ---------------------------------------------------------------- files that are shared


class Held:
    """A segment that counts how often it was let go."""

    def __init__(self, shared: object, *, index_bytes: int = 0) -> None:
        self.shared = shared
        self.index_bytes = index_bytes
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


def test_the_one_that_stood_open_for_longest_is_let_go() -> None:
    bound = OpenSegments(2)
    segments = [Held(None) for _ in range(4)]
    for segment in segments:
        bound.opened(segment)

    assert [segment.releases for segment in segments] == [1, 1, 0, 0]


def test_indexes_of_open_segments_take_a_bounded_amount_of_memory() -> None:
    bound = OpenSegments(100)
    segments = [Held(None, index_bytes=MAX_INDEX_BYTES // 2) for _ in range(3)]
    for segment in segments:
        bound.opened(segment)
    assert [segment.releases for segment in segments] == [1, 0, 0]


def test_a_segment_whose_indexes_take_all_the_memory_is_open_alone() -> None:
    bound = OpenSegments(100)
    small, large = Held(None, index_bytes=1), Held(None, index_bytes=2 * MAX_INDEX_BYTES)
    bound.opened(small)
    bound.opened(large)
    assert (small.releases, large.releases) == (1, 0)


def test_a_segment_that_opens_a_second_file_counts_once() -> None:
    bound = OpenSegments(2)
    first, second = Held(None), Held(None)
    for segment in (first, second, first, second, first):
        bound.opened(segment)

    assert (first.releases, second.releases) == (0, 0)


def test_a_log_that_goes_takes_only_its_own_along() -> None:
    bound = OpenSegments(9)
    mine, other = object(), object()
    segments = [Held(owner) for owner in (mine, other, mine)]
    for segment in segments:
        bound.opened(segment)
    bound.forget(mine)
    bound.forget(mine)

    assert [segment.releases for segment in segments] == [1, 0, 1]


def open_files(directory: Path) -> int:
    links = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return sum(link.startswith(str(directory)) for link in links)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_logs_that_share_a_bound_keep_so_many_segments_open_together(tmp_path: Path, most: int) -> None:
    """Each of four logs has six segments; all are read in turn, from both ends."""
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


def test_a_scan_that_runs_goes_on_though_others_need_the_files(tmp_path: Path) -> None:
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


def test_a_log_alone_has_a_bound_of_its_own(tmp_path: Path) -> None:
    make_log(tmp_path, 6, segment_bytes=BATCH_BYTES)
    with open_reader(tmp_path, max_open_segments=2) as log:
        assert len(list(log.scan())) == 6
        assert open_files(tmp_path) <= FILES_OF_A_SEGMENT * 2


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("read_only", [False, True])
def test_records_carry_topic_and_partition_whichever_way_they_are_read(tmp_path: Path, read_only: bool) -> None:
    make_log(tmp_path, 9, segment_bytes=4 * BATCH_BYTES)
    with open_hosted(tmp_path, host_of(), read_only=read_only) as log:
        ways = [log.scan(), log.scan(2, 5), log.scan_reverse(), log.read(3), [log.last()], log.follow(0, timeout_ms=0)]
        for records in ways:
            found = list(records)
            assert found
            assert {(record.topic, record.partition) for record in found} == {SOURCE}


def test_records_that_are_just_appended_carry_them_too(tmp_path: Path) -> None:
    make_log(tmp_path, 1)
    with open_hosted(tmp_path, host_of(), compression_type="gzip") as log:
        log.append(b"x", key=b"k", headers=[("h", b"v")])
        record = log.last()
        assert (record.topic, record.partition, record.offset, record.key) == ("orders", 3, 1, b"k")


def test_a_record_that_somebody_makes_has_neither(tmp_path: Path) -> None:
    make_log(tmp_path, 1)
    with open_log(tmp_path) as log:
        assert (log.last().topic, log.last().partition) == (None, None)


# ---------------------------------------------------------------- a directory that a store has made


def test_a_hosted_log_does_not_make_its_directory(tmp_path: Path) -> None:
    """A store makes it; one that is missing was deleted, or is lost."""
    for read_only in (False, True):
        with pytest.raises(NotALog):
            open_hosted(tmp_path / "missing", host_of(), read_only=read_only)
    assert not (tmp_path / "missing").exists()


def test_a_hosted_log_notifies_its_host_of_appends_and_rolls(tmp_path: Path) -> None:
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


# ---------------------------------------------------------------- what a broker's checkpoints say


def inherited(recovery_point: int, *, log_start_offset: int = 0, high_watermark: int = 0) -> Checkpoint:
    return Checkpoint(
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        contiguous_from=INT64_MAX,
        foreign=True,
    )


class Partition:
    """A partition that a broker has left."""

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
def test_a_start_is_inherited(partition: Partition, read_only: bool) -> None:
    with partition.open(inherited(partition.end, log_start_offset=37), read_only=read_only) as log:
        assert log.log_start_offset == 37
        assert rows_of(log.scan()) == [row for row in partition.broker.rows if row.offset >= 37]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_start_hides_the_segments_below(partition: Partition, read_only: bool) -> None:
    start = partition.broker.segments[1].base_offset
    with partition.open(inherited(partition.end, log_start_offset=start), read_only=read_only) as log:
        assert log.log_start_offset == start
        assert log.segment_count == len(partition.broker.segments) - 1
        assert rows_of(log.scan()) == [row for row in partition.broker.rows if row.offset >= start]


@pytest.mark.parametrize("start", [1, 10])
def test_a_start_below_the_first_segment_is_no_loss(tmp_path: Path, start: int) -> None:
    """A broker deletes by age without a line in its checkpoint; an old line may be left."""
    partition = Partition(tmp_path / "orders-3")
    first = partition.broker.segments[0]
    for suffix in (".log", ".index", ".timeindex"):
        (partition.path / f"{first.base_offset:020d}{suffix}").unlink()
    kept_from = partition.broker.segments[1].base_offset
    for read_only in (True, False):
        with partition.open(inherited(partition.end, log_start_offset=start), read_only=read_only) as log:
            assert log.log_start_offset == kept_from


def test_the_gaps_and_epochs_of_a_broker_are_lawful(partition: Partition) -> None:
    with partition.open(inherited(partition.end)) as log:
        assert log.leader_epoch == 9
        assert log.end_offset_for_epoch(2)[0] == 2
        assert rows_of(log.scan()) == partition.broker.rows
    with partition.open(inherited(partition.end)) as log:
        assert log.recovery.clean


@pytest.mark.parametrize("recovery_point", [0, 5, 300])
def test_a_torn_end_above_the_recovery_point_is_cut_and_kept(partition: Partition, recovery_point: int) -> None:
    partition.cut(5)
    with partition.open(inherited(recovery_point)) as log:
        assert 300 < log.log_end_offset < partition.end
        assert log.recovery.cut_bytes > 0
        assert list(partition.path.glob("*.torn"))


def test_a_torn_end_below_the_recovery_point_is_refused_and_nothing_changes(partition: Partition) -> None:
    partition.cut(5)
    before = contents(partition.path)
    with pytest.raises(LostRecords, match=f"below {partition.end} were synced"):
        partition.open(inherited(partition.end))
    assert contents(partition.path) == before


def test_whole_batches_that_are_missing_below_the_recovery_point_are_refused(partition: Partition) -> None:
    before = contents(partition.path)
    for read_only in (False, True):
        with pytest.raises(LostRecords), partition.open(inherited(partition.end + 1), read_only=read_only) as log:
            list(log.scan())
    assert contents(partition.path) == before


def test_an_own_checkpoint_overrules_what_is_inherited(partition: Partition) -> None:
    with partition.open(inherited(partition.end, log_start_offset=37)) as log:
        log.append(b"ours")
    other = inherited(partition.end + 900, log_start_offset=90)
    for read_only in (True, False):
        with partition.open(other, read_only=read_only) as log:
            assert (log.log_start_offset, log.log_end_offset) == (37, partition.end + 1)


def test_the_first_open_for_writing_leaves_a_checkpoint_of_our_own(partition: Partition) -> None:
    assert read_checkpoint(QuickFiles(), str(partition.path)) is None
    with partition.open(inherited(partition.end, log_start_offset=37)):
        pass
    own = read_checkpoint(QuickFiles(), str(partition.path))

    assert own is not None
    assert (own.log_start_offset, own.recovery_point, own.foreign) == (37, partition.end, False)


def test_a_look_leaves_none_and_changes_nothing(partition: Partition) -> None:
    before = contents(partition.path)
    with partition.open(inherited(partition.end, log_start_offset=37, high_watermark=50), read_only=True) as log:
        # A broker's watermark may be older than its log: what is there may be read.
        assert log.high_watermark == partition.end
        assert log.recovery_point == partition.end
        assert len(list(log.scan())) > 0
    assert contents(partition.path) == before


def test_a_reader_goes_over_to_the_checkpoint_that_a_writer_makes(partition: Partition) -> None:
    with partition.open(inherited(partition.end), read_only=True) as reader:
        assert reader.log_start_offset == 0
        with partition.open(inherited(partition.end)) as writer:
            writer.delete_before(37)
            writer.append(b"new")
            assert reader.log_start_offset == 37
            assert reader.last().value == b"new"


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_brokers_old_format_is_refused_and_not_cut(partition: Partition, has_checkpoint: bool) -> None:
    data = bytearray(partition.active.read_bytes())
    data[16] = 1  # the magic byte of the first batch
    partition.active.write_bytes(data)
    before = contents(partition.path)
    with pytest.raises(UnsupportedMagic):
        partition.open(inherited(0) if has_checkpoint else None)
    assert contents(partition.path) == before


def test_an_empty_partition_begins_where_the_checkpoint_says(tmp_path: Path) -> None:
    """Every segment was deleted by age, and the broker's empty one is at the end."""
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


# ---------------------------------------------------------------- files that go while they are used


class EvictingFiles(QuickFiles):
    """The real disk, and another thread that needs the room just before every look at a file."""

    def __init__(self, bound: OpenSegments) -> None:
        self.bound = bound

    def size(self, handle: int) -> int:
        self.bound.opened(Held(None))
        return super().size(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        self.bound.opened(Held(None))
        return super().read(handle, size, position)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_is_not_closed_under_whoever_just_uses_it(tmp_path: Path, read_only: bool) -> None:
    """Threads that read other partitions need the room at any moment: what is in use stays open for its user."""
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
