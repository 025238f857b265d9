"""A partition as a process sees it that does not write it, while another one may.

Nothing is locked and nothing on disk is changed. The last segment is walked forward as it grows, to the
last whole batch: an incomplete tail is "not yet", never an error. Reads stop at the published high watermark.
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
from seeklog.log.borrowing import read_note
from seeklog.log.broker_visit import after_visit, look_for_visit
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

# How often a reader asks whether a broker has come to the directory.
VISIT_LOOK_S = 0.5
# How long a follower sleeps between two looks: at first, and at most.
MIN_POLL_S = 0.001
MAX_POLL_S = 0.05
FOLLOWED_ROLLS = 8
# An index entry has 32 bits for an offset, less the segment's base: so many can be in a segment.
MAX_SPAN = 2**31


_open_observers: weakref.WeakSet[Observer] = weakref.WeakSet()


class TailSegment(Segment):
    """The last segment, which its writer may be lengthening."""

    def __init__(self, shared: Shared, base_offset: int, *, trusted: bool) -> None:
        super().__init__(shared, base_offset, size=0, next_offset=base_offset, seal=None)
        self.trust = self._unsealed = Trust(contiguous=trusted, is_exact=trusted)
        self._is_trusted = trusted

    def close_at(self, saved: SavedState) -> None:
        """Take the segment for what a clean close said of it: size, end, and the CRCs of its indexes."""
        self._size, self._next_offset = saved.size, saved.next_offset
        # The last segment of an archive has a seal of its own. With gaps, there are pages in it.
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
        """What a clean close said of its size does not last."""
        return True

    def file_size(self) -> int:
        handle = self.handle()  # held: another thread may let the segment's own go meanwhile
        return self.shared.files.size(handle.number)

    def is_same_file(self, found: FileStatus | None) -> bool:
        """The file has grown since it was listed: one that ends before what was seen of it was cut."""
        return super().is_same_file(found) and found is not None and found.size >= self._size

    def was_cut(self) -> bool:
        """Tell whether the file was shortened, or another one has taken its name. Raises if none has it."""
        now = self.shared.files.status(self.path)
        return now.size < self._size or (self.listed is not None and now.identity != self.listed.identity)

    def notice_growth(self) -> None:
        """What a clean close said holds only while the file has the size that it spoke of."""
        if self.seal is not None and self.file_size() != self._size:
            self.trust = self._unsealed

    def walk(self) -> None:
        """Go on over the whole batches that are there."""
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
            # Index entries are read with the file, so they are read again when it has grown.
            self.loaded.indexes = None

    def _within_span(self, data: bytes) -> tuple[int, int]:
        """Walk as `walk_batches` does, up to the batch, which it has met, that this segment cannot have."""
        at, next_offset = 0, self._next_offset
        while (header := read_header(data, at)).next_offset - self.base_offset <= MAX_SPAN:
            at, next_offset = at + header.size, header.next_offset
        return at, next_offset

    def _place(self, file_size: int) -> None:
        """Start at the last index entry that a batch proves, instead of at the start of the file."""
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


class Observer:
    """A partition opened read-only. Any thread may use it."""

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
        """Whether a broker has written since `_own` was; looked at again from `_next_look` on."""
        self._next_look = 0.0
        self.source = host.source if host is not None else None
        """The partition of a store that this is; None: a lone log."""
        self.has_topic = host.has_topic if host is not None else None
        self._topic_id = self._read_topic_id()
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_warned = False
        _open_observers.add(self)
        self._load()

    def _warn_once(self, what: str) -> None:
        """Tell of a watermark that is damaged: it is looked at again and again."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", what)

    def _read_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that counts by now; a broker may start on the directory, and end, while this reads."""
        own = read_checkpoint(self.files, self.directory)
        inherited = self._inherited()
        if own is None:
            return inherited
        now = self.clock.monotonic()
        if own != self._own or now >= self._next_look:
            self._next_look = now + VISIT_LOOK_S
            own, self._was_visited = look_for_visit(self.files, self.directory, own)
            self._own = own
        return after_visit(self.files, self.directory, own, inherited) if self._was_visited else own

    def _read_topic_id(self) -> bytes:
        """Return what Kafka's file says of the topic that the partition is of."""
        if isinstance(self.files, ReadOnlyFiles):
            return b""  # a copy stays as it is, and a request for each file is dear
        return read_if_exists(self.files, f"{self.directory}/{names.PARTITION_METADATA}") or b""

    def is_same_topic(self) -> bool:
        """Tell whether the directory is still of the topic that was opened, and not of one that was recreated."""
        topic_id = self._read_topic_id()
        self._topic_id = self._topic_id or topic_id
        return not topic_id or topic_id == self._topic_id

    def _check_same_topic(self) -> None:
        """Refuse the partition of another topic: one that was recreated has the same names and other records."""
        if not self.is_same_topic():
            topic = self.source.topic if self.source is not None else os.path.basename(self.directory)
            raise TopicNotFound(f"topic {topic!r} was deleted, and another was created under its name; open it again")

    def _load(self, *, is_second_look: bool = False) -> None:
        """Look at the directory; again, where its files are replaced while this reads them."""
        for _ in range(MAX_LOOKS):
            try:
                return self._load_once(is_second_look=is_second_look)
            except FileNotFoundError:
                self.files.list(self.directory)  # raises where the directory itself is gone
        return self._load_once(is_second_look=is_second_look)

    def _load_once(self, *, is_second_look: bool) -> None:
        self._check_same_topic()
        self._next_look = 0.0
        self._checkpoint = self._read_checkpoint()
        self._shared.trusts_seals = self._checkpoint is None or not self._checkpoint.is_visited
        _, segments = list_beside_writer(self._shared)
        if not segments:
            raise NotALog(f"there is no log at {self.directory}: it holds no segment")
        checkpoint = self._checkpoint
        first_kept = checkpoint.log_start_offset if checkpoint is not None else 0
        while len(segments) > 1 and segments[1].base_offset <= first_kept:
            segments.pop(0)
        for segment in segments[:-1]:
            if segment.path.endswith(names.SWAP):
                continue  # the seal under its number is that of the segment it replaces
            segment.phase = Phase.LISTED
            # Where each costs a request, seals are read when they are needed.
            if not isinstance(self.files, RemoteFiles):
                segment.fetch_seal()
        if checkpoint is not None:
            mark_gaps(segments, checkpoint.gaps)
        last = segments[-1]
        trusted = checkpoint is not None and checkpoint.contiguous_from <= last.base_offset
        self._tail = TailSegment(self._shared, last.base_offset, trusted=trusted)
        self._tail.path, self._tail.listed = last.path, last.listed
        if checkpoint is not None and checkpoint.active is not None:
            saved = checkpoint.active
            if saved.is_of(last.base_offset, size=last.size):
                self._tail.close_at(saved)
        self.view = View([*segments[:-1], self._tail])
        self._look(self._read_checkpoint(), is_second_look=is_second_look)

    def _look(self, latest: Checkpoint | None, *, is_second_look: bool = False) -> None:
        """Find out how far the log may be read, by the latest checkpoint: the files may have been listed by another.

        What seems to be lost is looked for a second time.
        """
        checkpoint = self._checkpoint
        self._tail.notice_growth()
        stop = self._published(latest)
        self._tail.walk()
        if stop is not None and not self.is_over and self._was_cut_below(stop, since=latest):
            # What lies below `stop` by now may be other records, which were not synced.
            self._load()
            return
        end = self._tail.next_offset
        if checkpoint is not None and end < checkpoint.recovery_point:
            if not is_second_look:
                # Compaction may have merged what followed into another file, and not yet replaced the checkpoint.
                self._load(is_second_look=True)
                return
            self._check_lost(checkpoint, end)
        self.log_end_offset = end
        self.high_watermark = end if stop is None else min(end, stop)
        first = self.view.bases[0]
        self.log_start_offset = max(first, checkpoint.log_start_offset) if checkpoint is not None else first
        self.recovery_point = min(end, checkpoint.recovery_point) if checkpoint is not None else first

    def explains_start_beyond(self, offset: int) -> bool:
        """Tell whether the log may start beyond an offset: its checkpoint says so, or a broker deletes segments."""
        checkpoint = self._checkpoint
        return checkpoint is None or checkpoint.foreign or checkpoint.log_start_offset > offset

    @property
    def last_stable_offset(self) -> int:
        """The high watermark: only a writer knows which transactions have not ended."""
        return self.high_watermark

    def _check_lost(self, checkpoint: Checkpoint, end: int) -> None:
        """Refuse a log that ends below its recovery point, unless its writer has just gone on or cut it."""
        if self._has_rolled() or self._read_checkpoint() != checkpoint:
            return
        if checkpoint.foreign and has_broker(self.files, self.directory):
            return  # it may cut the log rightly, and writes its checkpoint once a minute
        raise LostRecords(
            f"no whole batch follows offset {end - 1}, but offsets below {checkpoint.recovery_point} were synced",
            path=self._tail.path,
            position=self._tail.size,
            advice=ADVICE,
        )

    def _published(self, checkpoint: Checkpoint | None) -> int | None:
        """Return the first offset that must not be read, or None where the watermark follows the write."""
        if checkpoint is None or checkpoint.foreign:
            return None  # a broker's directory
        published = read_watermark(self.files, self.directory, warn=self._warn_once)
        if published is None:
            return checkpoint.high_watermark
        mode, high_watermark = published
        # The side file is not synced: after a power loss the checkpoint may know better.
        return max(high_watermark, checkpoint.high_watermark) if mode == EXPLICIT else None

    def refresh(self) -> None:
        """See what the writer has done since: appended, rolled, deleted, truncated, recovered."""
        with self._lock:
            if self._is_closed:
                return
            checkpoint = self._read_checkpoint()
            try:
                if self._is_overtaken_by(checkpoint) or self._tail.was_cut():
                    self._load()
                else:
                    self._checkpoint = checkpoint
                    self._look(checkpoint)
            except FileNotFoundError:
                # The last segment went while it was looked at: one that was cut away, or deleted.
                self._load()
            # The writer may roll while the files are looked at; it is followed a few times, not for ever.
            for _ in range(FOLLOWED_ROLLS):
                if not self._has_rolled():
                    return
                self._load()

    def _has_rolled(self) -> bool:
        """Tell whether a segment begins where the last one ends."""
        tail = self._tail
        return tail.next_offset > tail.base_offset and self._exists(self._shared.path(tail.next_offset, names.LOG))

    def _is_overtaken_by(self, checkpoint: Checkpoint | None) -> bool:
        """Tell whether the log was cut or deleted from since the files were looked at."""
        if checkpoint is None or self._checkpoint is None:
            return checkpoint is not self._checkpoint
        return (
            checkpoint.generation != self._checkpoint.generation
            or checkpoint.log_start_offset != self._checkpoint.log_start_offset
            or checkpoint.is_visited != self._checkpoint.is_visited
        )

    def _was_cut_below(self, stop: int, *, since: Checkpoint | None) -> bool:
        """Tell whether the log may have been cut below an offset since a checkpoint was read.

        A truncation first replaces the checkpoint by one that promises less. Compaction replaces it, too, for each
        segment, by one that promises as much: to look again each time would last as long as the compaction.
        """
        latest = self._read_checkpoint()
        return (
            latest is None or since is None or (latest.generation != since.generation and latest.high_watermark < stop)
        )

    def reload(self) -> None:
        """Forget what was learnt of the files and look at all of them again."""
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
        return LeaderEpochs.read(self.files, self.directory)

    @property
    def leader_epoch(self) -> int:
        return self._epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, its end offset), or (-1, -1)."""
        return self._epochs.end_offset(epoch, log_end_offset=self.log_end_offset)

    def wait_beyond(self, offset: int, timeout: float | None) -> None:
        """Look again and again until the high watermark is above `offset` or the time is over."""
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
        """Whether the log was closed or given back since it was written. A broker's directory counts as clean."""
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.foreign or self._tail.seal is not None:
            return True
        note = read_note(self.files, self.directory)
        return note == (self._tail.base_offset, self._tail.file_size())

    @property
    def contiguous_from(self) -> int:
        """The first offset from which on seeklog has written all that there is; INT64_MAX if a broker writes it."""
        checkpoint = self._checkpoint
        return INT64_MAX if checkpoint is None or checkpoint.foreign else checkpoint.contiguous_from

    @property
    def is_over(self) -> bool:
        """Whether nothing will be seen any more."""
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
    """In a forked child: a thread that is not in it may have held them."""
    for observer in list(_open_observers):
        observer._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)
