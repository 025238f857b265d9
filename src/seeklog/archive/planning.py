"""The plan of an archive run: the segments of a source compared with the manifest of an archive.

Sealed segments are copied once. With `include_active`, the segments after them are copied up to the recovery point, as
partial segments. A partial segment is replaced when more of its segment is below the recovery point, or when that
segment is sealed. Its name contains its CRC, so its replacement has another name.

Every mismatch is refused here, before anything is written. If compaction has rewritten segments, which is proved by
comparing records (`replacement`), the new segment gets a new name beside the old files. The next run removes
these, so readers that have the archive open can use them until then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
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
    is_marked,
)
from seeklog.archive.replacement import between, check_compacted, records_in
from seeklog.archive.source import (
    Listed,
    Source,
    SourceChanged,
    SourceTopic,
    crc_of_prefix,
    durable_prefix,
    list_segments,
    log_parts,
    read_root,
)
from seeklog.arguments import check_flags
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import ArchiveMismatch, CorruptionError, UsageError
from seeklog.files import Files
from seeklog.files.depot import Depot, Version
from seeklog.log import Segment, Shared
from seeklog.log.side import Checkpoint, LeaderEpochs, PageSums, Seal, read_checkpoint, read_losses
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.topics.catalog import Topic, are_different
from seeklog.topics.layout import awaits_directory, partition_path, read_topic_id

Verify = Literal["content", "size"]
VERIFY: Final = ("content", "size")
ELSEWHERE: Final = "archive to another location, or move this archive aside; nothing was overwritten"


@dataclass(frozen=True, slots=True)
class Rules:
    """How strictly an archive run checks."""

    verify: Verify = "content"
    allow_gaps: bool = False
    repair: bool = False
    include_active: bool = False

    def __post_init__(self) -> None:
        check_flags(allow_gaps=self.allow_gaps, repair=self.repair, include_active=self.include_active)
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
    is_partial: bool = False
    """Whether it is the durable part of a segment that is not sealed. `seal` is then not on disk."""


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
    strays: tuple[str, ...] = ()
    """Paths in the archive that killed runs have left, and that no manifest names."""

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
    root: Mapping[str, bytes] | None = None
    """The small files of the store's root, or None to keep those in the archive."""

    @property
    def copies(self) -> list[Copy]:
        return [copy for partition in self.partitions for copy in partition.copies]


