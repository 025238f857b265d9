"""The periodic work of a store: retention, compaction, key indexes, and Kafka's checkpoints."""

from __future__ import annotations

import logging
import threading

from seeklog import names
from seeklog.clock import Clock
from seeklog.errors import LogLocked, SeeklogError
from seeklog.log import Maintenance
from seeklog.metrics import MaintenanceSection
from seeklog.names import TopicPartition
from seeklog.topics import catalog
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

# Kafka's intervals: retention every five minutes, checkpoints every minute.
RETENTION_CHECK_S = 300.0
CHECKPOINT_S = 60.0
# Changes that another process makes are seen within this time: to the topics, and by deleting segments.
REFRESH_S = 1.0
# Internal topics that only a broker writes.
_BROKERS_OWN = names.INTERNAL_TOPICS - {names.CONSUMER_OFFSETS}


class Upkeep:
    """The periodic work of a store. Any thread may call any method."""

    def __init__(self, topics: Topics, table: OpenLogs, *, clock: Clock, read_only: bool) -> None:
        self._topics = topics
        self._table = table
        self._clock = clock
        self._read_only = read_only
        self._seen_version = topics.version
        self.metrics = MaintenanceSection()
        # The thread and a caller of `maintain` may both count.
        self._counting = threading.Lock()

    def schedule(self, jobs: Maintenance) -> None:
        """Schedule all of it on a thread."""
        jobs.every(REFRESH_S, self.refresh)
        if not self._read_only:
            jobs.every(RETENTION_CHECK_S, self.roll_and_retain)
            jobs.every(CHECKPOINT_S, self.write_root_offsets)

    def topics(self) -> list[catalog.Topic]:
        """Return the topics that a store may write."""
        return [topic for topic in self._topics.all() if topic.name not in _BROKERS_OWN]

    def refresh(self) -> None:
        """Read changes that other processes made to the topics, and release the files of deleted segments."""
        self._topics.refresh()
        if self._topics.version != self._seen_version:
            self._seen_version = self._topics.version
            self._table.drop_changed()
        self._table.refresh_readers()
        if not self._read_only:
            self._topics.write_opened()

    def roll_and_retain(self) -> int:
        """Roll, retain, compact and index what is due in every partition. Return the number of segments deleted.

        All partitions are tried; the first error is raised at the end.
        """
        began = self._clock.monotonic()
        deleted = 0
        first_error: SeeklogError | None = None
        for topic in self.topics():
            for number in topic.partitions:
                try:
                    deleted += self._maintain(TopicPartition(topic.name, number))
                except LogLocked:
                    continue  # the process that writes it does this
                except SeeklogError as error:
                    first_error = first_error or error
        with self._counting:
            self.metrics.seconds.observe(self._clock.monotonic() - began)
            self.metrics.failures += first_error is not None
        if first_error is not None:
            raise first_error
        return deleted

    def abandon(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it."""
        self._counting = threading.Lock()
        self.metrics = MaintenanceSection()

    def _maintain(self, partition: TopicPartition) -> int:
        if not self._table.was_opened(partition):
            return 0  # it has no records, and opening it would create its files
        with self._table.borrow(partition, wait_s=0) as log:
            log.roll_if_due()
            deleted = log.retain()
        if log.config.compacts:
            with self._table.borrow_beside_writers(partition, wait_s=0) as compacted:
                compacted.compact_if_due()
        if log.config.indexes_keys and partition.topic not in names.INTERNAL_TOPICS:
            # After the compaction, which deletes the indexes of the segments it replaces.
            with self._table.borrow(partition, wait_s=0) as log:
                log.make_key_indexes()
        return deleted

    def write_root_offsets(self) -> None:
        """Write Kafka's checkpoints of the partitions that this process has changed, for a broker that takes over."""
        self._table.close_borrowed()
        changed = self._table.take_changed()
        try:
            self._topics.write_opened()
            if changed or self._topics.has_old_root_lines:
                self._topics.write_root_offsets(changed)
        except SeeklogError:
            self._table.put_back_changed(changed)
            raise

    def try_root_offsets(self) -> None:
        """Write the checkpoints and log an error. Each partition has its own checkpoint, so no record is at risk."""
        try:
            self.write_root_offsets()
        except SeeklogError as error:
            logger.warning("%s: Kafka's checkpoints could not be written: %s", self._topics.root, error)
