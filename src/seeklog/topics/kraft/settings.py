"""The mapping between seeklog's topic settings and a broker's.

Only settings that differ from Kafka's defaults or whose defaults differ are written: a broker has its own defaults for
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import InvalidConfig

# Since 4.0 a broker refuses a smaller value, and with it the whole topic.
MIN_SEGMENT_BYTES: Final = 1 << 20
# Kafka's defaults, since 4.0, of the settings that both have by the same name.
_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": str(INT64_MAX),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(INT64_MAX),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.ms": "604800000",
}
# A broker gets their values even if these are its defaults, so that its metadata shows what was meant.
_OTHER_DEFAULTS: Final = ("message.timestamp.after.max.ms", "retention.ms")
# Settings that a broker does not have.
_OURS: Final = ("index_interval_records", "key_index", "max_decompressed_bytes", "producer_id_expiration_ms")
# The settings of brokers from which topics get theirs, as topic settings, each with its scale: Kafka's synonyms. Where
# there are several for one topic setting, the later one counts.
_OF_BROKERS: Final[Mapping[str, tuple[str, int]]] = {
    "compression.type": ("compression.type", 1),
    "log.cleaner.delete.retention.ms": ("delete.retention.ms", 1),
    "log.cleaner.max.compaction.lag.ms": ("max.compaction.lag.ms", 1),
    "log.cleaner.min.cleanable.ratio": ("min.cleanable.dirty.ratio", 1),
    "log.cleaner.min.compaction.lag.ms": ("min.compaction.lag.ms", 1),
    "log.cleanup.policy": ("cleanup.policy", 1),
    "log.flush.interval.messages": ("flush.messages", 1),
    "log.flush.interval.ms": ("flush.ms", 1),
    "log.index.interval.bytes": ("index.interval.bytes", 1),
    "log.index.size.max.bytes": ("segment.index.bytes", 1),
    "log.message.timestamp.after.max.ms": ("message.timestamp.after.max.ms", 1),
    "log.message.timestamp.before.max.ms": ("message.timestamp.before.max.ms", 1),
    "log.message.timestamp.type": ("message.timestamp.type", 1),
    "log.retention.bytes": ("retention.bytes", 1),
    "log.retention.hours": ("retention.ms", 3_600_000),
    "log.retention.minutes": ("retention.ms", 60_000),
    "log.retention.ms": ("retention.ms", 1),
    "log.roll.hours": ("segment.ms", 3_600_000),
    "log.roll.ms": ("segment.ms", 1),
    "log.segment.bytes": ("segment.bytes", 1),
    "message.max.bytes": ("max.message.bytes", 1),
}
OFFSETS_TOPIC: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""The settings with which a broker creates `__consumer_offsets`."""


@dataclass(slots=True)
class KafkaSettings:
    """The settings of a topic for a broker."""

    values: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Why a setting was changed or left out, by its name."""


def to_kafka(config: LogConfig) -> KafkaSettings:
    """Convert a configuration to a broker's topic settings."""
    found = KafkaSettings()
    for setting, default in _DEFAULTS.items():
        value = str(getattr(config, setting.replace(".", "_")))
        if setting == "segment.bytes" and int(value) < MIN_SEGMENT_BYTES:
            found.notes[setting] = f"raised from {value}, the minimum of a broker"
            value = str(MIN_SEGMENT_BYTES)
        if value != default or setting in _OTHER_DEFAULTS:
            found.values[setting] = value
    if config.compression_type != "none":
        # "none" means that seeklog does not compress. A broker's "uncompressed" would decompress producers' batches.
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
    """Convert a broker's topic settings. Return the configuration, and the settings left out with their reasons."""
    config: dict[str, Any] = {}
    left: dict[str, str] = {}
    for setting, value in sorted(values.items()):
        try:
            taken = _from_kafka(setting, value)
            made = LogConfig().with_settings(taken)
        except InvalidConfig as error:
            left[setting] = str(error)
            continue
        if taken:
            config |= {name: getattr(made, name.replace(".", "_")) for name in taken}
        else:
            left[setting] = "seeklog has no such setting"
    if "cleanup.policy" in left:
        # The policy decides whether these delete anything.
        for setting in ("retention.bytes", "retention.ms"):
            if config.pop(setting, None) is not None:
                left[setting] = "the topic's cleanup.policy is unknown"
    return config, left


def changed_by_broker(ours: LogConfig, theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a broker that are not what a handover of our configuration tells a broker."""
    handed_over = to_kafka(ours).values
    return {setting: value for setting, value in theirs.items() if handed_over.get(setting) != value}


def _from_kafka(setting: str, value: str) -> dict[str, Any]:
    if setting in _DEFAULTS:
        if setting == "cleanup.policy":
            value = ",".join(part.strip() for part in value.split(","))
        return {setting: value}
    if setting == "compression.type":
        return {setting: "none" if value in ("producer", "uncompressed") else value}
    if setting == "flush.messages" and value == "1":
        return {"flush": "batch"}
    if setting == "flush.ms":
        return {"flush": "interval", "flush.interval.ms": value}
    return {}


def topic_settings(of_broker: Mapping[str, str]) -> dict[str, str]:
    """Return the topic settings that follow from the settings of a broker."""
    found: dict[str, str] = {}
    for name, (setting, scale) in _OF_BROKERS.items():
        value = of_broker.get(name)
        if value is not None:
            is_number = scale > 1 and value.isascii() and value.isdigit()
            found[setting] = str(int(value) * scale) if is_number else value
    return found
