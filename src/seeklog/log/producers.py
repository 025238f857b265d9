"""What a partition knows about its producers, by Kafka's rules. Pure: no files, no clock, no threads.

A producer that wants each batch to be in the log only once numbers its records. A batch carries the producer
(`producer_id`), its incarnation (`producer_epoch`) and the number of the first record (`base_sequence`). The rules:

    an epoch below the last one            is fenced: a newer incarnation has taken over
    a new epoch                            starts at sequence 0
    the same epoch                         continues at the sequence after the last one; 0 follows 2^31 - 1
    one of the last five batches again     is acknowledged with its old offsets, not written again
    any other sequence                     is refused: earlier batches are missing, or it repeats an older batch
    an unknown producer                    starts anywhere: its records may have been deleted

Batches without a producer id are not checked. A producer is forgotten after a day without a batch, unless it has an
open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from seeklog.config import INT32_MAX, INT64_MAX
from seeklog.errors import DuplicateSequence, InvalidRecord, OutOfOrderSequence, ProducerFenced, UsageError, counted
from seeklog.record.batch import BatchHeader, read_header
from seeklog.record.control import EndMarker, decode_end_marker

# The number of requests that a Kafka client has in flight: it may repeat any of them.
BATCHES_REMEMBERED: Final = 5
# producer.id.expiration.ms
EXPIRATION_MS: Final = 24 * 3600 * 1000
NO_SEQUENCE: Final = -1
NONE: Final = -1
_SEQUENCES: Final = INT32_MAX + 1
MAX_EPOCH: Final = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSequence:
    """A producer, and the sequence of the first record of a batch."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        for name, maximum in (("producer_id", INT64_MAX), ("epoch", MAX_EPOCH), ("sequence", INT32_MAX)):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= maximum:
                raise UsageError(f"the {name} of a producer is an int from 0 to {maximum}, not {value!r}")

    def after(self, record_count: int) -> ProducerSequence:
        """Return the sequence that follows `record_count` records; 0 follows the largest sequence."""
        return replace(self, sequence=(self.sequence + record_count) % _SEQUENCES)

    def until(self, later: ProducerSequence) -> int:
        """Return how many records lead from this sequence to a later one."""
        return (later.sequence - self.sequence) % _SEQUENCES

    @property
    def fields(self) -> tuple[int, int, int]:
        return self.producer_id, self.epoch, self.sequence


class WrittenBatch(NamedTuple):
    """A producer's batch that is in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def offsets(self) -> range:
        return range(self.base_offset, self.last_offset + 1)


class ProducerEntry(NamedTuple):
    """One producer: its newest epoch, and its last batches, oldest first."""

    producer_id: int
    epoch: int
    batches: tuple[WrittenBatch, ...]
    timestamp_ms: int
    coordinator_epoch: int = NONE
    transaction_start: int = NONE
    """The first offset of the open transaction, or -1."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch, or -1 if only the end of a transaction is known."""
        return self.batches[-1].last_offset if self.batches else NONE

    @property
    def next_sequence(self) -> int:
        """The base sequence that the next batch of this epoch must have."""
        return next_sequence(self.last_sequence)

    def find(self, header: BatchHeader) -> WrittenBatch | None:
        """Return the batch in the log that this one repeats, or None."""
        if header.producer_epoch != self.epoch or header.base_sequence < 0 or header.is_control:
            return None
        wanted = (header.base_sequence, last_sequence_of(header))
        return next((batch for batch in self.batches if (batch.base_sequence, batch.last_sequence) == wanted), None)

    def after(self, header: BatchHeader, marker: EndMarker | None) -> ProducerEntry:
        batches = self.batches if header.producer_epoch == self.epoch else ()
        if header.is_control:
            if marker is None:
                return self
            return ProducerEntry(
                self.producer_id, header.producer_epoch, batches, header.max_timestamp_ms, marker.coordinator_epoch
            )
        written = WrittenBatch(
            last_sequence_of(header), header.last_offset, header.last_offset_delta, header.max_timestamp_ms
        )
        begins = self.transaction_start == NONE and header.is_transactional
        return ProducerEntry(
            self.producer_id,
            header.producer_epoch,
            (*batches, written)[-BATCHES_REMEMBERED:],
            header.max_timestamp_ms,
            self.coordinator_epoch,
            header.base_offset if begins else self.transaction_start,
        )


