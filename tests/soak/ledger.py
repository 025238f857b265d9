"""What was acknowledged, in memory that the processes of a soak share, and values that prove themselves.

A value tells its topic, the topic's incarnation, partition and number, and a digest of them; the file has, as int64:

    PLAIN        of each partition: the offset after the last acknowledged record, and the start that was asked for.
                 One producer in order: a record's number is its offset.
    COMPACTED    of each key: the number of the last record that was acknowledged, and of the last that was sent
    FLEETING     the incarnation, 1 while its topic is there and not about to go, and the end of what is acknowledged
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
    """Something that was read is not what was acknowledged."""


def key_of(number: int) -> bytes:
    """Return the key of a record by its number: in no regular order, and half of the keys rest by turns."""
    half = KEYS // 2
    return b"key-%d" % (number * 7919 % 1009 % half + number // REST % 2 * half)


def key_number(key: bytes) -> int:
    return int(key[4:])


def encode_value(topic: str, incarnation: int, partition: int, number: int) -> bytes:
    head = f"{topic}|{incarnation}|{partition}|{number}|".encode()
    return head + hashlib.sha256(head).hexdigest().encode() + PADDING


class Told(NamedTuple):
    """What a value says of its record."""

    topic: str
    incarnation: int
    partition: int
    number: int


def check_value(value: bytes | None) -> Told:
    """Return what a value says, or raise `WrongAnswer`."""
    parts = (value or b"").split(b"|")
    if len(parts) == 5 and value is not None:
        told = Told(parts[0].decode(), int(parts[1]), int(parts[2]), int(parts[3]))
        if encode_value(*told) == value:
            return told
    raise WrongAnswer(f"no producer sent the value {value!r}")


class Ledger:
    """The shared memory. One process writes each field; the others read it."""

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
        """Hold the newest record found of each key against what was acknowledged before, once the read is over.

        A read is a snapshot that ends at the high watermark of its plan. The cleaner does not know of it: a record
        that a newer one supersedes is gone, also where the newer one lies after that end and is not read. So the
        absence of a record is lawful if a newer one of its key, after all that was read, has been sent by now. Of a
        key that rests nothing may be missing. Returns how many keys have rested.
        """
        last = max(*before, *found)
        rested = 0
        for key, (acked, number) in enumerate(zip(before, found, strict=True)):
            sent = self.sent_of_key(key)
            rested += sent <= acked >= 0
            if number < acked and sent <= last:
                words = ("the newest of key", key, "is", number, "acknowledged:", acked, "sent:", sent, *facts)
                raise WrongAnswer(" ".join(map(str, words)))
        return rested

    def send_key(self, key: int, number: int) -> None:
        self._fields[_SENT_KEYS + key] = number

    @property
    def fleeting(self) -> tuple[int, bool, int]:
        """Return (incarnation, whether it is there, the end of what is acknowledged)."""
        incarnation, is_there, acked = self._fields[_FLEETING : _FLEETING + 3]
        return incarnation, is_there == 1, acked

    @fleeting.setter
    def fleeting(self, state: tuple[int, bool, int]) -> None:
        incarnation, is_there, acked = state
        # Gone first, there last: who reads both sees no mixture of two incarnations that are there.
        if not is_there:
            self._fields[_FLEETING + 1] = 0
        self._fields[_FLEETING], self._fields[_FLEETING + 2] = incarnation, acked
        if is_there:
            self._fields[_FLEETING + 1] = 1
