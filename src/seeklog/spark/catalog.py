"""The options of a table created in SQL.

`CREATE TABLE t USING seeklog OPTIONS (...)` passes the options to the data source once, mixed with Spark's own
entries, to get the columns. For a query of the table Spark passes only the options in that query's `WITH`. So the
table's options are kept in the metadata of its first column, which Spark does store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from seeklog.errors import InvalidConfig

METADATA: Final = "seeklog.options"
# Spark's entry for the format. Only CREATE TABLE passes it.
_PROVIDER: Final = "provider"
_OPTION: Final = "option."


def creation_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a CREATE TABLE without Spark's own entries, or None for any other use."""
    if _PROVIDER not in options:
        return None
    given = {name.removeprefix(_OPTION): value for name, value in options.items() if name.startswith(_OPTION)}
    # The path is also the table's location, which Spark may have made absolute.
    return {**given, "path": options["path"]} if "path" in options else given


def remember(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options in it. Refuse secrets, which anybody could read there."""
    if "storageoptions" in map(str.lower, options):
        raise InvalidConfig(
            "option storageOptions is not kept with a table, because anybody could read it there: pass it with each "
            "query, SELECT ... FROM t WITH (storageOptions = '...'), or in the environment of driver and executors"
        )
    first, *others = schema.fields
    kept = {**(first.metadata or {}), METADATA: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def recall(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of the table, overridden by those of the query."""
    return {**_kept(schema), **options}


def recall_to_write(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a write to a table created for reading: its path, and its topic if there is only one."""
    kept = {name.lower(): value for name, value in _kept(schema).items()}
    recalled = {"path": kept["path"]} if "path" in kept else {}
    topic = kept.get("subscribe", "").strip()
    if topic and "," not in topic:
        recalled["topic"] = topic
    return {**recalled, **options}


def _kept(schema: StructType) -> dict[str, str]:
    encoded = (field.metadata[METADATA] for field in schema.fields if METADATA in (field.metadata or {}))
    return dict(json.loads(next(encoded, "{}")))
