"""How the transactions of a partition ended, and what compaction may therefore drop. Kafka's rules.

A coordinator ends a producer's transaction with a marker: a control batch, after the records, that says commit or
abort. Then

    records of an aborted transaction   go, and no key is known by them
    a marker                            stays until no batch of its transaction is left below it, and until the delete
                                        horizon, which it gets when that is first seen, has passed
    a transaction that has not ended    bounds compaction: nothing from its first offset on is touched

An abort marker whose transaction had a batch below it has an entry in the `.txnindex` of its segment, from which a
consumer learns what to skip; 34 bytes each, big-endian, in the order of the markers:

    version             int16   0
    producer_id         int64
    first_offset        int64   of the transaction
    last_offset         int64   of the marker
    last_stable_offset  int64   where the oldest transaction began that was open then, or the offset after the marker

That file has no checksum, and one that is missing looks like one that was never needed. The markers say the same, under
a CRC, and are there for as long as it matters: so they are what is read here, and the index is only written, and cut
where the log is.
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
    """What an entry of a `.txnindex` says."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the bytes of a `.txnindex` file."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def trim_aborted(shared: Shared, base_offset: int, *, end: int) -> None:
    """Take the entries out of a segment's `.txnindex` whose markers were cut. The caller syncs the directory.

    A consumer that goes by them would skip what is appended, and committed, in the place of what was cut.
    """
    name = names.segment_name(base_offset, names.TRANSACTION_INDEX)
    path = f"{shared.directory}/{name}"
    data = read_if_exists(shared.files, path)
    if data is None:
        return
    whole = data[: len(data) - len(data) % ENTRY.size]
    entries = [AbortedTransaction(*fields) for _, *fields in ENTRY.iter_unpack(whole)]
    kept = encode_aborted(entry for entry in entries if entry.last_offset < end)
    if not kept:
        shared.files.remove(path)
    elif kept != data:
        replace_file(shared.files, shared.directory, name, kept)


class _Aborted:
    """The aborted transactions of one producer, in order: 24 bytes each, for there may be a great many."""

    __slots__ = ("first", "last", "stable")

    def __init__(self) -> None:
        self.first, self.last, self.stable = array("q"), array("q"), array("q")


class EndedTransactions:
    """The transactions of a partition up to an offset, put together from its batches in order."""

    def __init__(self, stop_offset: int) -> None:
        self.stop_offset = stop_offset
        """What came from here on is not known, and counts as not ended."""
        self._open: dict[int, int] = {}
        self._aborted: dict[int, _Aborted] = {}

    def note(self, base_offset: int, last_offset: int, attributes: int, producer_id: int, marker: int) -> None:
        """Take in a batch of a transaction; `marker` is the type of a control batch's record, or -1."""
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
        """Where the oldest transaction begins that has not ended."""
        return min(self._open.values(), default=INT64_MAX)

    def find_aborted(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Return the aborted transaction that a producer's batch belongs to, or its marker, by an offset of it."""
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            return None
        at = bisect_right(aborted.first, offset) - 1
        if at < 0 or offset > aborted.last[at]:
            return None
        return AbortedTransaction(producer_id, aborted.first[at], aborted.last[at], aborted.stable[at])


class Verdicts:
    """Says of the batches of transactions, in order from the start of the log, which count for nothing.

    `find` is asked for what is known of their ends when the first such batch comes: most logs have none.
    """

    def __init__(self, find: Callable[[], EndedTransactions]) -> None:
        self._find = find
        self._has_batches: set[int] = set()
        self._aborted: list[AbortedTransaction] = []

    def judge(self, base_offset: int, last_offset: int, attributes: int, producer_id: int, marker: int) -> bool:
        """Tell whether a batch's records are those of an aborted transaction, or a marker has nothing to end."""
        ended = self._find()
        if not attributes & CONTROL:
            self._has_batches.add(producer_id)
            return ended.find_aborted(producer_id, base_offset) is not None
        if marker not in (ABORT, COMMIT):
            return False
        if producer_id not in self._has_batches:
            return True
        self._has_batches.discard(producer_id)
        if marker == ABORT:
            found = ended.find_aborted(producer_id, last_offset)
            if found is not None:
                self._aborted.append(found)
        return False

    def take_aborted(self) -> bytes:
        """Return the `.txnindex` of the markers that were kept since the last call."""
        taken, self._aborted = self._aborted, []
        return encode_aborted(taken)
