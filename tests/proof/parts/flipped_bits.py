"""Target 3: single bits of every file, flipped one at a time. Each time every question is asked again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from faults.flips import bits_of, try_flips
from faults.log_victims import (
    CODECS,
    closed_log,
    compacted_log,
    killed_log,
    log_of_one_batch,
    log_with_watermark,
    repaired_log,
)
from faults.peer_flips import BATCH, flips_read_by
from faults.store_victims import archive, broker_store, closed_store, killed_store, own_files
from proof.part import Run, part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from faults.damage import Victim

# The number of flips for each victim in a short run: some three seconds for all parts.
SHORT: Final = 40


@part(3, "Flip each bit of a closed log and its side files, with each codec", covers=("log",))
def flips_of_a_closed_log(run: Run) -> None:
    flip_all(run, [closed_log(codec) for codec in CODECS])


@part(3, "Flip each bit of a killed process's log, with each codec", covers=("log",))
def flips_of_a_killed_log(run: Run) -> None:
    flip_all(run, [*map(killed_log, CODECS), log_with_watermark(is_closed=True), log_with_watermark(is_closed=False)])


@part(3, "Flip each bit of a repaired log, and of the bytes that the repair quarantined", covers=("log",))
def flips_of_a_repaired_log(run: Run) -> None:
    flip_all(run, [repaired_log()])


@part(3, "Flip each bit of a compacted log with aborted transactions and key indexes", covers=("log",))
def flips_of_a_compacted_log(run: Run) -> None:
    flip_all(run, [*map(compacted_log, CODECS), compacted_log("none", index_interval_bytes=4096)])


@part(
    3,
    "Flip each bit of a store's own files: topics, groups, transactions, staged batches, producers",
    covers=("store",),
)
def flips_of_a_store(run: Run) -> None:
    flip_all(run, [closed_store(), killed_store()], paths_of=own_files)


@part(3, "Flip each bit of an archive, and of the files that a broker left", covers=("archive", "store"))
def flips_of_an_archive(run: Run) -> None:
    flip_all(run, [archive()], modes=(True,))
    flip_all(run, [broker_store()], paths_of=own_files)


@part(3, "Flip each bit of one batch, and read it with other clients too", covers=("log",))
def flips_read_by_peers(run: Run) -> None:
    bits = run.choose(range(8 * len(BATCH)), short=100)
    flip_all(run, [log_of_one_batch()])
    for peer in ("aiokafka, compiled", "aiokafka, pure", "kafka-python"):
        try:
            counts = flips_read_by(peer, bits)
        except ImportError as error:
            run.note(f"{peer} is not installed: {error}")
            continue
        silent = ("wrong offsets or records", "fewer records", "undeclared exception")
        run.peer(peer, f"{', '.join(f'{counts[kind]} {kind}' for kind in silent)} of {len(bits)}")


def flip_all(
    run: Run,
    victims: Iterable[Victim[Any, Any]],
    *,
    paths_of: Callable[[Any], list[str]] = lambda victim: sorted(victim.disk.files),
    modes: Sequence[bool] = (True, False),
) -> None:
    """Flip every bit of every file of each victim, opened read-only and for writing."""
    counts: Counter[str] = Counter()
    for victim in run.choose(victims, short=2):
        for read_only in modes:
            bits = run.choose(bits_of(victim.disk, paths_of(victim)), short=SHORT)
            tally = try_flips(victim, bits, read_only=read_only)
            run.case(len(bits))
            counts += tally.counts
            for broken in tally.broken:
                run.violation(broken)
    run.note("outcomes: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())))
