"""Putting a compacted segment in the place of those that it was made of: a crash leaves either the old or the new.

The files go through three names, in this order, each step durable before the next:

    <base>.log.cleaned   being written; a crash drops it. With it `.index .timeindex .seal`, and `.txnindex` if need be.
    <base>.log.swap      finished: from here on it counts, and the segments that it stands for do not
    <base>.log           in place

The rename of the last `.cleaned` to `.swap` is the commit: Kafka's rule, which `recovery` follows, is that a `.swap`
counts unless a `.cleaned` of the same base or a lower one is there. Therefore none may be left from before. The other
segments that the swap stands for are gone for good before it gets its name, because nothing would distinguish them
then; the one that has its number is replaced by the rename. The old seal must be gone before, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from seeklog import names
from seeklog.files import remove_if_exists
from seeklog.log.segment import Shared
from seeklog.log.side.seal import Seal, encode_seal
from seeklog.record.segment_state import SegmentState

# The seal goes first: a reader of an index of the new segment finds that the seal is another, too.
_IN_PLACE: Final = (names.SEAL, *(suffix for suffix in names.BESIDE_LOG if suffix != names.SEAL))
SIDES: Final = (names.OFFSET_INDEX, names.TIME_INDEX, names.SEAL, names.TRANSACTION_INDEX)


def write_sides(
    shared: Shared, state: SegmentState, seal: Seal | None, *, page_table: bytes = b"", aborted: bytes = b""
) -> None:
    """Write what goes beside a finished `.log.cleaned`, and sync it. `aborted` is the index of aborted transactions.

    The last segment of a log has no seal, and none of a broker's has one.

    Where there was such an index an empty one is written, too: after a crash nothing else distinguishes the old from
    the new, and an entry without its marker would have consumers skip what is committed later.
    """
    tables = {
        names.OFFSET_INDEX: bytes(state.offset_table),
        names.TIME_INDEX: bytes(state.time_table),
    }
    if seal is not None:
        tables[names.SEAL] = encode_seal(seal, page_table)
    if aborted or names.segment_name(state.base_offset, names.TRANSACTION_INDEX) in shared.files.list(shared.directory):
        tables[names.TRANSACTION_INDEX] = aborted
    for suffix, data in tables.items():
        write_cleaned(shared, state.base_offset, suffix, data)


def write_cleaned(shared: Shared, base_offset: int, suffix: str, data: bytes) -> None:
    files = shared.files
    handle = files.open(shared.path(base_offset, suffix) + names.CLEANED, write=True, create=True)
    try:
        files.truncate(handle, 0)
        files.write(handle, data, 0)
        files.sync(handle)
    finally:
        files.close(handle)


def drop_cleaned(shared: Shared) -> None:
    """Remove every `.cleaned` file. Durable with the next sync of the directory."""
    for name in shared.files.list(shared.directory):
        if name.endswith(names.CLEANED) and names.is_known(name):
            remove_if_exists(shared.files, f"{shared.directory}/{name}")


def commit(shared: Shared, base_offset: int) -> None:
    """Make a cleaned segment count, from now on and after every crash."""
    for suffix in SIDES:
        path = shared.path(base_offset, suffix)
        with contextlib.suppress(FileNotFoundError):
            shared.files.rename(path + names.CLEANED, path + names.SWAP)
    path = shared.path(base_offset, names.LOG)
    shared.files.rename(path + names.CLEANED, path + names.SWAP)
    shared.files.sync_directory(shared.directory)


def complete(shared: Shared, base_offset: int, replaced: Iterable[int], *, has_sides: bool) -> None:
    """Give a committed swap its name, and remove the segments, by their bases, that it stands for.

    With `has_sides` what was written beside it takes the place of the old; otherwise, as after a crash, nothing is
    known of what is there, so it goes and is rebuilt from the log.
    """
    files = shared.files
    for base in replaced:
        if base != base_offset:
            shared.remove(base, names.LOG, *names.BESIDE_LOG)
    for suffix in _IN_PLACE:
        path = shared.path(base_offset, suffix)
        is_moved = False
        if suffix == names.TRANSACTION_INDEX or has_sides:
            with contextlib.suppress(FileNotFoundError):
                files.rename(path + names.SWAP, path)
                is_moved = True
        if not is_moved and (has_sides or suffix != names.TRANSACTION_INDEX):
            shared.remove(base_offset, suffix)
    files.sync_directory(shared.directory)
    path = shared.path(base_offset, names.LOG)
    files.rename(path + names.SWAP, path)
    files.sync_directory(shared.directory)
    path = shared.path(base_offset, names.TRANSACTION_INDEX)
    with contextlib.suppress(FileNotFoundError):
        if not files.file_size(path):
            files.remove(path)
