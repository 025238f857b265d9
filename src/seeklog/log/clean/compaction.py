"""Compaction keeps the latest record of each key, at its offset, by Kafka's rules.

The log has a clean part, in which every key is unique, and after it a dirty part, appended since. A round reads the
dirty part and stores the last offset of each key in a map of bounded size. It then copies every segment up to the end
of the mapped range, leaving out the records for which the map has a later one (see `BatchFilter`). If the map fills up
before the end of the dirty part, another round continues from there.

Compaction never touches the active segment, records at or above the high watermark or the first offset of an open
transaction, or records younger than `min_compaction_lag_ms`. `transaction_index` has the rules for transactions.
Records below a segment's `clean_offset`, which its seal stores, were in some map. The clean part therefore ends in the
first segment whose seal has a `clean_offset` below the end of the segment. If a crash or another program loses that
value, the next compaction only reads more. Segments are copied from the oldest to the newest, so a tombstone is never
dropped before the records that it deletes.

Pure functions decide first; then the work is done. Neither appends nor readers wait for a compaction. Only a swap,
which is a few renames, holds the lock that retention and syncs take.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from seeklog import names
from seeklog.config import INT32_MAX, INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, DiskFull, LogClosed, LogFailed, UsageError, counted
from seeklog.files import is_full
from seeklog.log.clean import swap
from seeklog.log.clean.removing import Truncated
from seeklog.log.partition import Partition
from seeklog.log.reading import locate
from seeklog.log.segment import Segment, check_fits, cut_short, seal_of
from seeklog.log.side.pages import PageSums
from seeklog.log.side.seal import Seal
from seeklog.log.side.transaction_index import TransactionHistory, Verdicts
from seeklog.log.view import View
from seeklog.record.batch import read_header
from seeklog.record.compaction import BatchFilter
from seeklog.record.key_hash import SECRET_SIZE
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.markers import note_transactions
from seeklog.record.offset_map import SLOT_SIZE, OffsetMap
from seeklog.record.segment_state import SegmentState

if TYPE_CHECKING:
    from seeklog.log.observer import Observer

logger = logging.getLogger("seeklog")

# Kafka's log.cleaner.dedupe.buffer.size.
BUFFER_BYTES: Final = 128 << 20
# The map needs two slots: one stays free, so that a search for an absent key ends.
MIN_BUFFER_BYTES: Final = 2 * SLOT_SIZE
READ_CHUNK: Final = 1 << 20
# The map is full at four fifths of its slots.
_SLOTS_PER_RECORD: Final = 1.25


# ---------------------------------------------------------------- deciding


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """The facts about a sealed segment from which compaction decides."""

    base_offset: int
    next_offset: int
    """The base offset of the next segment."""
    size: int
    record_count: int
    clean_offset: int
    """The start of its dirty part; its end if it has none."""
    first_timestamp_ms: int
    max_timestamp_ms: int
    offset_index_size: int = 0
    time_index_size: int = 0

    @property
    def is_clean(self) -> bool:
        return self.clean_offset >= self.next_offset


@dataclass(frozen=True, slots=True)
class Cleanable:
    """How much there is to compact."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """Compaction touches nothing from here on."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """How long a dirty record has exceeded `max_compaction_lag_ms`; 0: none has."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Return, by Kafka's rule, whether a compaction is worth the work."""
        return self.dirty_bytes > 0 and (self.dirty_ratio > config.min_cleanable_dirty_ratio or self.overdue_ms > 0)


def assess(sealed: Sequence[SegmentFacts], *, stop_offset: int, now_ms: int, config: LogConfig) -> Cleanable:
    """Return what compaction may touch of the sealed segments below `stop_offset`, which are ordered by offset.

    A segment whose first timestamp is in the future is never overdue.
    """
    start = sealed[0].base_offset if sealed else stop_offset
    uncleanable = first_dirty = start
    clean_bytes = dirty_bytes = 0
    overdue_ms = 0
    for facts in sealed:
        is_young = config.min_compaction_lag_ms > 0 and facts.max_timestamp_ms > now_ms - config.min_compaction_lag_ms
        if facts.next_offset > stop_offset or is_young:
            break
        uncleanable = facts.next_offset
        if facts.is_clean and first_dirty == facts.base_offset:
            first_dirty = facts.next_offset
            clean_bytes += facts.size
            continue
        if first_dirty == facts.base_offset:
            first_dirty = max(facts.base_offset, facts.clean_offset)
        dirty_bytes += facts.size
        if facts.first_timestamp_ms >= 0:
            overdue_ms = max(overdue_ms, now_ms - facts.first_timestamp_ms - config.max_compaction_lag_ms)
    return Cleanable(first_dirty, uncleanable, clean_bytes, dirty_bytes, overdue_ms)


