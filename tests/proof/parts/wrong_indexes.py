"""Target 8: indexes that are wrong in many ways."""

from __future__ import annotations

from itertools import product

from faults.wrong_indexes import ACTIVE, SEALED, SUFFIXES, WAYS, link_objection, objection
from proof.part import Run, part
from seeklog import names


@part(8, "Replace an index of offsets, times or keys by a wrong one, in sealed and active segments", covers=("log",))
def wrong_indexes(run: Run) -> None:
    # Only sealed segments have a key index, and there are two.
    places = [
        (suffix, which % 2 if suffix == names.KEY_INDEX else which)
        for suffix, which in product(SUFFIXES, (SEALED, ACTIVE))
    ]
    cases = list(product(WAYS, places, (True, False)))
    for way, (suffix, which), read_only in run.choose(cases, short=30):
        run.case()
        said = objection(way, suffix=suffix, which=which, read_only=read_only)
        if said:
            run.violation(f"{suffix} of segment {which}, {way}, read_only={read_only}: {said}")
    for number, ((suffix, which), read_only) in enumerate(product(places, (True, False))):
        run.case()
        said = link_objection(run.scratch / str(number), suffix=suffix, which=which, read_only=read_only)
        if said:
            run.violation(f"{suffix} of segment {which} is a link, read_only={read_only}: {said}")
    run.note(f"{len(WAYS) + 1} kinds of damage")
