"""Copying sealed segments to an archive, so that it may be done again, interrupted, and trusted.

The work has three steps, so that the middle one can be done in many places at once. `plan_archive` holds the sealed
segments of a store against the manifest of the archive and decides what is to be copied; what does not fit together is
refused here, before anything is written. `copy_segment` copies the files of one segment byte for byte, checks every
batch on the way and reads back what was written. `finish_archive` writes the manifest, which makes it all count.

Nothing at the source is locked or changed: it may be written meanwhile, by this or another process. Nothing in the
archive is overwritten but what an earlier run left half copied. Where compaction has rewritten a segment, and this is
proved by what both hold (`replacement`), the new one is stored under a name of its own beside the old one, which the
next archiving removes: readers that opened the archive before have that long.

Of two archivings to one place at once, one gets an error, and the manifest never drops what the other has named: a
directory is locked (`alone`), and elsewhere the manifest is written over the one that the plan was made by, or not at
all.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from seeklog import names
from seeklog.archive.manifest import (
    PARTITION_FILES,
    Manifest,
    PartitionEntry,
    SegmentEntry,
    StoredFile,
    TopicEntry,
    decode_manifest,
    encode_manifest,
)
from seeklog.archive.reading import ArchivedFiles
from seeklog.archive.replacement import between, check_compacted, records_in
from seeklog.clock import Clock
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import (
    ArchiveMismatch,
    CorruptBatch,
    CorruptionError,
    LostRecords,
    NotAccessible,
    UsageError,
)
from seeklog.files import Files, ReadOnlyFiles
from seeklog.files.depot import Depot, Version
from seeklog.log import ADVICE, Segment, Shared, list_beside_writer, scan_into
from seeklog.log.side import (
    Checkpoint,
    LeaderEpochs,
    PageSums,
    Seal,
    encode_head,
    encode_seal,
    read_checkpoint,
    read_losses,
    read_seal,
)
from seeklog.names import TopicPartition
from seeklog.record.crc import crc32c
from seeklog.record.record import Record
from seeklog.record.segment_state import SegmentState
from seeklog.topics.catalog import Topic, are_different
from seeklog.topics.description import Archived
from seeklog.topics.layout import partition_path, read_topic_id

logger = logging.getLogger("seeklog")

Verify = Literal["content", "size"]
VERIFY: Final = ("content", "size")
# A segment that retention deletes, or compaction replaces, while it is copied makes its partition be looked at again.
LOOKS_MOST: Final = 5
# As long as putting a segment in its place takes at most, on a busy disk.
SWAP_WAIT_S: Final = 2.0
SWAP_PAUSE_S: Final = 0.02
_ELSEWHERE: Final = "archive to another place, or move that one aside; nothing was overwritten"


class SourceTopic(NamedTuple):
    """A topic to archive, with what holds for its partitions and what a broker's checkpoints say of them."""

    topic: Topic
    config: LogConfig
    inherited: Mapping[int, Checkpoint | None]


