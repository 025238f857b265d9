"""`python tests/wire/make_tables.py`: write Kafka's messages as the tables of `seeklog.wire`, from a broker's jars.

The jars hold a JSON file for each message, with the fields, their types and their versions. The tables keep these
facts, not the sentences. Three files are written: `tables.txt`, `messages.pyi` for type checkers, and `error_code.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop.kafka_jars import find_jars

VERSION: Final = "4.3.1"
WIRE: Final = Path(__file__).resolve().parents[2] / "src/seeklog/wire"
JARS: Final = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator")
# What a broker serves and sends: not share groups, Streams groups, delegation tokens, telemetry and votes.
API_KEYS: Final = frozenset((*range(4), *range(8, 38), *range(42, 52), *range(55, 58), *range(59, 70), *range(73, 76)))
OTHERS: Final = re.compile(
    r"(RequestHeader|ResponseHeader|ConsumerProtocol\w+|EndTxnMarker|ConsumerGroup\w+(Key|Value)|GroupMetadata\w+"
    r"|OffsetCommit(Key|Value)|TransactionLog\w+)"
)
TYPES: Final = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Records",
    "float64": "float",
}
HEADER: Final = f"""\
# The messages of Kafka {VERSION}: facts from the JSON files in its jars, written by tests/wire/make_tables.py.
#
# NAME [@api key] versions [flexible versions]
#   field type [versions] [?nullable versions] [=default] [#tag:tagged versions] [!legacy]
#
# Versions that are absent are those of the message. Fields of a structure follow it, indented. A structure that several
# fields share follows its message, behind a colon. A legacy string keeps its 16-bit length in flexible versions.
"""

Json = dict[str, Any]


def read_messages() -> list[Json]:
    """Return the JSON files of the messages that are kept, those with an API key first."""
    found: dict[str, Json] = {}
    for path in find_jars(VERSION).classpath.split(":"):
        if not any(Path(path).name == f"{jar}-{VERSION}.jar" for jar in JARS):
            continue
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                    message = json.loads(text)
                    if is_kept(message):
                        found[message["name"]] = message
    return sorted(found.values(), key=lambda one: (one["type"] not in ("request", "response"), order_of(one)))


def is_kept(message: Json) -> bool:
    if "fields" not in message or message["validVersions"] == "none":
        return False
    if message["type"] in ("request", "response"):
        return message["apiKey"] in API_KEYS
    return OTHERS.fullmatch(message["name"]) is not None


def order_of(message: Json) -> tuple[int, str]:
    return message.get("apiKey", 0), message["name"]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def table_lines(message: Json) -> Iterator[str]:
    """Yield the lines of one message in `tables.txt`."""
    head = [message["name"]]
    if message["type"] in ("request", "response"):
        head.append(f"@{message['apiKey']}")
    head.append(message["validVersions"])
    if message["flexibleVersions"] != "none":
        head.append(message["flexibleVersions"])
    yield " ".join(head)
    for field in message["fields"]:
        yield from field_lines(field, "  ", message["validVersions"])
    for shared in message.get("commonStructs", ()):
        yield f"  :{shared['name']}"
        for field in shared["fields"]:
            yield from field_lines(field, "    ", message["validVersions"])


def field_lines(field: Json, indent: str, whole: str) -> Iterator[str]:
    words = [snake(field["name"]), field["type"]]
    # A tagged field may name no versions: it has those of its tag.
    versions = field.get("versions", field.get("taggedVersions"))
    if first_of(versions) > first_of(whole) or not (versions.endswith("+") or versions == whole):
        words.append(versions)
    if field.get("nullableVersions", "none") != "none":
        words.append(f"?{field['nullableVersions']}")
    default = default_of(field)
    if default is not None:
        words.append(f"={default}")
    if "tag" in field:
        words.append(f"#{field['tag']}:{field['taggedVersions']}")
    if field.get("flexibleVersions") == "none":
        words.append("!legacy")
    yield indent + " ".join(words)
    for inner in field.get("fields", ()):
        yield from field_lines(inner, indent + "  ", whole)


def first_of(versions: str) -> int:
    return int(re.match(r"\d+", versions)[0])  # type: ignore[index]


def default_of(field: Json) -> str | None:
    """Return a default that is not zero, false, empty or a structure of defaults."""
    default = field.get("default")
    if default is None or default == "":
        return None
    text = str(default).lower()
    if text in ("null", "none"):
        return "null"
    if field["type"] == "bool":
        return "true" if text == "true" else None
    number = int(text, 0)
    return str(number) if number else None


# ---------------------------------------------------------------- types


def stub_lines(message: Json) -> Iterator[str]:
    """Yield the lines of one message in `messages.pyi`."""
    yield f"class {message['name']}(Struct):"
    shared = message.get("commonStructs", ())
    # A class body does not see the names of the class around it.
    names = {one["name"]: f"{message['name']}.{one['name']}" for one in shared}
    for one in shared:
        yield from structure_lines(one["name"], one["fields"], names, "    ")
    yield from body_lines(message["fields"], names, "    ")
    yield ""


def structure_lines(name: str, fields: list[Json], names: dict[str, str], indent: str) -> Iterator[str]:
    yield f"{indent}class {name}(Struct):"
    yield from body_lines(fields, names, indent + "    ")
    yield ""


def body_lines(fields: list[Json], names: dict[str, str], indent: str) -> Iterator[str]:
    for field in fields:
        if field.get("fields"):
            yield from structure_lines(field["type"].removeprefix("[]"), field["fields"], names, indent)
    if not fields:
        yield f"{indent}..."
    for field in fields:
        kind, is_array = field["type"].removeprefix("[]"), field["type"].startswith("[]")
        python = TYPES.get(kind, names.get(kind, kind) if kind[0].isupper() else "int")
        if is_array:
            python = f"Sequence[{python}]"
        if field.get("nullableVersions", "none") != "none" or default_of(field) == "null":
            python += " | None"
        yield f"{indent}{snake(field['name'])}: {python} = ..."


def write_stub(messages: list[Json]) -> str:
    lines = [
        '"""The classes that `seeklog.wire.messages` creates on first use. Written by tests/wire/make_tables.py."""',
        "",
        "from collections.abc import Sequence",
        "",
        "from seeklog.wire.codec import Records, Struct",
        "",
    ]
    for message in messages:
        lines += stub_lines(message)
    return "\n".join(lines).rstrip() + "\n"


# ---------------------------------------------------------------- error codes


_JSHELL: Final = """
for (var e : org.apache.kafka.common.protocol.Errors.values())
    System.out.println(e.code() + " " + e.name() + " " + e.exception());
/exit
"""


def read_error_codes() -> list[tuple[int, str]]:
    classpath = find_jars(VERSION).classpath
    shell = subprocess.run(
        ["jshell", "--class-path", classpath, "-"], input=_JSHELL, capture_output=True, text=True, check=True
    )
    found = re.findall(r"^(-?\d+) ([A-Z_]+) ", shell.stdout, flags=re.MULTILINE)
    return sorted((int(code), name) for code, name in found)


def write_error_codes(codes: list[tuple[int, str]]) -> str:
    lines = [
        f'"""The error codes of Kafka {VERSION}. Written by tests/wire/make_tables.py."""',
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ErrorCode(IntEnum):",
        '    """What a response says of a request, a topic or a partition."""',
        "",
        *(f"    {name} = {code}" for code, name in codes),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    messages = read_messages()
    lines = [HEADER]
    for message in messages:
        lines += [*table_lines(message), ""]
    (WIRE / "tables.txt").write_text("\n".join(lines).rstrip() + "\n")
    (WIRE / "messages.pyi").write_text(write_stub(messages))
    (WIRE / "error_code.py").write_text(write_error_codes(read_error_codes()))


if __name__ == "__main__":
    main()
