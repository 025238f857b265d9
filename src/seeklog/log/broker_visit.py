"""Whether a broker has written a partition since seeklog did, and what counts then.

A store may go to a Kafka broker and come back. A broker appends, compacts, deletes and cuts rightly, and our side files
know nothing of it: by them its work would be taken for damage, and cut. So content decides whether they still speak of
the files beside them. The first witness is Kafka's `leader-epoch-checkpoint`: a broker that leads a partition writes
its epoch there, and every epoch of ours is in our own checkpoint before it is in that file. No checksum covers the
file, so a second witness must agree: the root is a broker's (`meta.properties`), or a batch carries such an epoch, or
the files are not the ones that seals and checkpoint describe.

After a visit no side file of ours counts. The offsets that a broker vouches for are those in the root's checkpoints.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.files import Files, Handle, ReadOnlyFiles
from seeklog.log.side.checkpoint import Checkpoint, read_checkpoint
from seeklog.log.side.epochs import LeaderEpochs
from seeklog.log.side.seal import read_seal
from seeklog.record.batch import read_header
from seeklog.record.layout import HEADER_SIZE


def known_checkpoint(files: Files, directory: str, *, inherited: Checkpoint | None) -> Checkpoint | None:
    """Return the checkpoint that counts for a partition: its own, or what the root says where a broker wrote last.

    None where nothing is known: a new directory, or one that a broker has made and not yet written a checkpoint for.
    """
    own = read_checkpoint(files, directory)
    if own is None:
        return inherited
    own, is_visited = look_for_visit(files, directory, own)
    return after_visit(files, directory, own, inherited) if is_visited else own


def look_for_visit(files: Files, directory: str, own: Checkpoint) -> tuple[Checkpoint, bool]:
    """Return our own checkpoint by now, and whether a broker has led the partition since it was written.

    A writer of ours may replace the checkpoint and then Kafka's file while this reads one after the other.
    """
    while was_visited(files, directory, own):
        now = read_checkpoint(files, directory)
        if now is None or now == own:
            return own, True
        own = now
    return own, False


def was_visited(files: Files, directory: str, own: Checkpoint) -> bool:
    """Tell whether a broker has led the partition since seeklog wrote its own checkpoint."""
    if isinstance(files, ReadOnlyFiles):
        return False  # a copy, which no broker writes
    entries = LeaderEpochs.read(files, directory).entries
    known = own.epochs[-1][0] if own.epochs else -1
    if not entries or entries[-1][0] <= known:
        return False
    return is_in_brokers_root(files, directory) or _contradicts(files, directory, own, known_epoch=known)


def is_in_brokers_root(files: Files, directory: str) -> bool:
    """Tell whether a partition lies in a directory that a broker has formatted."""
    try:
        return files.kind(f"{os.path.dirname(directory)}/{names.META_PROPERTIES}") == "file"
    except OSError:
        return False


def after_visit(files: Files, directory: str, own: Checkpoint, inherited: Checkpoint | None) -> Checkpoint:
    """Return what counts after a broker's visit. Only the generation of our own checkpoint goes on."""
    recovery_point, log_start_offset = own.recovery_point, own.log_start_offset
    high_watermark = own.high_watermark
    if inherited is not None:
        high_watermark = inherited.high_watermark
        if is_in_brokers_root(files, directory):
            # The broker took our offsets over when it started, and has gone on from them.
            recovery_point, log_start_offset = inherited.recovery_point, inherited.log_start_offset
        else:
            log_start_offset = max(log_start_offset, inherited.log_start_offset)
    return replace(
        own,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        contiguous_from=INT64_MAX,
        epochs=(),
        active=None,
        has_producers=None,
        gaps=(),
        foreign=True,
        is_visited=True,
    )


def _contradicts(files: Files, directory: str, own: Checkpoint, *, known_epoch: int) -> bool:
    """Tell whether the files are not those that our side files describe, in a way that only another writer explains."""
    sizes = _log_sizes(files, directory)
    if not sizes:
        return False
    last = max(sizes)
    if min(sizes) > own.log_start_offset:
        return True
    for base_offset, size in sizes.items():
        seal = read_seal(files, directory, base_offset) if base_offset != last else None
        if seal is not None and seal.size != size:
            return True
    at = {last: 0}
    if own.active is not None:
        base_offset, closed_size = own.active.base_offset, own.active.size
        if sizes.get(base_offset, 0) < closed_size:
            return True
        at[base_offset] = closed_size
    return any(_epoch_at(files, directory, base, position) > known_epoch for base, position in at.items())


def _log_sizes(files: Files, directory: str) -> Mapping[int, int]:
    sizes = {}
    for name in files.list(directory):
        parsed = names.parse_segment_name(name)
        if parsed is not None and parsed[1] == names.LOG:
            # A writer in another process may have just deleted the segment.
            with contextlib.suppress(FileNotFoundError):
                sizes[parsed[0]] = files.file_size(f"{directory}/{name}")
    return sizes


def _epoch_at(files: Files, directory: str, base_offset: int, position: int) -> int:
    """Return the leader epoch of the batch at a position, -1 if none is there."""
    handle = Handle(files, f"{directory}/{names.segment_name(base_offset, names.LOG)}")
    data = files.read(handle.number, HEADER_SIZE, position)
    return read_header(data).leader_epoch if len(data) == HEADER_SIZE else -1
