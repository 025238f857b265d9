"""The user's settings: `SEEKLOG_DIR`, and `seeklog.toml` in the user's configuration directory.

    dir = "/var/lib/seeklog"    the default of DIR
    utc = true                  the default of --utc

There are no other settings. Even with a default, the first argument of a command is its DIR if it is one word that
contains a slash, or if all arguments are given.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from seeklog.errors import InvalidConfig

_KNOWN: dict[str, type] = {"dir": str, "utc": bool}


def directory() -> str | None:
    """Return the default of DIR, if there is one."""
    return os.environ.get("SEEKLOG_DIR") or read().get("dir") or None


def utc() -> bool:
    """Return the default of --utc."""
    return bool(read().get("utc", False))


@functools.cache
def read() -> dict[str, Any]:
    """Return the settings in the file, if there is one; raise `InvalidConfig` for an invalid file."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    file = Path(home) / "seeklog.toml"
    try:
        text = file.read_bytes()
    except OSError:
        return {}
    import tomllib

    try:
        values = tomllib.loads(text.decode())
    except ValueError as error:
        raise InvalidConfig(f"{file} is not TOML: {error}") from None
    for name, value in values.items():
        if name not in _KNOWN:
            raise InvalidConfig(f"{file}: unknown setting {name}; known settings: {', '.join(_KNOWN)}")
        if not isinstance(value, _KNOWN[name]):
            raise InvalidConfig(f"{file}: {name} must be a {_KNOWN[name].__name__}")
    return values
