"""Removing records from a log open for writing: truncation, deletion, retention, and the swaps of compaction."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from seeklog.errors import DiskFull, LogClosed, counted
from seeklog.log.clean import removal
from seeklog.log.clean.retention import Expired, expired_segments, is_roll_due
from seeklog.log.segment import Phase, Segment
from seeklog.log.side.losses import trim_losses
from seeklog.log.side.seal import Seal, write_seal
from seeklog.log.view import View

if TYPE_CHECKING:
    from seeklog.log.partition import Partition

logger = logging.getLogger("seeklog")


def _finding(run: Sequence[Expired]) -> str:
    """Say what exceeded the setting that asked for a run of segments."""
    if run[0].setting == "retention.bytes":
        return f"the log had {counted(run[0].found, 'byte')}"
    return f"their newest record is {timedelta(seconds=min(each.found for each in run) // 1000)} old"


class Truncated(Exception):
    """The log was cut: facts known by its offsets may now describe other records."""


class Remover:
    """Removes records from one partition. Thread-safe.

    Takes the partition's `sync_lock` and, to change the state that appends use, its `lock`.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._compacting = threading.Lock()
        self._is_closing = False
        self.truncation_count = 0

    def renew_locks(self) -> None:
        """Replace the locks in a forked child: a thread of the parent may have held them."""
        self._compacting = threading.Lock()

    # ------------------------------------------------------------ at the end

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains `offset` and all after it; return the new log end offset."""
        log = self._partition
        with log.sync_lock, log.lock:
            # Before the log is read, too: another one may be at its path.
            log.check_held()
            if not log.log_start_offset <= offset <= log.log_end_offset:
                raise log.out_of_range(offset)
            if offset == log.log_end_offset:
                return offset
            cut = removal.find_cut(log.view, offset)
            end = cut.end
            promises = log.promises
            producers = log.producers.rebuilt(log.view, end=end)
            recovery_point, high_watermark = min(log.recovery_point, end), min(log.high_watermark, end)
            # Lower the promises before the records: a crash in between is then no loss.
            promises.generation += 1
            promises.must_write(replace(log.checkpoint(), recovery_point=recovery_point, high_watermark=high_watermark))
            log.recovery_point, log.high_watermark = recovery_point, high_watermark
            try:
                if not log.follows_write:
                    # After a power loss, the higher of this and the checkpoint's watermark is used.
                    log.publisher.publish(high_watermark, durable=True)
                log.producers.forget_beyond(end)
                with log.shared.replacing:
                    # A reader that replaces a side file has finished; any later one finds the seal gone.
                    log.view = log.unsealed.cut(log.view, cut.index, cut.kept)
                trim_losses(log.files, log.directory, end=end)
            except OSError as error:
                raise log.gate.fail("truncating", error) from error
            log.metrics.follow(log.unsealed.active.state)
            log.producers.state = producers
            log.log_end_offset = end
            # Other threads may wait for the sync of records that were appended before the cut and are kept.
            log.note_synced(end)
            # The cut may remove the batch that the log started in, and gaps left by compaction.
            log.log_start_offset = min(log.log_start_offset, end)
            promises.contiguous_from = min(promises.contiguous_from, end)
            log.commit.forget()
            promises.epochs.truncate(end)
            promises.generation += 1
            # Last: a reader that sees this count sees no records that were cut.
            self.truncation_count += 1
            try:
                # Later appends may be below the start that is on disk, among gaps, or in epochs that were cut.
                promises.write(log.checkpoint())
            except OSError as error:
                raise log.gate.fail("truncating", error) from error
            return end

    def count_truncations(self) -> int:
        """Return the number of truncations, after waiting for one in progress: it may have cut without counting yet."""
        with self._partition.sync_lock:
            return self.truncation_count

    def check_not_truncated(self, truncation_count: int) -> None:
        """Raise `Truncated` if the log was cut since its truncations were counted."""
        if self.truncation_count != truncation_count:
            raise Truncated(self._partition.directory)

    # ------------------------------------------------------------ at the start

    def delete_before(self, offset: int) -> int:
        """Raise the log start offset to `offset` and delete the segments wholly below it."""
        log = self._partition
        with log.sync_lock:
            log.gate.check()
            if offset > log.high_watermark or offset < 0:
                raise log.out_of_range(offset)
            if offset <= log.log_start_offset:
                return 0
            log.flush()
            with log.lock:
                try:
                    log.keep_producers_at(log.view.segments[log.view.find(offset)].base_offset)
                except DiskFull as error:
                    # Deleting makes room; the next delete tries again.
                    logger.warning("%s", error)
                log.promises.must_write(replace(log.checkpoint(), log_start_offset=offset))
                log.log_start_offset = offset
                return self._drop_segments_below(offset)

    def _drop_segments_below(self, offset: int) -> int:
        log = self._partition
        doomed = removal.segments_below(log.view.segments, offset)
        if not doomed:
            return 0
        log.view = View(log.view.segments[len(doomed) :])
        log.metrics.retention.deleted_segments += len(doomed)
        log.metrics.retention.deleted_bytes += sum(segment.size for segment in doomed)
        log.unsealed.forget(doomed)
        for segment in doomed:
            try:
                log.unsealed.remove_files(segment)
            except OSError as error:
                # The log start offset is already raised past the segment; the next open deletes it.
                logger.warning("%s: not deleted yet: %s", segment.path, error)
        try:
            log.producers.tidy(log.view, end=log.log_end_offset)
            log.files.sync_directory(log.directory)
        except OSError as error:
            raise log.gate.fail("deleting segments", error) from error
        return len(doomed)

    def retain(self) -> int:
        """Delete the segments that retention no longer keeps; return how many."""
        log = self._partition
        with log.sync_lock:
            log.flush()
            with log.lock:
                # A segment may have been active when the log start offset was raised past its end.
                dropped = self._drop_segments_below(log.log_start_offset)
            expired = expired_segments(
                removal.sealed_facts(log.view),
                active_size=log.unsealed.active.size,
                high_watermark=log.high_watermark,
                now_ms=log.clock.now_ms(),
                config=log.config,
            )
            if not expired:
                return dropped
            first_offset = log.log_start_offset
            deleted = self.delete_before(expired[-1].facts.next_offset)
            self._report_retention(first_offset, expired)
            return dropped + deleted

    def _report_retention(self, first_offset: int, expired: Sequence[Expired]) -> None:
        """Log what retention has deleted, and the setting that asked for it: a line for each run of segments."""
        log = self._partition
        for _, grouped in groupby(expired, lambda each: each.setting):
            run = list(grouped)
            last = run[-1]
            logger.info(
                "%s: retention deleted offsets %d to %d (%s in %s), because %s and %s of %s",
                log.directory,
                first_offset,
                last.facts.next_offset - 1,
                counted(sum(each.facts.size for each in run), "byte"),
                counted(len(run), "segment"),
                _finding(run),
                last.cause,
                log.owner_of(last.setting),
            )
            first_offset = last.facts.next_offset

    def roll_if_due(self) -> bool:
        """Roll the active segment if it spans `segment_ms`, or if retention would keep none of its records.

        Appends roll by the timestamps of their records. This is for a log without appends.
        """
        log = self._partition
        now_ms = log.clock.now_ms()
        with log.lock:
            log.gate.check()
            is_due = is_roll_due(log.unsealed.active.state, now_ms=now_ms, config=log.config)
            if is_due:
                log.roll()
            return is_due

    # ------------------------------------------------------------ compaction

    @contextlib.contextmanager
    def compacting(self) -> Iterator[None]:
        """Run a compaction: only one at a time."""
        with self._compacting:
            self.check_not_closing()
            yield

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Run a close: a running compaction stops at its next check, and no new one starts."""
        self._is_closing = True
        with self._compacting:
            yield

    def check_not_closing(self) -> None:
        """Stop a compaction if a close is waiting for it."""
        if self._is_closing:
            raise LogClosed(f"{self._partition.directory} is closed; open it again")

    def replace_segments(
        self, old: Sequence[Segment], new: Segment, *, truncation_count: int, install: Callable[[], None]
    ) -> bool:
        """Replace the adjacent segments `old` with `new`, whose files `install` renames into place.

        Returns False and does nothing if retention has deleted some of them. Raises `Truncated` if the log was cut
        since `truncation_count`: the offsets in `new` may then belong to other records.
        """
        log = self._partition
        promises = log.promises
        with log.sync_lock:
            log.gate.check()
            self.check_not_truncated(truncation_count)
            if not all(segment in log.view.segments for segment in old):
                return False
            before, end = promises.contiguous_from, old[-1].next_offset
            if before < end:
                # Allow gaps before there are any: an open would otherwise treat them as damage.
                promises.contiguous_from = end
                try:
                    promises.must_write(log.checkpoint())
                except DiskFull:
                    promises.contiguous_from = before
                    raise
            with log.shared.replacing:
                for segment in old:
                    segment.phase = Phase.REPLACED
            try:
                install()
            except OSError as error:
                raise log.gate.fail("replacing segments", error) from error
            with log.lock:
                log.view = log.view.with_merged(old, new)
            for segment in old:
                segment.release()
            # Readers in other processes start over: their last segment may have been replaced.
            promises.generation += 1
            promises.try_write(log.checkpoint())
            return True

    def renew_seal(self, segment: Segment, old: Seal, new: Seal, *, truncation_count: int, page_table: bytes) -> None:
        """Replace a segment's seal, unless the segment or its old seal is gone. Raises like `replace_segments`."""
        log = self._partition
        with log.sync_lock, log.shared.replacing:
            self.check_not_truncated(truncation_count)
            if segment in log.view.segments and segment.seal == old:
                write_seal(log.files, log.directory, new, page_table)
                segment.attach(new)
