"""The configuration of a log: its settings, their bounds, and Kafka's spellings."""

from __future__ import annotations

from typing import Any

import pytest

from seeklog import LogConfig
from seeklog.errors import InvalidConfig


@pytest.mark.parametrize(
    "settings",
    [
        {"flush": "always"},
        {"high_watermark": "x"},
        {"compression_type": "lzma"},
        {"compression_type": None},
        {"message_timestamp_type": "create"},
        {"segment_bytes": 60},
        {"segment_bytes": 2**31},
        {"segment_bytes": "1"},
        {"segment_bytes": 1.5},
        {"segment_bytes": True},
        {"segment_ms": 0},
        {"segment_index_bytes": 23},
        {"index_interval_bytes": -1},
        {"index_interval_records": -1},
        {"retention_ms": -2},
        {"retention_bytes": -2},
        {"max_message_bytes": 61},
        {"flush_interval_ms": 0},
        {"initial_offset": -1},
        {"initial_offset": 2**63 - 1},
        {"max_decompressed_bytes": 0},
        {"max_open_segments": 0},
    ],
    ids=repr,
)
def test_invalid_configuration_is_refused_with_name_of_setting(settings: dict[str, Any]) -> None:
    (setting,) = settings

    with pytest.raises(InvalidConfig, match=setting) as caught:
        LogConfig(**settings)

    assert isinstance(caught.value, ValueError)


def test_unknown_setting_suggests_nearest_known_setting() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean segment\.bytes"):
        LogConfig.from_mapping({"segment.byte": 5})
    with pytest.raises(InvalidConfig, match="known settings"):
        LogConfig.from_mapping({"xyz": 5})


def test_settings_may_be_spelt_with_dots() -> None:
    assert LogConfig.from_mapping({"segment.bytes": 1000, "retention_ms": 5}) == LogConfig(
        segment_bytes=1000, retention_ms=5
    )


NUMBERS = [
    "segment_bytes",
    "segment_ms",
    "segment_index_bytes",
    "index_interval_bytes",
    "index_interval_records",
    "retention_ms",
    "retention_bytes",
    "max_message_bytes",
    "flush_interval_ms",
    "initial_offset",
    "max_decompressed_bytes",
    "max_open_segments",
]


@pytest.mark.parametrize("setting", NUMBERS)
def test_numbers_may_be_given_as_text(setting: str) -> None:
    for spelt in (setting, setting.replace("_", ".")):
        config = LogConfig.from_mapping({spelt: "1000"})

        assert config == LogConfig(**{setting: 1000})


@pytest.mark.parametrize("text", ["", " ", "x", "1.5", "1e3", "0x10", "1 000", "--1", "None", "true", "\0"])
def test_text_that_is_not_number_is_refused_with_name_of_setting(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.ms must be a whole number"):
        LogConfig.from_mapping({"retention.ms": text})


@pytest.mark.parametrize("text", ["-2", "9223372036854775808"])
def test_number_given_as_text_is_checked_against_bounds(text: str) -> None:
    with pytest.raises(InvalidConfig, match="retention_ms must be between -1"):
        LogConfig.from_mapping({"retention.ms": text})


def test_text_setting_stays_text() -> None:
    config = LogConfig.from_mapping({"compression.type": "zstd", "cleanup.policy": "compact,delete", "flush": "batch"})

    assert (config.compression_type, config.cleanup_policy, config.flush) == ("zstd", "compact,delete", "batch")


@pytest.mark.parametrize(
    ("cleanup_policy", "deletes"), [("delete", True), ("compact", False), ("compact,delete", True)]
)
def test_cleanup_policy_decides_whether_records_expire(cleanup_policy: str, deletes: bool) -> None:
    assert LogConfig.from_mapping({"cleanup.policy": cleanup_policy}).deletes is deletes


@pytest.mark.parametrize("cleanup_policy", ["", "Delete", "remove", None, 5, ["delete"], "compact,remove"])
def test_unknown_cleanup_policy_is_refused(cleanup_policy: object) -> None:
    with pytest.raises(InvalidConfig, match="cleanup_policy must be one of"):
        LogConfig.from_mapping({"cleanup.policy": cleanup_policy})


def test_topic_settings_override_log_settings() -> None:
    config = LogConfig(retention_ms=5, segment_bytes=1000, max_open_segments=7)

    assert config.with_settings({}) == config
    assert config.with_settings({"retention.ms": "9", "flush": "os"}) == LogConfig(
        retention_ms=9, segment_bytes=1000, max_open_segments=7, flush="os"
    )
    assert config.retention_ms == 5


@pytest.mark.parametrize("setting", ["initial.offset", "high.watermark", "max.open.segments", "initial_offset"])
def test_process_settings_cannot_be_set_for_topic(setting: str) -> None:
    with pytest.raises(InvalidConfig, match=f"unknown setting '{setting}'"):
        LogConfig().with_settings({setting: 5})


def test_every_other_setting_can_be_set_for_topic() -> None:
    values = {
        name: getattr(LogConfig(), name)
        for name in LogConfig.__dataclass_fields__
        if name not in ("initial_offset", "high_watermark", "max_open_segments")
    }

    assert LogConfig().with_settings(values) == LogConfig()


def test_defaults_equal_kafka_defaults_unless_these_delete_or_refuse() -> None:
    config = LogConfig()

    week_ms = 7 * 24 * 3600 * 1000
    assert (config.segment_bytes, config.segment_ms, config.index_interval_bytes) == (1 << 30, week_ms, 4096)
    assert config.max_message_bytes == 1_048_588
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert config.message_timestamp_before_max_ms == config.message_timestamp_after_max_ms == 2**63 - 1
    assert (config.flush, config.flush_interval_ms) == ("interval", 1000)
