"""What the surroundings say: `SEEKLOG_DIR`, and `seeklog.toml` in the user's configuration directory.

    dir = "/var/lib/seeklog"    what DIR is where it is left out
    utc = true                  times in UTC, as with --utc

There is nothing else to configure. With a DIR from here, the first word of a verb is still taken for a DIR if it has
a slash in it, or if all words of the verb are given.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from seeklog.errors import InvalidConfig

_KNOWN: dict[str, type] = {"dir": str, "utc": bool}


def directory() -> str | None:
    """Return what DIR is where it is left out, if anything says so."""
    return os.environ.get("SEEKLOG_DIR") or read().get("dir") or None


def utc() -> bool:
    """Tell whether times are in UTC if an option says nothing."""
    return bool(read().get("utc", False))


@functools.cache
def read() -> dict[str, Any]:
    """Return what the file says, nothing if there is none; `InvalidConfig` if it cannot be understood."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    file = Path(home) / "seeklog.toml"
    try:
        text = file.read_bytes()
    except OSError:
        return {}
    import tomllib

    try:
        found = tomllib.loads(text.decode())
    except ValueError as error:
        raise InvalidConfig(f"{file} is not TOML: {error}") from None
    for name, value in found.items():
        if name not in _KNOWN:
            raise InvalidConfig(f"{file}: unknown setting {name}; known settings: {', '.join(_KNOWN)}")
        if not isinstance(value, _KNOWN[name]):
            raise InvalidConfig(f"{file}: {name} must be a {_KNOWN[name].__name__}")
    return found
