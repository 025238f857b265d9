"""The disk: `write` and `fdatasync` of prepared bytes, the upper limit of a durable log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class RawFile:
    """A file that is synced after each appended piece."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def append_all(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            written = os.write(self._handle, piece)
            if written != len(piece):
                raise OSError(f"wrote {written} of {len(piece)} bytes")
            os.fdatasync(self._handle)

    def close(self) -> None:
        os.close(self._handle)
