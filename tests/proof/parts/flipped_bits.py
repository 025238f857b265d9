"""Target 3: single bits of every file, flipped one at a time; each time everything is asked again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from faults.flips import bits_of, try_flips
from faults.log_subjects import CODECS, closed_log, compacted_log, killed_log, log_with_watermark
from proof.part import Run, part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faults.damage import Subject

# So many flips of each subject in a short run: some three seconds for all parts.
SHORT: Final = 60


@part(3, "each bit of a closed log and its side files is flipped, with each codec")
def flips_of_a_closed_log(run: Run) -> None:
    flip_all(run, [closed_log(codec) for codec in CODECS])


@part(3, "each bit of the log of a killed process is flipped, with each codec")
def flips_of_a_killed_log(run: Run) -> None:
    flip_all(run, [*map(killed_log, CODECS), log_with_watermark(is_closed=True), log_with_watermark(is_closed=False)])


@part(3, "each bit of a compacted log is flipped, with aborted transactions and key indexes")
def flips_of_a_compacted_log(run: Run) -> None:
    flip_all(run, [*map(compacted_log, CODECS), compacted_log("none", index_interval_bytes=4096)])


def flip_all(run: Run, subjects: Iterable[Subject[Any, Any]]) -> None:
    """Flip every bit of every file of each subject, opened read-only and for writing."""
    counts: Counter[str] = Counter()
    for subject in run.choose(subjects, short=2):
        for read_only in (True, False):
            bits = run.choose(bits_of(subject.disk, sorted(subject.disk.files)), short=SHORT)
            tally = try_flips(subject, bits, read_only=read_only)
            run.case(len(bits))
            counts += tally.counts
            for broken in tally.broken:
                run.violation(broken)
    run.note(", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())))
