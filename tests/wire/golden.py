"""`python tests/wire/golden.py`: have Kafka's own classes encode generated messages, and keep the results.

`golden.jsonl.gz` has a line for each case: the message, its version, its values as Kafka's JSON, and its bytes in hex.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop.kafka_jars import find_jars
from seeklog.wire import kind
from seeklog.wire.codec import Field, Schema, Struct
from seeklog.wire.table import definition_of, message_named, message_names
from wire.values import random_message, schema_named

VERSION: Final = "4.3.1"
GOLDEN: Final = Path(__file__).with_name("golden.jsonl.gz")
# Messages without an upper version: their records have none above 1.
VERSIONS_MOST: Final = 20


def cases() -> Iterator[tuple[str, int, Struct]]:
    """Yield the default of each message in each version, one with all nulls, and two random ones."""
    chance = random.Random(1)
    for name in message_names():
        message = message_named(name)
        for version in definition_of(message).versions[:VERSIONS_MOST]:
            yield name, version, message()
            schema = schema_named(name, version)
            nullable = [field.name for field in (*schema.fields, *schema.tagged) if field.is_nullable]
            yield name, version, message(**dict.fromkeys(nullable))
            for _ in range(2):
                yield name, version, random_message(name, version, chance)


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def to_json(schema: Schema, message: Any) -> dict[str, Any]:
    """Return a message as the JSON of Kafka's tools."""
    found = {}
    for field in (*schema.fields, *schema.tagged):
        value = getattr(message, field.name)
        if field.tag >= 0 and value == field.default:
            continue
        if value is not None:
            value = [_json_of(field, one) for one in value] if field.is_array else _json_of(field, value)
        found[camel(field.name)] = value
    return found


def _json_of(field: Field, value: Any) -> Any:
    match field.kind:
        case kind.STRUCT:
            return to_json(field.schema, value)
        case kind.UUID:
            return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
        case kind.BYTES | kind.RECORDS:
            return base64.b64encode(value).decode()
    return value


def from_json(schema: Schema, tree: dict[str, Any]) -> Any:
    """Return the message that `to_json` made this JSON from."""
    values = {}
    for field in (*schema.fields, *schema.tagged):
        if camel(field.name) not in tree:
            continue
        value = tree[camel(field.name)]
        if value is not None:
            value = [_of_json(field, one) for one in value] if field.is_array else _of_json(field, value)
        values[field.name] = value
    return schema.type(**values)


def _of_json(field: Field, value: Any) -> Any:
    match field.kind:
        case kind.STRUCT:
            return from_json(field.schema, value)
        case kind.UUID:
            return base64.urlsafe_b64decode(value + "==")
        case kind.BYTES | kind.RECORDS:
            return base64.b64decode(value)
    return value


def read_golden() -> Iterator[tuple[str, int, Any, bytes]]:
    """Yield message, version, value and Kafka's bytes."""
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        for line in lines:
            name, version, tree, encoded = json.loads(line)
            yield name, version, from_json(schema_named(name, version), tree), bytes.fromhex(encoded)


def main() -> None:
    made = [(name, version, to_json(schema_named(name, version), value)) for name, version, value in cases()]
    source = Path(__file__).with_name("EncodeMessages.java")
    lines = "".join(f"{name} {version} {json.dumps(tree)}\n" for name, version, tree in made)
    environment = {**os.environ, "CLASSPATH": find_jars(VERSION).classpath}
    java = subprocess.run(
        ["java", str(source)], input=lines, stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    encoded = java.stdout.splitlines()
    with gzip.GzipFile(GOLDEN, "wb", mtime=0) as golden:
        for case, one in zip(made, encoded, strict=True):
            golden.write(json.dumps([*case, one], separators=(",", ":")).encode() + b"\n")
    print(f"{len(made):,} cases")


if __name__ == "__main__":
    main()
