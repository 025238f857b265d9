"""The configuration of one log, with Kafka's names where Kafka has the setting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

from seeklog.errors import InvalidConfig

Flush = Literal["os", "interval", "batch"]
HighWatermark = Literal["auto", "manual"]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
CleanupPolicy = Literal["delete", "compact", "compact,delete", "delete,compact"]
KeyIndex = Literal["auto", "lazy", "seal", "none"]

# Relative offsets and positions are int32 in Kafka's index.
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# The partitions of a topic that is created without a number: Kafka's default for `num.partitions`.
DEFAULT_PARTITIONS: Final = 1

# Only what Kafka accepts: Python's `int` also accepts 1_000 and digits of other scripts.
_WHOLE_NUMBER: Final = re.compile(r"-?\d{1,19}\Z", re.ASCII)
_SHARE: Final = re.compile(r"\d{1,3}(\.\d{1,18})?\Z|\.\d{1,18}\Z", re.ASCII)
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "flush": ("os", "interval", "batch"),
    "high_watermark": ("auto", "manual"),
    "compression_type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
    "cleanup_policy": ("delete", "compact", "compact,delete", "delete,compact"),
    "key_index": ("auto", "lazy", "seal", "none"),
}
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    # Kafka's lower bound is 14; ours is one whole batch header.
    "segment_bytes": (61, INT32_MAX),
    "segment_ms": (1, INT64_MAX),
    # Room for two time entries: one stays free for the entry that a roll adds.
    "segment_index_bytes": (24, INT32_MAX),
    "index_interval_bytes": (0, INT32_MAX),
    "index_interval_records": (0, INT32_MAX),
    "delete_retention_ms": (0, INT64_MAX),
    "min_compaction_lag_ms": (0, INT64_MAX),
    "max_compaction_lag_ms": (1, INT64_MAX),
    "message_timestamp_after_max_ms": (0, INT64_MAX),
    "message_timestamp_before_max_ms": (0, INT64_MAX),
    "retention_ms": (-1, INT64_MAX),
    "retention_bytes": (-1, INT64_MAX),
    "max_message_bytes": (62, INT32_MAX),
    "producer_id_expiration_ms": (1, INT64_MAX),
    "flush_interval_ms": (1, INT32_MAX),
    "initial_offset": (0, INT64_MAX - INT32_MAX),
    "max_decompressed_bytes": (1, INT32_MAX),
    "max_open_segments": (1, INT32_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one log. Immutable; the constructor checks every value."""

    segment_bytes: int = 1 << 30
    """A segment rolls before it grows past this size."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment rolls when its timestamps span more than this."""
    segment_index_bytes: int = 10 << 20
    """A segment rolls when one of its indexes reaches this size."""
    index_interval_bytes: int = 4096
    """An index entry is written for the first batch after more than this many bytes of log."""
    index_interval_records: int = 0
    """An index entry is also written after this many records; 0: by bytes alone, like Kafka."""
    cleanup_policy: CleanupPolicy = "delete"
    """"delete" deletes old segments by age and size, "compact" keeps the latest record of each key; both may be set."""
    min_cleanable_dirty_ratio: float = 0.5
    """Compaction is due when more than this share of the compactable bytes is dirty (was never compacted)."""
    delete_retention_ms: int = 24 * 3600 * 1000
    """How long compaction keeps a tombstone after first copying it, so that lagging readers see the deletion."""
    min_compaction_lag_ms: int = 0
    """A record younger than this is not compacted."""
    max_compaction_lag_ms: int = INT64_MAX
    """A record older than this is compacted even if the log is below `min_cleanable_dirty_ratio`."""
    retention_ms: int = -1
    """`retain` deletes segments whose newest record is older than this; -1, unlike Kafka's default: never."""
    retention_bytes: int = -1
    """`retain` deletes the oldest segments while the log is larger than this; -1: never."""
    max_message_bytes: int = 1_048_588
    """The largest batch accepted, including its header. Kafka's default: 1 MiB and 12 bytes."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    """How long the log remembers an idempotent producer after its last batch."""
    compression_type: CompressionType = "none"
    """The codec of the batches that this log encodes."""
    message_timestamp_type: TimestampType = "CreateTime"
    """Where timestamps come from: "CreateTime", the caller; "LogAppendTime", the log's clock at append."""
    message_timestamp_before_max_ms: int = INT64_MAX
    """With "CreateTime", a record whose timestamp is further in the past than this is refused."""
    message_timestamp_after_max_ms: int = INT64_MAX
    """With "CreateTime", a record whose timestamp is further in the future than this is refused. Kafka's default is an
    hour."""
    flush: Flush = "interval"
    """When appended records are synced: "os" by the operating system, "interval" every `flush_interval_ms`,
    "batch" before each append returns."""
    flush_interval_ms: int = 1000
    """How often `flush="interval"` syncs in the background."""
    high_watermark: HighWatermark = "auto"
    """"auto": follows the write or, with `flush="batch"`, the sync. "manual": moves by `advance_high_watermark`."""
    initial_offset: int = 0
    """The first offset of a new log."""
    max_decompressed_bytes: int = 16 << 20
    """A batch that expands past this is refused with `FormatError`."""
    key_index: KeyIndex = "auto"
    """When a sealed segment gets its key index: "lazy" at the first lookup of a key, "seal" soon after it is sealed,
    "none" never: each process that looks up keys builds its own in memory. "auto" means "seal" if the cleanup policy
    includes "compact", else "lazy"."""
    max_open_segments: int = 64
    """How many segments keep their files open for reading."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise InvalidConfig(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidConfig(f"{name} must be an int, not {type(value).__name__}")
            if not low <= value <= high:
                raise InvalidConfig(f"{name} must be between {low} and {high}, not {value}")
        ratio = self.min_cleanable_dirty_ratio
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
            raise InvalidConfig(f"min_cleanable_dirty_ratio must be a number from 0 to 1, not {ratio!r}")
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min_compaction_lag_ms, {self.min_compaction_lag_ms}, must not be above "
                f"max_compaction_lag_ms, {self.max_compaction_lag_ms}"
            )

    @property
    def compacts(self) -> bool:
        """Whether the cleanup policy compacts: only the latest record of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The time span that rolls a segment: compaction needs sealed segments within `max_compaction_lag_ms`."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def deletes(self) -> bool:
        """Whether the cleanup policy deletes segments by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def indexes_keys(self) -> bool:
        """Whether sealed segments get their key indexes before the first lookup of a key."""
        return self.key_index == "seal" or (self.key_index == "auto" and "compact" in self.cleanup_policy)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> LogConfig:
        """Return a config from settings named with dots or underscores. The error for an unknown one names the nearest.

        Numbers may be text, as in Kafka's tools.
        """
        return cls(**_values(settings, [field.name for field in fields(cls)]))

    def with_settings(self, settings: Mapping[str, Any]) -> LogConfig:
        """Return this config with a topic's own settings applied."""
        return replace(self, **_values(settings, TOPIC_SETTINGS))


