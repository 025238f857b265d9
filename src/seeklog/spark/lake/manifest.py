"""The manifest of a lake: its Parquet files and the offsets in them.

`_seeklog/manifest` is text: a line with the version, a line of JSON about the lake, a line of JSON for each partition,
and a line with the CRC-32C of all bytes before it:

    seeklog-lake 1
    {"commit": 7, "written_at_ms": 1767225600000}
    {"topic": "orders", "id": "…", "partition": 0, "ranges": [[0, 5000]], "files": [{"path": "topic=orders/…", …}]}
    crc32c 1c2d3e4f

`ranges` are the copied offsets, each range a first offset and the offset after the last, in order and not adjacent.
Offsets between two ranges were deleted before they were copied. A file belongs to the lake only if it is listed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, counted
from seeklog.names import TopicPartition
from seeklog.record.framed import decode_framed, encode_framed, parse_json, whole_number

_FIRST_LINE: Final = "seeklog-lake 1"
_DAMAGED: Final = "Restore it from a copy, or write a new lake to another directory; nothing was changed."


class LakeFile(NamedTuple):
    """One Parquet file: records of one partition and one day."""

    path: str
    """Relative to the lake."""
    start: int
    """The smallest offset."""
    next_offset: int
    """After the largest offset."""
    rows: int
    size: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePartition:
    """The offsets and files of one partition in a lake."""

    topic_id: str
    ranges: tuple[tuple[int, int], ...]
    files: tuple[LakeFile, ...]

    @property
    def next_offset(self) -> int:
        """The first offset that is not in the lake."""
        return self.ranges[-1][1]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The offsets between the ranges."""
        return [(before[1], after[0]) for before, after in pairwise(self.ranges)]

    def with_copied(self, start: int, next_offset: int, files: Iterable[LakeFile]) -> LakePartition:
        """Return the partition with one more range of offsets."""
        ranges = list(self.ranges)
        if ranges and self.next_offset == start:
            start, _ = ranges.pop()
        return replace(self, ranges=(*ranges, (start, next_offset)), files=(*self.files, *files))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a lake after one commit."""

    commit: int = 0
    written_at_ms: int = 0
    partitions: Mapping[TopicPartition, LakePartition] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return sorted({at.topic for at in self.partitions})

    def files(self) -> Iterable[LakeFile]:
        """Yield every file of the lake."""
        return (file for copied in self.partitions.values() for file in copied.files)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of the file."""
    about = {"commit": manifest.commit, "written_at_ms": manifest.written_at_ms}
    lines = (
        {
            "topic": at.topic,
            "id": copied.topic_id,
            "partition": at.partition,
            "ranges": copied.ranges,
            "files": [file._asdict() for file in copied.files],
        }
        for at, copied in sorted(manifest.partitions.items())
    )
    return encode_framed(_FIRST_LINE, map(json.dumps, (about, *lines)))


def decode_manifest(data: bytes, *, path: str) -> Manifest:
    """Return the manifest, or raise `CorruptionError`. Only bytes that a job would write are accepted."""
    framed = decode_framed(data, _FIRST_LINE, subject="the manifest of the lake", path=path, advice=_DAMAGED)
    try:
        about, *lines = map(parse_json, framed)
        partitions = dict(_partition(line) for line in lines)
        if len(partitions) != len(lines):
            raise ValueError("it lists a partition twice")
        return Manifest(
            commit=whole_number(about["commit"]),
            written_at_ms=whole_number(about["written_at_ms"]),
            partitions=partitions,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"the manifest does not parse: {error}", path=path, advice=_DAMAGED) from error


def _partition(line: Mapping[str, Any]) -> tuple[TopicPartition, LakePartition]:
    at = TopicPartition(line["topic"], whole_number(line["partition"]))
    names.check_topic_name(at.topic)
    ranges = tuple((whole_number(start), whole_number(end)) for start, end in line["ranges"])
    edges = [edge for pair in ranges for edge in pair]
    if not edges or any(before >= after for before, after in pairwise(edges)):
        raise ValueError(f"the ranges of {at} are {ranges}")
    files = tuple(LakeFile(**fields) for fields in line["files"])
    for file in files:
        _check_file(at, file, ranges)
    if len({file.path for file in files}) != len(files):
        raise ValueError(f"it lists a file of {at} twice")
    if not isinstance(line["id"], str):
        raise ValueError(f"the topic id of {at} is {line['id']!r}")
    return at, LakePartition(topic_id=line["id"], ranges=ranges, files=files)


def _check_file(at: TopicPartition, file: LakeFile, ranges: tuple[tuple[int, int], ...]) -> None:
    if names.parse_lake_file(file.path) != at:
        raise ValueError(f"{file.path!r} is not a file of {at}")
    for number in (file.start, file.next_offset, file.rows, file.size):
        whole_number(number)
    inside = any(start <= file.start < file.next_offset <= end for start, end in ranges)
    if not inside or not 0 < file.rows <= file.next_offset - file.start:
        raise ValueError(f"{file.path} claims {counted(file.rows, 'record')} of {file.start} to {file.next_offset}")
    for time_ms in (file.min_timestamp_ms, file.max_timestamp_ms):
        whole_number(time_ms, minimum=-INT64_MAX - 1)
