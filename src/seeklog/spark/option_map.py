"""Typed option values out of the map of strings that Spark hands over.

Names are compared without case, as Spark does. An unknown option is refused with the nearest known name, an option of
Spark's Kafka connector that needs a broker with what to use instead. Every error is one line that names the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from seeklog.config import INT64_MAX, parse_span_ms
from seeklog.errors import InvalidConfig
from seeklog.names import is_url

Value = TypeVar("Value")

NO_BROKER: Final = "there is no broker to ask"
BROKER_OPTIONS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "there is no broker to connect to; give the store's directory as path",
    "kafkaConsumer.pollTimeoutMs": f"{NO_BROKER}, so nothing times out; leave it out",
    "fetchOffset.numRetries": f"offsets are read from files: {NO_BROKER} again; leave it out",
    "fetchOffset.retryIntervalMs": f"offsets are read from files: {NO_BROKER} again; leave it out",
    "partition.metadata.cache.ttl.ms": f"{NO_BROKER} about partitions; leave it out",
    "groupIdPrefix": "no consumer group is made for a query; use groupId to commit what a stream has read",
    "kafka.partitioner.class": "rows go to partitions by murmur2 of the key, or by their partition column",
}
"""Options of Spark's Kafka connector, each with why it means nothing here and what to use."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}\Z", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d{1,18})\s*([a-zA-Z]*)\Z", re.ASCII)
_SIZES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1 << (10 * (place + 1)) for place, letter in enumerate("kmgt") for unit in (letter, letter + "b")},
}
_FILE_ADDRESS: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)\Z", re.IGNORECASE | re.DOTALL)
_OTHER_ADDRESS: Final = re.compile(r"(file:|[a-z][a-z0-9+.-]+://)", re.IGNORECASE | re.ASCII)
_MAX_SHOWN: Final = 80