class Source(NamedTuple):
    """What an archiving copies: topics of the store at `root`."""

    files: Files
    root: str
    topics: Sequence[SourceTopic]
    clock: Clock


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done, and the manifest that it was decided by."""

    manifest: Manifest | None
    version: Version | None
    """The manifest's file. None: there is none yet."""
    topics: tuple[Topic, ...]
    partitions: tuple[PartitionPlan, ...]

    @property
    def copies(self) -> list[Copy]:
        return [copy for partition in self.partitions for copy in partition.copies]


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict an archiving is."""

    verify: Verify = "content"
    allow_gaps: bool = False
    repair: bool = False

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise UsageError(f"verify is one of {', '.join(VERIFY)}, not {self.verify!r}")


class SourceChanged(Exception):
    """A segment was deleted or replaced since it was looked at: its partition is to be looked at again."""


def _tell_nobody(done: int, total: int) -> None:
    """What is told of the progress if nobody wants to know."""


def archive(
    source: Source, depot: Depot, rules: Rules, *, progress: Callable[[int, int], None] = _tell_nobody
) -> Archived:
    """Do all three steps in this process; `progress` is told how many bytes of how many are copied."""
    with alone(depot):
        for look in range(LOOKS_MOST):
            try:
                plan = begin_archive(plan_archive(source, depot, rules), depot)
                entries = _copy_all(plan.copies, source.files, depot, rules, progress)
            except SourceChanged as error:
                if look + 1 == LOOKS_MOST:
                    raise NotAccessible(f"{source.root} changes faster than it can be copied: {error}") from error
                continue  # what was copied is found to be there
            return finish_archive(plan, entries, depot)
    raise AssertionError("not reached")


def _copy_all(
    copies: Sequence[Copy], files: Files, depot: Depot, rules: Rules, progress: Callable[[int, int], None]
) -> list[SegmentEntry]:
    total = sum(copy.size for copy in copies)
    before = 0
    entries = []
    for copy in copies:
        entries.append(copy_segment(copy, files, depot, rules, note=partial(_note, progress, before, total)))
        before += copy.size
    return entries


def _note(progress: Callable[[int, int], None], before: int, total: int, copied: int) -> None:
    progress(before + copied, total)


@contextlib.contextmanager
def alone(depot: Depot) -> Iterator[None]:
    """Be the only one who archives to a place, where it can be locked; else raise `LogLocked`."""
    # Before the lock: nothing is put beside the files of strangers.
    _check_place(depot, depot.version(names.ARCHIVE))
    with depot.held():
        yield


# ---------------------------------------------------------------- what to do


def plan_archive(source: Source, depot: Depot, rules: Rules) -> Plan:
    """Decide what is to be copied. Nothing is written; what does not fit together is refused."""
    version = depot.version(names.ARCHIVE)
    manifest = _check_place(depot, version)
    planner = _Planner(source, depot, rules, manifest or Manifest())
    plans = [
        planner.plan(topic, TopicPartition(topic.topic.name, number))
        for topic in source.topics
        for number in planner.checked(topic).topic.partitions
    ]
    return Plan(
        manifest=manifest,
        version=version,
        topics=tuple(topic.topic for topic in source.topics),
        partitions=tuple(plans),
    )


def _check_place(depot: Depot, version: Version | None) -> Manifest | None:
    """Return what an archive holds, or None if there is none yet; refuse a place that has other things in it."""
    if version is not None:
        return decode_manifest(version.data, path=f"{depot.location}/{names.ARCHIVE}")
    own = (names.ARCHIVE, names.ARCHIVE_LOCK)
    strangers = [name for name in depot.sizes("") if name not in own and not name.endswith(names.TEMPORARY)]
    if strangers:
        raise ArchiveMismatch(
            f"{depot.location} is no archive and not empty: it holds {min(strangers)!r}; {_ELSEWHERE}"
        )
    return None


@dataclass(frozen=True, slots=True)
class _Planner:
    """Plans the partitions of one archiving."""

    source: Source
    depot: Depot
    rules: Rules
    manifest: Manifest

    def checked(self, source: SourceTopic) -> SourceTopic:
        """Return a topic, unless the archive has another one of its name."""
        known = self.manifest.topics.get(source.topic.name)
        if known is not None and known.topic_id != source.topic.topic_id:
            raise ArchiveMismatch(
                f"topic {source.topic.name!r} was made anew: its id is {source.topic.topic_id}, and that of the one "
                f"in {self.depot.location} is {known.topic_id}; {_ELSEWHERE}"
            )
        return source

    def plan(self, source: SourceTopic, partition: TopicPartition) -> PartitionPlan:
        """Decide what becomes of one partition."""
        topic = self.manifest.topics.get(partition.topic)
        known = topic.partitions.get(partition.partition) if topic is not None else None
        old = known.segments if known is not None else ()
        files, directory = self.source.files, partition_path(self.source.root, partition)
        checkpoint = read_checkpoint(files, directory) or source.inherited.get(partition.partition)
        there = self.depot.sizes(str(partition))
        shared = Shared(files, directory, source.config, writable=False)
        try:
            archived_end = old[-1].next_offset if old else 0
            listing, sealed = _list_sealed(shared, checkpoint, self.source.clock, archived_end=archived_end)
            merge = _Merge(
                partition,
                config=source.config,
                old=old,
                there=there,
                taken=self._taken(partition, old),
                place=f"{partition} in {self.depot.location}",
                allow_gaps=self.rules.allow_gaps,
            )
            steps = merge.merged(sealed, listing)
            gaps = {*(known.gaps if known is not None else ()), *merge.gap_before(sealed)}
            kept = [step for step in steps if isinstance(step, SegmentEntry)]
            _check_stored(kept if self.rules.repair else old, there, f"{self.depot.location}/{partition}")
            self._check_replaced(merge, partition, shared)
        finally:
            shared.clear()
        epochs = _epochs(files, directory, checkpoint)
        beside: dict[str, bytes] = {
            name: files.read_file(f"{directory}/{name}") for name in PARTITION_FILES if name in listing
        }
        # Behind all that was read: whoever finds the topic's own directory here has read nothing of another.
        self._check_same(source.topic, directory)
        start = checkpoint.log_start_offset if checkpoint is not None else 0
        return PartitionPlan(
            partition=partition,
            log_start_offset=known.log_start_offset if known is not None else max(start, _first(steps)),
            epochs=epochs,
            files=beside,
            steps=tuple(steps),
            gaps=frozenset(gaps.union(checkpoint.gaps if checkpoint is not None else ())),
        )

    def _check_same(self, topic: Topic, directory: str) -> None:
        """Refuse a partition of a topic that was made anew since the topics were listed."""
        found = read_topic_id(self.source.files, directory)
        if are_different(topic.topic_id, found):
            raise ArchiveMismatch(
                f"topic {topic.name!r} was made anew while it was archived: it was {topic.topic_id} at first, and "
                f"{directory} is of {found}. Archive again; nothing was overwritten"
            )

    def _check_replaced(self, merge: _Merge, partition: TopicPartition, shared: Shared) -> None:
        """Have nothing of an archive replaced by anything but what compaction has left of it."""
        if not merge.replaced:
            return
        limit = shared.config.max_decompressed_bytes
        bounds = [(entry.base_offset, entry.next_offset) for entry in merge.replaced]
        check_compacted(
            (record for entry in merge.replaced for record in self._records_of(entry, partition, limit=limit)),
            between(bounds, (record for one in merge.replacing for record in _records(one, limit=limit))),
            lost=read_losses(
                self.source.files, shared.directory, advice="Archive to another place; nothing was changed."
            ),
            place=f"{partition} in {self.depot.location}",
        )

    def _records_of(self, entry: SegmentEntry, partition: TopicPartition, *, limit: int) -> Iterator[Record]:
        """Yield the records of an archived segment; raise if it is not the one that the manifest names."""
        path = f"{partition}/{entry.stem}{names.LOG}"
        meter = _Meter()
        try:
            yield from records_in(meter.passing(self.depot.read(path)), limit=limit)
        except CorruptionError as error:
            raise error.located(f"{self.depot.location}/{path}") from error
        if StoredFile(meter.size, meter.crc) != entry.log:
            raise CorruptionError(
                f"it has {meter.size} bytes and the CRC {meter.crc:08x}, and the manifest names it with "
                f"{entry.log.size} and {entry.log.crc:08x}; archive to another place. Nothing was changed",
                path=f"{self.depot.location}/{path}",
            )

    def _taken(self, partition: TopicPartition, old: Sequence[SegmentEntry]) -> set[str]:
        """Return the stems that other segments have, or had until lately: readers may still want those."""
        lately = (path.partition("/") for path in self.manifest.replaced)
        return {one.stem for one in old} | {name.partition(".")[0] for at, _, name in lately if at == str(partition)}


def _records(segment: Segment, *, limit: int) -> Iterator[Record]:
    """Yield the records of a segment of the source."""
    state = segment.shared.new_state(segment.base_offset)
    return records_in(_log_parts(segment, state, PageSums()), limit=limit)


def _first(steps: Sequence[SegmentEntry | Copy]) -> int:
    return steps[0].base_offset if steps else 0


def _list_sealed(
    shared: Shared, checkpoint: Checkpoint | None, clock: Clock, *, archived_end: int
) -> tuple[list[str], list[Segment]]:
    """Return the names in a partition's directory, and the segments that will not change, of one moment.

    In the moment in which compaction puts a segment in its place, that one is not settled, though those behind it are.
    What stands before it is no state that the log ever had: a key whose newer record lies behind may be gone from it.
    Where nobody compacts, a crash may have taken a seal: then what stands before will do, unless the archive has more.
    """
    deadline = clock.monotonic() + SWAP_WAIT_S
    while True:
        listing, segments = list_beside_writer(shared)
        sealed, unsettled = _sealed(shared, segments, checkpoint)
        if unsettled is None:
            return listing, sealed
        path = unsettled.path
        is_compacted = shared.config.compacts or path.endswith(names.SWAP)
        if not is_compacted and archived_end <= (sealed[-1].next_offset if sealed else 0):
            return listing, sealed
        if clock.monotonic() >= deadline:
            break
        clock.sleep(SWAP_PAUSE_S)
    raise NotAccessible(
        f"{path} is being put in the place of others, or has lost its seal. If no writer is at work there, a "
        "crash has ended one: let a writer open the partition once, which mends it (seeklog compact), and archive "
        "again. Nothing was changed"
    )


def _sealed(
    shared: Shared, segments: list[Segment], checkpoint: Checkpoint | None
) -> tuple[list[Segment], Segment | None]:
    """Return the segments that will not change: those before the last one, as far as they are settled.

    The second is one that is being replaced, if there is such a one, or has no seal although one behind it has.
    """
    start = checkpoint.log_start_offset if checkpoint is not None else 0
    while len(segments) > 1 and segments[1].base_offset <= start:
        segments.pop(0)
    is_ours = checkpoint is not None and not checkpoint.foreign
    settled: list[Segment] = []
    rolled: Segment | None = None
    for segment in segments:
        if segment.path.endswith(names.SWAP):
            return settled, segment
        seal = read_seal(shared.files, shared.directory, segment.base_offset)
        is_last = segment is segments[-1]
        if rolled is not None:
            if seal is not None and not is_last:
                return settled, rolled
            continue
        # A segment is rolled away first and sealed when it is synced; what lies at a URL is not written any more, and
        # all that a manifest names is as it will be.
        is_open = (is_ours or is_last) and seal is None and not isinstance(shared.files, ArchivedFiles)
        if is_open or (is_last and not isinstance(shared.files, ReadOnlyFiles)):
            rolled = segment
            continue
        if settled and _is_hole(settled[-1], segment, checkpoint):
            break
        if seal is not None:
            segment.attach(seal)
            segment.end_before(seal.next_offset)
        elif is_last and checkpoint is not None:
            segment.end_before(checkpoint.recovery_point)
        settled.append(segment)
    return settled, None


def _is_hole(before: Segment, segment: Segment, checkpoint: Checkpoint | None) -> bool:
    """Tell whether a crash took what lay between two segments: the next recovery cuts off the one behind.

    Raises `LostRecords` if what is missing had been synced.
    """
    end, base_offset = before.next_offset, segment.base_offset
    if end == base_offset or not before.contiguous or checkpoint is None or (end, base_offset) in checkpoint.gaps:
        return False
    if end < checkpoint.recovery_point:
        raise LostRecords(
            f"offsets {end} to {base_offset - 1} are missing before this segment; nothing was archived",
            path=segment.path,
            advice=ADVICE,
        )
    return True


def _epochs(files: Files, directory: str, checkpoint: Checkpoint | None) -> tuple[tuple[int, int], ...]:
    if checkpoint is not None and not checkpoint.foreign:
        return checkpoint.epochs
    return tuple(LeaderEpochs.read(files, directory).entries)


def _check_stored(segments: Iterable[SegmentEntry], there: Mapping[str, int], path: str) -> None:
    """Hold the files of an archive, by their sizes, against its manifest."""
    for segment in segments:
        for suffix, file in segment.files.items():
            name = f"{segment.stem}{suffix}"
            if there.get(name) != file.size:
                found = f"has {there[name]} bytes there" if name in there else "is not there"
                raise CorruptionError(
                    f"the manifest names it with {file.size} bytes, but it {found}; archive with repair=True to copy "
                    "it again from a source that still has it. Nothing was changed",
                    path=f"{path}/{name}",
                )


class _Merge:
    """Puts the segments of a source to those that an archive has of one partition."""

    def __init__(
        self,
        partition: TopicPartition,
        *,
        config: LogConfig,
        old: Sequence[SegmentEntry],
        there: Mapping[str, int],
        taken: set[str],
        place: str,
        allow_gaps: bool,
    ) -> None:
        self._partition = partition
        self._config = config
        self._compacts = "compact" in config.cleanup_policy
        self._old = old
        self._there = there
        self._taken = taken
        self._place = place
        self._allow_gaps = allow_gaps
        self.replaced: list[SegmentEntry] = []
        """What is whole in the archive, and not named any more when this is done."""
        self.replacing: list[Segment] = []
        """What is copied, and may take its place."""

    def merged(self, sealed: Sequence[Segment], listing: Sequence[str]) -> list[SegmentEntry | Copy]:
        if not sealed:
            return list(self._old)
        first = sealed[0].base_offset
        before = [one for one in self._old if one.base_offset < first]
        since = {one.base_offset: one for one in self._old if one.base_offset >= first}
        self._check_follows(before, sealed)
        self._check_covers(since, sealed)
        suffixes = _suffixes(listing)
        steps: list[SegmentEntry | Copy] = [*before]
        gone = dict(since)
        for segment in sealed:
            entry = since.get(segment.base_offset)
            is_same = entry is not None and self._is_same(entry, segment)
            if is_same:
                del gone[segment.base_offset]
            else:
                self.replacing.append(segment)
            if entry is not None and is_same and not self._is_lost(entry):
                steps.append(entry)
            else:
                steps.append(self._copy(segment, entry, suffixes[segment.base_offset]))
        # Files beside a log prove nothing of it: one whose log is there is compared, whatever else is lost.
        self.replaced = [entry for entry in gone.values() if not self._is_log_lost(entry)]
        return steps

    def gap_before(self, sealed: Sequence[Segment]) -> list[tuple[int, int]]:
        """Return the offsets that are missing between what the archive has and the source's first segment."""
        first = sealed[0].base_offset if sealed else 0
        before = [one for one in self._old if one.base_offset < first]
        # Where the archive has the first one, too, what is missing before it was decided when that was copied.
        if not before or before[-1].next_offset >= first or any(one.base_offset == first for one in self._old):
            return []
        return [(before[-1].next_offset, first)]

    def _check_follows(self, before: Sequence[SegmentEntry], sealed: Sequence[Segment]) -> None:
        # Compaction joins segments and divides none: also in a compacted log no new one begins inside of an old one.
        bases = [one.base_offset for one in self._old]
        for base_offset in (segment.base_offset for segment in sealed):
            at = bisect_left(bases, base_offset)
            if at and self._old[at - 1].next_offset > base_offset:
                raise ArchiveMismatch(
                    f"{self._place} holds offset {base_offset} inside of another segment, and the source begins one "
                    f"there: its log was cut, or is another one; {_ELSEWHERE}"
                )
        # A broker's cleaner may leave out the last offsets of a segment: nothing tells them from lost ones.
        is_lawful = self._allow_gaps or (self._compacts and bool(before) and before[-1].seal_bytes is None)
        for end, behind in () if is_lawful else self.gap_before(sealed):
            raise ArchiveMismatch(
                f"{self._place} ends before offset {end}, and the source begins at {behind}: what is between was "
                "deleted before it was archived. Archive to another place, or with allow_gaps=True; nothing was changed"
            )

    def _check_covers(self, since: Mapping[int, SegmentEntry], sealed: Sequence[Segment]) -> None:
        """The archive may not be ahead of the source, nor differ from it where nobody compacts."""
        if not since:
            return
        end = max(one.next_offset for one in since.values())
        if sealed[-1].next_offset < end:
            raise ArchiveMismatch(
                f"{self._place} holds offsets up to {end - 1}, and the source's sealed segments end before "
                f"{sealed[-1].next_offset}: its log was cut, or is another one; {_ELSEWHERE}"
            )
        bases = {segment.base_offset for segment in sealed}
        for base_offset, entry in since.items():
            if base_offset not in bases and not self._compacts:
                raise ArchiveMismatch(
                    f"{self._place} holds a segment at offset {base_offset}, and the source none there"
                )
            segment = next((one for one in sealed if one.base_offset == base_offset), None)
            if segment is not None and not self._compacts and not self._is_same(entry, segment):
                raise ArchiveMismatch(
                    f"{self._place}: the segment at offset {base_offset} is not the one that the source has (there "
                    f"{entry.log.size} bytes, CRC {entry.log.crc:08x}); {_ELSEWHERE}"
                )

    def _is_same(self, entry: SegmentEntry, segment: Segment) -> bool:
        if entry.log.size != segment.size:
            return False
        seal = segment.seal
        # Without a seal only its bytes tell.
        crc = seal.log_crc if seal is not None else segment.scan_all().crc
        return crc == entry.log.crc

    def _is_lost(self, entry: SegmentEntry) -> bool:
        """Tell whether files of an entry are not there as they should, and are to be copied again."""
        return any(self._there.get(f"{entry.stem}{suffix}") != file.size for suffix, file in entry.files.items())

    def _is_log_lost(self, entry: SegmentEntry) -> bool:
        return self._there.get(f"{entry.stem}{names.LOG}") != entry.log.size

    def _copy(self, segment: Segment, entry: SegmentEntry | None, suffixes: tuple[str, ...]) -> Copy:
        own = names.segment_name(segment.base_offset, "")
        stem = own
        if entry is not None and self._is_same(entry, segment):
            stem = entry.stem  # lost, and put back where it was
        elif own in self._taken or (self._compacts and f"{own}{names.LOG}" in self._there):
            # A file that no manifest names was copied in vain, before the segment was compacted once more.
            crc = segment.seal.log_crc if segment.seal is not None else segment.scan_all().crc
            stem = f"{own}-{crc:08x}"
        return Copy(
            partition=self._partition,
            directory=segment.shared.directory,
            config=self._config,
            base_offset=segment.base_offset,
            size=segment.size,
            seal=segment.seal,
            suffixes=_with_seal(suffixes, is_sealed=segment.seal is not None),
            stem=stem,
            found={name: size for name, size in self._there.items() if name.rpartition(".")[0] == stem and size >= 0},
        )


