"""How much of each work is done: in the default run, and in one that only shows that everything runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Counts are of records unless they say otherwise."""

    repetitions: int = 10
    short_turns: int = 150
    appended: int = 500_000
    appended_by_peers: int = 100_000
    appended_a_turn: int = 2_000
    durable: int = 1_000
    durable_threaded: int = 12_800
    durable_written: int = 100_000
    durable_bulk_calls: int = 48
    durable_repetitions: int = 5
    stored: int = 10_000_000
    reads_a_turn: int = 1_000
    cold_reads: int = 400
    sought: int = 1_000_000
    stored_large: int = 100_000_000
    scanned: int = 4_000_000
    scanned_by_naive: int = 500_000
    recovered: int = 2_000_000
    recovered_by_naive: int = 200_000
    segments: int = 1_000


FULL = Scale()
QUICK = Scale(
    repetitions=3,
    short_turns=30,
    appended=100_000,
    appended_by_peers=50_000,
    durable=200,
    durable_threaded=6_400,
    durable_written=20_000,
    durable_bulk_calls=16,
    durable_repetitions=3,
    stored=500_000,
    cold_reads=100,
    # The target of this row is about this very size.
    sought=1_000_000,
    scanned=1_000_000,
    scanned_by_naive=200_000,
    recovered=500_000,
    recovered_by_naive=100_000,
)
