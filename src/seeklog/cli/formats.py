"""The formats of record files: by the ending of a file's name, and by its content."""

from __future__ import annotations

import codecs
import os
from typing import Final

from seeklog.errors import UsageError

ARROW_FORMATS: Final = ("parquet", "arrow", "arrows")
INPUTS: Final = ("lines", "jsonl", "csv", *ARROW_FORMATS)
NAMES: Final = {
    "lines": "lines",
    "jsonl": "JSON lines",
    "csv": "CSV",
    "parquet": "Parquet",
    "arrow": "Arrow",
    "arrows": "Arrow",
}
# An Arrow stream has no magic number, but every message begins with this since 0.15.
CONTINUATION: Final = b"\xff\xff\xff\xff"
ARROW_MAGIC: Final = b"ARROW1\0\0"
_PARQUET_MAGIC: Final = b"PAR1"
# The beginning of a file that is looked at.
HEAD_BYTES: Final = 8192
_ENDINGS: Final = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
    "arrow": "arrow",
    "feather": "arrow",
    "ipc": "arrow",
    "arrows": "arrows",
}
_COMPRESSED: Final = {b"\x1f\x8b": ("gzip", "gunzip -c"), b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc")}


def format_by_ending(path: str) -> str | None:
    """Return the format that a file's name ends with."""
    return _ENDINGS.get(os.path.splitext(path)[1].lower().removeprefix("."))


def input_format(file: str, head: bytes, *, chosen: str | None) -> str:
    """Return the format of an input: the chosen one, or by the file's name, or by its first bytes, or lines.

    Raises `UsageError` if the first bytes are not those of that format.
    """
    name = "stdin" if file == "-" else file
    found = _format_of(head)
    wanted = chosen or format_by_ending(file) or found or "lines"
    if wanted == "arrows":
        wanted = "arrow"  # the first bytes say whether it is a file or a stream
    for magic, (codec, command) in _COMPRESSED.items():
        if head.startswith(magic):
            raise UsageError(f"{name} is compressed with {codec}; decompress it first, with: {command}")
    if found is not None and found != wanted:
        raise UsageError(f"{name} contains {NAMES[found]}, not {NAMES[wanted]}; pass --format {found}")
    if wanted in ARROW_FORMATS and found is None:
        begins = f"it begins with {head[:8]!r}" if head else "it is empty"
        raise UsageError(f"{name} is not {NAMES[wanted]}: {begins}; pass the --format that it has")
    return wanted


def _format_of(head: bytes) -> str | None:
    if head.startswith(_PARQUET_MAGIC) and not _is_text(head):
        return "parquet"
    return "arrow" if head.startswith((ARROW_MAGIC, CONTINUATION)) else None


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)
