"""Which partitions a consumer must look at.

A partition is *awake* while it may have records for the consumer. It *rests* once it was found at its end after a watch
on its directory began, until something in the directory changes. So a consumer that waits does no work for the
partitions where nothing happens or, where the system reports no changes, much less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from seeklog.clock import Clock
from seeklog.files import Files
from seeklog.names import TopicPartition
from seeklog.topics.layout import partition_path

if TYPE_CHECKING:
    from seeklog.files.watch import DirectoryWatch

# A record is visible before its announcement to other processes is written. If that write fails, nothing changes in
# the directory. So all partitions are looked at again after this time.
REST_S: Final = 30.0


class Turns:
    """The awake partitions, and the watch over the others. One thread uses it; any thread may call `close`."""

    def __init__(self, root: str, *, files: Files, clock: Clock) -> None:
        self._root = root
        self._files = files
        self._clock = clock
        self._watch: DirectoryWatch | None = None
        self._has_watch = True
        """Whether the system may have a watch for this consumer. It is asked once, at the first empty partition."""
        self._watched: dict[str, TopicPartition] = {}
        self._resting: set[TopicPartition] = set()
        self._rest_end = 0.0
        self._next = 0
        self.awake: dict[TopicPartition, None] = {}

    @property
    def is_polled(self) -> bool:
        """Whether changes are only found by looking, and a wait does not end at them."""
        return self._watch is not None and self._watch.is_polled

    def add(self, partition: TopicPartition) -> None:
        """Add a partition, or awaken it after its position was changed."""
        self._resting.discard(partition)
        self.awake[partition] = None

    def remove(self, partition: TopicPartition) -> None:
        self.awake.pop(partition, None)
        self._resting.discard(partition)
        directory = partition_path(self._root, partition)
        self._watched.pop(directory, None)
        if self._watch is not None:
            self._watch.forget(directory)

    def in_turn(self) -> list[TopicPartition]:
        """Return the awake partitions, starting with another one each time."""
        self._awaken_changed()
        awake = list(self.awake)
        self._next += 1
        first = self._next % len(awake) if awake else 0
        return awake[first:] + awake[:first]

    def found_empty(self, partition: TopicPartition) -> None:
        """Let a partition rest if its directory was already watched. Otherwise watch it; it is looked at once more."""
        directory = partition_path(self._root, partition)
        if directory in self._watched:
            self.awake.pop(partition, None)
            if not self._resting:
                self._rest_end = self._clock.monotonic() + REST_S
            self._resting.add(partition)
            return
        if self._has_watch and self._watch is None:
            self._watch = self._files.watch()
            self._has_watch = self._watch is not None
        if self._watch is not None and self._watch.add(directory):
            self._watched[directory] = partition

    def _awaken_changed(self) -> None:
        if self._watch is None:
            return
        changed = self._watch.changes()
        if changed is None:
            # Events were lost, or this is a forked child, which has no watch.
            self._watched.clear()
            self._awaken_all()
            return
        for directory in changed:
            partition = self._watched.pop(directory, None)
            if partition is not None:
                self.add(partition)
        if self._resting and self._clock.monotonic() >= self._rest_end:
            self._awaken_all()

    def _awaken_all(self) -> None:
        for partition in list(self._resting):
            self.add(partition)

    def wait(self, seconds: float) -> bool:
        """Wait for a change or for the time. Return False at once if the system reports no changes."""
        return self._watch is not None and self._watch.wait(seconds)

    def close(self) -> None:
        """Release the watch. A wait ends."""
        if self._watch is not None:
            self._watch.close()
