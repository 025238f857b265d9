"""The partition directory of a Kafka broker: it can be opened, read, recovered, and appended to by Kafka's rules.

The directory is built with struct as in Kafka's LogSegment and LogLoader, without seeklog's code:

    3.x    one index entry per append call: (last offset of the call, position of its first batch), and time
           entries that name the record, not its batch
    4.x    one entry per batch: (last offset, position), and time entries that name the batch's last offset

A clean stop trims the indexes and adds the last time entry. After a crash the indexes of the active segment have their
preallocated size with zeros after the entries, and the log may end in the middle of a batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from fastcrc import crc32

from seeklog import Log, LogConfig, LogReader

if TYPE_CHECKING:
    from pathlib import Path

INTERVAL = 1000  # index_interval_bytes; small, so that a small log has many entries
SEGMENT_BYTES = 12_000
INDEX_BYTES = 10_485_760  # a broker's preallocation, rounded down to whole entries
T = 1_700_000_000_000
TOPIC_ID = "AAAAAAAAQACAAAAAAAAAKg"  # 22 characters of base64url
TRANSACTIONAL, CONTROL = 0x10, 0x20

versions = pytest.mark.parametrize("version", ["3.x", "4.x"])
stops = pytest.mark.parametrize("stop", ["clean", "crash"])


# The broker


class Row(NamedTuple):
    """The expected record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_batch(
    rows: list[Row],
    *,
    leader_epoch: int,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    base_offset = rows[0].offset if base_offset is None else base_offset
    last_offset = rows[-1].offset if last_offset is None else last_offset
    base_timestamp_ms = rows[0].timestamp_ms
    body = b""
    for row in rows:
        record = b"\0" + varint(row.timestamp_ms - base_timestamp_ms) + varint(row.offset - base_offset)
        record += sized(row.key) + sized(row.value) + varint(0)
        body += varint(len(record)) + record
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset - base_offset,
        base_timestamp_ms,
        max(row.timestamp_ms for row in rows),
        *producer,
        len(rows),
    )
    checked += body
    return struct.pack(">qiibI", base_offset, len(checked) + 9, leader_epoch, 2, crc32.iscsi(checked)) + checked


def last_offset_of(raw: bytes) -> int:
    """Return the last offset of a batch, which may have no record after compaction."""
    return int(struct.unpack_from(">q", raw)[0] + struct.unpack_from(">i", raw, 23)[0])


