"""Turns at a partition: a log stays open while other processes write it, and takes in what they appended."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from seeklog.errors import CorruptionError
from seeklog.log.borrowing import Note
from seeklog.log.side.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from seeklog.log.partition import Partition

logger = logging.getLogger("seeklog")


class Turns:
    """Gives one partition back to other writers, and borrows it again. Thread-safe.

    Takes the partition's `sync_lock` and its `lock`.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def give_back(self, *, syncs: bool = True) -> None:
        """Let other processes write the log, until `borrow`. With `syncs`, everything is durable first.

        Without, the records that this log syncs later are left to the next holder. If that does not come, this log
        borrows itself back for the sync.
        """
        log = self._partition
        with log.sync_lock:
            if log.writer_lock.is_given_back:
                return
            with log.lock:
                if log.gate.refusal is not None:
                    log.gate.check()
                # No append may come between the sync and the note.
                log.gate.close("was returned and may be written by another process; borrow it first")
            unsealed = log.unsealed
            # A note names no other segment, so the others must be sealed.
            if syncs or log.syncs_each or unsealed.rolled or unsealed.has_new_names:
                log.sync(checkpoints=False)
            # Without room for a seal, the next writer could not know that it is missing.
            if not unsealed.rolled and self.release_with_note():
                return
            log.gate.refusal = None
        log.close()

    def release_with_note(self) -> bool:
        """Release the lock with a note for the next writer; False if the note cannot be written."""
        log = self._partition
        active = log.unsealed.active
        try:
            log.writer_lock.give_back(Note(active.base_offset, active.size, log.recovery_point, active.state.crc))
        except OSError as error:
            # The records are written already, so the caller's change has succeeded. Only the next open takes longer.
            logger.warning("%s: closed, because its lock file cannot be written: %s", log.directory, error)
            return False
        return True

    def borrow(self) -> bool:
        """Continue to write a returned log, after other writers' records. Raises `LogLocked` while another has it.

        Returns False and closes the log if another writer did more than append, or crashed: then open it again.
        """
        log = self._partition
        with log.sync_lock, log.lock:
            if not log.writer_lock.is_given_back:
                return log.gate.refusal is None
            is_current = is_intact = False
            try:
                note = log.writer_lock.retake()
                is_current = note == "own" or (isinstance(note, Note) and self._read_appended(note))
                is_intact = note is not None
            except CorruptionError as error:
                logger.warning("%s: does not match the note of the last writer: %s", log.directory, error)
            except OSError:
                pass  # opening the log again reports it
            log.writer_lock.is_given_back = False
            if is_current:
                log.gate.refusal = None
            else:
                if log.recovery_point < log.log_end_offset:
                    # No other process may open the log before the next interval is over.
                    with contextlib.suppress(OSError):
                        log.unsealed.active.sync()
                log.gate.close()
                if is_intact:
                    # The next open must not take the log for one that a killed process left.
                    log.writer_lock.put_back()
                log.release()
            return is_current

    def _read_appended(self, note: Note) -> bool:
        """Read the batches that another writer appended to the last segment; False if it did more than append."""
        log = self._partition
        active, own, saved = log.unsealed.active, log.checkpoint(), read_checkpoint(log.files, log.directory)
        if saved is None or saved.structure != own.structure or note.base_offset != active.base_offset:
            return False
        log.metrics.follow(None)
        if active.follow(note.size, crc=note.crc):
            log.producers.note_in(active, start=log.log_end_offset, end=active.next_offset)
        if not active.follow_indexes():
            return False
        log.metrics.follow(active.state)
        log.promises.saved = saved
        log.log_end_offset = active.next_offset
        log.recovery_point = note.recovery_point
        if log.follows_write:
            log.high_watermark = log.log_end_offset
        elif log.config.high_watermark == "manual":
            log.high_watermark = log.last_watermark(saved, log.log_start_offset)
        else:
            log.high_watermark = log.recovery_point
        if log.recovery_point < log.log_end_offset:
            log.notify()
        return True

    def sync_returned(self) -> None:
        """Sync what was appended, even if the log is returned. Raises `LogLocked` while another process has it.

        Holds `sync_lock` from the look to the end: no other thread may append to the log that is borrowed here.
        """
        log = self._partition
        with log.sync_lock:
            if not log.is_returned:
                log.flush()
            elif log.recovery_point < log.log_end_offset and self.borrow():
                log.sync()
                self.give_back()
