"""Opening a partition directory for writing: checking the files, deciding what may be repaired, and doing it.

The work has two halves. `survey` only reads: it lists the directory, checks seals, scans from the recovery point, and
decides. `mend` acts on the decision. So if damage is refused, nothing on disk has changed.

Only bytes that were never promised durable may be cut, and they are kept: the tail of the damaged segment and all later
segments become `.torn` files before anything is truncated.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count, pairwise

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, LostRecords, UnsupportedMagic, counted
from seeklog.files import FileStatus, Handle, read_if_exists, remove_if_exists, replace_file
from seeklog.log.active import ActiveSegment
from seeklog.log.clean import swap
from seeklog.log.segment import Segment, Shared, scan_into
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.epochs import Entry as EpochEntry
from seeklog.log.side.pages import PageSums
from seeklog.log.side.seal import read_seal
from seeklog.log.side.transaction_index import trim_aborted
from seeklog.record.batch_header import count_whole_batches, has_producers
from seeklog.record.saved_state import SavedState
from seeklog.record.segment_state import SegmentState

logger = logging.getLogger("seeklog")

# After this many listings that overlap a compaction, a reader uses the last one and notices replaced files on open.
MAX_LOOKS = 32
REFUSED = (
    "These records were promised durable, so the log is not opened for writing and nothing was changed. "
    "It can be read with read_only=True up to the damage. Restore the file from a copy, or see what `seeklog repair` "
    "would save."
)


class Stop(Enum):
    END = "the bytes end with a whole batch"
    TORN = "the last batch is incomplete"
    DAMAGED = "a batch fails its checks"
    GAP = "the next segment does not follow"


class Action(Enum):
    KEEP = "nothing"
    CUT = "cut after the last good batch"
    REFUSE = "refuse to open"


def decide(stop: Stop, *, next_offset: int, recovery_point: int) -> Action:
    """Return what recovery may do. Only bytes that were never promised durable may be cut."""
    if stop is Stop.END:
        return Action.KEEP
    if next_offset < recovery_point:
        return Action.REFUSE
    return Action.CUT


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did when the log was opened."""

    clean: bool = True
    """Whether the log was closed cleanly, so that nothing had to be scanned."""
    scanned_segments: int = 0
    scanned_batches: int = 0
    scanned_bytes: int = 0
    rebuilt_indexes: int = 0
    cut_bytes: int = 0
    """Bytes cut off the log and kept in `torn_files`."""
    cut_reason: str = ""
    torn_files: list[str] = field(default_factory=list)
    cut_batches: int = 0
    """Whole batches in the cut bytes."""
    cut_records: int = 0
    completed_swaps: int = 0
    """Interrupted compactions that were completed."""


@dataclass(slots=True)
class Scanned:
    segment: Segment
    state: SegmentState
    stop: Stop
    action: Action
    has_producers: bool
    """Whether any batch has a producer id."""
    sums: PageSums | None
    """The page checksums, for a segment that may have gaps."""


@dataclass(slots=True)
class Survey:
    """The content of a directory, and the decisions about it."""

    segments: list[Segment] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    """Leftover files from before a crash."""
    sealed: list[Segment] = field(default_factory=list)
    """Segments whose seals are trusted."""
    scanned: list[Scanned] = field(default_factory=list)
    after_cut: list[Segment] = field(default_factory=list)
    clean_active: tuple[Segment, SegmentState] | None = None


def load_segments(shared: Shared, listing: Iterable[str]) -> list[Segment]:
    """Return the segments of a listing in order."""
    statuses = {}
    for name in listing:
        if name.endswith(names.LOG):
            parsed = names.parse_segment_name(name)
            if parsed is not None:
                # Another process may have just deleted the segment.
                with contextlib.suppress(FileNotFoundError):
                    statuses[parsed[0]] = shared.files.status(f"{shared.directory}/{name}")
    bases = sorted(statuses)
    ends = [*bases[1:], INT64_MAX][: len(bases)]
    return [_listed(shared, base, statuses[base], next_offset=end) for base, end in zip(bases, ends, strict=True)]


def _listed(shared: Shared, base_offset: int, status: FileStatus, *, next_offset: int) -> Segment:
    segment = Segment(shared, base_offset, size=status.size, next_offset=next_offset, seal=None)
    segment.listed = status
    return segment


