"""The list of offsets that repairs of a partition gave up, in `seeklog-losses`."""

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
    """Offsets from `first_offset` (inclusive) to `next_offset` (exclusive) whose records are lost."""

    first_offset: int
    next_offset: int
    reason: str


def add_losses(files: Files, directory: str, losses: Iterable[Loss], *, now_ms: int) -> None:
    """Add losses that are not on the list yet. The caller syncs the directory."""
    # The readable lines of a damaged list are kept: the list must not stop a repair.
    data = read_if_exists(files, f"{directory}/{names.LOSSES}") or b""
    known = [line for line in data.decode("ascii", "replace").replace("\ufffd", "?").splitlines() if _LOST.match(line)]
    ranges = {tuple(line.split()[1:3]) for line in known}
    for loss in losses:
        if (str(loss.first_offset), str(loss.next_offset)) not in ranges:
            reason = loss.reason.encode("ascii", "replace").decode().replace("\n", " ")
            known.append(f"lost {loss.first_offset} {loss.next_offset} {now_ms} {reason}")
    replace_file(files, directory, names.LOSSES, encode_framed(_FIRST_LINE, known))


def trim_losses(files: Files, directory: str, *, end: int) -> None:
    """Remove offsets after the end of a truncated log from the list, because other records will get them.

    A damaged list stays as it is, as does one that the disk has no room to replace: it lists too many offsets, never
    too few.
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
        logger.warning("%s: the list of lost offsets was not shortened: %s", directory, error)


def _read_lines(files: Files, path: str, *, advice: str) -> Sequence[str]:
    data = read_if_exists(files, path)
    if data is None:
        return []
    return decode_framed(data, _FIRST_LINE, subject="the list of lost offsets", path=path, advice=advice)


def _shortened(line: str, end: int) -> str:
    """Return a line limited to offsets below `end`, or an empty string if it has none."""
    match = _LOST.match(line)
    if match is None or int(match[2]) <= end:
        return line
    return f"lost {match[1]} {end} {line[match.end() :]}" if int(match[1]) < end else ""


def read_losses(files: Files, directory: str, *, advice: str) -> list[tuple[int, int]]:
    """Return the lost offsets as (first offset, next offset). Raise `CorruptionError` with `advice`."""
    path = f"{directory}/{names.LOSSES}"
    losses = []
    for line in _read_lines(files, path, advice=advice):
        match = _LOST.match(line)
        if match is None:
            raise CorruptionError(f"{line!r} does not name lost offsets", path=path, advice=advice)
        losses.append((int(match[1]), int(match[2])))
    return losses
