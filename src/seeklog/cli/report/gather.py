"""Reading a store into facts: headers of all batches, records of all or of evenly spread runs, every checksum.

Memory is bounded by the number of segments, not of records: figures are sketches, positions are thinned. Damage does
not end it: what cannot be read is told where it lies.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import seeklog
from seeklog.cli.report.facts import PartitionFacts, SegmentFacts, StoreFacts, TopicFacts
from seeklog.clock import Clock, SystemClock
from seeklog.config import INT64_MAX
from seeklog.errors import SeeklogError
from seeklog.log import first_timestamp_ms, scan_headers, take_snapshot
from seeklog.log.check import Finding, Severity, conclude, inspect_segment, plan_inspection
from seeklog.record import codec
from seeklog.record.batch import BatchHeader
from seeklog.record.layout import CODEC_MASK, HEADER_SIZE
from seeklog.record.sketch import Throughput

if TYPE_CHECKING:
    from seeklog.cli.show.progress import Progress
    from seeklog.log import LogReader, Segment
    from seeklog.record.record import Record
    from seeklog.store import Store

Item = TypeVar("Item")

# More topics than this are in the table only, unless they are named: a page is to be read.
TOPICS_MOST: Final = 20
# Records are decoded at some million a second: so many take a few seconds.
RECORDS_READ_MOST: Final = 2_000_000
# Records are read in runs. Smaller ones would cost more seeks than reading, larger ones would not spread.
RUN_RECORDS: Final = 2048
RUNS_MOST: Final = 2000
# A map is about so many points wide; more index entries could not be told apart.
INDEX_POINTS_MOST: Final = 1000
# Batches that are expanded to learn how well they were compressed, in a whole store and in one segment.
EXPANDED_MOST: Final = 8192
EXPANDED_PER_SEGMENT: Final = 64
# A batch that spans many buckets of time is taken as even over so many parts.
TIME_PARTS_MOST: Final = 64
COUNT_AT_ONCE: Final = 1 << 16


class Thinned(Generic[Item]):
    """Keeps at most so many of a sequence, evenly spread over all of it."""

    def __init__(self, most: int) -> None:
        self.kept: list[Item] = []
        self.seen = 0
        self._most = max(2, most)
        self._step = 1

    def add(self, item: Item) -> None:
        """Take the next one, or not."""
        if self.seen % self._step == 0:
            self.kept.append(item)
            if len(self.kept) > self._most:
                self.kept = self.kept[::2]
                self._step *= 2
        self.seen += 1


@dataclass(slots=True)
class _Run:
    """Batches that stand one behind the other."""

    start: int
    stop: int
    records: int
    size: int
    before_ms: int
    """The latest time before it, or -1."""


@dataclass
class _Runs:
    """The runs of one partition, as its headers go by."""

    records_each: int
    runs: list[_Run] = field(default_factory=list)
    latest_ms: int = -1

    def add(self, header: BatchHeader) -> None:
        if not self.runs or self.runs[-1].records >= self.records_each:
            self.runs.append(_Run(header.base_offset, header.next_offset, 0, 0, self.latest_ms))
        last = self.runs[-1]
        last.stop = header.next_offset
        last.records += header.record_count
        last.size += header.size
        self.latest_ms = max(self.latest_ms, header.max_timestamp_ms)


def gather(
    store: Store,
    *,
    name: str,
    topics: Sequence[str] = (),
    check: bool = True,
    records_most: int = RECORDS_READ_MOST,
    progress: Progress,
    clock: Clock | None = None,
) -> StoreFacts:
    """Read a store, or some topics of it. With `check` every byte is held against its checksum.

    `name` is what the user calls the store: a page that is handed on should not tell where their home is.
    """
    for topic in topics:
        store.describe_topic(topic)  # all names are right before any is read
    chosen, left_out = _choose(store, topics)
    every = sum(store.describe_topic(topic).record_count for topic in chosen)
    stride = -(-every // records_most) if records_most else 0
    segment_count = sum(each.segment_count for topic in chosen for each in store.describe_topic(topic).partitions)
    facts = StoreFacts(
        location=name,
        made_at_ms=(clock or SystemClock()).now_ms(),
        version=seeklog.__version__,
        topics=[],
        left_out=left_out,
        lags={},
        is_checked=check,
    )
    for topic in chosen:
        reader = _TopicReader(
            store,
            topic,
            segment_count=segment_count,
            records_most=records_most,
            stride=stride,
            check=check,
            progress=progress,
        )
        facts.topics.append(reader.read())
    for group in store.groups():
        try:
            facts.lags[group] = [lag for lag in store.lag(group) if not topics or lag.topic in topics]
        except SeeklogError as error:
            facts.problems.append(f"group {group}: {error}")
    if topics:
        facts.lags = {group: lags for group, lags in facts.lags.items() if lags}
    return facts


def work_of(store: Store, topics: Sequence[str], *, check: bool, records_most: int = RECORDS_READ_MOST) -> int:
    """Return how many bytes `gather` will read, about."""
    described = [store.describe_topic(name) for name in topics or _choose(store, ())[0]]
    size = sum(each.size_bytes for each in described)
    records = sum(each.record_count for each in described)
    return (size if check else 0) + int(size * min(1.0, records_most / records if records else 0.0))


def _choose(store: Store, topics: Sequence[str]) -> tuple[list[str], list[str]]:
    if topics:
        return list(dict.fromkeys(topics)), []
    sizes = {name: store.describe_topic(name).size_bytes for name in store.topics()}
    largest_first = sorted(sizes, key=lambda name: (-sizes[name], name))
    return largest_first[:TOPICS_MOST], largest_first[TOPICS_MOST:]


class _TopicReader:
    def __init__(
        self,
        store: Store,
        name: str,
        *,
        segment_count: int,
        records_most: int,
        stride: int,
        check: bool,
        progress: Progress,
    ) -> None:
        description = store.describe_topic(name)
        self._store = store
        self._progress = progress
        self._check = check
        self._records_most = records_most
        self._stride = stride
        """Of so many runs one is read; 0: none."""
        self._numbers = [each.partition for each in description.partitions]
        self._segment_count = max(1, segment_count)
        self._config = description.config
        self._facts = TopicFacts(name=name, configured=dict(description.configured))
        self._counted = _RecordCounter(self._facts)

    def read(self) -> TopicFacts:
        for number in self._numbers:
            self._facts.partitions.append(self._read_partition(number))
        self._counted.flush()
        return self._facts

    def _read_partition(self, number: int) -> PartitionFacts:
        log = self._store.log(self._facts.name, number)
        facts = PartitionFacts(
            partition=number,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            recovery_point=log.recovery_point,
            needs_recovery=log.needs_recovery,
        )
        runs = _Runs(min(max(RUN_RECORDS, facts.records // RUNS_MOST), self._records_most))
        try:
            self._read_segments(log, facts, runs)
            if self._check:
                self._inspect(log, facts)
            self._read_runs(log, facts, runs.runs)
        except (SeeklogError, OSError) as error:
            facts.problem = str(error)
        return facts

    # ------------------------------------------------------------ headers

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
                self._read_index(segment, found)
            except SeeklogError as error:
                found.problem = str(error)
        for name, offset in (
            ("log start", facts.log_start_offset),
            ("recovery point", facts.recovery_point),
            ("high watermark", facts.high_watermark),
            ("log end", facts.log_end_offset),
        ):
            with contextlib.suppress(SeeklogError):
                facts.places[name] = _place_of(log, segments, offset)

    def _read_headers(self, segment: Segment, facts: PartitionFacts, found: SegmentFacts, runs: _Runs) -> None:
        topic = self._facts
        per_segment = max(4, min(EXPANDED_PER_SEGMENT, EXPANDED_MOST // self._segment_count))
        compressed: Thinned[tuple[int, BatchHeader]] = Thinned(per_segment)
        for position, header in scan_headers(segment, facts.log_start_offset, INT64_MAX):
            found.batches += 1
            found.codecs[header.codec] += header.size
            topic.batch_sizes.add(header.size)
            if header.attributes & CODEC_MASK:
                compressed.add((position, header))
            if header.is_control or not header.record_count:
                continue
            found.records += header.record_count
            topic.records_seen += header.record_count
            _note_time(topic.stored, found, header)
            if header.base_offset < facts.high_watermark:
                runs.add(header)
        for position, header in compressed.kept:
            raw = segment.read(header.size, position)
            with contextlib.suppress(SeeklogError):  # the inspection tells it, with the byte
                body = codec.decompress(
                    header.attributes & CODEC_MASK, raw[HEADER_SIZE:], limit=self._config.max_decompressed_bytes
                )
                found.sampled_bytes += header.size
                found.sampled_raw_bytes += HEADER_SIZE + len(body)

    def _read_index(self, segment: Segment, found: SegmentFacts) -> None:
        index = segment.indexes.offsets
        found.index_entries = len(index)
        most = max(4, INDEX_POINTS_MOST // self._segment_count)
        step = max(1, len(index) // most)
        found.index_positions = [index[number].position for number in range(0, len(index), step)]

    # ------------------------------------------------------------ damage

    def _inspect(self, log: LogReader, facts: PartitionFacts) -> None:
        source = self._store.archivable([self._facts.name])
        (topic,) = source.topics
        files, inherited = source.files, topic.inherited[facts.partition]
        plan = plan_inspection(log.location, config=topic.config, inherited=inherited, files=files)
        inspections = []
        for subject in plan.subjects:
            inspections.append(inspect_segment(subject, files=files))
            self._progress.advance(subject.size)
        facts.findings = [
            finding for finding in conclude(plan, inspections, files=files) if finding.severity is not Severity.NOTE
        ]
        by_base = {segment.base_offset: segment for segment in facts.segments}
        for finding in facts.findings:
            damaged = by_base.get(-1 if finding.segment is None else finding.segment)
            if damaged is not None and finding.severity is Severity.ERROR:
                damaged.damage.append(_position_in_log(finding))

    # ------------------------------------------------------------ records

    def _read_runs(self, log: LogReader, facts: PartitionFacts, runs: list[_Run]) -> None:
        if not self._stride:
            return
        # From the middle of each stretch, so that one run alone is not always the oldest.
        for run in runs[self._stride // 2 :: self._stride] or runs[:1]:
            start, stop = max(run.start, facts.log_start_offset), min(run.stop, facts.high_watermark)
            if start >= stop:
                continue
            self._counted.begin(run.before_ms)
            with contextlib.suppress(SeeklogError):  # as above
                for chunk in log.scan_chunks(start, stop):
                    self._counted.add(chunk)
            self._progress.advance(run.size)


class _RecordCounter:
    """Counts records, many at once: Python counts a list quickly, and single things slowly."""

    def __init__(self, facts: TopicFacts) -> None:
        self._facts = facts
        self._keys: list[bytes] = []
        self._sizes: list[int] = []
        self._times: list[int] = []
        self._latest_ms = -1

    def begin(self, before_ms: int) -> None:
        """Take note that what follows has these times before it."""
        self._latest_ms = before_ms

    def add(self, records: list[Record]) -> None:
        facts = self._facts
        facts.records_read += len(records)
        keys = [record.key for record in records if record.key is not None]
        facts.null_keys += len(records) - len(keys)
        facts.tombstones += sum(record.value is None for record in records)
        self._keys += keys
        self._sizes += [len(record.key or b"") + len(record.value or b"") for record in records]
        times = [record.timestamp_ms for record in records]
        behind = [
            latest - time for latest, time in zip(accumulate(times, max, initial=self._latest_ms), times, strict=False)
        ]
        facts.lateness.add_counts(Counter(late for late in behind if late > 0))
        self._latest_ms = max(self._latest_ms, *times)
        self._times += times
        if len(self._sizes) >= COUNT_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Count what has gathered."""
        self._facts.keys.add_counts(Counter(self._keys))
        self._facts.record_sizes.add_counts(Counter(self._sizes))
        read = self._facts.read
        # As coarse as the buckets have become: each is added to once, and not for every record.
        step = read.bucket_ms
        buckets = [time_ms // step for time_ms in self._times]
        sizes = dict.fromkeys(buckets, 0)
        for bucket, size in zip(buckets, self._sizes, strict=True):
            sizes[bucket] += size
        for bucket, count in Counter(buckets).items():
            if bucket >= 0:
                read.add(bucket * step, records=count, size=sizes[bucket])
        self._keys, self._sizes, self._times = [], [], []


def _note_time(throughput: Throughput, found: SegmentFacts, header: BatchHeader) -> None:
    last, first = header.max_timestamp_ms, first_timestamp_ms(header)
    if last < 0:
        return
    first = min(first, last) if first >= 0 else last
    found.first_ms = first if found.first_ms is None else min(found.first_ms, first)
    found.last_ms = last if found.last_ms is None else max(found.last_ms, last)
    parts = min(TIME_PARTS_MOST, header.record_count, (last - first) // throughput.bucket_ms + 1)
    for (records, size), time_ms in zip(
        _shares(header.record_count, header.size, parts), _moments(first, last, parts), strict=True
    ):
        throughput.add(time_ms, records=records, size=size)


def _shares(records: int, size: int, parts: int) -> Iterator[tuple[int, int]]:
    """Cut two numbers into so many parts that add up to them."""
    for part in range(parts):
        yield (
            records * (part + 1) // parts - records * part // parts,
            size * (part + 1) // parts - size * part // parts,
        )


def _moments(first: int, last: int, parts: int) -> Iterable[int]:
    return [last] if parts == 1 else [first + (last - first) * part // (parts - 1) for part in range(parts)]


def _place_of(log: LogReader, segments: Sequence[Segment], offset: int) -> tuple[int, int]:
    """Return the number of the segment that an offset lies in, and the byte of its batch; the end for the next one."""
    if not segments or offset >= segments[-1].next_offset:
        return len(segments) - 1, segments[-1].size if segments else 0
    seek = log.seek(offset)
    for number, segment in enumerate(segments):
        if segment.base_offset == seek.segment:
            return number, seek.position
    return 0, 0


def _position_in_log(finding: Finding) -> int:
    return finding.position or 0 if finding.path.endswith(".log") else -1
