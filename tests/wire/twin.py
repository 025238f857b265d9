"""The codec in the form that is not running here, on the schemas of the one that is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from record.twins import outcome_of
from seeklog.wire.codec import Schema

_SETTINGS = ("name", "kind", "index", "is_array", "is_nullable", "is_compact", "tag", "default")


def schema_for(twin: Any, schema: Schema) -> Any:
    """Return the schema as an object of the twin's classes."""
    return _copied(twin.Field, twin.Schema, schema)


def outcome_text(call: Callable[[], Any]) -> str:
    """Return the result of a call, or its declared error, as text that equal results share: NaN is equal to itself."""
    return repr(_plain(outcome_of(call)))


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return bytes(value) if isinstance(value, memoryview) else value


@cache
def _copied(field_type: Any, schema_type: Any, schema: Schema) -> Any:
    def field_for(field: Any) -> Any:
        name, kind, index, *others = (getattr(field, setting) for setting in _SETTINGS)
        inner = None if field.schema is None else _copied(field_type, schema_type, field.schema)
        return field_type(name, kind, index, schema=inner, **dict(zip(_SETTINGS[3:], others, strict=True)))

    fields = [field_for(field) for field in (*schema.fields, *schema.tagged)]
    return schema_type(schema.type, fields, is_flexible=schema.is_flexible)
