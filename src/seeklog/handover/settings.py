"""What a topic's configuration is called by a broker, and what a broker's settings are here.

Written are the settings whose value differs from Kafka's default, because a broker has its own default for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import InvalidConfig

# Since 4.0 a broker refuses a smaller one, and with it the whole topic.
MIN_SEGMENT_BYTES: Final = 1 << 20
# Kafka's defaults of the settings that both have under one name. They are ours, too, but written down for themselves:
# a default of ours that moves must not change what a broker is given.
_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": str(INT64_MAX),
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.ms": "604800000",
}
# What no broker has for a topic.
_OURS: Final = ("index_interval_records", "key_index", "max_decompressed_bytes", "producer_id_expiration_ms")
OFFSETS_TOPIC: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""What a broker gives `__consumer_offsets` when it creates it."""


@dataclass(slots=True)
class KafkaSettings:
    """A topic's settings for a broker."""

    values: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Why a setting has another value there, or none."""


def to_kafka(config: LogConfig) -> KafkaSettings:
    """Return a configuration as a broker's settings of a topic."""
    found = KafkaSettings()
    for word, default in _DEFAULTS.items():
        value = str(getattr(config, word.replace(".", "_")))
        if word == "segment.bytes" and int(value) < MIN_SEGMENT_BYTES:
            found.notes[word] = f"raised from {value}: a broker refuses less"
            value = str(MIN_SEGMENT_BYTES)
        if value != default:
            found.values[word] = value
    if config.compression_type != "none":
        # "none" says that records are not compressed here. A broker's "uncompressed" would undo what producers did.
        found.values["compression.type"] = config.compression_type
    if config.flush == "batch":
        found.values["flush.messages"] = "1"
    elif config.flush == "interval":
        found.values["flush.ms"] = str(config.flush_interval_ms)
    defaults = LogConfig()
    for name in _OURS:
        if getattr(config, name) != getattr(defaults, name):
            found.notes[name.replace("_", ".")] = f"{getattr(config, name)}: a broker has no such setting"
    return found


def from_kafka(values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a topic's configuration for a broker's settings, and those that have no counterpart, with the reason."""
    config: dict[str, Any] = {}
    left: dict[str, str] = {}
    for word, value in sorted(values.items()):
        try:
            taken = _from_kafka(word, value)
            LogConfig().with_settings(taken)
        except InvalidConfig as error:
            left[word] = str(error)
            continue
        if taken:
            config |= taken
        else:
            left[word] = "seeklog has no such setting"
    return config, left


def _from_kafka(word: str, value: str) -> dict[str, Any]:
    if word in _DEFAULTS:
        if word == "cleanup.policy":
            value = ",".join(part.strip() for part in value.split(","))
        return {word: value}
    if word == "compression.type":
        return {word: "none" if value in ("producer", "uncompressed") else value}
    if word == "flush.messages" and value == "1":
        return {"flush": "batch"}
    if word == "flush.ms":
        return {"flush": "interval", "flush.interval.ms": value}
    return {}
