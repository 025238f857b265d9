"""`spark.readStream`: the reader of a stream.

Spark creates one reader in a separate process, which lives as long as the query and gets no notice of its end. Before
each batch Spark asks it for the end of the batch (`latestOffset`) and for the splits (`partitions`). Spark pickles
another reader into the tasks, so `read` may use only its split.

A stream never reads past the high watermark. Its position is in Spark's checkpoint (`position`), and offsets between
two positions that the log no longer has are reported as lost.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from seeklog.clock import Clock, SystemClock
from seeklog.errors import GroupInUse, NotALog, SeeklogError, TopicNotFound, counted
from seeklog.names import TopicPartition
from seeklog.spark.read.admission import Pace, TriggerDelay, shorter, within
from seeklog.spark.read.offsets import (
    Bounds,
    Range,
    bounds_of,
    end_offsets,
    find_bounds,
    offset_at_time,
    report_loss,
    start_offsets,
    time_of,
)
from seeklog.spark.read.options import ReadOptions, parse_stream_options
from seeklog.spark.read.plan import Partition, Split, plan_splits
from seeklog.spark.read.position import Position, ranges_between
from seeklog.spark.read.scan import scan_split
from seeklog.spark.read.schema import NEVER_NULL, RECORD_SCHEMA, arrow_schema, check_schema
from seeklog.store import Store, open_store

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("seeklog")

# A retry sees that a topic is gone. More deletions and creations could follow, but not forever.
_MAX_ATTEMPTS: Final = 3
_Result = TypeVar("_Result")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads records as they are appended.

    Options are checked on first use, because Spark wraps errors of the constructor.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, clock: Clock | None = None) -> None:
        self._given = dict(options)
        self._schema = schema
        self._clock = clock or SystemClock()
        self._pace = Pace(self._clock)
        self._initial: dict[str, Any] | None = None
        """The start of a query without a checkpoint."""
        self._latest: dict[str, Any] | None = None
        """The high watermarks at the last poll."""
        self._pinned: dict[TopicPartition, Bounds] | None = None
        """The bounds that a query with the trigger AvailableNow reads."""
        self._ends: _Ends | None = None
        """The end of the stream; None before the first poll."""

    @cached_property
    def _options(self) -> ReadOptions:
        options = parse_stream_options(self._given)
        check_schema(self._schema, RECORD_SCHEMA, subject="a topic", never_null=NEVER_NULL)
        return options

    @cached_property
    def _store(self) -> Store:
        return self._options.open()

    @cached_property
    def _group(self) -> _ProgressGroup | None:
        group_id = self._options.group_id
        return None if group_id is None else _ProgressGroup(self._options.path, group_id)

    @cached_property
    def _trigger_delay(self) -> TriggerDelay:
        options = self._options
        return TriggerDelay(
            options.min_offsets_per_trigger or 0, delay_ms=options.max_trigger_delay_ms, clock=self._clock
        )

    # ------------------------------------------------------------ called by Spark

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start of a query without a checkpoint. Spark asks twice and must get the same answer."""
        if self._initial is None:
            bounds = find_bounds(self._store, self._options.choice)
            starts = start_offsets(self._store, bounds, self._options, clock=self._clock)
            self._initial = Position.of(starts, bounds).encode()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one of the limits in the options: Spark cannot express several, and passes it back unchanged."""
        options = self._options
        # Every query calls this first, so an error of its group is raised before anything is read.
        _ = self._group
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the current bounds, up to which a query with this trigger reads."""
        self._pinned = self._present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch. Everything before `start` is processed."""
        self._pace.begin()
        end = self._next_end(start, limit)
        self._pace.end(is_idle=end == start)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the high watermarks at the last poll, regardless of limits, to compute the lag."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the splits between two positions. Losses are reported here, once per batch."""
        if start == end:
            return []
        first, last = Position.decode(start), Position.decode(end)
        if last.began is not None:
            first = Position(last.began, last.topic_ids)
        options = self._options
        report = partial(report_loss, fail=options.fail_on_data_loss)

        def plan() -> list[Split]:
            ranges = ranges_between(first, last, self._present(), report=report)
            return plan_splits(self._store, ranges, **options.split_limits)

        return _retry_if_recreated(plan)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return scan_split(partition, arrow_schema(self._schema)) if isinstance(partition, Split) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls this a batch late, and never for the last batch. `latestOffset` commits earlier."""

    # ------------------------------------------------------------ the end of a batch

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options = self._options
        position = Position.decode(start)
        bounds = self._present()
        if self._ends is None:
            self._check_named(position, bounds)
            self._ends = _Ends(self._store, bounds, options)
        self._latest = Position.of({at: here.high_watermark for at, here in bounds.items()}, bounds).encode()
        targets = self._targets(self._ends, position, bounds)
        # Without failOnDataLoss `partitions` reports losses.
        report = partial(report_loss, fail=True) if options.fail_on_data_loss else lambda *_: None
        backlog = ranges_between(position, Position.of(targets, bounds), bounds, report=report)
        self._commit_to_group(position, bounds)
        if not isinstance(limit, ReadAllAvailable):
            if self._must_wait(backlog):
                return start
            backlog = self._limited(backlog)
        end = Position.of(targets | {part.partition: part.stop for part in backlog}, bounds)
        if start == self._initial:
            return Position(end.offsets, end.topic_ids, position.offsets).encode()
        is_same = end.offsets == position.offsets and end.topic_ids == position.topic_ids
        return start if is_same else end.encode()

    def _present(self) -> dict[TopicPartition, Bounds]:
        """Return the bounds of the chosen partitions that exist; a named one may have been deleted."""
        choice = self._options.choice
        named = {*choice.topics, *(at.topic for at in choice.partitions)}

        def find() -> dict[TopicPartition, Bounds]:
            if choice.pattern:
                return find_bounds(self._store, choice)
            return bounds_of(self._store, sorted(named.intersection(self._store.topics(internal=True))))

        present = _retry_if_recreated(find)
        return {at: here for at, here in present.items() if not choice.partitions or at in choice.partitions}

    def _check_named(self, start: Position, bounds: Mapping[TopicPartition, Bounds]) -> None:
        """Refuse a topic or partition in the options that is neither in the store nor in the checkpoint."""
        choice, known = self._options.choice, {*start.offsets, *bounds}
        is_known = known.issuperset(choice.partitions) and {at.topic for at in known}.issuperset(choice.topics)
        if self._options.fail_on_data_loss and not is_known:
            find_bounds(self._store, choice)

    def _targets(
        self, ends: _Ends, start: Position, bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, int]:
        """Return where the batch would end without limits. Partitions created after the stream's end are skipped."""
        targets: dict[TopicPartition, int] = {}
        for at, here in bounds.items():
            stop = ends.stop(at, here)
            if self._pinned is not None and stop is not None:
                pinned = self._pinned.get(at)
                is_same = pinned is not None and pinned.topic_id == here.topic_id
                stop = min(stop, pinned.high_watermark) if pinned is not None and is_same else None
            first = start.offsets.get(at)
            if first is not None and not start.is_other_topic(at, here.topic_id):
                # A stream never goes back, unless its log was truncated.
                targets[at] = min(first if stop is None else max(first, stop), here.high_watermark)
            elif stop is not None:
                targets[at] = max(stop, here.log_start_offset)
        return targets

    def _must_wait(self, backlog: Sequence[Range]) -> bool:
        # A query with the trigger AvailableNow would end before a small backlog was read.
        if self._options.min_offsets_per_trigger is None or self._pinned is not None:
            return False
        return not self._trigger_delay.is_over(sum(part.length for part in backlog))

    def _limited(self, backlog: list[Range]) -> list[Range]:
        max_offsets, max_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        limited = backlog if max_offsets is None else within(backlog, max_offsets)
        if max_bytes is None:
            return limited
        partitions = {part.partition: Partition.of(self._store, part.partition) for part in backlog}
        within_bytes = within(
            backlog,
            max_bytes,
            size_of=lambda part: partitions[part.partition].size(part),
            cut=lambda part, share: partitions[part.partition].stop_after(part, share),
        )
        return shorter(limited, within_bytes)

    def _commit_to_group(self, processed: Position, bounds: Mapping[TopicPartition, Bounds]) -> None:
        if self._group is not None:
            self._group.commit(
                {
                    at: offset
                    for at, offset in processed.offsets.items()
                    if at in bounds
                    and offset <= bounds[at].high_watermark
                    and not processed.is_other_topic(at, bounds[at].topic_id)
                }
            )


