"""The output formats of kcat: `%o %k %v\\n`.

    %s %v   value                   %k   key                    %t   topic      %T   timestamp in milliseconds
    %S      its length, -1 if null  %K   its length, or -1      %p   partition  %h   headers, as name=value,…
    %R      its length in 4 bytes   %%   a percent sign         %o   offset

The escapes are `\\n`, `\\t`, `\\r`, `\\0`, `\\\\` and `\\xHH`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final

from seeklog.cli.show.neutral import neutral_bytes
from seeklog.errors import UsageError
from seeklog.record.record import Record

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE: Final = re.compile(r"%(?P<letter>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)
_INT32: Final = struct.Struct(">i")

# A field in a template.
FIELD: Final = re.compile("%[svSkKRhTtpo]")

Part = Callable[[Record], bytes]


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record) -> bytes:
    return b",".join(
        key.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for key, value in record.headers
    )


_LETTERS: Final[dict[str, Part]] = {
    "s": lambda record: record.value or b"",
    "v": lambda record: record.value or b"",
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _INT32.pack(_length(record.value)),
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "T": lambda record: b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms),
    "h": _headers,
    "t": lambda record: str(record.topic).encode(),
    "p": lambda record: b"%d" % (record.partition or 0),
    "o": lambda record: b"%d" % record.offset,
}


def unescape(text: str, *, option: str) -> bytes:
    """Return the bytes of an option's text with escapes; an empty text is refused."""
    if not text:
        raise UsageError(f"{option} is empty; pass at least one character")
    return b"".join(_literal(match, f"{option} {text!r}: {match[0]}") for match in _PIECE.finditer(text))


def compile_format(text: str, *, is_neutral: bool) -> Part:
    """Return a function from records to bytes; `is_neutral` makes data of the record safe to print on a terminal."""
    form = b""
    parts: list[Part] = []
    for match in _PIECE.finditer(text):
        letter, where = match["letter"], f"-t: {match[0]} at column {match.start() + 1}"
        if letter is None:
            form += _literal(match, where).replace(b"%", b"%%")
        elif letter == "%":
            form += b"%%"
        elif letter in _LETTERS:
            form += b"%b"
            parts.append(_LETTERS[letter])
        else:
            raise UsageError(f"{where} is not one of {' '.join(f'%{known}' for known in _LETTERS)} %%")
    if is_neutral:
        return lambda record: form % tuple([neutral_bytes(part(record)).encode() for part in parts])
    return lambda record: form % tuple([part(record) for part in parts])


def _literal(match: re.Match[str], where: str) -> bytes:
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"])
    if match["escape"] is None:
        return match[0].encode("utf-8", "surrogateescape")
    if match["escape"] not in _ESCAPES:
        raise UsageError(f"{where} is not one of \\n \\t \\r \\0 \\xHH \\\\")
    return _ESCAPES[match["escape"]]
