"""Many records sent at once: the future of all of them, and rows of Arrow tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seeklog.clients.gathering import Delivery, Gatherer, Route
from seeklog.clock import Clock, check_timeout_s
from seeklog.errors import InvalidRecord, SeeklogError, UsageError
from seeklog.record.key_hash import partition_of

if TYPE_CHECKING:
    import pyarrow

    from seeklog.clients.producer import Partitioner
    from seeklog.record.growing import GrowingBatch


class SendManyFuture:
    """The outcome of records that were sent together."""

    __slots__ = ("_clock", "_parts")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: list[tuple[int, Delivery, int]] = []

    def add(self, partition: int, delivery: Delivery, count: int) -> None:
        """Add a batch of `count` records."""
        self._parts.append((partition, delivery, count))

    @property
    def count(self) -> int:
        """How many records were sent."""
        return sum(count for _, _, count in self._parts)

    def done(self) -> bool:
        """Return whether every record was written or has failed."""
        return all(delivery.is_done for _, delivery, _ in self._parts)

    def exception(self, timeout: float | None = None) -> SeeklogError | None:
        """Return the first error, or None if all records are written. Waits up to `timeout` seconds."""
        timeout = check_timeout_s("timeout", timeout)
        end = None if timeout is None else self._clock.monotonic() + timeout
        first: SeeklogError | None = None
        for _, delivery, _ in self._parts:
            delivery.wait(None if end is None else max(0.0, end - self._clock.monotonic()))
            if delivery.errors:
                delivery.observed.update(delivery.errors)
                first = first or delivery.errors[min(delivery.errors)]
        return first

    def result(self, timeout: float | None = None) -> dict[int, list[range]]:
        """Return the offsets of the records by partition, in order. Waits up to `timeout` seconds.

        Raises the first error. Other records may be written then.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        offsets: dict[int, list[range]] = {}
        for partition, delivery, _ in self._parts:
            found = offsets.setdefault(partition, [])
            first, stop = delivery.offsets[0], delivery.offsets[-1] + 1
            if found and found[-1].stop == first:
                found[-1] = range(found[-1].start, stop)
            else:
                found.append(range(first, stop))
        return offsets


def send_table(
    table: pyarrow.Table | pyarrow.RecordBatch,
    sent: SendManyFuture,
    *,
    route: Route,
    sender: Gatherer,
    partitioner: Partitioner,
    now_ms: int,
    turn: int,
) -> None:
    """Queue the rows of a table in batches, and add each to `sent`. After an error earlier batches are queued."""
    from seeklog.record import rows
    from seeklog.record.arrow import import_pyarrow

    pa = import_pyarrow()
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise UsageError(f"pass a pyarrow Table or RecordBatch, not {type(table).__name__}")
    names = [name for name in ("key", "value", "timestamp", "headers") if name in table.column_names]
    if "value" not in names:
        raise UsageError(f"the table has no column value; it has {', '.join(table.column_names) or 'no columns'}")
    if route.needs_key and ("key" not in names or table.column("key").null_count):
        raise InvalidRecord(f"topic {route.topic!r} is compacted, and a row has no key; nothing was sent")
    for number, part in enumerate(table.to_batches()):
        columns = {name: part.column(name) for name in names}
        records = rows.record_rows(**columns)
        if "partition" in part.schema.names:
            columns["partition"] = part.column("partition").cast(pa.int32())
        chosen = rows.choose_partitions(
            columns,
            row_count=part.num_rows,
            count=route.count,
            turn=turn + number,
            by_key=None if partitioner is partition_of else _asked(columns.get("key"), partitioner, count=route.count),
        )
        batch_bytes = next(iter(route.lanes.values())).bulk_bytes
        for partition, batch in rows.scatter_rows(
            records, chosen, count=route.count, now_ms=now_ms, batch_bytes=batch_bytes
        ):
            lane = route.lane_to(partition)
            _check_times(batch, route)
            sent.add(partition, sender.put_batch(lane, batch), batch.count)


def _asked(keys: pyarrow.Array | None, partitioner: Partitioner, *, count: int) -> pyarrow.Array | None:
    """Return the partitions that an application's partitioner chooses; -1 for a null key."""
    from seeklog.record.arrow import import_pyarrow

    pa = import_pyarrow()
    if keys is None:
        return None
    return pa.array([-1 if key is None else partitioner(key, count) for key in keys.to_pylist()], pa.int32())


def _check_times(batch: GrowingBatch, route: Route) -> None:
    rule = route.timestamps
    if batch.min_timestamp <= rule.checked_up_to or batch.max_timestamp > rule.accepted_up_to:
        for record in batch.records():
            rule.check(None, record.timestamp_ms)
