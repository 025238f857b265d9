"""The high watermark, published for readers in other processes.

`seeklog-watermark` has 16 bytes, big-endian, overwritten in place by a single write:

    0  crc              uint32   CRC-32C of the 12 bytes after it
    4  mode             int32    0: the watermark follows the write; read to the last whole batch
                                 1: `high_watermark` is the first offset that must not be read
    8  high_watermark   int64

It is synced only when the watermark may fall: in a truncation, and when a log with a manual watermark is opened. So
every value that survives a power loss was published, and the higher of this one and the checkpoint's is valid. A reader
that finds a torn value retries, then uses the checkpoint and logs a warning.
"""

from __future__ import annotations

import logging
import posixpath
import struct
from collections.abc import Callable
from typing import Final

from seeklog import names
from seeklog.files import Files, Handle, publish_file, read_if_exists
from seeklog.record.crc import crc32c

logger = logging.getLogger("seeklog")

_BODY = struct.Struct(">iq")
_CRC = struct.Struct(">I")
SIZE: Final = _CRC.size + _BODY.size
FOLLOWS_WRITE: Final = 0
EXPLICIT: Final = 1
# A write of 16 bytes within one page is torn only during a memory copy.
_ATTEMPTS: Final = 8


def encode_watermark(mode: int, high_watermark: int) -> bytes:
    body = _BODY.pack(mode, high_watermark)
    return _CRC.pack(crc32c(body)) + body


def decode_watermark(data: bytes) -> tuple[int, int] | None:
    """Return (mode, high watermark), or None if the bytes are torn or damaged."""
    if len(data) != SIZE or _CRC.unpack_from(data)[0] != crc32c(data[_CRC.size :]):
        return None
    mode, high_watermark = _BODY.unpack_from(data, _CRC.size)
    return mode, high_watermark


class Publisher:
    """Publishes the watermark for the writer."""

    def __init__(self, files: Files, directory: str, *, follows_write: bool) -> None:
        self._files = files
        self._path = f"{directory}/{names.WATERMARK}"
        self._mode = FOLLOWS_WRITE if follows_write else EXPLICIT
        self._handle: Handle | None = None

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    def publish(self, high_watermark: int, *, durable: bool = False) -> None:
        """Publish how far other processes may read."""
        published = encode_watermark(self._mode, high_watermark)
        handle = self._handle or self._existing()
        if handle is None:
            handle = self._created(published)
        else:
            self._files.write(handle.number, published, 0)
        if durable:
            self._files.sync(handle.number)
        # A watermark that follows the write is published once; others with every sync, so their file stays open.
        self._handle = handle if self._mode == EXPLICIT else None

    def _existing(self) -> Handle | None:
        try:
            return Handle(self._files, self._path, write=True)
        except FileNotFoundError:
            return None

    def _created(self, content: bytes) -> Handle:
        """Create the file with its content, so that an empty one is damage to a reader and never a new file."""
        handle = Handle(self._files, f"{self._path}{names.TEMPORARY}", write=True, create=True)
        self._files.write(handle.number, content, 0)
        publish_file(self._files, *posixpath.split(self._path))
        return handle

    def try_publish(self, high_watermark: int) -> None:
        """Publish; on failure, log a warning: readers in other processes then see less."""
        try:
            self.publish(high_watermark)
        except OSError as error:
            logger.warning("%s: the watermark was not published: %s", self._path, error)

    def close(self) -> None:
        self._handle = None


def read_watermark(files: Files, directory: str, *, warn: Callable[[str], None]) -> tuple[int, int] | None:
    """Return the published (mode, high watermark), or None if the file is missing or damaged.

    `warn` is called for a damaged file: readers then see less than was published.
    """
    path = f"{directory}/{names.WATERMARK}"
    for _ in range(_ATTEMPTS):
        data = read_if_exists(files, path)
        if data is None:
            return None
        published = decode_watermark(data)
        if published is not None:
            return published
    warn(f"{path} fails its CRC: using the high watermark of the checkpoint until a writer publishes another")
    return None
