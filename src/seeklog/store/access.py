"""Internals of a store for other packages of seeklog. Users do not need them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from seeklog import names
from seeklog.archive.reading import Origin, StoredFiles
from seeklog.errors import UsageError
from seeklog.files import SHORT_WAIT_S, Files
from seeklog.log import Snapshot, take_durable_snapshot
from seeklog.names import TopicPartition

if TYPE_CHECKING:
    from seeklog.archive.source import Source
    from seeklog.clock import Clock
    from seeklog.groups.groups import Groups
    from seeklog.store.store import Store
    from seeklog.topics.open_logs import OpenLogs
    from seeklog.topics.producer_ids import ProducerIds
    from seeklog.topics.topics import Topics
    from seeklog.topics.transactions import Transactions


# A commit of offsets takes a few milliseconds.
PAUSE_S: Final = 0.01


def files_of(store: Store) -> Files:
    """Return the `Files` through which this process reads a store."""
    return store._files


def origin_of(store: Store) -> Origin:
    """Return where a store's files are, so that another process can read them."""
    files, location = store._files, store._location
    stored = files.stored if isinstance(files, StoredFiles) else {}
    return Origin(root=location.root, storage_options=location.storage_options, stored=dict(stored))


def transactions_of(store: Store) -> Transactions:
    """Return the transactions of staged batches, each appended to many partitions exactly once. For the Spark sink."""
    store._check_open()
    return store._transactions


class Served(NamedTuple):
    """What a server of a store works with."""

    topics: Topics
    table: OpenLogs
    producer_ids: ProducerIds
    groups: Groups
    clock: Clock


def served(store: Store) -> Served:
    """Return what a server of a store works with."""
    store._check_open()
    return Served(store._topics, store._table, store._producer_ids, store._groups, store._clock)


def archive_source(store: Store, topics: Iterable[str] | None = None, *, include_active: bool = False) -> Source:
    """Return what an archive run of these topics copies, by default of all but Kafka's internal topics.

    With `include_active`, the offsets of groups are included by default, too.
    """
    # Imported on use: it would add milliseconds to `import seeklog`.
    from seeklog.archive.source import Source, SourceTopic

    if isinstance(topics, str):
        raise UsageError(f"topics is a list of names; pass [{topics!r}]")
    catalog, table = store._topics, store._table
    catalog.refresh()
    if topics is None:
        hidden = names.INTERNAL_TOPICS - ({names.CONSUMER_OFFSETS} if include_active else set())
        chosen = [topic for topic in catalog.all() if topic.name not in hidden]
    else:
        chosen = [catalog.find(name) for name in dict.fromkeys(topics)]
    found = [
        SourceTopic(
            topic,
            catalog.config_of(topic),
            {number: table.inherited(TopicPartition(topic.name, number)) for number in topic.partitions},
        )
        for topic in chosen
    ]
    # Planned first, so that few committed offsets are beyond the records that are archived after them.
    found.sort(key=lambda topic: topic.topic.name != names.CONSUMER_OFFSETS)
    return Source(store._files, store._root, found, store._clock, partial(_ask, store))


def _ask(store: Store, partition: TopicPartition) -> Snapshot:
    """Return a partition's offsets. Wait for a commit of offsets that is in progress: it leaves no recovery point."""
    give_up = store._clock.monotonic() + SHORT_WAIT_S
    while True:
        seen = store._table.ask(partition, take_durable_snapshot)
        is_settled = partition.topic != names.CONSUMER_OFFSETS or seen.recovery_point == seen.log_end_offset
        if is_settled or store._clock.monotonic() >= give_up:
            return seen
        store._clock.sleep(PAUSE_S)