def plan_archive(source: Source, depot: Depot, rules: Rules) -> Plan:
    """Decide what to copy. Writes nothing. Raises `ArchiveMismatch` if the source does not match the archive."""
    # Before the partitions: what these files say was written is then below the recovery points that are read later.
    root = read_root(source.files, source.root) if rules.include_active else None
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
            if awaits_directory(source.files, source.root, source_topic.topic, number):
                continue
            partition = TopicPartition(name, number)
            entry = known.partitions.get(number) if known is not None else None
            planner = _Planner(source, source_topic, partition, depot, rules, entry, manifest.replaced_stems(partition))
            plans.append(planner.plan())
    return Plan(manifest=manifest, version=version, topics=tuple(source.topics), partitions=tuple(plans), root=root)


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
        # Before the listing, which then contains every segment below the recovery point.
        recovery_point = self.source.ask(self.partition).recovery_point if self.rules.include_active else 0
        checkpoint = read_checkpoint(files, directory) or self.topic.inherited.get(self.partition.partition)
        shared = Shared(files, directory, self.topic.config, writable=False)
        try:
            archived_end = max((entry.next_offset for entry in self.old if not entry.is_partial), default=0)
            listed = list_segments(shared, checkpoint, self.source.clock, archived_end=archived_end)
            tails = self._tails(listed, checkpoint, recovery_point)
            steps = self.merge(listed, tails)
        finally:
            shared.clear()
        beside: dict[str, bytes] = {
            name: files.read_file(f"{directory}/{name}") for name in PARTITION_FILES if name in listed.names
        }
        epochs = _epochs(files, directory, checkpoint)
        # After all reads: if the directory still belongs to the topic now, every byte read did, too.
        _check_same_topic(self.topic.topic, read_topic_id(files, directory), directory)
        present = [*listed.sealed, *listed.open]
        start = checkpoint.log_start_offset if checkpoint is not None else present[0].base_offset if present else 0
        first = steps[0].base_offset if steps else 0
        gaps = {*(checkpoint.gaps if checkpoint is not None else ()), *self.gap_before([*listed.sealed, *tails])}
        return PartitionPlan(
            partition=self.partition,
            log_start_offset=known.log_start_offset if known is not None else max(start, first),
            epochs=epochs,
            files=beside,
            steps=tuple(steps),
            gaps=frozenset(gaps.union(known.gaps if known is not None else ())),
            strays=tuple(self._strays(steps)),
        )

    def _tails(self, listed: Listed, checkpoint: Checkpoint | None, recovery_point: int) -> list[Segment]:
        """Return the parts of the open segments that are below the recovery point."""
        contiguous_from = checkpoint.contiguous_from if checkpoint is not None else INT64_MAX
        tails: list[Segment] = []
        for segment, following in zip_longest(listed.open, listed.open[1:]):
            tail = durable_prefix(segment, recovery_point=recovery_point, contiguous_from=contiguous_from)
            if tail is None:
                break
            tails.append(tail)
            end = recovery_point if following is None else min(recovery_point, following.base_offset)
            if tail.next_offset < end and contiguous_from <= segment.base_offset:
                self.source.ask(self.partition)  # raises if durable records are lost
                raise SourceChanged(f"{segment.path} was truncated")
        return tails

    def _strays(self, steps: Iterable[SegmentEntry | Copy]) -> Iterator[str]:
        """Yield the files of partial or compacted segments that killed runs have left."""
        used = {entry.stem for entry in self.old} | {step.stem for step in steps} | self.replaced_stems
        for name, size in self.stored_sizes.items():
            if size >= 0 and is_marked(name) and name.partition(".")[0] not in used:
                yield f"{self.partition}/{name}"

    def merge(self, listed: Listed, tails: Sequence[Segment]) -> list[SegmentEntry | Copy]:
        """Return the entries that stay and the segments to copy. Refuse a mismatch."""
        sealed, suffixes = listed.sealed, _suffixes(listed.names)
        included = [*sealed, *tails]
        first = min((segment.base_offset for segment in (*sealed, *listed.open)), default=INT64_MAX)
        before = [entry for entry in self.old if entry.base_offset < first]
        since = {entry.base_offset: entry for entry in self.old if entry.base_offset >= first}
        self._check_follows(before, included)
        continued = self._take_continued(since, listed)
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
            is_lost = self._is_lost(entry)
            steps.append(self._copy(segment, entry.stem, suffixes[segment.base_offset]) if is_lost else entry)
        steps += self._open_steps(listed.open, tails, continued, suffixes)
        self._check_stored(
            [step for step in steps if isinstance(step, SegmentEntry)] if self.rules.repair else self.old
        )
        # Only the log proves the records. An entry whose log is there is compared, even if other files are lost.
        replaced = [
            entry for entry in since.values() if self.stored_sizes.get(f"{entry.stem}{names.LOG}") == entry.log.size
        ]
        self._check_replaced(replaced, replacing)
        return steps

    def _take_continued(self, since: dict[int, SegmentEntry], listed: Listed) -> dict[int, SegmentEntry]:
        """Remove and return the entries whose bytes are the beginning of a segment of the source.

        A sealed segment may have grown out of a partial one only. An open one may have lost its seal in a crash.
        """
        continued: dict[int, SegmentEntry] = {}
        for segment in (*listed.sealed, *listed.open):
            entry = since.get(segment.base_offset)
            is_open = segment in listed.open
            if entry is None or not (entry.is_partial or (is_open and entry.log.size == segment.size)):
                continue
            if crc_of_prefix(segment, entry.log.size) == entry.log.crc:
                continued[segment.base_offset] = since.pop(segment.base_offset)
        return continued

    def _open_steps(
        self,
        segments: Iterable[Segment],
        tails: Sequence[Segment],
        continued: Mapping[int, SegmentEntry],
        suffixes: Mapping[int, tuple[str, ...]],
    ) -> Iterator[SegmentEntry | Copy]:
        """Yield the steps for segments that are not sealed: the archive has as much of them, or gets more."""
        durable = {tail.base_offset: tail for tail in tails}
        for base_offset in (segment.base_offset for segment in segments):
            entry, tail = continued.get(base_offset), durable.get(base_offset)
            is_longer = tail is not None and (entry is None or tail.size > entry.log.size or self._is_lost(entry))
            if tail is not None and is_longer:
                yield self._copy(tail, self._marked_stem(tail), suffixes[base_offset], is_partial=True)
            elif entry is not None:
                yield entry

    def _is_lost(self, entry: SegmentEntry) -> bool:
        return any(self.stored_sizes.get(name) != file.size for name, file in entry.paths().items())

    def gap_before(self, included: Sequence[Segment]) -> list[tuple[int, int]]:
        """Return the gap between the archive's segments and the source's first segment, if there is one."""
        first = included[0].base_offset if included else 0
        before = [entry for entry in self.old if entry.base_offset < first]
        # If the archive has that segment too, the gap before it was accepted when it was copied.
        if not before or before[-1].next_offset >= first or any(entry.base_offset == first for entry in self.old):
            return []
        return [(before[-1].next_offset, first)]

    def _check_follows(self, before: Sequence[SegmentEntry], included: Sequence[Segment]) -> None:
        # Compaction merges segments and never splits them, so a new one cannot begin inside an old one.
        bases = [entry.base_offset for entry in self.old]
        for base_offset in (segment.base_offset for segment in included):
            at = bisect_left(bases, base_offset)
            if at and self.old[at - 1].next_offset > base_offset:
                raise ArchiveMismatch(
                    f"{self.location} holds offset {base_offset} inside another segment, and the source has a segment "
                    f"that begins there: the source's log was truncated, or is another log; {ELSEWHERE}"
                )
        # A broker's cleaner may remove the last offsets of a segment. They cannot be distinguished from lost ones.
        is_lawful = self.rules.allow_gaps or (self.compacts and bool(before) and before[-1].seal_bytes is None)
        for end, first in () if is_lawful else self.gap_before(included):
            raise ArchiveMismatch(
                f"{self.location} ends before offset {end}, and the source begins at {first}: the records between were "
                "deleted before they were archived. Archive to another location, or with allow_gaps=True; nothing was "
                "changed"
            )

    def _check_covers(self, since: Mapping[int, SegmentEntry], sealed: Sequence[Segment]) -> None:
        """Refuse an archive that is ahead of the source, or that differs from a source without compaction."""
        end = max((entry.next_offset for entry in since.values()), default=0)
        sealed_end = sealed[-1].next_offset if sealed else 0
        if since and sealed_end < end:
            raise ArchiveMismatch(
                f"{self.location} holds offsets up to {end - 1}, and the source's sealed segments end before "
                f"{sealed_end}: the source's log was truncated, or is another log; {ELSEWHERE}"
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
            return self._marked_stem(segment)
        return own

    def _marked_stem(self, segment: Segment) -> str:
        """Return a name with the segment's CRC, or if a segment of the archive has that name, with the next number."""
        taken = self.replaced_stems.union(entry.stem for entry in self.old)
        mark = self._crc(segment)
        while (stem := f"{segment.base_offset:020d}-{mark:08x}") in taken:
            mark = (mark + 1) & 0xFFFFFFFF
        return stem

    def _copy(self, segment: Segment, stem: str, suffixes: tuple[str, ...], *, is_partial: bool = False) -> Copy:
        # The seal may have appeared or disappeared since the files were listed.
        beside = tuple(suffix for suffix in suffixes if suffix != names.SEAL)
        if is_partial:
            kept = (suffix for suffix in beside if suffix != names.KEY_INDEX)
            beside = tuple(dict.fromkeys((*kept, names.OFFSET_INDEX, names.TIME_INDEX)))
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
            is_partial=is_partial,
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
