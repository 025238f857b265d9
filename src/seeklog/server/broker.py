"""What all handlers share: the store, the identity of the broker, threads for what may wait, and requests that wait."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from seeklog import names
from seeklog.errors import SeeklogError, TopicNotFound
from seeklog.log import Log, LogReader
from seeklog.names import TopicPartition
from seeklog.server.coordinator.groups import GroupCoordinator
from seeklog.server.endpoint import Endpoint
from seeklog.server.purgatory import Purgatory
from seeklog.store import Store
from seeklog.store.access import Served, served
from seeklog.topics.catalog import Topic
from seeklog.wire.error_code import ErrorCode

logger = logging.getLogger("seeklog")

Result = TypeVar("Result")

NODE_ID: Final = 1
THREADS: Final = 16
NO_TOPIC_ID: Final = bytes(16)
# A client that gets no leader epoch does not check it.
NO_EPOCH: Final = -1


class Settings(NamedTuple):
    """How a server behaves, as Kafka's broker settings name it."""

    auto_create_topics: bool
    partitions: int
    initial_rebalance_delay_s: float
    """Kafka's `group.initial.rebalance.delay.ms`."""
    max_request_bytes: int = 100 << 20
    """Kafka's `socket.request.max.bytes`."""


class Broker:
    """One node: the leader of every partition of a store. Its methods are for the event loop's thread."""

    def __init__(self, store: Store, *, cluster_id: str, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.cluster_id = cluster_id
        self.endpoints: list[Endpoint] = []
        """The addresses in responses, in the order of the listeners."""
        self.purgatory = Purgatory()
        self._served: Served = served(store)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="seeklog-server")
        self.groups = GroupCoordinator(self, self._served.groups, initial_delay_s=settings.initial_rebalance_delay_s)
        self._syncs: dict[TopicPartition, asyncio.Future[None]] = {}

    def endpoint_for(self, listener: int) -> Endpoint:
        """Return where the clients of a listener find this node."""
        return self.endpoints[min(listener, len(self.endpoints) - 1)]

    async def in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Call what may wait for the disk or for a lock."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    # ------------------------------------------------------------ topics

    def topics(self) -> list[Topic]:
        """Return every topic, with Kafka's internal ones, sorted by name."""
        return self._served.topics.all()

    def topic(self, name: str, topic_id: bytes = NO_TOPIC_ID) -> Topic | None:
        """Return a topic by its name, or by its id if that is given. None: it does not exist."""
        if topic_id != NO_TOPIC_ID:
            wanted = text_of_id(topic_id)
            return next((topic for topic in self.topics() if topic.topic_id == wanted), None)
        with contextlib.suppress(TopicNotFound):
            return self._served.topics.find(name) if names.is_topic_name(name) else None
        return None

    # ------------------------------------------------------------ logs

    def reader(self, partition: TopicPartition) -> LogReader | None:
        """Return the open log of a partition to read from; None if opening it would wait for the disk."""
        return self._served.table.known_log(partition)

    def open_reader(self, partition: TopicPartition) -> LogReader:
        """Return the log of a partition to read from. May wait for the disk."""
        return self._served.table.reading(partition)

    def is_open_to_write(self, partition: TopicPartition) -> bool:
        log = self._served.table.writing_log(partition)
        return log is not None and not (log.is_closed or log.has_failed)

    @contextlib.contextmanager
    def writing(self, partition: TopicPartition) -> Iterator[Log]:
        """Yield the log of a partition to append to. May wait for the disk if it is not open."""
        with self._served.table.writing(partition) as log:
            yield log

    async def sync(self, partition: TopicPartition) -> None:
        """Make everything durable that was appended to a partition before this call. Concurrent calls share syncs.

        A sync in progress does not cover what was appended since it began, so the next one is shared by all who came
        meanwhile.
        """
        running = self._syncs.get(partition)
        if running is not None:
            with contextlib.suppress(SeeklogError):
                await asyncio.shield(running)
        following = self._syncs.get(partition)
        if following is None or following is running:
            following = asyncio.ensure_future(self.in_thread(self._served.table.flush, partition))
            self._syncs[partition] = following
            following.add_done_callback(lambda done: self._synced(partition, done))
        await asyncio.shield(following)

    def _synced(self, partition: TopicPartition, done: asyncio.Future[None]) -> None:
        if self._syncs.get(partition) is done:
            del self._syncs[partition]
        self.purgatory.changed(partition)

    # ------------------------------------------------------------ answers

    def partition_error(self, topic: str, partition: int, epoch: int) -> ErrorCode:
        """Return why a partition cannot be asked, or NONE."""
        known = self.topic(topic)
        if known is None or partition not in known.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self.epoch_error(epoch)

    def epoch_error(self, epoch: int) -> ErrorCode:
        """Return whether a client knows another leader epoch than this one, -1: it knows none."""
        return ErrorCode.NONE

    def syncs_each(self, partition: TopicPartition) -> bool:
        """Return whether records of a partition must be durable before they are acknowledged."""
        known = self.topic(partition.topic)
        return known is not None and self._served.topics.config_of(known).flush == "batch"

    def now_ms(self) -> int:
        return self._served.clock.now_ms()

    def new_producer_id(self) -> int:
        return self._served.producer_ids.new().producer_id

    def check_settings(self, config: Mapping[str, str]) -> None:
        """Raise `InvalidConfig` unless a topic could have these settings."""
        self._served.topics.check_settings(config)

    def stop_waiting(self) -> None:
        """Answer the requests that wait, and let no other wait: the server stops."""
        self.purgatory.close()
        self.groups.close()

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def text_of_id(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def id_of_text(topic_id: str) -> bytes:
    return base64.urlsafe_b64decode(topic_id + "==")