@dataclass
class BrokerSegment:
    """Kafka's LogSegment: appends to its three files."""

    base_offset: int
    version: str
    log: bytes = b""
    offset_index: list[tuple[int, int]] = field(default_factory=list)
    time_index: list[tuple[int, int]] = field(default_factory=list)
    unindexed_bytes: int = 0
    max_timestamp_ms: int = -1
    max_timestamp_offset: int = -1

    def append_call(self, batches: list[tuple[list[Row], bytes]]) -> None:
        if self.version == "4.x":
            for rows, raw in batches:
                self._append([(rows, raw)], time_offset_of_batch=True)
        else:
            self._append(batches, time_offset_of_batch=False)

    def _append(self, batches: list[tuple[list[Row], bytes]], *, time_offset_of_batch: bool) -> None:
        for rows, raw in batches:
            newest = max(rows, key=lambda row: row.timestamp_ms)
            if newest.timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = newest.timestamp_ms
                self.max_timestamp_offset = last_offset_of(raw) if time_offset_of_batch else newest.offset
        if self.unindexed_bytes > INTERVAL:
            self.offset_index.append((last_offset_of(batches[-1][1]) - self.base_offset, len(self.log)))
            self.add_time_entry()
            self.unindexed_bytes = 0
        for _, raw in batches:
            self.log += raw
            self.unindexed_bytes += len(raw)

    def add_time_entry(self) -> None:
        if not self.time_index or self.max_timestamp_ms > self.time_index[-1][0]:
            self.time_index.append((self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset))

    def write(self, directory: Path, *, trimmed: bool, suffix: str = "") -> None:
        if trimmed:
            self.add_time_entry()
        name = directory / f"{self.base_offset:020d}"
        offset_index = b"".join(struct.pack(">ii", *entry) for entry in self.offset_index)
        time_index = b"".join(struct.pack(">qi", *entry) for entry in self.time_index)
        name.with_suffix(f".log{suffix}").write_bytes(self.log)
        for kind, entries, entry_size in ((".index", offset_index, 8), (".timeindex", time_index, 12)):
            path = name.with_suffix(kind + suffix)
            path.write_bytes(entries)
            if not trimmed:
                with path.open("r+b") as file:
                    file.truncate(INDEX_BYTES // entry_size * entry_size)


@dataclass
class Broker:
    """Kafka's UnifiedLog: rolls segments, keeps epochs and snapshots."""

    version: str
    segments: list[BrokerSegment] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0

    def append_call(self, *counts: int, leader_epoch: int, codec_attributes: int = 0) -> None:
        """Append one batch of each count in one call, as a Produce request does."""
        batches = []
        for count in counts:
            rows = [self._row(self.next_offset + n) for n in range(count)]
            batches.append((rows, encode_batch(rows, leader_epoch=leader_epoch, attributes=codec_attributes)))
            self.rows += rows
            self.next_offset += count
        self._append(batches, leader_epoch)

    def append_transaction(self, *, leader_epoch: int) -> None:
        """Append two records of a transaction and its commit marker, an offset without a record."""
        rows = [self._row(self.next_offset + n) for n in range(2)]
        raw = encode_batch(
            rows, leader_epoch=leader_epoch, attributes=TRANSACTIONAL, producer=(4000, 1, self.next_offset)
        )
        self.rows += rows
        marker = Row(self.next_offset + 2, rows[-1].timestamp_ms, b"\0\0\0\1", struct.pack(">hi", 0, 3))
        marker_raw = encode_batch(
            [marker], leader_epoch=leader_epoch, attributes=TRANSACTIONAL | CONTROL, producer=(4000, 1, -1)
        )
        self.next_offset += 3
        self._append([(rows, raw)], leader_epoch)
        self._append([([marker], marker_raw)], leader_epoch)

    def _row(self, offset: int) -> Row:
        # Timestamps go back and forth, like clocks of producers; some are equal.
        timestamp_ms = T + offset // 4 * 100 - offset % 3 * 150
        key = None if offset % 6 == 0 else b"key %d" % (offset % 10)
        value = None if offset % 11 == 10 else b"value %d " % offset + b"." * (offset % 60)
        return Row(offset, timestamp_ms, key, value)

    def _append(self, batches: list[tuple[list[Row], bytes]], leader_epoch: int) -> None:
        base_offset = batches[0][0][0].offset
        incoming = sum(len(raw) for _, raw in batches)
        if not self.segments or len(self.segments[-1].log) > SEGMENT_BYTES - incoming:
            self.segments.append(BrokerSegment(base_offset, self.version))
        if not self.epochs or self.epochs[-1][0] != leader_epoch:
            self.epochs.append((leader_epoch, base_offset))
        self.segments[-1].append_call(batches)

    def write(self, directory: Path, *, stop: str) -> None:
        directory.mkdir()
        for segment in self.segments:
            segment.write(directory, trimmed=stop == "clean" or segment is not self.segments[-1])
        for offset in [segment.base_offset for segment in self.segments[1:]]:
            (directory / f"{offset:020d}.snapshot").write_bytes(encode_snapshot(offset))
        if stop == "clean":
            end = directory / f"{self.next_offset:020d}.snapshot"
            end.write_bytes(encode_snapshot(self.next_offset))
        lines = ["0", str(len(self.epochs)), *(f"{epoch} {start}" for epoch, start in self.epochs)]
        (directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")


def encode_snapshot(offset: int) -> bytes:
    """Return the producer state at an end offset (exclusive), with one producer."""
    entry = struct.pack(">qhiqiqiq", 4000, 1, offset, offset - 1, 1, T, 3, -1)
    body = struct.pack(">i", 1) + entry
    return struct.pack(">hI", 1, crc32.iscsi(body)) + body


def make_broker(version: str) -> Broker:
    """Create a broker with some 600 records in about four segments and three epochs; calls have one or more batches."""
    broker = Broker(version)
    for number in range(90):
        epoch = (2, 5, 9)[number // 30]
        if number % 20 == 7:
            broker.append_transaction(leader_epoch=epoch)
        else:
            broker.append_call(*[(3,), (5, 2, 4), (1,), (2, 9)][number % 4], leader_epoch=epoch)
    assert len(broker.segments) >= 3
    return broker


# seeklog, and what it finds


def open_log(directory: Path, **settings: Any) -> Log:
    config = LogConfig(
        segment_bytes=SEGMENT_BYTES, index_interval_bytes=INTERVAL, retention_ms=-1, flush="os", **settings
    )
    return Log(directory, config=config, background=False)


def open_reader(directory: Path) -> LogReader:
    return LogReader(directory, config=LogConfig(retention_ms=-1))


def rows_of(records: Any) -> list[Row]:
    return [Row(record.offset, record.timestamp_ms, record.key, record.value) for record in records]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


@versions
@stops
def test_brokers_directory_opens_and_reads(version: str, stop: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop=stop)

    with open_log(partition) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, broker.next_offset)
        assert log.high_watermark == broker.next_offset
        assert log.leader_epoch == 9
        assert rows_of(log.scan()) == broker.rows
        assert rows_of(log.scan_reverse()) == broker.rows[::-1]


@versions
@stops
def test_every_offset_is_found_with_broker_indexes(version: str, stop: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop=stop)

    with open_log(partition) as log:
        for offset in range(broker.next_offset):
            expected = next((row for row in broker.rows if row.offset >= offset), None)
            assert rows_of(log.read(offset, max_records=1)) == ([expected] if expected else [])


@versions
@stops
def test_every_time_is_found_with_broker_indexes(version: str, stop: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop=stop)
    times = {row.timestamp_ms for row in broker.rows}

    with open_log(partition) as log:
        for time_ms in sorted(times | {time - 1 for time in times} | {0, max(times) + 1}):
            expected = next((row.offset for row in broker.rows if row.timestamp_ms >= time_ms), None)
            assert log.offset_at_time(time_ms) == expected, time_ms


@versions
@stops
def test_reading_only_changes_nothing(version: str, stop: str, partition: Path) -> None:
    """Goal: reading a broker's directory changes nothing."""
    broker = make_broker(version)
    broker.write(partition, stop=stop)
    before = contents(partition)

    with open_reader(partition) as log:
        assert rows_of(log.scan()) == broker.rows

    assert contents(partition) == before


@versions
def test_batch_torn_by_the_crash_is_cut_and_kept(version: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop="crash")
    active = broker.segments[-1]
    path = partition / f"{active.base_offset:020d}.log"
    next_row = Row(broker.next_offset, T, b"key", b"never finished")
    torn = encode_batch([next_row], leader_epoch=9)[:-5]
    path.write_bytes(active.log + torn)

    with open_log(partition) as log:
        assert log.log_end_offset == broker.next_offset
        assert rows_of(log.scan()) == broker.rows
        assert path.read_bytes() == active.log
        (evidence,) = partition.glob("*.torn")
        assert evidence.read_bytes() == torn
        assert log.append(b"goes on") == broker.next_offset


@versions
def test_preallocated_zeros_at_the_end_of_the_log_are_cut(version: str, partition: Path) -> None:
    """Goal: with `log.preallocate`, or after a power loss that kept only the file size."""
    broker = make_broker(version)
    broker.write(partition, stop="crash")
    active = broker.segments[-1]
    path = partition / f"{active.base_offset:020d}.log"
    path.write_bytes(active.log + bytes(5000))

    with open_log(partition) as log:
        assert log.log_end_offset == broker.next_offset
        assert rows_of(log.scan()) == broker.rows
    assert path.read_bytes() == active.log


@versions
@stops
def test_appended_records_follow_and_keep_kafkas_rules(version: str, stop: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop=stop)
    before = contents(partition)

    appended = append_some(partition, first_offset=broker.next_offset)

    check_kafkas_rules(partition, broker.rows + appended, leader_epoch=9)
    for segment in broker.segments[:-1]:
        name = f"{segment.base_offset:020d}.log"
        assert (partition / name).read_bytes() == before[name]
    last = f"{broker.segments[-1].base_offset:020d}.log"
    assert (partition / last).read_bytes().startswith(before[last])
    assert (partition / "partition.metadata").read_bytes() == before["partition.metadata"]
    assert len(before["partition.metadata"]) == 43
    with open_log(partition) as log:
        assert rows_of(log.scan()) == broker.rows + appended


def append_some(partition: Path, *, first_offset: int) -> list[Row]:
    """Append records one by one, over at least one roll."""
    appended = []
    with open_log(partition) as log:
        for n in range(200):
            key, value = b"new key %d" % n, b"new value %d " % n + b"-" * (n % 50)
            offset = log.append(value, key=key, timestamp_ms=T + 1_000_000 + n // 2)
            assert offset == first_offset + n
            appended.append(Row(offset, T + 1_000_000 + n // 2, key, value))
    return appended


@versions
@stops
def test_new_leader_epoch_follows_the_brokers(version: str, stop: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop=stop)

    with open_log(partition) as log:
        for epoch, end in ((2, broker.epochs[1][1]), (5, broker.epochs[2][1]), (9, broker.next_offset)):
            assert log.end_offset_for_epoch(epoch) == (epoch, end)
        # An epoch without a leader ends where the previous one does.
        assert log.end_offset_for_epoch(7) == (5, broker.epochs[2][1])
        log.begin_epoch(12)
        assert log.append(b"of the new leader") == broker.next_offset
        assert log.end_offset_for_epoch(9) == (9, broker.next_offset)

    assert read_epochs(partition) == [*broker.epochs, (12, broker.next_offset)]
    *_, last = split(max(partition.glob("*.log")).read_bytes())
    assert (last.base_offset, last.leader_epoch) == (broker.next_offset, 12)


# Leftovers


@versions
@stops
def test_files_of_deletions_and_cleanings_are_removed(version: str, stop: str, partition: Path) -> None:
    """Goal: a crash in the middle of retention and of compaction before its swap."""
    broker = make_broker(version)
    broker.write(partition, stop=stop)
    second = broker.segments[1].base_offset
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.timeindex.deleted",
        f"{second:020d}.snapshot.deleted",
        f"{second:020d}.log.cleaned",
        f"{second:020d}.index.cleaned",
        f"{second:020d}.timeindex.cleaned",
    ):
        (partition / name).write_bytes(b"half of something")

    with open_log(partition) as log:
        assert rows_of(log.scan()) == broker.rows
        log.append(b"goes on")

    assert not [path.name for path in partition.iterdir() if path.suffix in (".deleted", ".cleaned", ".swap")]


def compacted(segment: BrokerSegment, rows: list[Row], *, version: str) -> tuple[BrokerSegment, list[Row]]:
    """Return a cleaned segment: batches keep their offsets and lose every other record."""
    cleaned = BrokerSegment(segment.base_offset, version)
    kept: list[Row] = []
    for batch in split(segment.log):
        inside = [row for row in rows if batch.base_offset <= row.offset <= batch.last_offset]
        left = [row for row in inside if row.offset % 2]
        if left:
            raw = encode_batch(
                left,
                leader_epoch=batch.leader_epoch,
                base_offset=batch.base_offset,
                last_offset=batch.last_offset,
            )
            cleaned.append_call([(left, raw)])
            kept += left
    return cleaned, kept


@versions
def test_finished_swap_replaces_its_segment(version: str, partition: Path) -> None:
    """Goal: a crash after the cleaned files were renamed to .swap; they are complete and replace the segment."""
    broker = make_broker(version)
    broker.write(partition, stop="crash")
    old = broker.segments[1]
    cleaned, kept = compacted(old, broker.rows, version=version)
    cleaned.write(partition, trimmed=True, suffix=".swap")
    # A later segment was still being cleaned, which does not affect an earlier swap.
    (partition / f"{broker.segments[2].base_offset:020d}.log.cleaned").write_bytes(b"half")
    end = broker.segments[2].base_offset
    expected = [row for row in broker.rows if not old.base_offset <= row.offset < end] + kept

    with open_log(partition) as log:
        assert rows_of(log.scan()) == sorted(expected)
        assert log.append(b"goes on") == broker.next_offset

    assert (partition / f"{old.base_offset:020d}.log").read_bytes() == cleaned.log
    assert not [path.name for path in partition.iterdir() if path.suffix in (".cleaned", ".swap")]


@versions
def test_swap_that_merges_segments_replaces_all_of_them(version: str, partition: Path) -> None:
    """Goal: the cleaner merges small segments; their records must not be read twice."""
    broker = make_broker(version)
    broker.write(partition, stop="crash")
    first, kept = compacted(broker.segments[0], broker.rows, version=version)
    second, kept_of_second = compacted(broker.segments[1], broker.rows, version=version)
    merged = BrokerSegment(0, version)
    for batch in split(first.log + second.log):
        rows = [row for row in kept + kept_of_second if batch.base_offset <= row.offset <= batch.last_offset]
        merged.append_call([(rows, batch.raw)])
    merged.write(partition, trimmed=True, suffix=".swap")
    expected = kept + kept_of_second
    expected += [row for row in broker.rows if row.offset >= broker.segments[2].base_offset]

    with open_log(partition) as log:
        assert rows_of(log.scan()) == expected
    assert not (partition / f"{broker.segments[1].base_offset:020d}.log").exists()


@versions
def test_swap_at_or_after_an_unfinished_cleaning_is_removed(version: str, partition: Path) -> None:
    """Goal: a split of one segment into several was renaming them, the last one first."""
    broker = make_broker(version)
    broker.write(partition, stop="crash")
    cleaned, _ = compacted(broker.segments[1], broker.rows, version=version)
    cleaned.write(partition, trimmed=True, suffix=".swap")
    (partition / f"{0:020d}.log.cleaned").write_bytes(b"half")

    with open_log(partition) as log:
        assert rows_of(log.scan()) == broker.rows
    assert not [path.name for path in partition.iterdir() if path.suffix in (".cleaned", ".swap")]


@versions
@stops
def test_compacted_segment_is_read_across_its_gaps(version: str, stop: str, partition: Path) -> None:
    broker = make_broker(version)
    cleaned, kept = compacted(broker.segments[0], broker.rows, version=version)
    first_end = broker.segments[1].base_offset
    broker.segments[0] = cleaned
    broker.rows = kept + [row for row in broker.rows if row.offset >= first_end]
    broker.write(partition, stop=stop)

    with open_log(partition) as log:
        assert rows_of(log.scan()) == broker.rows
        for offset in range(0, first_end, 3):
            expected = next(row for row in broker.rows if row.offset >= offset)
            assert rows_of(log.read(offset, max_records=1)) == [expected]
    appended = append_some(partition, first_offset=broker.next_offset)
    check_kafkas_rules(partition, broker.rows + appended, leader_epoch=9)


@versions
@stops
@pytest.mark.parametrize("lost", ["first", "last"])
def test_segment_without_batches_that_compaction_removed_is_read(
    version: str, stop: str, lost: str, partition: Path
) -> None:
    """Goal: missing offsets between two segments, or at the start of one, are not damage here."""
    broker = make_broker(version)
    first_end = broker.segments[1].base_offset
    batches = split(broker.segments[0].log)
    left = batches[3:] if lost == "first" else batches[:-3]
    cleaned = BrokerSegment(0, version)
    kept: list[Row] = []
    for batch in left:
        rows = [row for row in broker.rows if batch.base_offset <= row.offset <= batch.last_offset]
        # The batch of a marker has no row, but it has a timestamp.
        times = rows or [Row(batch.last_offset, batch.max_timestamp_ms, None, None)]
        cleaned.append_call([(times, batch.raw)])
        kept += rows
    broker.segments[0] = cleaned
    broker.rows = kept + [row for row in broker.rows if row.offset >= first_end]
    broker.write(partition, stop=stop)

    with open_reader(partition) as log:
        assert rows_of(log.scan()) == broker.rows
    for _ in range(2):
        with open_log(partition) as log:
            assert rows_of(log.scan()) == broker.rows
            assert rows_of(log.scan_reverse()) == broker.rows[::-1]
            for offset in (0, 1, left[-1].last_offset, left[-1].last_offset + 1, first_end - 1, first_end):
                expected = next(row for row in broker.rows if row.offset >= offset)
                assert rows_of(log.read(offset, max_records=1)) == [expected]
    appended = append_some(partition, first_offset=broker.next_offset)
    check_kafkas_rules(partition, broker.rows + appended, leader_epoch=9)


@versions
@pytest.mark.parametrize("read_only", [False, True])
def test_swap_whose_original_is_already_removed_is_completed(version: str, read_only: bool, partition: Path) -> None:
    """Goal: the cleaner renames the originals to .deleted before it gives the swap its name."""
    broker = make_broker(version)
    broker.write(partition, stop="crash")
    old = broker.segments[1]
    cleaned, kept = compacted(old, broker.rows, version=version)
    cleaned.write(partition, trimmed=True, suffix=".swap")
    for suffix in (".log", ".index", ".timeindex"):
        path = partition / f"{old.base_offset:020d}{suffix}"
        path.rename(path.with_name(path.name + ".deleted"))
    end = broker.segments[2].base_offset
    expected = sorted([row for row in broker.rows if not old.base_offset <= row.offset < end] + kept)

    with open_reader(partition) if read_only else open_log(partition) as log:
        assert rows_of(log.scan()) == expected


@versions
@stops
def test_last_record_is_found_before_a_marker_and_an_empty_batch(version: str, stop: str, partition: Path) -> None:
    """Goal: the end of the log may be batches that have offsets and no records."""
    broker = make_broker(version)
    broker.append_transaction(leader_epoch=9)
    end = broker.next_offset
    empty = struct.pack(">hiqqqhii", 0, 4, -1, T, 4000, 1, 7, 0)
    raw = struct.pack(">qiibI", end, len(empty) + 9, 9, 2, crc32.iscsi(empty)) + empty
    broker.segments[-1].append_call([([Row(end + 4, T, None, None)], raw)])
    broker.next_offset = end + 5
    broker.write(partition, stop=stop)

    with open_log(partition) as log:
        assert log.log_end_offset == end + 5
        assert rows_of([log.last()]) == broker.rows[-1:]
        assert rows_of(log.scan()) == broker.rows
        assert rows_of(log.read(end)) == []
        assert log.append(b"goes on") == end + 5
        assert [record.value for record in log.read(end)] == [b"goes on"]


@versions
@pytest.mark.parametrize("missing", [".index", ".timeindex"])
def test_missing_index_is_rebuilt(version: str, missing: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop="clean")
    for path in partition.glob(f"*{missing}"):
        path.unlink()

    with open_log(partition) as log:
        assert rows_of(log.scan()) == broker.rows
        newest = max(broker.rows, key=lambda row: row.timestamp_ms)
        assert log.offset_at_time(newest.timestamp_ms) == newest.offset
    check_kafkas_rules(partition, broker.rows, leader_epoch=9)


@versions
def test_index_without_its_log_is_removed(version: str, partition: Path) -> None:
    broker = make_broker(version)
    broker.write(partition, stop="clean")
    stray = partition / f"{broker.next_offset + 1000:020d}.index"
    stray.write_bytes(struct.pack(">ii", 5, 100))

    with open_log(partition) as log:
        assert log.log_end_offset == broker.next_offset
        assert rows_of(log.scan()) == broker.rows
    assert not stray.exists()


@stops
def test_partition_with_deleted_beginning_starts_later(stop: str, partition: Path) -> None:
    """Goal: retention took the first segments; the first file name is the log's start."""
    broker = make_broker("4.x")
    del broker.segments[0]
    start = broker.segments[0].base_offset
    broker.rows = [row for row in broker.rows if row.offset >= start]
    broker.write(partition, stop=stop)

    with open_log(partition) as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, broker.next_offset)
        assert rows_of(log.scan()) == broker.rows


def test_empty_partition_of_a_broker_takes_its_first_record(partition: Path) -> None:
    """Goal: what a broker leaves right after it made a topic: an empty log, and indexes full of zeros."""
    partition.mkdir()
    for kind, size in ((".log", 0), (".index", INDEX_BYTES), (".timeindex", INDEX_BYTES // 12 * 12)):
        with (partition / f"{0:020d}{kind}").open("wb") as file:
            file.truncate(size)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")

    with open_log(partition) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert list(log.scan()) == []
        assert log.append(b"first", timestamp_ms=T) == 0

    check_kafkas_rules(partition, [Row(0, T, None, b"first")], leader_epoch=0)


# Kafka's rules, checked without seeklog's code


class FoundBatch(NamedTuple):
    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    raw: bytes


def split(log: bytes) -> list[FoundBatch]:
    """Return the batches of a .log file, which must have nothing else in it."""
    batches, position = [], 0
    while position < len(log):
        base_offset, length, leader_epoch, magic, crc = struct.unpack_from(">qiibI", log, position)
        raw = log[position : position + 12 + length]
        assert magic == 2
        assert len(raw) == 12 + length
        assert crc32.iscsi(raw[21:]) == crc
        last_offset_delta, _base_ms, max_timestamp_ms = struct.unpack_from(">iqq", raw, 23)
        batches.append(
            FoundBatch(position, base_offset, base_offset + last_offset_delta, leader_epoch, max_timestamp_ms, raw)
        )
        position += len(raw)
    return batches


def read_epochs(partition: Path) -> list[tuple[int, int]]:
    version, count, *lines = (partition / "leader-epoch-checkpoint").read_text().splitlines()
    entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
    assert (version, int(count)) == ("0", len(entries))
    assert entries == sorted(entries)
    return entries


def check_kafkas_rules(partition: Path, rows: list[Row], *, leader_epoch: int) -> None:
    """Check every file as a broker does after an unclean shutdown."""
    segments = sorted(partition.glob("*.log"))
    next_offset = int(segments[0].stem)
    first_new_offset = rows[-1].offset
    for path in segments:
        base_offset = int(path.stem)
        batches = split(path.read_bytes())
        assert base_offset >= next_offset
        for batch in batches:
            assert batch.base_offset >= next_offset
            assert batch.base_offset >= base_offset
            next_offset = batch.last_offset + 1
        assert path.stat().st_size <= SEGMENT_BYTES
        check_offset_index(path.with_suffix(".index").read_bytes(), batches, base_offset)
        check_time_index(path.with_suffix(".timeindex").read_bytes(), batches, base_offset)
    assert next_offset == first_new_offset + 1
    epochs = read_epochs(partition)
    assert epochs[-1][0] == leader_epoch
    last_batch = split(segments[-1].read_bytes())[-1]
    assert last_batch.leader_epoch == leader_epoch


def check_offset_index(index: bytes, batches: list[FoundBatch], base_offset: int) -> None:
    assert len(index) % 8 == 0
    entries = list(struct.iter_unpack(">ii", index))
    by_position = {batch.position: batch for batch in batches}
    last = (-1, 0)
    unindexed_bytes = 0
    for relative_offset, position in entries:
        # The first batch is never indexed, and zeros of a preallocated file would be (0, 0).
        assert relative_offset > last[0]
        assert position > last[1]
        last = relative_offset, position
        assert by_position[position].base_offset <= base_offset + relative_offset
        assert base_offset + relative_offset <= batches[-1].last_offset
        assert any(batch.last_offset == base_offset + relative_offset for batch in batches)
    # The distance between entries is at most the interval plus the batches at its ends. A call
    # of an old broker has up to three batches.
    positions = [0, *(position for _, position in entries)]
    for start, end in zip(positions, [*positions[1:], batches[-1].position if batches else 0], strict=True):
        inside = [batch for batch in batches if start <= batch.position < end]
        unindexed_bytes = sum(len(batch.raw) for batch in inside)
        assert unindexed_bytes <= INTERVAL + 3 * max((len(batch.raw) for batch in inside), default=0)


def check_time_index(index: bytes, batches: list[FoundBatch], base_offset: int) -> None:
    assert len(index) % 12 == 0
    entries = list(struct.iter_unpack(">qi", index))
    last = (-1, -1)
    for timestamp_ms, relative_offset in entries:
        assert timestamp_ms > last[0]
        assert relative_offset > last[1]
        last = timestamp_ms, relative_offset
        offset = base_offset + relative_offset
        (named,) = [batch for batch in batches if batch.base_offset <= offset <= batch.last_offset]
        assert named.max_timestamp_ms == timestamp_ms
        # Nothing before it is newer.
        assert all(batch.max_timestamp_ms <= timestamp_ms for batch in batches if batch.last_offset < offset)
    # A roll or a close ends the index with the largest timestamp of the segment.
    if batches:
        assert last[0] == max(batch.max_timestamp_ms for batch in batches)
