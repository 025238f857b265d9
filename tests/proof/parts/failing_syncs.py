"""Target 4: each sync fails in turn. The log stops, acknowledged records stay, lost pages are rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.children import can_strace
from faults.dying import SYSTEM_CALLS, Judge, count_system_calls
from faults.failing import SYNC_CALLS, SYNCS, count_calls, fail_simulated, fail_system_call
from faults.peers import PEERS, fail_one_sync
from faults.real_disk import unplugged
from faults.works import CHOSEN, FAILING, FILE_WORKS, LOG_WORKS, STORE_WORKS, WORKS
from proof.part import Missing, Run, part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from faults.works import Work

OTHER_CALLS = tuple(call for call in SYSTEM_CALLS if call not in SYNC_CALLS)


@part(4, "Fail each fsync and fdatasync of a real process with EIO", covers=("archive", "log", "store"))
def failing_syncs_of_a_process(run: Run) -> None:
    fail_in_system_calls(run, [WORKS[name] for name in CHOSEN], calls=SYNC_CALLS, errors=["EIO"])


@part(
    4,
    "Fail each other system call that changes or opens a file with EIO and ENOSPC, in a real process: a log",
    covers=("log",),
)
def failing_calls_of_a_log(run: Run) -> None:
    works = [WORKS[name] for name in CHOSEN if name in LOG_WORKS]
    fail_in_system_calls(run, works, calls=OTHER_CALLS, errors=["EIO", "ENOSPC"])


@part(
    4,
    "Fail each other system call that changes a file with EIO and ENOSPC, in a real process: a store, archive, repair",
    covers=("archive", "log", "store"),
)
def failing_calls_of_a_store(run: Run) -> None:
    works = [WORKS[name] for name in CHOSEN if name not in LOG_WORKS]
    fail_in_system_calls(run, works, calls=OTHER_CALLS[:-1], errors=["EIO", "ENOSPC"])


@part(
    4,
    "Fail each sync with EIO on a simulated disk that then loses the pages: a log, archive, repair",
    covers=("archive", "log"),
)
def failing_syncs_of_a_log(run: Run) -> None:
    fail_syncs(run, (LOG_WORKS | FILE_WORKS).values())


@part(4, "Fail each sync with EIO on a simulated disk that then loses the pages: a store", covers=("store",))
def failing_syncs_of_a_store(run: Run) -> None:
    fail_syncs(run, STORE_WORKS.values())


@part(4, "Fail one fdatasync under other stores", covers=())
def peers_whose_sync_fails(run: Run) -> None:
    if not can_strace():
        raise Missing("strace, and the right to inject: apt-get install strace")
    for number, name in enumerate(run.choose(PEERS, short=1)):
        run.case()
        run.peer(name, fail_one_sync(name, run.scratch / f"{number}"))


def fail_in_system_calls(run: Run, works: Iterable[Work], *, calls: tuple[str, ...], errors: Collection[str]) -> None:
    """Fail each call of each workload in turn, with each of the errors."""
    if not can_strace():
        raise Missing("strace, and the right to inject: apt-get install strace")
    # The works with a swap set it up by their own calls, which must not fail.
    chosen = run.choose([work for work in works if not work.name.startswith("compaction swap")], short=2)
    with unplugged(run.scratch) as scratch:
        for work in chosen:
            fail_calls_of(run, work, scratch / "work", calls=calls, errors=errors)
    run.note(f"{len(chosen)} workloads")


def fail_calls_of(run: Run, work: Work, root: Path, *, calls: tuple[str, ...], errors: Collection[str]) -> None:
    judge = Judge()
    counts = count_system_calls(work, root, calls)
    points = [
        (call, number, error) for call, count in counts.items() for number in range(1, count + 1) for error in errors
    ]
    for call, number, error in run.choose(points, short=6):
        run.case()
        for violation in fail_system_call(work, root, judge, call=call, number=number, error=error):
            run.violation(f"{work.name}, {error} from {call} {number}: {violation}")


def fail_syncs(run: Run, works: Iterable[Work]) -> None:
    """Fail each sync of each workload in turn; a power loss then takes the pages."""
    chosen = run.choose([work for work in works if work.name not in FAILING], short=3)
    for work in chosen:
        for number in run.choose(range(1, count_calls(work, SYNCS) + 1), short=5):
            run.case()
            for violation in fail_simulated(work, number, methods=SYNCS):
                run.violation(f"{work.name}, sync {number}, {violation}")
    run.note(f"{len(chosen)} workloads")
