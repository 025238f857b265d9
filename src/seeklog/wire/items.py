"""The fields of a structure while it is decoded, for the interpreted codec: the twin of `items.pxd`.

The compiled codec fills the structure itself, which nobody else sees yet: a list and a copy would take as long as the
rest of its decoding.
"""

from __future__ import annotations

from typing import Any


def new_items(kind: type, defaults: tuple[Any, ...]) -> list[Any]:
    """Return the fields of a new structure, each with its default."""
    return list(defaults)


def put_item(items: list[Any], index: int, item: Any) -> None:
    items[index] = item


def finished_items(kind: type, items: list[Any]) -> Any:
    """Return the structure with these fields."""
    return tuple.__new__(kind, items)
