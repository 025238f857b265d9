"""A log compared with a plain list, through every operation in any order.

Hypothesis draws a configuration and then steps: appends of all kinds, reads of all kinds, rolls (segments are
small), flushes, producers that number their records, repeat some, skip some or return from the dead, retention
with a clock that jumps, deletes, truncations, clean reopens, crashes, and a reader next to the writer. After every step
the log must agree with the list. 100 runs of 30 steps by default; SEEKLOG_MODEL_EXAMPLES sets another number.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from log.workbench import START_MS, FakeClock, QuickFiles, crashed_copy, offsets, segment_bases
from record.batches import CODECS, Sketch, batch_of
from record.batches import Row as HandMade
from record.test_key_table import TWINS
from seeklog import Log, LogConfig, LogReader, ProducerSequence, Record
from seeklog.errors import OffsetOutOfRange, OutOfOrderSequence, ProducerFenced
from seeklog.record.batch import encode_batch

EXAMPLES = int(os.environ.get("SEEKLOG_MODEL_EXAMPLES", "0")) or 100
STEPS = 30
DAY_MS = 24 * 3600 * 1000

# The hashes of the last two begin with the same 64 bits.
KEYS = [b"", b"a", b"b", *TWINS]
small_bytes = st.one_of(st.none(), st.binary(max_size=30))
headers = st.lists(st.tuples(st.sampled_from(["", "h", "ü", "\udcff"]), small_bytes), max_size=2).map(tuple)
timestamps = st.one_of(
    st.none(),
    st.just(-1),
    st.integers(START_MS - 3 * DAY_MS, START_MS + 3 * DAY_MS),
    st.integers(START_MS, START_MS + 20),
)
records = st.builds(
    lambda value, key, headers, timestamp_ms: Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms),
    small_bytes,
    st.one_of(small_bytes, st.sampled_from(KEYS)),
    headers,
    timestamps,
)
PRODUCERS = (7, 2**62)
producer_ids = st.sampled_from(PRODUCERS)
# A position in the log as a share of its length, a little beyond both ends.
places = st.floats(-0.05, 1.05)


@dataclass(frozen=True)
class Numbered:
    """A batch of a producer."""

    place: ProducerSequence
    records: list[Record]
    offsets: range


@dataclass
class Model:
    """The expected content of a log: rows by offset, starts of batches, producers, and three numbers."""

    start: int
    end: int
    high_watermark: int
    rows: dict[int, Record] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    stamps: dict[int, int] = field(default_factory=dict)
    """The starts of batches without records, and the newest time that each had."""
    numbered: list[Numbered] = field(default_factory=list)
    """Every batch of a producer, including deleted ones."""

    def last_of(self, producer_id: int) -> Numbered | None:
        return next((batch for batch in reversed(self.numbered) if batch.place.producer_id == producer_id), None)

    def add(self, rows: list[tuple[int, Record]], *, span: int) -> None:
        """Add a batch of `span` offsets; rows are (offset inside it, record with its final timestamp)."""
        self.batches.append(self.end)
        for delta, record in rows:
            self.rows[self.end + delta] = Record(
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
                offset=self.end + delta,
            )
        self.end += span

    def visible(self, start: int | None = None, stop: int | None = None) -> list[Record]:
        first = self.start if start is None else max(start, self.start)
        last = self.high_watermark if stop is None else min(stop, self.high_watermark)
        return [record for offset, record in self.rows.items() if first <= offset < last]

    def at_time(self, timestamp_ms: int) -> int | None:
        return next((r.offset for r in self.visible() if (r.timestamp_ms or 0) >= timestamp_ms), None)

    def latest(self, key: bytes, start: int | None = None, stop: int | None = None) -> Record | None:
        return next((r for r in reversed(self.visible(start, stop)) if r.key == key), None)

    def truncate(self, offset: int) -> None:
        """Drop the batch that contains the offset, and all after it."""
        if offset < self.end:
            self.end = max(base for base in self.batches if base <= offset)
        self.batches = [base for base in self.batches if base < self.end]
        self.rows = {each: record for each, record in self.rows.items() if each < self.end}
        self.stamps = {each: stamp for each, stamp in self.stamps.items() if each < self.end}
        self.numbered = [batch for batch in self.numbered if batch.offsets.stop <= self.end]
        self.high_watermark = min(self.high_watermark, self.end)
        self.start = min(self.start, self.end)

    def place(self, share: float) -> int:
        return round(self.start + share * (self.end - self.start))


def new_place(producer_id: int) -> ProducerSequence:
    """Return a producer's first sequence: close to where sequences wrap."""
    return ProducerSequence(producer_id=producer_id, sequence=2**31 - 4)


