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
# A broker is told their values even if these are its defaults, so that its metadata shows what was meant.
_OTHER_DEFAULTS: Final = ("message.timestamp.after.max.ms", "retention.ms")
# Settings that a broker does not have.
_OURS: Final = ("index_interval_records", "key_index", "max_decompressed_bytes", "producer_id_expiration_ms")
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
            LogConfig().with_settings(taken)
        except InvalidConfig as error:
            left[setting] = str(error)
            continue
        if taken:
            config |= taken
        else:
            left[setting] = "seeklog has no such setting"
    return config, left


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
