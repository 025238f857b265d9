"""Classes and schemas of Kafka's messages, read from `tables.txt`: the text says how its lines are written."""

from __future__ import annotations

import operator
import re
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

from seeklog.wire import kind
from seeklog.wire.codec import Field, Schema, Struct

KINDS: Final = {
    "bool": kind.BOOL,
    "int8": kind.INT8,
    "int16": kind.INT16,
    "uint16": kind.UINT16,
    "int32": kind.INT32,
    "int64": kind.INT64,
    "float64": kind.FLOAT64,
    "uuid": kind.UUID,
    "string": kind.STRING,
    "bytes": kind.BYTES,
    "records": kind.RECORDS,
}
ZEROS: Final[dict[int, Any]] = {
    kind.BOOL: False,
    kind.FLOAT64: 0.0,
    kind.UUID: bytes(kind.UUID_SIZE),
    kind.STRING: "",
    kind.BYTES: b"",
    kind.RECORDS: b"",
}
# Where the classes are found, also by pickle.
MESSAGES: Final = "seeklog.wire.messages"
NO_VERSIONS: Final = range(0)
LAST_VERSION: Final = 2**15


class FieldLine(NamedTuple):
    """One line of `tables.txt`: a field in all versions."""

    name: str
    kind: int
    is_array: bool
    struct: type[Struct] | None
    versions: range
    nullable: range
    default: Any
    tag: int
    tagged: range
    is_legacy: bool


class Definition(NamedTuple):
    """A message: its API, -1 for none, and its versions."""

    api_key: int
    versions: range
    flexible_versions: range


@cache
def message_named(name: str) -> type[Struct]:
    """Return the class of a message. Raises `KeyError`."""
    head, *lines = _blocks()[name].splitlines()
    numbers = head.split()[1:]
    api_key = int(numbers.pop(0)[1:]) if numbers[0].startswith("@") else -1
    versions = parse_versions(numbers[0])
    flexible = parse_versions(numbers[1]) if len(numbers) > 1 else NO_VERSIONS
    return _Builder(name, lines).message(Definition(api_key, versions, flexible))


def message_names() -> list[str]:
    return list(_blocks())


def definition_of(message: type[Struct]) -> Definition:
    found: Definition = message._definition
    return found


def schema_in(message: type[Struct], version: int) -> Schema:
    """Return the fields of a message in one version."""
    return schema_of(message, version, is_flexible=version in definition_of(message).flexible_versions)  # type: ignore[arg-type]  # of a class, not of its instances


@cache
def schema_of(struct: type[Struct], version: int, *, is_flexible: bool) -> Schema:
    """Return the fields of a structure in one version of its message."""
    fields = []
    for index, line in enumerate(struct._lines):
        if version not in line.versions:
            continue
        inner = None if line.struct is None else schema_of(line.struct, version, is_flexible=is_flexible)
        fields.append(
            Field(
                line.name,
                line.kind,
                index,
                schema=inner,
                is_array=line.is_array,
                is_nullable=version in line.nullable,
                is_compact=is_flexible and not line.is_legacy,
                tag=line.tag if version in line.tagged else -1,
                default=line.default,
            )
        )
    return Schema(struct, fields, is_flexible=is_flexible)


def parse_versions(text: str) -> range:
    """Return the versions of `3`, `3-13` or `3+`."""
    first, sign, last = re.fullmatch(r"(\d+)([-+]?)(\d*)", text).groups()  # type: ignore[union-attr]
    return range(int(first), LAST_VERSION if sign == "+" else int(last or first) + 1)


@cache
def _blocks() -> dict[str, str]:
    """Return the lines of each message, not parsed yet."""
    text = resources.files(__package__).joinpath("tables.txt").read_text(encoding="utf-8")
    blocks = (block for block in text.split("\n\n") if not block.startswith("#"))
    return {block.partition(" ")[0]: block for block in blocks}


class _Builder:
    """Creates the classes of one message from its lines."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self._name = name
        self._lines = lines
        starts = [at for at, line in enumerate(lines) if line.startswith("  :")]
        self._end = starts[0] if starts else len(lines)
        ends = [*starts[1:], len(lines)][: len(starts)]
        self._places = {lines[start][3:]: (start + 1, end) for start, end in zip(starts, ends, strict=True)}
        self._shared: dict[str, type[Struct]] = {}

    def message(self, definition: Definition) -> type[Struct]:
        whole = self._struct(self._name, self._name, 0, self._end, depth=1)
        whole._definition = definition
        for name, struct in self._shared.items():
            setattr(whole, name, struct)
        return whole

    def _shared_struct(self, name: str) -> type[Struct]:
        """Return a structure that several fields share. They may use each other, in any order."""
        if name not in self._shared:
            start, end = self._places[name]
            self._shared[name] = self._struct(name, f"{self._name}.{name}", start, end, depth=2)
        return self._shared[name]

    def _struct(self, name: str, path: str, start: int, end: int, *, depth: int) -> type[Struct]:
        indent = "  " * depth
        at = [place for place in range(start, end) if not self._lines[place].startswith(f"{indent} ")]
        inner: dict[str, type[Struct]] = {}
        lines = [
            self._field(self._lines[first], first + 1, last, path=path, depth=depth, inner=inner)
            for first, last in zip(at, [*at[1:], end], strict=True)
        ]
        body: dict[str, Any] = {
            "__slots__": (),
            "__module__": MESSAGES,
            "__qualname__": path,
            "_lines": tuple(lines),
            "_names": tuple(line.name for line in lines),
            "_defaults": tuple(line.default for line in lines),
            "_positions": {line.name: index for index, line in enumerate(lines)},
            **{line.name: property(operator.itemgetter(index)) for index, line in enumerate(lines)},
            **inner,
        }
        return type(name, (Struct,), body)

    def _field(
        self, line: str, start: int, end: int, *, path: str, depth: int, inner: dict[str, type[Struct]]
    ) -> FieldLine:
        name, written, *words = line.split()
        is_array = written.startswith("[]")
        type_name = written.removeprefix("[]")
        struct = None
        if type_name not in KINDS:
            if start == end:
                struct = self._shared_struct(type_name)
            else:
                struct = inner[type_name] = self._struct(type_name, f"{path}.{type_name}", start, end, depth=depth + 1)
        number = KINDS.get(type_name, kind.STRUCT)
        versions, nullable, tagged = range(LAST_VERSION), NO_VERSIONS, NO_VERSIONS
        tag, is_legacy = -1, False
        default: Any = () if is_array else struct() if struct is not None else ZEROS.get(number, 0)
        for word in words:
            mark, rest = word[0], word[1:]
            if mark == "?":
                nullable = parse_versions(rest)
            elif mark == "=":
                default = {"null": None, "true": True}.get(rest, default) if rest.isalpha() else int(rest)
            elif mark == "#":
                digits, _, of_tag = rest.partition(":")
                tag, tagged = int(digits), parse_versions(of_tag)
            elif mark == "!":
                is_legacy = True
            else:
                versions = parse_versions(word)
        return FieldLine(name, number, is_array, struct, versions, nullable, default, tag, tagged, is_legacy)
