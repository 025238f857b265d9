"""Text that does no harm on a terminal.

What is in a log comes from anywhere. An escape sequence in it could move the cursor, change the title or make a
terminal type; a direction mark could make a line read as another. All of it is shown, escaped.
"""

from __future__ import annotations

import re
from typing import Final

# C0 and C1 controls, DEL, line and paragraph separators, marks that change the direction, lone surrogates.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def neutral(text: str) -> str:
    """Return text in which whatever could steer a terminal is escaped, as Python writes it."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def neutral_bytes(data: bytes) -> str:
    """Return bytes as text, those that are not UTF-8 as `\\xff`."""
    return neutral(data.decode("utf-8", "backslashreplace"))


def printable(data: bytes) -> str:
    """Return a character for each byte, as a hex dump shows it: a dot for what is not ASCII or cannot be seen."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)


def neutral_json(text: str) -> str:
    """Return JSON in which such characters are escaped as JSON does it, so that it means the same."""
    # A newline or tab within a string is escaped by the encoder already.
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
