"""Leader epochs that were changed on disk: the one part of a batch that neither its CRC nor its neighbours check.

A seal, or a clean close, has the CRC of the whole file. So a guess at what an epoch was, that of the batches around
it, can be proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError
from seeklog.record.kernel import crc32c
from seeklog.storage.headers import scan_headers
from seeklog.storage.segment import SCAN_CHUNK, Segment

EPOCH_AT: Final = 12
_EPOCH_SIZE: Final = 4


@dataclass(frozen=True, slots=True)
class ChangedEpoch:
    """A batch whose leader epoch is not what was written."""

    batch_position: int
    found: int
    epoch: int

    @property
    def right(self) -> bytes:
        """What should stand there."""
        return self.epoch.to_bytes(_EPOCH_SIZE, "big", signed=True)

    @property
    def position(self) -> int:
        """The first byte that differs."""
        wrong = self.found.to_bytes(_EPOCH_SIZE, "big", signed=True)
        at = next(number for number in range(_EPOCH_SIZE) if wrong[number] != self.right[number])
        return self.batch_position + EPOCH_AT + at


def changed_epochs(segment: Segment, *, crc: int) -> list[ChangedEpoch]:
    """Return the epochs that were changed, if putting them right gives the file the CRC `crc`; else none."""
    try:
        headers = [(at, header.leader_epoch) for at, header in scan_headers(segment, segment.base_offset, INT64_MAX)]
    except CorruptionError:
        return []
    guesses = []
    for number, (position, epoch) in enumerate(headers):
        around = {headers[near][1] for near in (number - 1, number + 1) if 0 <= near < len(headers)}
        if len(around) == 1 and epoch not in around:
            guesses.append(ChangedEpoch(position, epoch, around.pop()))
    # An outlier makes its neighbours at the ends of the file look like ones, too: each alone, then all.
    for chosen in (*([guess] for guess in guesses[:8]), guesses):
        if chosen and _crc_with(segment, chosen) == crc:
            return chosen
    return []


def _crc_with(segment: Segment, changes: list[ChangedEpoch]) -> int:
    value = 0
    for at in range(0, segment.size, SCAN_CHUNK):
        data = bytearray(segment.read(SCAN_CHUNK, at))
        for change in changes:
            for number, byte in enumerate(change.right):
                place = change.batch_position + EPOCH_AT + number - at
                if 0 <= place < len(data):
                    data[place] = byte
        value = crc32c(bytes(data), value)
    return value
