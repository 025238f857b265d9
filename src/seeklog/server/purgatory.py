"""Requests that wait for partitions: fetches for records, produces for the high watermark.

Everything runs in the event loop. A waiting request is watched under each of its partitions; a change of a partition
looks at those that watch it, and at no other. The same purgatory serves replication.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from seeklog.names import TopicPartition


class Waiting:
    """A request that waits until `is_done`, or until its deadline."""

    __slots__ = ("future", "is_done", "partitions")

    def __init__(
        self, partitions: Iterable[TopicPartition], is_done: Callable[[], bool], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.partitions = tuple(partitions)
        self.is_done = is_done
        self.future: asyncio.Future[None] = loop.create_future()


class Purgatory:
    """The requests that wait, by partition."""

    def __init__(self) -> None:
        self._waiting: defaultdict[TopicPartition, set[Waiting]] = defaultdict(set)
        self._is_closed = False

    def __len__(self) -> int:
        return len({waiting for each in self._waiting.values() for waiting in each})

    async def wait(
        self, partitions: Iterable[TopicPartition], is_done: Callable[[], bool], *, timeout_s: float | None
    ) -> bool:
        """Wait until `is_done`, which is asked after each change of the partitions. Return False after the timeout."""
        if is_done() or self._is_closed:
            return is_done()
        waiting = Waiting(partitions, is_done, asyncio.get_running_loop())
        for partition in waiting.partitions:
            self._waiting[partition].add(waiting)
        try:
            await asyncio.wait_for(waiting.future, timeout_s)
        except TimeoutError:
            return is_done()
        finally:
            for partition in waiting.partitions:
                watchers = self._waiting[partition]
                watchers.discard(waiting)
                if not watchers:
                    del self._waiting[partition]
        return True

    def changed(self, partition: TopicPartition) -> None:
        """Look at the requests that watch a partition: its records, its watermark or its topic have changed."""
        for waiting in tuple(self._waiting.get(partition, ())):
            if not waiting.future.done() and waiting.is_done():
                waiting.future.set_result(None)

    def close(self) -> None:
        """End every wait, and those to come, as at their deadlines."""
        self._is_closed = True
        for watchers in tuple(self._waiting.values()):
            for waiting in tuple(watchers):
                if not waiting.future.done():
                    waiting.future.set_result(None)
