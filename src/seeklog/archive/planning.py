"""What an archiving has to copy: the sealed segments of a source held against the manifest of an archive.

What does not fit together is refused here, before anything is written. Where compaction has rewritten a segment, and
this is proved by what both hold (`replacement`), the new one gets a name of its own beside the old one, which the next
archiving removes: readers that opened the archive before have that long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from seeklog import names
from seeklog.archive.manifest import (
    PARTITION_FILES,
    Manifest,
    Meter,
    PartitionEntry,
    SegmentEntry,
    StoredFile,
    decode_manifest,
)
from seeklog.archive.replacement import between, check_compacted, records_in
from seeklog.archive.source import Source, SourceTopic, list_sealed, log_parts
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import ArchiveMismatch, CorruptionError, UsageError
from seeklog.files import Files
from seeklog.files.depot import Depot, Version
from seeklog.log import Segment, Shared
from seeklog.log.side import Checkpoint, LeaderEpochs, PageSums, Seal, read_checkpoint, read_losses
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.topics.catalog import Topic, are_different
from seeklog.topics.layout import partition_path, read_topic_id

Verify = Literal["content", "size"]
VERIFY: Final = ("content", "size")
ELSEWHERE: Final = "archive to another place, or move that one aside; nothing was overwritten"


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict an archiving is."""

    verify: Verify = "content"
    allow_gaps: bool = False
    repair: bool = False

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise UsageError(f"verify is one of {', '.join(VERIFY)}, not {self.verify!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One segment to copy, and what was known of it when that was planned. Picklable."""

    partition: TopicPartition
    directory: str
    """Where it lies at the source."""
    config: LogConfig
    base_offset: int
    size: int
    seal: Seal | None
    suffixes: tuple[str, ...]
    stem: str
    """What its files are called in the archive."""
    found: Mapping[str, int]
    """Files of those names that are in the archive already, though no manifest names them, with their sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """What becomes of one partition: entries that stay, and segments that are copied, in the order of their offsets."""

    partition: TopicPartition
    log_start_offset: int
    epochs: tuple[tuple[int, int], ...]
    files: Mapping[str, bytes]
    steps: tuple[SegmentEntry | Copy, ...]
    gaps: frozenset[tuple[int, int]] = frozenset()
    """What may be missing between segments, and is declared where it is."""

    @property
    def copies(self) -> list[Copy]:
        return [step for step in self.steps if isinstance(step, Copy)]

    def entry(self, copied: Iterator[SegmentEntry]) -> PartitionEntry:
        """Return what the manifest is to say once the copies have arrived."""
        segments = tuple(next(copied) if isinstance(step, Copy) else step for step in self.steps)
        holes = ((first.next_offset, second.base_offset) for first, second in pairwise(segments))
        return PartitionEntry(
            partition=self.partition.partition,
            log_start_offset=self.log_start_offset,
            epochs=tuple(epoch for epoch in self.epochs if epoch[1] < segments[-1].next_offset),
            files={name: StoredFile.of(data) for name, data in self.files.items()},
            segments=segments,
            gaps=tuple(hole for hole in holes if hole in self.gaps and hole[0] < hole[1]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done, and the manifest that it was decided by."""

    manifest: Manifest
    version: Version | None
    """The manifest's file. None: there is none yet."""
    topics: tuple[SourceTopic, ...]
    partitions: tuple[PartitionPlan, ...]

    @property
    def copies(self) -> list[Copy]:
        return [copy for partition in self.partitions for copy in partition.copies]


def plan_archive(source: Source, depot: Depot, rules: Rules) -> Plan:
    """Decide what is to be copied. Nothing is written; what does not fit together is refused."""
    version = depot.version(names.ARCHIVE)
    manifest = check_place(depot, version)
    plans: list[PartitionPlan] = []
    for each in source.topics:
        name, topic_id = each.topic.name, each.topic.topic_id
        known = manifest.topics.get(name)
        if known is not None and known.topic_id != topic_id:
            raise ArchiveMismatch(
                f"topic {name!r} was recreated: its id is {topic_id}, and that of the one in {depot.location} is "
                f"{known.topic_id}; {ELSEWHERE}"
            )
        for number in each.topic.partitions:
            partition = TopicPartition(name, number)
            entry = known.partitions.get(number) if known is not None else None
            planner = _Planner(source, each, partition, depot, rules, entry, manifest.replaced_stems(partition))
            plans.append(planner.plan())
    return Plan(manifest=manifest, version=version, topics=tuple(source.topics), partitions=tuple(plans))


def check_place(depot: Depot, version: Version | None) -> Manifest:
    """Return what an archive holds; refuse a place that has other things in it."""
    if version is not None:
        return decode_manifest(version.data, path=f"{depot.location}/{names.ARCHIVE}")
    own = (names.ARCHIVE, names.ARCHIVE_LOCK)
    strangers = [name for name in depot.sizes("") if name not in own and not name.endswith(names.TEMPORARY)]
    if strangers:
        raise ArchiveMismatch(f"{depot.location} is no archive and not empty: it holds {min(strangers)!r}; {ELSEWHERE}")
    return Manifest()


@dataclass(slots=True)
class _Planner:
    """Plans one partition: puts the segments of the source to those that the archive has."""

    source: Source
    topic: SourceTopic
    partition: TopicPartition
    depot: Depot
    rules: Rules
    known: PartitionEntry | None
    lately: frozenset[str]
    """The stems of segments that were replaced: readers may still want their files."""
    old: tuple[SegmentEntry, ...] = ()
    there: Mapping[str, int] = field(default_factory=dict)
    """The files that the archive has of the partition, with their sizes."""
    crcs: dict[int, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.partition} in {self.depot.location}"

    @property
    def compacts(self) -> bool:
        return self.topic.config.compacts

    def plan(self) -> PartitionPlan:
        """Decide what becomes of the partition."""
        known = self.known
        self.old = known.segments if known is not None else ()
        self.there = self.depot.sizes(str(self.partition))
        files, directory = self.source.files, partition_path(self.source.root, self.partition)
        checkpoint = read_checkpoint(files, directory) or self.topic.inherited.get(self.partition.partition)
        shared = Shared(files, directory, self.topic.config, writable=False)
        try:
            archived_end = self.old[-1].next_offset if self.old else 0
            listing, sealed = list_sealed(shared, checkpoint, self.source.clock, archived_end=archived_end)
            steps = self.merge(sealed, _suffixes(listing))
        finally:
            shared.clear()
        beside: dict[str, bytes] = {
            name: files.read_file(f"{directory}/{name}") for name in PARTITION_FILES if name in listing
        }
        epochs = _epochs(files, directory, checkpoint)
        # After all that was read: whoever finds the topic's own directory here has read nothing of another.
        _check_same_topic(self.topic.topic, read_topic_id(files, directory), directory)
        start = checkpoint.log_start_offset if checkpoint is not None else 0
        first = steps[0].base_offset if steps else 0
        gaps = {*(checkpoint.gaps if checkpoint is not None else ()), *self.gap_before(sealed)}
        return PartitionPlan(
            partition=self.partition,
            log_start_offset=known.log_start_offset if known is not None else max(start, first),
            epochs=epochs,
            files=beside,
            steps=tuple(steps),
            gaps=frozenset(gaps.union(known.gaps if known is not None else ())),
        )

    def merge(self, sealed: Sequence[Segment], suffixes: Mapping[int, tuple[str, ...]]) -> list[SegmentEntry | Copy]:
        """Return what stays of the archive and what is copied of the source; refuse what does not fit together."""
        first = sealed[0].base_offset if sealed else INT64_MAX
        before = [entry for entry in self.old if entry.base_offset < first]
        since = {entry.base_offset: entry for entry in self.old if entry.base_offset >= first}
        self._check_follows(before, sealed)
        self._check_covers(since, sealed)
        steps: list[SegmentEntry | Copy] = [*before]
        replacing: list[Segment] = []
        for segment in sealed:
            entry = since.get(segment.base_offset)
            if entry is None or not self._is_same(entry, segment):
                replacing.append(segment)
                steps.append(self._copy(segment, self._free_stem(segment), suffixes[segment.base_offset]))
                continue
            del since[segment.base_offset]
            is_lost = any(self.there.get(name) != file.size for name, file in entry.paths().items())
            steps.append(self._copy(segment, entry.stem, suffixes[segment.base_offset]) if is_lost else entry)
        self._check_stored(
            [step for step in steps if isinstance(step, SegmentEntry)] if self.rules.repair else self.old
        )
        # Files beside a log prove nothing of it: an entry whose log is there is compared, whatever else is lost.
        replaced = [entry for entry in since.values() if self.there.get(f"{entry.stem}{names.LOG}") == entry.log.size]
        self._check_replaced(replaced, replacing)
        return steps

    def gap_before(self, sealed: Sequence[Segment]) -> list[tuple[int, int]]:
        """Return the offsets that are missing between what the archive has and the source's first segment."""
        first = sealed[0].base_offset if sealed else 0
        before = [entry for entry in self.old if entry.base_offset < first]
        # Where the archive has the first one, too, what is missing before it was decided when that was copied.
        if not before or before[-1].next_offset >= first or any(entry.base_offset == first for entry in self.old):
            return []
        return [(before[-1].next_offset, first)]

    def _check_follows(self, before: Sequence[SegmentEntry], sealed: Sequence[Segment]) -> None:
        # Compaction joins segments and divides none: also in a compacted log no new one begins inside of an old one.
        bases = [entry.base_offset for entry in self.old]
        for base_offset in (segment.base_offset for segment in sealed):
            at = bisect_left(bases, base_offset)
            if at and self.old[at - 1].next_offset > base_offset:
                raise ArchiveMismatch(
                    f"{self.place} holds offset {base_offset} inside of another segment, and the source begins one "
                    f"there: its log was cut, or is another one; {ELSEWHERE}"
                )
        # A broker's cleaner may leave out the last offsets of a segment: nothing tells them from lost ones.
        is_lawful = self.rules.allow_gaps or (self.compacts and bool(before) and before[-1].seal_bytes is None)
        for end, first in () if is_lawful else self.gap_before(sealed):
            raise ArchiveMismatch(
                f"{self.place} ends before offset {end}, and the source begins at {first}: what is between was "
                "deleted before it was archived. Archive to another place, or with allow_gaps=True; nothing was changed"
            )

    def _check_covers(self, since: Mapping[int, SegmentEntry], sealed: Sequence[Segment]) -> None:
        """Refuse an archive that is ahead of the source, or differs from it where nobody compacts."""
        end = max((entry.next_offset for entry in since.values()), default=0)
        if since and sealed[-1].next_offset < end:
            raise ArchiveMismatch(
                f"{self.place} holds offsets up to {end - 1}, and the source's sealed segments end before "
                f"{sealed[-1].next_offset}: its log was cut, or is another one; {ELSEWHERE}"
            )
        if self.compacts:
            return
        segments = {segment.base_offset: segment for segment in sealed}
        for base_offset, entry in since.items():
            if base_offset not in segments:
                raise ArchiveMismatch(
                    f"{self.place} holds a segment at offset {base_offset}, and the source none there"
                )
            if not self._is_same(entry, segments[base_offset]):
                raise ArchiveMismatch(
                    f"{self.place}: the segment at offset {base_offset} is not the one that the source has (there "
                    f"{entry.log.size} bytes, CRC {entry.log.crc:08x}); {ELSEWHERE}"
                )

    def _is_same(self, entry: SegmentEntry, segment: Segment) -> bool:
        return entry.log.size == segment.size and entry.log.crc == self._crc(segment)

    def _crc(self, segment: Segment) -> int:
        if segment.base_offset not in self.crcs:
            # Without a seal only its bytes tell.
            seal = segment.seal
            self.crcs[segment.base_offset] = seal.log_crc if seal is not None else segment.scan_all().crc
        return self.crcs[segment.base_offset]

    def _free_stem(self, segment: Segment) -> str:
        """Return a name for the files of a new segment that no reader takes for another one's."""
        own = names.segment_name(segment.base_offset, "")
        is_taken = own in self.lately or any(own == entry.stem for entry in self.old)
        # A file that no manifest names was copied in vain, before the segment was compacted once more.
        if is_taken or (self.compacts and f"{own}{names.LOG}" in self.there):
            return f"{own}-{self._crc(segment):08x}"
        return own

    def _copy(self, segment: Segment, stem: str, suffixes: tuple[str, ...]) -> Copy:
        # The seal may have come, or gone, since the files were listed.
        beside = tuple(suffix for suffix in suffixes if suffix != names.SEAL)
        return Copy(
            partition=self.partition,
            directory=segment.shared.directory,
            config=self.topic.config,
            base_offset=segment.base_offset,
            size=segment.size,
            seal=segment.seal,
            suffixes=beside if segment.seal is None else (*beside, names.SEAL),
            stem=stem,
            found={name: size for name, size in self.there.items() if name.rpartition(".")[0] == stem and size >= 0},
        )

    def _check_stored(self, segments: Iterable[SegmentEntry]) -> None:
        """Hold the files of the archive, by their sizes, against its manifest."""
        for name, file in ((name, file) for segment in segments for name, file in segment.paths().items()):
            if self.there.get(name) != file.size:
                found = f"has {self.there[name]} bytes there" if name in self.there else "is not there"
                raise CorruptionError(
                    f"the manifest names it with {file.size} bytes, but it {found}; archive with repair=True to copy "
                    "it again from a source that still has it. Nothing was changed",
                    path=f"{self.depot.location}/{self.partition}/{name}",
                )

    def _check_replaced(self, replaced: Sequence[SegmentEntry], replacing: Sequence[Segment]) -> None:
        """Refuse to replace segments of the archive by anything but what compaction has left of them."""
        if not replaced:
            return
        directory = partition_path(self.source.root, self.partition)
        bounds = [(entry.base_offset, entry.next_offset) for entry in replaced]
        check_compacted(
            (record for entry in replaced for record in self._archived_records(entry)),
            between(bounds, (record for segment in replacing for record in self._source_records(segment))),
            lost=read_losses(self.source.files, directory, advice="Archive to another place; nothing was changed."),
            place=self.place,
        )

    def _source_records(self, segment: Segment) -> Iterator[Record]:
        parts = log_parts(segment, segment.shared.new_state(segment.base_offset), PageSums())
        return records_in(parts, limit=self.topic.config.max_decompressed_bytes)

    def _archived_records(self, entry: SegmentEntry) -> Iterator[Record]:
        """Yield the records of an archived segment; raise if it is not the one that the manifest names."""
        name = f"{self.partition}/{entry.stem}{names.LOG}"
        meter = Meter()
        try:
            parts = meter.passing(self.depot.read(name))
            yield from records_in(parts, limit=self.topic.config.max_decompressed_bytes)
        except CorruptionError as error:
            raise error.located(f"{self.depot.location}/{name}") from error
        if meter.file != entry.log:
            raise CorruptionError(
                f"it has {meter.size} bytes and the CRC {meter.crc:08x}, and the manifest names it with "
                f"{entry.log.size} and {entry.log.crc:08x}; archive to another place. Nothing was changed",
                path=f"{self.depot.location}/{name}",
            )


def _suffixes(listing: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return which files each segment has, those of a broker and of later versions among them."""
    found: dict[int, tuple[str, ...]] = {}
    for base_offset, suffix in filter(None, map(names.parse_segment_name, sorted(listing))):
        if suffix != names.TORN:
            found[base_offset] = (*found.get(base_offset, ()), suffix)
    return found


def _epochs(files: Files, directory: str, checkpoint: Checkpoint | None) -> tuple[tuple[int, int], ...]:
    if checkpoint is not None and not checkpoint.foreign:
        return checkpoint.epochs
    return tuple(LeaderEpochs.read(files, directory).entries)


def _check_same_topic(topic: Topic, found: str, directory: str) -> None:
    """Refuse a partition of a topic that was recreated since the topics were listed."""
    if are_different(topic.topic_id, found):
        raise ArchiveMismatch(
            f"topic {topic.name!r} was recreated while it was archived: it was {topic.topic_id} at first, and "
            f"{directory} is of {found}. Archive again; nothing was overwritten"
        )