def _retry_if_recreated(attempt: Callable[[], _Result]) -> _Result:
    """Return the result of `attempt`; retry if a topic was deleted or recreated meanwhile."""
    for _ in range(_MAX_ATTEMPTS - 1):
        with contextlib.suppress(TopicNotFound, NotALog):
            return attempt()
    return attempt()


class _Ends:
    """The end of a stream, as set by `endingOffsets` and similar options.

    Offsets, `latest`, and `-100` are resolved when the query starts, and a restart resolves them again. A timestamp is
    resolved once a record with it or a later one exists; until then the stream continues.
    """

    def __init__(self, store: Store, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions) -> None:
        self._store = store
        self._end = options.end
        self._resolved = {
            at: end
            for at, end in end_offsets(store, bounds, options).items()
            if time_of(self._end, at) is None or end < bounds[at].high_watermark
        }

    def stop(self, at: TopicPartition, here: Bounds) -> int | None:
        """Return the offset up to which a partition may be read now, or None if it was created after the end."""
        if self._end is None:
            return here.high_watermark
        timestamp_ms = time_of(self._end, at)
        if timestamp_ms is not None and at not in self._resolved:
            offset = offset_at_time(self._store, at, here, timestamp_ms)
            if offset is None:
                return here.high_watermark
            self._resolved[at] = offset
        return min(self._resolved[at], here.high_watermark) if at in self._resolved else None


class _ProgressGroup:
    """The consumer group to which a query commits its progress, for tools that show lag.

    A restarted query continues from its checkpoint, never from the group.
    """

    def __init__(self, path: str, group: str) -> None:
        """Open the store for writing. Refuse a group with members, and a store that cannot be written."""
        # Raises if the store does not exist: opening it for writing would create it.
        open_store(path, read_only=True, background=False).close()
        self._group = group
        self._store = open_store(path, background=False)
        members = self._store.describe_group(group).members if group in self._store.groups() else ()
        if members:
            self._store.close()
            raise GroupInUse(
                f"group {group!r} has {counted(len(members), 'active member')}; set another groupId for this query"
            )
        self._committed: dict[TopicPartition, int] = {}
        self._is_failing = False

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit changed offsets. A failure does not stop the query; it is logged once."""
        changed = {at: offset for at, offset in offsets.items() if self._committed.get(at) != offset}
        if not changed:
            return
        try:
            self._store.commit_offsets(self._group, changed)
        except SeeklogError as error:
            if not self._is_failing:
                logger.warning("group %r does not show the query's progress: %s", self._group, error)
            self._is_failing = True
        else:
            self._committed |= changed
            self._is_failing = False
