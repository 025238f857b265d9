"""Runs the engine on a simulated disk, records its promises, and judges crashed disks.

A `Recorder` passes each call to a `Log` and keeps the promise that is valid at every moment. At each boundary between
two operations of the disk an observer may enumerate the possible crash states, reopen each (`reopen`), and judge it
(`Promise.violations`).

The one invariant: a promise is widened before a call that may break it (a truncation, a retention) and narrowed after
a call that strengthens it (an append, a flush) has returned.
"""

from __future__ import annotations

import itertools
import struct
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from crash.sim import Detail, Disk, Rename, SimFiles, copied
from log.workbench import START_MS, FakeClock
from seeklog import Log, LogConfig, LogReader, ProducerSequence, Record, names
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import DiskFull, NotAccessible, SeeklogError
from seeklog.log.partition import Partition
from seeklog.record.batch import encode_batch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from seeklog.files import Files
    from seeklog.record.batch import Batch, BatchHeader

PARENT: Final = "/data"
PATH: Final = f"{PARENT}/orders-0"
NEW_DISK: Final = Disk.of({}, directories=[PARENT])
SENTINEL: Final = b"appended after the crash"


class Content(NamedTuple):
    """A record without its offset."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int

    def __str__(self) -> str:
        return f"{len(self.value or b'')} bytes stamped {self.timestamp_ms}"

    @classmethod
    def of(cls, record: Record) -> Content:
        assert record.timestamp_ms is not None
        return cls(record.key, record.value, tuple(record.headers), record.timestamp_ms)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The content of a crashed disk when it was opened for writing."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    leader_epoch: int = 0
    epoch_ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    records: dict[int, Content] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    """The last offset of each producer that is known."""
    read_only: dict[int, Content] = field(default_factory=dict)
    """What a reader saw before recovery."""
    is_recovered: bool = field(default=True, compare=False)
    """Whether all that is there is known to stay: a reader whose disk did not let a store recover sees less of it."""
    problem: str = ""
    """What went wrong without any promise being needed to see it."""


@dataclass(slots=True)
class Promise:
    """The promise to a caller."""

    start_at_least: int = 0
    start_at_most: int = 0
    durable_end: int = 0
    """Records below survive power loss."""
    acknowledged_end: int = 0
    """Records below survive a process crash."""
    watermark_at_most: int | None = None
    """With a manual high watermark: the highest that was asked for since the log was opened or cut."""
    epoch_at_least: int = 0
    epoch_starts: dict[int, int] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    """The last offset of each producer's last batch: it is known for as long as that batch would be there."""
    superseded: dict[int, bytes | None] = field(default_factory=dict)
    """The keys of records that compaction may take, or has taken: a later one of the key must be there instead."""
    absent: set[int] = field(default_factory=set)
    """Offsets at which nothing need be found: markers of transactions, and aborted records that compaction may take."""
    possible: dict[int, list[Content]] = field(default_factory=dict)
    """What may be found at each offset: more than one only while a truncation is under way."""

    def violations(self, outcome: Outcome, *, is_power_loss: bool) -> list[str]:
        """Return how an outcome breaks this promise; an empty list if it does not."""
        if outcome.problem:
            return [outcome.problem]
        return list(self._violations(outcome, is_power_loss=is_power_loss))

    def _violations(self, outcome: Outcome, *, is_power_loss: bool) -> Iterator[str]:
        start, end = outcome.log_start_offset, outcome.log_end_offset
        kept_end = self.durable_end if is_power_loss else self.acknowledged_end
        if not self.start_at_least <= start <= self.start_at_most:
            yield f"starts at {start}, promised {self.start_at_least} to {self.start_at_most}"
        if end < kept_end:
            yield f"ends at {end}: lost {kept_end - end} records below {kept_end}"
        for seen in (outcome.records, outcome.read_only):
            for offset, content in seen.items():
                if content not in self.possible.get(offset, ()):
                    yield f"offset {offset} holds what was never there, or is deleted: {content}"
        # After the promised records there is a prefix of the other appended records, never a selection.
        for offset in range(max(start, self.start_at_least), end):
            if offset not in outcome.records:
                if offset in self.absent:
                    continue
                key = self.superseded.get(offset, b"never")
                if not any(at > offset and content.key == key for at, content in outcome.records.items()):
                    yield f"offset {offset} is gone, and no later record of its key is there"
            elif offset < kept_end and outcome.records[offset] != self.possible[offset][-1]:
                yield f"offset {offset} holds an older record than the one promised"
        if self.watermark_at_most is not None and outcome.high_watermark > max(self.watermark_at_most, start):
            yield f"high watermark {outcome.high_watermark}, only {self.watermark_at_most} was asked for"
        if self.watermark_at_most is not None and max(outcome.read_only, default=-1) >= self.watermark_at_most:
            yield f"offset {max(outcome.read_only)} is shown, only those below {self.watermark_at_most} were to be"
        if self.watermark_at_most is None and outcome.is_recovered and outcome.high_watermark != end:
            yield f"high watermark {outcome.high_watermark} does not follow the end {end}"
        if outcome.leader_epoch < self.epoch_at_least:
            yield f"leader epoch {outcome.leader_epoch}, promised {self.epoch_at_least}"
        for producer_id, last_offset in self.producers.items():
            if last_offset < kept_end and outcome.producers.get(producer_id, -1) < last_offset:
                yield f"producer {producer_id} is not known up to offset {last_offset}: {outcome.producers}"
        yield from self._epoch_violations(outcome, kept_end)

    def _epoch_violations(self, outcome: Outcome, kept_end: int) -> Iterator[str]:
        for (epoch, first), (_, next_first) in itertools.pairwise(self.epoch_starts.items()):
            # An epoch has an end only if it and its successor have a surviving record.
            if first < next_first < kept_end and first >= outcome.log_start_offset:
                found = outcome.epoch_ends.get(epoch)
                if found != (epoch, next_first):
                    yield f"epoch {epoch} ends at {found}, promised {(epoch, next_first)}"


