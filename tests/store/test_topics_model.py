"""A store compared with a dictionary of topics, through all operations in any order.

Hypothesis draws steps: topics are created, changed, extended and deleted, with good or bad names; records are sent and
time passes; in one store or in a second one on the same directory, with a reader beside them that opens and closes.
After every step each of them must match the dictionary, and the root must hold nothing else.
Set SEEKLOG_MODEL_EXAMPLES for more runs.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from log.workbench import QuickFiles, TickingClock
from seeklog import LogConfig, Record, Store, TopicPartition
from seeklog.errors import InvalidConfig, InvalidName, LogLocked, SeeklogError, TopicExists, TopicNotFound, UsageError
from store.workbench import open_store, partition_directories, snapshot, strangers

EXAMPLES = int(os.environ.get("SEEKLOG_MODEL_EXAMPLES", "0")) or 30
STEPS = 30

NAMES = ["a", "b", "a-0", "a-1", "A"]
BAD_NAMES = ["", ".", "..", "a/b", "a b", "a\n", "\0", "ä", "x" * 250]
BAD_COUNTS: list[Any] = [0, -1, True, 10_001, "2", None, 1.0]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"retention.ms": 1000},
    {"retention_ms": "400"},
    {"retention.ms": -1, "segment.ms": 300},
    {"segment.ms": "500"},
    {"cleanup.policy": "compact"},
    {"retention.ms": 200, "cleanup.policy": "delete"},
    {"segment.bytes": 100_000},
]
BAD_CONFIGS: list[dict[str, Any]] = [
    {"retention.mss": 5},
    {"retention.ms": "soon"},
    {"segment.bytes": 1},
    {"cleanup.policy": "shred"},
    {"retention.ms": 1000, "initial.offset": 5},
]
TAKEN_BACK: list[dict[str, Any]] = [
    {"retention.ms": None},
    {"segment_ms": None, "cleanup.policy": None},
    {"segment.bytes": None, "retention.ms": 700},
]
mostly_good_names = st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(BAD_NAMES))
partition_counts = st.one_of(st.integers(1, 4), st.integers(1, 4), st.sampled_from(BAD_COUNTS))
configs = st.one_of(st.sampled_from(CONFIGS), st.sampled_from(CONFIGS), st.sampled_from(BAD_CONFIGS))
alterations = st.one_of(st.sampled_from(CONFIGS), st.sampled_from(TAKEN_BACK), st.sampled_from(BAD_CONFIGS))
who = st.sampled_from(["first", "second"])


@dataclass
class ModelSegment:
    """Rows of (offset, timestamp, value)."""

    rows: list[tuple[int, int, bytes]] = field(default_factory=list)


@dataclass
class ModelPartition:
    """The retained segments; the last one is active."""

    start: int = 0
    end: int = 0
    segments: list[ModelSegment] = field(default_factory=lambda: [ModelSegment()])

    def rows(self) -> list[tuple[int, int, bytes]]:
        return [row for segment in self.segments for row in segment.rows]

    def append(self, values: list[bytes], now_ms: int, config: LogConfig) -> range:
        active = self.segments[-1]
        if active.rows and now_ms - active.rows[0][1] > config.segment_ms:
            self.segments.append(active := ModelSegment())
        first = self.end
        active.rows += [(first + number, now_ms, value) for number, value in enumerate(values)]
        self.end += len(values)
        return range(first, self.end)

    def maintain(self, now_ms: int, config: LogConfig) -> int:
        """Roll and delete segments that are due. Return the number deleted."""
        deletes = config.cleanup_policy != "compact" and config.retention_ms >= 0
        active = self.segments[-1].rows
        if active:
            too_old = deletes and now_ms - active[-1][1] > config.retention_ms
            if too_old or now_ms - active[0][1] > config.segment_ms:
                self.segments.append(ModelSegment())
        count = 0
        while deletes and len(self.segments) > 1 and now_ms - self.segments[0].rows[-1][1] > config.retention_ms:
            self.start = self.segments.pop(0).rows[-1][0] + 1
            count += 1
        return count


@dataclass
class ModelTopic:
    words: dict[str, Any]
    partitions: list[ModelPartition]

    @property
    def config(self) -> LogConfig:
        return DEFAULTS.with_settings(self.words)


DEFAULTS = LogConfig(flush="os", retention_ms=2000)


def with_settings(words: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a topic's settings after a change as the store shows them: with dots, numbers as numbers."""
    result = dict(words)
    for word, value in more.items():
        dotted = word.replace("_", ".")
        if value is None:
            result.pop(dotted, None)
        else:
            result[dotted] = int(value) if dotted not in ("cleanup.policy",) else value
    return result


def is_a_count(partitions: Any) -> bool:
    return type(partitions) is int and 1 <= partitions <= 10_000


class TopicsMachine(RuleBasedStateMachine):
    """Two stores on one directory, a reader, and the dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="seeklog-topics-model-"))
        self.root = self.home / "store"
        self.clock = TickingClock(0.5)
        self.files = QuickFiles()
        self.stores: dict[str, Store] = {"first": self.open()}
        self.reader: Store | None = None
        self.topics: dict[str, ModelTopic] = {}
        self.held: dict[TopicPartition, str] = {}
        """Which store has a partition open for writing."""
        self.numbers = itertools.count()

    def open(self, **words: Any) -> Store:
        return open_store(self.root, clock=self.clock, files=self.files, retention_ms=2000, **words)

    def teardown(self) -> None:
        for store in (*self.stores.values(), *([self.reader] if self.reader is not None else [])):
            store.close()
        shutil.rmtree(self.home)

    def refused(self, error: type[SeeklogError], call: Any) -> SeeklogError:
        before = snapshot(self.root, locks=False)
        with pytest.raises(error) as caught:
            call()
        assert caught.type is error
        assert snapshot(self.root, locks=False) == before
        return caught.value

    def release(self, *, topic: str | None = None, by: str | None = None) -> None:
        self.held = {
            partition: holder
            for partition, holder in self.held.items()
            if topic not in (None, partition.topic) or by not in (None, holder)
        }

    # ------------------------------------------------------------ topics

    @rule(by=who, name=mostly_good_names, partitions=partition_counts, config=configs)
    def create(self, by: str, name: str, partitions: Any, config: dict[str, Any]) -> None:
        store = self.stores.get(by, self.stores["first"])

        def call() -> object:
            return store.create_topic(name, partitions=partitions, config=config)

        if name in BAD_NAMES:
            self.refused(InvalidName, call)
        elif not is_a_count(partitions):
            self.refused(UsageError, call)
        elif config in BAD_CONFIGS:
            self.refused(InvalidConfig, call)
        elif name in self.topics:
            self.refused(TopicExists, call)
        else:
            call()
            self.topics[name] = ModelTopic(with_settings({}, config), [ModelPartition() for _ in range(partitions)])

    @rule(by=who, name=mostly_good_names)
    def delete(self, by: str, name: str) -> None:
        by = by if by in self.stores else "first"
        store = self.stores[by]
        if name in BAD_NAMES:
            self.refused(InvalidName, lambda: store.delete_topic(name))
        elif name not in self.topics:
            self.refused(TopicNotFound, lambda: store.delete_topic(name))
        elif any(partition.topic == name and holder != by for partition, holder in self.held.items()):
            # The attempt closes its own logs, and they stay closed.
            with pytest.raises(LogLocked) as caught:
                store.delete_topic(name)
            assert caught.value.owner_pid == os.getpid()
            self.release(topic=name, by=by)
        else:
            store.delete_topic(name)
            del self.topics[name]
            self.release(topic=name)

    @rule(by=who, name=mostly_good_names, config=alterations)
    def alter(self, by: str, name: str, config: dict[str, Any]) -> None:
        by = by if by in self.stores else "first"
        store = self.stores[by]

        def call() -> object:
            return store.alter_topic(name, config)

        if name in BAD_NAMES:
            self.refused(InvalidName, call)
        elif name not in self.topics:
            self.refused(TopicNotFound, call)
        elif config in BAD_CONFIGS:
            self.refused(InvalidConfig, call)
        else:
            topic = self.topics[name]
            before = topic.config
            call()
            for each in self.stores.values():
                each._upkeep.refresh()  # as its thread does within a second
            topic.words = with_settings(topic.words, config)
            if topic.config != before:
                self.release(topic=name)

    @rule(by=who, name=mostly_good_names, partitions=partition_counts)
    def grow(self, by: str, name: str, partitions: Any) -> None:
        store = self.stores.get(by, self.stores["first"])

        def call() -> object:
            return store.add_partitions(name, partitions=partitions)

        if is_a_count(partitions):
            if name in BAD_NAMES:
                self.refused(InvalidName, call)
            elif name not in self.topics:
                self.refused(TopicNotFound, call)
            elif partitions <= len(self.topics[name].partitions):
                self.refused(UsageError, call)
            else:
                call()
                have = self.topics[name].partitions
                have += [ModelPartition() for _ in range(partitions - len(have))]
        else:
            self.refused(UsageError, call)

    # ------------------------------------------------------------ records

    @precondition(lambda self: self.topics)
    @rule(by=who, data=st.data(), count=st.integers(1, 3), produces=st.sampled_from([True, False, False]))
    def send(self, by: str, data: st.DataObject, count: int, produces: bool) -> None:
        by = by if by in self.stores else "first"
        store = self.stores[by]
        name = data.draw(st.sampled_from(sorted(self.topics)))
        topic = self.topics[name]
        number = data.draw(st.integers(0, len(topic.partitions) - 1))
        values = [b"%d" % next(self.numbers) for _ in range(count)]
        partition = TopicPartition(name, number)

        def call() -> list[int]:
            if produces:
                with store.producer(batch_bytes=100_000, linger_ms=10_000) as producer:
                    futures = [producer.send(name, value, key=b"k", partition=number) for value in values]
                    producer.flush()
                    return [future.result().offset for future in futures]
            with store._table.writing(partition) as log:
                return list(log.append_many([Record(value, key=b"k") for value in values]))

        if self.held.get(partition, by) != by:
            error = self.refused(LogLocked, call)
            assert isinstance(error, LogLocked)
            assert error.owner_pid == os.getpid()
            assert error.path == str(self.root / str(partition))
        else:
            assert call() == list(topic.partitions[number].append(values, self.clock.now_ms(), topic.config))
            self.held[partition] = by

    @precondition(lambda self: self.topics)
    @rule(by=who, data=st.data(), beyond=st.integers(0, 3))
    def send_to_a_partition_that_is_not_there(self, by: str, data: st.DataObject, beyond: int) -> None:
        store = self.stores.get(by, self.stores["first"])
        name = data.draw(st.sampled_from(sorted(self.topics)))
        number = len(self.topics[name].partitions) + beyond
        with store.producer() as producer:
            self.refused(TopicNotFound, lambda: producer.send(name, b"x", key=b"k", partition=number))
        self.refused(TopicNotFound, lambda: store.log(name, number))

    @rule(by=who, ms=st.sampled_from([0, 100, 250, 450, 1100, 5000]))
    def maintain(self, by: str, ms: int) -> None:
        by = by if by in self.stores else "first"
        self.clock.advance(ms)
        expected = 0
        for name, topic in self.topics.items():
            for number, partition in enumerate(topic.partitions):
                if self.held.get(TopicPartition(name, number), by) == by:
                    expected += partition.maintain(self.clock.now_ms(), topic.config)
        assert self.stores[by].maintain() == expected

    # ------------------------------------------------------------ stores

    @rule()
    def reopen(self) -> None:
        self.stores["first"].close()
        self.release(by="first")
        self.stores["first"] = self.open()

    @rule()
    def open_or_close_the_second(self) -> None:
        if "second" in self.stores:
            self.stores.pop("second").close()
            self.release(by="second")
        else:
            self.stores["second"] = self.open()

    @rule()
    def open_or_close_the_reader(self) -> None:
        if self.reader is None:
            before = snapshot(self.root)
            self.reader = self.open(read_only=True)
            assert snapshot(self.root) == before
        else:
            self.reader.close()
            self.reader = None

    @precondition(lambda self: self.reader is not None)
    @rule(name=st.sampled_from(NAMES))
    def the_reader_changes_nothing(self, name: str) -> None:
        reader = self.reader
        assert reader is not None
        for call in (
            lambda: reader.create_topic(name),
            lambda: reader.alter_topic(name, {"retention.ms": 5}),
            lambda: reader.add_partitions(name, partitions=4),
            lambda: reader.delete_topic(name),
            lambda: reader.maintain(),
            lambda: reader.producer(),
        ):
            before = snapshot(self.root)
            with pytest.raises((UsageError, TopicNotFound)):
                call()
            assert snapshot(self.root) == before

    # ---------------------------------------------------------------- invariants

    @invariant()
    def the_topics_are_those_of_the_model(self) -> None:
        for store in (*self.stores.values(), *([self.reader] if self.reader is not None else [])):
            assert store.topics() == sorted(self.topics)

    @invariant()
    def each_topic_is_what_the_model_says(self) -> None:
        for store in (*self.stores.values(), *([self.reader] if self.reader is not None else [])):
            for name, topic in self.topics.items():
                found = store.describe_topic(name)
                assert dict(found.configured) == topic.words
                assert found.config == topic.config
                assert [
                    (each.partition, each.log_start_offset, each.high_watermark, each.log_end_offset)
                    for each in found.partitions
                ] == [(number, each.start, each.end, each.end) for number, each in enumerate(topic.partitions)]

    @invariant()
    def the_records_are_those_of_the_model(self) -> None:
        for store in (*self.stores.values(), *([self.reader] if self.reader is not None else [])):
            for name, topic in self.topics.items():
                for number, partition in enumerate(topic.partitions):
                    records = list(store.log(name, number).scan())
                    assert [(each.offset, each.timestamp_ms, each.value) for each in records] == partition.rows()
                    assert {(each.topic, each.partition) for each in records} <= {(name, number)}

    @invariant()
    def the_root_holds_nothing_else(self) -> None:
        assert strangers(self.root) == []
        assert partition_directories(self.root) == sorted(
            f"{name}-{number}" for name, topic in self.topics.items() for number in range(len(topic.partitions))
        )


def test_topics_match_model() -> None:
    run_state_machine_as_test(TopicsMachine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
