"""Kafka's offset checkpoints in the root of a store, with a line for each partition.

    0                        version
    2                        number of lines
    payments 0 1042          topic, partition, offset
    payments 1 977

`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint` and `replication-offset-checkpoint` (the high
watermarks) are copies for a broker that takes over. The authority is each partition's own checkpoint. A partition
written by a broker has none; these files then replace it. `cleaner-offset-checkpoint` lists the offset up to which each
partition was compacted; the authority for it is the seals.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from seeklog import names
from seeklog.clock import Clock
from seeklog.config import INT32_MAX, INT64_MAX
from seeklog.files import Files, read_if_exists, replace_file
from seeklog.log.directory import is_root
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.epochs import decode_rows, encode_rows
from seeklog.names import TopicPartition

Offsets = dict[TopicPartition, int]
CHECK_INTERVAL_S: Final = 0.5


class RootLine(NamedTuple):
    """The offsets to write for one partition."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    cleaned: int | None = None
    """The offset up to which it is compacted, or None."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of a checkpoint file."""
    return encode_rows((topic, partition, offset) for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(data: bytes) -> Offsets | None:
    """Return the offsets, or None if the bytes do not parse."""
    try:
        rows = decode_rows(data)
        offsets = {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in rows}
    except ValueError:
        return None
    are_sound = all(0 <= at.partition <= INT32_MAX and abs(offset) <= INT64_MAX for at, offset in offsets.items())
    return offsets if are_sound else None


@dataclass(frozen=True, slots=True)
class RootOffsets:
    """The contents of the files."""

    recovery_points: Offsets
    log_start_offsets: Offsets
    high_watermarks: Offsets
    cleaned: Offsets = field(default_factory=dict)
    """Offsets up to which partitions are compacted."""

    @classmethod
    def read(cls, files: Files, root: str) -> RootOffsets:
        """Read the files. One that is missing or does not parse counts as empty."""
        return cls.parse(_read_all(files, root))

    @classmethod
    def parse(cls, contents: Sequence[bytes]) -> RootOffsets:
        """Return the offsets in the contents of the files."""
        return cls(*(decode_offsets(data) or {} for data in contents))

    def of(self, partition: TopicPartition) -> Checkpoint | None:
        """Return a checkpoint for a partition that a broker wrote, or None if the files do not name it."""
        values = [table.get(partition) for table in self._tables[:3]]
        if all(value is None for value in values):
            return None
        recovery_point, log_start_offset, high_watermark = (max(value or 0, 0) for value in values)
        return Checkpoint(
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            contiguous_from=INT64_MAX,
            foreign=True,
        )

    def update(self, known: Mapping[TopicPartition, RootLine], existing: Collection[TopicPartition]) -> bool:
        """Set the offsets of known partitions and drop those not `existing`; return whether anything changed."""
        before = [dict(table) for table in self._tables]
        for column, table in enumerate(self._tables):
            gone = set()
            for partition, line in known.items():
                offset = line[column]
                if offset is None:
                    gone.add(partition)
                else:
                    table[partition] = offset
            for partition in table.keys() - (set(existing) - gone):
                del table[partition]
        return before != list(self._tables)

    def write(self, files: Files, root: str) -> None:
        """Replace the files. After a crash each is whole, but they may be of different times."""
        for name, table in zip(_NAMES, self._tables, strict=True):
            if table or name != names.CLEANED_OFFSETS or name in files.list(root):
                replace_file(files, root, name, encode_offsets(table))
        files.sync_directory(root)

    @property
    def _tables(self) -> tuple[Offsets, Offsets, Offsets, Offsets]:
        return self.recovery_points, self.log_start_offsets, self.high_watermarks, self.cleaned


_NAMES = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS, names.CLEANED_OFFSETS)


def root_names_topic(files: Files, root: str, topic: str) -> bool:
    """Return whether one of the files has a line of this topic. They are searched, not parsed."""
    line = b"\n%s " % topic.encode("ascii")
    return any(line in data for data in _read_all(files, root))


class RootWatch:
    """The current contents of the files, which a running broker writes, by default once a minute.

    Thread-safe. The files are read again after `CHECK_INTERVAL_S`, and parsed if they have changed.
    """

    def __init__(self, files: Files, root: str, *, clock: Clock) -> None:
        self._files = files
        self._root = root
        self._clock = clock
        self._contents = _read_all(files, root)
        self._offsets = RootOffsets.parse(self._contents)
        self._next_check = clock.monotonic() + CHECK_INTERVAL_S

    def offsets(self) -> RootOffsets:
        """Return the current contents of the files."""
        now = self._clock.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK_INTERVAL_S
            contents = _read_all(self._files, self._root)
            if contents != self._contents:
                self._contents, self._offsets = contents, RootOffsets.parse(contents)
        return self._offsets


def inherited_by(files: Files, directory: str, *, clock: Clock) -> Callable[[], Checkpoint | None]:
    """Return a function for the checkpoint that the root gives a partition opened alone; None outside a root."""
    partition = names.parse_partition_name(os.path.basename(directory))
    root = os.path.dirname(directory)
    if partition is None or not is_root(files, root):
        return lambda: None
    watch = RootWatch(files, root, clock=clock)
    return lambda: watch.offsets().of(partition)


def _read_all(files: Files, root: str) -> tuple[bytes, ...]:
    return tuple(read_if_exists(files, f"{root}/{name}") or b"" for name in _NAMES)
