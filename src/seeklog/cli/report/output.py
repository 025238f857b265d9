"""Putting the page in its place."""

from __future__ import annotations

import contextlib
import os
import tempfile


def replace_file(path: str, text: bytes) -> None:
    """Put a file in its place whole, or leave what is there."""
    number, written = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".report-")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(written, 0o666 & ~mask)
        os.replace(written, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(written)
        raise
