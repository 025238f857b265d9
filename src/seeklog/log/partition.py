"""One partition, open for writing: the append path, durability, and what takes records away.

Thread contract: any thread may call anything. `_lock` guards appends and the list of segments and is held for
one write; `_sync_lock` is held by the one thread that syncs. Whoever needs both takes `_sync_lock` first.
Readers take neither: they use `view` and the offsets, which are replaced, never changed in place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from seeklog import names
from seeklog.clock import Clock
from seeklog.config import INT32_MAX, INT64_MAX, LogConfig
from seeklog.errors import (
    CorruptionError,
    DiskFull,
    InvalidRecord,
    LogClosed,
    LogFailed,
    LogLocked,
    OffsetOutOfRange,
    RecordTooLarge,
    SeeklogError,
    UsageError,
)
from seeklog.files import Files, is_full, replace_file, sync_ancestors
from seeklog.log import transaction
from seeklog.log.borrowing import Note, is_own, note_in, release
from seeklog.log.broker_visit import known_checkpoint
from seeklog.log.clean import removal
from seeklog.log.clean.retention import expired_count, is_roll_due
from seeklog.log.commit import GroupCommit
from seeklog.log.directory import check_directory, lock_directory, lock_out_broker_of
from seeklog.log.host import BackgroundOf, Host
from seeklog.log.keys.index import key_index_name
from seeklog.log.keys.lookup import KeyLookup
from seeklog.log.known_producers import KnownProducers
from seeklog.log.producers import ProducerSequence, producer_batches
from seeklog.log.recovery import mend, survey
from seeklog.log.segment import ActiveSegment, Segment, Shared
from seeklog.log.side.checkpoint import Checkpoint, SavedState, encode_checkpoint, read_checkpoint
from seeklog.log.side.epochs import LeaderEpochs
from seeklog.log.side.losses import trim_losses
from seeklog.log.side.seal import Seal, write_seal
from seeklog.log.side.transaction_index import trim_aborted
from seeklog.log.side.watermark import EXPLICIT, FOLLOWS_WRITE, Publisher, read_watermark
from seeklog.log.view import View
from seeklog.record import batch_header, decode, encode
from seeklog.record.codec import CODEC_IDS
from seeklog.record.encode import encode_one
from seeklog.record.layout import LOG_APPEND_TIME
from seeklog.record.record import Record
from seeklog.record.segment_state import SegmentState

logger = logging.getLogger("seeklog")

# How often the recovery point is persisted while records are synced.
CHECKPOINT_INTERVAL_S = 1.0
_NO_PRODUCER = (-1, -1, -1)

_open_partitions: weakref.WeakSet[Partition] = weakref.WeakSet()


class Truncated(Exception):
    """What is known of a log by its offsets is void: it was cut, and they may be those of other records."""


class Partition:
    """The one writer of a partition directory."""

    # More attributes than CPython keeps in its fast layout (30): slots keep appends and reads quick.
    __slots__ = (
        "__weakref__",
        "_active",
        "_arrived",
        "_attributes",
        "_background",
        "_broker_lock",
        "_checkpointed_at",
        "_codec",
        "_commit",
        "_compacting",
        "_contiguous_from",
        "_epochs",
        "_follows_write",
        "_generation",
        "_is_closing",
        "_largest",
        "_lock",
        "_lock_handle",
        "_makes_key_indexes",
        "_names_dirty",
        "_needs_keys",
        "_notifies",
        "_now_ms",
        "_publisher",
        "_refusal",
        "_rolled",
        "_saved",
        "_shared",
        "_stamps_append_time",
        "_sync_lock",
        "_syncs_each",
        "_syncs_later",
        "_waiting",
        "clock",
        "config",
        "directory",
        "files",
        "high_watermark",
        "is_given_back",
        "keys",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery",
        "recovery_point",
        "truncation_count",
        "view",
    )

    def __init__(
        self,
        directory: str,
        *,
        config: LogConfig,
        files: Files,
        clock: Clock,
        background: BackgroundOf | None,
        inherited: Callable[[], Checkpoint | None],
        host: Host | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.files = files
        self.clock = clock
        self._lock = threading.Lock()
        self._sync_lock = threading.RLock()
        self._arrived = threading.Condition(threading.Lock())
        self._compacting = threading.Lock()
        self._is_closing = False
        self.is_given_back = False
        """Whether others may write the log just now, until it is borrowed again."""
        self.truncation_count = 0
        self._needs_keys = config.compacts
        self._waiting = 0
        self._refusal: SeeklogError | None = None
        self._codec = CODEC_IDS[config.compression_type]
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self._attributes = self._codec | (LOG_APPEND_TIME if self._stamps_append_time else 0)
        self._now_ms = clock.now_ms
        self._largest = min(config.max_message_bytes, config.segment_bytes)
        self._syncs_each = config.flush == "batch"
        self._syncs_later = config.flush == "interval"
        # Whether an append has anybody to tell: followers that wait, or the thread that syncs on an interval.
        self._notifies = self._syncs_later
        self._follows_write = config.flush != "batch" and config.high_watermark == "auto"
        # A store makes the directories of its partitions itself: a missing one was deleted, or is lost.
        check_directory(files, directory, create=host is None)
        # A store keeps brokers out itself, for all of its partitions.
        self._broker_lock = lock_out_broker_of(files, directory) if host is None else None
        try:
            self._lock_handle = lock_directory(files, directory)
        except BaseException:
            self._let_broker_in()
            raise
        self._background = None
        self._commit = GroupCommit(self._flush)
        self.keys = KeyLookup(config, writer=self)
        # In a store the thread that syncs has other logs, too; one for longer jobs makes the key indexes.
        self._makes_key_indexes = config.indexes_keys and host is None
        try:
            listing = self._open(host, inherited())
        except BaseException:
            self._lock_handle.close()
            self._let_broker_in()
            raise
        try:
            # Before anybody can append anything else.
            transaction.settle(self, listing)
        except BaseException:
            self._refusal = LogClosed(f"{self.directory} is closed")
            self._release()
            raise
        self._background = background(self, config) if background is not None and config.flush != "batch" else None
        _open_partitions.add(self)

    # ------------------------------------------------------------ opening and closing

    def _open(self, host: Host | None, inherited: Checkpoint | None) -> list[str]:
        """Recover what is there and take it in; return the names that were in the directory."""
        files, directory, config = self.files, self.directory, self.config
        self._shared = Shared(files, directory, config, writable=True, host=host)
        myself = weakref.ref(self)
        self._shared.renew = lambda: _settled_view(myself())
        own = read_checkpoint(files, directory)
        generation = own.generation if own is not None else 0
        checkpoint = known_checkpoint(files, directory, inherited=inherited)
        listing = files.list(directory)
        found = survey(self._shared, listing, checkpoint)
        if own is not None and checkpoint is not None and checkpoint.is_visited:
            self._set_stale_checkpoint_aside()
            own, generation = None, generation + 1
        self._saved = own
        initial = checkpoint.recovery_point if checkpoint is not None else config.initial_offset
        mended = mend(
            self._shared,
            found,
            listing=listing,
            recovery_point=checkpoint.recovery_point if checkpoint is not None else 0,
            initial_offset=initial,
            now_ms=self.clock.now_ms(),
        )
        if own is None:
            # Nobody has made the directory's own name durable yet, whoever made it.
            sync_ancestors(files, directory)
        self.recovery = mended.report
        self._active = mended.active
        self._rolled: list[ActiveSegment] = []
        self._names_dirty = False
        self.view = View([*mended.sealed, mended.active])
        first, end = self.view.bases[0], mended.active.next_offset
        # A truncation that was interrupted may have cut the batch that the log started in.
        start = max(first, checkpoint.log_start_offset) if checkpoint is not None else first
        self.log_start_offset = min(start, end)
        self.log_end_offset = end
        self.recovery_point = end
        if own is not None:
            # A truncation that was interrupted may have cut below it.
            self._contiguous_from = min(own.contiguous_from, end)
        else:
            self._contiguous_from = end if found.scanned else first
        self.high_watermark = end
        if config.high_watermark == "manual":
            self.high_watermark = min(end, self._last_watermark(checkpoint, first))
        self._publisher = Publisher(files, directory)
        self._open_epochs(own, mended.epochs)
        self.producers = KnownProducers(self._shared, self.clock, listing)
        if self.producers.load(
            self.view,
            end=end,
            none_at=own.recovery_point if own is not None and own.has_producers is False else None,
            scanned={each.segment.base_offset: each.has_producers for each in found.scanned},
        ):
            files.sync_directory(directory)
        self._generation = generation
        # Where the log was not closed, a truncation may have died behind its cut, and a reader have looked before. One
        # who has left a note was through with all that it did.
        was_killed = own is not None and own.active is None and not self._is_noted()
        self._generation += 1 if was_killed or mended.report.cut_bytes or mended.report.completed_swaps else 0
        if own is None or not mended.report.clean or self._checkpoint() != replace(own, active=None):
            self._write_checkpoint()
        # Otherwise the clean marker stays until the next checkpoint. It speaks of a file of a certain size with
        # certain indexes, so the first append makes it void.
        self._checkpointed_at = self.clock.monotonic()
        # It may be lower than the one on disk, where a crash took records with it.
        self._publish_watermark(durable=config.high_watermark == "manual")
        return listing

    def _set_stale_checkpoint_aside(self) -> None:
        """Keep the checkpoint from before a broker's visit as evidence; the open replaces it, and the seals."""
        data = self.files.read_file(f"{self.directory}/{names.CHECKPOINT}")
        replace_file(self.files, self.directory, names.STALE_CHECKPOINT, data)
        logger.info(
            "%s: a broker has written here since seeklog did: every batch is checked, seals and indexes are rebuilt, "
            "and the checkpoint from before is kept as %s",
            self.directory,
            names.STALE_CHECKPOINT,
        )

    def _last_watermark(self, checkpoint: Checkpoint | None, first: int) -> int:
        """Return the high watermark that was last set: the published one may be newer than the checkpoint's."""
        published = read_watermark(self.files, self.directory, tell=logger.warning)
        known = checkpoint.high_watermark if checkpoint is not None else first
        return max(known, published[1]) if published is not None and published[0] == EXPLICIT else known

    def _open_epochs(self, checkpoint: Checkpoint | None, found: Sequence[tuple[int, int]]) -> None:
        self._epochs = LeaderEpochs.read(self.files, self.directory)
        if checkpoint is not None:
            # Every epoch of ours was in a checkpoint before a batch was stamped with it. No CRC covers a batch's
            # epoch, nor Kafka's file: only what both say, as after a broker that has appended, is believed.
            told, self._epochs.entries = self._epochs.entries, list(checkpoint.epochs)
            found = [entry for entry in found if entry in told]
        self._epochs.merge(found, log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)
        if not self._epochs.entries:
            self._epochs.begin(0, self.log_start_offset)
        self.leader_epoch = self._epochs.latest

    # ------------------------------------------------------------ lending

    def give_back(self) -> None:
        """Make everything durable and let others write the log, until `borrow`. It stays open."""
        with self._sync_lock:
            with self._lock:
                self.check_usable()
                # No append gets in between the sync and the note.
                self._refusal = LogClosed(f"{self.directory} was given back: others may write it")
            self._sync(checkpoints=False)
            if not self._rolled:
                self.is_given_back = True
                release(self._lock_handle, base_offset=self._active.base_offset, size=self._active.size)
                return
            self._refusal = None
        # There was no room for a seal. Another writer could not know that it is missing.
        self.close()

    def borrow(self) -> bool:
        """Write the log again, with what others have appended; `LogLocked` if another holds it.

        Returns False, and the log is closed, if they did more than append, or died: then it must be opened anew.
        """
        with self._sync_lock, self._lock:
            if not self.is_given_back:
                return self._refusal is None
            try:
                left = self._lock_handle.retake()
                goes_on = is_own(left, self._lock_handle) or self._take_in(note_in(left))
            except (OSError, CorruptionError):
                goes_on = False
            self.is_given_back = False
            if goes_on:
                self._refusal = None
            else:
                self._refusal = LogClosed(f"{self.directory} is closed")
                self._release()
            return goes_on

    def _is_noted(self) -> bool:
        """Tell whether the last holder of the lock has left the log as it is."""
        note = note_in(self._lock_handle.left)
        return note is not None and note.is_of(self._active.base_offset, size=self._active.size)

    def _take_in(self, note: Note | None) -> bool:
        """Go on after what others have appended to the last segment; False if they did more than that."""
        own, saved = self._checkpoint(), read_checkpoint(self.files, self.directory)
        if note is None or note.base_offset != self._active.base_offset:
            return False
        if saved is None or saved.structure != own.structure:
            return False
        appended = self._active.take_in(note.size)
        if appended is None:
            return False
        if batch_header.has_producers(appended, len(appended)):
            self.producers.note(producer_batches(appended))
        self._saved = saved
        self.log_end_offset = self._active.next_offset
        if self._follows_write:
            self.high_watermark = self.log_end_offset
        self._note_synced(self.log_end_offset)
        return True

    def close(self) -> None:
        """Sync everything, mark the log as cleanly closed and let it go. Closing twice is nothing."""
        if self._background is not None:
            self._background.stop()
        self._is_closing = True
        with self._compacting, self._sync_lock:
            if self.is_given_back:
                try:
                    self.borrow()
                except LogLocked:
                    # Whoever writes it now closes it; what this one appended is synced.
                    self._refusal = LogClosed(f"{self.directory} is closed")
                    self._release()
            if isinstance(self._refusal, LogClosed):
                return
            with self._lock:
                has_failed = self._refusal is not None
                # No append gets in between the last sync and the clean marker.
                self._refusal = LogClosed(f"{self.directory} is closed")
            try:
                if not has_failed:
                    self._sync()
                    self._close_clean()
            finally:
                self._refusal = LogClosed(f"{self.directory} is closed")
                self._release()
                self.wake_followers()

    def _close_clean(self) -> None:
        if self._epochs.is_written and self._saved == replace(
            self._checkpoint(), active=SavedState.of(self._active.state)
        ):
            return  # nothing has happened since the clean marker on disk was written
        try:
            self._active.sync_indexes()
            if not self._rolled:
                self.producers.save(self.log_end_offset)
                self._write_checkpoint(replace(self._checkpoint(), active=SavedState.of(self._active.state)))
                # Not before: what was just written is durable only now.
                self.producers.tidy(self.view, end=self.log_end_offset)
        except OSError as error:
            # The records are synced; the next open scans the last segment instead of trusting the marker.
            logger.warning("%s: closed without a clean marker: %s", self.directory, error)

    def _release(self) -> None:
        """Let go of every file; a reader that is still at one keeps it open until it is done."""
        self.keys.clear()
        self._shared.clear()
        for segment in (*self._rolled, self._active):
            segment.close_files()
        self._publisher.close()
        self._lock_handle.close()
        self._let_broker_in()

    def _let_broker_in(self) -> None:
        if self._broker_lock is not None:
            self._broker_lock.close()

    def abandon(self) -> None:
        """Forget the log in a forked child: the parent holds the lock and goes on writing."""
        if isinstance(self._refusal, LogClosed):
            return
        self._refusal = LogClosed(f"{self.directory} belongs to the process that this one was forked from")
        self._lock = threading.Lock()
        self._sync_lock = threading.RLock()
        self._compacting = threading.Lock()
        self._shared.replacing = threading.Lock()
        # Its thread is not in the child, but a lock of its events that was held at the fork is held for good.
        self._background = None

    @property
    def is_over(self) -> bool:
        """Whether nothing will be appended any more: the log is closed or has failed."""
        return self._refusal is not None

    def check_usable(self) -> None:
        """Raise if the log is closed or has failed."""
        if self._refusal is not None:
            raise type(self._refusal)(*self._refusal.args) from self._refusal.__cause__

    def _fail(self, what: str, error: OSError) -> LogFailed:
        failure = LogFailed(f"{self.directory}: {what} failed ({error}); reopen the log to recover")
        failure.__cause__ = error
        self._refusal = failure
        self.wake_followers()
        return failure

    # ------------------------------------------------------------ appending

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
    ) -> int:
        """Append one record as a batch of its own; return its offset."""
        if key is None and self._needs_keys:
            raise self._without_key()
        if self._codec:
            return self.append_records([Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)]).start
        with self._lock:
            if self._refusal is not None:
                self.check_usable()
            segment = self._active
            offset = self.log_end_offset
            batch = encode_one(
                value, key, headers, timestamp_ms, self._now_ms(), offset, self.leader_epoch, self._attributes
            )
            if segment.state.must_roll_before(batch) or len(batch) > self._largest or offset == INT64_MAX:
                segment = self._segment_for(batch, offset + 1)
            try:
                segment.append(batch)
            except OSError as error:
                raise self._write_failed(error) from error
            end = self.log_end_offset = offset + 1
            if self._follows_write:
                self.high_watermark = end
            if self._notifies:
                self._notify()
        if self._syncs_each:
            self._commit.wait_for(end)
        return offset

    def append_records(
        self, records: Sequence[Record], *, wait: bool = True, producer: ProducerSequence | None = None
    ) -> range:
        """Append records as one batch; return their offsets. `wait=False` leaves the sync to the caller.

        If a producer repeats one of its last batches, nothing is written, and the offsets are those that it has.
        """
        batch = b""
        records = records if isinstance(records, list) else list(records)
        if self._needs_keys:
            self.check_keys(records)
        if self._codec:
            # Compression is slow enough to keep it outside the lock; the offset is stamped inside.
            batch = self._encode(records, 0, producer)
            self._check_readable(records)
        with self._lock:
            if self._refusal is not None:
                self.check_usable()
            first = self.log_end_offset
            batch = encode.stamp(batch, first, self.leader_epoch) if batch else self._encode(records, first, producer)
            end = first + len(records)
            if producer is None:
                self._write(self._segment_for(batch, end), batch, end)
            else:
                offsets = self._write_once(batch, range(first, end))
                first, end = offsets.start, offsets.stop
        if wait and self._syncs_each:
            self._commit.wait_for(end)
        return range(first, end)

    def check_keys(self, records: Sequence[Record]) -> None:
        """Refuse records without key where the latest of each key is kept: they could never be told apart."""
        if self._needs_keys and any(isinstance(record, Record) and record.key is None for record in records):
            raise self._without_key()

    def _without_key(self) -> InvalidRecord:
        return InvalidRecord(f"{self.directory} is compacted: a record needs a key; nothing was written")

    def _check_readable(self, records: list[Record]) -> None:
        """Refuse what would be small enough to write, compressed, but too large to be read again."""
        size, limit = sum(map(encode.record_bound, records)), self.config.max_decompressed_bytes
        if size > limit:
            raise RecordTooLarge(
                f"the batch for {self.directory} has {size:,} bytes before compression, and no reader takes more than "
                f"max_decompressed_bytes, {limit:,}; nothing was written"
            )

    def _encode(self, records: list[Record], base_offset: int, producer: ProducerSequence | None) -> bytes:
        fields = _NO_PRODUCER if producer is None else producer.fields
        return encode.encode_records(
            records, self.clock.now_ms(), base_offset, self.leader_epoch, self._attributes, fields
        )

    def append_batches(self, raw: bytes) -> range:
        """Append whole v2 batches as they are, but for base offsets and leader epoch; return their offsets.

        Batches that a producer repeats, all of them, are not written again: their offsets are those that they have.
        """
        count, span = batch_header.check_batches(raw, self.config.max_message_bytes)
        if not count:
            raise UsageError("no batch to append")
        if self._needs_keys:
            try:
                decode.check_keyed(raw, self.config.max_decompressed_bytes)
            except InvalidRecord as error:
                raise InvalidRecord(f"{self.directory} is compacted: {error}; nothing was written") from None
        if span - 1 > INT32_MAX:
            raise RecordTooLarge(f"the batches span {span:,} offsets, a segment holds {2**31:,}; append them apart")
        # Each batch was held against max_message_bytes; together they must fit in a segment.
        appended = self._append_raw(raw, span, largest=self.config.segment_bytes, once=True)
        if self._syncs_each:
            self._commit.wait_for(appended.stop)
        return appended

    def append_staged(self, raw: bytes) -> None:
        """Append batches that a committed transaction has staged; the caller syncs.

        What was committed goes in, also where the limits on the size of batches were lowered since.
        """
        _, span = batch_header.check_batches(raw, INT32_MAX)
        self._append_raw(raw, span, largest=INT32_MAX, once=False)

    def _append_raw(self, raw: bytes, span: int, *, largest: int, once: bool) -> range:
        """Append batches that were checked; with `once` their producers' sequences are, too."""
        if self._stamps_append_time:
            raw = encode.stamp_append_time(raw, self.clock.now_ms())
        numbered = batch_header.has_producers(raw, len(raw))
        with self._lock:
            self.check_usable()
            first = self.log_end_offset
            batches = encode.stamp(raw, first, self.leader_epoch)
            if numbered:
                return self._write_once(batches, range(first, first + span), largest=largest, refuses=once)
            self._write(self._segment_for(batches, first + span, largest=largest), batches, first + span)
        return range(first, first + span)

    def _write_once(self, batches: bytes, offsets: range, *, largest: int | None = None, refuses: bool = True) -> range:
        """Write batches of producers unless they are in the log already; return the offsets that they have.

        What is neither new nor a repetition is refused if it may be. Holds the lock.
        """
        numbered = producer_batches(batches)
        repeated = self.producers.check(numbered) if refuses else None
        if repeated is not None:
            return repeated
        self._write(self._segment_for(batches, offsets.stop, largest=largest), batches, offsets.stop)
        self.producers.note(numbered)
        return offsets

    def next_sequence(self, producer_id: int) -> ProducerSequence | None:
        """Return what a producer's next batch must begin with, or None if the producer is not known."""
        with self._lock:
            entry = self.producers.state.get(producer_id, now_ms=self._now_ms())
        if entry is None:
            return None
        return ProducerSequence(producer_id=producer_id, epoch=entry.epoch, sequence=entry.next_sequence)

    @property
    def contiguous_from(self) -> int:
        """The first offset from which on seeklog has written all that there is."""
        return self._contiguous_from

    def _segment_for(self, batches: bytes, end: int, *, largest: int | None = None) -> ActiveSegment:
        """Return the segment to write batches up to `end` to, a new one if Kafka's rules ask for it. Holds the lock."""
        if end > INT64_MAX:
            raise UsageError(
                f"{self.directory}: the largest offset is {INT64_MAX - 1}, and this would get {end - 1}; nothing was "
                "written"
            )
        limit = self._largest if largest is None else largest
        if len(batches) > limit:
            raise self._too_large(len(batches), limit)
        return self.roll() if self._active.state.must_roll_before(batches) else self._active

    def _write(self, segment: ActiveSegment, batches: bytes, end: int) -> None:
        """Write batches whose last offset is `end - 1`. Holds the lock."""
        try:
            segment.append(batches)
        except OSError as error:
            raise self._write_failed(error) from error
        self.log_end_offset = end
        if self._follows_write:
            self.high_watermark = end
        if self._notifies:
            self._notify()

    def _notify(self) -> None:
        if self._waiting:
            self.wake_followers()
        if self._syncs_later and self._background is not None:
            self._background.appended()

    def _write_failed(self, error: OSError) -> SeeklogError:
        if is_full(error) and self._trimmed():
            return DiskFull(f"{self.directory}: the disk is full; nothing was written, append again when there is room")
        return self._fail("a write", error)

    def _trimmed(self) -> bool:
        """Tell whether the log file is back at the size it had before a failed write."""
        try:
            handle = self._active.handle()
            return self.files.size(handle.number) == self._active.size
        except OSError:
            return False

    def _too_large(self, size: int, limit: int) -> RecordTooLarge:
        word = "segment_bytes" if limit == self.config.segment_bytes else "max_message_bytes"
        return RecordTooLarge(
            f"the batch for {self.directory} has {size:,} bytes, {word} is {limit:,}; nothing was written"
        )

    def roll(self) -> ActiveSegment:
        """Start a new segment at the end of the log. Holds the lock. The old one is synced and sealed later."""
        old = self._active
        old.state.finish_times()
        old.write_indexes()
        if self.log_start_offset == self.log_end_offset:
            # As soon as it is not the last, an open drops it without a look: all of it lies below the start.
            self._keep_producers_at(self.log_end_offset)
        try:
            new = ActiveSegment.create(self._shared, self.log_end_offset)
        except OSError as error:
            if is_full(error):
                raise DiskFull(f"{self.directory}: no room for a new segment; nothing was written") from error
            raise self._fail("starting a segment", error) from error
        self._rolled.append(old)
        self._names_dirty = True
        self._active = new
        self.producers.rolled(new.base_offset)
        self.view = self.view.with_last(new)
        logger.debug("%s: rolled at offset %d", self.directory, new.base_offset)
        if self._background is not None:
            self._background.rolled()
        return new

    # ------------------------------------------------------------ durability

    def flush(self) -> None:
        """Make every appended record durable. After a failure the log accepts no more appends.

        Linux marks the dirty pages of a failed sync clean: they stay readable, and a second sync can succeed
        without ever writing them. So a retry proves nothing; recovery writes them again.
        """
        self._flush()
        if self._makes_key_indexes:
            self.make_key_indexes()

    def _flush(self) -> int:
        with self._sync_lock:
            self.check_usable()
            return self._sync()

    def _sync(self, *, checkpoints: bool = True) -> int:
        """Sync all that was appended, seal what was rolled, move the recovery point; return it.

        It is persisted about once a second, unless `checkpoints` leaves that to whoever seals or closes.
        """
        with self._sync_lock:
            with self._lock:
                # Before the sync: what is appended meanwhile is not covered by it.
                end = self.log_end_offset
                active, rolled, names_dirty = self._active, list(self._rolled), self._names_dirty
                snapshots = self.producers.take_due()
            if end == self.recovery_point and not rolled and not names_dirty:
                return end
            try:
                for segment in (*rolled, active):
                    segment.sync()
                if snapshots:
                    self.producers.write(snapshots)
                sealed = self._seal(rolled) if rolled else []
                if names_dirty or sealed:
                    self.files.sync_directory(self.directory)
            except OSError as error:
                raise self._fail("a sync", error) from error
            with self._lock:
                for old, new in sealed:
                    self.view = self.view.with_replaced(old, new)
                    self._rolled.remove(old)
                self._names_dirty = self._names_dirty and self._active is not active
                self._note_synced(end)
            if sealed or (checkpoints and self.clock.monotonic() - self._checkpointed_at >= CHECKPOINT_INTERVAL_S):
                self._try_checkpoint()
            return end

    def _note_synced(self, end: int) -> None:
        """Move the recovery point, and with it what readers see, if that follows the sync. Holds the lock."""
        self.recovery_point = end
        if self._syncs_each and self.config.high_watermark == "auto":
            self.high_watermark = end
            self._publish()
            if self._waiting:
                self.wake_followers()

    def _seal(self, rolled: list[ActiveSegment]) -> list[tuple[ActiveSegment, Segment]]:
        """Write the seals of segments that are synced. A full disk puts that off; an open would redo it."""
        sealed = []
        for segment in rolled:
            try:
                sealed.append((segment, segment.seal_up(sealed_at_ms=self.clock.now_ms())))
            except OSError as error:
                if not is_full(error):
                    raise
                logger.warning("%s: sealing waits for room on the disk: %s", segment.path, error)
        return sealed

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            contiguous_from=self._contiguous_from,
            generation=self._generation,
            epochs=tuple(self._epochs.entries),
            has_producers=bool(self.producers),
        )

    def _write_checkpoint(self, checkpoint: Checkpoint | None = None) -> None:
        self._replace_checkpoint(checkpoint or self._checkpoint())
        self.files.sync_directory(self.directory)

    def _replace_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Put a checkpoint in the place of the last. Others see it from then on; the caller syncs the directory."""
        has_new_epochs = not self._epochs.is_written
        if has_new_epochs:
            self._epochs.stage(self.files, self.directory)
        replace_file(self.files, self.directory, names.CHECKPOINT, encode_checkpoint(checkpoint))
        if has_new_epochs:
            if self._saved is not None:
                # An epoch in Kafka's file that our checkpoint lacks is a broker's: the checkpoint is durable first.
                self._sync_names()
            try:
                self._epochs.publish(self.files, self.directory)
            except OSError as error:
                raise self._fail("writing the leader epochs", error) from error
        self._saved = checkpoint
        self._checkpointed_at = self.clock.monotonic()

    def _try_checkpoint(self) -> None:
        """Persist the recovery point; where there is no room, the older one stays true."""
        try:
            self._must_checkpoint(self._checkpoint())
        except DiskFull as error:
            logger.warning("%s: the checkpoint waits for room on the disk: %s", self.directory, error.__cause__)

    def _must_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Persist what must be durable before anything changes for a caller."""
        try:
            self._replace_checkpoint(checkpoint)
        except OSError as error:
            raise self._refused("the checkpoint", error) from error
        self._sync_names()

    def _sync_names(self) -> None:
        """Make durable what was renamed. Others see it already, so a failure is never for want of room."""
        try:
            self.files.sync_directory(self.directory)
        except OSError as error:
            raise self._fail("a sync", error) from error

    def _refused(self, what: str, error: OSError) -> SeeklogError:
        if is_full(error):
            return DiskFull(f"{self.directory}: no room for {what}; nothing was changed")
        return self._fail(f"writing {what}", error)

    # ------------------------------------------------------------ watermark and followers

    def _publish_watermark(self, *, durable: bool = False) -> None:
        mode = FOLLOWS_WRITE if self._follows_write else EXPLICIT
        self._publisher.publish(mode, self.high_watermark, durable=durable)

    def _publish(self) -> None:
        try:
            self._publish_watermark()
        except OSError as error:
            logger.warning("%s: the watermark was not published: %s", self.directory, error)

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see everything below `offset`. It never goes back."""
        if self.config.high_watermark != "manual":
            raise UsageError('the high watermark moves by itself; open the log with high_watermark="manual"')
        with self._lock:
            self.check_usable()
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(
                    offset,
                    log_start_offset=self.log_start_offset,
                    log_end_offset=self.log_end_offset + 1,
                    what="high watermark",
                )
            if offset <= self.high_watermark:
                return
            self.high_watermark = offset
            self._publish()
        self.wake_followers()

    def wait_beyond(self, offset: int, timeout: float | None) -> None:
        """Wait until the high watermark is above `offset`, the log ends, or the time is over."""
        with self._arrived:
            self._waiting += 1
            self._notifies = True
            try:
                self._arrived.wait_for(lambda: self.high_watermark > offset or self._refusal is not None, timeout)
            finally:
                self._waiting -= 1
                self._notifies = self._syncs_later or self._waiting > 0

    def wake_followers(self) -> None:
        with self._arrived:
            self._arrived.notify_all()

    # ------------------------------------------------------------ taking records away

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that holds `offset` and all behind it; return the new end of the log."""
        with self._sync_lock, self._lock:
            self.check_usable()
            if not self.log_start_offset <= offset <= self.log_end_offset:
                raise self._out_of_range(offset)
            if offset == self.log_end_offset:
                return offset
            cut = removal.find_cut(self.view, offset)
            end = cut.end
            producers = self.producers.rebuilt(self.view, end=end)
            recovery_point, high_watermark = min(self.recovery_point, end), min(self.high_watermark, end)
            # Less is promised before less is there: a crash in between is then no loss.
            self._generation += 1
            self._must_checkpoint(
                replace(self._checkpoint(), recovery_point=recovery_point, high_watermark=high_watermark)
            )
            self.recovery_point, self.high_watermark = recovery_point, high_watermark
            try:
                if not self._follows_write:
                    # The higher one is believed where it is found after a power loss.
                    self._publisher.publish(EXPLICIT, high_watermark, durable=True)
                self.producers.forget_beyond(end)
                with self._shared.replacing:
                    # Who has found a seal in its place, and replaces it, is through; others find it gone.
                    self._cut(cut.place, cut.kept)
                trim_losses(self.files, self.directory, end=end)
            except OSError as error:
                raise self._fail("truncating", error) from error
            self.producers.state = producers
            self.log_end_offset = end
            # Others may have appended what is kept, and wait for this.
            self._note_synced(end)
            # The batch that the log started in may be cut, and so may all gaps that compaction has left.
            self.log_start_offset = min(self.log_start_offset, end)
            self._contiguous_from = min(self._contiguous_from, end)
            self._commit.forget()
            self._epochs.truncate(end)
            self._generation += 1
            # Last: who has seen this count sees nothing that was cut.
            self.truncation_count += 1
            try:
                # What is appended now may lie below the start that is on disk, among gaps or in epochs that were cut.
                self._write_checkpoint()
            except OSError as error:
                raise self._fail("truncating", error) from error
            return end

    def _cut(self, place: int, kept: SegmentState) -> None:
        """Make the segment at `place`, cut to what is kept of it, the active one."""
        segments = self.view.segments
        for segment in reversed(segments[place + 1 :]):
            # One at a time, the last first: at every moment what is there has no hole.
            self._remove_files(segment)
            self.files.sync_directory(self.directory)
        target = segments[place]
        if not isinstance(target, ActiveSegment):
            target.release()
            target.read_unproved()
            for suffix in (names.SEAL, names.KEY_INDEX):
                with contextlib.suppress(FileNotFoundError):
                    self.files.remove(self._shared.path(target.base_offset, suffix))
            target = ActiveSegment.reopen(target)
        target.truncate(kept)
        trim_aborted(self._shared, target.base_offset, end=kept.next_offset)
        self.files.sync_directory(self.directory)
        self._rolled = [old for old in self._rolled if old in segments[:place]]
        for old in segments[:place]:
            if isinstance(old, ActiveSegment):
                old.sync()
        self._active = target
        self.view = View([*segments[:place], target])

    def delete_before(self, offset: int) -> int:
        """Raise the start of the log to `offset` and delete the segments that lie wholly below it."""
        with self._sync_lock:
            self.check_usable()
            if offset > self.high_watermark or offset < 0:
                raise self._out_of_range(offset)
            if offset <= self.log_start_offset:
                return 0
            self._flush()
            with self._lock:
                try:
                    self._keep_producers_at(self.view.segments[self.view.find(offset)].base_offset)
                except DiskFull as error:
                    # What is deleted makes room; then it is tried again.
                    logger.warning("%s", error)
                self._must_checkpoint(replace(self._checkpoint(), log_start_offset=offset))
                self.log_start_offset = offset
                return self._drop_segments_below(offset)

    def _keep_producers_at(self, base_offset: int) -> None:
        """Make durable what the segments below an offset tell of producers, while they still count."""
        try:
            is_new = self.producers.keep_at(self.view, base_offset, end=self.log_end_offset)
        except OSError as error:
            raise self._refused("a snapshot of producers", error) from error
        if is_new:
            self._sync_names()

    def _drop_segments_below(self, offset: int) -> int:
        segments = self.view.segments
        doomed = removal.segments_below(segments, offset)
        if not doomed:
            return 0
        self.view = View(segments[len(doomed) :])
        self._rolled = [segment for segment in self._rolled if segment not in doomed]
        for segment in doomed:
            try:
                self._remove_files(segment)
            except OSError as error:
                # The start offset already says that they are gone; the next open removes them.
                logger.warning("%s: not deleted yet: %s", segment.path, error)
        try:
            self.producers.tidy(self.view, end=self.log_end_offset)
            self.files.sync_directory(self.directory)
        except OSError as error:
            raise self._fail("deleting segments", error) from error
        return len(doomed)

    @property
    def shared(self) -> Shared:
        """What the segments share: for compaction, which reads them and writes others beside them."""
        return self._shared

    def last_of_producers(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the last offset of each live producer's last batch, and the epochs of those that have none."""
        with self._lock:
            return self.producers.last_offsets(), self.producers.last_epochs()

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or where the oldest transaction begins that has not ended."""
        with self._lock:
            return min(self.high_watermark, self.producers.state.first_unstable_offset())

    @contextlib.contextmanager
    def compacting(self) -> Iterator[None]:
        """Hold this for a compaction: there is one at a time."""
        with self._compacting:
            self.check_not_closing()
            yield

    def check_not_closing(self) -> None:
        """Stop a compaction that a close waits for."""
        if self._is_closing:
            raise LogClosed(f"{self.directory} is closed")

    def replace_segments(
        self, old: Sequence[Segment], new: Segment, *, truncation_count: int, install: Callable[[], None]
    ) -> bool:
        """Put `new`, whose files `install` brings into place, where `old` are, which follow each other.

        False, and nothing was done, if they are no longer all there: retention was quicker. `Truncated` if the log was
        cut since `truncation_count`: the offsets that `new` was made by may be those of other records.
        """
        with self._sync_lock:
            self.check_usable()
            self.check_not_truncated(truncation_count)
            if not all(segment in self.view.segments for segment in old):
                return False
            before, end = self._contiguous_from, old[-1].next_offset
            if before < end:
                # Gaps are lawful before there are any: an open would otherwise take them for damage.
                self._contiguous_from = end
                try:
                    self._must_checkpoint(self._checkpoint())
                except DiskFull:
                    self._contiguous_from = before
                    raise
            with self._shared.replacing:
                for segment in old:
                    segment.is_replaced = True
            try:
                install()
            except OSError as error:
                raise self._fail("replacing segments", error) from error
            with self._lock:
                self.view = self.view.with_merged(old, new)
            for segment in old:
                segment.release()
            # Readers in other processes, whose last segment may be one of the old, start over.
            self._generation += 1
            self._try_checkpoint()
            return True

    def renew_seal(self, segment: Segment, old: Seal, new: Seal, *, truncation_count: int, page_table: bytes) -> None:
        """Put another seal beside a segment, unless that has gone or has a third one by now; see `replace_segments`."""
        with self._sync_lock, self._shared.replacing:
            self.check_not_truncated(truncation_count)
            if segment in self.view.segments and segment.seal == old:
                write_seal(self.files, self.directory, new, page_table)
                segment.attach(new)

    def count_truncations(self) -> int:
        """Return how often the log was cut. One that is under way ends first: it has cut already, and not counted."""
        with self._sync_lock:
            return self.truncation_count

    def check_not_truncated(self, truncation_count: int) -> None:
        """Raise `Truncated` if the log was cut since its truncations were counted."""
        if self.truncation_count != truncation_count:
            raise Truncated(self.directory)

    def _remove_files(self, segment: Segment) -> None:
        """Take a segment's name away first, then its files; readers that hold it open read on."""
        segment.release()
        self.files.rename(segment.path, segment.path + names.DELETED)
        for suffix in (names.LOG + names.DELETED, *names.BESIDE_LOG):
            with contextlib.suppress(FileNotFoundError):
                self.files.remove(self._shared.path(segment.base_offset, suffix))

    def roll_now(self) -> None:
        """Start a new segment at the end of the log."""
        with self._lock:
            self.check_usable()
            self.roll()

    def roll_if_due(self) -> bool:
        """Start a new segment if the active one spans `segment_ms`, or if retention keeps none of its records.

        Appends roll by the timestamps that they bring; this is for a log that nobody appends to any more.
        """
        config, now_ms = self.config, self.clock.now_ms()
        with self._lock:
            self.check_usable()
            is_due = is_roll_due(self._active.state, now_ms=now_ms, config=config)
            if is_due:
                self.roll()
            return is_due

    def retain(self) -> int:
        """Delete the segments that retention no longer keeps; return how many."""
        with self._sync_lock:
            self._flush()
            with self._lock:
                # A segment may have been the active one when the start was raised past its end.
                dropped = self._drop_segments_below(self.log_start_offset)
            sealed = removal.sealed_facts(self.view)
            count = expired_count(
                sealed,
                active_size=self._active.size,
                high_watermark=self.high_watermark,
                now_ms=self.clock.now_ms(),
                config=self.config,
            )
            return dropped + (self.delete_before(sealed[count - 1].next_offset) if count else 0)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(offset, log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)

    # ------------------------------------------------------------ key indexes

    def make_key_indexes(self) -> int:
        """Make the key indexes that sealed segments lack, if the configuration asks for it; return how many.

        Records that are appended meanwhile are synced on their interval all the same.
        """
        if not self.config.indexes_keys:
            return 0
        synced_at = self.clock.monotonic()

        def sync_when_due() -> None:
            nonlocal synced_at
            if self._syncs_later and self.clock.monotonic() - synced_at >= self.config.flush_interval_ms / 1000:
                self._flush()
                synced_at = self.clock.monotonic()

        return self.keys.make_missing(self.view, sync_when_due)

    def keep_key_index(self, segment: Segment, data: bytes) -> bool:
        """Write a sealed segment's key index, unless the segment has gone; tell whether it is there.

        What takes segments away holds the same lock, so no index outlives its segment.
        """
        with self._sync_lock:
            if self._refusal is not None or segment not in self.view.segments:
                return False
            name = key_index_name(segment.base_offset)
            try:
                replace_file(self.files, self.directory, name, data)
            except OSError as error:
                logger.warning("%s/%s: the key index is not kept: %s", self.directory, name, error)
                with contextlib.suppress(OSError):
                    self.files.remove(f"{self.directory}/{name}{names.TEMPORARY}")
                return False
            return True

    # ------------------------------------------------------------ leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """Stamp batches with a new, higher leader epoch from the end of the log on. Durable on return."""
        with self._sync_lock, self._lock:
            self.check_usable()
            if not self.leader_epoch < epoch <= INT32_MAX:
                raise UsageError(f"epoch {epoch} must be above the current one, {self.leader_epoch}")
            before = list(self._epochs.entries)
            self._epochs.begin(epoch, self.log_end_offset)
            try:
                self._must_checkpoint(self._checkpoint())
            except DiskFull:
                self._epochs.entries = before
                raise
            self.leader_epoch = epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, its end offset), or (-1, -1)."""
        return self._epochs.end_offset(epoch, log_end_offset=self.log_end_offset)


def _settled_view(partition: Partition | None) -> View | None:
    """Return the segments once no replacement is half done."""
    if partition is None:
        return None
    with partition._sync_lock:
        return getattr(partition, "view", None)


def _abandon_all() -> None:
    for partition in list(_open_partitions):
        partition.abandon()


os.register_at_fork(after_in_child=_abandon_all)
