"""Compaction of partitions with a broker's transactions: which batches go, when, and which are left alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crash.faulty import FaultyFiles
from log.compacting import Crashed, CrashingFiles
from log.histories import (
    ABORT,
    COMMIT,
    DATA,
    EMPTY,
    Coordinator,
    Piece,
    aborted_of,
    bound_of,
    clean,
    indexed_markers,
    open_starts,
    pieces_of,
)
from log.workbench import FakeClock, QuickFiles, contents, crashed_copy, open_log, segment_bases
from seeklog import Log, names
from seeklog.errors import CorruptionError, LogFailed

DAY_MS = 24 * 3600 * 1000
WORDS: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 50_000, "delete_retention_ms": DAY_MS}


def open_compacted(path: Path, **settings: Any) -> Log:
    return open_log(path, **(WORDS | settings))


def all_pieces(path: Path) -> list[Piece]:
    return [piece for pieces in pieces_of(path).values() for piece in pieces]


def seen(path: Path) -> list[str]:
    """Return the batches of the log, written as in a history."""
    settings = []
    for piece in all_pieces(path):
        producer = str(piece.producer) if piece.producer >= 0 else ""
        ends = {COMMIT: "+", ABORT: "-", EMPTY: "()"}.get(piece.kind, "")
        keys = "".join(
            (key or b"").decode().upper() if value is None else (key or b"").decode() for _, key, value in piece.rows
        )
        settings.append(producer + (ends or keys or "()") + ("!" if piece.horizon_ms is not None else ""))
    return settings


def look(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.scan()]


def expire_producers(clock: FakeClock) -> None:
    clock.advance(2 * DAY_MS)


# ---------------------------------------------------------------- a table of histories

# The log after each of three compactions a month apart, with all producers expired: a month is longer than a delete
# horizon. `()` is a header without records, `!` a batch with a delete horizon.
HISTORIES = [
    # Records without a transaction are compacted as usual.
    ("a b a |", ["b a", "b a", "b a"]),
    # Committed records supersede others, and are superseded.
    ("a 1a 1+ b |", ["1a 1+ b"] * 3),
    ("1a 1+ a b |", ["1+ a b", "1+! a b", "a b"]),
    # Aborted records are removed, and supersede nothing.
    ("a 1a 1- b |", ["a 1- b", "a 1-! b", "a b"]),
    ("1ab a 1- 1a 1+ b |", ["1- 1a 1+ b", "1-! 1a 1+ b", "1a 1+ b"]),
    # An aborted tombstone deletes nothing; a committed one waits for its horizon.
    ("a 1A 1- b |", ["a 1- b", "a 1-! b", "a b"]),
    ("a 1A 1+ b |", ["1A! 1+ b", "1+ b", "1+! b"]),
    # Transactions of several producers at once.
    ("1a 2a 1- 2+ b |", ["2a 1- 2+ b", "2a 1-! 2+ b", "2a 2+ b"]),
    ("1a 2a 2- 1+ b |", ["1a 2- 1+ b", "1a 2-! 1+ b", "1a 1+ b"]),
    # Data in one segment, the marker in another.
    ("1a b | 1- c |", ["b 1- c", "b 1-! c", "b c"]),
    ("1a b | a 1- | c 1b 1- |", ["b a 1- c 1-", "b a 1-! c 1-!", "b a c 1()"]),
    # A marker without batches, as of a transaction that touched only other partitions.
    ("a 1+ 1- b |", ["a 1+! 1-! b", "a b", "a b"]),
    # The last batch of a file keeps at least its header, so the file ends at the same offset.
    ("a 1b 1- |", ["a 1-", "a 1-!", "a 1()"]),
    # An open transaction bounds compaction, from the start of its segment.
    ("a a | 1a | a |", ["a 1a a"] * 3),
    ("1a a a |", ["1a a a"] * 3),
    ("a 1a | 2b 2- | 1- a |", ["2- 1- a", "2-! 1-! a", "a"]),
]


@pytest.mark.id("compaction-transactions")
@pytest.mark.parametrize(("history", "expected"), HISTORIES)
def test_compaction_of_each_history_in_table(tmp_path: Path, history: str, expected: Sequence[str]) -> None:
    clock = FakeClock()
    with open_compacted(tmp_path, clock=clock) as log:
        Coordinator(log).do(history)
        clock.advance(30 * DAY_MS)
        for left in expected:
            before = look(log)
            log.compact()
            assert seen(tmp_path) == left.split()
            assert set(look(log)) <= set(before)
            clock.advance(30 * DAY_MS)


def test_marker_of_known_producer_is_kept_for_its_epoch(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_compacted(tmp_path, clock=clock) as log:
        coordinator = Coordinator(log)
        coordinator.put(("a", b"value"), producer=1)
        # A coordinator that fences its producer ends the transaction with a higher epoch, which no other batch has.
        coordinator.end(1, commits=False, epoch=5)
        coordinator.do("b |")
        for left in ("1- b", "1-! b"):
            log.compact()
            assert seen(tmp_path) == left.split()
        clock.advance(DAY_MS - 1)
        coordinator.end(1, commits=False, epoch=5)
        clock.advance(1)
        log.compact()
        assert seen(tmp_path) == ["1()", "b", "1-"]


# ---------------------------------------------------------------- batches that are left alone


def test_open_transaction_bounds_dirty_range(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        coordinator = Coordinator(log)
        coordinator.do("a a | a 1b a | a a |")
        before = segment_bases(tmp_path)
        done = log.compact()
        assert done.first_dirty_offset == before[1]
        assert seen(tmp_path) == ["a", "a", "1b", "a", "a", "a"]
        coordinator.do("1- |")
        assert log.compact().first_dirty_offset == segment_bases(tmp_path)[-1]
        assert seen(tmp_path) == ["1()", "a", "1-"]


def test_transaction_with_marker_above_watermark_counts_as_open(tmp_path: Path) -> None:
    with open_compacted(tmp_path, high_watermark="manual") as log:
        Coordinator(log).do("a a | 1a a | 1- | b |")
        bases = segment_bases(tmp_path)
        log.advance_high_watermark(bases[2])
        assert log.compact().first_dirty_offset == bases[1]
        assert seen(tmp_path) == ["a", "1a", "a", "1-", "b"]
        log.advance_high_watermark(bases[3])
        log.compact()
        assert seen(tmp_path) == ["1()", "a", "1-", "b"]


@pytest.mark.id("compaction-marker-damaged")
def test_damaged_later_marker_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        Coordinator(log).do("a a 1b b | c c | 1+ |")
        log.flush()
        victim = tmp_path / f"{segment_bases(tmp_path)[2]:020d}.log"
        data = bytearray(victim.read_bytes())
        # The type in the marker's key: a commit becomes an abort.
        data[data.index(b"\0\0\0\1", 61) + 3] ^= 1
        victim.write_bytes(data)
        before = contents(tmp_path)
        with pytest.raises(CorruptionError, match=victim.name):
            log.compact()
        assert contents(tmp_path) == before


# ---------------------------------------------------------------- the index of aborted transactions


@pytest.mark.parametrize("has_index", [False, True])
def test_index_lists_aborted_transactions_with_batches(tmp_path: Path, has_index: bool) -> None:
    clock = FakeClock()
    with open_compacted(tmp_path, clock=clock) as log:
        # Offsets:           0 1  2  3  4  5  6  7  8  9  10
        Coordinator(log).do("a 1a 2b 1- 2c 3a 2- 3+ 4+ 4- | d |")
        by_broker = aborted_of(tmp_path)
        if not has_index:
            (tmp_path / f"{0:020d}.txnindex").unlink()
        expire_producers(clock)
        log.compact()
        assert aborted_of(tmp_path) == {0: [(1, 1, 3, 2), (2, 2, 6, 5)]} == by_broker
        log.compact()
        assert aborted_of(tmp_path) == {}


@pytest.mark.parametrize("is_interrupted", [False, True])
@pytest.mark.parametrize(("offset", "markers"), [(7, [3, 6]), (6, [3]), (5, [3]), (3, []), (0, [])])
def test_truncation_removes_index_entries_of_truncated_markers(
    tmp_path: Path, offset: int, markers: list[int], is_interrupted: bool
) -> None:
    """Goal: a broker's consumer does not skip records that are committed later at the truncated offsets."""
    files = FaultyFiles(QuickFiles(), methods={"read_file"}, only=names.TRANSACTION_INDEX)
    with open_compacted(tmp_path, files=files) as log:
        # Offsets:           0 1  2  3  4  5  6  7  8  9  10
        Coordinator(log).do("a 1a 2b 1- 2c 3a 2- 3+ 4+ 4- | d |")
        log.compact()
        if is_interrupted:
            files.fail_at = files.calls + 1
            with pytest.raises(LogFailed):
                log.truncate_to(offset)
        else:
            log.truncate_to(offset)
    with open_compacted(tmp_path):
        left = aborted_of(tmp_path)
    assert [entry[2] for entry in left.get(0, [])] == markers
    assert bool(left) == bool(markers)


