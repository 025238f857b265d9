"""A partition as seen by a process that only reads it, while another process may write it.

It takes no lock and changes nothing on disk. The last segment is walked forward as it grows, up to its last whole
batch: an incomplete tail is data still to come, not an error. Reads stop at the published high watermark.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from math import inf

from seeklog import names
from seeklog.clock import Clock
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import LostRecords, NotALog, TopicNotFound
from seeklog.files import Files, FileStatus, Handle, ReadOnlyFiles, read_if_exists
from seeklog.files.remote import RemoteFiles
from seeklog.log.borrowing import Note, read_note
from seeklog.log.broker_visit import after_visit, check_for_visit
from seeklog.log.directory import check_directory, has_broker
from seeklog.log.host import Host
from seeklog.log.keys.lookup import KeyLookup
from seeklog.log.recovery import MAX_LOOKS, RecoveryReport, list_beside_writer
from seeklog.log.segment import ADVICE, SCAN_CHUNK, Phase, Segment, Shared, Trust, whole_batch_size
from seeklog.log.side.checkpoint import Checkpoint, read_checkpoint
from seeklog.log.side.epochs import LeaderEpochs
from seeklog.log.side.seal import Seal
from seeklog.log.side.watermark import EXPLICIT, read_watermark
from seeklog.log.view import View, mark_gaps
from seeklog.record import batch_header, layout
from seeklog.record.batch import read_header
from seeklog.record.saved_state import SavedState

logger = logging.getLogger("seeklog")

# How often a reader checks whether a broker has written the directory.
VISIT_CHECK_S = 0.5
# How long a follower sleeps between two checks: at first, and at most.
MIN_POLL_S = 0.001
MAX_POLL_S = 0.05
FOLLOWED_ROLLS = 8
# An index entry stores a relative offset in 31 bits, so this many offsets fit in a segment.
MAX_SPAN = 2**31


_open_observers: weakref.WeakSet[Observer] = weakref.WeakSet()


class TailSegment(Segment):
    """The last segment, which its writer may be extending."""

    def __init__(self, shared: Shared, base_offset: int, *, trusted: bool) -> None:
        super().__init__(shared, base_offset, size=0, next_offset=base_offset, seal=None)
        self.trust = self._unsealed = Trust(contiguous=trusted, is_exact=trusted)
        self._is_trusted = trusted

    def close_at(self, saved: SavedState) -> None:
        """Adopt the state that a clean close saved: size, end offset, and the CRCs of the indexes."""
        self._size, self._next_offset = saved.size, saved.next_offset
        # The last segment of an archive has its own seal, with page checksums if the segment has gaps.
        seal = self.shared.read_seal(self.base_offset) if not saved.is_contiguous else None
        if seal is None or (seal.size, seal.log_crc) != (saved.size, saved.log_crc):
            seal = Seal(
                base_offset=saved.base_offset,
                next_offset=saved.next_offset,
                size=saved.size,
                record_count=saved.record_count,
                batch_count=saved.batch_count,
                max_timestamp_ms=saved.max_timestamp_ms,
                sealed_at_ms=0,
                log_crc=saved.log_crc,
                offset_index_crc=saved.offset_index_crc,
                time_index_crc=saved.time_index_crc,
                contiguous=saved.is_contiguous != 0,
            )
        self.attach(seal)

    @property
    def is_bounded(self) -> bool:
        return False

    def exact_end(self) -> int:
        return self._next_offset

    def _is_own(self, handle: Handle) -> bool:
        """Return True: the size at a clean close does not identify a segment that grows."""
        return True

    def file_size(self) -> int:
        handle = self.handle()  # keeps the file open if another thread releases it
        return self.shared.files.size(handle.number)

    def is_same_file(self, status: FileStatus | None) -> bool:
        """Allow growth, but a file shorter than what was already walked was truncated."""
        return super().is_same_file(status) and status is not None and status.size >= self._size

    def was_cut(self) -> bool:
        """Return whether the file was shortened or replaced. Raises if it is gone."""
        now = self.shared.files.status(self.path)
        return now.size < self._size or (self.listed is not None and now.identity != self.listed.identity)

    def notice_growth(self) -> None:
        """Drop the seal of a clean close if the file has another size by now."""
        if self.seal is not None and self.file_size() != self._size:
            self.trust = self._unsealed

    def walk(self) -> None:
        file_size = self.file_size()
        if file_size == self._size:
            return
        if not self._size:
            self._place(file_size)
        wanted = SCAN_CHUNK
        handle = self.handle()
        while self._size < file_size:
            data = self.shared.files.read(handle.number, wanted, self._size)
            taken, next_offset = batch_header.walk_batches(data, self._next_offset, self._is_trusted)
            if next_offset - self.base_offset > MAX_SPAN:
                taken, next_offset = self._within_span(data)
            if not taken:
                claimed = whole_batch_size(data) if len(data) >= 12 else 0
                if not len(data) < claimed <= file_size - self._size:
                    return
                wanted = claimed
                continue
            wanted = SCAN_CHUNK
            self._size, self._next_offset = self._size + taken, next_offset
            # The index files grow with the log, so they are read again.
            self.loaded.indexes = None

    def _within_span(self, data: bytes) -> tuple[int, int]:
        """Walk as `walk_batches` does, but stop at the batch whose offset does not fit in this segment."""
        at, next_offset = 0, self._next_offset
        while (header := read_header(data, at)).next_offset - self.base_offset <= MAX_SPAN:
            at, next_offset = at + header.size, header.next_offset
        return at, next_offset

    def _place(self, file_size: int) -> None:
        """Skip to the last index entry that a batch confirms, instead of walking from the start of the file."""
        self._size = file_size
        handle = self.handle()
        try:
            offsets = self.indexes.offsets
            for number in range(len(offsets) - 1, -1, -1):
                entry = offsets[number]
                if 0 <= entry.position < file_size:
                    data = self.shared.files.read(handle.number, layout.HEADER_SIZE, entry.position)
                    base = batch_header.entry_base(data, entry.offset, self._is_trusted)
                    if base >= self.base_offset:
                        self._size, self._next_offset = entry.position, base
                        return
        finally:
            if self._size == file_size:
                self._size, self._next_offset = 0, self.base_offset


class UnopenedSegment(TailSegment):
    """Takes the place of the first segment until the first writer creates it."""

    def file_size(self) -> int:
        return 0


class Observer:
    def __init__(
        self,
        directory: str,
        *,
        config: LogConfig,
        files: Files,
        clock: Clock,
        inherited: Callable[[], Checkpoint | None],
        host: Host | None = None,
    ) -> None:
        self._is_unopened = host.is_unopened if host is not None else lambda: False
        if not self._is_unopened():
            check_directory(files, directory, create=False)
        self.directory = directory
        self.config = config
        self.files = files
        self.clock = clock
        self.recovery = RecoveryReport()
        self.keys = KeyLookup(config, writer=None)
        self._shared = Shared(files, directory, config, writable=False, host=host)
        myself = weakref.ref(self)
        self._shared.renew = lambda: _reloaded(myself())
        self._inherited = inherited
        self._own: Checkpoint | None = None
        self._was_visited = False
        """Whether a broker has written the partition since `_own`."""
        self._next_visit_check = 0.0
        self.source = host.source if host is not None else None
        """The topic and partition in a store; None for a lone log."""
        self.has_topic = host.has_topic if host is not None else None
        self._topic_id = self._read_topic_id()
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_warned = False
        _open_observers.add(self)
        self._load()

    def _warn_once(self, message: str) -> None:
        """Log a damaged watermark once: it is read again and again."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", message)

    def _read_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that applies now. A broker may start and stop on the directory at any time."""
        own = read_checkpoint(self.files, self.directory)
        inherited = self._inherited()
        if own is None:
            return inherited
        now = self.clock.monotonic()
        if own != self._own or now >= self._next_visit_check:
            self._next_visit_check = now + VISIT_CHECK_S
            own, self._was_visited = check_for_visit(self.files, self.directory, own)
            self._own = own
        return after_visit(self.files, self.directory, own, inherited) if self._was_visited else own

    def _read_topic_id(self) -> bytes:
        """Return the content of Kafka's `partition.metadata`, or nothing."""
        if isinstance(self.files, ReadOnlyFiles):
            return b""  # a copy does not change, and each file may cost a request
        return read_if_exists(self.files, f"{self.directory}/{names.PARTITION_METADATA}") or b""

    def is_same_topic(self) -> bool:
        """Return whether the directory still belongs to the topic that was opened."""
        topic_id = self._read_topic_id()
        self._topic_id = self._topic_id or topic_id
        return not topic_id or topic_id == self._topic_id

    def _check_same_topic(self) -> None:
        """Raise `TopicNotFound` if the topic was recreated, with other records."""
        if not self.is_same_topic():
            if self.has_topic is not None:
                # Its store must read the catalog again, or it would return the same reader again.
                self.has_topic()
            topic = self.source.topic if self.source is not None else os.path.basename(self.directory)
            raise TopicNotFound(f"topic {topic!r} was deleted and recreated; open it again")

    def _load(self, *, is_retry: bool = False) -> None:
        """Load the directory; retry if files are replaced meanwhile."""
        for _ in range(MAX_LOOKS):
            try:
                return self._load_once(is_retry=is_retry)
            except FileNotFoundError:
                self.files.list(self.directory)  # raises if the directory itself is gone
        return self._load_once(is_retry=is_retry)

    def _load_once(self, *, is_retry: bool) -> None:
        self._check_same_topic()
        self._next_visit_check = 0.0
        self._checkpoint = self._read_checkpoint()
        self._shared.trusts_seals = self._checkpoint is None or not self._checkpoint.is_visited
        segments = self._list_segments()
        checkpoint = self._checkpoint
        first_kept = checkpoint.log_start_offset if checkpoint is not None else 0
        while len(segments) > 1 and segments[1].base_offset <= first_kept:
            segments.pop(0)
        for segment in segments[:-1]:
            if segment.path.endswith(names.SWAP):
                continue  # the seal with its base offset belongs to the segment that it replaces
            segment.phase = Phase.LISTED
            # Where each seal costs a request, it is read only when needed.
            if not isinstance(self.files, RemoteFiles):
                segment.fetch_seal()
        if checkpoint is not None:
            mark_gaps(segments, checkpoint.gaps)
        last = segments[-1]
        trusted = checkpoint is not None and checkpoint.contiguous_from <= last.base_offset
        self._tail = (TailSegment if last.listed is not None else UnopenedSegment)(
            self._shared, last.base_offset, trusted=trusted
        )
        self._tail.path, self._tail.listed = last.path, last.listed
        if checkpoint is not None and checkpoint.active is not None:
            saved = checkpoint.active
            if saved.is_of(last.base_offset, size=last.size):
                self._tail.close_at(saved)
        self.view = View([*segments[:-1], self._tail])
        self._update_offsets(self._read_checkpoint(), is_retry=is_retry)

    def _list_segments(self) -> list[Segment]:
        segments: list[Segment] = []
        try:
            _, segments = list_beside_writer(self._shared)
        except FileNotFoundError:
            if not self._is_unopened():
                raise
        if not segments and not self._is_unopened():
            raise NotALog(f"there is no log at {self.directory}: it holds no segment")
        return segments or [Segment(self._shared, 0, size=0, next_offset=0, seal=None)]

    def _update_offsets(self, latest: Checkpoint | None, *, is_retry: bool = False) -> None:
        """Set the offsets up to which the log may be read, by the latest checkpoint.

        If records seem lost, everything is loaded once more before the error is raised.
        """
        checkpoint = self._checkpoint
        self._tail.notice_growth()
        stop = self._published(latest)
        self._tail.walk()
        if stop is not None and not self.is_over and self._was_cut_below(stop, since=latest):
            # The records below `stop` may be new, and not synced yet.
            self._load()
            return
        end = self._tail.next_offset
        if checkpoint is not None and end < checkpoint.recovery_point:
            if not is_retry:
                # Compaction may have merged the last segments, and not have replaced the checkpoint yet.
                self._load(is_retry=True)
                return
            self._check_lost(checkpoint, end)
        self.log_end_offset = end
        self.high_watermark = end if stop is None else min(end, stop)
        first = self.view.bases[0]
        self.log_start_offset = max(first, checkpoint.log_start_offset) if checkpoint is not None else first
        self.recovery_point = min(end, checkpoint.recovery_point) if checkpoint is not None else first

    def explains_start_beyond(self, offset: int) -> bool:
        """Return whether the log may start after an offset, by its checkpoint or because a broker deletes segments."""
        checkpoint = self._checkpoint
        return checkpoint is None or checkpoint.foreign or checkpoint.log_start_offset > offset

    @property
    def last_stable_offset(self) -> int:
        """The high watermark: a reader does not know which transactions are open."""
        return self.high_watermark

    def _check_lost(self, checkpoint: Checkpoint, end: int) -> None:
        """Raise `LostRecords` if the log ends below its recovery point, unless its writer has just changed it."""
        if self._has_rolled() or self._read_checkpoint() != checkpoint:
            return
        if checkpoint.foreign and has_broker(self.files, self.directory):
            return  # a broker may truncate the log, and it writes its checkpoint only once a minute
        raise LostRecords(
            f"no whole batch follows offset {end - 1}, but offsets below {checkpoint.recovery_point} were synced",
            path=self._tail.path,
            position=self._tail.size,
            advice=ADVICE,
        )

    def _published(self, checkpoint: Checkpoint | None) -> int | None:
        """Return the first offset that must not be read, or None if records are visible once written."""
        if checkpoint is None or checkpoint.foreign:
            return None  # a broker writes this directory
        published = read_watermark(self.files, self.directory, warn=self._warn_once)
        if published is None:
            return checkpoint.high_watermark
        mode, high_watermark = published
        # The watermark file is not synced: after a power loss the checkpoint may be newer.
        return max(high_watermark, checkpoint.high_watermark) if mode == EXPLICIT else None

    def refresh(self) -> None:
        """Follow the writer's changes since the last refresh."""
        with self._lock:
            if self._is_closed:
                return
            checkpoint = self._read_checkpoint()
            try:
                if self._is_overtaken_by(checkpoint) or self._tail.was_cut():
                    self._load()
                else:
                    self._checkpoint = checkpoint
                    self._update_offsets(checkpoint)
            except FileNotFoundError:
                # The last segment disappeared during the refresh: it was truncated or deleted.
                self._load()
            # The writer may roll during the refresh; follow it a few times, not forever.
            for _ in range(FOLLOWED_ROLLS):
                if not self._has_rolled():
                    return
                self._load()

    def _has_rolled(self) -> bool:
        tail = self._tail
        return tail.next_offset > tail.base_offset and self._exists(self._shared.path(tail.next_offset, names.LOG))

    def _is_overtaken_by(self, checkpoint: Checkpoint | None) -> bool:
        if checkpoint is None or self._checkpoint is None:
            return checkpoint is not self._checkpoint
        return (
            checkpoint.generation != self._checkpoint.generation
            or checkpoint.log_start_offset != self._checkpoint.log_start_offset
            or checkpoint.is_visited != self._checkpoint.is_visited
        )

    def _was_cut_below(self, stop: int, *, since: Checkpoint | None) -> bool:
        """Return whether the log may have been truncated below an offset after the checkpoint `since` was read.

        A truncation first writes a checkpoint with a lower high watermark. Compaction also writes checkpoints, one for
        each segment, but with the same watermark: reloading for each would take as long as the compaction.
        """
        latest = self._read_checkpoint()
        return (
            latest is None or since is None or (latest.generation != since.generation and latest.high_watermark < stop)
        )

    def reload(self) -> None:
        with self._lock:
            self._load()

    def _exists(self, path: str) -> bool:
        try:
            self.files.close(self.files.open(path))
        except OSError:
            return False
        return True

    @property
    def _epochs(self) -> LeaderEpochs:
        if self._checkpoint is not None and not self._checkpoint.foreign:
            return LeaderEpochs(self._checkpoint.epochs)
        if self._is_unopened():
            return LeaderEpochs([(0, 0)])  # as its first writer begins it
        return LeaderEpochs.read(self.files, self.directory)

    @property
    def leader_epoch(self) -> int:
        return self._epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, its end offset), or (-1, -1)."""
        return self._epochs.end_offset(epoch, log_end_offset=self.log_end_offset)

    def settled_watermark(self) -> int:
        """Return the high watermark of the last refresh."""
        return self.high_watermark

    def wait_beyond(self, offset: int, timeout: float | None) -> None:
        """Poll until the high watermark is above `offset` or `timeout` seconds have passed."""
        pause = threading.Event()
        give_up = inf if timeout is None else self.clock.monotonic() + timeout
        delay = MIN_POLL_S
        while True:
            self.refresh()
            left = give_up - self.clock.monotonic()
            if self.high_watermark > offset or left <= 0 or self._is_closed:
                return
            pause.wait(min(delay, left))
            delay = min(2 * delay, MAX_POLL_S)

    @property
    def is_clean(self) -> bool:
        """Whether the log was closed or returned after the last write. A broker's directory counts as clean."""
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.foreign or self._tail.seal is not None:
            return True
        return self.note() is not None

    def note(self) -> Note | None:
        """Return the note of the last writer if it has released the log: then the last segment ends with it."""
        note = read_note(self.files, self.directory)
        is_current = note is not None and note[:2] == (self._tail.base_offset, self._tail.file_size())
        return note if is_current else None

    @property
    def contiguous_from(self) -> int:
        """The offset from which seeklog wrote every batch; INT64_MAX if a broker writes the log."""
        checkpoint = self._checkpoint
        return INT64_MAX if checkpoint is None or checkpoint.foreign else checkpoint.contiguous_from

    @property
    def is_over(self) -> bool:
        """Whether no more records will become visible."""
        return self._is_closed or isinstance(self.files, ReadOnlyFiles)

    def close(self) -> None:
        self._is_closed = True
        self.keys.clear()
        self._shared.clear()


def _reloaded(observer: Observer | None) -> View | None:
    if observer is None or observer.is_over:
        return None
    observer.reload()
    return observer.view


def _renew_locks() -> None:
    """Replace the locks in a forked child: a thread of the parent may have held them."""
    for observer in list(_open_observers):
        observer._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)
