"""What a store does on a schedule, or when it is asked to: retention, compaction, and Kafka's checkpoints."""

from __future__ import annotations

import logging

from seeklog import names
from seeklog.errors import LogLocked, SeeklogError
from seeklog.log import Maintenance
from seeklog.names import TopicPartition
from seeklog.topics import catalog
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

# Kafka's intervals: retention every five minutes, checkpoints every minute.
RETENTION_CHECK_S = 300.0
CHECKPOINT_S = 60.0
# A store learns of another process's changes to the topics within this time.
REFRESH_S = 1.0
# A broker's own, which it alone writes.
_BROKERS_OWN = names.INTERNAL_TOPICS - {names.CONSUMER_OFFSETS}


class Upkeep:
    """The upkeep of a store. Any thread may call any method."""

    def __init__(self, topics: Topics, table: OpenLogs, *, read_only: bool) -> None:
        self._topics = topics
        self._table = table
        self._read_only = read_only
        self._seen_version = topics.version

    def schedule(self, jobs: Maintenance) -> None:
        """Have a thread do all of it from now on."""
        jobs.every(REFRESH_S, self.refresh)
        if not self._read_only:
            jobs.every(RETENTION_CHECK_S, self.roll_and_retain)
            jobs.every(CHECKPOINT_S, self.write_root_offsets)

    def topics(self) -> list[catalog.Topic]:
        """Return the topics that a store may write."""
        return [topic for topic in self._topics.all() if topic.name not in _BROKERS_OWN]

    def refresh(self) -> None:
        """Learn what another process has done to the topics."""
        self._topics.refresh()
        if self._topics.version != self._seen_version:
            self._seen_version = self._topics.version
            self._table.drop_changed()

    def roll_and_retain(self) -> int:
        """Roll, retain, compact and index what is due in every partition; return how many segments were deleted.

        Raises the first error when all partitions were tried.
        """
        deleted = 0
        first_error: SeeklogError | None = None
        for topic in self.topics():
            for number in topic.partitions:
                try:
                    deleted += self._maintain(TopicPartition(topic.name, number))
                except LogLocked:
                    continue  # its writer does this
                except SeeklogError as error:
                    first_error = first_error or error
        if first_error is not None:
            raise first_error
        return deleted

    def _maintain(self, partition: TopicPartition) -> int:
        with self._table.lent(partition, wait_s=0) as log:
            log.roll_if_due()
            deleted = log.retain()
        if log.config.compacts:
            with self._table.lent_beside_writers(partition, wait_s=0) as compacted:
                compacted.compact_if_due()
        if log.config.indexes_keys and partition.topic not in names.INTERNAL_TOPICS:
            # After the compaction, which takes the indexes away with the segments that it replaces.
            with self._table.lent(partition, wait_s=0) as log:
                log.make_key_indexes()
        return deleted

    def write_root_offsets(self) -> None:
        """Write Kafka's checkpoints of what this process has written, for a broker that takes over."""
        self._table.close_borrowed()
        changed = self._table.take_changed()
        try:
            if changed:
                self._topics.write_root_offsets(changed)
        except SeeklogError:
            self._table.put_back_changed(changed)
            raise

    def try_root_offsets(self) -> None:
        """Write them if that can be done: each partition has its own checkpoint, and all records are closed by now."""
        try:
            self.write_root_offsets()
        except SeeklogError as error:
            logger.warning("%s: Kafka's checkpoints are not up to date: %s", self._topics.root, error)
