"""Single bits of files, flipped one at a time."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from faults.damage import Tally, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crash.sim import Disk
    from faults.damage import Victim


def bits_of(disk: Disk, paths: Iterable[str], *, step: int = 1) -> Iterator[tuple[str, int]]:
    """Yield each `step`th bit of some files as path and number."""
    number = 0
    for path in paths:
        for bit in range(len(disk.files[path]) * 8):
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
