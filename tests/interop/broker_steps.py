"""The file operations of a running broker on a partition, one at a time, without seeklog's code.

    append      adds batches; the indexes of the active segment have their preallocated size
    roll        trims those indexes, and creates the next segment with new ones
    clean       Kafka's Cleaner and UnifiedLog.replaceSegments: A.log.cleaned -> A.log.swap, then A and B -> .deleted,
                then A.log.swap -> A.log, the indexes after each log; `file.delete.delay.ms` later .deleted is removed
    delete      renames whole segments below a new start to .deleted, then removes them
    truncate    cuts the end, as a broker that becomes a follower

`clean` and `delete` yield after each operation, as a reader may open the files in each of these states.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from interop.test_broker_directory import BrokerSegment, Row, encode_batch, encode_snapshot

ENTRY_SIZES: Final = {".index": 8, ".timeindex": 12}
# A broker's default for `segment.index.bytes`, and a smaller value that most tests use.
PREALLOCATED: Final = 10_485_760
LITTLE: Final = 4096
EPOCHS: Final = "leader-epoch-checkpoint"
UNIQUE: Final = "0123456789abcdef" * 2
T: Final = 1_700_000_000_000


class Batch(NamedTuple):
    """A batch, and the records in it; compaction leaves gaps between them."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    rows: tuple[Row, ...]
    raw: bytes


