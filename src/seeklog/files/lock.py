"""Lock files: acquiring, holding, releasing, and waiting for short-lived holders, in turn if they are many.

A process that waits for its turn holds a second lock file, the *queue*, which has room for one. Holders of the first
lock look at the queue: if a process waits there, they release the lock soon, and do not acquire it again before that
process. The others wait for the place in the queue. So the turns go round, and nobody waits forever.
"""

from __future__ import annotations

import contextlib
import os
import uuid
import weakref
from collections.abc import Callable
from typing import TypeVar

from seeklog.clock import Clock
from seeklog.errors import LogLocked
from seeklog.files.local import Files

Result = TypeVar("Result")

# Short operations of other processes take a few milliseconds; a longer holder is a writer.
SHORT_WAIT_S = 1.0
MIN_PAUSE_S = 0.001
MAX_PAUSE_S = 0.02
# Between two looks for a turn. A process in the queue looks often, because the turns of others are short: after an
# eighth of the time that it has waited. The processes that wait for its place all look at the same rate, so each has
# the same chance.
MIN_TURN_PAUSE_S = 0.00005
QUEUE_PAUSE_S = 0.0005
# A process that has just had its turn looks after the others have: they get the place in the queue first.
POLITE_PAUSE_S = 0.001
# After this time the holder is not one that takes turns.
LONG_WAIT_S = 1.0

_held_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock file that this process holds. The lock is released with the object, and a forked child closes its copy.

    Otherwise a log dropped without being closed, or a surviving child, would block other processes.

    A holder can pass the lock on temporarily: `release` leaves a note in the file for the next holder, and `retake`
    returns what the last holder left. A holder that crashes leaves no note.
    """

    __slots__ = ("__weakref__", "_files", "_owner", "left", "number", "path", "token")

    def __init__(self, files: Files, number: int, *, path: str = "", owner: str = "", left: str = "") -> None:
        self._files = files
        self.number = number
        self.path = path
        self._owner = owner
        self.token = ""
        """Identifies this holder in a note, because process ids are reused."""
        self.left = left
        """The content of the file before this lock: the last owner and, if it released the lock, its token and note."""
        _held_locks.add(self)

    @property
    def is_held(self) -> bool:
        return self.number >= 0

    def release(self, note: str) -> None:
        """Release the lock until `retake`."""
        self.token = self.token or uuid.uuid4().hex
        self._files.unlock(self.number, f"{self._owner} {self.token} {note}")

    def put_back(self) -> None:
        """Release the lock, and leave the text that the holder before this one left."""
        self._files.unlock(self.number, self.left)

    def retake(self) -> str:
        """Acquire the lock again; return the text of its last holder, which may be this one.

        Raises `LogLocked` if another holder has it, and `FileNotFoundError` if the file was removed or replaced.
        """
        try:
            self.left = self._files.lock(self.number, self.path, self._owner)
        except BlockingIOError:
            raise LogLocked(self.path, _owner_of(self._files, self.path)) from None
        return self.left

    def close(self) -> None:
        """Release the lock. Closing twice has no effect."""
        number, self.number = self.number, -1
        if number >= 0:
            self._files.close(number)

    def __del__(self) -> None:
        self.close()


def take_lock(files: Files, path: str, *, subject: str = "", owner: str = "", advice: str = "") -> Lock:
    """Acquire a lock file, or raise `LogLocked`, naming `subject` (by default the path) and its owner.

    `owner`, by default the process id, is written into the file.
    """
    owner = owner or str(os.getpid())
    number = files.open(path, write=True, create=True)
    try:
        return Lock(files, number, path=path, owner=owner, left=files.lock(number, path, owner))
    except (BlockingIOError, FileNotFoundError):
        files.close(number)
        raise LogLocked(subject or path, _owner_of(files, path), advice=advice) from None
    except BaseException:
        files.close(number)
        raise


def _owner_of(files: Files, path: str) -> int | None:
    """Return the process id that a lock file names."""
    try:
        return int(files.read_file(path).split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return None


def retry_while_locked(clock: Clock, wait_s: float, attempt: Callable[[], Result]) -> Result:
    """Call `attempt` until it stops raising `LogLocked`, or `wait_s` has passed: then raise the last error."""
    give_up = clock.monotonic() + wait_s
    pause = MIN_PAUSE_S
    while True:
        try:
            return attempt()
        except LogLocked:
            if clock.monotonic() >= give_up:
                raise
        clock.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_S)


def is_awaited(files: Files, queue: str) -> bool:
    """Return whether a process waits in a queue. Nothing is written."""
    try:
        return files.is_locked(queue)
    except OSError:
        return False  # nobody has ever waited


def take_in_turn(
    files: Files,
    queue: str,
    attempt: Callable[[], Result],
    *,
    clock: Clock,
    wait_s: float,
    had_last_turn: bool = False,
) -> Result:
    """Call `attempt` until it stops raising `LogLocked`, or `wait_s` has passed: then raise the last error.

    After the first failure this process waits for its turn in `queue`, the path of a lock file. With `had_last_turn` it
    does so from the start if another process is waiting.
    """
    if not (had_last_turn and is_awaited(files, queue)):
        had_last_turn = False
        try:
            return attempt()
        except LogLocked:
            if wait_s <= 0:
                raise
    began = clock.monotonic()
    if had_last_turn:
        clock.sleep(POLITE_PAUSE_S)
    with contextlib.ExitStack() as held:
        is_next = False
        while True:
            if not is_next:
                is_next = _enter(files, queue, held)
            waited = clock.monotonic() - began
            if is_next or waited >= wait_s:
                try:
                    return attempt()
                except LogLocked:
                    if waited >= wait_s:
                        raise
            longest = QUEUE_PAUSE_S if waited < LONG_WAIT_S else MAX_PAUSE_S
            clock.sleep(min(max(waited / 8, MIN_TURN_PAUSE_S), longest) if is_next else longest)


def _enter(files: Files, queue: str, held: contextlib.ExitStack) -> bool:
    """Take the place in a queue, until `held` is closed. Return False if another process has it."""
    try:
        held.callback(take_lock(files, queue).close)
    except LogLocked:
        return False
    except OSError:
        pass  # there is no room for the file: wait without a place
    return True


def _close_locks() -> None:
    for lock in list(_held_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_locks)
