"""Target 5: the disk is full, at each write in turn and for real. Nothing is lost, and the same log continues."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Final

import seeklog.files.local
from faults.children import can_strace
from faults.dying import Judge, count_system_calls, run_child, run_traced
from faults.dying import Telling as Watch
from faults.failing import count_calls, fail_simulated
from faults.filling import become_read_only, fill_and_free, fill_with_store, survives
from faults.insisting import INSISTING_WORKS
from faults.peers import PEERS, fill_disk
from faults.real_disk import unplugged
from faults.small_disks import CannotMount, abort, can_mount, ext4, make_ext4, mounted_image, tmpfs
from faults.works import CHOSEN, WORKS
from proof.part import Missing, Run, part
from seeklog import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faults.works import Work
    from seeklog.files import Buffer

POLICIES: Final = ("os", "interval", "batch")
WRITES: Final = frozenset({"write", "create"})
PREFIXES: Final = (0, 1, 61, 512)  # bytes that are written before the error: none, one, a header, a sector
APPENDING: Final = tuple(INSISTING_WORKS[name] for name in CHOSEN if name in INSISTING_WORKS)


@part(
    5, "Fail each write of a real process with ENOSPC, then retry on the same log", covers=("archive", "log", "store")
)
def full_at_each_write_of_a_process(run: Run) -> None:
    if not can_strace():
        raise Missing("strace, and the right to inject: apt-get install strace")
    works = run.choose(APPENDING, short=2)
    with unplugged(run.scratch) as scratch:
        for work in works:
            fill_at_each_write(run, work, scratch / "work")
    run.note(f"{len(works)} workloads")


def fill_at_each_write(run: Run, work: Work, root: Path) -> None:
    judge = Judge()
    count = count_system_calls(work, root, ("pwrite64",))["pwrite64"]
    for number in run.choose(range(1, count + 1), short=8):
        ending = run_traced(work, root, inject=f"pwrite64:error=ENOSPC:when={number}")
        run.case()
        violations = judge.violations(work, ending, root)
        # A truncation that has cut must store the new start of the log; nothing else stops a log on a full disk.
        is_of_a_cut = "truncating failed" in ending.message and f"{names.LOG}>" not in ending.injected[0]
        if "LogFailed" in ending.message and not is_of_a_cut:
            violations.append(ending.message)
        for violation in violations:
            run.violation(f"{work.name}, write {number}: {violation}")


@part(
    5,
    "Fail each write and file creation with ENOSPC on a simulated disk, after part of the bytes",
    covers=("archive", "log", "store"),
)
def full_at_each_write(run: Run) -> None:
    works = run.choose(INSISTING_WORKS.values(), short=3)
    for work in works:
        points = [(n, prefix) for n in range(1, count_calls(work, WRITES) + 1) for prefix in PREFIXES]
        for number, prefix in run.choose(points, short=8):
            run.case()
            for violation in fail_simulated(work, number, methods=WRITES, error=errno.ENOSPC, prefix=prefix):
                run.violation(f"{work.name}, write {number} after {prefix} bytes, {violation}")
    run.note(f"{len(works)} workloads, {len(PREFIXES)} prefixes")


@part(5, "Let the kernel write fewer bytes than asked, then continue or fail", covers=("archive", "log", "store"))
def short_writes(run: Run) -> None:
    """Replace `pwrite` itself, below `files`: every nth write is cut short, and the next may fail."""
    root = run.scratch / "work"
    works = [WORKS[name] for name in CHOSEN]
    chosen = run.choose(works, short=3)
    for work in chosen:
        judge = Judge()
        for most, fails_at in run.choose([(1, 0), (7, 0), (100, 0), (7, 3), (7, 40), (100, 11), (1, 200)], short=2):
            with writing_short(most, fails_at=fails_at):
                ending = run_child(work, root, Watch())
            run.case()
            for violation in judge.violations(work, ending, root):
                run.violation(f"{work.name}, {most} bytes at a time, ENOSPC at {fails_at}: {violation}")
            if not fails_at and ending.message != "done":
                run.violation(f"{work.name}, {most} bytes at a time: {ending.message}")


@contextlib.contextmanager
def writing_short(most: int, *, fails_at: int) -> Iterator[None]:
    """Let `pwrite` write at most so many bytes, and fail with ENOSPC at its nth call."""
    before, calls = seeklog.files.local.pwrite, 0

    def pwrite(handle: int, data: Buffer, position: int) -> int:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return before(handle, memoryview(data)[:most], position)

    seeklog.files.local.pwrite = pwrite  # type: ignore[assignment]
    try:
        yield
    finally:
        seeklog.files.local.pwrite = before


@part(5, "Fill a tmpfs of 1 MB and an ext4 of 4 MB, free space, and fill them again", covers=("log", "store"))
def really_full_disks(run: Run) -> None:
    disk = run.scratch / "disk"
    mounts: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
        "tmpfs": lambda: tmpfs(disk, size="1m"),
        "ext4": lambda: ext4(disk, megabytes=4),
    }
    # Most of a log's disk is filled beforehand, so a few records fill it; a store has its whole disk.
    fillings = [(fill_and_free, 60_000), (fill_with_store, 150_000)]
    cases = [(kind, flush, filling) for kind in mounts for flush in POLICIES for filling in fillings]
    with mounting():
        for number in range(1 if run.is_short else 20):
            for kind, flush, (fill, filler_bytes) in run.choose(cases, short=1):
                run.case()
                with mounts[kind]():
                    for violation in fill(disk, flush=flush, filler_bytes=filler_bytes):
                        run.violation(f"{kind}, {fill.__name__}, flush={flush}, round {number}: {violation}")
    run.note("a log, and a store with groups; neither is reopened")


@part(5, "Turn an ext4 read-only under an open log, then mount it again", covers=("log",))
def read_only_disks(run: Run) -> None:
    image, place = run.scratch / "disk.img", run.scratch / "place"
    with mounting():
        for number in range(1 if run.is_short else 20):
            for flush in run.choose(POLICIES, short=1):
                run.case()
                make_ext4(image, megabytes=8)
                with mounted_image(image, place):
                    said, count = become_read_only(place, flush=flush, make_read_only=lambda: abort(place))
                with mounted_image(image, place):
                    said += survives(place, flush=flush, count=count)
                for violation in said:
                    run.violation(f"flush={flush}, round {number}: {violation}")
    run.note("appends fail, reads continue, all synced records are present")


@part(5, "Fill a tmpfs of 6 MB under other stores, then free space", covers=())
def peers_on_full_disks(run: Run) -> None:
    with mounting():
        for name in run.choose(PEERS, short=1):
            with tmpfs(run.scratch / "disk", size="6m"):
                run.case()
                run.peer(name, fill_disk(name, run.scratch / "disk"))


@contextlib.contextmanager
def mounting() -> Iterator[None]:
    """Raise `Missing` if this process may not mount."""
    if not can_mount():
        raise Missing("the right to mount: run as root")
    try:
        yield
    except CannotMount as refused:
        raise Missing(f"the right to mount: {refused}") from refused
