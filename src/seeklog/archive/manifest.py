"""The manifest of an archive: every file that was copied, with its size and CRC.

`seeklog-archive.json`, in the root of an archive, is one JSON object:

    format     "seeklog-archive"
    version    1; 2 if there are partial segments, empty partitions, or files of the root
    crc32c     8 hex digits: the CRC-32C of `content` as JSON with sorted keys and no spaces
    content    complete     false from before the first copy until the first archive run is finished
               replaced     paths that earlier manifests named and this one does not; the next run removes them
               topics       the topics with their segments, and the gaps between these; see `Manifest`
               root         small files of the store's root in hex, by name, as of the last run that included them

It is replaced as a whole after the copies. So after a crash the manifest still names only complete files. Files that it
does not name are not part of the archive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from seeklog import names
from seeklog.config import INT32_MAX, LogConfig
from seeklog.errors import CorruptionError, SeeklogError
from seeklog.log.side import Seal, decode_seal
from seeklog.names import TopicPartition
from seeklog.record.crc import crc32c
from seeklog.record.framed import whole_number

FORMAT: Final = "seeklog-archive"
VERSION: Final = 1
# Written if the archive has what version 0.1.0 does not know, and would drop when it adds to the archive.
BACKUP_VERSION: Final = 2
# Files of a partition that are copied besides its segments.
PARTITION_FILES: Final = (names.PARTITION_METADATA, names.LEADER_EPOCHS)
_SUFFIX: Final = re.compile(r"\.[a-z]+\Z", re.ASCII)
_STEM: Final = re.compile(r"\d{20}(-[0-9a-f]{8})?\Z", re.ASCII)
_MARKED: Final = re.compile(r"\d{20}-[0-9a-f]{8}\.[a-z]+\Z", re.ASCII)
_REPLACED: Final = re.compile(r"([^/]+)/\d{20}(-[0-9a-f]{8})?\.[a-z]+\Z", re.ASCII)
_DAMAGED: Final = "restore it from a copy, or archive to another location; nothing was changed"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file's size and the CRC-32C of its bytes."""

    size: int
    crc: int

    @classmethod
    def of(cls, data: bytes) -> StoredFile:
        return cls(len(data), crc32c(data))


