"""The plan of an archive run: the sealed segments of a source compared with the manifest of an archive.

Every mismatch is refused here, before anything is written. If compaction has rewritten segments, which is proved by
comparing records (`replacement`), the new segment gets a new name beside the old files. The next run removes
these, so readers that have the archive open can use them until then.
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
ELSEWHERE: Final = "archive to another location, or move this archive aside; nothing was overwritten"


@dataclass(frozen=True, slots=True)
class Rules:
    """How strictly an archive run checks."""

    verify: Verify = "content"
    allow_gaps: bool = False
    repair: bool = False

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise UsageError(f"verify must be one of {', '.join(VERIFY)}, not {self.verify!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One segment to copy, as it was when it was planned. Picklable."""

    partition: TopicPartition
    directory: str
    """The partition's directory at the source."""
    config: LogConfig
    base_offset: int
    size: int
    seal: Seal | None
    suffixes: tuple[str, ...]
    stem: str
    """The name of its files in the archive, without suffix."""
    leftovers: Mapping[str, int]
    """Files of those names that are already in the archive but not in its manifest, with their sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The plan for one partition: entries that stay, and segments to copy, in offset order."""

    partition: TopicPartition
    log_start_offset: int
    epochs: tuple[tuple[int, int], ...]
    files: Mapping[str, bytes]
    steps: tuple[SegmentEntry | Copy, ...]
    gaps: frozenset[tuple[int, int]] = frozenset()
    """Gaps that are allowed between segments. Those that exist are recorded in the manifest."""

    @property
    def copies(self) -> list[Copy]:
        return [step for step in self.steps if isinstance(step, Copy)]

    def entry(self, copied: Iterator[SegmentEntry]) -> PartitionEntry:
        """Return the partition's entry for the manifest after the copies are done."""
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
    """The segments to copy, and the manifest from which that was decided."""

    manifest: Manifest
    version: Version | None
    """The current version of the manifest's file, or None if it does not exist."""
    topics: tuple[SourceTopic, ...]
    partitions: tuple[PartitionPlan, ...]

    @property
    def copies(self) -> list[Copy]:
        return [copy for partition in self.partitions for copy in partition.copies]


def plan_archive(source: Source, depot: Depot, rules: Rules) -> Plan:
    """Decide what to copy. Writes nothing. Raises `ArchiveMismatch` if the source does not match the archive."""
    version = depot.version(names.ARCHIVE)
    manifest = check_target(depot, version)
    plans: list[PartitionPlan] = []
    for source_topic in source.topics:
        name, topic_id = source_topic.topic.name, source_topic.topic.topic_id
        known = manifest.topics.get(name)
        if known is not None and known.topic_id != topic_id:
            raise ArchiveMismatch(
                f"topic {name!r} was recreated: its id is {topic_id}, and in {depot.location} it is {known.topic_id}; "
                f"{ELSEWHERE}"
            )
        for number in source_topic.topic.partitions:
            partition = TopicPartition(name, number)
            entry = known.partitions.get(number) if known is not None else None
            planner = _Planner(source, source_topic, partition, depot, rules, entry, manifest.replaced_stems(partition))
            plans.append(planner.plan())
    return Plan(manifest=manifest, version=version, topics=tuple(source.topics), partitions=tuple(plans))


def check_target(depot: Depot, version: Version | None) -> Manifest:
    """Return the manifest of an archive. Refuse a location with other files."""
    if version is not None:
        return decode_manifest(version.data, path=f"{depot.location}/{names.ARCHIVE}")
    own = (names.ARCHIVE, names.ARCHIVE_LOCK)
    strangers = [name for name in depot.sizes("") if name not in own and not name.endswith(names.TEMPORARY)]
    if strangers:
        raise ArchiveMismatch(
            f"{depot.location} is not an archive and not empty: it holds {min(strangers)!r}; {ELSEWHERE}"
        )
    return Manifest()


