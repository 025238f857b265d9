"""The files on disk, to check that nothing changed."""

from __future__ import annotations

from pathlib import Path


def bytes_of(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory by name, except lock files, which an open touches."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
