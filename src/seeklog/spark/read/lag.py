"""How far queries are behind what there is to read: the metrics of Spark's Kafka source.

A Python source cannot add metrics to a query's progress. The progress has the offsets, though, and a listener sees it:

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
    """How far a query was behind when it had finished a batch, in all of its seeklog sources."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    offsets_behind: Mapping[TopicPartition, int]
    """How many offsets came after the batch in each partition; compaction may have left fewer records."""

    @property
    def metrics(self) -> dict[str, float]:
        """The three numbers under the names that Spark's Kafka source has for them."""
        behind = self.offsets_behind.values()
        return {
            "minOffsetsBehindLatest": min(behind, default=0),
            "maxOffsetsBehindLatest": max(behind, default=0),
            "avgOffsetsBehindLatest": sum(behind) / len(behind) if behind else 0.0,
        }


class LagListener(StreamingQueryListener):
    """Calls `callback` with the lag after each batch of each query that reads from seeklog; `last` has the newest.

    Spark calls a listener in a thread of its own, some time after the batch.
    """

    def __init__(self, callback: Callable[[QueryLag], object] | None = None) -> None:
        self._callback = callback
        self.last: dict[str, QueryLag] = {}
        """The newest lag of each query, by its id. It stays when the query has ended."""

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
    """Return how far a query is behind by its progress, or None if it reads nothing from seeklog."""
    behind: dict[TopicPartition, int] = {}
    is_ours = False
    # The text of the whole, and not its fields: there the offsets are JSON in every version, and with Connect.
    for source in json.loads(progress.json)["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        # Positions of other sources have no topics' ids.
        if not all(isinstance(each, dict) and IDS in each for each in (end, latest)):
            continue
        is_ours = True
        read = Position.decode(end).offsets
        for at, offset in Position.decode(latest).offsets.items():
            # Of two sources that read one partition the slower one counts.
            behind[at] = max(behind.get(at, 0), offset - read.get(at, 0))
    if not is_ours:
        return None
    return QueryLag(
        query_id=str(progress.id),
        run_id=str(progress.runId),
        name=progress.name,
        batch_id=progress.batchId,
        offsets_behind=behind,
    )