@dataclass(slots=True)
class _Planner:
    """Plans one partition: compares the segments of the source with those of the archive."""

    source: Source
    topic: SourceTopic
    partition: TopicPartition
    depot: Depot
    rules: Rules
    known: PartitionEntry | None
    replaced_stems: frozenset[str]
    """The stems of replaced segments. Readers may still use their files."""
    old: tuple[SegmentEntry, ...] = ()
    stored_sizes: Mapping[str, int] = field(default_factory=dict)
    """The partition's files in the archive, with their sizes."""
    crcs: dict[int, int] = field(default_factory=dict)

    @property
    def location(self) -> str:
        return f"{self.partition} in {self.depot.location}"

    @property
    def compacts(self) -> bool:
        return self.topic.config.compacts

    def plan(self) -> PartitionPlan:
        """Plan the partition."""
        known = self.known
        self.old = known.segments if known is not None else ()
        self.stored_sizes = self.depot.sizes(str(self.partition))
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
        # After all reads: if the directory still belongs to the topic now, every byte read did, too.
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
        """Return the entries that stay and the segments to copy. Refuse a mismatch."""
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
            is_lost = any(self.stored_sizes.get(name) != file.size for name, file in entry.paths().items())
            steps.append(self._copy(segment, entry.stem, suffixes[segment.base_offset]) if is_lost else entry)
        self._check_stored(
            [step for step in steps if isinstance(step, SegmentEntry)] if self.rules.repair else self.old
        )
        # Only the log proves the records. An entry whose log is there is compared, even if other files are lost.
        replaced = [
            entry for entry in since.values() if self.stored_sizes.get(f"{entry.stem}{names.LOG}") == entry.log.size
        ]
        self._check_replaced(replaced, replacing)
        return steps

    def gap_before(self, sealed: Sequence[Segment]) -> list[tuple[int, int]]:
        """Return the gap between the archive's segments and the source's first segment, if there is one."""
        first = sealed[0].base_offset if sealed else 0
        before = [entry for entry in self.old if entry.base_offset < first]
        # If the archive has that segment too, the gap before it was accepted when it was copied.
        if not before or before[-1].next_offset >= first or any(entry.base_offset == first for entry in self.old):
            return []
        return [(before[-1].next_offset, first)]

    def _check_follows(self, before: Sequence[SegmentEntry], sealed: Sequence[Segment]) -> None:
        # Compaction merges segments and never splits them, so a new one cannot begin inside an old one.
        bases = [entry.base_offset for entry in self.old]
        for base_offset in (segment.base_offset for segment in sealed):
            at = bisect_left(bases, base_offset)
            if at and self.old[at - 1].next_offset > base_offset:
                raise ArchiveMismatch(
                    f"{self.location} holds offset {base_offset} inside another segment, and the source has a segment "
                    f"that begins there: the source's log was truncated, or is another log; {ELSEWHERE}"
                )
        # A broker's cleaner may remove the last offsets of a segment. They cannot be distinguished from lost ones.
        is_lawful = self.rules.allow_gaps or (self.compacts and bool(before) and before[-1].seal_bytes is None)
        for end, first in () if is_lawful else self.gap_before(sealed):
            raise ArchiveMismatch(
                f"{self.location} ends before offset {end}, and the source begins at {first}: the records between were "
                "deleted before they were archived. Archive to another location, or with allow_gaps=True; nothing was "
                "changed"
            )

    def _check_covers(self, since: Mapping[int, SegmentEntry], sealed: Sequence[Segment]) -> None:
        """Refuse an archive that is ahead of the source, or that differs from a source without compaction."""
        end = max((entry.next_offset for entry in since.values()), default=0)
        if since and sealed[-1].next_offset < end:
            raise ArchiveMismatch(
                f"{self.location} holds offsets up to {end - 1}, and the source's sealed segments end before "
                f"{sealed[-1].next_offset}: the source's log was truncated, or is another log; {ELSEWHERE}"
            )
        if self.compacts:
            return
        segments = {segment.base_offset: segment for segment in sealed}
        for base_offset, entry in since.items():
            if base_offset not in segments:
                raise ArchiveMismatch(
                    f"{self.location} holds a segment at offset {base_offset}, and the source does not; {ELSEWHERE}"
                )
            if not self._is_same(entry, segments[base_offset]):
                raise ArchiveMismatch(
                    f"{self.location}: the segment at offset {base_offset} differs from the source's (there "
                    f"{entry.log.size} bytes, CRC {entry.log.crc:08x}); {ELSEWHERE}"
                )

    def _is_same(self, entry: SegmentEntry, segment: Segment) -> bool:
        return entry.log.size == segment.size and entry.log.crc == self._crc(segment)

    def _crc(self, segment: Segment) -> int:
        if segment.base_offset not in self.crcs:
            # Without a seal, compute the CRC from the bytes.
            seal = segment.seal
            self.crcs[segment.base_offset] = seal.log_crc if seal is not None else segment.scan_all().crc
        return self.crcs[segment.base_offset]

    def _free_stem(self, segment: Segment) -> str:
        """Return a name for a new segment's files that no reader takes for those of another segment."""
        own = names.segment_name(segment.base_offset, "")
        is_taken = own in self.replaced_stems or any(own == entry.stem for entry in self.old)
        # A file that is not in the manifest is a leftover from before the segment was compacted again.
        if is_taken or (self.compacts and f"{own}{names.LOG}" in self.stored_sizes):
            return f"{own}-{self._crc(segment):08x}"
        return own

    def _copy(self, segment: Segment, stem: str, suffixes: tuple[str, ...]) -> Copy:
        # The seal may have appeared or disappeared since the files were listed.
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
            leftovers={
                name: size for name, size in self.stored_sizes.items() if name.rpartition(".")[0] == stem and size >= 0
            },
        )

    def _check_stored(self, segments: Iterable[SegmentEntry]) -> None:
        """Check the sizes of the archive's files against its manifest."""
        for name, file in ((name, file) for segment in segments for name, file in segment.paths().items()):
            if self.stored_sizes.get(name) != file.size:
                found = f"has {self.stored_sizes[name]} bytes there" if name in self.stored_sizes else "is missing"
                raise CorruptionError(
                    f"the manifest has it with {file.size} bytes, but it {found}; archive with repair=True to copy it "
                    "again from a source that still has it. Nothing was changed",
                    path=f"{self.depot.location}/{self.partition}/{name}",
                )

    def _check_replaced(self, replaced: Sequence[SegmentEntry], replacing: Sequence[Segment]) -> None:
        """Refuse to replace segments of the archive by anything but their compaction."""
        if not replaced:
            return
        directory = partition_path(self.source.root, self.partition)
        bounds = [(entry.base_offset, entry.next_offset) for entry in replaced]
        check_compacted(
            (record for entry in replaced for record in self._archived_records(entry)),
            between(bounds, (record for segment in replacing for record in self._source_records(segment))),
            lost=read_losses(self.source.files, directory, advice="Archive to another location; nothing was changed."),
            location=self.location,
        )

    def _source_records(self, segment: Segment) -> Iterator[Record]:
        parts = log_parts(segment, segment.shared.new_state(segment.base_offset), PageSums())
        return records_in(parts, limit=self.topic.config.max_decompressed_bytes)

    def _archived_records(self, entry: SegmentEntry) -> Iterator[Record]:
        """Yield the records of an archived segment. Raise `CorruptionError` if it differs from the manifest."""
        name = f"{self.partition}/{entry.stem}{names.LOG}"
        meter = Meter()
        try:
            parts = meter.passing(self.depot.read(name))
            yield from records_in(parts, limit=self.topic.config.max_decompressed_bytes)
        except CorruptionError as error:
            raise error.located(f"{self.depot.location}/{name}") from error
        if meter.file != entry.log:
            raise CorruptionError(
                f"it has {meter.size} bytes and the CRC {meter.crc:08x}, and the manifest has {entry.log.size} bytes "
                f"and {entry.log.crc:08x}; archive to another location. Nothing was changed",
                path=f"{self.depot.location}/{name}",
            )


def _suffixes(listing: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return the suffixes of each segment's files, including those of a broker and of later versions."""
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
    """Raise `ArchiveMismatch` for a partition whose topic was recreated since the topics were listed."""
    if are_different(topic.topic_id, found):
        raise ArchiveMismatch(
            f"topic {topic.name!r} was recreated during archiving: its id was {topic.topic_id}, and {directory} has "
            f"{found}. Archive again; nothing was overwritten"
        )
