"""What `to_lake` copies: the sealed segments behind what the manifest has, held against what the store is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seeklog.config import INT64_MAX
from seeklog.errors import ArchiveMismatch
from seeklog.files import ReadOnlyFiles
from seeklog.log import LogReader, take_snapshot
from seeklog.names import TopicPartition
from seeklog.spark.lake.manifest import LakePartition, Manifest
from seeklog.spark.read.offsets import Bounds, Range, find_bounds
from seeklog.spark.read.options import Choice
from seeklog.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What of one partition is copied by one job."""

    at: TopicPartition
    topic_id: str
    start: int
    next_offset: int
    lost: int
    """Offsets behind what the lake has that were gone before they could be copied."""

    @property
    def range(self) -> Range:
        return Range(self.at, self.start, self.next_offset)


def plan_shares(store: Store, manifest: Manifest, topics: Iterable[str]) -> list[Share]:
    """Return what is to be copied, a share for each partition, also where that is nothing.

    A topic that is not the one the lake has, or whose log ends before what the lake has, raises `ArchiveMismatch`.
    """
    shares = []
    bounds = find_bounds(store, Choice(topics=tuple(topics))) if topics else {}
    check_against(manifest.partitions, bounds)
    for at, here in bounds.items():
        known = manifest.partitions.get(at)
        end = sealed_end(store.log(at.topic, at.partition), here)
        begin = here.log_start_offset if known is None else known.next_offset
        start = max(begin, here.log_start_offset)
        # Nothing is lost as long as nothing behind it is copied: the next job would count it again.
        lost = start - begin if start < end else 0
        shares.append(Share(at=at, topic_id=here.topic_id, start=start, next_offset=max(start, end), lost=lost))
    return shares


def check_against(known: Mapping[TopicPartition, LakePartition], bounds: Mapping[TopicPartition, Bounds]) -> None:
    """Raise `ArchiveMismatch` where a partition of the store cannot be the one that the lake was written from."""
    for at, one in known.items():
        here = bounds.get(at)
        if here is None:
            continue
        if here.topic_id != one.topic_id:
            raise ArchiveMismatch(
                f"topic {at.topic} was deleted and made anew: the lake has topic id {one.topic_id}, the store "
                f"{here.topic_id}; write it to another lake, or name it otherwise"
            )
        if here.high_watermark < one.next_offset:
            raise ArchiveMismatch(
                f"{at} ends at offset {here.high_watermark}, and the lake has it up to {one.next_offset}: the log was "
                "cut, or it is another store; write it to another lake"
            )


def sealed_end(log: LogReader, bounds: Bounds) -> int:
    """Return the offset behind the last record that lies in a sealed segment: synced, and never to grow again."""
    seen = take_snapshot(log)
    view, recovery_point = seen.view, seen.recovery_point
    # A broker leaves no seals; what it has rolled it has flushed, too.
    is_brokers = seen.contiguous_from == INT64_MAX
    end = bounds.log_start_offset
    # An archive has sealed segments alone, and nobody writes to the last one.
    is_archive = isinstance(view.last.shared.files, ReadOnlyFiles)
    for segment in view.segments if is_archive else view.segments[:-1]:
        segment.fetch_seal()
        is_durable = is_brokers or segment.seal is not None or segment.next_offset <= recovery_point
        if not is_durable or segment.next_offset > bounds.high_watermark:
            break
        end = max(end, segment.next_offset)
    return end
