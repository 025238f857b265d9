"""What the last holder of a partition's lock has left, for whoever takes it next.

A log can stay open while others write it: `Log.give_back` releases the lock after a change, `Log.borrow` takes it again
before the next. The lock file (`.lock`) then says in text who held it last, and what was there:

    process_id             of the last holder
    token                  the holder: one object that had the partition open
    base_offset            of the last segment
    size                   how many bytes of it are whole batches

What the note speaks of was synced before the note was written, so it holds after a power loss, too. A holder that
dies, or closes the log, leaves no note.
"""

from __future__ import annotations

from typing import NamedTuple

from seeklog import names
from seeklog.files import Files, Lock


class Note(NamedTuple):
    """The last segment as a holder left it."""

    token: str
    base_offset: int
    size: int

    def is_of(self, base_offset: int, *, size: int) -> bool:
        """Tell whether it is of a segment as it is now."""
        return (self.base_offset, self.size) == (base_offset, size)


def release(lock: Lock, *, base_offset: int, size: int) -> None:
    """Let others take the lock."""
    lock.release(f"{base_offset} {size}")


def is_own(text: str, lock: Lock) -> bool:
    """Tell whether what a lock file held was left by its present holder: nobody has held the lock in between."""
    return text.split()[1:2] == [lock.token]


def note_in(text: str) -> Note | None:
    """Return the note in what a lock file holds, or None if its last holder left none."""
    words = text.split()
    if len(words) != 4 or not (words[2].isdecimal() and words[3].isdecimal()):
        return None
    return Note(words[1], int(words[2]), int(words[3]))


def read_note(files: Files, directory: str) -> Note | None:
    """Return the note in a partition's lock file, for whoever only reads."""
    try:
        return note_in(files.read_file(f"{directory}/{names.LOCK}").decode("ascii", "replace"))
    except OSError:
        return None
