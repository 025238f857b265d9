"""The promises of a store, its content after a crash, and the comparison of the two.

A promise has the valid states of each topic: during a call those before and after it, later the one that the call
returned with. The same is true for groups.

The one invariant: a promise is widened before a call that may break it (a deletion, a commit) and narrowed after the
call has returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from crash.recorder import Outcome, Promise
from crash.transaction_promise import Replayed, TransactionPromise
from seeklog import LogConfig
from seeklog.errors import SeeklogError
from seeklog.names import CONSUMER_OFFSETS, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# The store's defaults for topics. Nothing expires.
WORDS: Final[dict[str, Any]] = {
    "flush": "os",
    "retention_ms": -1,
    "segment_bytes": 1400,
    "index_interval_bytes": 100,
    "max_message_bytes": 5000,
}
CONFIG: Final = LogConfig.from_mapping(WORDS)


@dataclass(slots=True, eq=False)
class TopicPromise:
    """One valid state of a topic."""

    name: str
    config: dict[str, Any]
    logs: list[Promise]
    topic_id: str | None = None
    """Unknown until the call that made it has returned."""

    @property
    def flush(self) -> str:
        return self.config.get("flush", CONFIG.flush)

    def violations(self, found: TopicFound, *, is_power_loss: bool) -> list[str]:
        """Return how a topic differs from this one."""
        violations: list[str] = []
        if self.topic_id not in (None, found.topic_id):
            violations.append(f"{self.name} has the id {found.topic_id}, promised {self.topic_id}")
        if found.config != self.config:
            violations.append(f"{self.name} is configured {found.config}, promised {self.config}")
        if len(found.logs) != len(self.logs):
            violations.append(f"{self.name} has {len(found.logs)} partitions, promised {len(self.logs)}")
        for number, (log, outcome) in enumerate(zip(self.logs, found.logs, strict=False)):
            violations += [
                f"{self.name}-{number}: {what}" for what in log.violations(outcome, is_power_loss=is_power_loss)
            ]
        return violations


@dataclass(frozen=True, slots=True)
class GroupPromise:
    """One valid state of a group. A missing group has no offsets."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    generation_at_least: int = 0

    def violations(self, found: GroupFound) -> list[str]:
        violations = []
        if dict(found.offsets) != dict(self.offsets):
            violations.append(f"offsets {_shown(found.offsets)}, promised {_shown(self.offsets)}")
        if found.generation < self.generation_at_least:
            violations.append(f"generation {found.generation}, promised {self.generation_at_least}")
        return violations

    def without(self, topic: str) -> GroupPromise:
        return replace(self, offsets={tp: offset for tp, offset in self.offsets.items() if tp.topic != topic})


