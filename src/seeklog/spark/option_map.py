"""Option values out of the map of strings that Spark hands over: each has a type, and a wrong one is named.

Spark's map does not tell cases apart, so neither does this. Which words are known is the caller's to say; one that
is not known is refused with the nearest that is, and one of Spark's Kafka connector that means nothing without a
broker is refused with what to use in its place. Every error is one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from seeklog.config import parse_span_ms
from seeklog.errors import InvalidConfig
from seeklog.names import is_url

NO_BROKER: Final = "there is no broker to ask"
# Words of Spark's Kafka connector, with why they mean nothing here and what to use.
BROKER_WORDS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "there is no broker to connect to; give the store's directory as path",
    "kafkaConsumer.pollTimeoutMs": f"{NO_BROKER}, so nothing times out; leave it out",
    "fetchOffset.numRetries": f"offsets are read from files: {NO_BROKER} again; leave it out",
    "fetchOffset.retryIntervalMs": f"offsets are read from files: {NO_BROKER} again; leave it out",
    "partition.metadata.cache.ttl.ms": f"{NO_BROKER} about partitions; leave it out",
    "groupIdPrefix": "no consumer group is made for a query; use groupId to commit what a stream has read",
    "kafka.partitioner.class": "rows go to partitions by murmur2 of the key, or by their partition column",
}
KAFKA_PREFIX: Final = "kafka."

_WHOLE: Final = re.compile(r"[+-]?\d{1,19}\Z", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d{1,18})\s*([a-zA-Z]*)\Z", re.ASCII)
_SIZES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1 << (10 * (place + 1)) for place, letter in enumerate("kmgt") for unit in (letter, letter + "b")},
}
_FILE_ADDRESS: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)\Z", re.IGNORECASE | re.DOTALL)
_OTHER_ADDRESS: Final = re.compile(r"(file:|[a-z][a-z0-9+.-]+://)", re.IGNORECASE | re.ASCII)
_SHOWN_MOST: Final = 80
INT64_MAX: Final = 2**63 - 1


class Words:
    """The options of one read or write. The names given to the methods are spelt as in the documentation."""

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        known: Iterable[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse what is not among `known`; `refused` says of words that others know why they do not fit here."""
        self._values = {name.lower(): value for name, value in options.items()}
        self._check_known(tuple(known), {**BROKER_WORDS, **(refused or {})})

    def _check_known(self, known: tuple[str, ...], refused: Mapping[str, str]) -> None:
        allowed = {name.lower() for name in known}
        spelt = {name.lower(): name for name in refused}
        for name in self._values:
            if name in allowed:
                continue
            if name in spelt:
                raise InvalidConfig(f"option {spelt[name]} means nothing here: {refused[spelt[name]]}")
            if name.startswith(KAFKA_PREFIX):
                raise InvalidConfig(
                    f"option {name} means nothing here: it configures a Kafka client, and {NO_BROKER}; leave it out"
                )
            raise InvalidConfig(f"unknown option {name}; {_nearest(name, known)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """Return an option's text, or None if it was not given; one that is blank is refused."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise wrong(name, value, "some text")
        return value.strip()

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise wrong(name, value, "true or false")
        return value.lower() == "true"

    def number(self, name: str, *, least: int = 1, most: int = INT64_MAX) -> int | None:
        """Return a whole number, or None if it was not given."""
        value = self.text(name)
        if value is None:
            return None
        if not _WHOLE.match(value) or not least <= int(value) <= most:
            bounds = f"from {least} on" if most == INT64_MAX else f"from {least} to {most}"
            raise wrong(name, value, f"a whole number {bounds}")
        return int(value)

    def size_bytes(self, name: str, *, least: int = 1) -> int | None:
        """Return an amount of bytes: a number, or one with k, m, g or t (of 1024), or None if it was not given."""
        value = self.text(name)
        if value is None:
            return None
        match = _AMOUNT.match(value)
        scale = _SIZES.get(match[2].lower()) if match else None
        if match is None or scale is None or not least <= int(match[1]) * scale <= INT64_MAX:
            raise wrong(name, value, f"an amount of bytes of at least {least}, such as 134217728 or 128m")
        return int(match[1]) * scale

    def duration_ms(self, name: str) -> int | None:
        """Return a time span in milliseconds, or None if it was not given."""
        value = self.text(name)
        if value is None:
            return None
        span = parse_span_ms(value)
        if span is None:
            raise wrong(name, value, "a time span, such as 500ms, 30s, 15m, 2 hours or 7 days")
        return span

    def timestamp_ms(self, name: str) -> int | None:
        """Return a moment in milliseconds since 1970, or None if it was not given."""
        value = self.text(name)
        return None if value is None else timestamp_ms(name, value)

    def choice(self, name: str, allowed: Iterable[str], *, default: str) -> str:
        """Return one of a few words, as it is spelt in `allowed`."""
        value = self.text(name)
        if value is None:
            return default
        spelt = {word.lower(): word for word in allowed}
        if value.lower() not in spelt:
            raise wrong(name, value, " or ".join(spelt.values()))
        return spelt[value.lower()]

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return names that stand between commas, each once, or None if the option was not given."""
        value = self.text(name)
        if value is None:
            return None
        found = tuple(part.strip() for part in value.split(","))
        if not all(found):
            raise wrong(name, value, "names between commas")
        for one in found:
            if found.count(one) > 1:
                raise wrong(name, value, f"each name once, but {one} stands there {found.count(one)} times")
        return found

    def json(self, name: str, *, shape: str) -> Any:
        """Return what an option's JSON says, or None if it was not given; `shape` shows how it should look."""
        value = self.text(name)
        return None if value is None else parse_json(name, value, shape=shape)


def wrong(name: str, value: object, allowed: str) -> InvalidConfig:
    """Return the error for a value that an option cannot have."""
    return InvalidConfig(f"option {name} is {shown(value)}, but must be {allowed}")


def shown(value: object) -> str:
    """Return a value for an error's one line: quoted if it is text, cut if it is long, never a second line."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_MOST else f"{text[: _SHOWN_MOST - 3]}..."


def parse_json(name: str, value: str, *, shape: str) -> Any:
    """Return what JSON says; a key that stands twice in one object is refused, as its first value would be lost."""
    try:
        return json.loads(value, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError):
        raise wrong(name, value, f"JSON such as {shape}") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def timestamp_ms(name: str, value: object) -> int:
    """Return a moment in milliseconds: a number of them, or an ISO timestamp; one without a zone is UTC."""
    allowed = "milliseconds since 1970, or an ISO timestamp such as 2026-05-01T12:00:00Z (UTC, unless a zone is given)"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX:
        return value
    if isinstance(value, str):
        text = value.strip()
        if _WHOLE.match(text) and 0 <= int(text) <= INT64_MAX:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise wrong(name, value, allowed) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        milliseconds = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
        if milliseconds >= 0 and not _WHOLE.match(text):
            return milliseconds
    raise wrong(name, value, allowed)


def source_path(words: Words) -> str:
    """Return the directory or the URL that is read; a `file:` address is taken for the path that it names."""
    value = words.text("path")
    return store_path(words) if value is None else readable_path("option path", value)


def readable_path(what: str, value: str) -> str:
    """Return a URL as it is, and else the path that a `file:` address names, or a path as it is."""
    return value if is_url(value) and not value.lower().startswith("file:") else local_path(what, value)


def storage_options(words: Words, path: str) -> dict[str, Any]:
    """Return what fsspec needs for a URL. No error repeats any of it: there are secrets in it."""
    value = words.text("storageOptions")
    if value is None:
        return {}
    try:
        found = json.loads(value, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidConfig('option storageOptions must be a JSON object such as {"endpoint_url": "https://host"}')
    if not is_url(path):
        raise InvalidConfig(f"option storageOptions is for a URL, and option path is {shown(path)}, a directory")
    return found


def store_path(words: Words) -> str:
    """Return the store's directory; a `file:` address is taken for the path that it names, others are refused."""
    value = words.text("path")
    if value is None:
        raise InvalidConfig(
            "option path is missing: give the directory of a store, or a broker's data directory (a table that was "
            "made with columns of its own does not know its options: SELECT ... FROM t WITH (path = '...', ...))"
        )
    return local_path("option path", value)


def local_path(what: str, value: str) -> str:
    """Return the path that a `file:` address names, or a path as it is; refuse the address of anything else."""
    # As Hadoop writes and reads it: nothing in it is escaped.
    local = _FILE_ADDRESS.match(value)
    if local is not None:
        return local[1]
    if _OTHER_ADDRESS.match(value):
        raise InvalidConfig(
            f"{what} is {shown(value)}, but must be a directory that the driver and every executor see under the same "
            "path; what lies at a URL is only read"
        )
    return value


def _nearest(name: str, known: tuple[str, ...]) -> str:
    import difflib  # only to word an error

    by_lower = {word.lower(): word for word in known}
    nearest = difflib.get_close_matches(name, by_lower, n=1)
    return f"did you mean {by_lower[nearest[0]]}?" if nearest else f"known options: {', '.join(sorted(known))}"
