"""The promise of a transaction: all of its records or none, in order, and once however often it is committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from crash.recorder import Content
from seeklog import Record
from seeklog.record.batch import encode_batch
from seeklog.store import transactions_of
from seeklog.topics.transactions import Staged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from seeklog.names import TopicPartition
    from seeklog.store import Store


@dataclass(slots=True, eq=False)
class TransactionPromise:
    """One transaction, committed or not. Its records are unique."""

    app: str
    version: int
    files: list[tuple[TopicPartition, list[Record]]]
    """The records of each staged file, in the order in which they are committed."""
    topic_ids: dict[str, str | None]
    keep: bool = True
    state: Literal["void", "possible", "committed"] = "void"
    """Void: nothing of it is there. Possible: its commit has begun, and nobody has looked since what came of it."""
    time_ms: int | None = None
    """The time that the log stamps its records with, where it does."""
    base_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def places(self) -> list[TopicPartition]:
        return list(dict.fromkeys(place for place, _ in self.files))

    def contents(self, place: TopicPartition) -> list[Content]:
        """Return the expected records of one partition."""
        return [
            Content.of(record)._replace(**({} if self.time_ms is None else {"timestamp_ms": self.time_ms}))
            for at, records in self.files
            if at == place
            for record in records
        ]

    def stage(self, store: Store, *, places: Iterable[TopicPartition] | None = None) -> list[Staged]:
        """Stage its records in small batches, as a task does; only for some `places`, if they are given."""
        wanted = self.places if places is None else list(places)
        return [
            stage_file(store, self.app, place, records, topic_id=str(self.topic_ids[place.topic]))
            for place, records in self.files
            if place in wanted
        ]

    def present(self, topics: Mapping[str, Any]) -> list[TopicPartition]:
        """Return the partitions of existing topics; the part of a deleted topic is gone."""
        return [
            place
            for place in self.places
            if place.topic in topics and topics[place.topic].topic_id == self.topic_ids[place.topic]
        ]

    def offsets(self, topics: Mapping[str, Any], place: TopicPartition) -> list[int]:
        """Return the offsets of the records of one partition's part."""
        wanted = set(self.contents(place))
        records = topics[place.topic].logs[place.partition].records
        return [offset for offset, content in records.items() if content in wanted]

    def is_there(self, topics: Mapping[str, Any]) -> bool:
        """Return whether any of its records exist."""
        return any(self.offsets(topics, place) for place in self.present(topics))

    def violations(self, topics: Mapping[str, Any], *, must_be_there: bool | None = None) -> Iterator[str]:
        """Return how the records are neither complete, once, and in order, nor absent."""
        places = self.present(topics)
        there, missing = [], []
        for place in places:
            contents, offsets = self.contents(place), self.offsets(topics, place)
            records = topics[place.topic].logs[place.partition].records
            (there if offsets else missing).append(place)
            if not offsets:
                continue
            if len(offsets) > len(contents):
                yield f"{self}: {place} has {len(offsets)} of its {len(contents)} records, at offsets {offsets}"
            elif len(offsets) < len(contents):
                yield f"{self}: {place} has only {len(offsets)} of its {len(contents)} records"
            elif [records[offset] for offset in offsets] != contents:
                yield f"{self}: {place} has its records in another order"
            elif offsets[-1] - offsets[0] != len(offsets) - 1:
                yield f"{self}: {place} has other records between its own, which are at {offsets}"
        if there and missing:
            yield f"{self}: it is in {', '.join(map(str, there))}, but not in {', '.join(map(str, missing))}"
        if must_be_there is True and not there and places:
            yield f"{self}: it is lost"
        if must_be_there is False and there:
            yield f"{self}: it is there, though it was not committed"

    def __str__(self) -> str:
        return f"transaction {self.version} of {self.app}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of committing the last transaction of each application again."""

    topics: dict[str, Any]
    added: dict[tuple[str, int], bool]


def stage_file(store: Store, app: str, place: TopicPartition, records: Sequence[Record], *, topic_id: str) -> Staged:
    """Stage records as batches of one and two in turn."""
    stager = transactions_of(store).stager(app, place)
    at, count = 0, 1
    while at < len(records):
        batch = list(records[at : at + count])
        stager.add(encode_batch(batch), record_count=len(batch))
        at, count = at + len(batch), 3 - count
    return Staged(place.topic, topic_id, place.partition, stager.finish())


def replayable(transactions: Iterable[TransactionPromise]) -> list[TransactionPromise]:
    """Return the transactions that a driver may commit again: the last one of each known application."""
    return list({each.app: each for each in transactions if each.keep}.values())


def replay(store: Store, transactions: Iterable[TransactionPromise], topics: Mapping[str, Any]) -> dict[Any, bool]:
    """Stage and commit transactions again. Return for each whether it was appended."""
    added = {}
    for each in transactions:
        staged = each.stage(store, places=each.present(topics))
        added[each.app, each.version] = transactions_of(store).commit(each.app, each.version, staged)
    return added
