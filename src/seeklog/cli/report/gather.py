"""Reads a store into facts: the headers of all batches, a sample of the records, and every checksum.

Memory is bounded by the number of segments, not of records: figures are sketches, positions are thinned. Damage is
reported in the facts of its segment or partition and does not stop the reading.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from seeklog.cli.report.facts import PartitionFacts, SegmentFacts, StoreFacts, TopicFacts, union
from seeklog.clock import SystemClock
from seeklog.config import INT64_MAX
from seeklog.errors import SeeklogError
from seeklog.log import first_timestamp_ms, scan_headers, take_snapshot
from seeklog.log.check import Severity, conclude, inspect_segment, plan_inspection
from seeklog.record import codec
from seeklog.record.batch import BatchHeader
from seeklog.record.layout import CODEC_MASK, HEADER_SIZE
from seeklog.record.sketch import Throughput
from seeklog.store import archive_source

if TYPE_CHECKING:
    from seeklog.cli.show.progress import Progress
    from seeklog.log import LogReader, Segment
    from seeklog.record.record import Record
    from seeklog.store import Store
    from seeklog.topics.description import TopicDescription

Item = TypeVar("Item")

# The maximum number of topics on a page, unless topics are named.
MAX_TOPICS: Final = 20
# These take a few seconds: some million records are decoded a second.
MAX_RECORDS_READ: Final = 2_000_000
# The length of a run of consecutive records. Seeks dominate shorter runs; longer runs spread unevenly.
RUN_RECORDS: Final = 2048
MAX_RUNS: Final = 2000
# About the width of the map; more index points would be one line.
MAX_INDEX_POINTS: Final = 1000
# Batches decompressed to measure the compression ratio, in the store and in each segment.
MAX_EXPANDED: Final = 8192
MAX_EXPANDED_PER_SEGMENT: Final = 64
# A batch that spans many time buckets is spread over at most this many parts.
MAX_TIME_PARTS: Final = 64
COUNT_AT_ONCE: Final = 1 << 16


class Thinned(Generic[Item]):
    """Keeps at most `limit` items of a sequence, evenly spread."""

    def __init__(self, limit: int) -> None:
        self.kept: list[Item] = []
        self._seen = 0
        self._limit = max(2, limit)
        self._step = 1

    def add(self, item: Item) -> None:
        """Keep or drop the next item."""
        if self._seen % self._step == 0:
            self.kept.append(item)
            if len(self.kept) > self._limit:
                self.kept = self.kept[::2]
                self._step *= 2
        self._seen += 1


@dataclass(slots=True)
class _Run:
    """Consecutive batches."""

    start: int
    before_ms: int
    """The latest timestamp before it, or -1."""
    stop: int = 0
    records: int = 0
    size: int = 0


class _Runs:
    """The runs of one partition, built from its headers in order."""

    def __init__(self, run_records: int) -> None:
        self.runs: list[_Run] = []
        self._run_records = run_records
        self._latest_ms = -1

    def add(self, header: BatchHeader) -> None:
        if not self.runs or self.runs[-1].records >= self._run_records:
            self.runs.append(_Run(header.base_offset, self._latest_ms))
        last = self.runs[-1]
        last.stop = header.next_offset
        last.records += header.record_count
        last.size += header.size
        self._latest_ms = max(self._latest_ms, header.max_timestamp_ms)


def gather(
    store: Store,
    *,
    name: str,
    topics: Sequence[str] = (),
    check: bool = True,
    max_records: int = MAX_RECORDS_READ,
    progress: Progress,
) -> StoreFacts:
    """Read a store, or some of its topics. `check` verifies the checksum of every byte.

    `name` is the path as the user gave it: a page that is shared should not reveal their home directory.
    """
    described = [store.describe_topic(topic) for topic in dict.fromkeys(topics or store.topics())]
    left_out = []
    if not topics:
        described.sort(key=lambda topic: (-topic.size_bytes, topic.name))
        left_out = [topic.name for topic in described[MAX_TOPICS:]]
        del described[MAX_TOPICS:]
    size, records = sum(topic.size_bytes for topic in described), sum(topic.record_count for topic in described)
    progress.reach(0, (size if check else 0) + int(size * min(1.0, max_records / records if records else 0.0)))
    facts = StoreFacts(location=name, made_at_ms=SystemClock().now_ms(), left_out=left_out, is_checked=check)
    for description in described:
        reader = _TopicReader(
            store,
            description,
            check=check,
            max_records=max_records,
            stride=-(-records // max_records) if max_records else 0,
            segment_count=max(1, sum(part.segment_count for topic in described for part in topic.partitions)),
            progress=progress,
        )
        facts.topics.append(reader.read())
    for group in store.groups():
        try:
            lags = [lag for lag in store.lag(group) if not topics or lag.topic in topics]
        except SeeklogError as error:
            facts.problems.append(f"group {group}: {error}")
            continue
        if lags or not topics:
            facts.lags[group] = lags
    return facts


@dataclass
class _TopicReader:
    store: Store
    description: TopicDescription
    check: bool
    max_records: int
    stride: int
    """Every nth run is read; 0: none."""
    segment_count: int
    progress: Progress

    def __post_init__(self) -> None:
        self._topic = TopicFacts(name=self.description.name, configured=dict(self.description.configured))
        self._records = _RecordCounter(self._topic)

    def read(self) -> TopicFacts:
        for partition in self.description.partitions:
            self._topic.partitions.append(self._read_partition(partition.partition))
        self._records.flush()
        return self._topic

    def _read_partition(self, number: int) -> PartitionFacts:
        log = self.store.log(self._topic.name, number)
        facts = PartitionFacts(
            partition=number,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            recovery_point=log.recovery_point,
            needs_recovery=log.needs_recovery,
        )
        runs = _Runs(min(max(RUN_RECORDS, facts.records // MAX_RUNS), self.max_records))
        try:
            self._read_segments(log, facts, runs)
            if self.check:
                self._inspect(log, facts)
            if self.stride:
                # From the middle of each stride, so that a single run is not always the oldest.
                for run in runs.runs[self.stride // 2 :: self.stride] or runs.runs[:1]:
                    self._read_run(log, facts, run)
        except (SeeklogError, OSError) as error:
            facts.problem = str(error)
        return facts

    def _read_segments(self, log: LogReader, facts: PartitionFacts, runs: _Runs) -> None:
        segments = take_snapshot(log).view.segments
        for segment in segments:
            segment.fetch_seal()
            found = SegmentFacts(
                base_offset=segment.base_offset,
                next_offset=min(segment.next_offset, facts.log_end_offset),
                size=segment.size,
                is_sealed=segment.seal is not None,
                is_active=segment is segments[-1],
            )
            facts.segments.append(found)
            try:
                self._read_headers(segment, facts, found, runs)
                index = segment.indexes.offsets
                found.index_entries = len(index)
                step = max(1, len(index) // max(4, MAX_INDEX_POINTS // self.segment_count))
                found.index_positions = [index[number].position for number in range(0, len(index), step)]
            except SeeklogError as error:
                found.problem = str(error)
        marks = {
            "start": facts.log_start_offset,
            "recovery": facts.recovery_point,
            "hw": facts.high_watermark,
            "leo": facts.log_end_offset,
        }
        for kind, offset in marks.items() if segments else ():
            with contextlib.suppress(SeeklogError):
                facts.marks[kind] = _position_of(log, segments, offset)

    def _read_headers(self, segment: Segment, facts: PartitionFacts, found: SegmentFacts, runs: _Runs) -> None:
        topic = self._topic
        sample: Thinned[tuple[int, BatchHeader]] = Thinned(
            max(4, min(MAX_EXPANDED_PER_SEGMENT, MAX_EXPANDED // self.segment_count))
        )
        for position, header in scan_headers(segment, facts.log_start_offset, INT64_MAX):
            found.batches += 1
            found.codecs[header.codec] += header.size
            topic.batch_sizes.add(header.size)
            if header.attributes & CODEC_MASK:
                sample.add((position, header))
            if header.is_control or not header.record_count:
                continue
            found.records += header.record_count
            topic.records_seen += header.record_count
            _note_times(topic.stored, found, header)
            if header.base_offset < facts.high_watermark:
                runs.add(header)
        limit = self.description.config.max_decompressed_bytes
        for position, header in sample.kept:
            raw = segment.read(header.size, position)
            with contextlib.suppress(SeeklogError):  # the inspection reports it
                body = codec.decompress(header.attributes & CODEC_MASK, raw[HEADER_SIZE:], limit=limit)
                found.sampled_bytes += header.size
                found.sampled_raw_bytes += HEADER_SIZE + len(body)

    def _inspect(self, log: LogReader, facts: PartitionFacts) -> None:
        source = archive_source(self.store, [self._topic.name])
        (topic,) = source.topics
        files, inherited = source.files, topic.inherited[facts.partition]
        plan = plan_inspection(log.location, config=topic.config, inherited=inherited, files=files)
        inspections = []
        for task in plan.tasks:
            inspections.append(inspect_segment(task, files=files))
            self.progress.advance(task.size)
        findings = conclude(plan, inspections, files=files)
        facts.findings = [finding for finding in findings if finding.severity is not Severity.NOTE]
        segments = {segment.base_offset: segment for segment in facts.segments}
        for finding in facts.findings:
            if finding.severity is Severity.ERROR and finding.segment in segments:
                position = finding.position or 0 if finding.path.endswith(".log") else -1
                segments[finding.segment].damage.append(position)

    def _read_run(self, log: LogReader, facts: PartitionFacts, run: _Run) -> None:
        start, stop = max(run.start, facts.log_start_offset), min(run.stop, facts.high_watermark)
        if start >= stop:
            return
        self._records.begin(run.before_ms)
        with contextlib.suppress(SeeklogError):  # the inspection reports it
            for chunk in log.scan_chunks(start, stop):
                self._records.add(chunk)
        self.progress.advance(run.size)


class _RecordCounter:
    """Counts records in bulk, which is faster in Python than one by one."""

    def __init__(self, topic: TopicFacts) -> None:
        self._topic = topic
        self._keys: list[bytes] = []
        self._sizes: list[int] = []
        self._times: list[int] = []
        self._latest_ms = -1

    def begin(self, before_ms: int) -> None:
        """Begin a run of records; `before_ms` is the latest timestamp before it."""
        self._latest_ms = before_ms

    def add(self, records: list[Record]) -> None:
        topic = self._topic
        topic.records_read += len(records)
        keys = [record.key for record in records if record.key is not None]
        topic.null_keys += len(records) - len(keys)
        topic.tombstones += sum(record.value is None for record in records)
        self._keys += keys
        self._sizes += [len(record.key or b"") + len(record.value or b"") for record in records]
        times = [record.timestamp_ms for record in records]
        latest = list(accumulate(times, max, initial=self._latest_ms))
        topic.lateness.add_counts(
            Counter(before - time for before, time in zip(latest, times, strict=False) if before > time)
        )
        self._latest_ms = latest[-1]
        self._times += times
        if len(self._sizes) >= COUNT_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Count the collected records."""
        topic, read = self._topic, self._topic.read
        topic.keys.add_counts(Counter(self._keys))
        topic.record_sizes.add_counts(Counter(self._sizes))
        # By bucket, so that each bucket is updated once.
        step = read.bucket_ms
        buckets = [time_ms // step for time_ms in self._times]
        sizes = dict.fromkeys(buckets, 0)
        for bucket, size in zip(buckets, self._sizes, strict=True):
            sizes[bucket] += size
        for bucket, count in Counter(buckets).items():
            if bucket >= 0:
                read.add(bucket * step, records=count, size=sizes[bucket])
        self._keys, self._sizes, self._times = [], [], []


def _note_times(throughput: Throughput, found: SegmentFacts, header: BatchHeader) -> None:
    """Spread a batch's records and bytes evenly over its time."""
    last, first = header.max_timestamp_ms, first_timestamp_ms(header)
    if last < 0:
        return
    first = min(first, last) if first >= 0 else last
    found.times = union((found.times, (first, last)))
    records, size = header.record_count, header.size
    parts = min(MAX_TIME_PARTS, records, (last - first) // throughput.bucket_ms + 1)
    for part in range(parts):
        throughput.add(
            last if parts == 1 else first + (last - first) * part // (parts - 1),
            records=records * (part + 1) // parts - records * part // parts,
            size=size * (part + 1) // parts - size * part // parts,
        )


def _position_of(log: LogReader, segments: Sequence[Segment], offset: int) -> tuple[int, int]:
    """Return the number of the segment with an offset, and the position of its batch; the end for the next offset."""
    if offset >= segments[-1].next_offset:
        return len(segments) - 1, segments[-1].size
    seek = log.seek(offset)
    numbers = {segment.base_offset: number for number, segment in enumerate(segments)}
    return (numbers[seek.segment], seek.position) if seek.segment in numbers else (0, 0)
