"""How the transactions of a partition ended, and what compaction may therefore drop, by Kafka's rules.

A coordinator ends a producer's transaction with a marker: a control batch after the records, of type commit or abort.
Compaction then

    drops records of an aborted transaction, and ignores their keys
    keeps a marker until no batch of its transaction is left below it and its delete horizon has passed; the horizon is
        set when the first condition is first met
    stops before the first offset of an open transaction

An abort marker whose transaction has a batch below it gets an entry in the `.txnindex` of its segment, which consumers
use to skip aborted records. An entry has 34 bytes, big-endian; entries are in the order of the markers:

    version             int16   0
    producer_id         int64
    first_offset        int64   of the transaction
    last_offset         int64   of the marker
    last_stable_offset  int64   first offset of the oldest transaction open at that time, or the offset after the marker

The file has no checksum, and a missing file looks like one that was never needed. The markers contain the same facts,
protected by a CRC, for as long as they matter. seeklog therefore reads only the markers; it writes the index, and
truncates it with the log.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.files import read_if_exists, replace_file
from seeklog.log.segment import Shared
from seeklog.record.control import ABORT, COMMIT
from seeklog.record.layout import CONTROL

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """One entry of a `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the bytes of a `.txnindex` file."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def aborted_below(data: bytes, *, end: int) -> bytes:
    """Return the bytes of a `.txnindex` without the entries of markers at or after the offset `end`."""
    whole = data[: len(data) - len(data) % ENTRY.size]
    entries = [AbortedTransaction(*fields) for _, *fields in ENTRY.iter_unpack(whole)]
    return encode_aborted(entry for entry in entries if entry.last_offset < end)


def trim_aborted(shared: Shared, base_offset: int, *, end: int) -> None:
    """Remove the entries of markers that were cut from a segment's `.txnindex`. The caller syncs the directory.

    A consumer would otherwise skip committed records that are appended at the same offsets.
    """
    name = names.segment_name(base_offset, names.TRANSACTION_INDEX)
    path = f"{shared.directory}/{name}"
    data = read_if_exists(shared.files, path)
    if data is None:
        return
    kept = aborted_below(data, end=end)
    if not kept:
        shared.files.remove(path)
    elif kept != data:
        replace_file(shared.files, shared.directory, name, kept)


class _Aborted:
    """The aborted transactions of one producer, in order. Arrays, because there may be many: 24 bytes each."""

    __slots__ = ("first", "last", "stable")

    def __init__(self) -> None:
        self.first, self.last, self.stable = array("q"), array("q"), array("q")


class TransactionHistory:
    """The transactions of a partition below an offset, collected from its batches in order."""

    def __init__(self, stop_offset: int) -> None:
        self.stop_offset = stop_offset
        """Markers from here on are unknown: their transactions count as open."""
        self._open: dict[int, int] = {}
        self._aborted: dict[int, _Aborted] = {}

    def note(self, base_offset: int, last_offset: int, attributes: int, producer_id: int, marker: int) -> None:
        """Add a batch of a transaction. `marker` is the type of a control batch's record, or -1."""
        if not attributes & CONTROL:
            if producer_id >= 0:
                self._open.setdefault(producer_id, base_offset)
            return
        if marker not in (ABORT, COMMIT):
            return
        first_offset = self._open.pop(producer_id, None)
        if marker == ABORT and first_offset is not None:
            aborted = self._aborted.setdefault(producer_id, _Aborted())
            aborted.first.append(first_offset)
            aborted.last.append(last_offset)
            aborted.stable.append(min(self._open.values(), default=last_offset + 1))

    @property
    def first_unstable_offset(self) -> int:
        """The first offset of the oldest open transaction."""
        return min(self._open.values(), default=INT64_MAX)

    def find_aborted(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Return the aborted transaction that contains a batch of a producer, or its marker, at this offset."""
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            return None
        at = bisect_right(aborted.first, offset) - 1
        if at < 0 or offset > aborted.last[at]:
            return None
        return AbortedTransaction(producer_id, aborted.first[at], aborted.last[at], aborted.stable[at])


class Verdicts:
    """Decides, in order from the start of the log, which batches of transactions compaction ignores.

    `find` is called at the first such batch: most logs have none.
    """

    def __init__(self, find: Callable[[], TransactionHistory]) -> None:
        self._find = find
        self._has_batches: set[int] = set()
        self._aborted: list[AbortedTransaction] = []

    def judge(self, base_offset: int, last_offset: int, attributes: int, producer_id: int, marker: int) -> bool:
        """Return whether a batch belongs to an aborted transaction, or is a marker without a transaction."""
        history = self._find()
        if not attributes & CONTROL:
            self._has_batches.add(producer_id)
            return history.find_aborted(producer_id, base_offset) is not None
        if marker not in (ABORT, COMMIT):
            return False
        if producer_id not in self._has_batches:
            return True
        self._has_batches.discard(producer_id)
        if marker == ABORT:
            transaction = history.find_aborted(producer_id, last_offset)
            if transaction is not None:
                self._aborted.append(transaction)
        return False

    def take_aborted(self) -> bytes:
        """Return the `.txnindex` for the markers kept since the last call."""
        taken, self._aborted = self._aborted, []
        return encode_aborted(taken)
