"""Internals of a store for other packages of seeklog. Users do not need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from seeklog import names
from seeklog.archive.reading import Origin, StoredFiles
from seeklog.errors import UsageError
from seeklog.files import Files
from seeklog.names import TopicPartition

if TYPE_CHECKING:
    from seeklog.archive.source import Source
    from seeklog.store.store import Store


def files_of(store: Store) -> Files:
    """Return the `Files` through which this process reads a store."""
    return store._files


def origin_of(store: Store) -> Origin:
    """Return where a store's files are, so that another process can read them."""
    files, location = store._files, store._location
    stored = files.stored if isinstance(files, StoredFiles) else {}
    return Origin(root=location.root, storage_options=location.storage_options, stored=dict(stored))


def archive_source(store: Store, topics: Iterable[str] | None = None) -> Source:
    """Return what an archive run of these topics copies, by default of all but Kafka's internal topics."""
    # Imported on use: it would add milliseconds to `import seeklog`.
    from seeklog.archive.source import Source, SourceTopic

    if isinstance(topics, str):
        raise UsageError(f"topics is a list of names; pass [{topics!r}]")
    catalog, table = store._topics, store._table
    catalog.refresh()
    if topics is None:
        chosen = [topic for topic in catalog.all() if topic.name not in names.INTERNAL_TOPICS]
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
    return Source(store._files, store._root, found, store._clock)
