"""Where a stream stands: an offset for each partition, its JSON in Spark's checkpoint, and what lies between two.

The JSON is that of Spark's Kafka source, with two more keys that no topic can have as its name:

    {"#ids": {"orders": "q7YJ…"}, "#began": {"orders": {"0": 40}}, "orders": {"0": 55}}

`#ids`     the topics' ids, which tell a recreated topic from the one before it, however long it has grown since.
`#began`   where a query's first batch began; in the end of that batch alone. When a crash makes Spark repeat the batch,
           it asks for the start again, and by then `latest` or `-10 minutes` are another place.

Both may be missing: a checkpoint of a Kafka query can be continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog.errors import InvalidConfig
from seeklog.names import TopicPartition, is_topic_name
from seeklog.spark.option_map import shown
from seeklog.spark.read.offsets import Bounds, Range, Report, kept_range
from seeklog.topics.catalog import NO_TOPIC_ID, are_different

IDS: Final = "#ids"
BEGAN: Final = "#began"
_MAX_NAMED: Final = 5


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return Kafka's shape, `{"topic": {"0": 5}}`, its keys in order: Spark compares offsets as text."""
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
    """An offset for each partition, with the ids of their topics."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    began: Mapping[TopicPartition, int] | None = None

    @classmethod
    def of(cls, offsets: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds]) -> Position:
        """Return a position in partitions that are there."""
        ids = {at.topic: bounds[at].topic_id for at in offsets}
        return cls(offsets, {topic: found for topic, found in ids.items() if found != NO_TOPIC_ID})

    def is_other_topic(self, at: TopicPartition, topic_id: str | None) -> bool:
        """Tell whether the partition's topic is known not to be that of `topic_id`."""
        return are_different(self.topic_ids.get(at.topic), topic_id)

    def encode(self) -> dict[str, Any]:
        """Return the JSON's value, its keys in order: Spark compares positions as text."""
        began = {} if self.began is None else {BEGAN: encode_offsets(self.began)}
        return {**began, IDS: dict(sorted(self.topic_ids.items())), **encode_offsets(self.offsets)}

    @classmethod
    def decode(cls, encoded: Mapping[str, Any]) -> Position:
        """Return the position that a checkpoint has; one that is not a position in topics is refused."""
        offsets = {topic: inner for topic, inner in encoded.items() if topic not in (IDS, BEGAN)}
        try:
            if not all(map(is_topic_name, offsets)):
                raise ValueError
            began = encoded.get(BEGAN)
            return cls(
                decode_offsets(offsets),
                {str(topic): str(found) for topic, found in encoded.get(IDS, {}).items()},
                None if began is None else decode_offsets(began),
            )
        except (ValueError, TypeError, AttributeError, LookupError):
            raise InvalidConfig(
                f"the checkpoint's offset {shown(str(dict(encoded)))} is not of a seeklog or Kafka source; give the "
                "query a checkpointLocation of its own"
            ) from None


def ranges_between(
    start: Position, end: Position, bounds: Mapping[TopicPartition, Bounds], *, report: Report
) -> list[Range]:
    """Return what can be read between two positions, one range for each partition that has any, in order.

    A partition that `start` does not have is new, and begins where its log does. A partition that `end` does not have,
    or whose topic was recreated since, is gone. `report` gets what is lost, by the conditions of Spark's Kafka source.
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
                    f"{at} is new to the stream, but its records begin at offset {first}",
                    first,
                )
        elif start.is_other_topic(at, end.topic_ids.get(at.topic)):
            recreated.setdefault(at.topic, []).append(at)
            first = here.log_start_offset
        elif first > stop:
            report(
                "PARTITION_OFFSET_CHANGED",
                f"{at} was read up to offset {first}, but its records end at {stop}",
                first - stop,
            )
        ranges.append(kept_range(Range(at, first, stop, here.topic_id), here, report=report))
    _report_deleted(deleted, "deleted, or are no longer read", start, report)
    _report_deleted(recreated, "deleted and recreated", start, report)
    return [each for each in ranges if each.length > 0]


def _report_deleted(by_topic: Mapping[str, list[TopicPartition]], what: str, start: Position, report: Report) -> None:
    for topic, partitions in by_topic.items():
        count = len(partitions)
        named = ", ".join(f"{at} (read up to offset {start.offsets.get(at, 0)})" for at in partitions[:_MAX_NAMED])
        others = f" and {count - _MAX_NAMED} more" if count > _MAX_NAMED else ""
        report(
            "PARTITIONS_DELETED",
            f"partitions of topic {topic} were {what}: {named}{others}",
            f"what came after in {count} partition{'s is' if count != 1 else ' is'}",
        )
