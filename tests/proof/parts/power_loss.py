"""Target 7: power loss on real file systems. The images that the disk may hold are mounted and checked."""

from __future__ import annotations

from collections import Counter
from typing import Final

from power.filesystems import FILE_SYSTEMS
from power.peers import PEER_WORKS, is_installed
from power.program import lose_power
from power.works import BROKEN_WORKS, ENGINE_WORKS
from proof.part import Run, part

IMAGES: Final = 200  # of each file system
PEER_IMAGES: Final = 50  # of each peer on each file system
# A short run has rolls, a compaction, commits of groups, and a transaction over two partitions.
SHORT_WORKS: Final = ("roll, flush=batch", "compaction", "store: commits", "store: a transaction, flush=os")
SHORT_IMAGES: Final = 6


@part(
    7,
    "Cut power on ext4, xfs and btrfs; mount and check what the disk may hold",
    covers=("archive", "store"),
    uses=("tests/power/__main__.py",),
)
def power_loss(run: Run) -> None:
    works = list(SHORT_WORKS if run.is_short else ENGINE_WORKS)
    broken = list(BROKEN_WORKS)[:1] if run.is_short else list(BROKEN_WORKS)
    images = SHORT_IMAGES if run.is_short else IMAGES
    systems = run.choose(FILE_SYSTEMS, short=1)
    found_out = in_flight = 0
    for number, system in enumerate(systems):
        scratch = run.scratch / f"{number}"
        for judged in lose_power(system, [*works, *broken], images=images, seed=run.seed, scratch=scratch):
            if judged.work not in BROKEN_WORKS:
                run.case()
                in_flight += judged.in_flight > 0
                if judged.violations:
                    run.violation(str(judged))
            elif judged.violations:
                found_out += 1
            else:
                run.violation(f"{judged}: a disk that ignores syncs was not detected")
    run.note(f"{len(works)} workloads on each of {len(systems)} file systems")
    run.note(f"{in_flight} images with writes in flight")
    run.note(f"a disk that ignores syncs is detected {found_out} of {len(broken) * len(systems)} times")
    if not run.is_short:
        lose_power_of_peers(run, systems)


def lose_power_of_peers(run: Run, systems: list[str]) -> None:
    """Cut power while other stores write rows, each acknowledged once it is synced."""
    peers = [name for name, work in PEER_WORKS.items() if is_installed(work.peer)]
    images: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for number, system in enumerate(systems):
        count = PEER_IMAGES * len(peers)
        scratch = run.scratch / f"peers-{number}"
        for judged in lose_power(system, peers, images=count, seed=run.seed, scratch=scratch):
            images[judged.work] += 1
            broken[judged.work] += bool(judged.violations)
    for name in peers:
        run.peer(name, f"{broken[name]} of {images[name]} images with acknowledged rows lost, or not opened")
