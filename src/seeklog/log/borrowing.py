"""The lock of a partition's writer, and the note that each holder leaves for the next.

A log can stay open while another process writes it: `Log.give_back` releases the lock after a change, and `Log.borrow`
acquires it before the next. In between, the lock file (`.lock`) holds this text:

    process_id             of the last holder
    token                  identifies the holder: one object that had the partition open
    base_offset            of the last segment
    size                   how many bytes of that segment are whole batches
    recovery_point         the offset below which everything is synced
    crc                    the CRC-32C of these bytes

The last segment is the only one with bytes that may not be synced. The next holder takes over the duty to sync them:
only the holder of the lock syncs, and only it can promise what a sync covers. A holder that crashes, whose write or
sync failed, or that closes the log leaves no note. Then the next one opens the log again, and so recovers it.

A note is for processes that had the log open when it was written. After a power loss it says what the file should have
held, and recovery decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Literal, NamedTuple

from seeklog import names
from seeklog.files import Displaced, Files, HeldFiles
from seeklog.log.directory import lock_directory, lock_out_broker_of


class Note(NamedTuple):
    """The last segment when a holder released the lock."""

    base_offset: int
    size: int
    recovery_point: int
    crc: int


class WriterLock:
    """Keeps other writers out of a partition. For a lone log it also keeps brokers out of the root directory."""

    __slots__ = ("_broker_lock", "_lock", "files", "is_given_back", "is_shared")

    def __init__(
        self, files: Files, directory: str, *, is_lone: bool, on_displaced: Callable[[Displaced], object]
    ) -> None:
        self.is_given_back = False
        """Whether another process may write the log, until it is borrowed again."""
        with contextlib.ExitStack() as held:
            self._broker_lock = lock_out_broker_of(files, directory) if is_lone else None
            held.callback(self._let_broker_in)
            self._lock = lock_directory(files, directory)
            held.callback(self._lock.close)
            self.is_shared = self.left is not None
            """Whether another process may have the log open: it left a note, or this one did."""
            self.files = HeldFiles(files, directory, lock=self._lock, on_displaced=on_displaced)
            """The files of the log. They change nothing once another directory or lock file is in place of its own."""
            held.pop_all()

    def give_back(self, note: Note) -> None:
        """Release the lock, and leave a note of the last segment for the next holder.

        If the note cannot be written, raises `OSError` and keeps the lock.
        """
        self.is_given_back = self.is_shared = True
        try:
            self._lock.release(" ".join(map(str, note)))
        except OSError:
            self.is_given_back = False
            raise

    def retake(self) -> Note | Literal["own"] | None:
        """Acquire the lock again. Return the last holder's note, "own" if nobody held it in between, or None.

        Raises `LogLocked` if another process holds it, and `FileNotFoundError` if the file was removed or replaced.
        """
        left = self._lock.retake()
        return "own" if left.split()[1:2] == [self._lock.token] else note_in(left)

    def put_back(self) -> None:
        """Release the lock with the note that `retake` returned, because nothing was changed since."""
        with contextlib.suppress(OSError):  # without a note, the next writer recovers the log
            self._lock.put_back()

    @property
    def left(self) -> Note | None:
        return note_in(self._lock.left)

    @property
    def open_file_count(self) -> int:
        return self._lock.is_held + (self._broker_lock is not None and self._broker_lock.is_held)

    def close(self) -> None:
        """Release the locks. Closing twice does nothing."""
        self._lock.close()
        self._let_broker_in()

    def _let_broker_in(self) -> None:
        if self._broker_lock is not None:
            self._broker_lock.close()


def note_in(text: str) -> Note | None:
    """Parse the text of a lock file; None if the last holder left no note."""
    fields = text.split()
    if len(fields) != 6 or not all(map(str.isdecimal, fields[2:])):
        return None
    return Note(*map(int, fields[2:]))


def read_note(files: Files, directory: str) -> Note | None:
    try:
        return note_in(files.read_file(f"{directory}/{names.LOCK}").decode("ascii", "replace"))
    except OSError:
        return None