class ProducerBatch(NamedTuple):
    """The header of a batch, and the end marker if it is a control batch that ends a transaction."""

    header: BatchHeader
    marker: EndMarker | None = None


def producer_batches(raw: bytes) -> list[ProducerBatch]:
    batches = []
    at = 0
    while at < len(raw):
        header = read_header(raw, at)
        marker = decode_end_marker(raw[at : at + header.size]) if header.is_control else None
        batches.append(ProducerBatch(header, marker))
        at += header.size
    return batches


def next_sequence(last_sequence: int) -> int:
    """Return the next sequence: 0 after the largest, and after -1 (none)."""
    return (last_sequence + 1) % _SEQUENCES


def last_sequence_of(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record. Records that compaction removed count."""
    if header.base_sequence < 0:
        return NO_SEQUENCE
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


class ProducerState:
    """The producers of one partition. The caller holds the partition's lock."""

    def __init__(self, *, expiration_ms: int = EXPIRATION_MS) -> None:
        self._expiration_ms = expiration_ms
        self._entries: dict[int, ProducerEntry] = {}
        self._seen_ms: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(list(self._entries.values()))

    def get(self, producer_id: int, *, now_ms: int) -> ProducerEntry | None:
        """Return a producer's entry, or None if the producer is unknown or expired."""
        entry = self._entries.get(producer_id)
        return None if entry is None or self._has_expired(entry, now_ms) else entry

    def last_offsets(self, *, now_ms: int) -> dict[int, int]:
        """Return, for each known producer, the last offset of its last batch.

        Compaction keeps these batches, without records if necessary: an open learns the next sequence from them.
        """
        return {
            entry.producer_id: entry.last_offset
            for entry in self
            if entry.batches and not self._has_expired(entry, now_ms)
        }

    def last_epochs(self, *, now_ms: int) -> dict[int, int]:
        """Return the epoch of each producer that is known only by the end of a transaction.

        Compaction keeps that marker, without its record if necessary: it fences older incarnations.
        """
        return {
            entry.producer_id: entry.epoch
            for entry in self
            if not entry.batches and not self._has_expired(entry, now_ms)
        }

    def first_unstable_offset(self) -> int:
        return min((entry.transaction_start for entry in self if entry.transaction_start != NONE), default=INT64_MAX)

    # ------------------------------------------------------------ appending

    def check(self, batches: Sequence[ProducerBatch], *, now_ms: int) -> range | None:
        """Raise unless these batches may be appended together, in this order. Nothing changes.

        Returns their old offsets if all of them repeat batches that are remembered, else None.
        """
        ahead: dict[int, ProducerEntry] = {}
        repeated: list[WrittenBatch] = []
        for header, marker in batches:
            if header.producer_id < 0:
                continue
            entry = self.get(header.producer_id, now_ms=now_ms)
            written = entry.find(header) if entry is not None else None
            if written is not None:
                repeated.append(written)
                continue
            _check_fields(header)
            current = ahead.get(header.producer_id, entry)
            if current is None:
                current = _unknown(header.producer_id)
            elif header.is_control:
                _check_marker(current, header, marker)
            else:
                _check_next(current, header)
            ahead[header.producer_id] = current.after(header, marker)
        if not repeated:
            return None
        offsets = range(repeated[0].base_offset, repeated[-1].last_offset + 1)
        if len(repeated) < len(batches) or sum(len(batch.offsets) for batch in repeated) != len(offsets):
            raise _mixed(batches, repeated)
        return offsets

    def note(self, batches: Iterable[ProducerBatch], *, now_ms: int) -> None:
        """Add batches that are in the log, without checking them."""
        for header, marker in batches:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            entry = self._entries.get(producer_id) or _unknown(producer_id)
            new = entry.after(header, marker)
            if new is not entry:
                self._entries[producer_id] = new
                self._seen_ms[producer_id] = now_ms

    # ------------------------------------------------------------ snapshots and expiration

    def restore(self, entries: Iterable[ProducerEntry], *, now_ms: int) -> None:
        """Start from the entries of a snapshot, except expired producers."""
        self._seen_ms = {}
        self._entries = {entry.producer_id: entry for entry in entries if not self._has_expired(entry, now_ms)}

    def expire(self, *, now_ms: int) -> None:
        for entry in self:
            if self._has_expired(entry, now_ms):
                del self._entries[entry.producer_id]
                self._seen_ms.pop(entry.producer_id, None)

    def entries(self) -> list[ProducerEntry]:
        """Return the entries for a snapshot.

        A producer expires by the timestamp of its last record. If that timestamp lies in the past, the snapshot has
        the time of the append instead, because the producer was active then.
        """
        return [entry._replace(timestamp_ms=self._active_ms(entry)) for entry in self]

    def _active_ms(self, entry: ProducerEntry) -> int:
        return max(entry.timestamp_ms, self._seen_ms.get(entry.producer_id, NONE))

    def _has_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        if entry.transaction_start != NONE:
            return False
        return now_ms - self._active_ms(entry) >= self._expiration_ms


def _unknown(producer_id: int) -> ProducerEntry:
    return ProducerEntry(producer_id, NONE, (), NONE)


def _check_fields(header: BatchHeader) -> None:
    if header.producer_epoch < 0 or header.base_sequence < NO_SEQUENCE:
        raise InvalidRecord(
            f"a batch of producer {header.producer_id} has epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}: both must be 0 or more; nothing was written"
        )


def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise ProducerFenced(
            f"producer {entry.producer_id} already has epoch {entry.epoch}, this batch has {header.producer_epoch}: "
            "a newer incarnation writes here; nothing was written",
            producer_id=entry.producer_id,
            epoch=header.producer_epoch,
            current_epoch=entry.epoch,
        )


def _check_marker(entry: ProducerEntry, header: BatchHeader, marker: EndMarker | None) -> None:
    _check_epoch(entry, header)
    if marker is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        raise ProducerFenced(
            f"a coordinator of epoch {marker.coordinator_epoch} ends a transaction of producer {entry.producer_id}, "
            f"but one of epoch {entry.coordinator_epoch} did so before; nothing was written",
            producer_id=entry.producer_id,
            epoch=header.producer_epoch,
            current_epoch=entry.epoch,
        )


def _check_next(entry: ProducerEntry, header: BatchHeader) -> None:
    _check_epoch(entry, header)
    if entry.transaction_start != NONE and not header.is_transactional:
        raise InvalidRecord(
            f"producer {entry.producer_id} has had a transaction open since offset {entry.transaction_start}, but this "
            "batch is not transactional; nothing was written"
        )
    sequence = header.base_sequence
    if sequence == NO_SEQUENCE:
        return  # a batch from the coordinator: only the epoch counts
    is_new = header.producer_epoch != entry.epoch
    expected = 0 if is_new else entry.next_sequence
    if sequence == expected:
        return
    # Sequences wrap around, so the shorter distance decides whether this one is ahead or behind.
    is_behind = bool(entry.batches) and not is_new and (sequence - expected) % _SEQUENCES >= _SEQUENCES // 2
    if is_behind:
        raise DuplicateSequence(
            f"producer {entry.producer_id}, epoch {header.producer_epoch}: sequence {sequence} was already "
            f"written, but not in one of the last {BATCHES_REMEMBERED} batches; expected sequence {expected}; nothing "
            "was written",
            producer_id=entry.producer_id,
            epoch=header.producer_epoch,
            sequence=sequence,
            expected=expected,
        )
    raise OutOfOrderSequence(
        f"producer {entry.producer_id}, epoch {header.producer_epoch}: expected sequence {expected}, got {sequence}; "
        "send the missing records first; nothing was written",
        producer_id=entry.producer_id,
        epoch=header.producer_epoch,
        sequence=sequence,
        expected=expected,
    )


def _mixed(batches: Sequence[ProducerBatch], repeated: Sequence[WrittenBatch]) -> DuplicateSequence:
    header = batches[0].header
    return DuplicateSequence(
        f"{len(repeated)} of {counted(len(batches), 'batch', 'batches')} of one append are already in the log, the "
        f"last at offset {repeated[-1].last_offset}, but not as one run; append the batches one by one; nothing was "
        "written",
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        sequence=header.base_sequence,
        expected=next_sequence(repeated[-1].last_sequence),
    )