def test_wrong_transaction_index_is_replaced_and_never_used(tmp_path: Path) -> None:
    clock = FakeClock()
    committed = b"\0\0" + (1).to_bytes(8) + (2).to_bytes(8) + (3).to_bytes(8) * 2
    for lie in (b"", b"no index", bytes(68), committed):
        path = tmp_path / str(len(lie))
        with open_compacted(path, clock=clock) as log:
            Coordinator(log).do("a a 1b 1+ 2c 2- d |")
            (path / f"{0:020d}.txnindex").write_bytes(lie)
            expire_producers(clock)
            log.compact()
            assert seen(path) == ["a", "1b", "1+", "2-", "d"]
            assert aborted_of(path) == {0: [(2, 4, 5, 6)]}


def test_transaction_index_without_segment_is_removed(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        Coordinator(log).do("a | b |")
    stray = tmp_path / f"{77:020d}.txnindex"
    stray.write_bytes(bytes(34))
    kept = tmp_path / f"{1:020d}.txnindex"
    kept.write_bytes(bytes(34))
    with open_compacted(tmp_path):
        assert kept.exists()
        assert not stray.exists()


# ---------------------------------------------------------------- against a model


def play(coordinator: Coordinator, chance: random.Random, steps: int) -> None:
    """Append random batches of a few producers, with one transaction each at a time, and batches without producer."""
    for _ in range(steps):
        producer = chance.randrange(1, 4)
        draw = chance.random()
        rows = [
            (chance.choice("abcdefgh"), None if chance.random() < 0.2 else b"%d" % chance.randrange(1000))
            for _ in range(chance.randrange(1, 4))
        ]
        if draw < 0.35:
            coordinator.put(*rows, producer=producer)
        elif draw < 0.55:
            coordinator.put(*rows)
        elif draw < 0.9:
            coordinator.end(producer, commits=chance.random() < 0.5)
        else:
            coordinator.fill(chance.randrange(50, 300))


def check_index(path: Path) -> None:
    """Check the `.txnindex` files: each abort marker with batches has an entry, and each entry has its marker."""
    needed = indexed_markers(all_pieces(path))
    for base, entries in aborted_of(path).items():
        markers = {piece.last_offset: piece.producer for piece in pieces_of(path)[base] if piece.kind == ABORT}
        assert [entry[2] for entry in entries] == sorted(entry[2] for entry in entries)
        for producer, first, last, stable in entries:
            assert markers[last] == producer
            assert first < last
            assert stable <= last + 1
            assert needed.pop(last, (producer, first))[1] >= first
    assert needed == {}


def compact_as_the_model(log: Log, path: Path) -> None:
    """Compact a log in one round, and compare the result with the model."""
    writing = log._partition
    before, bound = all_pieces(path), bound_of(path)
    last_offsets, last_epochs = writing.last_of_producers()
    log.compact()
    expected = clean(
        before,
        bound=bound,
        now_ms=writing.clock.now_ms(),
        delete_retention_ms=DAY_MS,
        last_offsets=last_offsets,
        last_epochs=last_epochs,
    )
    left = pieces_of(path)
    tails = {pieces[-1].base_offset for pieces in left.values() if pieces and not pieces[-1].rows}
    known = {piece.base_offset for piece in expected}
    # Only a header at the end of a file may be there without being in the model.
    found = [
        piece
        for pieces in left.values()
        for piece in pieces
        if piece.base_offset in known or piece.base_offset not in tails or piece.is_marker
    ]
    assert found == expected
    for (_, pieces), (base, _) in pairwise(left.items()):
        assert pieces[-1].last_offset == base - 1
    check_index(path)


@pytest.mark.parametrize("seed", range(30))
def test_compaction_of_any_history_matches_model(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = FakeClock()
    settings: dict[str, Any] = {"clock": clock, "segment_bytes": chance.choice([700, 1500])}
    settings["compression_type"] = chance.choice(["none", "lz4"])
    log = open_compacted(tmp_path, **settings)
    coordinator = Coordinator(log)
    for _ in range(8):
        play(coordinator, chance, chance.randrange(25))
        compact_as_the_model(log, tmp_path)
        clock.advance(chance.choice([0, DAY_MS // 2, 3 * DAY_MS]))
        if chance.random() < 0.3:
            records = look(log)
            log.close()
            log = coordinator.log = open_compacted(tmp_path, **settings)
            assert look(log) == records
    log.close()


def test_many_rounds_give_same_result_as_one(tmp_path: Path) -> None:
    for seed in range(10):
        ends = []
        for place, buffer_bytes in enumerate((1 << 20, 8 * 20)):
            path = tmp_path / f"{seed} {place}"
            with open_compacted(path, segment_bytes=700) as log:
                play(Coordinator(log), random.Random(seed), 80)
                log.compact(buffer_bytes=buffer_bytes)
                ends.append(look(log))
        assert ends[0] == ends[1]


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("has_index", [False, True])
def test_crash_between_any_two_steps_leaves_no_index_entry_without_marker(tmp_path: Path, has_index: bool) -> None:
    step = 0
    has_died = True
    while has_died:
        path = tmp_path / str(step)
        files, clock = CrashingFiles(), FakeClock()
        log = open_compacted(path, files=files, clock=clock)
        Coordinator(log).do("a 1a 1- b | c 2c 2- a | d 3a |")
        expire_producers(clock)
        if has_index:
            # After two compactions the markers have horizons, which have passed by the next one. The second compaction
            # was cut short, so the entries are still there.
            log.compact()
            index = path / f"{0:020d}.txnindex"
            entries = index.read_bytes()
            log.compact()
            assert not index.exists()
            index.write_bytes(entries)
            clock.advance(2 * DAY_MS)
            Coordinator(log).do("| e |")
        log.flush()
        before = look(log)
        files.left = step
        try:
            log.compact()
            has_died = False
        except Crashed:
            pass
        files.left = -1
        left = crashed_copy(path, tmp_path / f"{step} left")
        with open_compacted(left, clock=clock) as again:
            check_index(left)
            assert {key for _, key, _ in look(again)} == {key for _, key, _ in before}
            again.compact()
            aborted = [piece for piece in all_pieces(left) if piece.kind == DATA and piece.producer in (1, 2)]
            assert aborted == []
            assert open_starts(all_pieces(left)).keys() == {3}
            assert not [p for p in left.iterdir() if p.name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]
        if not has_died:
            log.close()
        step += 1
    assert step > 8
