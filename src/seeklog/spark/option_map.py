"""Typed values from the map of strings that Spark passes as options.

Names are case-insensitive, as in Spark. An unknown option is refused with the nearest known name, and an option of
Spark's Kafka connector that needs a broker with its replacement. Every error is one line that names the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from seeklog.clock import SystemClock, UnitCheck
from seeklog.config import INT64_MAX, parse_span_ms
from seeklog.errors import InvalidConfig
from seeklog.names import is_url

Value = TypeVar("Value")

NO_BROKER: Final = "there is no broker to ask"
BROKER_OPTIONS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "there is no broker to connect to; set path to the store's directory",
    "kafkaConsumer.pollTimeoutMs": f"{NO_BROKER}, so nothing times out; remove it",
    "fetchOffset.numRetries": f"offsets are read from files: {NO_BROKER} again; remove it",
    "fetchOffset.retryIntervalMs": f"offsets are read from files: {NO_BROKER} again; remove it",
    "partition.metadata.cache.ttl.ms": f"{NO_BROKER} about partitions; remove it",
    "groupIdPrefix": "queries have no consumer group; use groupId to commit the offsets that a stream has read",
    "kafka.partitioner.class": "rows go to partitions by murmur2 of the key, or by the column partition; remove it",
}
"""Options of Spark's Kafka connector that have no effect here, with the reason and the replacement."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}\Z", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d{1,18})\s*([a-zA-Z]*)\Z", re.ASCII)
_SIZES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1 << (10 * power) for power, letter in enumerate("kmgt", 1) for unit in (letter, letter + "b")},
}
_FILE_ADDRESS: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)\Z", re.IGNORECASE | re.DOTALL)
_OTHER_ADDRESS: Final = re.compile(r"(file:|[a-z][a-z0-9+.-]+://)", re.IGNORECASE | re.ASCII)
_MAX_SHOWN: Final = 80


