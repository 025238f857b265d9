"""Whether a broker has written a partition since seeklog did, and which checkpoint then applies.

A store may be handed to a Kafka broker and come back. Our side files do not record what the broker appended, compacted,
deleted or truncated. Trusting them would make its legitimate changes look like damage, and cut them. So the content of
the directory decides whether they still apply.

The first evidence is Kafka's `leader-epoch-checkpoint`: a broker that leads a partition writes its epoch there, while
each of our epochs is in our own checkpoint before it is in that file. The file has no checksum, so a second piece of
evidence must agree: the root belongs to a broker (`meta.properties`), or a batch carries such an epoch, or the files do
not match our seals and checkpoint.

After a visit, none of our side files applies. The broker's offsets are in the root's checkpoints.
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
    """Return the checkpoint that applies to a partition: its own, or the root's if a broker wrote the partition last.

    None if there is no checkpoint: the directory is new, or a broker created it and has not written one yet.
    """
    own = read_checkpoint(files, directory)
    if own is None:
        return inherited
    own, is_visited = check_for_visit(files, directory, own)
    return after_visit(files, directory, own, inherited) if is_visited else own


def check_for_visit(files: Files, directory: str, own: Checkpoint) -> tuple[Checkpoint, bool]:
    """Return the current version of our own checkpoint, and whether a broker led the partition after it was written.

    Another seeklog process may replace the checkpoint and then Kafka's file while this reads one after the other.
    """
    while was_visited(files, directory, own):
        now = read_checkpoint(files, directory)
        if now is None or now == own:
            return own, True
        own = now
    return own, False


def was_visited(files: Files, directory: str, own: Checkpoint) -> bool:
    """Return whether a broker has led the partition since seeklog wrote its own checkpoint."""
    if isinstance(files, ReadOnlyFiles):
        return False  # a copy, which no broker writes
    entries = LeaderEpochs.read(files, directory).entries
    known = own.epochs[-1][0] if own.epochs else -1
    if not entries or entries[-1][0] <= known:
        return False
    return is_in_brokers_root(files, directory) or _contradicts(files, directory, own, known_epoch=known)


def is_in_brokers_root(files: Files, directory: str) -> bool:
    try:
        return files.kind(f"{os.path.dirname(directory)}/{names.META_PROPERTIES}") == "file"
    except OSError:
        return False


def after_visit(files: Files, directory: str, own: Checkpoint, inherited: Checkpoint | None) -> Checkpoint:
    """Return the checkpoint that applies after a broker's visit. Only the generation of our own is kept."""
    recovery_point, log_start_offset = own.recovery_point, own.log_start_offset
    high_watermark = own.high_watermark
    if inherited is not None:
        high_watermark = inherited.high_watermark
        if is_in_brokers_root(files, directory):
            # When the broker started it took over our offsets, and it has advanced them since.
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
    """Return whether the files contradict our side files in a way that only another writer explains."""
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
            # Another process may have just deleted the segment.
            with contextlib.suppress(FileNotFoundError):
                sizes[parsed[0]] = files.file_size(f"{directory}/{name}")
    return sizes


def _epoch_at(files: Files, directory: str, base_offset: int, position: int) -> int:
    handle = Handle(files, f"{directory}/{names.segment_name(base_offset, names.LOG)}")
    data = files.read(handle.number, HEADER_SIZE, position)
    return read_header(data).leader_epoch if len(data) == HEADER_SIZE else -1
