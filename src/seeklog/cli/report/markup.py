"""HTML and SVG that are right by construction: whatever is not markup already is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from seeklog.cli.show.neutral import neutral

_VOID = frozenset({"meta", "link", "br", "rect", "line", "path", "circle", "polyline"})


class Markup(str):
    """Text that is markup, and not to be escaped again."""

    __slots__ = ()


def safe(content: object) -> Markup:
    """Return something as markup: text is escaped, and neither hides nor turns around what stands beside it."""
    return content if isinstance(content, Markup) else Markup(html.escape(neutral(str(content)), quote=True))


def tag(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return one element. Of an attribute's name an underscore at the end is dropped, others are hyphens.

    Attributes that are None or False are left out; numbers are rounded to what an eye can see.
    """
    words = "".join(
        f' {word.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for word, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID and not content:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{joined(content)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Return parts one behind the other."""
    return Markup("".join(map(safe, parts)))


def lines_of(parts: Iterable[object]) -> Markup:
    """Return parts one below the other, as a tooltip shows them."""
    return Markup("\n".join(map(safe, parts)))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return safe(value)
