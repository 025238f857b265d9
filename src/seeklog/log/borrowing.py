"""The lock of a partition's writer, and the note that its last holder has left for the next.

A log can stay open while others write it: `Log.give_back` releases the lock after a change, `Log.borrow` takes it again
before the next. The lock file (`.lock`) then says in text who held it last, and what was there:

    process_id             of the last holder
    token                  the holder: one object that had the partition open
    base_offset            of the last segment
    size                   how many bytes of it are whole batches

What the note describes was synced before the note was written, so it holds after a power loss, too. A holder that
dies, or closes the log, leaves no note.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from seeklog import names
from seeklog.files import Files
from seeklog.log.directory import lock_directory, lock_out_broker_of


class Note(NamedTuple):
    """The last segment as a holder left it."""

    base_offset: int
    size: int


class WriterLock:
    """Keeps other writers out of a partition and, where it is opened by itself, brokers out of its root."""

    __slots__ = ("_broker_lock", "_lock", "is_given_back")

    def __init__(self, files: Files, directory: str, *, is_lone: bool) -> None:
        self._broker_lock = lock_out_broker_of(files, directory) if is_lone else None
        self.is_given_back = False
        """Whether others may write the log, until it is borrowed again."""
        try:
            self._lock = lock_directory(files, directory)
        except BaseException:
            self._let_broker_in()
            raise

    def give_back(self, *, base_offset: int, size: int) -> None:
        """Let others take the lock, and leave a note of the last segment for them."""
        self.is_given_back = True
        self._lock.release(f"{base_offset} {size}")

    def retake(self) -> Note | Literal["own"] | None:
        """Take the lock again; return the last holder's note: "own" if nobody has held it in between, None if none.

        Raises `LogLocked` if another holds it, and `FileNotFoundError` if the file was removed or replaced.
        """
        left = self._lock.retake()
        return "own" if left.split()[1:2] == [self._lock.token] else note_in(left)

    @property
    def left(self) -> Note | None:
        """The note of the holder before this one."""
        return note_in(self._lock.left)

    def close(self) -> None:
        """Let others write, and brokers start. Closing twice is nothing."""
        self._lock.close()
        self._let_broker_in()

    def _let_broker_in(self) -> None:
        if self._broker_lock is not None:
            self._broker_lock.close()


def note_in(text: str) -> Note | None:
    """Return the note in what a lock file holds, or None if its last holder left none."""
    words = text.split()
    if len(words) != 4 or not (words[2].isdecimal() and words[3].isdecimal()):
        return None
    return Note(int(words[2]), int(words[3]))


def read_note(files: Files, directory: str) -> Note | None:
    """Return the note in a partition's lock file, for a reader."""
    try:
        return note_in(files.read_file(f"{directory}/{names.LOCK}").decode("ascii", "replace"))
    except OSError:
        return None
