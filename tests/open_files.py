"""The files that this process has open, on Linux and on macOS."""

from __future__ import annotations

import contextlib
import fcntl
import os


def path_of(handle: int) -> str:
    """Return the path of an open file."""
    if hasattr(fcntl, "F_GETPATH"):  # macOS
        return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{handle}")


def open_paths() -> list[str]:
    """Return the paths of all open files, sorted, without that of the listing."""
    paths = []
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            paths.append(path_of(int(name)))
    return sorted(paths)
