"""The acknowledged records of a soak in shared memory, and values that can be checked by themselves.

A value has its topic, the topic's incarnation, partition and number, and a digest of them. The file has, as int64:

    PLAIN        per partition: the offset after the last acknowledged record, and the requested log start offset.
                 With one producer in order a record's number is its offset.
    COMPACTED    per key: the number of the last acknowledged record, and of the last one sent
    FLEETING     the incarnation, 1 while its topic exists and is not being deleted, and the acknowledged end
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

PLAIN: Final = "plain"
COMPACTED: Final = "compacted"
FLEETING: Final = "fleeting"
PARTITIONS: Final = 2
KEYS: Final = 64
REST: Final = 4000
"""Of how many records a key has none. A read ends meanwhile, and the newest record of the key must be in it."""
T: Final = 1_700_000_000_000
PADDING: Final = b"." * 160

_STARTS: Final = PARTITIONS
_ACKED_KEYS: Final = 2 * PARTITIONS
_SENT_KEYS: Final = _ACKED_KEYS + KEYS
_FLEETING: Final = _SENT_KEYS + KEYS
_FIELDS: Final = _FLEETING + 3


class WrongAnswer(AssertionError):
    """A read does not match the acknowledged records."""


def key_of(number: int) -> bytes:
    """Return the key of a record by its number, in irregular order; half of the keys pause by turns."""
    half = KEYS // 2
    return b"key-%d" % (number * 7919 % 1009 % half + number // REST % 2 * half)


def key_number(key: bytes) -> int:
    return int(key[4:])


def encode_value(topic: str, incarnation: int, partition: int, number: int) -> bytes:
    head = f"{topic}|{incarnation}|{partition}|{number}|".encode()
    return head + hashlib.sha256(head).hexdigest().encode() + PADDING


class Fields(NamedTuple):
    """The decoded fields of a value."""

    topic: str
    incarnation: int
    partition: int
    number: int


def check_value(value: bytes | None) -> Fields:
    """Decode a value, or raise `WrongAnswer`."""
    parts = (value or b"").split(b"|")
    if len(parts) == 5 and value is not None:
        fields = Fields(parts[0].decode(), int(parts[1]), int(parts[2]), int(parts[3]))
        if encode_value(*fields) == value:
            return fields
    raise WrongAnswer(f"no producer sent the value {value!r}")


class Ledger:
    """The shared memory. One process writes each field."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            path.write_bytes(bytes(_FIELDS * 8))
        handle = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(handle, _FIELDS * 8)
        finally:
            os.close(handle)
        self._fields = memoryview(self._map).cast("q")
        if create:
            for number in range(_ACKED_KEYS, _FLEETING):
                self._fields[number] = -1

    def acked(self, partition: int) -> int:
        return self._fields[partition]

    def acknowledge(self, partition: int, end: int) -> None:
        self._fields[partition] = end

    def start(self, partition: int) -> int:
        return self._fields[_STARTS + partition]

    def raise_start(self, partition: int, start: int) -> None:
        self._fields[_STARTS + partition] = start

    def acked_of_key(self, key: int) -> int:
        return self._fields[_ACKED_KEYS + key]

    def acknowledge_key(self, key: int, number: int) -> None:
        self._fields[_ACKED_KEYS + key] = max(number, self._fields[_ACKED_KEYS + key])

    def sent_of_key(self, key: int) -> int:
        return self._fields[_SENT_KEYS + key]

    def check_newest(self, before: Sequence[int], found: Sequence[int], *facts: object) -> int:
        """After a read, compare the latest record of each key with the records acknowledged before the read.

        A read ends at the high watermark of its plan, which the cleaner does not know: it removes a superseded record
        even if the newer record is after that end. So a record may be missing if a newer one of its key, after the last
        record read, has been sent by now. No record of a pausing key may be missing. Return the number of such keys.
        """
        last = max(*before, *found)
        rested = 0
        for key, (acked, number) in enumerate(zip(before, found, strict=True)):
            sent = self.sent_of_key(key)
            rested += sent <= acked >= 0
            if number < acked and sent <= last:
                message = ("the newest of key", key, "is", number, "acknowledged:", acked, "sent:", sent, *facts)
                raise WrongAnswer(" ".join(map(str, message)))
        return rested

    def send_key(self, key: int, number: int) -> None:
        self._fields[_SENT_KEYS + key] = number

    @property
    def fleeting(self) -> tuple[int, bool, int]:
        """Return (incarnation, whether the topic exists, the acknowledged end)."""
        incarnation, is_there, acked = self._fields[_FLEETING : _FLEETING + 3]
        return incarnation, is_there == 1, acked

    @fleeting.setter
    def fleeting(self, state: tuple[int, bool, int]) -> None:
        incarnation, is_there, acked = state
        # Cleared first and set last, so that a reader never sees a mixture of two existing incarnations.
        if not is_there:
            self._fields[_FLEETING + 1] = 0
        self._fields[_FLEETING], self._fields[_FLEETING + 2] = incarnation, acked
        if is_there:
            self._fields[_FLEETING + 1] = 1
