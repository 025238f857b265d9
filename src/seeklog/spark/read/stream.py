"""`spark.readStream`: the reader of a stream.

Spark makes one reader in a process of its own, which lives as long as the query and is never told of its end, and
asks it before each batch how far that may go (`latestOffset`) and what its tasks read (`partitions`). It makes
another one to copy `read` into the tasks, so these know nothing but their split.

A stream goes up to the high watermark that the writers have published, and never past it. Its place is in the
checkpoint (`spark.position`); what of the log is gone since is data loss (`spark.losses`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from seeklog.clock import Clock, SystemClock
from seeklog.errors import NotALog, TopicNotFound
from seeklog.names import TopicPartition
from seeklog.spark.read.admission import Pace, Patience, shorter, within_bytes, within_offsets
from seeklog.spark.read.endings import Endings
from seeklog.spark.read.losses import fail_on, pass_over, ranges_between, warn_of
from seeklog.spark.read.offsets import Bounds, Range, find_bounds, latest_offsets, start_offsets
from seeklog.spark.read.options import Choice, StreamOptions, parse_stream_options
from seeklog.spark.read.plan import Split, cut_at_bytes, plan_splits, range_bytes
from seeklog.spark.read.position import Position
from seeklog.spark.read.progress_group import ProgressGroup
from seeklog.spark.read.scan import scan_split
from seeklog.spark.read.schema import NEVER_NULL, RECORD_SCHEMA, arrow_schema, check_schema
from seeklog.store import Store, open_store

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

# A topic that is deleted between two looks at it is seen to be gone at the second; it cannot go on for ever.
_LOOKS_MOST = 3


def stream_reader(options: Mapping[str, str], schema: StructType, *, clock: Clock | None = None) -> StreamReader:
    """Return the reader of a stream of records."""
    return StreamReader(options, schema, clock=clock or SystemClock())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads records as they come. Nothing is opened or checked until Spark first asks: an error of the constructor
    would reach the user behind one of Spark's own."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, clock: Clock) -> None:
        self._given = dict(options)
        self._schema = schema
        self._clock = clock
        self._initial: dict[str, Any] | None = None
        self._latest: dict[str, Any] | None = None
        self._endings: Endings | None = None
        self._pinned: dict[TopicPartition, Bounds] | None = None
        self._is_begun = False
        self._pace = Pace(clock)

    @cached_property
    def _options(self) -> StreamOptions:
        options = parse_stream_options(self._given)
        check_schema(self._schema, RECORD_SCHEMA, what="a topic", never_null=NEVER_NULL)
        return options

    @cached_property
    def _store(self) -> Store:
        options = self._options
        return open_store(options.path, read_only=True, background=False, storage_options=options.storage_options)

    @cached_property
    def _group(self) -> ProgressGroup | None:
        group_id = self._options.group_id
        return None if group_id is None else ProgressGroup(self._options.path, group_id)

    @cached_property
    def _patience(self) -> Patience:
        options = self._options
        return Patience(options.min_offsets_per_trigger or 0, delay_ms=options.max_trigger_delay_ms, clock=self._clock)

    # ------------------------------------------------------------ what Spark asks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins: the same whenever it is asked, which it is twice."""
        if self._initial is None:
            bounds = find_bounds(self._store, self._options.choice)
            starts = start_offsets(self._store, bounds, self._options, clock=self._clock)
            self._initial = Position.of(starts, bounds).encode()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one of the limits that the options set: Spark has no word for several, and hands it back as it is."""
        options = self._options
        # The first thing that every query asks: what is wrong with its group shows before anything is read.
        _ = self._group
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what there is: a query with this trigger reads that and ends."""
        self._pinned = self._present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends. What lies before `start` has been processed."""
        self._pace.begin()
        end = self._next_end(start, limit)
        self._pace.end(is_idle=end == start)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the high watermarks at the last look, whatever limits and ends there are: lag is counted from them."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what tasks read between two positions. What of it is gone is reported here, once for each batch."""
        if start == end:
            return []
        first, last = Position.decode(start), Position.decode(end)
        if last.began is not None:
            first = Position(last.began, last.topic_ids)
        options = self._options
        for look in range(_LOOKS_MOST):
            bounds = self._present()
            try:
                return plan_splits(
                    self._store,
                    ranges_between(first, last, bounds, report=fail_on if options.fail_on_data_loss else warn_of),
                    split_bytes=options.split_bytes,
                    min_partitions=options.min_partitions,
                    max_records=options.max_records_per_partition,
                    fail_on_data_loss=options.fail_on_data_loss,
                    topic_ids={at.topic: one.topic_id for at, one in bounds.items()},
                )
            except (TopicNotFound, NotALog):
                if look + 1 == _LOOKS_MOST:
                    raise
        return []

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return scan_split(partition, arrow_schema(self._schema)) if isinstance(partition, Split) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Spark says so one batch late, and never of the last: `latestOffset` has committed it before."""

    # ------------------------------------------------------------ how it is found

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options = self._options
        position = Position.decode(start)
        bounds = self._present()
        if not self._is_begun:
            self._check_named(position, bounds)
            self._is_begun = True
        self._latest = Position.of(latest_offsets(bounds), bounds).encode()
        targets = self._targets(position, bounds)
        backlog = ranges_between(
            position,
            Position.of(targets, bounds),
            bounds,
            report=fail_on if options.fail_on_data_loss else pass_over,
        )
        self._commit_to_group(position, bounds)
        if not isinstance(limit, ReadAllAvailable):
            if self._must_wait(backlog):
                return start
            backlog = self._limited(backlog)
        end = Position.of(targets | {one.partition: one.stop for one in backlog}, bounds)
        if start == self._initial:
            return Position(end.offsets, end.topic_ids, position.offsets).encode()
        is_same = end.offsets == position.offsets and end.topic_ids == position.topic_ids
        return start if is_same else end.encode()

    def _present(self) -> dict[TopicPartition, Bounds]:
        """Return the chosen partitions that are there; those that are named and are not may have been deleted."""
        choice = self._options.choice
        named = {*choice.topics, *(at.topic for at in choice.partitions)}
        for look in range(_LOOKS_MOST):
            try:
                if choice.pattern:
                    return find_bounds(self._store, choice)
                topics = sorted(named.intersection(self._store.topics(internal=True)))
                found = find_bounds(self._store, Choice(topics=tuple(topics))) if topics else {}
                return {at: one for at, one in found.items() if not choice.partitions or at in choice.partitions}
            except (TopicNotFound, NotALog):
                if look + 1 == _LOOKS_MOST:
                    raise
        return {}

    def _check_named(self, start: Position, bounds: Mapping[TopicPartition, Bounds]) -> None:
        """Refuse a name that the options have, but neither the store nor the checkpoint."""
        if not self._options.fail_on_data_loss:
            return
        known = {at.topic for at in (*start.offsets, *bounds)}
        choice = self._options.choice
        if not known.issuperset(choice.topics) or not {*start.offsets, *bounds}.issuperset(choice.partitions):
            find_bounds(self._store, choice)

    def _targets(self, start: Position, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        """Return where the stream would stand if it had no limit. Partitions that came after its end are left out."""
        if self._endings is None:
            self._endings = Endings(self._store, bounds, self._options)
        targets: dict[TopicPartition, int] = {}
        for at, here in bounds.items():
            stop = self._endings.stop(at, here)
            if self._pinned is not None and stop is not None:
                pinned = self._pinned.get(at)
                is_same = pinned is not None and pinned.topic_id == here.topic_id
                stop = min(stop, pinned.high_watermark) if pinned is not None and is_same else None
            first = start.offsets.get(at)
            if first is not None and not start.is_other_topic(at, here.topic_id):
                # It never goes back, unless the log itself did.
                targets[at] = min(first if stop is None else max(first, stop), here.high_watermark)
            elif stop is not None:
                targets[at] = max(stop, here.log_start_offset)
        return targets

    def _must_wait(self, backlog: Sequence[Range]) -> bool:
        # A query that ends with what there is would end before a small rest was worth a batch.
        if self._options.min_offsets_per_trigger is None or self._pinned is not None:
            return False
        return not self._patience.is_over(sum(one.stop - one.start for one in backlog))

    def _limited(self, backlog: list[Range]) -> list[Range]:
        most, most_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        limited = backlog
        if most is not None:
            limited = within_offsets(backlog, most)
        if most_bytes is not None:
            few = within_bytes(
                backlog, most_bytes, size_of=partial(range_bytes, self._store), cut=partial(cut_at_bytes, self._store)
            )
            limited = shorter(limited, few)
        return limited

    def _commit_to_group(self, processed: Position, bounds: Mapping[TopicPartition, Bounds]) -> None:
        if self._group is None:
            return
        self._group.commit(
            {
                at: offset
                for at, offset in processed.offsets.items()
                if at in bounds
                and offset <= bounds[at].high_watermark
                and not processed.is_other_topic(at, bounds[at].topic_id)
            }
        )
