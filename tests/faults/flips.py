"""Single bits of files, flipped one at a time."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from faults.damage import Tally, judge
from seeklog import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crash.sim import Disk
    from faults.damage import Victim


def bits_of(disk: Disk, paths: Iterable[str], *, step: int = 1) -> Iterator[tuple[str, int]]:
    """Yield each `step`th bit of some files as path and number.

    Of the zeros at the end of a catalog only the first are flipped: they are all the same to it.
    """
    number = 0
    for path in paths:
        data = disk.files[path]
        size = len(data.rstrip(b"\0")) + 8 if posixpath.basename(path) == names.TOPICS else len(data)
        for bit in range(8 * size):
            number += 1
            if number % step == 0:
                yield path, bit


def flipped(data: bytes, bit: int) -> bytes:
    """Return bytes with one bit flipped."""
    turned = bytearray(data)
    turned[bit // 8] ^= 1 << bit % 8
    return bytes(turned)


def try_flips(victim: Victim[Any, Any], bits: Iterable[tuple[str, int]], *, read_only: bool) -> Tally:
    """Judge a victim with each of these bits flipped."""
    tally = Tally()
    for path, bit in bits:
        disk = victim.disk.with_file(path, flipped(victim.disk.files[path], bit))
        verdict = judge(victim, disk, path=path, read_only=read_only)
        mode = "read-only" if read_only else "for writing"
        where = f"{victim.name}, {mode}, {posixpath.basename(path)} byte {bit // 8} bit {bit % 8}"
        tally.add(where, verdict)
    return tally