def _shown(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{partition} {offset}" for partition, offset in sorted(offsets.items())) or "none"


@dataclass(frozen=True, slots=True)
class TopicFound:
    topic_id: str
    config: dict[str, Any]
    logs: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class GroupFound:
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    members: frozenset[str] = frozenset()
    generation: int = 0


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """The content of a crashed disk when its store was opened."""

    topics: dict[str, TopicFound] = field(default_factory=dict)
    groups: dict[str, GroupFound] = field(default_factory=dict)
    unrecovered: dict[str, TopicFound] = field(default_factory=dict)
    """The topics as consumers see them before anybody has written to their partitions."""
    read_only: dict[str, TopicFound] | None = None
    """What a store that was opened read-only saw before the recovery; None: it was refused."""
    replayed: Replayed | None = None
    """The records after the transactions were committed once more; None: the store was not reopened."""
    problem: str = ""
    """What went wrong without any promise being needed to see it."""


@dataclass(slots=True)
class StorePromise:
    """The promise to a caller. Lists have the valid states; the last is the state without a crash."""

    topics: dict[str, list[TopicPromise | None]] = field(default_factory=dict)
    groups: dict[str, list[GroupPromise]] = field(default_factory=dict)
    going: str = ""
    """The topic that is being deleted: its offsets in groups go with it, neither before nor after."""
    transactions: list[TransactionPromise] = field(default_factory=list)

    def violations(self, outcome: StoreOutcome, *, is_power_loss: bool) -> list[str]:
        if outcome.problem:
            return [outcome.problem]
        return list(self._violations(outcome, is_power_loss=is_power_loss))

    def _violations(self, outcome: StoreOutcome, *, is_power_loss: bool) -> Iterator[str]:
        for name in sorted({*self.topics, *outcome.topics} - {CONSUMER_OFFSETS}):
            found = outcome.topics.get(name)
            yield from self._topic_violations(name, found, is_power_loss=is_power_loss)
            yield from self._reader_violations(name, found, outcome)
        for name in sorted({*self.groups, *outcome.groups}):
            group = outcome.groups.get(name, GroupFound())
            possible = [promised.violations(group) for promised in self.groups.get(name, [GroupPromise()])]
            if all(possible):
                yield f"group {name}: {'; or '.join('; '.join(violations) for violations in possible)}"
            if self.going and self.going in outcome.topics:
                # If the deletion did not happen, no part of it did.
                before = self.groups[name][0]
                if before.violations(group):
                    yield f"{self.going} is there, but group {name} has lost its offsets: {_shown(group.offsets)}"
            if group.members:
                yield f"group {name} has members {sorted(group.members)}, whose process is gone"
            for partition in group.offsets:
                if partition.topic not in outcome.topics:
                    yield f"group {name} has an offset for {partition}, whose topic is gone"
        if outcome.replayed is not None:
            yield from self._transaction_violations(outcome.topics, outcome.replayed)

    def _transaction_violations(self, topics: Mapping[str, TopicFound], replayed: Replayed) -> Iterator[str]:
        for each in self.transactions:
            expected = None if each.state == "possible" else each.state == "committed"
            yield from each.violations(topics, must_be_there=expected)
            added = replayed.added.get((each.app, each.version))
            if added is not None:
                yield from each.violations(replayed.topics, must_be_there=True)
                if each.present(topics) and added is each.is_there(topics):
                    yield f"{each}: it was added a second time" if added else f"{each}: it was refused, but not there"

    def _topic_violations(self, name: str, found: TopicFound | None, *, is_power_loss: bool) -> Iterator[str]:
        possible = self.topics.get(name, [None])
        if found is None:
            if None not in possible:
                yield f"topic {name} is gone"
            return
        violations = [
            promised.violations(found, is_power_loss=is_power_loss) for promised in possible if promised is not None
        ]
        if not violations:
            yield f"topic {name} is there, with {len(found.logs)} partitions; promised: none"
        elif all(violations):
            yield f"topic {name}: {'; or '.join('; '.join(each[:3]) for each in violations)}"

    def _reader_violations(self, name: str, found: TopicFound | None, outcome: StoreOutcome) -> Iterator[str]:
        """Return the invalid reads.

        A store open for writing reads the recovered state. A read-only store recovers nothing: it may read less, or
        records after a gap that recovery cuts, but no record that was never appended.
        """
        possible = self.topics.get(name, [None])
        for view in (outcome.unrecovered, outcome.read_only):
            seen = view.get(name) if view is not None else None
            if seen is None:
                if view is not None and None not in possible:
                    yield f"topic {name} is gone for a reader"
                continue
            if possible == [None]:
                yield f"a reader sees topic {name}, which is not there"
            for number, log in enumerate(seen.logs):
                recovered = found.logs[number].records if found is not None and number < len(found.logs) else {}
                if view is outcome.unrecovered and log.records != recovered:
                    yield f"a reader sees {len(log.records)} records of {name}-{number}, recovery {len(recovered)}"
                for offset, content in log.records.items():
                    if not any(
                        topic is not None
                        and number < len(topic.logs)
                        and content in topic.logs[number].possible.get(offset, ())
                        for topic in possible
                    ):
                        yield f"a reader sees at offset {offset} of {name}-{number} what was never there: {content}"


class TransactionUnfinished(SeeklogError):
    """A store has warned that a transaction is incomplete, so neither part is promised."""
