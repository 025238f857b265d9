"""Where a stream stands: an offset for each partition, and the JSON of that which Spark keeps in the checkpoint.

The JSON is that of Spark's Kafka source, with two more keys that no topic can have as its name:

    {"#ids": {"orders": "q7YJ…"}, "#began": {"orders": {"0": 40}}, "orders": {"0": 55}}

`#ids`     the topics' ids. By them a topic that was deleted and made anew is known, however long it has grown since.
`#began`   where a query's first batch began; in the end of that batch alone. When a crash makes Spark repeat the batch,
           it asks for the start anew, and by then `latest` or `-10 minutes` are another place.

Both may be missing: the checkpoint of a Kafka query can be read on from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog.errors import InvalidConfig
from seeklog.names import TopicPartition, is_topic_name
from seeklog.spark.option_map import shown
from seeklog.spark.read.offsets import Bounds, decode_offsets, encode_offsets
from seeklog.topics.catalog import NO_TOPIC_ID, are_different

IDS: Final = "#ids"
BEGAN: Final = "#began"


@dataclass(frozen=True, slots=True)
class Position:
    """An offset for each partition, with what tells their topics from others of the same names."""

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
        encoded: dict[str, Any] = {}
        if self.began is not None:
            encoded[BEGAN] = encode_offsets(self.began)
        encoded[IDS] = dict(sorted(self.topic_ids.items()))
        return encoded | encode_offsets(self.offsets)

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
                f"the checkpoint's offset {shown(str(dict(encoded)))} is none of a seeklog or Kafka source; give the "
                "query a checkpointLocation of its own"
            ) from None
