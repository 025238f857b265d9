"""The amount of work of each figure, in the default run and in a quick run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Counts are of records unless the name says otherwise."""

    repetitions: int = 10
    short_turns: int = 150
    appended: int = 500_000
    appended_by_peers: int = 100_000
    appended_a_turn: int = 2_000
    durable_a_turn: int = 40
    durable_threaded: int = 3_200
    durable_written: int = 50_000
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
    sent_a_turn: int = 100_000
    consumed: int = 400_000
    partitions: int = 1_000
    topics: int = 10_000
    keyed: int = 10_000_000
    spark_rows: int = 10_000_000
    spark_turns: int = 4


FULL = Scale()
QUICK = Scale(
    repetitions=3,
    short_turns=30,
    appended=100_000,
    appended_by_peers=50_000,
    durable_written=20_000,
    stored=500_000,
    cold_reads=100,
    # The target of this row is for this size.
    sought=1_000_000,
    scanned=1_000_000,
    scanned_by_naive=200_000,
    recovered=500_000,
    recovered_by_naive=100_000,
    sent_a_turn=50_000,
    consumed=100_000,
    topics=1_000,
    keyed=500_000,
    spark_rows=1_000_000,
    spark_turns=1,
)
