"""The directory that the demo leaves its things in, and what of it may be removed: what a former demo left there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from seeklog.errors import UsageError

MARKER: Final = ".seeklog-demo"
_LEFT: Final = ("store", "output", "report.html")
_TOLD: Final = "Made by `seeklog demo`, which may remove what it has made here.\n"


class Place:
    """Where things are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "store"
        self.output = root / "output"
        self.report = root / "report.html"


def prepare(path: str) -> Place:
    """Return a directory in which nothing of an earlier demo is left; one that is somebody else's is refused."""
    root = Path(path)
    if root.exists() and not root.is_dir():
        raise UsageError(f"{path} is a file; name a directory for the demo, or leave it out")
    if root.exists() and any(root.iterdir()) and not (root / MARKER).is_file():
        raise UsageError(
            f"{path} is not empty, and no demo has made it; name another directory: seeklog demo other-directory"
        )
    root.mkdir(parents=True, exist_ok=True)
    (root / MARKER).write_text(_TOLD)
    for name in _LEFT:
        left = root / name
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)
    return Place(root)
