"""A record as one line of JSON, and back: nothing of it is lost on the way.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": "2026-01-02T03:04:05.678Z",
     "key": "customer_7", "value": "{\\"id\\": 7}", "headers": [{"key": "source", "value": "web"}]}

Bytes that are UTF-8 stand as text; others stand in base64 under `key_base64` or `value_base64`, also in a header. What
is null in the record is null here. A timestamp is ISO 8601 with its zone, or a number: milliseconds since 1970, and -1
where the record has none.
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
_FIELDS: Final = dict.fromkeys(("topic", "partition", "offset", "timestamp", *_HEADER_FIELDS, "headers"))
_EXAMPLE: Final = '{"key": "a", "value": "b"}'
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WHOLE: Final = re.compile(r"-?\d{1,19}\Z", re.ASCII)

Headers = tuple[tuple[str, bytes | None], ...]


class Draft(NamedTuple):
    """A record that is to be appended, before it is known where."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None: the time when it is appended."""
    partition: int | None = None


def moment_encoder(*, utc: bool) -> Callable[[int | None], str | None]:
    """Return what makes ISO 8601 of a timestamp; None where there is none, or one beyond the year 9999.

    It is quicker than `amounts.moment` where neighbours are mostly of the same second.
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
    """Return what makes a line of JSON, without its end, of a record; it does no harm on a terminal."""
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
        # Keys that are not UTF-8 come out of the log with their bytes as surrogates.
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
        # What is ASCII and was quoted holds no control but this one; the search for others costs more than the rest.
        return text if text.isascii() and "\x7f" not in text else neutral_json(text)

    return line


def decode_line(line: bytes) -> Draft:
    """Return the record in a line of JSON, or raise `InvalidRecord` with the reason."""
    try:
        # As text: of bytes it would guess the encoding first.
        found = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {_reason(error)}") from None
    if not isinstance(found, dict):
        raise InvalidRecord(f"{_kind(found)} instead of an object such as {_EXAMPLE}")
    _check_names(found, _FIELDS, "")
    if "value" not in found and "value_base64" not in found:
        raise InvalidRecord(f"no value; a record is {_EXAMPLE}. Without --json, the line itself is the value")
    return Draft(
        value=_bytes(found, "value", ""),
        key=_bytes(found, "key", ""),
        headers=decode_headers(found.get("headers")),
        timestamp_ms=decode_timestamp(found.get("timestamp")),
        partition=decode_partition(found.get("partition")),
    )


def decode_headers(found: Any) -> Headers:
    """Return the headers in JSON: a list of objects, or one object of names and values."""
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
    """Return the milliseconds since 1970 of a number or of ISO 8601; a time without a zone is local."""
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
        raise InvalidRecord(f"the timestamp is {_kind(found)}, not a number of milliseconds or ISO 8601")
    if not -1 <= found <= INT64_MAX:
        raise InvalidRecord(f"the timestamp {found} is out of bounds: milliseconds since 1970, or -1 for none")
    return found


def decode_partition(found: Any) -> int | None:
    """Return the number of a partition."""
    if isinstance(found, str) and _WHOLE.match(found):
        found = int(found)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < 0):
        raise InvalidRecord(f"the partition is {_kind(found)}, not a number of at least 0")
    return found


def _bytes(found: Mapping[str, Any], name: str, where: str) -> bytes | None:
    """Return the bytes of a field: text, or base64 under the other name, or any other JSON as its own text."""
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


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRecord(f"{what} contains half a surrogate pair, which UTF-8 cannot encode") from None


def _check_names(found: Mapping[str, Any], known: Mapping[str, None], where: str) -> None:
    for name in found:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
            raise InvalidRecord(f"{where}unknown field {name[:40]!r}; {hint}")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return "nested too deep" if isinstance(error, RecursionError) else "a number in it is too long"


def _kind(found: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(found), "null")
