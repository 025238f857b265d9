"""Replacing segments with a compacted one. A crash leaves either the old segments or the new one.

The files get three names in turn; each step is durable before the next:

    <base>.log.cleaned   being written; deleted after a crash
    <base>.log.swap      finished: it is valid, and the segments that it replaces are not
    <base>.log           in place

The side files `.index .timeindex .seal` and, if needed, `.txnindex` go through the same names.

The rename of the last `.cleaned` to `.swap` is the commit. By Kafka's rule, which `recovery` follows, a `.swap` is
valid unless there is a `.cleaned` with the same base or a lower one, so no `.cleaned` may be left over from before. The
other replaced segments must be deleted before the swap gets its final name, because nothing would distinguish them
afterwards; the segment with the same base is replaced by the rename. The old seal must be deleted first, too.
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

# The seal first: a reader of the new segment's index then sees that the seal has changed, too.
_IN_PLACE: Final = (names.SEAL, *(suffix for suffix in names.BESIDE_LOG if suffix != names.SEAL))
SIDES: Final = (names.OFFSET_INDEX, names.TIME_INDEX, names.SEAL, names.TRANSACTION_INDEX)


def write_sides(
    shared: Shared, state: SegmentState, seal: Seal | None, *, page_table: bytes = b"", aborted: bytes = b""
) -> None:
    """Write and sync the side files of a finished `.log.cleaned`. `aborted` is the index of aborted transactions.

    The last segment of a log has no seal, nor has any segment of a broker.

    If the old segment had a transaction index, an empty one is written too. After a crash nothing else distinguishes
    the old index from the new, and an entry without its marker would make consumers skip committed records.
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
    """Delete every `.cleaned` file. Durable after the next sync of the directory."""
    for name in shared.files.list(shared.directory):
        if name.endswith(names.CLEANED) and names.is_known(name):
            remove_if_exists(shared.files, f"{shared.directory}/{name}")


def commit(shared: Shared, base_offset: int) -> None:
    """Make a cleaned segment valid, now and after a crash."""
    for suffix in SIDES:
        path = shared.path(base_offset, suffix)
        with contextlib.suppress(FileNotFoundError):
            shared.files.rename(path + names.CLEANED, path + names.SWAP)
    path = shared.path(base_offset, names.LOG)
    shared.files.rename(path + names.CLEANED, path + names.SWAP)
    shared.files.sync_directory(shared.directory)


def complete(shared: Shared, base_offset: int, replaced: Iterable[int], *, has_sides: bool) -> None:
    """Rename a committed swap into place, and delete the segments that it replaces, given by their base offsets.

    With `has_sides`, its side files replace the old ones. Otherwise, as after a crash, the existing side files cannot
    be trusted: they are deleted and later rebuilt from the log.
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
