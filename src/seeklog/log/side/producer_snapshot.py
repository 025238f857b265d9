"""Snapshots of a partition's producers, in Kafka's format.

`%020d.snapshot` contains the state of the producers at the offset in its name. Big-endian:

     0  version            int16   1
     2  crc                uint32  CRC-32C of all bytes after it
     6  count              int32
    10  one entry of 46 bytes per producer:
        producer_id        int64
        epoch              int16
        last_sequence      int32   of the last batch; -1: no batch is known
        last_offset        int64   of the last batch; -1: no batch is known
        offset_delta       int32   last offset of that batch minus its first
        timestamp_ms       int64   largest timestamp of that batch, or of the end of the last transaction
        coordinator_epoch  int32   of the coordinator that ended the last transaction; -1: none
        transaction_start  int64   first offset of the open transaction; -1: none

A snapshot saves reading the log below its offset. It adds no information, except about records that retention deleted:
a snapshot that fails its CRC is ignored, and the state is rebuilt from an older one or from the log.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from seeklog import names
from seeklog.files import Files, read_if_exists, remove_if_exists, replace_file
from seeklog.log.producers import ProducerEntry, WrittenBatch
from seeklog.record.crc import crc32c

logger = logging.getLogger("seeklog")

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """Return the bytes of a snapshot, which keeps only the last batch of each producer."""
    body = bytearray(_COUNT.pack(len(entries)))
    for entry in entries:
        delta = entry.batches[-1].offset_delta if entry.batches else 0
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            delta,
            entry.timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
    return _HEAD.pack(VERSION, crc32c(bytes(body))) + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerEntry] | None:
    """Return the producers in a snapshot, or None if the bytes are not a whole snapshot."""
    if len(data) < _HEAD.size + _COUNT.size:
        return None
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != VERSION or crc != crc32c(body):
        return None
    if _COUNT.unpack_from(body)[0] * _ENTRY.size != len(body) - _COUNT.size:
        return None
    entries = []
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, start = fields
        last = WrittenBatch(last_sequence, last_offset, delta, timestamp_ms)
        batches = (last,) if last_offset >= 0 else ()
        entries.append(ProducerEntry(producer_id, epoch, batches, timestamp_ms, coordinator_epoch, start))
    return entries


class Snapshots:
    """The snapshot files of one partition. The caller syncs the directory.

    A syncing thread and a rolling thread may write different snapshots at the same time. A thread that deletes
    snapshots must be alone.
    """

    def __init__(self, files: Files, directory: str, listing: Iterable[str]) -> None:
        self._files = files
        self._directory = directory
        parsed = map(names.parse_segment_name, listing)
        # Sets, because two threads may change them at once without undoing each other's change.
        self._offsets = {name[0] for name in parsed if name is not None and name[1] == names.SNAPSHOT}
        self._unusable: set[int] = set()

    @property
    def offsets(self) -> list[int]:
        """The offsets of the snapshots, in order."""
        return sorted(self._offsets)

    def newest(self, *, above: int, not_above: int) -> tuple[int, list[ProducerEntry]] | None:
        """Return the newest whole snapshot in the range, as (offset, producers), or None.

        A damaged snapshot is ignored from then on, and deleted with the next snapshot that is dropped.
        """
        for offset in reversed([offset for offset in self.offsets if above < offset <= not_above]):
            entries = decode_snapshot(read_if_exists(self._files, self._path(offset)) or b"")
            if entries is not None:
                return offset, entries
            logger.warning("%s: the producer snapshot is damaged; reading the log instead", self._path(offset))
            self._offsets.discard(offset)
            self._unusable.add(offset)
        return None

    def write(self, offset: int, data: bytes) -> None:
        """Write the snapshot of the log's producers at `offset`."""
        replace_file(self._files, self._directory, names.segment_name(offset, names.SNAPSHOT), data)
        self._offsets.add(offset)
        self._unusable.discard(offset)

    def drop_beyond(self, end: int) -> bool:
        """Delete the snapshots above offset `end`; return whether there were any."""
        return self._drop([offset for offset in self.offsets if offset > end])

    def keep(self, bases: Collection[int]) -> bool:
        """Delete all snapshots except those at the segments' bases and the newest; return whether there were any."""
        return self._drop([offset for offset in self.offsets[:-1] if offset not in bases])

    def _drop(self, offsets: Sequence[int]) -> bool:
        dropped = {*offsets, *self._unusable}
        for offset in dropped:
            remove_if_exists(self._files, self._path(offset))
        self._offsets -= dropped
        self._unusable.clear()
        return bool(dropped)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{names.segment_name(offset, names.SNAPSHOT)}"