class PowerLoss(BaseException):
    """Ends the simulated process of the engine. Not an Exception, so that no handler catches it."""


class Recorder:
    """A log on a simulated disk, and its promise."""

    def __init__(
        self,
        config: LogConfig,
        *,
        chance: random.Random,
        observe: Callable[[Recorder], None] | None = None,
        disk: Disk = NEW_DISK,
        disk_type: type[SimFiles] = SimFiles,
    ) -> None:
        self.config = config
        self.chance = chance
        self.clock = FakeClock()
        self.disk_type = disk_type
        self.sim = disk_type(disk)
        self.files: Files = self.sim
        self.door: Callable[[Files], Files] = lambda files: files
        """What stands between the log and whatever disk it is opened on."""
        self.promise = Promise(
            start_at_least=config.initial_offset,
            start_at_most=config.initial_offset,
            durable_end=config.initial_offset,
            acknowledged_end=config.initial_offset,
        )
        if config.high_watermark == "manual":
            self.promise.watermark_at_most = config.initial_offset
        self.epochs = [0]
        self.boundaries = 0
        self.observed_boundaries = 0
        self.is_observed = True
        """A workload may clear it while it prepares what it is about."""
        self.may_lack_room = False
        """Whether its disk may be full: then of many appends some may be refused."""
        self.calls = 0
        self.observe = observe
        self._crash_at = -1
        self._crash_to, self._crash_to_left = "", 0
        self._crashed: SimFiles | None = None
        self.deaths = 0
        """How often the process has died inside of a call."""
        self._is_appending = False
        self._log: Log | None = None
        self._batch_starts: list[int] = []
        self._last_numbered: dict[int, tuple[list[Record], ProducerSequence, range]] = {}
        self._aborted: set[int] = set()
        self.sim.on_boundary = self._at_boundary

    @property
    def log(self) -> Log:
        assert self._log is not None
        return self._log

    @property
    def is_open(self) -> bool:
        """Whether the log is open, and recovered if necessary."""
        return self._log is not None

    @property
    def first_batch(self) -> int:
        """The first base offset of a batch that is not deleted."""
        starts = [start for start in self._batch_starts if start >= self.log.log_start_offset]
        return min(starts, default=self.log.log_end_offset)

    # Calls of the engine.

    def open(self) -> None:
        """Open for writing; its content is the new promise."""
        self._log = None
        files = self.door(self.files)
        self._log = log = Log(PATH, config=self.config, files=files, clock=self.clock, background=False)
        outcome = look(log, self.epochs)
        violations = self.promise.violations(outcome, is_power_loss=False)
        assert not violations, violations
        self.promise.possible = {offset: [content] for offset, content in outcome.records.items()}
        self.promise.absent = {offset for offset in self.promise.absent if offset < log.log_end_offset}
        self._aborted = {offset for offset in self._aborted if offset < log.log_end_offset}
        self.promise.start_at_least = self.promise.start_at_most = log.log_start_offset
        self.promise.acknowledged_end = log.log_end_offset
        self.promise.durable_end = log.recovery_point
        if self.promise.watermark_at_most is not None:
            self.promise.watermark_at_most = log.high_watermark
        self._batch_starts = [batch.base_offset for batch in read_batches(log)]
        self._learn_epochs(log)
        self.promise.producers = outcome.producers
        self.calls += 1

    def _learn_epochs(self, log: Log) -> None:
        """Accept the epochs after an open: their last change was made or not."""
        starts = {}
        for epoch in sorted({*self.epochs, log.leader_epoch} - {0}):
            if log.end_offset_for_epoch(epoch)[0] == epoch:
                before, end = log.end_offset_for_epoch(epoch - 1)
                starts[epoch] = end if before >= 0 else log.log_start_offset
        self.promise.epoch_starts = starts
        self.promise.epoch_at_least = log.leader_epoch

    def append(self, value: bytes | None = None, *, key: bytes | None = None) -> int:
        record = self._record(value, key=key)
        self._intend([record])
        with self._appending():
            offset = self.log.append(
                record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp_ms
            )
            assert offset == self.promise.acknowledged_end
        return offset

    def append_many(self, count: int) -> None:
        records = [self._record() for _ in range(count)]
        self._intend(records)
        with self._appending():
            offsets = self.log.append_many(records)
            assert offsets.start == self.promise.acknowledged_end
            assert len(offsets) == count

    def append_numbered(self, count: int = 2, *, producer_id: int = 7) -> None:
        """Append as a producer that continues at the log's sequence, as after a crash."""
        place = self.log.next_sequence(producer_id) or ProducerSequence(producer_id=producer_id)
        records = [self._record(self.chance.randbytes(60)) for _ in range(count)]
        self._intend(records)
        with self._appending():
            offsets = self.log.append_many(records, producer=place)
            assert offsets.start == self.promise.acknowledged_end
        self._last_numbered[producer_id] = (records, place, offsets)
        self.promise.producers[producer_id] = offsets.stop - 1

    def append_transaction(self, *keys: bytes, commits: bool, producer_id: int = 7) -> None:
        """Append a batch of a producer's transaction and the marker that ends it, as from a broker."""
        place = self.log.next_sequence(producer_id) or ProducerSequence(producer_id=producer_id)
        records = [self._record(self.chance.randbytes(150), key=key) for key in keys]
        whose = {"producer_id": producer_id, "producer_epoch": place.epoch}
        raw = encode_batch(records, transactional=True, base_sequence=place.sequence, **whose)
        end = Record(struct.pack(">hi", 0, 0), key=struct.pack(">hh", 0, int(commits)), timestamp_ms=START_MS)
        self._intend(records, batches=(0, len(records)))
        first = self.promise.acknowledged_end
        self.promise.absent.add(first + len(records))
        if not commits:
            self._aborted |= set(range(first, first + len(records)))
        with self._appending():
            self.log.append_batches(raw + encode_batch([end], transactional=True, control=True, **whose))
        self.promise.producers[producer_id] = first + len(records) - 1

    def repeat(self, producer_id: int = 7) -> None:
        """Append a producer's last batch again, if it exists: it gets the same offsets."""
        records, place, offsets = self._last_numbered.get(producer_id, ([], None, range(0)))
        if place is not None and self.log.next_sequence(producer_id) == place.after(len(records)):
            with self._appending():
                assert self.log.append_many(records, producer=place) == offsets

    def append_batches(self, *batches: Sequence[Record]) -> None:
        raw = b"".join(encode_batch(records) for records in batches)
        starts = list(itertools.accumulate((len(records) for records in batches[:-1]), initial=0))
        self._intend([record for records in batches for record in records], batches=starts)
        with self._appending():
            self.log.append_batches(raw)

    def append_through_writer(self, count: int) -> None:
        """Append with the buffering producer; nothing is promised before its futures are done."""
        records = [self._record() for _ in range(count)]
        self._intend(records)
        first = self.promise.acknowledged_end
        if self.may_lack_room:
            # A batch without room is refused alone, and later batches get its offsets. They are put
            # before the one that is promised, which is the last, and is so as soon as the log calls it durable.
            for place in range(count):
                self.promise.possible[first + place][-1:-1] = map(Content.of, records[place + 1 :])
        with self._appending(), LogWriter(self.log, batch_bytes=300) as writer:
            futures = [
                writer.append(record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp_ms)
                for record in records
            ]
            writer.flush()
            errors = [future.exception(timeout=0) for future in futures]
            for future, record, error in zip(futures, records, errors, strict=True):
                if error is None:
                    self.promise.possible[future.result()] = [Content.of(record)]
            if all(error is None or isinstance(error, DiskFull) for error in errors):
                self._settle()  # refused batches do not exist; all others are acknowledged
            assert [future.result(timeout=0) for future in futures] == list(range(first, first + count))
        self._batch_starts = [batch.base_offset for batch in read_batches(self.log)]

    def flush(self) -> None:
        with self._appending():
            self.log.flush()

    def delete_before(self, offset: int) -> None:
        self.promise.start_at_most = offset
        self.log.delete_before(offset)
        self._settle()

    def retain(self) -> None:
        self.promise.start_at_most = self.log.log_end_offset
        self.log.retain()
        self._settle()

    def compact(self, *, buffer_bytes: int = 1 << 20) -> None:
        """Compact; removed records may not return."""
        promise = self.promise
        counting = {offset: found for offset, found in promise.possible.items() if offset not in self._aborted}
        last = {found[-1].key: offset for offset, found in counting.items()}
        promise.superseded |= {
            offset: found[-1].key for offset, found in counting.items() if last[found[-1].key] != offset
        }
        promise.absent |= self._aborted
        self.log.compact(buffer_bytes=buffer_bytes)
        left = {record.offset for record in read_everything(self.log)}
        promise.possible = {offset: found for offset, found in promise.possible.items() if offset in left}
        self._batch_starts = [batch.base_offset for batch in read_batches(self.log)]
        self._settle()

    def truncate_to(self, offset: int) -> None:
        """Truncate to before the batch with `offset`."""
        promise = self.promise
        end = max((start for start in self._batch_starts if start <= offset), default=offset)
        if offset == promise.acknowledged_end:
            end = offset
        if self.config.compacts:
            # A gap before the batch is removed with it, as may be a later record that had superseded another.
            end = self.log.plan_truncate_to(offset).first_offset
            promise.absent |= promise.superseded.keys()
            promise.superseded = {}
        promise.durable_end = min(promise.durable_end, end)
        promise.acknowledged_end = min(promise.acknowledged_end, end)
        promise.start_at_least = min(promise.start_at_least, end)
        # The epoch is not undone: it continues from the new end.
        promise.epoch_starts = {epoch: min(first, end) for epoch, first in promise.epoch_starts.items()}
        promise.producers = {each: last for each, last in promise.producers.items() if last < end}
        assert self.log.truncate_to(offset) == end
        promise.possible = {at: found for at, found in promise.possible.items() if at < end}
        promise.absent = {at for at in promise.absent if at < end}
        self._aborted = {at for at in self._aborted if at < end}
        promise.producers = producers_of(self.log)
        if promise.watermark_at_most is not None:
            promise.watermark_at_most = min(promise.watermark_at_most, end)
        self._batch_starts = [start for start in self._batch_starts if start < end]
        self._settle()

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.log.begin_epoch(epoch)
        self.promise.epoch_at_least = epoch
        self.promise.epoch_starts[epoch] = self.log.log_end_offset
        self._settle()

    def advance_high_watermark(self, offset: int) -> None:
        assert self.promise.watermark_at_most is not None
        self.promise.watermark_at_most = max(self.promise.watermark_at_most, offset)
        self.log.advance_high_watermark(offset)
        self._settle()

    def close(self) -> None:
        self.log.close()
        self._log = None
        # A clean close syncs, so the whole log is durable after it.
        self.promise.durable_end = self.promise.acknowledged_end
        self.calls += 1

    def forget_the_refused_append(self) -> None:
        """Record that the last append was refused: its records must not exist from now on."""
        for offset in [offset for offset in self.promise.possible if offset >= self.log.log_end_offset]:
            del self.promise.possible[offset]
        self._settle()

    def leave_swap_behind(self, *, merged: int) -> None:
        """Leave a closed log as a broker that dies while it swaps in a cleaned segment.

        The cleaned segment replaces `merged` old ones, which may still exist.
        """
        self.sim.on_boundary = None
        with suppress(OSError):  # a failing disk may end the process
            self._swap_in(merged)
        self.sim.on_boundary = self._at_boundary

    def _swap_in(self, merged: int) -> None:
        bases = sorted(name[:20] for name in self.sim.list(PATH) if name.endswith(names.LOG))
        chosen = bases[1 : 1 + merged]
        content = b"".join(self.sim.read_file(f"{PATH}/{base}{names.LOG}") for base in chosen)
        log = f"{PATH}/{chosen[0]}{names.LOG}"
        handle = self.sim.open(log + names.CLEANED, write=True, create=True)
        self.sim.write(handle, content, 0)
        self.sim.sync(handle)
        self.sim.close(handle)
        self.sim.rename(log + names.CLEANED, log + names.SWAP)
        self.sim.sync_directory(PATH)
        for base in chosen[: self.chance.randrange(merged + 1)]:
            for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
                self.sim.remove(f"{PATH}/{base}{suffix}")
        self.sim.sync_directory(PATH)

    # Crashes within a workload.

    def kill(self) -> None:
        """Kill the process between two calls. Its writes stay visible and pending."""
        self.sim.process_crash()
        self._log = None
        self.files = self.sim

    def lose_power_during(self, action: Callable[[], object], *, at: int, leaving: str = "") -> bool:
        """Run `action`, lose power at its nth boundary, and continue with a random crash state.

        `leaving` is a prefix of the labels of the states to choose from. Return whether there were that many
        boundaries; if not, power is lost after the action.
        """
        crashed = self._run_until(action, at=at)
        states = list((crashed or self.sim).crash_states(Detail(prefixes=16, sectors=4)))
        chosen = [disk for label, disk in states if label.startswith(leaving)]
        self._restart(self.disk_type(self.chance.choice(chosen or [states[0][1]])))
        self.promise.acknowledged_end = self.promise.durable_end
        return crashed is not None

    def kill_during(self, action: Callable[[], object], *, at: int) -> bool:
        """Run `action` and kill the process at its nth boundary, or after it."""
        crashed = self._run_until(action, at=at)
        self._restart(crashed or self.sim)
        return crashed is not None

    def kill_at_rename(self, action: Callable[[], object], *, to: str, nth: int = 1) -> None:
        """Run `action` and kill the process right after the nth rename to a name with this suffix.

        The name is visible then, and a power loss may undo it.
        """
        self._crash_to, self._crash_to_left = to, nth
        try:
            self.kill_during(action, at=1 << 40)
        finally:
            self._crash_to = ""

    def _run_until(self, action: Callable[[], object], *, at: int) -> SimFiles | None:
        self._crash_at = self.boundaries + at
        self._crashed = None
        try:
            action()
        except PowerLoss:
            pass
        finally:
            self._crash_at = -1
        return self._crashed

    def _restart(self, sim: SimFiles) -> None:
        self.sim.on_boundary = None
        sim.process_crash()
        sim.on_boundary = self._at_boundary
        self.sim = self.files = sim
        self._log = None

    # Internals.

    def _record(self, value: bytes | None = None, *, key: bytes | None = None) -> Record:
        chance = self.chance
        headers: tuple[tuple[str, bytes], ...] = ()
        if value is None:
            # Usually within one sector; sometimes over three, if a segment has room for several of those.
            largest = min(1100, self.config.segment_bytes // 8)
            value = chance.randbytes(chance.choice((0, 5, 20, 60, 60, largest)))
            headers = (("trace", chance.randbytes(3)),) if chance.random() < 0.2 else ()
        self.clock.advance(chance.choice((0, 1, 40)))
        return Record(value, key=key, headers=headers, timestamp_ms=self.clock.now_ms())

    def _intend(self, records: Sequence[Record], *, batches: Sequence[int] = ()) -> None:
        first = self.promise.acknowledged_end
        self._batch_starts += [first + place for place in batches or (0,)]
        for offset, record in enumerate(records, start=self.promise.acknowledged_end):
            self.promise.possible.setdefault(offset, []).append(Content.of(record))

    @contextmanager
    def _appending(self) -> Iterator[None]:
        self._is_appending = True
        try:
            yield
        finally:
            self._is_appending = False
        self._settle()

    def _settle(self) -> None:
        """Update the promise after a call has returned."""
        log, promise = self.log, self.promise
        start = promise.start_at_least = promise.start_at_most = log.log_start_offset
        promise.possible = {at: found for at, found in promise.possible.items() if at >= start}
        promise.acknowledged_end = log.log_end_offset
        promise.durable_end = log.recovery_point
        if self.config.flush == "batch":
            assert promise.durable_end == promise.acknowledged_end, "acknowledged without a sync"
        self.calls += 1

    def _at_boundary(self, sim: SimFiles) -> None:
        if self._crashed is not None and self._crash_at >= 0:
            raise PowerLoss
        if self._is_appending:
            # The recovery point is public: another thread may rely on it before this call returns.
            self.promise.durable_end = max(self.promise.durable_end, self.log.recovery_point)
        if self.is_observed:
            self.observed_boundaries += 1
            if self.observe is not None:
                self.observe(self)
        self.boundaries += 1
        last = sim.pending[-1] if self._crash_to and sim.pending else None
        if isinstance(last, Rename) and last.target.endswith(self._crash_to):
            self._crash_to_left -= 1
            if not self._crash_to_left:
                self._crash_at = self.boundaries
        if self.boundaries == self._crash_at:
            sim.on_boundary = None
            self._crashed = copied(sim)
            self.deaths += 1
            sim.on_boundary = self._at_boundary
            raise PowerLoss


def look(log: LogReader, epochs: Sequence[int] = ()) -> Outcome:
    """Return the content of an open log."""
    # Each of these looks for what another process has changed since.
    start, end, high_watermark = log.log_start_offset, log.log_end_offset, log.high_watermark
    records = {record.offset: Content.of(record) for record in read_everything(log)}
    problem = ""
    if list(records) != (sorted(records) if log.config.compacts else list(range(start, end))):
        problem = f"offsets are {list(records)}, the log says {start} to {end - 1}"
    producers = producers_of(log)
    problem = problem or producer_problem(log, producers) or _index_problem(log)
    visible = {content.key: offset for offset, content in records.items() if offset < high_watermark}
    for key in {content.key for content in records.values() if content.key is not None}:
        found = log.latest_for_key(key)
        if (None if found is None else found.offset) != visible.get(key):
            problem = problem or f"key {key!r} is found at {found}, and stands at {visible.get(key)}"
    return Outcome(
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=high_watermark,
        leader_epoch=log.leader_epoch,
        epoch_ends={epoch: log.end_offset_for_epoch(epoch) for epoch in epochs[1:]},
        records=records,
        producers=producers,
        is_recovered=not log.needs_recovery,
        problem=problem,
    )


def open_partition(log: LogReader) -> Partition | None:
    """Return the partition that this process has open for writing, or None for a reader."""
    return log._source if isinstance(log._source, Partition) else None


def producers_of(log: LogReader) -> dict[int, int]:
    """Return the last offset of each producer of a log; a reader has none."""
    partition = open_partition(log)
    if partition is None:
        return {}
    return {entry.producer_id: entry.last_offset for entry in partition.producers.state}


def producer_problem(log: LogReader, producers: dict[int, int]) -> str:
    """Compare the state of producers with the batches."""
    partition = open_partition(log)
    if partition is None:
        return ""
    found: dict[int, BatchHeader] = {}
    for batch in read_batches(log):
        if batch.header.producer_id >= 0 and not batch.header.is_control:
            found[batch.header.producer_id] = batch.header
    for producer_id, header in found.items():
        place = partition.next_sequence(producer_id)
        expected = (header.producer_epoch, (header.base_sequence + header.last_offset_delta + 1) % 2**31)
        if place is None or (place.epoch, place.sequence) != expected or producers[producer_id] != header.last_offset:
            return f"producer {producer_id} is to go on with {expected}, the log says {place}"
    for producer_id, last_offset in producers.items():
        if producer_id not in found and last_offset >= log.log_start_offset:
            return f"producer {producer_id} is known by a batch at {last_offset}, which is not there"
    return ""


def _index_problem(log: LogReader) -> str:
    """Compare entries of aborted transactions with markers: an entry without a marker would hide later records."""
    partition = open_partition(log)
    if partition is None or not log.config.compacts:
        return ""
    files, directory = partition.files, partition.directory
    markers = {batch.last_offset for batch in read_batches(log) if batch.header.is_control}
    try:
        listing = [name for name in files.list(directory) if name.endswith(names.TRANSACTION_INDEX)]
        indexes = {name: files.read_file(f"{directory}/{name}") for name in listing}
    except OSError as error:  # not a call of the log, but fails like one
        raise NotAccessible(f"{directory} cannot be looked at: {error}") from error
    for name, index in indexes.items():
        for _, producer_id, _, last_offset, _ in struct.iter_unpack(">hqqqq", index):
            if last_offset not in markers:
                return f"{name} tells of a marker of producer {producer_id} at {last_offset}, which is not there"
    return ""


def read_everything(log: LogReader) -> Iterator[Record]:
    """Yield every record of a log, past the high watermark too."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        before = offset
        for record in log.read_uncommitted(offset):
            yield record
            offset = record.offset + 1
        if offset == before:
            return


def read_batches(log: LogReader) -> Iterator[Batch]:
    """Yield every batch of a log, past the high watermark too."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        before = offset
        for batch in log.read_batches(offset, uncommitted=True):
            yield batch
            offset = batch.next_offset
        if offset == before:
            return


def reopen(disk: Disk, config: LogConfig, *, epochs: Sequence[int] = (), now_ms: int = START_MS) -> Outcome:
    """Open a crashed disk as a reader, then as a writer; append, close, and open it again.

    The result has what the writer found first; its `problem` is what else went wrong.
    """
    read_only: dict[int, Content] = {}
    if any(path.startswith(PATH) for path in disk.files):
        try:
            with open_reader(SimFiles(disk), config, now_ms=now_ms) as reader:
                read_only = {record.offset: Content.of(record) for record in reader.scan()}
        except SeeklogError:
            pass  # A reader may refuse an unrecovered log; it must not invent records.
    sim = SimFiles(disk)
    try:
        with open_log(sim, config, now_ms=now_ms) as log:
            outcome = look(log, epochs)
            if outcome.problem:
                return outcome
            key = b"sentinel" if config.compacts else None
            offset = log.append(SENTINEL, key=key, timestamp_ms=now_ms)
        passing = (names.CLEANED, names.SWAP, names.DELETED, names.TEMPORARY)
        if any(name.endswith(passing) for name in sim.list(PATH)):
            return Outcome(problem=f"files are left over: {sorted(sim.list(PATH))}")
        if offset != outcome.log_end_offset:
            return Outcome(problem=f"appended at {offset}, the log ended at {outcome.log_end_offset}")
        # Lose power again: a clean close must have made everything durable.
        again = SimFiles(sim.durable_disk())
        with open_log(again, config, now_ms=now_ms) as log:
            second = look(log, epochs)
    except SeeklogError as error:
        return Outcome(problem=f"{type(error).__name__}: {error}")
    expected = outcome.records | {offset: Content(key, SENTINEL, (), now_ms)}
    if second.problem:
        return Outcome(problem=f"second open: {second.problem}")
    if second.records != expected or second.log_start_offset != outcome.log_start_offset:
        return Outcome(
            problem=f"second open: {second.log_start_offset} to {second.log_end_offset - 1}, "
            f"expected {outcome.log_start_offset} to {offset}"
        )
    if second.producers != outcome.producers:
        return Outcome(problem=f"second open: producers {second.producers}, at first {outcome.producers}")
    torn_before = _evidence(sim.disk())
    if _evidence(again.disk()) != torn_before:
        return Outcome(problem="second open: recovery cut something again")
    return Outcome(
        log_start_offset=outcome.log_start_offset,
        log_end_offset=outcome.log_end_offset,
        high_watermark=outcome.high_watermark,
        leader_epoch=outcome.leader_epoch,
        epoch_ends=outcome.epoch_ends,
        records=outcome.records,
        producers=outcome.producers,
        read_only=read_only,
    )


def open_log(files: Files, config: LogConfig, *, now_ms: int = START_MS) -> Log:
    """Open the log of a simulated disk."""
    return Log(PATH, config=config, files=files, clock=FakeClock(now_ms), background=False)


def open_reader(files: Files, config: LogConfig, *, now_ms: int = START_MS) -> LogReader:
    """Open the log of a simulated disk for reading."""
    return LogReader(PATH, config=config, files=files, clock=FakeClock(now_ms))


def _evidence(disk: Disk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files.items() if path.endswith(".torn")}
