"""Small text files whose last line proves the rest:

seeklog-topics 1        which file this is, and the version of its format
...                     lines
crc32c 5d1c9ad2         the CRC-32C of all before it
"""

from __future__ import annotations

from collections.abc import Iterable

from seeklog.errors import CorruptionError
from seeklog.record.kernel import crc32c


def encode_framed(first_line: str, lines: Iterable[str]) -> bytes:
    """Return the bytes of a file with these lines, which are ASCII."""
    body = "".join(f"{line}\n" for line in (first_line, *lines)).encode("ascii")
    return body + b"crc32c %08x\n" % crc32c(body)


def decode_framed(data: bytes, first_line: str, *, what: str, path: str, advice: str) -> list[str]:
    """Return the lines between the first and the last, or raise `CorruptionError`; the error calls the file `what`."""
    body, separator, last = data.rpartition(b"crc32c ")
    if not separator or last != b"%08x\n" % crc32c(body):
        raise CorruptionError(f"{what} fails its CRC", path=path, advice=advice)
    first, *lines = body.decode("ascii", "replace").splitlines() or [""]
    if first != first_line:
        raise CorruptionError(
            f"{what} begins with {first!r}, not {first_line!r}: a newer seeklog wrote it; open it with that", path=path
        )
    return lines