class OptionMap:
    """The options of one read or write.

    A getter returns None for an option that is not set, and raises `InvalidConfig` for an invalid value.
    """

    def __init__(
        self, options: Mapping[str, str], *, known: Iterable[str], refused: Mapping[str, str] | None = None
    ) -> None:
        """Refuse options that are not `known`; `refused` has the reason for options that are valid elsewhere."""
        self._values = {name.lower(): value for name, value in options.items()}
        allowed = {name.lower(): name for name in known}
        reasons = {name.lower(): (name, why) for name, why in {**BROKER_OPTIONS, **(refused or {})}.items()}
        for name in self._values:
            if name in allowed:
                continue
            if name in reasons:
                raise InvalidConfig("option {} has no effect here: {}".format(*reasons[name]))
            if name.startswith("kafka."):
                raise InvalidConfig(
                    f"option {name} has no effect here: it configures a Kafka client, and {NO_BROKER}; remove it"
                )
            raise InvalidConfig(f"unknown option {name}; {_nearest(name, allowed)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def either(self, name: str, kafka_name: str) -> str:
        """Return the name under which an option with two names is set; refuse both at once."""
        if name in self and kafka_name in self:
            raise InvalidConfig(f"options {name} and {kafka_name} are the same setting; set one of them")
        return kafka_name if kafka_name in self else name

    def text(self, name: str) -> str | None:
        """Return a text without surrounding whitespace; refuse a blank one."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise wrong(name, value, "a text that is not blank")
        return value.strip()

    def _parsed(self, name: str, parse: Callable[[str], Value | None], allowed: str) -> Value | None:
        """Return the parsed text. `parse` returns None for an invalid one, and `allowed` describes valid ones."""
        value = self.text(name)
        parsed = None if value is None else parse(value)
        if parsed is None and value is not None:
            raise wrong(name, value, allowed)
        return parsed

    def flag(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false"), default=str(default).lower()) == "true"

    def number(self, name: str, *, minimum: int = 1, maximum: int = INT64_MAX) -> int | None:
        """Return a whole number."""

        def parse(text: str) -> int | None:
            return int(text) if _WHOLE.match(text) and minimum <= int(text) <= maximum else None

        bounds = f"of at least {minimum}" if maximum == INT64_MAX else f"from {minimum} to {maximum}"
        return self._parsed(name, parse, f"a whole number {bounds}")

    def size_bytes(self, name: str, *, minimum: int = 1) -> int | None:
        """Return an amount of bytes: a number, optionally followed by k, m, g, or t (powers of 1024)."""

        def parse(text: str) -> int | None:
            match = _AMOUNT.match(text)
            size = int(match[1]) * _SIZES.get(match[2].lower(), 0) if match else 0
            return size if minimum <= size <= INT64_MAX else None

        return self._parsed(name, parse, f"an amount of bytes of at least {minimum}, such as 134217728 or 128m")

    def duration_ms(self, name: str) -> int | None:
        """Return a time span in milliseconds."""
        return self._parsed(name, parse_span_ms, "a time span, such as 500ms, 30s, 15m, 2 hours or 7 days")

    def choice(self, name: str, allowed: Iterable[str], *, default: str) -> str:
        """Return one of the allowed values, in any case."""
        values = {value.lower(): value for value in allowed}
        chosen = self._parsed(name, lambda text: values.get(text.lower()), " or ".join(values.values()))
        return default if chosen is None else chosen

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return comma-separated names; refuse one that occurs twice."""
        value = self.text(name)
        if value is None:
            return None
        parts = tuple(part.strip() for part in value.split(","))
        if not all(parts):
            raise wrong(name, value, "comma-separated names")
        for part in parts:
            if parts.count(part) > 1:
                raise wrong(name, value, f"each name once, but {part} occurs {parts.count(part)} times")
        return parts

    def json(self, name: str, *, shape: str) -> Any:
        """Return the decoded JSON; `shape` is an example for the error."""
        return self._parsed(name, _parse_json, f"JSON such as {shape}")


def wrong(name: str, value: object, allowed: str) -> InvalidConfig:
    """Return the error for an invalid value of an option."""
    return InvalidConfig(f"option {name} is {shown(value)}, but must be {allowed}")


def shown(value: object) -> str:
    """Return a value for a one-line error: quoted if it is text, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _parse_json(text: str) -> Any:
    """Return the decoded JSON, or None if it is invalid or an object has a key twice, whose first value is lost."""

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        decoded = dict(pairs)
        if len(decoded) != len(pairs):
            raise ValueError("a key occurs twice")
        return decoded

    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        return None


def timestamp_ms(name: str, value: object) -> int:
    """Return a moment in milliseconds since 1970, given as such or as an ISO timestamp (UTC if it has no zone)."""
    if isinstance(value, str) and _WHOLE.match(value.strip()):
        value = int(value)
    moment_ms = -1
    if isinstance(value, str):
        moment_ms = _parse_iso(value.strip())
    elif isinstance(value, int) and not isinstance(value, bool):
        moment_ms = value
        mistake = UnitCheck(SystemClock().now_ms()).mistake(value)
        if mistake is not None:
            raise InvalidConfig(f"option {name}: {value} {mistake}, or write it as an ISO timestamp")
    if not 0 <= moment_ms <= INT64_MAX:
        raise wrong(
            name,
            value,
            "milliseconds since 1970, or an ISO timestamp such as 2026-05-01T12:00:00Z (UTC, unless a zone is given)",
        )
    return moment_ms


def _parse_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return -1
    return milliseconds_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def milliseconds_of(moment: datetime) -> int:
    """Return the milliseconds since 1970, rounded down."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def store_path(options: OptionMap, *, may_be_url: bool = False) -> str:
    """Return the path of the store, or its URL if that is allowed; a `file:` URL becomes a path."""
    value = options.text("path")
    if value is None:
        raise InvalidConfig(
            "option path is missing: set it to the directory of a store, or a broker's data directory (a table created "
            "with an explicit schema does not keep its options: SELECT ... FROM t WITH (path = '...', ...))"
        )
    return readable_path("option path", value) if may_be_url else local_path("option path", value)


def readable_path(subject: str, value: str) -> str:
    """Return a URL unchanged, and anything else as `local_path` does."""
    return value if is_url(value) and not value.lower().startswith("file:") else local_path(subject, value)


def local_path(subject: str, value: str) -> str:
    """Return a path unchanged, or the path of a `file:` URL; refuse any other URL."""
    # As in Hadoop, nothing in the URL is escaped.
    local = _FILE_ADDRESS.match(value)
    if local is not None:
        return local[1]
    if _OTHER_ADDRESS.match(value):
        raise InvalidConfig(
            f"{subject} is {shown(value)}, but must be a directory that driver and executors see under the same path; "
            "a store at a URL is read-only"
        )
    return value


def storage_options(options: OptionMap, path: str) -> dict[str, Any]:
    """Return the options of fsspec. They contain secrets, so no error quotes them."""
    value = options.text("storageOptions")
    if value is None:
        return {}
    decoded = _parse_json(value)
    if not isinstance(decoded, dict):
        raise InvalidConfig('option storageOptions must be a JSON object such as {"endpoint_url": "https://host"}')
    if not is_url(path):
        raise InvalidConfig(f"option storageOptions needs a URL, and option path is {shown(path)}, a directory")
    return decoded


def _nearest(name: str, known: Mapping[str, str]) -> str:
    import difflib  # only to word an error

    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {known[nearest[0]]}?" if nearest else f"known options: {', '.join(sorted(known.values()))}"