class LogMachine(RuleBasedStateMachine):
    """A log, a reader next to it, and the model of both."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="seeklog-model-"))
        self.path = self.home / "0"
        self.clock = FakeClock()
        self.files = QuickFiles()
        self.clock_readings = [self.clock.now_ms()]
        self.reader: Log | None = None
        self.crashes = 0

    @initialize(
        flush=st.sampled_from(["os", "batch"]),
        high_watermark=st.sampled_from(["auto", "auto", "manual"]),
        initial_offset=st.sampled_from([0, 0, 5, 2**40]),
        append_time=st.booleans(),
        data=st.data(),
    )
    def begin(
        self, flush: str, high_watermark: str, initial_offset: int, append_time: bool, data: st.DataObject
    ) -> None:
        self.fixed: dict[str, Any] = {
            "flush": flush,
            "high_watermark": high_watermark,
            "initial_offset": initial_offset,
            "message_timestamp_type": "LogAppendTime" if append_time else "CreateTime",
            # Longer than any run: the expiration of producers has its own tests.
            "producer_id_expiration_ms": 1000 * DAY_MS,
        }
        self.model = Model(initial_offset, initial_offset, initial_offset)
        self.open(data)

    def open(self, data: st.DataObject) -> None:
        """Open the log at its path, possibly with another configuration than before."""
        self.config = LogConfig(
            segment_bytes=data.draw(st.sampled_from([300, 700, 5000]), "segment_bytes"),
            index_interval_bytes=data.draw(st.sampled_from([0, 150, 4096]), "index_interval_bytes"),
            index_interval_records=data.draw(st.sampled_from([0, 0, 2]), "index_interval_records"),
            segment_ms=data.draw(st.sampled_from([1000, 10 * DAY_MS]), "segment_ms"),
            retention_ms=data.draw(st.sampled_from([-1, DAY_MS]), "retention_ms"),
            retention_bytes=data.draw(st.sampled_from([-1, 0, 800]), "retention_bytes"),
            compression_type=data.draw(st.sampled_from(["none", "none", "lz4", "zstd"]), "compression_type"),
            max_open_segments=data.draw(st.sampled_from([1, 64]), "max_open_segments"),
            key_index=data.draw(st.sampled_from(["lazy", "seal", "none"]), "key_index"),
            **self.fixed,
        )
        self.log = Log(self.path, config=self.config, clock=self.clock, files=self.files, background=False)

    def open_reader(self) -> Log:
        if self.reader is None:
            self.reader = LogReader(self.path, config=self.config, clock=self.clock, files=self.files)
        return self.reader

    def teardown(self) -> None:
        if self.reader is not None:
            self.reader.close()
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.home)

    # ------------------------------------------------------------ appending

    def stamped(self, record: Record) -> Record:
        """Return a record with the time that the log assigns."""
        keeps = self.fixed["message_timestamp_type"] == "CreateTime" and record.timestamp_ms is not None
        return Record(
            record.value,
            key=record.key,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms if keeps else self.clock.now_ms(),
        )

    def appended(self) -> None:
        if self.fixed["high_watermark"] == "auto":
            self.model.high_watermark = self.model.end

    @rule(record=records)
    def append(self, record: Record) -> None:
        offset = self.log.append(record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp_ms)

        assert offset == self.model.end
        self.model.add([(0, self.stamped(record))], span=1)
        self.appended()

    @rule(batch=st.lists(records, min_size=1, max_size=6))
    def append_many(self, batch: list[Record]) -> None:
        if sum(100 + len(r.value or b"") + len(r.key or b"") for r in batch) > self.config.segment_bytes:
            batch = batch[:1]
        taken = self.log.append_many(batch)

        assert taken == range(self.model.end, self.model.end + len(batch))
        self.model.add([(delta, self.stamped(record)) for delta, record in enumerate(batch)], span=len(batch))
        self.appended()

    @rule(batch=st.lists(records, min_size=1, max_size=2), codec=st.sampled_from(CODECS), gap=st.integers(0, 4))
    def append_batches(self, batch: list[Record], codec: int, gap: int) -> None:
        """A batch of a producer, then one that compaction has emptied."""
        stamped = [
            Record(r.value, key=r.key, headers=r.headers, timestamp_ms=r.timestamp_ms or START_MS) for r in batch
        ]
        raw = encode_batch(stamped, codec=codec)
        if gap:
            raw += batch_of(b"", record_count=0, last_delta=gap - 1, max_timestamp=START_MS)
        if len(raw) > self.config.segment_bytes:
            return
        taken = self.log.append_batches(raw)

        assert taken == range(self.model.end, self.model.end + len(batch) + gap)
        self.model.add([(delta, self.stamped(record)) for delta, record in enumerate(stamped)], span=len(batch))
        if gap:
            self.model.stamps[self.model.end] = self.stamped(Record(None, timestamp_ms=START_MS)).timestamp_ms or 0
            self.model.add([], span=gap)
        self.appended()

    @rule(deltas=st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True).map(sorted), last=st.integers(6, 8))
    def append_a_batch_with_gaps(self, deltas: list[int], last: int) -> None:
        sketch = Sketch(tuple(HandMade(b"%d" % delta, delta=delta) for delta in deltas), fields={"last_delta": last})
        self.log.append_batches(sketch.encode())

        rows = [(row.delta, self.stamped(row.record(0))) for row in sketch.rows]
        self.model.add(rows, span=last + 1)
        self.appended()

    # ------------------------------------------------------------ producers

    def sequence_of(self, producer_id: int) -> ProducerSequence:
        last = self.model.last_of(producer_id)
        return last.place.after(len(last.records)) if last is not None else new_place(producer_id)

    def append_numbered(self, place: ProducerSequence, batch: list[Record], *, raw: bool) -> range:
        if raw:
            stamped = [Record(r.value, timestamp_ms=START_MS) for r in batch]
            producer_id, epoch, sequence = place.fields
            encoded = encode_batch(stamped, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            return self.log.append_batches(encoded)
        return self.log.append_many(batch, producer=place)

    @rule(producer_id=producer_ids, count=st.integers(1, 3), raw=st.booleans(), bump=st.booleans())
    def append_as_a_producer(self, producer_id: int, count: int, raw: bool, bump: bool) -> None:
        place = self.sequence_of(producer_id)
        if bump:
            place = ProducerSequence(producer_id=producer_id, epoch=place.epoch + 1)
        batch = [Record(b"%d" % number, timestamp_ms=START_MS) for number in range(count)]
        taken = self.append_numbered(place, batch, raw=raw)

        assert taken == range(self.model.end, self.model.end + count)
        self.model.add([(delta, self.stamped(record)) for delta, record in enumerate(batch)], span=count)
        self.model.numbered.append(Numbered(place, batch, taken))
        self.appended()

    @rule(producer_id=producer_ids, raw=st.booleans())
    def repeat_the_last_batch(self, producer_id: int, raw: bool) -> None:
        """The log contains it once, whatever has happened since."""
        last = self.model.last_of(producer_id)
        if last is not None:
            assert self.append_numbered(last.place, last.records, raw=raw) == last.offsets

    @rule(producer_id=producer_ids, ahead=st.integers(1, 2**30 - 10))
    def leave_a_gap(self, producer_id: int, ahead: int) -> None:
        if self.model.last_of(producer_id) is not None:
            with pytest.raises(OutOfOrderSequence):
                self.append_numbered(self.sequence_of(producer_id).after(ahead), [Record(b"late")], raw=False)

    @rule(producer_id=producer_ids)
    def come_back_from_the_dead(self, producer_id: int) -> None:
        last = self.model.last_of(producer_id)
        if last is not None and last.place.epoch:
            old = ProducerSequence(producer_id=producer_id, epoch=last.place.epoch - 1)
            with pytest.raises(ProducerFenced):
                self.append_numbered(old, [Record(b"zombie")], raw=False)

    @invariant()
    def producers_agree(self) -> None:
        if hasattr(self, "log"):
            for producer_id in PRODUCERS:
                known = self.log.next_sequence(producer_id)
                last = self.model.last_of(producer_id)
                assert known == (last.place.after(len(last.records)) if last is not None else None)

    @precondition(lambda self: self.fixed["high_watermark"] == "manual")
    @rule(place=places)
    def advance_high_watermark(self, place: float) -> None:
        offset = self.model.place(place)
        if offset > self.model.end:
            with pytest.raises(OffsetOutOfRange):
                self.log.advance_high_watermark(offset)
            return
        self.log.advance_high_watermark(offset)
        self.model.high_watermark = max(self.model.high_watermark, offset)

    # ------------------------------------------------------------ reading

    @rule(place=places, max_records=st.integers(1, 8))
    def read(self, place: float, max_records: int) -> None:
        offset = self.model.place(place)
        if not self.model.start <= offset <= self.model.end:
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset)
            return
        found = list(self.log.read(offset, max_records=max_records))
        assert found == self.model.visible(offset)[:max_records]
        uncommitted = list(self.log.read_uncommitted(offset, max_records=max_records))
        assert uncommitted == [record for each, record in self.model.rows.items() if each >= offset][:max_records]

    @rule(place=places, length=st.integers(0, 30))
    def scan(self, place: float, length: int) -> None:
        start = min(max(self.model.place(place), self.model.start), self.model.end)
        expected = self.model.visible(start, start + length)

        assert list(self.log.scan(start, start + length)) == expected
        assert list(self.log.scan_reverse(start, start + length)) == expected[::-1]
        table = self.log.scan_arrow(start, start + length, columns=["value", "offset"], batch_rows=3).read_all()
        assert table.to_pydict() == {"value": [r.value for r in expected], "offset": offsets(expected)}

    @rule(timestamp_ms=timestamps)
    def seek_by_time(self, timestamp_ms: int | None) -> None:
        wanted = 0 if timestamp_ms is None else timestamp_ms
        assert self.log.offset_at_time(wanted) == self.model.at_time(wanted)

    @rule(key=st.one_of(st.sampled_from(KEYS), st.binary(max_size=1)))
    def find_by_key(self, key: bytes) -> None:
        assert self.log.latest_for_key(key) == self.model.latest(key)
        assert self.log.contains_key(key) == (self.model.latest(key) is not None)

    @rule(key=st.sampled_from(KEYS), place=places, length=st.integers(0, 30))
    def find_by_key_in_a_range(self, key: bytes, place: float, length: int) -> None:
        start = min(max(self.model.place(place), self.model.start), self.model.end)
        found = self.log.latest_for_key(key, start=start, end=start + length)
        assert found == self.model.latest(key, start, start + length)

    @rule()
    def make_key_indexes(self) -> None:
        self.log.make_key_indexes()

    @rule(place=places)
    def seek(self, place: float) -> None:
        offset = self.model.place(place)
        if not self.model.start <= offset < self.model.end:
            with pytest.raises(OffsetOutOfRange):
                self.log.seek(offset)
            return
        found = self.log.seek(offset)
        base = max(base for base in self.model.batches if base <= offset)
        with open(found.path, "rb") as file:
            file.seek(found.position)
            assert int.from_bytes(file.read(8), "big") == base

    @rule()
    def read_raw_batches(self) -> None:
        batches = list(self.log.read_batches(self.model.start, uncommitted=True, max_bytes=1 << 30))
        first = self.batch_of(self.model.start) if self.model.start < self.model.end else self.model.end
        expected = [base for base in self.model.batches if base >= first]
        assert [batch.base_offset for batch in batches] == expected
        sizes = sum(part.size for part in self.log.read_ranges(self.model.start, uncommitted=True, max_bytes=1 << 30))
        assert sizes == sum(batch.header.size for batch in batches)

    def batch_of(self, offset: int) -> int:
        return max((base for base in self.model.batches if base <= offset), default=offset)

    @rule()
    def look_on(self) -> None:
        """A reader in another process, possibly after sleeping for any number of steps."""
        reader = self.open_reader()
        expected = self.model.visible()
        assert list(reader.scan()) == expected
        assert (reader.log_start_offset, reader.high_watermark) == (self.model.start, self.model.high_watermark)
        assert list(reader.scan_reverse()) == expected[::-1]
        for key in KEYS:
            assert reader.latest_for_key(key) == self.model.latest(key)
        for record in expected[:: max(1, len(expected) // 4)]:
            assert list(reader.read(record.offset, max_records=1)) == [record]
            assert reader.offset_at_time(record.timestamp_ms) == self.model.at_time(record.timestamp_ms)

    # ------------------------------------------------------------ time and retention

    @rule(ms=st.sampled_from([1, 500, 2000, DAY_MS // 2, 2 * DAY_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)
        self.clock_readings.append(self.clock.now_ms())

    @rule(days=st.integers(-4, 4))
    def the_clock_jumps(self, days: int) -> None:
        self.clock.jump_to(START_MS + days * DAY_MS)
        self.clock_readings.append(self.clock.now_ms())

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.model.end

    @rule()
    def retain(self) -> None:
        bases = segment_bases(self.path)
        sizes = {base: (self.path / f"{base:020d}.log").stat().st_size for base in bases}
        deleted = self.log.retain()

        left = segment_bases(self.path)
        assert left == bases[deleted:]
        assert left, "the active segment is never deleted"
        total = sum(sizes.values())
        for base, following in itertools.pairwise(bases[: deleted + 1]):
            assert following <= self.model.high_watermark
            is_below = following <= self.model.start
            assert is_below or self.is_too_large(total, sizes[base]) or self.may_be_too_old(base, following)
            total -= sizes[base]
        if len(left) > 1 and left[1] <= self.model.high_watermark:
            assert left[1] > self.model.start
            assert not self.is_too_large(total, sizes[left[0]])
            assert not self.is_too_old(left[0], left[1])
        if deleted:
            self.model.start = max(self.model.start, left[0])

    def is_too_large(self, total: int, size: int) -> bool:
        return self.config.retention_bytes >= 0 and total - size >= self.config.retention_bytes

    def newest(self, base: int, following: int) -> int:
        stamps = [(each, r.timestamp_ms) for each, r in self.model.rows.items()] + [*self.model.stamps.items()]
        return max((stamp for each, stamp in stamps if base <= each < following), default=-1)

    def is_too_old(self, base: int, following: int) -> bool:
        """By its newest record alone; if that is from the future, the time of sealing may count."""
        newest, limit = self.newest(base, following), self.config.retention_ms
        return limit >= 0 and newest >= 0 and self.clock.now_ms() - newest > limit

    def may_be_too_old(self, base: int, following: int) -> bool:
        """A segment counts as no newer than the time of its sealing, whenever that was."""
        limit = self.config.retention_ms
        return (limit >= 0 and self.clock.now_ms() - min(self.clock_readings) > limit) or self.is_too_old(
            base, following
        )

    @rule(place=places)
    def delete_before(self, place: float) -> None:
        offset = self.model.place(place)
        if offset > self.model.high_watermark or offset < 0:
            with pytest.raises(OffsetOutOfRange):
                self.log.delete_before(offset)
            return
        self.log.delete_before(offset)
        self.model.start = max(self.model.start, offset)

    @rule(place=places)
    def truncate_to(self, place: float) -> None:
        offset = self.model.place(place)
        if not self.model.start <= offset <= self.model.end:
            with pytest.raises(OffsetOutOfRange):
                self.log.truncate_to(offset)
            return
        end = self.log.truncate_to(offset)
        self.model.truncate(offset)
        assert end == self.model.end

    # ------------------------------------------------------------ closing and crashing

    @rule(data=st.data())
    def reopen(self, data: st.DataObject) -> None:
        self.log.close()
        self.open(data)

        assert self.log.recovery.clean
        assert self.log.recovery_point == self.model.end

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The process dies between two calls. Its writes stay; its lock and its memory are gone."""
        self.crashes += 1
        left = crashed_copy(self.path, self.home / str(self.crashes))
        self.log.close()
        if self.reader is not None:
            self.reader.close()
            self.reader = None
        self.path = left
        self.open(data)

        assert self.log.recovery.cut_bytes == 0
        # A manual watermark is saved with the checkpoint, about once a second.
        assert self.log.high_watermark <= self.model.high_watermark
        if self.fixed["high_watermark"] == "manual":
            self.model.high_watermark = self.log.high_watermark

    # ------------------------------------------------------------ invariants

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_start_offset == self.model.start
        assert self.log.log_end_offset == self.model.end
        assert self.log.high_watermark == self.model.high_watermark
        assert self.log.recovery_point <= self.model.end

    @invariant()
    def segments_follow_each_other(self) -> None:
        if not hasattr(self, "log"):
            return
        bases = segment_bases(self.path)
        assert bases[0] <= self.model.start
        assert set(bases) - {self.model.end} <= {*self.model.batches, bases[0]}


@pytest.mark.id("log-model")
def test_log_behaves_like_a_list() -> None:
    run_state_machine_as_test(
        LogMachine,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, report_multiple_bugs=False),
    )
