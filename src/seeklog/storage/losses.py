"""The list of offsets that repairs of a partition have given up, `seeklog-losses`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from seeklog import names
from seeklog.errors import CorruptionError
from seeklog.files import Files
from seeklog.record.framed import decode_framed, encode_framed
from seeklog.storage.checkpoint import replace_file

_FIRST_LINE: Final = f"{names.LOSSES} 1"
_LOST: Final = re.compile(r"lost (\d{1,19}) (\d{1,19}) ", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Offsets that no record has any more: from `first_offset` on, below `next_offset`."""

    first_offset: int
    next_offset: int
    reason: str


def add_losses(files: Files, directory: str, losses: Iterable[Loss], *, now_ms: int) -> None:
    """Add what is not on the list yet. The caller syncs the directory."""
    known: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        # One that is damaged is kept as far as it goes: a repair must not end here.
        known = files.read_file(f"{directory}/{names.LOSSES}").decode("utf-8", "replace").splitlines()[1:-1]
    ranges = {tuple(line.split()[1:3]) for line in known}
    for loss in losses:
        if (str(loss.first_offset), str(loss.next_offset)) not in ranges:
            reason = loss.reason.encode("ascii", "replace").decode().replace("\n", " ")
            known.append(f"lost {loss.first_offset} {loss.next_offset} {now_ms} {reason}")
    replace_file(files, directory, names.LOSSES, encode_framed(_FIRST_LINE, known))


def read_losses(files: Files, directory: str, *, advice: str) -> list[tuple[int, int]]:
    """Return what was given up: first offsets, and those behind the last ones. Raises `CorruptionError` with advice."""
    path = f"{directory}/{names.LOSSES}"
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return []
    losses = []
    for line in decode_framed(data, _FIRST_LINE, what="the list of lost offsets", path=path, advice=advice):
        match = _LOST.match(line)
        if match is None:
            raise CorruptionError(f"{line!r} tells no lost offsets", path=path, advice=advice)
        losses.append((int(match[1]), int(match[2])))
    return losses
