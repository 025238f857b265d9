"""Target 2: files that end too early, cut at every byte."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from faults.disks import files_with
from faults.log_victims import CODECS, closed_log, compacted_log, killed_log, repaired_log
from faults.store_victims import archive, closed_store, killed_store, own_files
from faults.tears import ONE_SEGMENT, log_with_a_last_batch, prefixes_of, tail_objection, try_tears
from proof.part import Run, part
from seeklog import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faults.damage import Victim

SHORT: Final = 40


@part(2, "Tear the last batch at each byte: 1 and 100 records, each codec", covers=("log",))
def torn_batches(run: Run) -> None:
    for codec in CODECS:
        for count in (1, 100):
            disk, whole_size = log_with_a_last_batch(codec, count)
            # The last size is the whole batch, at which nothing is cut.
            sizes = range(len(disk.files[ONE_SEGMENT]) - whole_size + 1)
            for cut in run.choose(sizes, short=8):
                for read_only in (True, False):
                    run.case()
                    objection = tail_objection(codec, count, cut, read_only=read_only)
                    if objection:
                        run.violation(f"{codec}, {count} records, {cut} bytes, read_only={read_only}: {objection}")


@part(2, "Tear each segment of a closed, a compacted and a repaired log at each byte", covers=("log",))
def torn_segments(run: Run) -> None:
    victims = [closed_log("none"), compacted_log("none"), repaired_log()]
    tear_all(run, [(victim, files_with(victim.disk, names.LOG)) for victim in victims])


@part(2, "Tear each file beside a log at each byte", covers=("log",))
def torn_side_files(run: Run) -> None:
    victims = [closed_log("none"), killed_log("none"), compacted_log("none")]
    tear_all(
        run,
        [(victim, sorted(path for path in victim.disk.files if not path.endswith(names.LOG))) for victim in victims],
    )


@part(
    2,
    "Tear each file of a store at each byte: topics, groups, transactions, staged batches, an archive",
    covers=("archive", "store"),
)
def torn_store_files(run: Run) -> None:
    tear_all(run, [(victim, own_files(victim)) for victim in (closed_store(), killed_store(), archive())])


def tear_all(run: Run, work: Iterable[tuple[Victim[Any, Any], list[str]]]) -> None:
    counts: Counter[str] = Counter()
    for victim, paths in work:
        for read_only in (True, False):
            if not read_only and victim is archive():
                continue  # archives are read-only
            tears = run.choose(prefixes_of(victim.disk, paths), short=SHORT // 2 if run.is_short else 0)
            tally = try_tears(victim, tears, read_only=read_only)
            run.case(len(tears))
            counts += tally.counts
            for broken in tally.broken:
                run.violation(broken)
    run.note("outcomes: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())))
