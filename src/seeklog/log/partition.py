"""One partition, open for writing: appends and durability. Records are removed by `clean.removing`.

Thread contract: any thread may call any method. `lock` guards appends and the list of segments, and is held for one
write. `sync_lock` is held by the one thread that syncs. A thread that needs both acquires `sync_lock` first. Readers
take neither: they use `view` and the offsets, which are replaced, never changed in place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from seeklog.clock import Clock
from seeklog.config import INT32_MAX, INT64_MAX, LogConfig
from seeklog.errors import DiskFull, LogLocked, OffsetOutOfRange, SeeklogError, UsageError
from seeklog.files import Files, is_full, sync_ancestors
from seeklog.log import transaction
from seeklog.log.active import ActiveSegment
from seeklog.log.background import Maintenance, Watch
from seeklog.log.borrowing import Note, WriterLock
from seeklog.log.broker_visit import known_checkpoint
from seeklog.log.clean.removing import Remover
from seeklog.log.commit import GroupCommit
from seeklog.log.directory import check_directory
from seeklog.log.encoder import Encoder
from seeklog.log.gate import Gate
from seeklog.log.host import Host
from seeklog.log.keys.index import write_key_index
from seeklog.log.keys.lookup import KeyLookup
from seeklog.log.known_producers import KnownProducers
from seeklog.log.metrics import LogMetrics
from seeklog.log.producers import ProducerSequence, producer_batches
from seeklog.log.promises import Promises
from seeklog.log.recovery import mend, survey
from seeklog.log.segment import Segment, Shared
from seeklog.log.side.checkpoint import Checkpoint, read_checkpoint
from seeklog.log.side.watermark import EXPLICIT, Publisher, read_watermark
from seeklog.log.turns import Turns
from seeklog.log.unsealed import UnsealedSegments
from seeklog.log.view import View
from seeklog.record import Bytes, Headers, batch_header, encode
from seeklog.record.encode import encode_one
from seeklog.record.growing import GrowingBatch
from seeklog.record.record import Record

logger = logging.getLogger("seeklog")

_open_partitions: weakref.WeakSet[Partition] = weakref.WeakSet()


class Partition:
    # Slots make appends and reads faster.
    __slots__ = (
        "__weakref__",
        "_background",
        "_checked_at_ms",
        "_now_ms",
        "_syncs_later",
        "clock",
        "commit",
        "config",
        "directory",
        "encoder",
        "files",
        "follows_write",
        "gate",
        "high_watermark",
        "keys",
        "leader_epoch",
        "lock",
        "log_end_offset",
        "log_start_offset",
        "makes_key_indexes",
        "metrics",
        "owner_of",
        "producers",
        "promises",
        "publisher",
        "recovery",
        "recovery_point",
        "remover",
        "shared",
        "sync_lock",
        "syncs_each",
        "turns",
        "unsealed",
        "view",
        "writer_lock",
    )

    def __init__(
        self,
        directory: str,
        *,
        config: LogConfig,
        files: Files,
        clock: Clock,
        maintenance: Maintenance | None,
        inherited: Callable[[], Checkpoint | None],
        host: Host | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.clock = clock
        self.lock = threading.Lock()
        self.sync_lock = threading.RLock()
        self.metrics = metrics = (host.metrics if host is not None else None) or LogMetrics()
        self.gate = Gate(directory, metrics.log)
        self.encoder = Encoder(directory, config, clock, topic=host.source.topic if host is not None else None)
        self._now_ms = clock.now_ms
        self.syncs_each = config.flush == "batch"
        self._syncs_later = config.flush == "interval"
        self.follows_write = config.flush != "batch" and config.high_watermark == "auto"
        # A store creates the directories of its partitions itself: a missing one was deleted or lost.
        check_directory(files, directory, create=host is None)
        # A store keeps brokers out of the root itself, for all of its partitions.
        # A displaced log accepts no more appends, even if the caller can do without the change that it wanted to make.
        fail = partial(self.gate.fail, "writing")
        self.writer_lock = WriterLock(files, directory, is_lone=host is None, on_displaced=fail)
        self.files = files = self.writer_lock.files
        self._checked_at_ms = -1
        self._background: Watch | None = None
        self.commit = GroupCommit(self.flush)
        self.remover = Remover(self)
        self.turns = Turns(self)
        self.owner_of = host.owner_of if host is not None else lambda setting: "the log"
        self.publisher = Publisher(files, directory, follows_write=self.follows_write)
        self.keys = KeyLookup(config, writer=self)
        # In a store, the thread that syncs serves other logs, too; another thread builds the key indexes.
        self.makes_key_indexes = config.indexes_keys and host is None
        try:
            listing = self._open(host, inherited())
        except BaseException:
            self.writer_lock.close()
            raise
        try:
            # Before any other append.
            transaction.finish_interrupted(self, listing)
        except BaseException:
            self.gate.close()
            self.release()
            raise
        if maintenance is not None and (config.flush != "batch" or self.makes_key_indexes):
            self._background = maintenance.watch(self, config)
        _open_partitions.add(self)

    def check_held(self) -> None:
        """Raise unless the log accepts changes, and others find it at its path, with the lock that is held here."""
        self.gate.check()
        try:
            self.files.check()
        except OSError as error:
            raise self.gate.fail("writing", error) from error

    def _check_held_at(self, now_ms: int) -> None:
        """Check as `check_held` does, before the first append in a millisecond: a check takes as long as an append."""
        self._checked_at_ms = now_ms
        self.check_held()

    # ------------------------------------------------------------ opening and closing

    def _open(self, host: Host | None, inherited: Checkpoint | None) -> list[str]:
        """Recover and load the log. Return the names that were in the directory."""
        files, directory, config = self.files, self.directory, self.config
        began = self.clock.monotonic()
        self.shared = shared = Shared(files, directory, config, writable=True, host=host)
        myself = weakref.ref(self)
        shared.renew = lambda: _settled_view(myself())
        self.promises = promises = Promises(
            files, directory, self.gate, self.clock, saved=read_checkpoint(files, directory)
        )
        checkpoint = known_checkpoint(files, directory, inherited=inherited)
        listing = files.list(directory)
        surveyed = survey(shared, listing, checkpoint)
        if promises.saved is not None and checkpoint is not None and checkpoint.is_visited:
            promises.keep_stale_checkpoint()
        own = promises.saved
        mended = mend(
            shared,
            surveyed,
            listing=listing,
            recovery_point=checkpoint.recovery_point if checkpoint is not None else 0,
            initial_offset=checkpoint.recovery_point if checkpoint is not None else config.initial_offset,
            now_ms=self.clock.now_ms(),
        )
        if own is None:
            # The name of the directory itself may not be durable yet.
            sync_ancestors(files, directory)
        self.recovery = mended.report
        self.unsealed = UnsealedSegments(shared, mended.active)
        self.view = View([*mended.sealed, mended.active])
        first, end = self.view.bases[0], mended.active.next_offset
        # An interrupted truncation may have cut the batch that contains the log start offset.
        start = max(first, checkpoint.log_start_offset) if checkpoint is not None else first
        self.log_start_offset = min(start, end)
        self.log_end_offset = self.recovery_point = self.high_watermark = end
        if own is not None:
            # An interrupted truncation may have cut below it.
            promises.contiguous_from = min(own.contiguous_from, end)
        else:
            promises.contiguous_from = end if surveyed.scanned else first
        if config.high_watermark == "manual":
            self.high_watermark = min(end, self.last_watermark(checkpoint, first))
        promises.begin_epochs(mended.epochs, log_start_offset=self.log_start_offset, log_end_offset=end)
        self.leader_epoch = promises.epochs.latest
        self.producers = KnownProducers(shared, self.clock, listing)
        if self.producers.load(
            self.view,
            end=end,
            none_at=own.recovery_point if own is not None and own.has_producers is False else None,
            scanned={scanned.segment.base_offset: scanned.has_producers for scanned in surveyed.scanned},
        ):
            files.sync_directory(directory)
        # If the log was not closed, a truncation may have crashed after its cut, and readers may know the log from
        # before it. A writer that left a note had finished all its changes.
        was_killed = own is not None and own.active is None and not _is_of(self.writer_lock.left, mended.active)
        promises.generation += 1 if was_killed or mended.report.cut_bytes or mended.report.completed_swaps else 0
        if own is None or not mended.report.clean or self.checkpoint() != replace(own, active=None):
            promises.write(self.checkpoint())
        # Otherwise the clean marker stays until the next checkpoint. It describes a file of a certain size with
        # certain indexes, so the first append invalidates it.
        # The watermark may be lower than the one on disk if a crash lost records.
        self.publisher.publish(self.high_watermark, durable=config.high_watermark == "manual")
        metrics = self.metrics
        metrics.follow(mended.active.state)
        metrics.log.opens += 1
        if mended.report.scanned_bytes or mended.report.cut_bytes:
            metrics.log.recovery_seconds.observe(self.clock.monotonic() - began)
            metrics.log.cut_bytes += mended.report.cut_bytes
        return listing

    def last_watermark(self, checkpoint: Checkpoint | None, first: int) -> int:
        """Return the last manual high watermark: the published one may be newer than the checkpoint's."""
        published = read_watermark(self.files, self.directory, warn=logger.warning)
        known = checkpoint.high_watermark if checkpoint is not None else first
        return max(known, published[1]) if published is not None and published[0] == EXPLICIT else known

    @property
    def is_returned(self) -> bool:
        """Whether another process may be writing the log, until it is borrowed again."""
        return self.writer_lock.is_given_back

    def close(self) -> None:
        """Sync everything, write the clean marker, and release the log. Closing a closed log does nothing."""
        if self._background is not None:
            self._background.stop()
        with self.remover.closing(), self.sync_lock:
            if self.is_returned:
                try:
                    self.turns.borrow()
                except LogLocked:
                    # Another process writes the log, and syncs our records with its own.
                    self.writer_lock.is_given_back = False
                    self.gate.close()
                    self.release()
            if self.gate.is_closed:
                return
            with self.lock:
                has_failed = self.gate.refusal is not None
                # No append may come between the last sync and the clean marker.
                self.gate.close()
            try:
                if not has_failed:
                    self.sync()
                    self._close_clean()
                    if self.writer_lock.is_shared and not self.unsealed.rolled:
                        # Other processes may have the log open: with a note they need not open it again.
                        self.turns.release_with_note()
            finally:
                self.writer_lock.is_given_back = False
                self.gate.close()
                self.release()
                self.gate.wake()

    def _close_clean(self) -> None:
        promises, unsealed = self.promises, self.unsealed
        marker = replace(self.checkpoint(), active=unsealed.active.state.save())
        if promises.epochs.is_written and promises.saved == marker:
            return  # nothing changed since the clean marker on disk was written
        try:
            # Other processes that have the log open could not follow a last entry of the time index.
            unsealed.active.sync_indexes(finishes=not self.writer_lock.is_shared)
            if not unsealed.rolled:
                self.producers.save(self.log_end_offset)
                promises.write(replace(self.checkpoint(), active=unsealed.active.state.save()))
                # Only now: `write` has just made the new snapshot durable.
                self.producers.tidy(self.view, end=self.log_end_offset)
        except OSError as error:
            # The records are synced; without the marker the next open scans the last segment.
            logger.warning("%s: closed without a clean marker: %s", self.directory, error)

    def release(self) -> None:
        self.metrics.follow(None)
        self.keys.clear()
        self.unsealed.close_files()
        self.publisher.close()
        self.writer_lock.close()

    def abandon(self) -> None:
        """Drop the log in a forked child. The parent continues to write."""
        if self.gate.is_closed and not self.is_returned:
            return
        self.writer_lock.is_given_back = False
        self.gate.close("belongs to the process that this one was forked from; open it again here")
        self.lock = threading.Lock()
        self.sync_lock = threading.RLock()
        self.remover.renew_locks()
        self.shared.replacing = threading.Lock()
        # The thread does not exist in the child, but a lock that it held at the fork is never released.
        if self._background is not None:
            self._background.maintenance.abandon()
        self._background = None

    @property
    def open_file_count(self) -> int:
        return self.writer_lock.open_file_count + self.publisher.is_open + self.unsealed.open_file_count

    @property
    def is_over(self) -> bool:
        """Whether the log is closed or has failed."""
        return self.gate.refusal is not None

    @property
    def contiguous_from(self) -> int:
        return self.promises.contiguous_from

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the oldest open transaction if that is lower."""
        with self.lock:
            return min(self.high_watermark, self.producers.state.first_unstable_offset())

    # ------------------------------------------------------------ appending

    def append(
        self,
        value: Bytes | None,
        key: Bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> int:
        """Append one record as a batch; return its offset."""
        encoder = self.encoder
        if key is None and encoder.needs_keys:
            raise encoder.missing_key()
        if encoder.codec:
            return self.append_records([Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)]).start
        gate = self.gate
        with self.lock:
            if gate.refusal is not None:
                gate.check()
            now_ms = self._now_ms()
            if now_ms != self._checked_at_ms:
                self._check_held_at(now_ms)
            segment = self.unsealed.active
            offset = self.log_end_offset
            batch = encode_one(
                value,
                key,
                headers,
                timestamp_ms,
                now_ms,
                offset,
                self.leader_epoch,
                encoder.attributes,
                encoder.timestamps,
            )
            if segment.state.must_roll_before(batch) or len(batch) > encoder.max_batch_bytes or offset == INT64_MAX:
                segment = self._segment_for(batch, offset + 1)
            try:
                segment.append(batch)
            except OSError as error:
                raise self._write_failed(error) from error
            end = self.log_end_offset = offset + 1
            if self.follows_write:
                self.high_watermark = end
            if self._syncs_later or gate.waiting:
                self.notify()
        if self.syncs_each:
            self.commit.wait_for(end)
        return offset

    def append_records(
        self, records: Sequence[Record], *, wait: bool = True, producer: ProducerSequence | None = None
    ) -> range:
        """Append records as one batch; return their offsets. `wait=False` leaves the sync to the caller.

        If the batch repeats one of the producer's last batches, nothing is written, and the old offsets are returned.
        """
        encoder, batch = self.encoder, b""
        records = records if isinstance(records, list) else list(records)
        if encoder.needs_keys:
            encoder.check_keys(records)
        if encoder.codec:
            # Compression is slow, so it runs outside the lock; the offset is stamped inside.
            batch = encoder.encode(
                records, now_ms=self._now_ms(), base_offset=0, leader_epoch=self.leader_epoch, producer=producer
            )
            encoder.check_readable(records)
        with self.lock:
            if self.gate.refusal is not None:
                self.gate.check()
            now_ms = self._now_ms()
            if now_ms != self._checked_at_ms:
                self._check_held_at(now_ms)
            first, epoch = self.log_end_offset, self.leader_epoch
            if batch:
                batch = encode.stamp(batch, first, epoch)
            else:
                batch = encoder.encode(records, now_ms=now_ms, base_offset=first, leader_epoch=epoch, producer=producer)
            offsets = range(first, first + len(records))
            if producer is None:
                self._write(batch, offsets.stop)
            else:
                offsets = self._write_once(batch, offsets)
        if wait and self.syncs_each:
            self.commit.wait_for(offsets.stop)
        return offsets

    def append_encoded(
        self, batches: Sequence[GrowingBatch], *, wait: bool = True, producer: ProducerSequence | None = None
    ) -> range:
        """Append as many of the batches as one write may take, from the first; return the offsets of their records.

        An error is that of the first batch alone, unless the write itself failed. `wait` and `producer` are as in
        `append_records`; if the batches repeat batches of the producer, all or none of them must do so.
        """
        encoder = self.encoder
        batches, raw = encoder.accepted(batches), b""
        if encoder.codec:
            # Compression is slow, so it runs outside the lock; the offsets are stamped inside.
            raw, first_end, largest = encoder.finish(
                batches, now_ms=self._now_ms(), base_offset=0, leader_epoch=self.leader_epoch, producer=producer
            )
        with self.lock:
            if self.gate.refusal is not None:
                self.gate.check()
            now_ms = self._now_ms()
            if now_ms != self._checked_at_ms:
                self._check_held_at(now_ms)
            first, epoch = self.log_end_offset, self.leader_epoch
            if raw:
                raw = encode.stamp(raw, first, epoch)
            else:
                raw, first_end, largest = encoder.finish(
                    batches, now_ms=now_ms, base_offset=first, leader_epoch=epoch, producer=producer
                )
            if len(batches) > 1 and not self._fits(raw, largest=largest):
                batches, raw = batches[:1], raw[:first_end]
            max_bytes = len(raw) if len(batches) > 1 else None
            offsets = range(first, first + sum(batch.count for batch in batches))
            if producer is None:
                self._write(raw, offsets.stop, max_bytes=max_bytes)
            else:
                offsets = self._write_once(raw, offsets, max_bytes=max_bytes)
        if wait and self.syncs_each:
            self.commit.wait_for(offsets.stop)
        return offsets

    def append_batches(self, raw: bytes, *, wait: bool = True) -> range:
        """Append whole v2 batches unchanged except for base offset and leader epoch; return their offsets.

        `wait=False` leaves the sync to the caller. If all of them repeat a producer's batches, nothing is written, and
        the old offsets are returned.
        """
        span = self.encoder.check_batches(raw)
        # Each batch was checked against max_message_bytes. Together they must fit in a segment.
        appended = self._append_raw(raw, span, max_bytes=self.config.segment_bytes, once=True)
        if wait and self.syncs_each:
            self.commit.wait_for(appended.stop)
        return appended

    def append_staged(self, raw: bytes) -> None:
        """Append the staged batches of a committed transaction; the caller syncs.

        They are already committed, so size limits that were lowered since do not apply.
        """
        _, span = batch_header.check_batches(raw, INT32_MAX)
        self._append_raw(raw, span, max_bytes=INT32_MAX, once=False)

    def _append_raw(self, raw: bytes, span: int, *, max_bytes: int, once: bool) -> range:
        raw = self.encoder.with_append_time(raw)
        numbered = batch_header.has_producers(raw, len(raw))
        with self.lock:
            self.gate.check()
            now_ms = self._now_ms()
            if now_ms != self._checked_at_ms:
                self._check_held_at(now_ms)
            offsets = range(self.log_end_offset, self.log_end_offset + span)
            batches = encode.stamp(raw, offsets.start, self.leader_epoch)
            if numbered:
                return self._write_once(batches, offsets, max_bytes=max_bytes, refuses=once)
            self._write(batches, offsets.stop, max_bytes=max_bytes)
        return offsets

    def _fits(self, batches: bytes, *, largest: int) -> bool:
        """Return whether several batches may be written at once to the active segment. Holds the lock."""
        return (
            largest <= self.encoder.max_batch_bytes
            and len(batches) <= self.config.segment_bytes
            and not self.unsealed.active.state.must_roll_before(batches)
        )

    def _write_once(
        self, batches: bytes, offsets: range, *, max_bytes: int | None = None, refuses: bool = True
    ) -> range:
        """Write batches of producers unless they are already in the log; return their offsets. Holds the lock.

        With `refuses`, a batch that is neither next in sequence nor a repetition is refused.
        """
        numbered = producer_batches(batches)
        repeated = self.producers.check(numbered) if refuses else None
        if repeated is not None:
            return repeated
        self._write(batches, offsets.stop, max_bytes=max_bytes)
        self.producers.note(numbered)
        return offsets

    def _write(self, batches: bytes, end: int, *, max_bytes: int | None = None) -> None:
        """Write batches whose last offset is `end - 1`. Holds the lock."""
        segment = self._segment_for(batches, end, max_bytes=max_bytes)
        try:
            segment.append(batches)
        except OSError as error:
            raise self._write_failed(error) from error
        self.log_end_offset = end
        if self.follows_write:
            self.high_watermark = end
        if self._syncs_later or self.gate.waiting:
            self.notify()

    def _segment_for(self, batches: bytes, end: int, *, max_bytes: int | None = None) -> ActiveSegment:
        """Return the segment for batches that end at `end`, a new one if Kafka's rules require it. Holds the lock."""
        if end > INT64_MAX:
            raise UsageError(
                f"{self.directory}: the largest offset is {INT64_MAX - 1}, and this append would end at {end - 1}; "
                "nothing was written. Append to another topic"
            )
        limit = self.encoder.max_batch_bytes if max_bytes is None else max_bytes
        if len(batches) > limit:
            raise self.encoder.too_large(len(batches), limit)
        active = self.unsealed.active
        return self.roll() if active.state.must_roll_before(batches) else active

    def notify(self) -> None:
        if self.gate.waiting:
            self.gate.wake()
        if self._syncs_later and self._background is not None:
            self._background.appended()

    def _write_failed(self, error: OSError) -> SeeklogError:
        if is_full(error) and self._is_trimmed():
            self.metrics.log.full_disk_errors += 1
            return DiskFull(f"{self.directory}: the disk is full; nothing was written, append again when there is room")
        return self.gate.fail("a write", error)

    def _is_trimmed(self) -> bool:
        active = self.unsealed.active
        try:
            return self.files.size(active.handle().number) == active.size
        except OSError:
            return False

    def roll(self) -> ActiveSegment:
        """Start a new segment at the end of the log. Holds the lock."""
        end = self.log_end_offset
        if self.log_start_offset == end:
            # The old segment is wholly below the log start offset, so the next open drops it unread.
            self.keep_producers_at(end)
        try:
            self.view = self.unsealed.roll(self.view, end)
        except OSError as error:
            if is_full(error):
                self.metrics.log.full_disk_errors += 1
                raise DiskFull(f"{self.directory}: no room for a new segment; nothing was written") from error
            raise self.gate.fail("starting a segment", error, outcome="nothing was written; ") from error
        self.producers.rolled(end)
        self.metrics.follow(self.unsealed.active.state)
        self.metrics.log.rolls += 1
        logger.debug("%s: rolled at offset %d", self.directory, end)
        if self._background is not None:
            self._background.rolled()
        return self.unsealed.active

    def roll_now(self) -> None:
        """Start a new segment at the end of the log."""
        with self.lock:
            self.gate.check()
            self.roll()

    # ------------------------------------------------------------ producers

    def next_sequence(self, producer_id: int) -> ProducerSequence | None:
        """Return the epoch and sequence of a producer's next batch, or None if the producer is not known."""
        with self.lock:
            entry = self.producers.state.get(producer_id, now_ms=self._now_ms())
        if entry is None:
            return None
        return ProducerSequence(producer_id=producer_id, epoch=entry.epoch, sequence=entry.next_sequence)

    def last_of_producers(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the last offset of each producer's last batch, and the epochs of producers without batches."""
        with self.lock:
            return self.producers.last_offsets(), self.producers.last_epochs()

    def keep_producers_at(self, base_offset: int) -> None:
        """Make the producer state at an offset durable, before the segments below it are deleted."""
        try:
            is_new = self.producers.keep_at(self.view, base_offset, end=self.log_end_offset)
        except OSError as error:
            raise self.gate.refuse_change("a snapshot of producers", error) from error
        if is_new:
            self.promises.sync_names()

    # ------------------------------------------------------------ durability

    def flush(self) -> int:
        """Make every appended record durable; return the recovery point. After a failure the log accepts no appends.

        Linux marks the dirty pages of a failed sync clean: they stay readable, and a second sync can succeed without
        ever writing them. So a retry proves nothing; recovery writes them again.
        """
        with self.sync_lock:
            self.gate.check()
            return self.sync()

    def do_background_work(self) -> None:
        with contextlib.suppress(LogLocked):  # the process that has it syncs these records
            self.turns.sync_returned()
        if self.makes_key_indexes:
            self.make_key_indexes()

    def sync(self, *, checkpoints: bool = True) -> int:
        """Sync all appended records, seal rolled segments, and advance the recovery point; return it.

        The recovery point is written to disk about once a second, or with a seal. `checkpoints=False` leaves it out.
        """
        with self.sync_lock:
            unsealed = self.unsealed
            with self.lock:
                # Taken before the sync, which does not cover later appends.
                end = self.log_end_offset
                active, rolled, has_new_names = unsealed.active, list(unsealed.rolled), unsealed.has_new_names
                snapshots = self.producers.take_due()
            if end == self.recovery_point and not rolled and not has_new_names:
                return end
            try:
                # Records are promised only in the log that others find at this path.
                self.files.check()
                began = self.clock.monotonic()
                for segment in (*rolled, active):
                    segment.sync()
                self.metrics.log.flush_seconds.observe(self.clock.monotonic() - began)
                if snapshots:
                    self.producers.write(snapshots)
                sealed = unsealed.seal(rolled, now_ms=self.clock.now_ms()) if rolled else []
                if has_new_names or sealed:
                    self.files.sync_directory(self.directory)
            except OSError as error:
                raise self.gate.fail("a sync", error) from error
            with self.lock:
                if sealed:
                    self.view = unsealed.release_sealed(self.view, sealed)
                unsealed.has_new_names = unsealed.has_new_names and unsealed.active is not active
                self.note_synced(end)
            if sealed or (checkpoints and self.promises.is_due):
                self.promises.try_write(self.checkpoint())
            return end

    def note_synced(self, end: int) -> None:
        """Advance the recovery point, and the high watermark if it follows the sync. Holds the lock."""
        self.recovery_point = end
        if self.syncs_each and self.config.high_watermark == "auto":
            self.high_watermark = end
            self.publisher.try_publish(end)
            if self.gate.waiting:
                self.gate.wake()

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            contiguous_from=self.promises.contiguous_from,
            generation=self.promises.generation,
            epochs=tuple(self.promises.epochs.entries),
            has_producers=bool(self.producers),
        )

    # ------------------------------------------------------------ watermark, followers, epochs

    def out_of_range(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(offset, log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Make every record below `offset` visible to readers. The watermark never moves back."""
        if self.config.high_watermark != "manual":
            raise UsageError('the high watermark moves automatically; open the log with high_watermark="manual"')
        with self.lock:
            self.gate.check()
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(
                    offset,
                    log_start_offset=self.log_start_offset,
                    log_end_offset=self.log_end_offset + 1,
                    what="high watermark",
                )
            if offset <= self.high_watermark:
                return
            self.check_held()
            self.high_watermark = offset
            self.publisher.try_publish(offset)
        self.gate.wake()

    def settled_watermark(self) -> int:
        """Return the high watermark after an append that is in progress."""
        with self.lock:
            return self.high_watermark

    def wait_beyond(self, offset: int, timeout: float | None) -> None:
        """Wait until the high watermark is above `offset`, the log ends, or `timeout` seconds have passed."""
        self.gate.wait(lambda: self.high_watermark > offset, timeout)

    def begin_epoch(self, epoch: int) -> None:
        """Stamp a new, higher leader epoch on batches from the log end offset on. Durable on return."""
        with self.sync_lock, self.lock:
            self.gate.check()
            if not self.leader_epoch < epoch <= INT32_MAX:
                raise UsageError(f"epoch {epoch} must be above the current one, {self.leader_epoch}")
            epochs = self.promises.epochs
            before = list(epochs.entries)
            epochs.begin(epoch, self.log_end_offset)
            try:
                self.promises.must_write(self.checkpoint())
            except DiskFull:
                epochs.entries = before
                raise
            self.leader_epoch = epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, its end offset), or (-1, -1)."""
        return self.promises.epochs.end_offset(epoch, log_end_offset=self.log_end_offset)

    # ------------------------------------------------------------ key indexes

    def make_key_indexes(self) -> int:
        """Build the key indexes that sealed segments lack, if the configuration asks for them; return how many.

        Records that are appended during the build are synced on their interval.
        """
        if not self.config.indexes_keys:
            return 0
        synced_at = self.clock.monotonic()

        def sync_when_due() -> None:
            nonlocal synced_at
            if self._syncs_later and self.clock.monotonic() - synced_at >= self.config.flush_interval_ms / 1000:
                self.flush()
                synced_at = self.clock.monotonic()

        return self.keys.build_missing(self.view, sync_when_due)

    def keep_key_index(self, segment: Segment, data: bytes) -> bool:
        """Write the key index of a segment that still exists; return whether it was written.

        Removing a segment takes the same lock, so no index outlives its segment.
        """
        with self.sync_lock:
            if self.gate.refusal is not None or segment not in self.view.segments:
                return False
            return write_key_index(self.files, self.directory, segment.base_offset, data)


def _is_of(note: Note | None, active: ActiveSegment) -> bool:
    return note is not None and (note.base_offset, note.size) == (active.base_offset, active.size)


def _settled_view(partition: Partition | None) -> View | None:
    """Return the segments, once no replacement is in progress."""
    if partition is None:
        return None
    with partition.sync_lock:
        return getattr(partition, "view", None)


def _abandon_all() -> None:
    for partition in list(_open_partitions):
        partition.abandon()


os.register_at_fork(after_in_child=_abandon_all)
