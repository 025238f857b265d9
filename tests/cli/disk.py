"""What lies on disk, to see that nothing of it changed."""

from __future__ import annotations

from pathlib import Path


def bytes_of(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory by its name, but for locks, which an opener touches."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
