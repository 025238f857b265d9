"""Pieces of partitions, read by several threads and delivered in order.

A range of offsets is cut into pieces of about `PIECE_BYTES` of log. Threads take the pieces in order, and each reads
its piece into a queue. The consumer empties the queues in the order of the pieces, so the result does not depend on the
threads, and one large partition is read as fast as many small ones. The kernel decodes without the interpreter's lock.

Memory is bounded: a thread waits while its queue has `QUEUE_BYTES`, and there is at most one queue more than threads.
The thread of the first queue never waits for the others, because the consumer empties that queue first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

from seeklog.errors import SeeklogError
from seeklog.log import Layout, View

if TYPE_CHECKING:
    import pyarrow

# A few record batches. A seek and a short last batch cost a hundredth of the time for a piece.
PIECE_BYTES: Final = 16 << 20
# Compressed pieces become larger when they are decoded.
QUEUE_BYTES: Final = 32 << 20
# More threads would wait for memory, and hold more of it.
MAX_THREADS: Final = 8
# More bytes than any queue gets.
_ENDLESS: Final = 1 << 62
# How often a stopped scan looks for a thread that began another piece.
_PATIENCE_S: Final = 0.05


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Piece(NamedTuple):
    """A part of one partition: the offsets in [start, stop)."""

    partition: int
    start: int
    stop: int
    is_last: bool
    """Whether it is the last piece of its partition."""


Read = Callable[[Piece], "Iterator[pyarrow.RecordBatch]"]


def cut(view: View, partition: int, start: int, stop: int, *, is_whole: bool) -> Iterator[Piece]:
    """Yield the pieces of a range, in order; at least one. With `is_whole`, the range is one piece."""
    if is_whole or start >= stop:
        yield Piece(partition, start, stop, True)
        return
    for first, end in Layout(view).cut(start, stop, target=PIECE_BYTES):
        yield Piece(partition, first, end, end == stop)


def read_pieces(
    pieces: Iterable[Piece], read: Read, *, threads: int
) -> Iterator[tuple[Piece, pyarrow.RecordBatch | None]]:
    """Yield the batches of each piece, and None after them. Threads run from the first batch to the end, or to `close`.

    An error of a piece is raised after the batches before it.
    """
    if threads == 1:
        for piece in pieces:
            for batch in read(piece):
                yield piece, batch
            yield piece, None
        return
    readers = _Readers(iter(pieces), read, threads=threads)
    try:
        yield from readers.results()
    finally:
        readers.stop()


class _Queue:
    """The batches of one piece that were read and not yet delivered, then its end or its error.

    One thread puts, and one gets. A `SimpleQueue` wakes its waiter without a lock of Python: with a `Condition`, the
    threads would meet for each batch, and would wait for each other more than for the disk.
    """

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self._items: SimpleQueue[tuple[pyarrow.RecordBatch, int] | BaseException | None] = SimpleQueue()
        # Each is changed by one thread alone.
        self._put_bytes = 0
        self._got_bytes = 0
        self._is_full = False
        self._room: SimpleQueue[None] = SimpleQueue()

    def put(self, batch: pyarrow.RecordBatch) -> None:
        """Add a batch, after waiting for room."""
        # Not `nbytes`, which releases the lock of the interpreter.
        size = sum(buffer.size for column in batch.columns for buffer in column.buffers() if buffer is not None)
        while self._held() and self._held() + size > QUEUE_BYTES:
            self._is_full = True
            # Again: the consumer may not have seen the flag.
            if self._held() and self._held() + size > QUEUE_BYTES:
                self._room.get()
        self._put_bytes += size
        self._items.put((batch, size))

    def _held(self) -> int:
        return self._put_bytes - self._got_bytes

    def end(self, error: BaseException | None) -> None:
        self._items.put(error)

    def get(self) -> pyarrow.RecordBatch | None:
        """Return the next batch, or None at the end. Raises the error of the thread that reads."""
        item = self._items.get()
        if item is None:
            return None
        if isinstance(item, BaseException):
            raise item
        batch, size = item
        self._got_bytes += size
        if self._is_full:
            self._is_full = False
            self._room.put(None)
        return batch

    def abandon(self) -> None:
        """Let the thread that reads go on. It must look whether anybody wants more."""
        self._got_bytes = _ENDLESS
        self._room.put(None)


class _Readers:
    """The threads of one scan."""

    def __init__(self, pieces: Iterator[Piece], read: Read, *, threads: int) -> None:
        self._pieces = pieces
        self._read = read
        self._taking = threading.Lock()
        """Held while a piece is taken, because cutting reads files and the queues must have the order of the pieces."""
        self._queues: SimpleQueue[_Queue | BaseException | None] = SimpleQueue()
        self._slots: SimpleQueue[None] = SimpleQueue()
        """An item for each queue that may still be created."""
        for _ in range(threads + 1):
            self._slots.put(None)
        self._unfinished: list[_Queue] = []
        self._is_stopped = False
        self._threads = [
            threading.Thread(target=self._run, name=f"seeklog-scan-{number}", daemon=True) for number in range(threads)
        ]

    def results(self) -> Iterator[tuple[Piece, pyarrow.RecordBatch | None]]:
        for thread in self._threads:
            thread.start()
        while (queue := self._queues.get()) is not None:
            if isinstance(queue, BaseException):
                raise queue
            while (batch := queue.get()) is not None:
                yield queue.piece, batch
                del batch
            self._unfinished.remove(queue)
            self._slots.put(None)
            yield queue.piece, None

    def stop(self) -> None:
        """End the threads and wait for them. Afterwards none of them uses a file."""
        self._is_stopped = True
        for _ in self._threads:
            self._slots.put(None)
        if threading.current_thread() in self._threads:
            return  # the collector runs in any thread
        for thread in self._threads:
            # A queue may have been created meanwhile.
            while thread.ident is not None and thread.is_alive():
                for queue in list(self._unfinished):
                    queue.abandon()
                thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while (queue := self._take()) is not None:
            self._fill(queue)

    def _take(self) -> _Queue | None:
        """Take the next piece once there is room for its queue. Return None at the end."""
        with self._taking:
            self._slots.get()
            if self._is_stopped:
                return None
            try:
                piece = next(self._pieces, None)
            except BaseException as error:
                self._queues.put(error)
                self._pieces = iter(())
                piece = None
            if piece is None:
                # For the other threads.
                self._slots.put(None)
                self._queues.put(None)
                return None
            queue = _Queue(piece)
            self._unfinished.append(queue)
            self._queues.put(queue)
            return queue

    def _fill(self, queue: _Queue) -> None:
        error: BaseException | None = None
        batches = self._read(queue.piece)
        try:
            for batch in batches:
                queue.put(batch)
                if self._is_stopped:
                    break
        except BaseException as failure:
            error = failure
        finally:
            # A generator that is left keeps its files open.
            del batches
        queue.end(error)


def note_partition(error: SeeklogError, topic: str, partition: int) -> None:
    """Add the name of the partition to an error, unless its message has it."""
    name = f"{topic}-{partition}"
    if name not in str(error):
        error.add_note(f"while reading {name}")
