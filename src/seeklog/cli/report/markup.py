"""HTML and SVG; everything that is not `Markup` is escaped."""

from __future__ import annotations

import html
from typing import Final

from seeklog.cli.show.neutral import neutral

_VOID: Final = frozenset({"meta", "link", "br", "rect", "line", "path", "circle", "polyline"})


class Markup(str):
    """Text that is already escaped."""

    __slots__ = ()


def safe(content: object, *, between: str = "") -> Markup:
    """Return content as markup: text is escaped, lists are joined."""
    if isinstance(content, Markup):
        return content
    if isinstance(content, list | tuple):
        return Markup(between.join(map(safe, content)))
    return Markup(html.escape(neutral(str(content)), quote=True))


def tag(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return one element. In names of attributes, a trailing underscore is dropped and others become hyphens.

    Attributes that are None or False are omitted; floats are rounded.
    """
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID and not content:
        return Markup(f"<{name}{text}/>")
    return Markup(f"<{name}{text}>{safe(content)}</{name}>")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return safe(value)
