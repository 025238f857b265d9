"""HTML and SVG that are right by construction: whatever is not markup already is escaped."""

from __future__ import annotations

import html
from typing import Final

from seeklog.cli.show.neutral import neutral

_VOID: Final = frozenset({"meta", "link", "br", "rect", "line", "path", "circle", "polyline"})


class Markup(str):
    """Text that is markup, and not to be escaped again."""

    __slots__ = ()


def safe(content: object, *, between: str = "") -> Markup:
    """Return content as markup. Text is escaped and cannot change how its surroundings read; lists are joined."""
    if isinstance(content, Markup):
        return content
    if isinstance(content, list | tuple):
        return Markup(between.join(map(safe, content)))
    return Markup(html.escape(neutral(str(content)), quote=True))


def tag(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return one element. A trailing underscore of an attribute's name is dropped, others become hyphens.

    Attributes that are None or False are left out; floats are rounded to what an eye can see.
    """
    words = "".join(
        f' {word.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for word, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID and not content:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{safe(content)}</{name}>")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return safe(value)
