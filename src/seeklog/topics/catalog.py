"""The catalog of a store: its topics, and changes in progress.

`seeklog-topics` is a text file: a first line, one JSON object per topic sorted by name, and the CRC-32C of everything
before it:

    seeklog-topics 1
    {"topic": "payments", "id": "5JdNGzCmQmupZbKTTsDZjQ", "partitions": [0, 1, 2, 3], "config": {"retention.ms": 1000}}
    crc32c 5d1c9ad2

A topic that is being created, deleted or extended has two more fields, the change and its partitions:

    "change": "create" | "delete" | "grow", "partitions_changing": [4, 5]

The file is replaced as a whole. A change is written before the first directory is touched and removed after the last.
So a crash leaves a note of what to undo (create, grow) or to finish (delete). A topic that is being created or deleted
does not exist for users.
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
    "Restore the file from a copy. Without it the topics are found by their directories, but their configurations are "
    "lost."
)
Change: TypeAlias = Literal["create", "delete", "grow"]
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
    change: Change | None = None
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


def encode_catalog(catalog: Catalog) -> bytes:
    """Encode the file."""
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
    """Decode the file, or raise `CorruptionError`."""
    lines = decode_framed(data, _FIRST_LINE, subject="the catalog of topics", path=path, advice=_DAMAGED)
    try:
        topics = [_topic(parse_json(line)) for line in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"the catalog does not parse: {error}", path=path, advice=_DAMAGED) from error
    return {topic.name: topic for topic in topics}


def _topic(entry: Mapping[str, Any]) -> Topic:
    """Decode one topic. Names become paths, so every value that no store would write is refused."""
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
        raise ValueError(f"the topic {topic.name!r} has an invalid change or id")
    return topic


def _numbers(numbers: Any) -> tuple[int, ...]:
    whole = isinstance(numbers, list) and all(type(number) is int and 0 <= number < INT32_MAX for number in numbers)
    if not whole or numbers != sorted(set(numbers)):
        raise ValueError(f"{numbers!r} is not a list of partitions")
    return tuple(numbers)


class CatalogFile:
    """The catalog's file, which is replaced as a whole whenever the topics change.

    The file that was read last stays open, so its inode is not reused, and the status of the name shows whether the
    file was replaced.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self.path = f"{root}/{names.TOPICS}"
        self._handle: Handle | None = None
        self._status: FileStatus | None = None

    def has_changed(self) -> bool:
        """Return whether the file was replaced since it was last read."""
        try:
            return self._status is None or self._files.status(self.path) != self._status
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Close the file. It is read again when needed."""
        self._handle = self._status = None

    def read(self) -> bytes | None:
        """Return the catalog's bytes. None without a catalog: in a broker's directory, or a new one."""
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
    """Replace the catalog. Durable on return."""
    replace_file(files, root, names.TOPICS, data)
    files.sync_directory(root)