class OptionMap:
    """The options of one read or write. Methods take a name as the documentation spells it.

    A getter returns None for an option that was not given, and raises `InvalidConfig` for a value that cannot be.
    """

    def __init__(
        self, options: Mapping[str, str], *, known: Iterable[str], refused: Mapping[str, str] | None = None
    ) -> None:
        """Refuse what is not among `known`; `refused` has the reasons for options that are known elsewhere."""
        self._values = {name.lower(): value for name, value in options.items()}
        allowed = {name.lower(): name for name in known}
        reasons = {name.lower(): (name, why) for name, why in {**BROKER_OPTIONS, **(refused or {})}.items()}
        for name in self._values:
            if name in allowed:
                continue
            if name in reasons:
                raise InvalidConfig("option {} means nothing here: {}".format(*reasons[name]))
            if name.startswith("kafka."):
                raise InvalidConfig(
                    f"option {name} means nothing here: it configures a Kafka client, and {NO_BROKER}; leave it out"
                )
            raise InvalidConfig(f"unknown option {name}; {_nearest(name, allowed)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def either(self, name: str, kafka_name: str) -> str:
        """Return which of two names of one option was given; both together are refused."""
        if name in self and kafka_name in self:
            raise InvalidConfig(f"options {name} and {kafka_name} say the same; give one of them")
        return kafka_name if kafka_name in self else name

    def text(self, name: str) -> str | None:
        """Return a text without the blanks around it; a blank one is refused."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise wrong(name, value, "some text")
        return value.strip()

    def _parsed(self, name: str, parse: Callable[[str], Value | None], allowed: str) -> Value | None:
        """Return what `parse` makes of a text; for a text that is not `allowed` it returns None."""
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

        bounds = f"from {minimum} on" if maximum == INT64_MAX else f"from {minimum} to {maximum}"
        return self._parsed(name, parse, f"a whole number {bounds}")

    def size_bytes(self, name: str, *, minimum: int = 1) -> int | None:
        """Return an amount of bytes: a number, or one with k, m, g or t (of 1024)."""

        def parse(text: str) -> int | None:
            match = _AMOUNT.match(text)
            size = int(match[1]) * _SIZES.get(match[2].lower(), 0) if match else 0
            return size if minimum <= size <= INT64_MAX else None

        return self._parsed(name, parse, f"an amount of bytes of at least {minimum}, such as 134217728 or 128m")

    def duration_ms(self, name: str) -> int | None:
        """Return a time span in milliseconds."""
        return self._parsed(name, parse_span_ms, "a time span, such as 500ms, 30s, 15m, 2 hours or 7 days")

    def choice(self, name: str, allowed: Iterable[str], *, default: str) -> str:
        """Return one of a few values, spelt as in `allowed`."""
        spelt = {each.lower(): each for each in allowed}
        found = self._parsed(name, lambda text: spelt.get(text.lower()), " or ".join(spelt.values()))
        return default if found is None else found

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return names between commas; a name that is given twice is refused."""
        value = self.text(name)
        if value is None:
            return None
        found = tuple(part.strip() for part in value.split(","))
        if not all(found):
            raise wrong(name, value, "names between commas")
        for each in found:
            if found.count(each) > 1:
                raise wrong(name, value, f"each name once, but {each} stands there {found.count(each)} times")
        return found

    def json(self, name: str, *, shape: str) -> Any:
        """Return the value of an option's JSON; `shape` shows how it should look."""
        return self._parsed(name, _parse_json, f"JSON such as {shape}")


def wrong(name: str, value: object, allowed: str) -> InvalidConfig:
    """Return the error for a value that an option cannot have."""
    return InvalidConfig(f"option {name} is {shown(value)}, but must be {allowed}")


def shown(value: object) -> str:
    """Return a value for an error's one line: quoted if it is text, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _parse_json(text: str) -> Any:
    """Return the value of JSON, or None if it is invalid.

    A key that stands twice in one object is invalid, as its first value would be lost.
    """

    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    try:
        return json.loads(text, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError):
        return None


def timestamp_ms(name: str, value: object) -> int:
    """Return a moment in milliseconds: a number of them, or an ISO timestamp; one without a zone is UTC."""
    found = -1
    if isinstance(value, str):
        text = value.strip()
        found = int(text) if _WHOLE.match(text) else _parse_iso(text)
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    if not 0 <= found <= INT64_MAX:
        raise wrong(
            name,
            value,
            "milliseconds since 1970, or an ISO timestamp such as 2026-05-01T12:00:00Z (UTC, unless a zone is given)",
        )
    return found


def _parse_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return -1
    return milliseconds_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def milliseconds_of(moment: datetime) -> int:
    """Return a moment in milliseconds since 1970, rounded down."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def store_path(options: OptionMap, *, may_be_url: bool = False) -> str:
    """Return the store's directory, or its URL if that will do; a `file:` address is taken for the path it names."""
    value = options.text("path")
    if value is None:
        raise InvalidConfig(
            "option path is missing: give the directory of a store, or a broker's data directory (a table that was "
            "made with columns of its own does not know its options: SELECT ... FROM t WITH (path = '...', ...))"
        )
    return readable_path("option path", value) if may_be_url else local_path("option path", value)


def readable_path(what: str, value: str) -> str:
    """Return a URL as it is, and anything else as `local_path` does."""
    return value if is_url(value) and not value.lower().startswith("file:") else local_path(what, value)


def local_path(what: str, value: str) -> str:
    """Return the path that a `file:` address names, or a path as it is; refuse any other address."""
    # As Hadoop writes and reads it: nothing in it is escaped.
    local = _FILE_ADDRESS.match(value)
    if local is not None:
        return local[1]
    if _OTHER_ADDRESS.match(value):
        raise InvalidConfig(
            f"{what} is {shown(value)}, but must be a directory that the driver and every executor see under the same "
            "path; a store at a URL is read-only"
        )
    return value


def storage_options(options: OptionMap, path: str) -> dict[str, Any]:
    """Return what fsspec needs for a URL. No error repeats any of it: there are secrets in it."""
    value = options.text("storageOptions")
    if value is None:
        return {}
    found = _parse_json(value)
    if not isinstance(found, dict):
        raise InvalidConfig('option storageOptions must be a JSON object such as {"endpoint_url": "https://host"}')
    if not is_url(path):
        raise InvalidConfig(f"option storageOptions is for a URL, and option path is {shown(path)}, a directory")
    return found


def _nearest(name: str, known: Mapping[str, str]) -> str:
    import difflib  # only to word an error

    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {known[nearest[0]]}?" if nearest else f"known options: {', '.join(sorted(known.values()))}"