# The settings a topic may override. The others belong to a process, or to a log opened without a store.
TOPIC_SETTINGS: Final = tuple(
    field.name
    for field in fields(LogConfig)
    if field.name not in ("initial_offset", "high_watermark", "max_open_segments")
)


def canonical_setting(name: str) -> str:
    """Return a setting's name as Kafka spells it, with dots."""
    return name.replace("_", ".")


def _values(settings: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for given, value in settings.items():
        name = str(given).replace(".", "_")
        if name not in known:
            import difflib  # only for an error message: it would add 5 ms to every import

            nearest = difflib.get_close_matches(name, known, n=1)
            separator = "." if "." in str(given) else "_"
            hint = nearest[0].replace("_", separator) if nearest else ""
            raise InvalidConfig(
                f"unknown setting {given!r}; "
                + (f"did you mean {hint}?" if nearest else f"known settings: {', '.join(known)}")
            )
        if name in _BOUNDS and isinstance(value, str):
            if not _WHOLE_NUMBER.match(value):
                raise InvalidConfig(f"{given} must be a whole number, not {value!r}")
            value = int(value)
        if name == "min_cleanable_dirty_ratio" and isinstance(value, str):
            if not _SHARE.match(value):
                raise InvalidConfig(f"{given} must be a number from 0 to 1, not {value!r}")
            value = float(value)
        values[name] = value
    return values


# ---------------------------------------------------------------- time spans as text

_AMOUNT: Final = re.compile(r"(\d{1,18})\s*([a-zA-Z]*)\Z", re.ASCII)
_MILLISECONDS: Final[Mapping[str, int]] = {
    unit: scale
    for scale, units in (
        (1, "ms millisecond milliseconds"),
        (1000, "s sec second seconds"),
        (60_000, "m min minute minutes"),
        (3_600_000, "h hour hours"),
        (86_400_000, "d day days"),
        (604_800_000, "w week weeks"),
    )
    for unit in units.split()
}


def parse_span_ms(value: str) -> int | None:
    """Return a time span such as `15m` or `10 minutes` in milliseconds, or None if it does not parse."""
    match = _AMOUNT.match(value)
    scale = _MILLISECONDS.get(match[2].lower()) if match else None
    if match is None or scale is None:
        return None
    span = int(match[1]) * scale
    return span if span <= INT64_MAX else None
