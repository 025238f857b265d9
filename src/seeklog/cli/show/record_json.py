"""Records as lines of JSON, without loss.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": "2026-01-02T03:04:05.678Z",
     "key": "customer_7", "value": "{\\"id\\": 7}", "headers": [{"key": "source", "value": "web"}]}

UTF-8 is written as text, other bytes as base64 in the fields `key_base64` and `value_base64`, also in headers. Null
stays null. A timestamp is ISO 8601 with a zone, or a number: milliseconds since 1970, -1 if the record has none.
"""

from __future__ import annotations

import base64
import difflib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral_json
from seeklog.config import INT64_MAX
from seeklog.errors import InvalidRecord
from seeklog.record.record import Record

_HEADER_FIELDS: Final = dict.fromkeys(("key", "key_base64", "value", "value_base64"))
FIELDS: Final = dict.fromkeys(("topic", "partition", "offset", "timestamp", *_HEADER_FIELDS, "headers"))
_EXAMPLE: Final = '{"key": "a", "value": "b"}'
_OTHER_JSON: Final = "For other JSON pass --value-column, or --format lines to append each line as it is"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WHOLE: Final = re.compile(r"-?\d{1,19}\Z", re.ASCII)

Headers = tuple[tuple[str, bytes | None], ...]


class Draft(NamedTuple):
    """A record to append, without an offset."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None: the time of the append."""
    partition: int | None = None