@dataclass
class BrokerPartition:
    """A partition of a running broker: its directory and records."""

    directory: Path
    leader_epoch: int = 0
    index_bytes: int = LITTLE
    segments: dict[int, list[Batch]] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0
    start: int = 0

    # ------------------------------------------------------------ what is there

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch.rows if row.offset >= self.start]

    @property
    def batches(self) -> list[Batch]:
        return [batch for base in sorted(self.segments) for batch in self.segments[base]]

    @property
    def bases(self) -> list[int]:
        return sorted(self.segments)

    @property
    def active(self) -> int:
        return max(self.segments)

    def path(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base_offset:020d}{suffix}"

    def positions(self) -> set[tuple[int, int]]:
        """Return (base of the segment, position) of every batch."""
        found = set()
        for base, batches in self.segments.items():
            position = 0
            for batch in batches:
                found.add((base, position))
                position += len(batch.raw)
        return found

    # ------------------------------------------------------------ beginning

    @classmethod
    def create(cls, directory: Path, *, leader_epoch: int = 3, index_bytes: int = LITTLE) -> BrokerPartition:
        directory.mkdir(parents=True)
        partition = cls(directory, leader_epoch=leader_epoch, index_bytes=index_bytes)
        partition._begin_segment(0)
        partition.lead()
        return partition

    @classmethod
    def take_over(cls, directory: Path, rows: Iterable[Row], *, leader_epoch: int, start: int = 0) -> BrokerPartition:
        """Continue the partition of another broker: a new leader writes its epoch at once."""
        partition = cls(directory, leader_epoch=leader_epoch, start=start)
        by_offset = {row.offset: row for row in rows}
        for path in sorted(directory.glob("*.log")):
            base = int(path.stem)
            partition.segments[base] = []
            for raw in split_batches(path.read_bytes()):
                batch = describe(raw, by_offset)
                partition.segments[base].append(batch)
                partition.next_offset = batch.last_offset + 1
            partition.next_offset = max(partition.next_offset, base)
        epochs = directory / EPOCHS
        if epochs.exists():
            partition.epochs = [tuple(map(int, line.split())) for line in epochs.read_text().splitlines()[2:]]  # type: ignore[misc]
        partition._write_indexes(partition.active, preallocated=True)
        partition.lead()
        return partition

    # ------------------------------------------------------------ growing

    def lead(self) -> None:
        """Write the epoch, as a broker that becomes the leader."""
        if not self.epochs or self.epochs[-1][0] < self.leader_epoch:
            self.epochs.append((self.leader_epoch, self.next_offset))
            self._write_epochs()

    def append(self, counts: Iterable[int] = (3,), *, keys: int = 10, each_lives: int = 8) -> None:
        """Append a batch of each count; every nth key occurs once, so that compaction keeps its record."""
        for count in counts:
            rows = tuple(row_of(self.next_offset + n, keys, each_lives) for n in range(count))
            raw = encode_batch(list(rows), leader_epoch=self.leader_epoch)
            batch = Batch(rows[0].offset, rows[-1].offset, self.leader_epoch, rows, raw)
            self.segments[self.active].append(batch)
            self.next_offset += count
            with self.path(self.active).open("ab") as log:
                log.write(raw)
        self._write_indexes(self.active, preallocated=True)

    def roll(self) -> None:
        self._write_indexes(self.active, preallocated=False)
        self._begin_segment(self.next_offset)
        self.path(self.next_offset, ".snapshot").write_bytes(encode_snapshot(self.next_offset))

    def _begin_segment(self, base_offset: int) -> None:
        self.segments[base_offset] = []
        self.path(base_offset).touch()
        self._write_indexes(base_offset, preallocated=True)

    def _write_indexes(self, base_offset: int, *, preallocated: bool, suffix: str = "") -> None:
        """Write the entries in place and set the preallocated size, as in a mapped file of a broker."""
        segment = as_segment(base_offset, self.segments[base_offset])
        if not preallocated and self.segments[base_offset]:
            segment.add_time_entry()
        tables = {
            ".index": b"".join(struct.pack(">ii", *entry) for entry in segment.offset_index),
            ".timeindex": b"".join(struct.pack(">qi", *entry) for entry in segment.time_index),
        }
        for kind, table in tables.items():
            handle = os.open(self.path(base_offset, kind + suffix), os.O_RDWR | os.O_CREAT, 0o640)
            try:
                os.pwrite(handle, table, 0)
                size = self.index_bytes // ENTRY_SIZES[kind] * ENTRY_SIZES[kind]
                os.ftruncate(handle, size if preallocated else len(table))
            finally:
                os.close(handle)

    def _write_epochs(self) -> None:
        lines = ["0", str(len(self.epochs)), *(f"{epoch} {start}" for epoch, start in self.epochs), ""]
        (self.directory / EPOCHS).write_text("\n".join(lines))

    # ------------------------------------------------------------ what takes records away

    def clean(self, *bases: int) -> Iterator[str]:
        """Compact closed segments into the first of them, keeping the latest record of each key."""
        latest = {
            row.key: row.offset for base in self.bases[:-1] for batch in self.segments[base] for row in batch.rows
        }
        kept = []
        for base in bases:
            for batch in self.segments[base]:
                rows = tuple(row for row in batch.rows if latest[row.key] == row.offset)
                if rows:
                    kept.append(with_rows(batch, rows))
        first = bases[0]
        old = {base: self.segments.pop(base) for base in bases}
        self.segments[first] = kept
        self.path(first, ".log.cleaned").write_bytes(b"".join(batch.raw for batch in kept))
        self._write_indexes(first, preallocated=False, suffix=".cleaned")
        yield "cleaned"
        for suffix in (".log", *ENTRY_SIZES):
            self.path(first, f"{suffix}.cleaned").rename(self.path(first, f"{suffix}.swap"))
            yield f"{suffix}.swap"
        for base in old:
            for suffix in (".log", *ENTRY_SIZES):
                self.path(base, suffix).rename(self.path(base, f"{suffix}.deleted"))
                yield f"{base}{suffix}.deleted"
        for suffix in (".log", *ENTRY_SIZES):
            self.path(first, f"{suffix}.swap").rename(self.path(first, suffix))
            yield f"swap to {suffix}"
        yield from self._remove_deleted(old)

    def delete(self, start: int) -> Iterator[str]:
        """Raise the log start offset and delete the segments below it, after a roll if that includes the last one."""
        self.start = start
        if start == self.next_offset and self.segments[self.active]:
            self.roll()
        bases = self.bases
        gone = [base for base, following in pairwise(bases) if following <= start]
        for base in gone:
            del self.segments[base]
            for suffix in (".log", *ENTRY_SIZES):
                self.path(base, suffix).rename(self.path(base, f"{suffix}.deleted"))
                yield f"{base}{suffix}.deleted"
        yield from self._remove_deleted(gone)

    def _remove_deleted(self, bases: Iterable[int]) -> Iterator[str]:
        for base in bases:
            for suffix in (".log", *ENTRY_SIZES):
                self.path(base, f"{suffix}.deleted").unlink()
                yield f"{base}{suffix} is gone"

    def truncate(self, offset: int) -> None:
        """Cut every batch that ends at or after an offset, and the epochs that started there."""
        for base in self.bases:
            if base >= offset and base != self.bases[0]:
                for path in self.directory.glob(f"{base:020d}.*"):
                    if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                        path.unlink()
                del self.segments[base]
        last = self.active
        self.segments[last] = [batch for batch in self.segments[last] if batch.last_offset < offset]
        size = sum(len(batch.raw) for batch in self.segments[last])
        os.truncate(self.path(last), size)
        self.next_offset = self.batches[-1].last_offset + 1 if self.batches else last
        self._write_indexes(last, preallocated=True)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < offset]
        self.lead()

    # ------------------------------------------------------------ ending

    def stop(self, root: Path, *, clean: bool) -> None:
        """Leave the directory and the checkpoints of the root as after a shutdown or a kill."""
        if clean:
            self._write_indexes(self.active, preallocated=False)
            self.path(self.next_offset, ".snapshot").write_bytes(encode_snapshot(self.next_offset))
            (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
        place = self.directory.name
        (root / "meta.properties").write_text("#\nversion=1\nnode.id=1\ncluster.id=x\n")
        # Checkpoints are written periodically: that of a killed broker covers only its closed segments.
        point = self.next_offset if clean else self.active
        write_line(root, "recovery-point-offset-checkpoint", place, point)
        write_line(root, "replication-offset-checkpoint", place, self.next_offset)
        write_line(root, "log-start-offset-checkpoint", place, self.start or None)


def split_batches(data: bytes) -> Iterator[bytes]:
    """Yield the batches of a file."""
    at = 0
    while at < len(data):
        size = 12 + int(struct.unpack_from(">i", data, at + 8)[0])
        yield data[at : at + size]
        at += size


def describe(raw: bytes, by_offset: dict[int, Row]) -> Batch:
    base_offset, leader_epoch = struct.unpack_from(">q", raw)[0], struct.unpack_from(">i", raw, 12)[0]
    last_offset = base_offset + struct.unpack_from(">i", raw, 23)[0]
    rows = tuple(by_offset[offset] for offset in range(base_offset, last_offset + 1) if offset in by_offset)
    return Batch(base_offset, last_offset, leader_epoch, rows, raw)


def with_rows(batch: Batch, rows: tuple[Row, ...]) -> Batch:
    """Return a cleaned batch: fewer records, the same offsets."""
    if rows == batch.rows:
        return batch
    raw = encode_batch(
        list(rows),
        leader_epoch=batch.leader_epoch,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
    )
    return batch._replace(rows=rows, raw=raw)


def as_segment(base_offset: int, batches: Iterable[Batch]) -> BrokerSegment:
    """Return a segment with a broker's index entries for these batches."""
    segment = BrokerSegment(base_offset, "4.x")
    for batch in batches:
        segment.append_call([(list(batch.rows), batch.raw)])
    return segment


def row_of(offset: int, keys: int = 10, each_lives: int = 8) -> Row:
    """Return a record with its offset as the value, and keys in irregular order."""
    scattered = offset * 7919 % 1009
    key = b"once %d" % offset if each_lives and scattered % each_lives == 0 else b"key %d" % (scattered % keys)
    return Row(offset, T + offset * 10, key, b"value %d " % offset + b"." * (offset % 60))


def write_line(root: Path, name: str, place: str, offset: int | None) -> None:
    """Replace or remove a partition's line in a checkpoint of the root, with a rename as in a broker."""
    path = root / name
    topic, _, number = place.rpartition("-")
    prefix = f"{topic} {number} "
    lines = [
        line for line in (path.read_text().splitlines()[2:] if path.exists() else []) if not line.startswith(prefix)
    ]
    if offset is not None:
        lines.append(f"{prefix}{offset}")
    temporary = root / f"{name}.tmp"
    temporary.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    temporary.rename(path)


def delete_topic(root: Path, topic: str, partition: int = 0) -> Path:
    """Rename the directory of a partition as it is until `file.delete.delay.ms` has passed.

    The checkpoints of the root are written at once, except the high watermarks, which may be five seconds old.
    """
    target = root / f"{topic}-{partition}.{UNIQUE}-delete"
    (root / f"{topic}-{partition}").rename(target)
    write_line(root, "recovery-point-offset-checkpoint", f"{topic}-{partition}", None)
    write_line(root, "log-start-offset-checkpoint", f"{topic}-{partition}", None)
    return target
