"""Words that options take."""

from __future__ import annotations

from collections.abc import Iterable

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
