"""Transactions as a broker's coordinator writes them to a log, and a model of Kafka's cleaner.

The model works on plain lists of batches by the rules alone: no map of bounded size, no files, no swaps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from log.workbench import START_MS, segment_bases
from seeklog import Log, Record
from seeklog.clock import Clock
from seeklog.record.batch import Batch, encode_batch, split_batches
from seeklog.record.control import decode_end_marker

PLAIN, DATA, COMMIT, ABORT, EMPTY = "plain", "data", "commit", "abort", "an emptied marker"
NO_PRODUCER = -1
ENTRY = struct.Struct(">hqqqq")


def marker(producer: int, *, commits: bool, epoch: int = 0, timestamp_ms: int = START_MS) -> bytes:
    """Return the control batch that ends a producer's transaction."""
    record = Record(struct.pack(">hi", 0, 0), key=struct.pack(">hh", 0, int(commits)), timestamp_ms=timestamp_ms)
    return encode_batch([record], transactional=True, control=True, producer_id=producer, producer_epoch=epoch)


@dataclass
class Coordinator:
    """Appends batches of producers and their coordinator to a log, and writes a `.txnindex` as a broker does."""

    log: Log
    sequences: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)

    @property
    def clock(self) -> Clock:
        return self.log._partition.clock

    def put(self, *rows: tuple[str, bytes | None], producer: int = NO_PRODUCER, epoch: int = 0) -> None:
        """Append one batch of a producer's transaction, or without producer."""
        records = [Record(value, key=key.encode(), timestamp_ms=self.clock.now_ms()) for key, value in rows]
        if producer == NO_PRODUCER:
            self.log.append_batches(encode_batch(records))
            return
        known = self.log.next_sequence(producer)
        sequence = self.sequences.get(producer, 0) if known is None else known.sequence
        self.sequences[producer] = sequence + len(records)
        settings = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        offsets = self.log.append_batches(encode_batch(records, transactional=True, **settings))
        self.starts.setdefault(producer, offsets.start)

    def end(self, producer: int, *, commits: bool, epoch: int = 0) -> None:
        raw = marker(producer, commits=commits, epoch=epoch, timestamp_ms=self.clock.now_ms())
        (offset,) = self.log.append_batches(raw)
        first = self.starts.pop(producer, None)
        if first is not None and not commits:
            stable = min(self.starts.values(), default=offset + 1)
            segment = self.log._source.view.segments[-1]
            with Path(segment.path.removesuffix(".log") + ".txnindex").open("ab") as index:
                index.write(ENTRY.pack(0, producer, first, offset, stable))

    def fill(self, size: int = 600) -> None:
        """Append a batch without producer that is large enough to cause a roll soon."""
        self.put(("fill", bytes(size)))

    def do(self, script: str) -> None:
        """Play a history: `1a` producer 1 appends key a, `a` without producer, `1+` commits, `1-` aborts, `|` rolls.

        A capital letter appends a tombstone for the key in lower case.
        """
        for word in script.split():
            if word == "|":
                writing = self.log._partition
                with writing.lock:
                    if writing.unsealed.active.size:
                        writing.roll()
            elif word[-1] in "+-":
                self.end(int(word[:-1]), commits=word[-1] == "+")
            else:
                digits = word.rstrip("abcdefghABCDEFGH")
                rows = [(each.lower(), None if each.isupper() else b"value") for each in word[len(digits) :]]
                self.put(*rows, producer=int(digits) if digits else NO_PRODUCER)


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Piece:
    """A batch, reduced to what compaction needs."""

    base_offset: int
    last_offset: int
    kind: str
    producer: int
    epoch: int
    rows: tuple[tuple[int, bytes | None, bytes | None], ...]
    """(offset, key, value) of each record; empty for a marker."""
    horizon_ms: int | None = None

    @property
    def is_marker(self) -> bool:
        return self.kind in (COMMIT, ABORT)


def piece_of(batch: Batch) -> Piece:
    header = batch.header
    kind = DATA if header.is_transactional else PLAIN
    if header.is_control:
        found = decode_end_marker(batch.raw)
        kind = EMPTY if found is None else COMMIT if found.is_commit else ABORT
    rows = tuple((record.offset, record.key, record.value) for record in batch.records())
    fields = (header.base_offset, header.last_offset, kind, header.producer_id, header.producer_epoch)
    return Piece(*fields, rows, header.delete_horizon_ms)