def can_join(state: SegmentState, facts: SegmentFacts, config: LogConfig) -> bool:
    """Return whether a segment would fit after the copied ones, even if all its records were kept."""
    return (
        state.size + facts.size <= config.segment_bytes
        and len(state.offset_table) + facts.offset_index_size <= config.segment_index_bytes
        and len(state.time_table) + facts.time_index_size <= config.segment_index_bytes
        and facts.next_offset - 1 - state.base_offset <= INT32_MAX
    )


# ---------------------------------------------------------------- doing


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The result of a compaction. The numbers cover the segments that it examined."""

    rounds: int = 0
    segments_before: int = 0
    segments_after: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    keyless_records: int = 0
    """Dropped records without a key, from before the log was compacted; Kafka drops them too."""
    first_dirty_offset: int = 0
    """Everything below is clean."""

    @property
    def removed_records(self) -> int:
        return self.records_before - self.records_after


def cleanable(partition: Partition | Observer) -> Cleanable:
    """Return how much there is to compact in a partition."""
    return _assess(partition, _facts(partition), stop_offset=partition.last_stable_offset)


def clean_offset_of(view: View) -> int | None:
    """Return the offset up to which the log is compacted according to its seals, or None."""
    start = clean = view.bases[0]
    for segment, following in pairwise(view.segments):
        if segment.seal is None:
            break
        clean = max(clean, min(segment.seal.clean_offset, following.base_offset))
        if clean < following.base_offset:
            break
    return clean if clean > start else None


def _advised(sealed: Sequence[SegmentFacts], clean_offset: int) -> list[SegmentFacts]:
    """Return the facts with the clean offset that a broker's cleaner reported, for segments without one in their seal.

    An offset after the last segment is ignored: it belongs to another log.
    """
    if not sealed or clean_offset > sealed[-1].next_offset:
        return list(sealed)
    return [
        replace(facts, clean_offset=max(facts.clean_offset, min(clean_offset, facts.next_offset))) for facts in sealed
    ]


def compact(partition: Partition, *, buffer_bytes: int = BUFFER_BYTES, only_if_due: bool = False) -> Compacted:
    """Compact everything that may be compacted, in as many rounds as needed; a second call waits for the first.

    Memory is bounded by `buffer_bytes` for the map, plus some megabytes. Segments finished before a crash or an error
    stay compacted, and the next call continues after them.
    """
    with partition.remover.compacting():
        began = partition.clock.monotonic()
        metrics = partition.metrics.compaction
        try:
            done = _compact(partition, buffer_bytes=buffer_bytes, only_if_due=only_if_due)
        except LogClosed:
            raise  # a close ends it
        except BaseException:
            metrics.failures += 1
            raise
        if done.rounds:
            metrics.seconds.observe(partition.clock.monotonic() - began)
            metrics.bytes_before += done.bytes_before
            metrics.bytes_after += done.bytes_after
            metrics.records_before += done.records_before
            metrics.records_after += done.records_after
        return done


def _compact(partition: Partition, *, buffer_bytes: int, only_if_due: bool) -> Compacted:
    # Before the log is read, too: another one may be at its path.
    partition.check_held()
    partition.flush()
    before = _facts(partition)
    run = _Run(partition, buffer_bytes)
    todo = run.cleanable()
    if only_if_due:
        # A broker's checkpoint may be too high for this log; trusting it could drop a tombstone too early. It only
        # decides whether a compaction is due; the work starts at the offset in the seals.
        advised = _assess(
            partition, _advised(before, partition.shared.cleaned), stop_offset=partition.last_stable_offset
        )
        if not advised.is_due(partition.config):
            return Compacted(first_dirty_offset=todo.first_dirty_offset)
    swap.drop_cleaned(partition.shared)
    run.goal = todo.first_uncleanable_offset
    while before:
        reached = todo.first_dirty_offset
        try:
            run.round(todo)
        except _Unstable:
            todo = run.cleanable()
            run.goal = min(run.goal, todo.first_uncleanable_offset)
            continue
        except FileNotFoundError as error:
            # Retention may have deleted the segment; the compaction then continues with the others.
            if not run.is_void and error.filename in {segment.path for segment in partition.view.segments}:
                raise
        except (CorruptionError, Truncated):
            # A truncation may have cut the bytes that were being read.
            if not run.is_void:
                raise
        is_void = run.is_void
        todo = run.cleanable()
        if not is_void and not reached < todo.first_dirty_offset < min(run.goal, todo.first_uncleanable_offset):
            break
    after = [facts for facts in _facts(partition) if facts.base_offset < run.goal]
    before = [facts for facts in before if facts.base_offset < run.goal]
    return Compacted(
        rounds=run.rounds,
        segments_before=len(before),
        segments_after=len(after),
        records_before=sum(facts.record_count for facts in before),
        records_after=sum(facts.record_count for facts in after),
        bytes_before=sum(facts.size for facts in before),
        bytes_after=sum(facts.size for facts in after),
        keyless_records=run.keyless,
        first_dirty_offset=todo.first_dirty_offset,
    )


def _assess(partition: Partition | Observer, sealed: Sequence[SegmentFacts], *, stop_offset: int) -> Cleanable:
    return assess(
        sealed,
        stop_offset=stop_offset,
        now_ms=partition.clock.now_ms(),
        config=partition.config,
    )


def _sealed(partition: Partition | Observer) -> list[tuple[Segment, Seal]]:
    sealed = []
    for segment in partition.view.segments:
        seal = segment.seal
        if seal is None and not segment.shared.writable and segment is not partition.view.last:
            # A writer would seal it on open; so would a compaction.
            seal = seal_of(segment.scan_all(), sealed_at_ms=0)
        if seal is None:
            break
        sealed.append((segment, seal))
    return sealed


def _facts(partition: Partition | Observer) -> list[SegmentFacts]:
    return [
        SegmentFacts(
            base_offset=segment.base_offset,
            next_offset=following.base_offset,
            size=segment.size,
            record_count=seal.record_count,
            clean_offset=max(segment.base_offset, seal.clean_offset),
            # Reading the first timestamp is worthwhile only if a record can be overdue.
            first_timestamp_ms=_first_timestamp(segment) if partition.config.max_compaction_lag_ms < INT64_MAX else -1,
            max_timestamp_ms=seal.max_timestamp_ms,
            offset_index_size=_size_of(segment, names.OFFSET_INDEX),
            time_index_size=_size_of(segment, names.TIME_INDEX),
        )
        for (segment, seal), following in zip(_sealed(partition), partition.view.segments[1:], strict=False)
    ]


def _size_of(segment: Segment, suffix: str) -> int:
    """Return the size of an index file, or 0 if it is missing: it is rebuilt when needed."""
    try:
        return segment.shared.files.file_size(segment.shared.path(segment.base_offset, suffix))
    except FileNotFoundError:
        return 0


def _first_timestamp(segment: Segment) -> int:
    """Return the start time of a segment. As in Kafka, it is the largest timestamp of its first batch."""
    return read_header(segment.read(HEADER_SIZE, 0)).max_timestamp_ms if segment.size else -1


class _Unstable(Exception):
    """A transaction is still open in the range to be compacted."""


class _Run:
    """The rounds of one compaction."""

    def __init__(self, partition: Partition, buffer_bytes: int) -> None:
        self._partition = partition
        self._shared = partition.shared
        self._limit = partition.config.max_decompressed_bytes
        self._max_slots = min(buffer_bytes // SLOT_SIZE, INT32_MAX)
        # A random secret: clients cannot construct keys that collide.
        self._secret = os.urandom(SECRET_SIZE)
        self.goal = 0
        """The compaction ends here: what is dirty at its start. Appends continue meanwhile."""
        self.rounds = 0
        self.keyless = 0
        self._history: TransactionHistory | None = None
        self._bound = 0
        self._truncation_count = partition.remover.count_truncations()

    @property
    def is_void(self) -> bool:
        """Whether the log was cut since `cleanable`: the map and the transactions may then describe other records."""
        return self._partition.remover.count_truncations() != self._truncation_count

    def cleanable(self) -> Cleanable:
        """Return how much there is still to do. The next round starts from it."""
        partition = self._partition
        if self.is_void:
            self._history = None
            self._truncation_count = partition.remover.count_truncations()
        stop = partition.last_stable_offset
        if self._history is not None:
            stop = min(stop, self._history.first_unstable_offset)
        return _assess(partition, _facts(partition), stop_offset=stop)

    def _transaction_history(self) -> TransactionHistory:
        """Return how transactions ended, for the whole range of this round.

        The producer state also knows the open transactions, but the log is the authority, and an error would be costly.
        """
        if self._history is None or self._history.stop_offset < self._bound:
            history = TransactionHistory(self._partition.high_watermark)

            def note(data: bytes, position: int) -> tuple[int, bool]:
                self._partition.remover.check_not_closing()
                return note_transactions(data, 0, position, history.stop_offset, self._limit, history.note)

            for segment in self._partition.view.segments:
                if _feed(segment, 0, note):
                    break
            self._history = history
        if self._history.first_unstable_offset < self._bound:
            raise _Unstable
        return self._history

    def round(self, todo: Cleanable) -> None:
        """Map as much of the dirty part as fits, and copy all segments up to there."""
        self._bound = todo.first_uncleanable_offset
        offset_map = self._map(todo)
        self._partition.remover.check_not_truncated(self._truncation_count)
        end = offset_map.latest_offset + 1
        if end <= todo.first_dirty_offset < todo.first_uncleanable_offset:
            raise UsageError(
                f"{self._partition.directory}: the batch at offset {todo.first_dirty_offset} has more keys than fit in "
                f"a buffer of {self._max_slots * SLOT_SIZE:,} bytes; pass a larger buffer_bytes; nothing was changed"
            )
        verdicts = Verdicts(self._transaction_history)
        last_offsets, last_epochs = self._partition.last_of_producers()
        filters = BatchFilter(
            offset_map,
            now_ms=self._partition.clock.now_ms(),
            delete_retention_ms=self._partition.config.delete_retention_ms,
            last_offsets=last_offsets,
            last_epochs=last_epochs,
            limit=self._limit,
            judge=verdicts.judge,
        )
        stop = max(end, todo.first_dirty_offset)
        facts = [entry for entry in _facts(self._partition) if entry.base_offset < stop]
        try:
            while facts:
                facts = facts[self._copy(facts, filters, verdicts, end) :]
        except BaseException as error:
            if not isinstance(error, LogFailed):
                swap.drop_cleaned(self._shared)
            if is_full(error):
                raise DiskFull(
                    f"{self._partition.directory}: no room to compact the segment of offset {facts[0].base_offset}: "
                    "the records that it keeps are written a second time; the segment was not changed"
                ) from error
            raise
        self.rounds += 1
        self.keyless += filters.keyless

    def _map(self, todo: Cleanable) -> OffsetMap:
        start, stop = todo.first_dirty_offset, todo.first_uncleanable_offset
        dirty = [
            segment
            for segment, _ in _sealed(self._partition)
            if segment.next_offset > start and segment.base_offset < stop
        ]
        records = sum(segment.seal.record_count for segment in dirty if segment.seal is not None)
        slots = min(self._max_slots, int(records * _SLOTS_PER_RECORD) + 2)
        offset_map = OffsetMap(slots, base_offset=start, secret=self._secret)
        verdicts = Verdicts(self._transaction_history)

        def note(data: bytes, position: int) -> tuple[int, bool]:
            self._partition.remover.check_not_closing()
            return offset_map.add_batches(data, 0, position, start, self._limit, verdicts.judge)

        for segment in dirty:
            position = locate(segment, start, HEADER_SIZE)[0] if start > segment.base_offset and segment.size else 0
            if _feed(segment, position, note):
                break
        return offset_map

    def _copy(self, facts: Sequence[SegmentFacts], filters: BatchFilter, verdicts: Verdicts, end: int) -> int:
        """Copy the kept records of the first segments, as many as fit in one, and replace these segments.

        Returns the number of segments replaced.
        """
        files, shared = self._shared.files, self._shared
        sealed = {segment.base_offset: (segment, seal) for segment, seal in _sealed(self._partition)}
        state, sums = shared.new_state(facts[0].base_offset), PageSums()
        old: list[tuple[Segment, Seal]] = []
        filters.begin()
        handle = files.open(shared.path(state.base_offset, names.LOG) + names.CLEANED, write=True, create=True)

        def write() -> None:
            kept = filters.take()
            if state.size + len(kept) > INT32_MAX:
                raise UsageError(
                    f"{old[0][0].path}: the records to keep no longer fit in one segment; it was not changed. Raise "
                    "segment.bytes, then compact again"
                )
            if kept:
                files.write(handle, kept, state.size)
                state.append(kept)
                sums.add(kept)

        def copy(data: bytes, position: int) -> tuple[int, bool]:
            self._partition.remover.check_not_closing()
            taken = filters.add_batches(data, 0, position)
            write()
            return taken, False

        try:
            files.truncate(handle, 0)
            for entry in facts:
                if (old and not can_join(state, entry, self._partition.config)) or entry.base_offset not in sealed:
                    break
                old.append(sealed[entry.base_offset])
                _feed(old[-1][0], 0, copy)
            filters.finish()
            write()
            must_move = bool(old) and (filters.changed or len(old) > 1)
            if must_move:
                files.sync(handle)
        finally:
            files.close(handle)
        aborted = verdicts.take_aborted()
        if must_move:
            self._put_in_place(old, state, sums, aborted, min(end, old[-1][0].next_offset))
        else:
            swap.drop_cleaned(shared)
            for segment, seal in old:
                self._note_clean(segment, seal, min(end, segment.next_offset), state, sums)
        return max(1, len(old))

    def _note_clean(self, segment: Segment, seal: Seal, clean_offset: int, state: SegmentState, sums: PageSums) -> None:
        """Raise the clean offset in the seal of a segment that lost nothing.

        A seal from before page checksums gets them if the segment has gaps, unless the log differs from the sealed one:
        then the old seal stays, as evidence.
        """
        if seal.clean_offset < clean_offset:
            is_proved = not seal.contiguous and (state.size, state.crc) == (seal.size, seal.log_crc)
            new = replace(seal, clean_offset=clean_offset, pages=sums.pages if is_proved else seal.pages)
            self._partition.remover.renew_seal(
                segment, seal, new, truncation_count=self._truncation_count, page_table=sums.table
            )

    def _put_in_place(
        self,
        sealed: Sequence[tuple[Segment, Seal]],
        state: SegmentState,
        sums: PageSums,
        aborted: bytes,
        clean_offset: int,
    ) -> None:
        shared = self._shared
        old = [segment for segment, _ in sealed]
        base_offset = state.base_offset
        state.finish_times()
        # Retention counts from the time when the records were sealed, not copied.
        sealed_at_ms = max(seal.sealed_at_ms for _, seal in sealed)
        seal = seal_of(state, sealed_at_ms=sealed_at_ms, clean_offset=clean_offset, sums=sums)
        swap.write_sides(shared, state, seal, page_table=sums.table, aborted=aborted)
        new = Segment(shared, base_offset, size=state.size, next_offset=old[-1].next_offset, seal=seal)

        def install() -> None:
            swap.commit(shared, base_offset)
            swap.complete(shared, base_offset, [segment.base_offset for segment in old], has_sides=True)

        if not self._partition.remover.replace_segments(
            old, new, truncation_count=self._truncation_count, install=install
        ):
            swap.drop_cleaned(shared)
            return
        logger.info(
            "%s: compacted %s of %d bytes into one of %d",
            new.path,
            counted(len(old), "segment"),
            sum(segment.size for segment in old),
            state.size,
        )


def _feed(segment: Segment, position: int, take: Callable[[bytes, int], tuple[int, bool]]) -> bool:
    """Pass the bytes of a segment to `take` in order, which returns the bytes it consumed and whether to stop."""
    wanted = READ_CHUNK
    while position < segment.size:
        data = segment.read(wanted, position)
        try:
            taken, stops = take(data, position)
            if stops:
                return True
            if not taken:
                claimed = check_fits(data, position=position, segment=segment)
                if wanted >= claimed:
                    raise cut_short(segment, position + len(data))
                wanted = claimed
                continue
        except CorruptionError as error:
            if error.path:
                raise  # from another segment, which was read to judge a batch of this one
            raise segment.located(error) from error
        position += taken
        wanted = READ_CHUNK
    return False
