"""Which timestamps a log accepts from the programs that append to it.

Two mistakes are worth a refusal. A caller may pass seconds for milliseconds: the records then lie in January 1970, and
retention by time deletes them. Or a topic limits how far timestamps may be from the clock, with Kafka's settings
`message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`. Neither applies with log append time, which
replaces the timestamps, nor to records without a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from seeklog.clock import Clock
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import InvalidRecord
from seeklog.record.layout import NO_TIMESTAMP

TEN_YEARS_S: Final = 10 * 365 * 86_400


class TimestampRule:
    """Checks the timestamps of one log or topic. Any thread may call any method."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_first_s",
        "_last_s",
        "_now_ms",
        "_subject",
        "checked_up_to",
        "for_encoder",
    )

    def __init__(self, config: LogConfig, clock: Clock, *, subject: str) -> None:
        self._now_ms = clock.now_ms
        self._subject = subject
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        now_s = clock.now_ms() // 1000
        self._first_s, self._last_s = now_s - TEN_YEARS_S, now_s + TEN_YEARS_S
        if self._first_s <= 0:
            # A clock that was never set: seconds and milliseconds look alike.
            self._first_s, self._last_s = 0, NO_TIMESTAMP
        has_limits = min(self._before_max_ms, self._after_max_ms) < INT64_MAX
        is_given = config.message_timestamp_type == "CreateTime"
        self.checked_up_to = (INT64_MAX if has_limits else self._last_s) if is_given else NO_TIMESTAMP
        """`check` accepts every later timestamp, so there is no need to call it."""
        self.for_encoder: tuple[int, Callable[[int | None, int], object]] = (self.checked_up_to, self.check)

    @property
    def has_limits(self) -> bool:
        """Whether the topic limits timestamps."""
        return self.checked_up_to == INT64_MAX

    def check(self, index: int | None, timestamp_ms: int) -> None:
        """Raise `InvalidRecord` for a timestamp in seconds, and for one beyond the limits of the topic."""
        if self._first_s <= timestamp_ms <= self._last_s:
            raise InvalidRecord(
                f"{self._subject}: {_record(index)} has timestamp_ms {timestamp_ms}, which is {_moment(timestamp_ms)} "
                f"in milliseconds, but {_moment(timestamp_ms * 1000)} in seconds. Multiply it by 1000; nothing was "
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


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC).isoformat().replace("+00:00", "Z")
