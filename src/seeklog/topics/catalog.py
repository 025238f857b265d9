"""The catalog of a store: its topics, and what is being done to them.

`seeklog-topics` is text: a first line, a JSON object a topic in the order of their names, and the CRC-32C of all
before it:

    seeklog-topics 1
    {"topic": "payments", "id": "5JdNGzCmQmupZbKTTsDZjQ", "partitions": [0, 1, 2, 3], "config": {"retention.ms": 1000}}
    crc32c 5d1c9ad2

A topic that is being made, taken away or lengthened says so, and with which partitions:

    "change": "create" | "delete" | "grow", "partitions_changing": [4, 5]

The file is replaced whole. A change is written before the first directory is touched and taken out after the last
one: so a crash in between leaves a note of what to undo (create, grow) or to finish (delete), and a topic that is
being created or deleted is not there for anybody.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from seeklog import names
from seeklog.config import INT32_MAX, LogConfig
from seeklog.errors import CorruptionError
from seeklog.files import Files, FileStatus, Handle, ReadOnlyFiles, replace_file
from seeklog.record.framed import decode_framed, encode_framed, parse_json

VERSION = 1
_FIRST_LINE = f"seeklog-topics {VERSION}"
_DAMAGED = (
    "Restore the file from a copy. Without it the topics are found by their directories, but the configurations "
    "in it are gone."
)
Change: TypeAlias = Literal["create", "delete", "grow"]
# What Kafka writes where a topic has no id: brokers before 2.8 gave none.
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def are_different(topic_id: str | None, other: str | None) -> bool:
    """Tell whether two ids are known to be of different topics."""
    return topic_id != other and not {topic_id, other} & {None, NO_TOPIC_ID}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic as the catalog has it."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    """The partitions that lie in this store: all of them, unless a broker shared them out among several."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """What was configured for this topic; the rest is the store's."""
    change: Change | None = None
    partitions_changing: tuple[int, ...] = ()

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has: keys are spread over so many."""
        return self.partitions[-1] + 1 if self.partitions else 0

    @property
    def is_there(self) -> bool:
        """Whether the topic exists for a user: whole, and not going."""
        return self.change is None or self.change == "grow"


Catalog: TypeAlias = dict[str, Topic]


def new_topic_id() -> str:
    """Return a random topic id as Kafka writes one: 22 characters of base64url."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")


def encode_catalog(catalog: Catalog) -> bytes:
    """Return the bytes of the file."""
    lines = []
    for _, topic in sorted(catalog.items()):
        entry: dict[str, Any] = {
            "topic": topic.name,
            "id": topic.topic_id,
            "partitions": topic.partitions,
            "config": dict(topic.config),
        }
        if topic.change is not None:
            entry |= {"change": topic.change, "partitions_changing": topic.partitions_changing}
        lines.append(json.dumps(entry))
    return encode_framed(_FIRST_LINE, lines)


def decode_catalog(data: bytes, *, path: str) -> Catalog:
    """Return what the bytes say, or raise `CorruptionError`."""
    lines = decode_framed(data, _FIRST_LINE, subject="the catalog of topics", path=path, advice=_DAMAGED)
    try:
        topics = [_topic(parse_json(line)) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"the catalog does not parse: {error}", path=path, advice=_DAMAGED) from error
    return {topic.name: topic for topic in topics}


def _topic(entry: Mapping[str, Any]) -> Topic:
    """Return a topic as a line has it. The names become paths, so nothing is believed that no store would write."""
    topic = Topic(
        name=entry["topic"],
        topic_id=entry["id"],
        partitions=_numbers(entry["partitions"]),
        config=dict(entry["config"]),
        change=entry.get("change"),
        partitions_changing=_numbers(entry.get("partitions_changing", [])),
    )
    names.check_topic_name(topic.name)
    LogConfig().with_settings(topic.config)
    if topic.change not in (None, "create", "delete", "grow") or not isinstance(topic.topic_id, str):
        raise ValueError(f"the topic {topic.name!r} has a change or an id that cannot be")
    return topic


def _numbers(numbers: Any) -> tuple[int, ...]:
    whole = isinstance(numbers, list) and all(type(number) is int and 0 <= number < INT32_MAX for number in numbers)
    if not whole or numbers != sorted(set(numbers)):
        raise ValueError(f"{numbers!r} are no partitions")
    return tuple(numbers)


class CatalogFile:
    """The catalog's file, which is replaced whole whenever the topics change.

    The file that was read last stays open. So its inode is given to no other, and one look at the name tells whether
    there is anything new.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self.path = f"{root}/{names.TOPICS}"
        self._handle: Handle | None = None
        self._status: FileStatus | None = None

    def has_changed(self) -> bool:
        """Tell whether the name stands for another file than the one that was read last."""
        try:
            return self._status is None or self._files.status(self.path) != self._status
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Release the file. It is read again if it is needed."""
        self._handle = self._status = None

    def read(self) -> bytes | None:
        """Return the catalog's bytes, or None if there is none: a broker's directory, or a new one."""
        self.close()
        try:
            if isinstance(self._files, ReadOnlyFiles):
                return self._files.read_file(self.path)
            handle = Handle(self._files, self.path)
        except FileNotFoundError:
            return None
        status = self._files.status_of(handle.number)
        data = self._files.read(handle.number, status.size, 0)
        self._handle, self._status = handle, status
        return data


def write_catalog(files: Files, root: str, data: bytes) -> None:
    """Replace the catalog by encoded bytes; durable on return."""
    replace_file(files, root, names.TOPICS, data)
    files.sync_directory(root)
