"""The lag of streaming queries: the metrics of Spark's Kafka source.

A Python source cannot add metrics to a query's progress. The progress has the offsets, so a listener computes the lag:

    listener = LagListener(lambda lag: print(lag.name, lag.metrics))
    spark.streams.addListener(listener)
    …
    listener.last[query.id].metrics["maxOffsetsBehindLatest"]

With Spark Connect the listener is called in the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from seeklog.names import TopicPartition
from seeklog.spark.read.position import IDS, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """The lag of a query after a batch, over all of its seeklog sources."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    offsets_behind: Mapping[TopicPartition, int]
    """The number of offsets after the batch in each partition. Compaction may have left fewer records."""

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of Spark's Kafka source, under the same names."""
        behind = self.offsets_behind.values()
        return {
            "minOffsetsBehindLatest": min(behind, default=0),
            "maxOffsetsBehindLatest": max(behind, default=0),
            "avgOffsetsBehindLatest": sum(behind) / len(behind) if behind else 0.0,
        }


class LagListener(StreamingQueryListener):
    """Calls `callback` with the lag after each batch of each query that reads from seeklog.

    Spark calls a listener in a separate thread, some time after the batch.
    """

    def __init__(self, callback: Callable[[QueryLag], object] | None = None) -> None:
        self._callback = callback
        self.last: dict[str, QueryLag] = {}
        """The latest lag of each query by query id, kept after the query ends."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        lag = lag_of(event.progress)
        if lag is not None:
            self.last[lag.query_id] = lag
            if self._callback is not None:
                self._callback(lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def lag_of(progress: StreamingQueryProgress) -> QueryLag | None:
    """Return the lag in a query's progress, or None if the query does not read from seeklog."""
    behind: dict[TopicPartition, int] = {}
    is_seeklog = False
    # In the JSON text the offsets are JSON too, in every version of Spark and in Connect. The fields differ.
    for source in json.loads(progress.json)["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        # Only our positions have topic ids.
        if not all(isinstance(position, dict) and IDS in position for position in (end, latest)):
            continue
        is_seeklog = True
        read = Position.decode(end).offsets
        for at, offset in Position.decode(latest).offsets.items():
            # If two sources read one partition, the slower one counts.
            behind[at] = max(behind.get(at, 0), offset - read.get(at, 0))
    if not is_seeklog:
        return None
    return QueryLag(
        query_id=str(progress.id),
        run_id=str(progress.runId),
        name=progress.name,
        batch_id=progress.batchId,
        offsets_behind=behind,
    )
