"""The catalog of a store: its topics, and what is not finished.

`seeklog-topics` is a text file, padded with zeros to the size in its first line:

    seeklog-topics 2 16384
    {"topic": "payments", "id": "5JdNGzCmQmupZbKTTsDZjQ", "partitions": [0, 1], "config": {"retention.ms": 1000}}
    crc32c 5d1c9ad2
    0000005b:8c2e01f7:{"deleting":"payments"}

First comes a snapshot: one JSON object per topic, sorted by name, and the CRC-32C of everything before it. Then come
the changes since, each with its size and CRC. `format/catalog.md` defines both.

A change takes effect when its line is durable. A topic may have two more fields: `unopened`, the partitions that no
writer has opened, and `change`. A topic that is being deleted does not exist for users. seeklog 0.1 replaced the whole
file for each change (format 1), and noted topics that were being created or extended, too. On a full disk a deletion is
noted there by overwriting one byte, because there may be no room for a new file.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from seeklog import names
from seeklog.config import INT32_MAX, LogConfig
from seeklog.errors import CorruptionError, counted
from seeklog.record.crc import crc32c
from seeklog.record.framed import parse_json

VERSION = 2
_TYPE = b"seeklog-topics "
_CRC = b"crc32c "
# How a topic's line begins in format 1, and how it begins while the topic is being deleted: one byte is overwritten. A
# power loss leaves either byte, and no damage of a single bit turns one into the other.
_LINE = b'\n{"topic": '
DELETION_MARK = b"\t"
_MARKED_LINE = _LINE[:-1] + DELETION_MARK
CRC_LINE_SIZE = len(_CRC) + 9
# Blocks of most file systems. The file occupies all of its blocks, so an appended change needs no room on the disk.
_BLOCK = 4096
# Room for some 100 changes before the first new snapshot.
_MIN_ROOM = 3 * _BLOCK
# A change starts with its size and its CRC, eight hex digits and a colon each.
_FRONT = 18
_DAMAGED = (
    "Restore the file from a copy. Without it the topics are found by their directories, but their configurations are "
    "lost."
)
Note: TypeAlias = Literal["create", "delete", "grow"]
Change: TypeAlias = Mapping[str, Any]
"""A change of the catalog, as it is in the file. `put`, `deleting`, `deleted` and `opened` return the four kinds."""
# Kafka's id for a topic without one. Brokers before 2.8 assigned no ids.
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def are_different(topic_id: str | None, other: str | None) -> bool:
    """Return whether two ids are known to belong to different topics."""
    return topic_id != other and not {topic_id, other} & {None, NO_TOPIC_ID}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic in the catalog."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    """The partitions in this store: all, unless the topic is spread over several brokers."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The settings of this topic itself. The others come from the store."""
    unopened: tuple[int, ...] = field(default=(), compare=False)
    """Partitions that no writer has opened: their directories may lack any file, or be missing after a power loss."""
    change: Note | None = None
    partitions_changing: tuple[int, ...] = ()

    @property
    def partition_count(self) -> int:
        """The number of partitions over which keys are spread, including those on other brokers."""
        return self.partitions[-1] + 1 if self.partitions else 0

    @property
    def is_there(self) -> bool:
        """Whether the topic exists for users: it is not being created or deleted."""
        return self.change is None or self.change == "grow"


Catalog: TypeAlias = dict[str, Topic]


def new_topic_id() -> str:
    """Return a random topic id in Kafka's format: 22 characters of base64url."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")


# ---------------------------------------------------------------- changes


def put(topic: Topic) -> Change:
    """Return the change that adds a topic, or replaces its entry."""
    entry: dict[str, Any] = {
        "topic": topic.name,
        "id": topic.topic_id,
        "partitions": topic.partitions,
        "config": dict(topic.config),
    }
    if topic.unopened:
        entry["unopened"] = topic.unopened
    if topic.change is not None:
        entry |= {"change": topic.change, "partitions_changing": topic.partitions_changing}
    return entry


def deleting(name: str) -> Change:
    """Return the change after which a topic does not exist for users, and its files are being removed."""
    return {"deleting": name}


def deleted(name: str) -> Change:
    """Return the change that removes a topic's entry, and frees its name."""
    return {"deleted": name}


def opened(partitions: Mapping[str, tuple[int, ...]]) -> Change:
    """Return the change for partitions, by topic, that a writer has opened."""
    return {"opened": partitions}