def _with_seal(suffixes: tuple[str, ...], *, is_sealed: bool) -> tuple[str, ...]:
    """Return them as the seal that was read has it: it may have come, or gone, since they were listed."""
    others = tuple(suffix for suffix in suffixes if suffix != names.SEAL)
    return (*others, names.SEAL) if is_sealed else others


def _suffixes(listing: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return which files each segment has, those of a broker and of later versions among them."""
    found: dict[int, list[str]] = {}
    for name in sorted(listing):
        parsed = names.parse_segment_name(name)
        if parsed is not None and parsed[1] != names.TORN:
            found.setdefault(parsed[0], []).append(parsed[1])
    return {base: tuple(suffixes) for base, suffixes in found.items()}


def begin_archive(plan: Plan, depot: Depot) -> Plan:
    """Mark a place as an archive before the first file: what is half copied must not be taken for a store.

    Returns the plan as it stands with that.
    """
    if plan.manifest is not None:
        return plan
    manifest = Manifest(is_complete=False)
    return replace(plan, manifest=manifest, version=_write_manifest(encode_manifest(manifest), depot, over=None))


def _write_manifest(data: bytes, depot: Depot, *, over: Version | None) -> Version:
    try:
        return depot.swap(names.ARCHIVE, data, over=over)
    except FileExistsError as error:
        raise _overtaken(depot) from error


def _encoded(manifest: Manifest, depot: Depot) -> bytes:
    """Return a manifest's bytes; raise `CorruptionError`, while nothing is changed, if nobody could read them."""
    data = encode_manifest(manifest)
    decode_manifest(data, path=f"{depot.location}/{names.ARCHIVE}")
    return data


def _overtaken(depot: Depot) -> ArchiveMismatch:
    return ArchiveMismatch(
        f"somebody else has archived to {depot.location} meanwhile; what that named is left as it is. Archive again"
    )


# ---------------------------------------------------------------- one segment


def _noted(parts: Iterator[bytes], note: Callable[[int], None]) -> Iterator[bytes]:
    position = 0
    for part in parts:
        position += len(part)
        note(position)
        yield part


def copy_segment(
    copy: Copy, files: Files, depot: Depot, rules: Rules, *, note: Callable[[int], None] | None = None
) -> SegmentEntry:
    """Copy the files of one segment, and return what the manifest says of it; `note` is told how many bytes it is at.

    Raises `CorruptionError` if the source is damaged, and `SourceChanged` if it is gone.
    """
    shared = Shared(files, copy.directory, copy.config, writable=False)
    segment = Segment(shared, copy.base_offset, size=copy.size, next_offset=copy.base_offset, seal=copy.seal)
    try:
        passed: list[tuple[SegmentState, PageSums]] = []

        def log_parts() -> Iterator[bytes]:
            passed.append((shared.new_state(copy.base_offset), _sums(copy)))
            parts = _log_parts(segment, *passed[-1])
            return parts if note is None else _noted(parts, note)

        stored = {names.LOG: _put(copy, names.LOG, copy.size, log_parts, depot, rules)}
        state, sums = passed[-1]
        for suffix in copy.suffixes:
            if suffix != names.LOG:
                data = _beside(copy, suffix, state, sums, segment)
                stored[suffix] = _put(copy, suffix, len(data), partial(iter, (data,)), depot, rules)
    finally:
        shared.clear()
    return SegmentEntry(
        base_offset=copy.base_offset,
        next_offset=state.next_offset,
        record_count=state.record_count,
        batch_count=state.batch_count,
        max_timestamp_ms=state.max_timestamp,
        seal_bytes=encode_head(copy.seal) if copy.seal is not None else None,
        stem=copy.stem,
        files=stored,
    )


def _sums(copy: Copy) -> PageSums:
    return PageSums(copy.seal.pages.page_size) if copy.seal is not None and copy.seal.pages is not None else PageSums()


def _log_parts(segment: Segment, state: SegmentState, sums: PageSums) -> Iterator[bytes]:
    """Yield a segment's bytes as their batches are checked; damage is raised before its bytes go on."""
    contiguous_from = segment.base_offset if segment.contiguous else INT64_MAX
    with _source_of(segment.path):
        try:
            for _, data, size in scan_into(state, segment, contiguous_from=contiguous_from):
                if segment.pages is not None:
                    sums.add(data, size)
                yield data[:size]
        except CorruptionError:
            _check_same(segment)
            raise
    _check_whole(segment, state)


def _check_same(segment: Segment) -> None:
    """Tell a segment that compaction replaces, or has replaced since it was looked at, from one that is damaged."""
    files = segment.shared.files
    with _source_of(segment.path):
        is_same = (
            names.segment_name(segment.base_offset, names.LOG + names.SWAP) not in files.list(segment.shared.directory)
            and files.file_size(segment.path) == segment.size
            and read_seal(files, segment.shared.directory, segment.base_offset) == segment.seal
        )
    if not is_same:
        raise SourceChanged(f"{segment.path} was replaced")


@contextlib.contextmanager
def _source_of(path: str) -> Iterator[None]:
    """Tell that a file of the source is gone from one that is missing in the archive."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceChanged(f"{path} is gone") from error


def _check_whole(segment: Segment, state: SegmentState) -> None:
    """Refuse a segment that is damaged, cut short, or not the one that its seal proves."""
    seal = segment.seal
    is_sealed = seal is not None and (seal.size, seal.log_crc) == (state.size, state.crc)
    if not is_sealed:
        _check_same(segment)
    if state.problem is not None:
        raise state.problem.located(segment.path)
    if state.size != segment.size:
        raise LostRecords(
            f"the last batch is not whole: {state.size} of {segment.size} bytes are. Nothing of it was archived",
            path=segment.path,
            position=state.size,
        )
    if seal is not None and not is_sealed:
        raise CorruptBatch(
            f"its CRC is {state.crc:08x}, and it was sealed with {seal.log_crc:08x}. Nothing of it was archived",
            path=segment.path,
        )


def _beside(copy: Copy, suffix: str, state: SegmentState, sums: PageSums, segment: Segment) -> bytes:
    """Return the bytes of a file beside the log: those that the seal proves, where it does."""
    path = f"{copy.directory}/{names.segment_name(copy.base_offset, suffix)}"
    if suffix == names.SEAL and copy.seal is not None:
        return encode_seal(copy.seal, sums.table)
    with _source_of(path):
        data = segment.shared.files.read_file(path)
    seal = copy.seal
    proofs = {names.OFFSET_INDEX: seal.offset_index_crc, names.TIME_INDEX: seal.time_index_crc} if seal else {}
    if suffix not in proofs or crc32c(data) == proofs[suffix]:
        return data
    # An index is advice: one that is damaged is made anew from the log, as any reader would do.
    state.finish_times()
    made = bytes(state.offset_table if suffix == names.OFFSET_INDEX else state.time_table)
    if crc32c(made) != proofs[suffix]:
        _check_same(segment)
        raise CorruptionError(
            "the index is not the one that was sealed; rebuild it with seeklog reindex and archive again",
            path=path,
        )
    return made


def _put(
    copy: Copy, suffix: str, size: int, parts: Callable[[], Iterator[bytes]], depot: Depot, rules: Rules
) -> StoredFile:
    """Put one file into the archive, unless it is there, and return its size and CRC once they are proved."""
    name = f"{copy.stem}{suffix}"
    path = f"{copy.partition}/{name}"
    left_size = copy.found.get(name)
    if left_size is not None:
        crc, prefix = _checksums(parts(), left_size)
        left = _checksum(depot.read(path))
        if left == crc and left_size == size:
            return StoredFile(size, crc)
        # Half a copy, as a kill leaves it where files are not shown whole, begins as the file does.
        if left_size >= size or left != prefix:
            raise ArchiveMismatch(
                f"{depot.location}/{path} is there, named by no manifest, and is another file (CRC {left:08x}, not "
                f"{crc:08x}); {_ELSEWHERE}"
            )
    meter = _Meter()
    try:
        depot.put(path, meter.passing(parts()), is_new=left_size is None)
    except FileExistsError as error:
        # Somebody else archives there, too. The same bytes are as good as ours.
        crc = _checksum(parts())
        if _checksum(depot.read(path)) != crc:
            raise ArchiveMismatch(
                f"{depot.location}/{path} was put there by somebody else meanwhile, and is another file; archive again"
            ) from error
        return StoredFile(size, crc)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        # A store that speaks S3 and knows no conditions for a write.
        meter = _Meter()
        depot.put(path, meter.passing(parts()))
    _check_arrived(path, meter, depot, rules)
    return StoredFile(meter.size, meter.crc)


@dataclass(slots=True)
class _Meter:
    """Measures what passes."""

    size: int = 0
    crc: int = field(default=0)

    def passing(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.size += len(part)
            self.crc = crc32c(part, self.crc)
            yield part


def _check_arrived(path: str, sent: _Meter, depot: Depot, rules: Rules) -> None:
    if rules.verify == "size":
        directory, _, name = path.rpartition("/")
        found = depot.sizes(directory).get(name, -1)
        if found == sent.size:
            return
        what = f"{found} bytes"
    else:
        crc = _checksum(depot.read(path))
        if crc == sent.crc:
            return
        what = f"the CRC {crc:08x}, not {sent.crc:08x}"
    # It lies under the name of a good one: the next archiving would take it for somebody else's file.
    depot.remove(path)
    raise CorruptionError(
        f"what was copied there has {what} when it is read back; archive again. The manifest is as it was",
        path=f"{depot.location}/{path}",
    )


def _checksum(parts: Iterable[bytes]) -> int:
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return crc


def _checksums(parts: Iterable[bytes], prefix_size: int) -> tuple[int, int]:
    """Return the CRC of all bytes, and of the first `prefix_size` of them."""
    crc = prefix = 0
    left = prefix_size
    for part in parts:
        crc = crc32c(part, crc)
        if left > 0:
            prefix = crc32c(part[:left], prefix)
            left -= len(part)
    return crc, prefix


# ---------------------------------------------------------------- what counts


def finish_archive(plan: Plan, entries: Iterable[SegmentEntry], depot: Depot) -> Archived:
    """Remove what was replaced the time before; then write the manifest, which names what was copied."""
    before = plan.manifest or Manifest(is_complete=False)
    if depot.version(names.ARCHIVE) != plan.version:
        raise _overtaken(depot)
    arrived = iter(entries)
    partitions: dict[str, dict[int, PartitionEntry]] = {}
    kept = 0
    for one in plan.partitions:
        topic, number = one.partition
        segments = tuple(next(arrived) if isinstance(step, Copy) else step for step in one.steps)
        kept += len(one.steps) - len(one.copies)
        if not segments:
            continue
        end = segments[-1].next_offset
        partitions.setdefault(topic, {})[number] = PartitionEntry(
            partition=number,
            log_start_offset=one.log_start_offset,
            epochs=tuple(epoch for epoch in one.epochs if epoch[1] < end),
            files={name: StoredFile(len(data), crc32c(data)) for name, data in one.files.items()},
            segments=segments,
            gaps=tuple(gap for gap in _holes(segments) if gap in one.gaps),
        )
    topics = []
    for one_topic in plan.topics:
        known = before.topics.get(one_topic.name)
        topics.append(
            TopicEntry(
                name=one_topic.name,
                topic_id=one_topic.topic_id,
                config=dict(one_topic.config),
                partitions={**(known.partitions if known is not None else {}), **partitions.get(one_topic.name, {})},
            )
        )
    after = replace(before, is_complete=True, replaced=()).with_topics(topics)
    named = after.paths()
    # Only segments have readers that come back for their files; what else is not named any more may stay.
    others = [path for path in before.paths() if path not in named]
    replaced = sorted(path for path in others if path.rpartition("/")[2] not in PARTITION_FILES)
    manifest = _encoded(replace(after, replaced=tuple(replaced)), depot)
    for one in plan.partitions:
        # Nothing is put beside what has no segment yet.
        for name, data in one.files.items() if one.steps else ():
            depot.put(f"{one.partition}/{name}", [data])
    # The manifest that is there does not name these any more, and lists them until they are gone.
    removed = [path for path in before.replaced if path not in named]
    for path in removed:
        depot.remove(path)
    _write_manifest(manifest, depot, over=plan.version)
    copies = plan.copies
    logger.info("%s: archived %d segments, %d were there", depot.location, len(copies), kept)
    return Archived(
        location=depot.location,
        copied_segments=len(copies),
        copied_bytes=sum(copy.size for copy in copies),
        kept_segments=kept,
        removed_files=len(removed),
    )


def _holes(segments: Sequence[SegmentEntry]) -> Iterator[tuple[int, int]]:
    """Yield what no segment holds between the first and the last: where it begins, and where it ends, exclusive."""
    for first, second in pairwise(segments):
        if first.next_offset < second.base_offset:
            yield first.next_offset, second.base_offset
