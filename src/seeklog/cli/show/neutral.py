"""Text that is safe to print on a terminal.

Data in a log is untrusted. An escape sequence could move the cursor, change the title or make the terminal type input;
a direction mark could reorder a line. Such characters are printed escaped.
"""

from __future__ import annotations

import re
from typing import Final

# C0 and C1 controls, DEL, line and paragraph separators, direction marks, lone surrogates.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def neutral(text: str) -> str:
    """Escape control characters as in Python literals."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def neutral_bytes(data: bytes) -> str:
    """Decode bytes to safe text; bytes that are not UTF-8 become `\\xff`."""
    return neutral(data.decode("utf-8", "backslashreplace"))


def printable(data: bytes) -> str:
    """Return one character for each byte, as in a hex dump: a dot for bytes that are not printable ASCII."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)


def neutral_json(text: str) -> str:
    """Escape control characters in JSON text with JSON escapes, so that its meaning stays the same."""
    # The encoder has already escaped newlines and tabs in strings.
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
