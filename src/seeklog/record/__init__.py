"""Encoding and decoding of records. Pure: no files, no clock, no threads.

The hot loops are compiled at install. With SEEKLOG_PURE=1 in the environment the same sources run interpreted.
"""

from collections.abc import Mapping, Sequence
from os import environ

# What callers pass. A record keeps bytes, and headers as a tuple of pairs.
Bytes = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, Bytes | None]] | Mapping[str, Bytes | None]

if environ.get("SEEKLOG_PURE") == "1":
    from seeklog.record.interpreted import InterpretedFinder, install

    install(InterpretedFinder())
