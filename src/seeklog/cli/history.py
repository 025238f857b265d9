"""The lines that a user has typed into a shell, kept in the user's state directory."""

from __future__ import annotations

import contextlib
import os
from types import ModuleType
from typing import Final

MAX_LINES: Final = 2000


class History:
    """The history of one shell, for the arrow keys. Without readline nothing is kept.

    If the file cannot be written, the history ends with the shell. Only its user may read it: queries may contain data.
    """

    def __init__(self, name: str) -> None:
        home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        self.path = os.path.join(home, "seeklog", name)
        self._readline = _readline()
        if self._readline is None:
            return
        self._readline.set_auto_history(False)
        self._readline.clear_history()
        self._readline.set_history_length(MAX_LINES)
        with contextlib.suppress(OSError):
            self._readline.read_history_file(self.path)

    def add(self, line: str) -> None:
        """Add a line, also to the file, so that it survives a kill."""
        if self._readline is None or not line:
            return
        self._readline.add_history(line)
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))
            if hasattr(self._readline, "append_history_file"):
                self._readline.append_history_file(1, self.path)
            else:  # libedit
                self._readline.write_history_file(self.path)
            os.chmod(self.path, 0o600)


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline
