"""What a table that was made in SQL remembers of its options.

`CREATE TABLE t USING seeklog OPTIONS (...)` shows the options to the data source once, mixed with words of Spark's own,
when it asks for the columns. A query of the table then comes without them: Spark hands on only what stands in that
query's `WITH`. So they are kept where Spark does keep something, in the metadata of the first column, and are found
there again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from seeklog.errors import InvalidConfig

METADATA: Final = "seeklog.options"
# Spark's word for the format, which is in the map of a table that is being made, and in no other.
_PROVIDER: Final = "provider"
_OPTION: Final = "option."


def creation_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being made, without Spark's own words, or None if none is."""
    if _PROVIDER not in options:
        return None
    given = {name[len(_OPTION) :]: value for name, value in options.items() if name.startswith(_OPTION)}
    # The path is also the table's location, which Spark may have made absolute.
    return {**given, "path": options["path"]} if "path" in options else given


def remember(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options in it; secrets are refused, which anybody could read there."""
    if "storageoptions" in {name.lower() for name in options}:
        raise InvalidConfig(
            "option storageOptions is not kept with a table, where others could read it: give it with each query, "
            "SELECT ... FROM t WITH (storageOptions = '...'), or in the environment of driver and executors"
        )
    first = schema.fields[0]
    kept = {**(first.metadata or {}), METADATA: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *schema.fields[1:]])


def recall(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options that a table was made with, those of the query in the place of its own."""
    return {**_kept(schema), **options}


def recall_to_write(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a write to a table that was made to be read: its path, and its topic if it has one."""
    kept = {name.lower(): value for name, value in _kept(schema).items()}
    told = {"path": kept["path"]} if "path" in kept else {}
    topic = kept.get("subscribe", "").strip()
    if topic and "," not in topic:
        told["topic"] = topic
    return {**told, **options}


def _kept(schema: StructType) -> dict[str, str]:
    found = ((field.metadata or {}).get(METADATA) for field in schema.fields)
    kept = next(filter(None, found), None)
    return {} if kept is None else dict(json.loads(kept))