@dataclass(slots=True)
class Meter:
    """Computes the size and CRC of a file that is read in parts."""

    size: int = 0
    crc: int = 0

    def passing(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.size += len(part)
            self.crc = crc32c(part, self.crc)
            yield part

    @property
    def file(self) -> StoredFile:
        """The size and CRC so far."""
        return StoredFile(self.size, self.crc)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """One segment in the archive."""

    base_offset: int
    next_offset: int
    record_count: int
    batch_count: int
    max_timestamp_ms: int
    seal_bytes: bytes | None
    """The head of its seal, so that no request is needed for it. None for a segment of a broker, which has no seal."""
    stem: str
    """The name of its files without suffix: the base offset, and a CRC if an earlier segment has used that name."""
    files: Mapping[str, StoredFile]
    """Its files by their suffixes."""
    is_partial: bool = False
    """Whether it was copied before it was sealed. A later run replaces it."""

    @property
    def log(self) -> StoredFile:
        return self.files[names.LOG]

    def seal(self) -> Seal | None:
        """Decode the head of the seal."""
        return None if self.seal_bytes is None else decode_seal(self.seal_bytes)

    def paths(self) -> dict[str, StoredFile]:
        """Return the segment's files by their names in the partition's directory."""
        return {f"{self.stem}{suffix}": file for suffix, file in self.files.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEntry:
    """One partition: its segments in offset order, and its other files."""

    partition: int
    log_start_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    """Leader epochs, each with its start offset."""
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    segments: tuple[SegmentEntry, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    """Offsets known to be missing between segments: the first one, and the exclusive end, where a segment begins."""

    @property
    def end_offset(self) -> int:
        """The offset after the last segment, exclusive."""
        return self.segments[-1].next_offset if self.segments else self.log_start_offset

    def paths(self) -> dict[str, StoredFile]:
        """Return every file by its name in the partition's directory."""
        stored = {name: file for segment in self.segments for name, file in segment.paths().items()}
        return {**stored, **self.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """One topic, with the partitions that have archived segments."""

    name: str
    topic_id: str
    config: Mapping[str, Any]
    partitions: Mapping[int, PartitionEntry]
    empty: Mapping[int, int] = field(default_factory=dict)
    """The other partitions, with the offset at which each of them begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of an archive."""

    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    is_complete: bool = True
    replaced: tuple[str, ...] = ()
    root: Mapping[str, bytes] = field(default_factory=dict)
    """Small files of the store's root by name: named producers and transactions."""

    @property
    def needs_backup_version(self) -> bool:
        """Whether version 1 of the format cannot express it."""
        topics = self.topics.values()
        segments = (segment for topic in topics for entry in topic.partitions.values() for segment in entry.segments)
        return bool(self.root) or any(topic.empty for topic in topics) or any(each.is_partial for each in segments)

    def replaced_stems(self, partition: TopicPartition) -> frozenset[str]:
        """Return the stems of a partition's files that are no longer named but not yet removed."""
        split = (path.partition("/") for path in self.replaced)
        return frozenset(name.partition(".")[0] for directory, _, name in split if directory == str(partition))

    def paths(self) -> dict[str, StoredFile]:
        """Return every file by its path in the archive."""
        return {
            f"{topic.name}-{number}/{name}": file
            for topic in self.topics.values()
            for number, partition in topic.partitions.items()
            for name, file in partition.paths().items()
        }


def is_marked(name: str) -> bool:
    """Return whether a file's name has a mark after the base offset: only an archive run writes such names."""
    return _MARKED.match(name) is not None


# ---------------------------------------------------------------- to bytes


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the file."""
    content = {
        "complete": manifest.is_complete,
        "replaced": list(manifest.replaced),
        "topics": [_topic_out(topic) for _, topic in sorted(manifest.topics.items())],
        "root": {name: data.hex() for name, data in sorted(manifest.root.items())},
    }
    version = BACKUP_VERSION if manifest.needs_backup_version else VERSION
    document = {"format": FORMAT, "version": version, "crc32c": _checksum(content), "content": content}
    return json.dumps(document).encode("ascii") + b"\n"


def _checksum(content: object) -> str:
    return f"{crc32c(json.dumps(content, sort_keys=True, separators=(',', ':')).encode('ascii')):08x}"


def _topic_out(topic: TopicEntry) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": topic.topic_id,
        "config": dict(topic.config),
        "partitions": [_partition_out(partition) for _, partition in sorted(topic.partitions.items())],
        "empty": [list(partition) for partition in sorted(topic.empty.items())],
    }


def _partition_out(partition: PartitionEntry) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "log_start_offset": partition.log_start_offset,
        "epochs": [list(epoch) for epoch in partition.epochs],
        "files": _files_out(partition.files),
        "segments": [_segment_out(segment) for segment in partition.segments],
        "gaps": [list(gap) for gap in partition.gaps],
    }


def _segment_out(segment: SegmentEntry) -> dict[str, Any]:
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "record_count": segment.record_count,
        "batch_count": segment.batch_count,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "seal": None if segment.seal_bytes is None else segment.seal_bytes.hex(),
        "stem": segment.stem,
        "files": _files_out(segment.files),
        "partial": segment.is_partial,
    }


def _files_out(files: Mapping[str, StoredFile]) -> dict[str, Any]:
    return {name: {"size": file.size, "crc32c": f"{file.crc:08x}"} for name, file in sorted(files.items())}


# ---------------------------------------------------------------- from bytes


def decode_manifest(data: bytes, *, path: str) -> Manifest:
    """Decode the file, or raise `CorruptionError`. Every name is checked, since it becomes a path."""
    try:
        document = json.loads(data)
        if document["format"] != FORMAT or type(document["version"]) is not int:
            raise ValueError(f"its format is {document['format']!r}")
        is_known = document["version"] in (VERSION, BACKUP_VERSION)
        if is_known and document["crc32c"] == _checksum(document["content"]):
            return _manifest_in(document["content"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SeeklogError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CorruptionError(f"the manifest does not parse ({reason}); {_DAMAGED}", path=path) from error
    if is_known:
        raise CorruptionError(f"the manifest fails its CRC; {_DAMAGED}", path=path)
    raise CorruptionError(
        f"the manifest has version {document['version']}, and this seeklog reads {BACKUP_VERSION}; use a newer one",
        path=path,
    )


def _manifest_in(content: Mapping[str, Any]) -> Manifest:
    topics = [_topic_in(topic) for topic in content["topics"]]
    return Manifest(
        topics={topic.name: topic for topic in topics},
        is_complete=content["complete"] is True,
        replaced=tuple(_replaced_in(name) for name in content["replaced"]),
        root={_root_name(name): bytes.fromhex(data) for name, data in content.get("root", {}).items()},
    )


def _root_name(name: str) -> str:
    if not names.is_archived_root_file(name):
        raise ValueError(f"{name!r} is not a file of a store's root")
    return name


def _replaced_in(path: str) -> str:
    match = _REPLACED.match(path)
    if match is None or names.parse_partition_name(match[1]) is None:
        raise ValueError(f"{path!r} is not a file of a segment")
    return path


def _topic_in(entry: Mapping[str, Any]) -> TopicEntry:
    topic = TopicEntry(
        name=entry["topic"],
        topic_id=entry["id"],
        config=dict(entry["config"]),
        partitions={partition.partition: partition for partition in map(_partition_in, entry["partitions"])},
        # Earlier versions did not write this field.
        empty={
            whole_number(number, maximum=INT32_MAX): whole_number(start) for number, start in entry.get("empty", [])
        },
    )
    names.check_topic_name(topic.name)
    LogConfig().with_settings(topic.config)
    if not isinstance(topic.topic_id, str):
        raise ValueError(f"the topic {topic.name!r} has an invalid id")
    if topic.partitions.keys() & topic.empty.keys():
        raise ValueError(f"a partition of {topic.name!r} is listed as empty and has segments")
    return topic


def _partition_in(entry: Mapping[str, Any]) -> PartitionEntry:
    segments = tuple(map(_segment_in, entry["segments"]))
    if any(first.next_offset > second.base_offset for first, second in pairwise(segments)):
        raise ValueError("segments overlap")
    gaps = tuple((whole_number(first), whole_number(end)) for first, end in entry["gaps"])
    holes = {(first.next_offset, second.base_offset) for first, second in pairwise(segments)}
    if any(first >= end or (first, end) not in holes for first, end in gaps):
        raise ValueError("a gap is not between two segments")
    unknown = set(entry["files"]).difference(PARTITION_FILES)
    if unknown:
        raise ValueError(f"{min(unknown)!r} is not a file of a partition")
    return PartitionEntry(
        partition=whole_number(entry["partition"], maximum=INT32_MAX),
        log_start_offset=whole_number(entry["log_start_offset"]),
        epochs=tuple((whole_number(epoch), whole_number(start)) for epoch, start in entry["epochs"]),
        files=_files_in(entry["files"]),
        segments=segments,
        gaps=gaps,
    )


def _segment_in(entry: Mapping[str, Any]) -> SegmentEntry:
    segment = SegmentEntry(
        base_offset=whole_number(entry["base_offset"]),
        next_offset=whole_number(entry["next_offset"]),
        record_count=whole_number(entry["record_count"]),
        batch_count=whole_number(entry["batch_count"]),
        max_timestamp_ms=whole_number(entry["max_timestamp_ms"], minimum=-1),
        seal_bytes=None if entry["seal"] is None else bytes.fromhex(entry["seal"]),
        stem=entry["stem"],
        files=_files_in(entry["files"]),
        is_partial=entry.get("partial", False) is True,
    )
    if not _STEM.match(segment.stem) or int(segment.stem[:20]) != segment.base_offset:
        raise ValueError(f"{segment.stem!r} does not name the segment at {segment.base_offset}")
    if not all(map(_SUFFIX.match, segment.files)) or names.LOG not in segment.files:
        raise ValueError(f"the files of the segment at {segment.base_offset} are not a segment's files")
    if segment.seal_bytes is not None and names.SEAL not in segment.files:
        raise ValueError(f"the segment at {segment.base_offset} has a seal that was not copied")
    if segment.next_offset < segment.base_offset:
        raise ValueError(f"the segment at {segment.base_offset} ends before it begins")
    return segment


def _files_in(entry: Mapping[str, Any]) -> dict[str, StoredFile]:
    return {name: _file_in(file) for name, file in entry.items()}


def _file_in(file: Mapping[str, Any]) -> StoredFile:
    return StoredFile(whole_number(file["size"]), whole_number(int(file["crc32c"], 16), maximum=2**32 - 1))