def apply(catalog: Catalog, change: Change) -> list[str]:
    """Apply a change to a catalog. Return the names of the topics that it concerns.

    Raises `ValueError`, `KeyError`, `TypeError` or `AttributeError` for a change that no store would write.
    """
    if "topic" in change:
        topic = _topic(change)
        catalog[topic.name] = topic
        return [topic.name]
    if "deleting" in change:
        topic = catalog[change["deleting"]]
        catalog[topic.name] = being_deleted(topic)
        return [topic.name]
    if "deleted" in change:
        return [catalog.pop(change["deleted"]).name]
    for name, numbers in change["opened"].items():
        topic, gone = catalog[name], set(_numbers(numbers))
        catalog[name] = replace(topic, unopened=tuple(number for number in topic.unopened if number not in gone))
    return list(change["opened"])


def being_deleted(topic: Topic) -> Topic:
    """Return a topic's entry while it is being deleted."""
    return replace(topic, change="delete", partitions_changing=topic.partitions)


# ---------------------------------------------------------------- bytes


def encode_catalog(catalog: Catalog, *, min_room: int = _MIN_ROOM) -> bytes:
    """Encode the whole file: a snapshot, and at least as much room for changes."""
    lines = "".join(f"{json.dumps(put(topic))}\n" for _, topic in sorted(catalog.items())).encode("ascii")
    size = _whole_blocks(len(lines) + max(len(lines), min_room) + _BLOCK // 2)
    body = b"%s%d %d\n%s" % (_TYPE, VERSION, size, lines)
    return (body + b"%s%08x\n" % (_CRC, crc32c(body))).ljust(size, b"\0")


def _whole_blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def encode_change(change: Change) -> bytes:
    """Encode a line for the end of the file.

    It contains neither a space nor an @. These are the only characters in JSON with a single bit set, so no flipped bit
    turns a byte of it into a zero: zeros show which bytes were never written.
    """
    text = json.dumps(change, separators=(",", ":")).replace(" ", "\\u0020").replace("@", "\\u0040").encode("ascii")
    return b"%08x:%08x:%s\n" % (_FRONT + len(text) + 1, crc32c(text), text)


class Contents(NamedTuple):
    """What the bytes of the file hold."""

    catalog: Catalog
    end: int
    """The position after the last change. The next one is written there."""
    last: int
    """The position of the last change, or of the end of the snapshot."""
    is_whole: bool
    """Whether a change can be appended: the file has the current format, and no torn change at its end."""


def decode_catalog(data: bytes, *, path: str) -> Catalog:
    """Decode the file, or raise `CorruptionError`. A torn change at the end is left out: it was not acknowledged."""
    return decode_contents(data, path=path).catalog


def decode_contents(data: bytes, *, path: str) -> Contents:
    """Decode the file, or raise `CorruptionError`."""
    first, _, _ = data.partition(b"\n")
    version, _, size = first.removeprefix(_TYPE).partition(b" ")
    if not first.startswith(_TYPE) or not version.isdigit():
        raise _damage("the catalog of topics fails its CRC", path)
    if int(version[:20]) > VERSION:
        raise CorruptionError(
            f"the catalog of topics has format {int(version[:20])}, not {VERSION}: a newer seeklog wrote it, or it is "
            "damaged; open it with that version",
            path=path,
        )
    if version == b"1":
        catalog, end = _decode_snapshot(data.replace(_MARKED_LINE, _LINE), len(data), path)
        for name in _marked(data):
            catalog[name] = being_deleted(catalog[name])
        # A mark changes neither the size nor the end of the file, so all of it shows whether it has changed.
        return Contents(catalog, end, 0, False)
    if size != b"%d" % len(data):
        raise _damage(
            f"the catalog of topics has {counted(len(data), 'byte')}, but its first line says {size[:20]!r}", path
        )
    mark = data.find(b"\n" + _CRC)
    catalog, end = _decode_snapshot(data, mark + 1 + CRC_LINE_SIZE, path)
    found = decode_changes(data, end, path=path)
    for position, change in found.changes:
        apply_read(catalog, change, position=position, path=path)
    return Contents(catalog, found.end, found.changes[-1][0] if found.changes else mark + 1, found.is_whole)


def _decode_snapshot(data: bytes, end: int, path: str) -> tuple[Catalog, int]:
    """Return the topics in the bytes before `end`, the last line of which is their CRC."""
    body, separator, last = data[:end].rpartition(_CRC)
    if not separator or last != b"%08x\n" % crc32c(body):
        raise _damage("the catalog of topics fails its CRC", path)
    try:
        _, *lines = body.decode("ascii", "replace").splitlines()
        topics = [_topic(parse_json(line)) for line in lines]
    except _INVALID as error:
        raise _damage(f"the catalog does not parse: {error}", path) from error
    return {topic.name: topic for topic in topics}, end


def _marked(data: bytes) -> list[str]:
    """Return the topics that are being deleted according to the marks in a file of format 1."""
    return [parse_json(line)["topic"] for line in data.splitlines() if line.startswith(_MARKED_LINE[1:])]


def deletion_mark(data: bytes, name: str) -> int | None:
    """Return the position of the byte that marks a topic as being deleted; None unless the file has format 1."""
    line = data.find(_LINE + json.dumps(name).encode("ascii"))
    return line + len(_LINE) - 1 if data.startswith(_TYPE + b"1\n") and line >= 0 else None


class Changes(NamedTuple):
    """The changes in a part of the file."""

    changes: list[tuple[int, Change]]
    """Each change, with the position of its line."""
    end: int
    is_whole: bool
    """Whether only zeros follow. Otherwise a change was torn, or is being written at this moment."""


def decode_changes(data: bytes, position: int, *, path: str, origin: int = 0) -> Changes:
    """Decode the changes from `position` on. `origin` is the position of `data` in the file.

    A change is written in one piece over zeros. So one that was not written completely has zeros in it, or ends early.
    Anything else that fails its check is damage, because the change was acknowledged.
    """
    found: list[tuple[int, Change]] = []
    while (text := _text_at(data, position)) is not None:
        try:
            change = parse_json(text)
        except ValueError as error:
            raise _damage(f"a change does not parse: {error}", path, origin + position) from error
        found.append((origin + position, change))
        position += _FRONT + len(text) + 1
    rest = data[position:].rstrip(b"\0")
    if not _is_torn(rest):
        raise _damage("a change of the catalog fails its CRC", path, origin + position)
    return Changes(found, origin + position, not rest)


def _text_at(data: bytes, position: int) -> bytes | None:
    """Return the JSON of the whole change at a position, or None."""
    size = _size_at(data, position)
    text = data[position + _FRONT : position + size - 1]
    is_whole = size > _FRONT and data[position : position + _FRONT] == b"%08x:%08x:" % (size, crc32c(text))
    return text if is_whole and data[position + size - 1 : position + size] == b"\n" else None


def _size_at(data: bytes, position: int) -> int:
    """Return the size that a change has by its first bytes, or 0."""
    digits = data[position : position + 8]
    try:
        return int(digits, 16) if len(digits) == 8 and digits.isalnum() else 0
    except ValueError:
        return 0


def _is_torn(rest: bytes) -> bool:
    """Return whether bytes after the last whole change are nothing, or a part of one change.

    A line break ends a change, so a part of one has it at its end only. Without zeros before it, all of the change is
    there; so it is if the change has the size that it states.
    """
    if b"\n" in rest[:-1]:
        return False
    return b"\0" in rest or not (rest.endswith(b"\n") or (rest and _size_at(rest, 0) == len(rest)))


_INVALID = (ValueError, KeyError, TypeError, AttributeError)


def apply_read(catalog: Catalog, change: Change, *, position: int, path: str) -> list[str]:
    """Apply a change that was read from the file, or raise `CorruptionError`."""
    try:
        return apply(catalog, change)
    except _INVALID as error:
        raise _damage(f"a change of the catalog is invalid: {error}", path, position) from error


def _damage(reason: str, path: str, position: int | None = None) -> CorruptionError:
    return CorruptionError(reason, path=path, position=position, advice=_DAMAGED)


def _topic(entry: Mapping[str, Any]) -> Topic:
    """Decode one topic. Names become paths, so every value that no store would write is refused."""
    topic = Topic(
        name=entry["topic"],
        topic_id=entry["id"],
        partitions=_numbers(entry["partitions"]),
        config=dict(entry["config"]),
        unopened=_numbers(entry.get("unopened", [])),
        change=entry.get("change"),
        partitions_changing=_numbers(entry.get("partitions_changing", [])),
    )
    names.check_topic_name(topic.name)
    if topic.config:
        LogConfig().with_settings(topic.config)
    if topic.change not in (None, "create", "delete", "grow") or not isinstance(topic.topic_id, str):
        raise ValueError(f"the topic {topic.name!r} has an invalid change or id")
    return topic


def _numbers(numbers: Any) -> tuple[int, ...]:
    if numbers in ([], ()):
        return ()
    whole = isinstance(numbers, list | tuple) and all(
        type(number) is int and 0 <= number < INT32_MAX for number in numbers
    )
    if not whole or list(numbers) != sorted(set(numbers)):
        raise ValueError(f"{numbers!r} is not a list of partitions")
    return tuple(numbers)
