"""Small text files with a checksum in the last line:

seeklog-topics 1        the file's type and format version
...                     lines
crc32c 5d1c9ad2         the CRC-32C of all bytes before this line
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError
from seeklog.record.crc import crc32c


def encode_framed(first_line: str, lines: Iterable[str]) -> bytes:
    """Return the bytes of a file with these ASCII lines."""
    body = "".join(f"{line}\n" for line in (first_line, *lines)).encode("ascii")
    return body + b"crc32c %08x\n" % crc32c(body)


def decode_framed(data: bytes, first_line: str, *, subject: str, path: str, advice: str) -> list[str]:
    """Return the lines between the first and the last. A `CorruptionError` calls the file `subject`."""
    body, separator, last = data.rpartition(b"crc32c ")
    if not separator or last != b"%08x\n" % crc32c(body):
        raise CorruptionError(f"{subject} fails its CRC", path=path, advice=advice)
    first, *lines = body.decode("ascii", "replace").splitlines() or [""]
    if first != first_line:
        raise CorruptionError(
            f"{subject} starts with {first!r}, not {first_line!r}: a newer seeklog wrote it; open it with that version",
            path=path,
        )
    return lines


def parse_json(line: str | bytes) -> Any:
    """Return a line of JSON as values. Raise `ValueError` if it does not parse or is nested too deep."""
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def whole_number(value: Any, *, minimum: int = 0, maximum: int = INT64_MAX) -> int:
    """Return a whole number within bounds, or raise `ValueError`. A valid checksum does not prove valid values."""
    if type(value) is not int or not minimum <= value <= maximum:
        shown = repr(value) if not isinstance(value, int) or abs(value) <= 2**64 else "a number of more than 64 bits"
        raise ValueError(f"{shown} is not a whole number from {minimum} to {maximum}")
    return value
