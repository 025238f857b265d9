"""Words that options take."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from seeklog.errors import UsageError


def parse_pair(text: str, *, option: str) -> tuple[str, str]:
    """Return the name and the value of `name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{option} {text!r} should be NAME=VALUE")
    return name.strip(), value


def parse_config(words: Iterable[str]) -> dict[str, str]:
    """Return a configuration out of `retention.ms=1000` and the like; each word once."""
    found: dict[str, str] = {}
    for text in words:
        name, value = parse_pair(text, option="--set")
        if name in found:
            raise UsageError(f"--set {name} is given twice")
        found[name] = value.strip()
    return found


def parse_storage_options(words: Iterable[str]) -> dict[str, Any]:
    """Return what fsspec is given: text, but for true, false, and JSON in braces or brackets."""
    found: dict[str, Any] = {}
    for text in words:
        name, value = parse_pair(text, option="--storage-option")
        is_json = value in ("true", "false") or value[:1] in ("{", "[")
        try:
            found[name] = json.loads(value) if is_json else value
        except ValueError:
            # The value may be a secret.
            raise UsageError(f"--storage-option {name}: what begins with a brace must be JSON") from None
    return found