def find_swaps(shared: Shared, listing: Iterable[str]) -> list[Segment]:
    """Return the segments of a finished compaction that still have their `.swap` names, by Kafka's rules.

    A swap at or above the base offset of the smallest `.cleaned` file was not complete at the crash, so its originals
    still count.
    """
    swapped = [name for name in listing if name.endswith(names.LOG + names.SWAP)]
    limit = min((_base_of(name) for name in listing if name.endswith(names.CLEANED)), default=INT64_MAX)
    segments = []
    for name in sorted(swapped, key=_base_of):
        if _base_of(name) < limit:
            try:
                status = shared.files.status(f"{shared.directory}/{name}")
            except FileNotFoundError:
                continue  # another process has just renamed it
            segment = _listed(shared, _base_of(name), status, next_offset=INT64_MAX)
            segment.path += names.SWAP
            segments.append(segment)
    return segments


def replaced_by(swapped: Segment, segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments that a swap replaces: it may be the merge of several."""
    end = swapped.scan_all().next_offset
    swapped.release()
    first = swapped.base_offset
    return [segment for segment in segments if segment.base_offset == first or first <= segment.base_offset < end]


def list_segments(shared: Shared, listing: list[str]) -> list[Segment]:
    """Return the current segments. A finished compaction counts even before its files are renamed."""
    segments = load_segments(shared, listing)
    for swapped in find_swaps(shared, listing):
        try:
            replaced = replaced_by(swapped, segments)
        except FileNotFoundError:
            # Another process has just renamed the swap, so the listing is stale.
            return list_segments(shared, shared.files.list(shared.directory))
        segments = sorted([*(s for s in segments if s not in replaced), swapped], key=lambda s: s.base_offset)
        for segment, following in pairwise(segments):
            segment.end_before(following.base_offset)
    return segments


def list_beside_writer(shared: Shared) -> tuple[list[str], list[Segment]]:
    """Return the names in a directory that another process may be writing, and the segments at one moment.

    A listing made during a roll may contain a new segment but not the one before it. A second listing contains every
    file that existed when the first one ended; newer files are left out. And while compaction replaces several files
    with one, some may be gone before their sizes are read, and the new one not listed yet. So at the end the same names
    must still belong to the same files.
    """
    files, directory = shared.files, shared.directory
    for _ in range(MAX_LOOKS):
        newest = max(_log_files(files.list(directory)).values(), default=-1)
        parsed_names = ((name, names.parse_segment_name(name)) for name in files.list(directory))
        listing = [name for name, parsed in parsed_names if parsed is None or parsed[0] <= newest]
        segments = list_segments(shared, listing)
        now = _log_files(files.list(directory))
        is_same = _log_files(listing) == {name: base for name, base in now.items() if base <= newest}
        if is_same and not any(segment.was_replaced() for segment in segments):
            break
    return listing, segments


def _log_files(listing: Iterable[str]) -> dict[str, int]:
    return {
        name: _base_of(name)
        for name in listing
        if name.endswith((names.LOG, names.LOG + names.SWAP)) and names.is_known(name)
    }


def complete_swaps(shared: Shared, listing: list[str], segments: Iterable[Segment]) -> int:
    """Finish interrupted compactions: rename the swaps. Return how many.

    The caller scans these segments, which rebuilds their indexes and seals.
    """
    originals = load_segments(shared, listing)
    count = 0
    for segment in segments:
        if segment.path.endswith(names.SWAP):
            replaced = [old.base_offset for old in replaced_by(segment, originals)]
            swap.complete(shared, segment.base_offset, replaced, has_sides=False)
            segment.path = shared.path(segment.base_offset, names.LOG)
            count += 1
    return count


def _base_of(name: str) -> int:
    digits = name[:20]
    return int(digits) if digits.isdigit() else INT64_MAX


def survey(shared: Shared, listing: list[str], checkpoint: Checkpoint | None) -> Survey:
    """Check a partition directory and decide what to do. Raises if damage must be refused."""
    surveyed = Survey(leftovers=list(_leftovers(listing)))
    surveyed.segments = segments = list_segments(shared, listing)
    recovery_point = checkpoint.recovery_point if checkpoint is not None else 0
    contiguous_from = checkpoint.contiguous_from if checkpoint is not None else INT64_MAX
    trusts_seals = checkpoint is None or not checkpoint.is_visited
    _check_not_lost(shared, segments, checkpoint)
    if checkpoint is not None:
        # Deleted segments that reappeared after a crash. There may be holes between them.
        while len(segments) > 1 and segments[1].base_offset <= checkpoint.log_start_offset:
            gone = segments.pop(0).base_offset
            surveyed.leftovers += [
                name for name in listing if name.startswith(f"{gone:020d}.") and name.endswith(names.SEGMENT_SUFFIXES)
            ]
    if checkpoint is not None and checkpoint.active is not None and segments:
        surveyed.clean_active = _restore(shared, segments[-1], checkpoint.active)
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if last and surveyed.clean_active is not None:
            break
        if not last and segment.next_offset <= recovery_point and trusts_seals and _trust_seal(shared, segment):
            surveyed.sealed.append(segment)
            continue
        scanned = _scan(shared, segment, last, recovery_point, contiguous_from)
        surveyed.scanned.append(scanned)
        if isinstance(scanned.state.problem, UnsupportedMagic) and (checkpoint is None or checkpoint.foreign):
            # A broker's old format is not damage, and must not be cut.
            raise scanned.state.problem.located(segment.path)
        if scanned.action is Action.REFUSE:
            raise _refusal(scanned, recovery_point)
        if scanned.action is Action.CUT:
            surveyed.after_cut = segments[number + 1 :]
            break
    return surveyed


def _leftovers(listing: list[str]) -> Iterable[str]:
    logs = {name for name in listing if name.endswith(names.LOG)}
    swapped = {name for name in listing if name.endswith(names.LOG + names.SWAP)}
    for name in listing:
        if name.endswith(names.SEGMENT_SUFFIXES):
            parsed = names.parse_segment_name(name)
            if parsed is not None and names.segment_name(parsed[0], names.LOG) not in logs:
                yield name
        elif name.endswith(names.TRANSACTION_INDEX):
            # It may belong to a swap, whose other files are renamed after it.
            log = name.removesuffix(names.TRANSACTION_INDEX) + names.LOG
            if names.is_known(name) and log not in logs and log + names.SWAP not in swapped:
                yield name
        elif name.endswith((names.DELETED, names.CLEANED, names.SWAP, names.TEMPORARY)) and names.is_known(name):
            yield name


def _check_not_lost(shared: Shared, segments: list[Segment], checkpoint: Checkpoint | None) -> None:
    if checkpoint is None:
        return
    if not segments:
        if checkpoint.recovery_point > checkpoint.log_start_offset:
            raise LostRecords(
                f"no segment is left, but offsets {checkpoint.log_start_offset} to "
                f"{checkpoint.recovery_point - 1} were synced",
                path=shared.directory,
                advice=REFUSED,
            )
    elif segments[0].base_offset > checkpoint.log_start_offset and not checkpoint.foreign:
        raise LostRecords(
            f"the first segment starts at offset {segments[0].base_offset}, but the log starts at "
            f"{checkpoint.log_start_offset}",
            path=shared.directory,
            advice=REFUSED,
        )


def _restore(shared: Shared, segment: Segment, saved: SavedState) -> tuple[Segment, SegmentState] | None:
    """Return the last segment with the state saved on close, if its files still match that state."""
    if not saved.is_of(segment.base_offset, size=segment.size):
        return None
    reason = "an index does not match the one at the last close"
    try:
        tables = [
            shared.files.read_file(shared.path(segment.base_offset, suffix))
            for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)
        ]
        state = shared.new_state(segment.base_offset)
        if state.restore(tuple(saved), *tables):
            return segment, state
    except OSError as error:
        reason = f"an index cannot be read: {error}"
    logger.warning("%s: rebuilding the indexes: %s", segment.path, reason)
    return None


def _trust_seal(shared: Shared, segment: Segment) -> bool:
    """Return whether a segment matches its seal. Raises `LostRecords` if it has lost records."""
    seal = read_seal(shared.files, shared.directory, segment.base_offset)
    if seal is None or segment.path.endswith(names.SWAP):
        return False
    lost = ""
    if segment.size < seal.size:
        lost = f"the file has {counted(segment.size, 'byte')}, its seal says {seal.size:,}"
    elif seal.contiguous and seal.next_offset != segment.next_offset:
        lost = f"offsets {seal.next_offset} to {segment.next_offset - 1} are missing after this segment"
    if lost:
        raise LostRecords(lost, path=segment.path, position=min(segment.size, seal.size), advice=REFUSED)
    if segment.size > seal.size:
        return False
    segment.attach(seal)
    return True


def _scan(shared: Shared, segment: Segment, last: bool, recovery_point: int, contiguous_from: int) -> Scanned:
    state = shared.new_state(segment.base_offset)
    numbered = False
    # A segment that may have gaps may get a seal with page checksums.
    sums = PageSums() if segment.base_offset < contiguous_from and not last else None
    for _, data, size in scan_into(state, segment, contiguous_from=contiguous_from):
        numbered = numbered or has_producers(data, size)
        if sums is not None:
            sums.add(data, size)
    segment.release()
    stop = Stop.END
    if state.problem is not None:
        stop = Stop.DAMAGED
    elif state.size < segment.size:
        stop = Stop.TORN
    elif not last and state.next_offset != segment.next_offset and state.next_offset >= contiguous_from:
        stop = Stop.GAP
    action = decide(stop, next_offset=state.next_offset, recovery_point=recovery_point)
    if last and stop is Stop.END and state.next_offset < recovery_point:
        # Nothing is damaged, but synced batches are missing from the end.
        action = Action.REFUSE
    return Scanned(segment, state, stop, action, numbered, sums)


def _refusal(scanned: Scanned, recovery_point: int) -> CorruptionError:
    segment, state = scanned.segment, scanned.state
    reason = str(state.problem.reason) if state.problem is not None else scanned.stop.value
    return LostRecords(
        f"{reason}; whole batches end at offset {state.next_offset}, but offsets below {recovery_point} were synced",
        path=segment.path,
        position=state.size,
        advice=REFUSED,
    )


@dataclass(slots=True)
class Mended:
    """An opened log, and the leader epochs that were seen."""

    sealed: list[Segment]
    active: ActiveSegment
    epochs: list[EpochEntry]
    report: RecoveryReport


def mend(
    shared: Shared, surveyed: Survey, *, listing: list[str], recovery_point: int, initial_offset: int, now_ms: int
) -> Mended:
    """Carry out the decisions of `survey` and sync the result. Bytes above the recovery point are written again.

    The pages of a failed sync read back fine and are lost later. So reading them proves nothing; writing them again and
    syncing does.
    """
    files, directory = shared.files, shared.directory
    report = RecoveryReport(clean=surveyed.clean_active is not None and not surveyed.scanned)
    if surveyed.leftovers or not report.clean:
        # A killed process or a failed sync may have left names that are visible but not yet durable. Nothing is removed
        # because of a name that a power loss can undo.
        files.sync_directory(directory)
    report.completed_swaps = complete_swaps(shared, listing, surveyed.segments)
    for name in surveyed.leftovers:
        remove_if_exists(files, f"{directory}/{name}")
    if surveyed.scanned and surveyed.scanned[-1].action is Action.CUT:
        _keep_evidence(shared, surveyed, report)
    sealed = list(surveyed.sealed)
    epochs: list[EpochEntry] = []
    for scanned in surveyed.scanned:
        epochs += scanned.state.epochs
        _rewrite(shared, scanned, recovery_point, is_last=scanned is surveyed.scanned[-1])
        report.scanned_segments += 1
        report.scanned_batches += scanned.state.batch_count
        report.scanned_bytes += scanned.state.size
    active = _open_active(shared, surveyed, initial_offset)
    for scanned in surveyed.scanned:
        report.rebuilt_indexes += 1
        if scanned.state is not active.state:
            sealed.append(_reseal(scanned, now_ms=now_ms))
    if surveyed.scanned or surveyed.leftovers or surveyed.clean_active is None:
        files.sync_directory(directory)
    sealed.sort(key=lambda segment: segment.base_offset)
    if report.cut_bytes:
        logger.warning(
            "%s: recovery cut %s (%s) and kept them in %s: %s with %s",
            directory,
            counted(report.cut_bytes, "byte"),
            report.cut_reason,
            ", ".join(report.torn_files),
            counted(report.cut_batches, "whole batch", "whole batches"),
            counted(report.cut_records, "record"),
        )
    return Mended(sealed, active, epochs, report)


def _open_active(shared: Shared, surveyed: Survey, initial_offset: int) -> ActiveSegment:
    if surveyed.clean_active is not None:
        segment, state = surveyed.clean_active
        active = ActiveSegment(shared, state, Handle(shared.files, segment.path, write=True))
        active.adopt_indexes()
        return active
    if surveyed.scanned:
        last = surveyed.scanned[-1]
        active = ActiveSegment(shared, last.state, Handle(shared.files, last.segment.path, write=True))
        active.replace_indexes()
        shared.remove(last.segment.base_offset, names.SEAL, names.KEY_INDEX)
        trim_aborted(shared, last.segment.base_offset, end=last.state.next_offset)
        return active
    return ActiveSegment.create(shared, initial_offset)


def _reseal(scanned: Scanned, *, now_ms: int) -> Segment:
    scanned.state.finish_times()
    sealed = Segment(
        scanned.segment.shared,
        scanned.segment.base_offset,
        size=scanned.state.size,
        next_offset=scanned.segment.next_offset,
        seal=None,
    )
    # A segment that ends before the next begins lost its last batches to compaction, so gaps are valid in it.
    follows = scanned.state.next_offset == scanned.segment.next_offset
    sealed.write_sealed(scanned.state, sealed_at_ms=now_ms, may_have_gaps=not follows, sums=scanned.sums)
    return sealed


def _rewrite(shared: Shared, scanned: Scanned, recovery_point: int, *, is_last: bool) -> None:
    is_above = scanned.state.next_offset > recovery_point
    if not is_above and not is_last:
        return
    files = shared.files
    handle = files.open(scanned.segment.path, write=True)
    try:
        if is_above:
            again = shared.new_state(scanned.segment.base_offset)
            for position, data, size in scan_into(again, scanned.segment, contiguous_from=INT64_MAX):
                if again.next_offset > recovery_point:
                    files.write(handle, data[:size], position)
        # The size, too: if the sync of a truncation failed, a power loss may bring back what was cut.
        files.truncate(handle, scanned.state.size)
        files.sync(handle)
    finally:
        files.close(handle)
        scanned.segment.release()


def _keep_evidence(shared: Shared, surveyed: Survey, report: RecoveryReport) -> None:
    """Copy the tail and the later segments to `.torn` files, sync them, and only then truncate."""
    files, directory = shared.files, shared.directory
    cut = surveyed.scanned[-1]
    report.cut_reason = str(cut.state.problem.reason) if cut.state.problem is not None else cut.stop.value
    tail = cut.segment.read(cut.segment.size - cut.state.size, cut.state.size)
    cut.segment.release()
    if tail:
        _count(report, tail)
        name_of = partial(names.torn_name, cut.segment.base_offset, cut.state.size)
        report.torn_files.append(write_evidence(shared, name_of, tail))
    # From last to first, so that a crash in between leaves a log without a hole.
    for segment in reversed(surveyed.after_cut):
        data = segment.read(segment.size, 0)
        segment.release()
        _count(report, data)
        report.torn_files.append(write_evidence(shared, partial(names.torn_name, segment.base_offset, 0), data))
        files.sync_directory(directory)
        # Its index of aborted transactions stays, for a repair that brings the segment back.
        shared.remove(segment.base_offset, *names.SEGMENT_SUFFIXES)
    files.sync_directory(directory)
    handle = files.open(cut.segment.path, write=True)
    try:
        files.truncate(handle, cut.state.size)
        files.sync(handle)
    finally:
        files.close(handle)
    cut.segment = Segment(
        shared, cut.segment.base_offset, size=cut.state.size, next_offset=cut.state.next_offset, seal=None
    )


def _count(report: RecoveryReport, data: bytes) -> None:
    batches, records = count_whole_batches(data)
    report.cut_bytes += len(data)
    report.cut_batches += batches
    report.cut_records += records


def write_evidence(shared: Shared, name_of: Callable[[int], str], data: bytes) -> str:
    """Keep bytes as evidence under the first free name; return the name. Not yet durable.

    If an earlier attempt was interrupted, the same bytes are not kept twice.
    """
    attempts = count()
    while True:
        name = name_of(next(attempts))
        kept = read_if_exists(shared.files, f"{shared.directory}/{name}")
        if kept is None:
            replace_file(shared.files, shared.directory, name, data)
        if kept is None or kept == data:
            return name
