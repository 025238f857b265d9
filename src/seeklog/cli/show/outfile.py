"""Output files that are written completely or not at all: to a temporary file, which is renamed at the end."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from io import BufferedWriter

from seeklog.errors import UsageError
from seeklog.files import OsFiles


@contextlib.contextmanager
def whole_file(path: str, *, replaces: bool) -> Iterator[BufferedWriter]:
    """Yield a file that is durable under its name at the end of the `with`, and removed after an exception.

    An existing file is refused, unless `replaces`.
    """
    if path == "-":
        raise UsageError("the output must be a file; for stdout use: seeklog cat --format")
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent)
    if os.path.isdir(path):
        raise UsageError(f"{path} is a directory; name a file")
    if os.path.lexists(path) and not replaces:
        raise UsageError(f"{path} already exists; pass --force to replace it")
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            OsFiles().sync(file.fileno())
        os.replace(temporary, path)
        # A power loss could otherwise undo the rename.
        OsFiles().sync_directory(os.path.dirname(os.path.abspath(path)))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