def moment_encoder(*, utc: bool) -> Callable[[int | None], str | None]:
    """Return a function from timestamps to ISO 8601; it returns None for no timestamp, and after the year 9999.

    It is faster than `amounts.moment` because adjacent records often share a second.
    """

    @lru_cache(maxsize=1)
    def parts_of(second: int) -> tuple[str, str] | None:
        before, dot, rest = (amounts.moment(second * 1000, utc=utc) or "").partition(".")
        return (before, rest[3:]) if dot else None

    def moment(timestamp_ms: int | None) -> str | None:
        if timestamp_ms is None or timestamp_ms < 0:
            return None
        parts = parts_of(timestamp_ms // 1000)
        return None if parts is None else f"{parts[0]}.{timestamp_ms % 1000:03d}{parts[1]}"

    return moment


def line_encoder(*, utc: bool) -> Callable[[Record], str]:
    """Return a function from records to lines of JSON without a newline, safe to print on a terminal."""
    moment = moment_encoder(utc=utc)
    quoted = encode_basestring

    def field(name: str, data: bytes | None) -> str:
        if data is None:
            return f'"{name}": null'
        try:
            return f'"{name}": {quoted(data.decode())}'
        except UnicodeDecodeError:
            return f'"{name}_base64": "{base64.b64encode(data).decode()}"'

    def header(key: str, value: bytes | None) -> str:
        # The log decodes header keys that are not UTF-8 with surrogates.
        return f"{{{field('key', key.encode('utf-8', 'surrogateescape'))}, {field('value', value)}}}"

    def line(record: Record) -> str:
        timestamp_ms = record.timestamp_ms
        iso = moment(timestamp_ms)
        time = f'"{iso}"' if iso is not None else str(-1 if timestamp_ms is None else timestamp_ms)
        headers = ", ".join([header(key, value) for key, value in record.headers]) if record.headers else ""
        text = (
            f'{{"topic": "{record.topic}", "partition": {record.partition}, "offset": {record.offset}, '
            f'"timestamp": {time}, {field("key", record.key)}, {field("value", record.value)}, '
            f'"headers": [{headers}]}}'
        )
        # DEL is the only control character in quoted ASCII. Searching for others would dominate the cost.
        return text if text.isascii() and "\x7f" not in text else neutral_json(text)

    return line


class _NoJson(ValueError):
    """A constant that Python's decoder accepts and JSON does not have."""


def _refuse_constant(name: str) -> None:
    raise _NoJson(f"JSON has no {name}; write null, or the text in quotes")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def decode_line(line: bytes, *, pick: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> Draft:
    """Decode a line of JSON; raise `InvalidRecord` with the reason.

    `pick` returns the fields of a record from those of an object with others.
    """
    try:
        # Some editors begin a file with a byte order mark.
        found = _DECODER.decode(line.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {_reason(error)}") from None
    if not isinstance(found, dict):
        raise InvalidRecord(f"{_kind(found)} instead of an object such as {_EXAMPLE}")
    if pick is not None:
        found = pick(found)
    _check_names(found, FIELDS, "")
    if "value" not in found and "value_base64" not in found:
        raise InvalidRecord(f"no value; a record is {_EXAMPLE}. {_OTHER_JSON}")
    return Draft(
        value=_bytes(found, "value", ""),
        key=_bytes(found, "key", ""),
        headers=decode_headers(found.get("headers")),
        timestamp_ms=decode_timestamp(found.get("timestamp")),
        partition=decode_partition(found.get("partition")),
    )


def decode_headers(found: Any) -> Headers:
    """Decode headers: a list of objects, or one object with names and values."""
    if found is None:
        return ()
    if isinstance(found, dict):
        for name in found:
            _encoded(name, "a header's key")
        return tuple((name, _bytes(found, name, "headers: ")) for name in found)
    if not isinstance(found, list):
        raise InvalidRecord(f"headers is {_kind(found)}, not a list of objects with key and value")
    return tuple(map(_header, found))


def _header(found: Any) -> tuple[str, bytes | None]:
    if not isinstance(found, dict):
        raise InvalidRecord(f"a header is {_kind(found)}, not an object with key and value")
    _check_names(found, _HEADER_FIELDS, "a header: ")
    key = _bytes(found, "key", "a header: ")
    if key is None:
        raise InvalidRecord("a header has no key")
    return key.decode("utf-8", "surrogateescape"), _bytes(found, "value", "a header: ")


def decode_timestamp(found: Any) -> int | None:
    """Decode a timestamp, a number or ISO 8601, to milliseconds since 1970; a time without a zone is local."""
    if found is None:
        return None
    if isinstance(found, str):
        if "T" not in found and _WHOLE.match(found):
            return decode_timestamp(int(found))
        try:
            moment = datetime.fromisoformat(found)
            since = ((moment if moment.tzinfo is not None else moment.astimezone(UTC)) - _EPOCH) // _MILLISECOND
        except (ValueError, OverflowError, OSError):
            raise InvalidRecord(f"the timestamp {found[:40]!r} is not a time; write 2026-01-02T03:04:05.678Z") from None
        if since < 0:
            raise InvalidRecord(f"the timestamp {found[:40]!r} is before 1970")
        return since
    if not isinstance(found, int) or isinstance(found, bool):
        raise InvalidRecord(f"the timestamp is {_shown(found)}, not a whole number of milliseconds or ISO 8601")
    if not -1 <= found <= INT64_MAX:
        raise InvalidRecord(f"the timestamp {found} is out of bounds: milliseconds since 1970, or -1 for none")
    return found


def decode_partition(found: Any) -> int | None:
    """Decode the number of a partition."""
    if isinstance(found, str) and _WHOLE.match(found):
        found = int(found)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < 0):
        raise InvalidRecord(f"the partition is {_shown(found)}, not a whole number of at least 0")
    return found


def _bytes(found: Mapping[str, Any], name: str, where: str) -> bytes | None:
    """Return the bytes of a field: text, base64 under the other name, or other JSON as text."""
    coded = found.get(f"{name}_base64")
    if coded is not None:
        if found.get(name) is not None:
            raise InvalidRecord(f"{where}{name} and {name}_base64 are both given")
        if not isinstance(coded, str):
            raise InvalidRecord(f"{where}{name}_base64 is {_kind(coded)}, not text")
        try:
            return base64.b64decode(coded, validate=True)
        except ValueError:
            raise InvalidRecord(f"{where}{name}_base64 is not base64") from None
    value = found.get(name)
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _encoded(text, f"{where}{name}")


def _encoded(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRecord(f"{field} contains half a surrogate pair, which UTF-8 cannot encode") from None


def _check_names(found: Mapping[str, Any], known: Mapping[str, None], where: str) -> None:
    for name in found:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
            other = "" if where or nearest else f". {_OTHER_JSON}"
            raise InvalidRecord(f"{where}unknown field {name[:40]!r}; {hint}{other}")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    if isinstance(error, _NoJson):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return "nested too deep" if isinstance(error, RecursionError) else "a number in it is too long"


def _shown(found: Any) -> str:
    return str(found)[:40] if isinstance(found, int | float) and not isinstance(found, bool) else _kind(found)


def _kind(found: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(found), "null")
