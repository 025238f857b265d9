"""Which timestamps a log accepts from the programs that append to it.

Two mistakes are worth a refusal. A caller may pass seconds, microseconds or nanoseconds for milliseconds: retention by
time deletes records of January 1970, and no reader can express a year in the thousands. Or a topic limits how far
timestamps may be from the clock, with Kafka's settings `message.timestamp.before.max.ms` and
`message.timestamp.after.max.ms`. Neither applies with log append time, which replaces the timestamps, nor to records
without a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from seeklog.clock import Clock, UnitCheck
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import InvalidRecord
from seeklog.record.layout import NO_TIMESTAMP

TimestampCheck: TypeAlias = tuple[int, int, Callable[[int | None, int], object]]


class TimestampRule:
    """Checks the timestamps of one log or topic. Any thread may call any method."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_now_ms",
        "_subject",
        "_units",
        "accepted_up_to",
        "checked_up_to",
        "for_encoder",
    )

    def __init__(self, config: LogConfig, clock: Clock, *, subject: str) -> None:
        self._now_ms = clock.now_ms
        self._subject = subject
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._units = UnitCheck(clock.now_ms())
        has_limits = min(self._before_max_ms, self._after_max_ms) < INT64_MAX
        self.checked_up_to, self.accepted_up_to = self._units.first_ms - 1, self._units.last_ms
        """`check` accepts every timestamp after the first and up to the second, so there is no need to call it."""
        if config.message_timestamp_type == "LogAppendTime":
            self.checked_up_to, self.accepted_up_to = NO_TIMESTAMP, INT64_MAX
        elif has_limits:
            self.checked_up_to = self.accepted_up_to = INT64_MAX
        self.for_encoder: TimestampCheck = (self.checked_up_to, self.accepted_up_to, self.check)

    @property
    def has_limits(self) -> bool:
        """Whether the topic limits timestamps."""
        return self.checked_up_to == INT64_MAX

    def check(self, index: int | None, timestamp_ms: int) -> None:
        """Raise `InvalidRecord` for a timestamp that is not in milliseconds, or beyond the limits of the topic."""
        mistake = self._units.mistake(timestamp_ms)
        if mistake is not None:
            raise InvalidRecord(
                f"{self._subject}: {_record(index)} has timestamp_ms {timestamp_ms}, which {mistake}; nothing was "
                "written"
            )
        self.check_limits(index, timestamp_ms)

    def check_limits(self, index: int | None, timestamp_ms: int) -> None:
        """Raise `InvalidRecord` for a timestamp beyond the limits of the topic."""
        if timestamp_ms == NO_TIMESTAMP or not self.has_limits:
            return
        age_ms = self._now_ms() - timestamp_ms
        for setting, limit_ms, distance_ms, side in (
            ("message.timestamp.before.max.ms", self._before_max_ms, age_ms, "before"),
            ("message.timestamp.after.max.ms", self._after_max_ms, -age_ms, "after"),
        ):
            if distance_ms > limit_ms:
                raise InvalidRecord(
                    f"{self._subject}: {_record(index)} has timestamp_ms {timestamp_ms}, {distance_ms} ms {side} the "
                    f"clock, and {setting} is {limit_ms}. Correct the timestamp, or change the setting; nothing was "
                    "written"
                )


def _record(index: int | None) -> str:
    return "the record" if index is None else f"record {index}"
