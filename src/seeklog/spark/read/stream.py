"""`spark.readStream`: the reader of a stream.

Spark makes one reader in a process of its own, which lives as long as the query and is never told of its end, and
asks it before each batch how far that may go (`latestOffset`) and what its tasks read (`partitions`). It makes
another one to copy `read` into the tasks, so these know nothing but their split.

A stream goes up to the high watermark that the writers have published, and never past it. Its place is in the
checkpoint (`position`), which also says what is lost if the log no longer has what lies between two positions.
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
from seeklog.errors import GroupInUse, NotALog, SeeklogError, TopicNotFound
from seeklog.names import TopicPartition
from seeklog.spark.read.admission import Pace, Patience, shorter, within
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
from seeklog.spark.read.plan import Layout, Split, plan_splits
from seeklog.spark.read.position import Position, ranges_between
from seeklog.spark.read.scan import scan_split
from seeklog.spark.read.schema import NEVER_NULL, RECORD_SCHEMA, arrow_schema, check_schema
from seeklog.store import Store, open_store

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("seeklog")

# A topic that is deleted between two looks at it is seen to be gone at the second; it cannot go on for ever.
_MAX_LOOKS: Final = 3
_Found = TypeVar("_Found")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads records as they come. Nothing is opened or checked until Spark first asks: an error of the constructor
    would reach the user inside one of Spark's own."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, clock: Clock | None = None) -> None:
        self._given = dict(options)
        self._schema = schema
        self._clock = clock or SystemClock()
        self._pace = Pace(self._clock)
        self._initial: dict[str, Any] | None = None
        """Where a query without a checkpoint begins."""
        self._latest: dict[str, Any] | None = None
        """The high watermarks at the last look."""
        self._pinned: dict[TopicPartition, Bounds] | None = None
        """All that a query with the trigger AvailableNow reads."""
        self._ends: _Ends | None = None
        """Where the stream stops; None before the first look."""

    @cached_property
    def _options(self) -> ReadOptions:
        options = parse_stream_options(self._given)
        check_schema(self._schema, RECORD_SCHEMA, what="a topic", never_null=NEVER_NULL)
        return options

    @cached_property
    def _store(self) -> Store:
        return self._options.open()

    @cached_property
    def _group(self) -> _ProgressGroup | None:
        group_id = self._options.group_id
        return None if group_id is None else _ProgressGroup(self._options.path, group_id)

    @cached_property
    def _patience(self) -> Patience:
        options = self._options
        return Patience(options.min_offsets_per_trigger or 0, delay_ms=options.max_trigger_delay_ms, clock=self._clock)

    # ------------------------------------------------------------ what Spark asks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins: the same whenever Spark asks, which it does twice."""
        if self._initial is None:
            bounds = find_bounds(self._store, self._options.choice)
            starts = start_offsets(self._store, bounds, self._options, clock=self._clock)
            self._initial = Position.of(starts, bounds).encode()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one of the limits that the options set: Spark cannot express several, and hands it back as it is."""
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
        report = partial(report_loss, fail=options.fail_on_data_loss)

        def planned() -> list[Split]:
            ranges = ranges_between(first, last, self._present(), report=report)
            return plan_splits(self._store, ranges, **options.split_limits)

        return _while_topics_vanish(planned)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return scan_split(partition, arrow_schema(self._schema)) if isinstance(partition, Split) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark says so one batch late, and never for the last; `latestOffset` has committed it before."""

    # ------------------------------------------------------------ how it is found

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options = self._options
        position = Position.decode(start)
        bounds = self._present()
        if self._ends is None:
            self._check_named(position, bounds)
            self._ends = _Ends(self._store, bounds, options)
        self._latest = Position.of({at: here.high_watermark for at, here in bounds.items()}, bounds).encode()
        targets = self._targets(self._ends, position, bounds)
        # What is gone without failOnDataLoss is reported by `partitions`.
        report = partial(report_loss, fail=True) if options.fail_on_data_loss else lambda *_: None
        backlog = ranges_between(position, Position.of(targets, bounds), bounds, report=report)
        self._commit_to_group(position, bounds)
        if not isinstance(limit, ReadAllAvailable):
            if self._must_wait(backlog):
                return start
            backlog = self._limited(backlog)
        end = Position.of(targets | {each.partition: each.stop for each in backlog}, bounds)
        if start == self._initial:
            return Position(end.offsets, end.topic_ids, position.offsets).encode()
        is_same = end.offsets == position.offsets and end.topic_ids == position.topic_ids
        return start if is_same else end.encode()

    def _present(self) -> dict[TopicPartition, Bounds]:
        """Return the chosen partitions that are there; a named one that is not may have been deleted."""
        choice = self._options.choice
        named = {*choice.topics, *(at.topic for at in choice.partitions)}

        def found() -> dict[TopicPartition, Bounds]:
            if choice.pattern:
                return find_bounds(self._store, choice)
            return bounds_of(self._store, sorted(named.intersection(self._store.topics(internal=True))))

        present = _while_topics_vanish(found)
        return {at: here for at, here in present.items() if not choice.partitions or at in choice.partitions}

    def _check_named(self, start: Position, bounds: Mapping[TopicPartition, Bounds]) -> None:
        """Refuse a name that the options have, but neither the store nor the checkpoint."""
        choice, known = self._options.choice, {*start.offsets, *bounds}
        is_known = known.issuperset(choice.partitions) and {at.topic for at in known}.issuperset(choice.topics)
        if self._options.fail_on_data_loss and not is_known:
            find_bounds(self._store, choice)

    def _targets(
        self, ends: _Ends, start: Position, bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[TopicPartition, int]:
        """Return where the stream would stand if it had no limit. Partitions that came after its end are left out."""
        targets: dict[TopicPartition, int] = {}
        for at, here in bounds.items():
            stop = ends.stop(at, here)
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
        return not self._patience.is_over(sum(each.length for each in backlog))

    def _limited(self, backlog: list[Range]) -> list[Range]:
        max_offsets, max_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        limited = backlog if max_offsets is None else within(backlog, max_offsets)
        if max_bytes is None:
            return limited
        layouts = {each.partition: Layout.of(self._store, each.partition) for each in backlog}
        few = within(
            backlog,
            max_bytes,
            size_of=lambda each: layouts[each.partition].size(each),
            cut=lambda each, share: layouts[each.partition].stop_after(each, share),
        )
        return shorter(limited, few)

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


def _while_topics_vanish(look: Callable[[], _Found]) -> _Found:
    """Look again if a topic was deleted or recreated while the look went on."""
    for _ in range(_MAX_LOOKS - 1):
        with contextlib.suppress(TopicNotFound, NotALog):
            return look()
    return look()


class _Ends:
    """Where a stream stops: the places that `endingOffsets` and its like name, as offsets that it never goes past.

    Offsets, `latest` and what is counted back from it are found when the query starts, and stay: what comes later is
    not read. The record that a time names may come later; until it has, the stream goes on. A restart finds all again.
    """

    def __init__(self, store: Store, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions) -> None:
        self._store = store
        self._place = options.end
        self._settled = {
            at: end
            for at, end in end_offsets(store, bounds, options).items()
            if time_of(self._place, at) is None or end < bounds[at].high_watermark
        }

    def stop(self, at: TopicPartition, here: Bounds) -> int | None:
        """Return how far a partition may be read now, or None if it came after the end of everything."""
        if self._place is None:
            return here.high_watermark
        timestamp_ms = time_of(self._place, at)
        if timestamp_ms is not None and at not in self._settled:
            found = offset_at_time(self._store, at, here, timestamp_ms)
            if found is None:
                return here.high_watermark
            self._settled[at] = found
        return min(self._settled[at], here.high_watermark) if at in self._settled else None


class _ProgressGroup:
    """A consumer group that a query commits its progress to, so that tools which watch lags see the query's.

    Where the query continues is in its checkpoint alone.
    """

    def __init__(self, path: str, group: str) -> None:
        """Open the store to write. A group with members, and a store that cannot be written, are refused."""
        # Opening a store that is not there to write would create it.
        open_store(path, read_only=True, background=False).close()
        self._group = group
        self._store = open_store(path, background=False)
        members = self._store.describe_group(group).members if group in self._store.groups() else ()
        if members:
            self._store.close()
            raise GroupInUse(
                f"group {group!r} has {len(members)} members that consume; give the query a groupId of its own"
            )
        self._committed: dict[TopicPartition, int] = {}
        self._is_failing = False

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what has changed. A query that runs does not fail with this: there is one warning instead."""
        changed = {at: offset for at, offset in offsets.items() if self._committed.get(at) != offset}
        if not changed:
            return
        try:
            self._store.commit_offsets(self._group, changed)
        except SeeklogError as error:
            if not self._is_failing:
                logger.warning("group %r does not show how far the query is: %s", self._group, error)
            self._is_failing = True
        else:
            self._committed |= changed
            self._is_failing = False
