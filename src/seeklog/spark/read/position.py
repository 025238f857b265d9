"""The position of a stream: an offset for each partition, its JSON in Spark's checkpoint, and the ranges between two.

The JSON is that of Spark's Kafka source plus two keys, which are not valid topic names:

    {"#ids": {"orders": "q7YJ…"}, "#began": {"orders": {"0": 40}}, "orders": {"0": 55}}

`#ids`     the topic ids, which reveal a recreated topic even if its log has grown past the position.
`#began`   the start of a query's first batch, only in the end position of that batch. When Spark repeats the batch
           after a crash, it asks for the start again, and `latest` or `-10 minutes` would then be another offset.

Both are optional, so a query can continue from the checkpoint of a Kafka query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog.errors import InvalidConfig, counted
from seeklog.names import TopicPartition, is_topic_name
from seeklog.spark.option_map import shown
from seeklog.spark.read.offsets import Bounds, Range, Report, kept_range
from seeklog.topics.catalog import NO_TOPIC_ID, are_different

IDS: Final = "#ids"
BEGAN: Final = "#began"
_MAX_NAMED: Final = 5


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return Kafka's JSON value, `{"topic": {"0": 5}}`, with sorted keys because Spark compares offsets as text."""
    encoded: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        encoded.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return encoded


def decode_offsets(encoded: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Return the offsets that `encode_offsets` was given."""
    return {
        TopicPartition(topic, int(number)): int(inner[number])
        for topic, inner in sorted(encoded.items())
        for number in sorted(inner, key=int)
    }


@dataclass(frozen=True, slots=True)
class Position:
    """An offset for each partition, and the ids of the topics."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    began: Mapping[TopicPartition, int] | None = None

    @classmethod
    def of(cls, offsets: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds]) -> Position:
        """Return the position with the topic ids of existing partitions."""
        ids = {at.topic: bounds[at].topic_id for at in offsets}
        return cls(offsets, {topic: topic_id for topic, topic_id in ids.items() if topic_id != NO_TOPIC_ID})

    def is_other_topic(self, at: TopicPartition, topic_id: str | None) -> bool:
        """Return whether the partition's topic is known to have another id than `topic_id`."""
        return are_different(self.topic_ids.get(at.topic), topic_id)

    def encode(self) -> dict[str, Any]:
        """Return the JSON value, with sorted keys."""
        began = {} if self.began is None else {BEGAN: encode_offsets(self.began)}
        return {**began, IDS: dict(sorted(self.topic_ids.items())), **encode_offsets(self.offsets)}

    @classmethod
    def decode(cls, encoded: Mapping[str, Any]) -> Position:
        """Return the position in a checkpoint; refuse that of another kind of source."""
        offsets = {topic: inner for topic, inner in encoded.items() if topic not in (IDS, BEGAN)}
        try:
            if not all(map(is_topic_name, offsets)):
                raise ValueError
            began = encoded.get(BEGAN)
            return cls(
                decode_offsets(offsets),
                {str(topic): str(topic_id) for topic, topic_id in encoded.get(IDS, {}).items()},
                None if began is None else decode_offsets(began),
            )
        except (ValueError, TypeError, AttributeError, LookupError):
            raise InvalidConfig(
                f"the checkpoint's offset {shown(str(dict(encoded)))} is not of a seeklog or Kafka source; give this "
                "query its own checkpointLocation"
            ) from None


def ranges_between(
    start: Position, end: Position, bounds: Mapping[TopicPartition, Bounds], *, report: Report
) -> list[Range]:
    """Return the readable ranges between two positions, in order, without empty ones.

    A partition that is only in `end` is new and starts at its log start offset. A partition that is only in `start`,
    or whose topic was recreated, was deleted. `report` gets each loss, with the conditions of Spark's Kafka source.
    """
    ranges: list[Range] = []
    deleted: dict[str, list[TopicPartition]] = {}
    recreated: dict[str, list[TopicPartition]] = {}
    for at in sorted({*start.offsets, *end.offsets}):
        here, first, stop = bounds.get(at), start.offsets.get(at), end.offsets.get(at)
        if stop is None or here is None or end.is_other_topic(at, here.topic_id):
            deleted.setdefault(at.topic, []).append(at)
            continue
        if first is None:
            first = here.log_start_offset
            if first > 0:
                report(
                    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                    f"{at} is new to the stream, but its log starts at offset {first}",
                    first,
                )
        elif start.is_other_topic(at, end.topic_ids.get(at.topic)):
            recreated.setdefault(at.topic, []).append(at)
            first = here.log_start_offset
        elif first > stop:
            report(
                "PARTITION_OFFSET_CHANGED",
                f"{at} was read up to offset {first}, but its log ends at {stop}",
                first - stop,
            )
        ranges.append(kept_range(Range(at, first, stop, here.topic_id), here, report=report))
    _report_deleted(deleted, "deleted, or are no longer read", start, report)
    _report_deleted(recreated, "deleted and recreated", start, report)
    return [part for part in ranges if part.length > 0]


def _report_deleted(by_topic: Mapping[str, list[TopicPartition]], fate: str, start: Position, report: Report) -> None:
    for topic, partitions in by_topic.items():
        count = len(partitions)
        named = ", ".join(f"{at} (read up to offset {start.offsets.get(at, 0)})" for at in partitions[:_MAX_NAMED])
        others = f" and {count - _MAX_NAMED} more" if count > _MAX_NAMED else ""
        report(
            "PARTITIONS_DELETED",
            f"partitions of topic {topic} were {fate}: {named}{others}",
            f"later records of {counted(count, 'partition')} are",
        )
