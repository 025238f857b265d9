"""An open file.

A handle is closed when the last reference to it goes, never while a reader holds one: a number that was
closed and given to another file could otherwise be read as if it were the first.
"""

from __future__ import annotations

from seeklog.files.local import Files


class Handle:
    """An open file that closes itself when nobody refers to it any more."""

    __slots__ = ("_files", "number")

    def __init__(self, files: Files, path: str, *, write: bool = False, create: bool = False) -> None:
        self._files = files
        self.number = -1
        self.number = files.open(path, write=write, create=create)

    def fileno(self) -> int:
        return self.number

    def __del__(self) -> None:
        if self.number >= 0:
            self._files.close(self.number)
