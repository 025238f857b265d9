"""The list of offsets that repairs of a partition have given up, `seeklog-losses`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from seeklog import names
from seeklog.errors import CorruptionError
from seeklog.files import Files, is_full, read_if_exists, replace_file
from seeklog.record.framed import decode_framed, encode_framed

logger = logging.getLogger("seeklog")

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
    # A list that is damaged is kept as far as it goes: a repair must not end here.
    data = read_if_exists(files, f"{directory}/{names.LOSSES}") or b""
    known = [line for line in data.decode("ascii", "replace").replace("\ufffd", "?").splitlines() if _LOST.match(line)]
    ranges = {tuple(line.split()[1:3]) for line in known}
    for loss in losses:
        if (str(loss.first_offset), str(loss.next_offset)) not in ranges:
            reason = loss.reason.encode("ascii", "replace").decode().replace("\n", " ")
            known.append(f"lost {loss.first_offset} {loss.next_offset} {now_ms} {reason}")
    replace_file(files, directory, names.LOSSES, encode_framed(_FIRST_LINE, known))


def trim_losses(files: Files, directory: str, *, end: int) -> None:
    """Take off the list what lies after the end of a log that was cut: other records get these offsets.

    A damaged list, or one for which there is no room, stays as it is: it says too much, and never too little.
    """
    path = f"{directory}/{names.LOSSES}"
    try:
        lines = _read_lines(files, path, advice="")
    except CorruptionError:
        return
    kept = [shortened for line in lines if (shortened := _shortened(line, end))]
    if kept == lines:
        return
    try:
        replace_file(files, directory, names.LOSSES, encode_framed(_FIRST_LINE, kept))
    except OSError as error:
        if not is_full(error):
            raise
        logger.warning("%s: no room for a shorter list of lost offsets: %s", directory, error)


def _read_lines(files: Files, path: str, *, advice: str) -> Sequence[str]:
    data = read_if_exists(files, path)
    if data is None:
        return []
    return decode_framed(data, _FIRST_LINE, subject="the list of lost offsets", path=path, advice=advice)


def _shortened(line: str, end: int) -> str:
    """Return what a line says of offsets below `end`; nothing, if it says nothing of them."""
    match = _LOST.match(line)
    if match is None or int(match[2]) <= end:
        return line
    return f"lost {match[1]} {end} {line[match.end() :]}" if int(match[1]) < end else ""


def read_losses(files: Files, directory: str, *, advice: str) -> list[tuple[int, int]]:
    """Return what was given up: first offsets, and those after the last ones. Raises `CorruptionError` with advice."""
    path = f"{directory}/{names.LOSSES}"
    losses = []
    for line in _read_lines(files, path, advice=advice):
        match = _LOST.match(line)
        if match is None:
            raise CorruptionError(f"{line!r} names no lost offsets", path=path, advice=advice)
        losses.append((int(match[1]), int(match[2])))
    return losses
