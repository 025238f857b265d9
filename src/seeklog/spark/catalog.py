"""The options of a table that was created in SQL.

`CREATE TABLE t USING seeklog OPTIONS (...)` shows the options to the data source once, mixed with Spark's own entries,
when it asks for the columns. A query of the table then comes without them: Spark hands on only the options of that
query's `WITH`. So they are kept where Spark does keep something, in the metadata of the first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from seeklog.errors import InvalidConfig

METADATA: Final = "seeklog.options"
# Spark's entry for the format, which is in the map of a table that is being created, and in no other.
_PROVIDER: Final = "provider"
_OPTION: Final = "option."


def creation_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created, without Spark's own, or None if it is not about one."""
    if _PROVIDER not in options:
        return None
    given = {name.removeprefix(_OPTION): value for name, value in options.items() if name.startswith(_OPTION)}
    # The path is also the table's location, which Spark may have made absolute.
    return {**given, "path": options["path"]} if "path" in options else given


def remember(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options in it; secrets are refused, as anybody could read them there."""
    if "storageoptions" in map(str.lower, options):
        raise InvalidConfig(
            "option storageOptions is not kept with a table, where others could read it: give it with each query, "
            "SELECT ... FROM t WITH (storageOptions = '...'), or in the environment of driver and executors"
        )
    first, *others = schema.fields
    kept = {**(first.metadata or {}), METADATA: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def recall(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options that a table was created with, overridden by those of the query."""
    return {**_kept(schema), **options}


def recall_to_write(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a write to a table that was created to be read: its path, and its topic if it has one."""
    kept = {name.lower(): value for name, value in _kept(schema).items()}
    recalled = {"path": kept["path"]} if "path" in kept else {}
    topic = kept.get("subscribe", "").strip()
    if topic and "," not in topic:
        recalled["topic"] = topic
    return {**recalled, **options}


def _kept(schema: StructType) -> dict[str, str]:
    found = (field.metadata[METADATA] for field in schema.fields if METADATA in (field.metadata or {}))
    return dict(json.loads(next(found, "{}")))
