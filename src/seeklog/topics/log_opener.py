"""Opening the logs of a store: with their topic's configuration, and only while the topic exists.

Thread contract: any thread may call any method.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from seeklog.clock import Clock
from seeklog.errors import NotALog, TopicNotFound, UsageError
from seeklog.files import Files, translate, translated
from seeklog.log import Host, Log, LogMetrics, LogReader, Maintenance, OpenSegments
from seeklog.log.side import Checkpoint, RootOffsets, RootWatch
from seeklog.names import TopicPartition
from seeklog.topics.catalog import are_different
from seeklog.topics.layout import is_opened, is_prepared, partition_path
from seeklog.topics.topics import Topics


class LogOpener:
    """Opens logs, and keeps none. The open logs of a store are `OpenLogs`."""

    def __init__(
        self,
        topics: Topics,
        *,
        files: Files,
        clock: Clock,
        check_root: Callable[[], None] | None,
        max_segments: int,
    ) -> None:
        """`check_root` raises `OSError` if the root's path leads to another directory. None: the store is read-only."""
        self._topics = topics
        self._root = topics.root
        self._files = files
        self._clock = clock
        self._check_root = check_root
        self._read_only = check_root is None
        self._max_segments = max_segments
        self._open_segments = OpenSegments(max_segments)
        self._root_watch = RootWatch(files, topics.root, clock=clock)

    def inherited(self, partition: TopicPartition) -> Checkpoint | None:
        """Return the values for a partition in the checkpoints that a broker left in the root.

        A partition that no writer has opened has none, except in a broker's directory. There the files are read again:
        what was read a moment ago may belong to a deleted topic with the same name.
        """
        if self.was_opened(partition):
            return self._root_watch.offsets().of(partition)
        return RootOffsets.read(self._files, self._root).of(partition) if self._topics.has_broker_format() else None

    def was_opened(self, partition: TopicPartition) -> bool:
        """Return whether a writer has opened a partition, even if the catalog still lists it as unopened."""
        return not self._topics.is_unopened(partition) or is_opened(self._files, self._root, partition)

    def _open_as_configured(
        self, partition: TopicPartition, *, metrics: LogMetrics, maintenance: Maintenance | None = None
    ) -> Log:
        """Open a log with the catalog's configuration at the time of the lock.

        Another process may have altered the topic and then appended. Retention or compaction under the older
        configuration could delete those records.
        """
        while True:
            log = self._open_to_write(partition, metrics=metrics, maintenance=maintenance)
            try:
                # Any thread may have refreshed the topics since, so the version proves nothing.
                self._topics.refresh()
                if self._topics.config_of(self._topics.check(partition)) == log.config:
                    return log
            except BaseException:
                log.close()
                raise
            log.close()

    def _open_to_write(
        self, partition: TopicPartition, *, metrics: LogMetrics, maintenance: Maintenance | None = None
    ) -> Log:
        if self._check_root is None:
            raise UsageError(f"the store at {self._root} is open read-only; open it without read_only to write")
        with translated(f"{partition} cannot be opened to write"):
            self._check_root()
        self._path_of(partition)  # refuses a link
        unopened_id = self._prepare(partition, durable=True)
        with self._naming_deleted(partition):
            log = Log(
                self._path_of(partition),
                config=self._topics.config_of(self._topics.check(partition)),
                clock=self._clock,
                files=self._files,
                background=maintenance is not None,
                host=self._host_of(partition, maintenance=maintenance, metrics=metrics),
            )
        if unopened_id is not None:
            self._topics.note_opened(partition, topic_id=unopened_id)
        return log

    def _prepare(self, partition: TopicPartition, *, durable: bool) -> str | None:
        """Create what is missing of a partition that no writer has opened. Return its topic's id, or None if one has.

        Without the catalog's lock nothing is created: the topic may have been deleted since the catalog was read.
        """
        if not self._topics.is_unopened(partition):
            return None
        topic_id = self._topics.check(partition).topic_id
        with translated(f"{self._root}/{partition} cannot be created", when_full="nothing was changed"):
            if is_prepared(self._files, self._root, partition, topic_id=topic_id, durable=durable):
                return topic_id
            return self._topics.prepare(partition, durable=durable)

    def _open_to_read(self, partition: TopicPartition) -> LogReader:
        if not self._read_only:
            self._path_of(partition)  # refuses a link
            self._prepare(partition, durable=False)
        topic = self._topics.check(partition)
        try:
            with self._naming_deleted(partition):
                return LogReader(
                    self._path_of(partition),
                    config=self._topics.config_of(topic),
                    clock=self._clock,
                    files=self._files,
                    host=self._host_of(partition),
                )
        except NotALog:
            # A broker may have deleted the topic and created another one since the look at the catalog.
            if not are_different(self._topics.check(partition).topic_id, topic.topic_id):
                raise
        return self._open_to_read(partition)

    def _path_of(self, partition: TopicPartition) -> str:
        path = partition_path(self._root, partition)
        try:
            if self._files.kind(path) == "link":
                raise NotALog(f"{path} is a symbolic link, and a store follows none. Replace it; nothing was changed")
        except FileNotFoundError:
            pass  # opening it reports that
        except OSError as error:
            raise translate(error, f"{path} cannot be opened") from error
        return path

    def _host_of(
        self, partition: TopicPartition, *, maintenance: Maintenance | None = None, metrics: LogMetrics | None = None
    ) -> Host:
        return Host(
            source=partition,
            open_segments=self._open_segments,
            inherited=partial(self.inherited, partition),
            has_topic=partial(self._has_topic, partition.topic),
            owner_of=partial(self._topics.owner_of, partition.topic),
            cleaned=self._root_watch.offsets().cleaned.get(partition, 0),
            is_unopened=partial(self._topics.is_unopened, partition),
            maintenance=maintenance,
            metrics=metrics,
        )

    @contextlib.contextmanager
    def _naming_deleted(self, partition: TopicPartition) -> Iterator[None]:
        try:
            yield
        except NotALog as error:
            if not self._has_topic(partition.topic):
                raise TopicNotFound(f"topic {partition.topic!r} was deleted") from error
            raise

    def _has_topic(self, name: str) -> bool:
        """Read the catalog again, and return whether a topic exists."""
        self._topics.refresh(at_once=True)
        return self._topics.has(name)