def pieces_of(path: Path) -> dict[int, list[Piece]]:
    """Return the batches of each segment of a directory, by its base offset."""
    return {
        base: [piece_of(batch) for batch in split_batches((path / f"{base:020d}.log").read_bytes())]
        for base in segment_bases(path)
    }


def aborted_of(path: Path) -> dict[int, list[tuple[int, ...]]]:
    """Return the entries of each `.txnindex`: (producer, first offset, last offset, last stable offset)."""
    return {
        int(each.name[:20]): [entry[1:] for entry in ENTRY.iter_unpack(each.read_bytes())]
        for each in sorted(path.glob("*.txnindex"))
    }


def open_starts(pieces: Iterable[Piece]) -> dict[int, int]:
    """Return the start of each producer's open transaction."""
    starts: dict[int, int] = {}
    for piece in pieces:
        if piece.kind == DATA:
            starts.setdefault(piece.producer, piece.base_offset)
        elif piece.is_marker:
            starts.pop(piece.producer, None)
    return starts


def bound_of(path: Path) -> int:
    """Return the offset at which compaction must stop: before the active segment and any segment that is not stable."""
    segments = pieces_of(path)
    bases = list(segments)
    stable = min(open_starts(piece for each in segments.values() for piece in each).values(), default=2**63 - 1)
    return max([base for base in bases if base <= stable], default=bases[0])


def aborted_pieces(pieces: Sequence[Piece]) -> set[int]:
    """Return the base offsets of the batches of aborted transactions."""
    found = set()
    for index, piece in enumerate(pieces):
        if piece.kind == DATA:
            ends = (each.kind for each in pieces[index:] if each.is_marker and each.producer == piece.producer)
            if next(ends, None) == ABORT:
                found.add(piece.base_offset)
    return found


def clean(
    pieces: Sequence[Piece],
    *,
    bound: int,
    now_ms: int,
    delete_retention_ms: int,
    last_offsets: Mapping[int, int],
    last_epochs: Mapping[int, int],
) -> list[Piece]:
    """Return the batches that Kafka's cleaner keeps, if everything below `bound` is dirty."""
    aborted = aborted_pieces(pieces)
    latest = {
        key: offset
        for piece in pieces
        if piece.last_offset < bound and piece.base_offset not in aborted
        for offset, key, _ in piece.rows
    }
    left: list[Piece] = []
    has_batches: set[int] = set()
    for piece in pieces:
        if piece.last_offset >= bound:
            left.append(piece)
            continue
        has_passed = piece.horizon_ms is not None and piece.horizon_ms <= now_ms
        if piece.is_marker:
            ends_nothing = piece.producer not in has_batches
            has_batches.discard(piece.producer)
            if not (ends_nothing and has_passed):
                new = now_ms + delete_retention_ms if ends_nothing else None
                left.append(replace(piece, horizon_ms=new if piece.horizon_ms is None else piece.horizon_ms))
                continue
            rows: tuple[tuple[int, bytes | None, bytes | None], ...] = ()
        else:
            if piece.kind == DATA:
                has_batches.add(piece.producer)
            rows = tuple(
                (offset, key, value)
                for offset, key, value in piece.rows
                if piece.base_offset not in aborted and latest[key] == offset and not (value is None and has_passed)
            )
        if rows:
            horizon = piece.horizon_ms
            if horizon is None and any(value is None for _, _, value in rows):
                horizon = now_ms + delete_retention_ms
            left.append(replace(piece, rows=rows, horizon_ms=horizon))
        elif last_offsets.get(piece.producer, -1) == piece.last_offset or (
            piece.kind in (COMMIT, ABORT, EMPTY) and last_epochs.get(piece.producer, -1) == piece.epoch
        ):
            kind = EMPTY if piece.kind in (COMMIT, ABORT, EMPTY) else piece.kind
            left.append(replace(piece, rows=(), horizon_ms=None, kind=kind))
    return left


def indexed_markers(pieces: Iterable[Piece]) -> dict[int, tuple[int, int]]:
    """Return (producer, first offset) of each abort marker that has batches, by its offset.

    A `.txnindex` must contain exactly these.
    """
    markers = {}
    starts: dict[int, int] = {}
    for piece in pieces:
        if piece.kind == DATA:
            starts.setdefault(piece.producer, piece.base_offset)
        elif piece.is_marker:
            first = starts.pop(piece.producer, None)
            if piece.kind == ABORT and first is not None:
                markers[piece.last_offset] = (piece.producer, first)
    return markers
