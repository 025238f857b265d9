"""What changes of topics cost: syncs, and calls of the disk that do not grow with the number of topics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import seeklog
from log.workbench import QuickFiles
from seeklog import Store, names
from seeklog.files import Files, OsFiles
from seeklog.topics.catalog import Topic, encode_catalog
from store.workbench import append, open_store

METHODS = [name for name in vars(Files) if not name.startswith("_")]
MAX_SYNCS = 2


class CountedFiles(OsFiles):
    """A disk that counts the calls of each method, and the bytes that are read, written and listed."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        method = object.__getattribute__(self, name)
        if name not in METHODS:
            return method
        calls = self.calls

        def call(*arguments: Any, **words: Any) -> Any:
            calls[name] += 1
            result = method(*arguments, **words)
            if name in ("read", "read_file"):
                calls["bytes read"] += len(result)
            elif name == "write":
                calls["bytes written"] += len(arguments[1])
            elif name in ("list", "kinds"):
                calls["names listed"] += len(result)
            return result

        return call

    def sync(self, handle: int) -> None:
        """Count only."""

    def sync_directory(self, path: str) -> None:
        """Count only."""


class Costs:
    """Calls a function, and returns what it costs."""

    def __init__(self, files: CountedFiles) -> None:
        self.files = files

    def of(self, act: Any, *arguments: Any, **words: Any) -> Counter[str]:
        self.files.calls.clear()
        act(*arguments, **words)
        return Counter(self.files.calls)


def syncs(cost: Counter[str]) -> int:
    return cost["sync"] + cost["sync_directory"]


def with_topics(root: Path, count: int) -> None:
    """Write a store with topics of earlier days."""
    open_store(root).close()
    topics = [Topic(name=f"old-{number:05d}", topic_id="x" * 22, partitions=(0,)) for number in range(count)]
    (root / names.TOPICS).write_bytes(encode_catalog({topic.name: topic for topic in topics}))


@pytest.mark.id("topic-syncs")
@pytest.mark.parametrize(("count", "partitions"), [(600, 1), (120, 100)])
def test_topic_is_created_with_at_most_two_syncs(root: Path, count: int, partitions: int) -> None:
    """Goal: not per partition, and not when the catalog has to be replaced, which happens at least once here."""
    files = CountedFiles()
    with open_store(root, files=files) as store:
        costs = [
            Costs(files).of(store.create_topic, f"topic-{number}", partitions=partitions) for number in range(count)
        ]

    assert max(map(syncs, costs)) <= MAX_SYNCS
    assert sum(map(syncs, costs)) < 1.1 * len(costs)
    assert any(cost["rename"] for cost in costs)


def cost_of_changes(store: Store, files: CountedFiles) -> list[Counter[str]]:
    costs = Costs(files)
    return [
        costs.of(store.create_topic, "new", partitions=2),
        costs.of(append, store, "new", [b"a"]),
        costs.of(store.alter_topic, "new", {"retention.ms": 5}),
        costs.of(store.add_partitions, "new", partitions=3),
        costs.of(store.delete_topic, "new"),
    ]


@pytest.mark.id("topic-cost")
def test_changes_cost_the_same_among_many_topics(tmp_path: Path) -> None:
    """Goal: no step of a change reads, writes or lists what belongs to the other topics."""
    costs = []
    for count in (10, 2_000):
        files = CountedFiles()
        with_topics(tmp_path / str(count), count)
        with open_store(tmp_path / str(count), files=files) as store:
            costs.append(cost_of_changes(store, files))

    few, many = costs
    assert few == many


def test_other_process_reads_only_what_was_appended(tmp_path: Path) -> None:
    costs = []
    for count in (10, 2_000):
        with_topics(tmp_path / str(count), count)
        for read_only in (False, True):
            files = CountedFiles()
            with (
                open_store(tmp_path / str(count)) as writer,
                open_store(tmp_path / str(count), files=files, read_only=read_only) as follower,
            ):
                writer.create_topic(f"new-{read_only}", partitions=1)
                costs.append((Costs(files).of(follower.topics), Costs(files).of(follower.topics)))
                assert f"new-{read_only}" in follower.topics()

    assert costs[:2] == costs[2:]
    assert all(not second["write"] and second["bytes read"] < 1000 for _, second in costs)


def test_open_does_not_touch_each_topic(tmp_path: Path) -> None:
    def cost_of_open(count: int, *, read_only: bool) -> Counter[str]:
        files = CountedFiles()
        root = tmp_path / f"{count}-{read_only}"
        with open_store(root) as store:
            for number in range(count):
                store.create_topic(f"topic-{number}", partitions=1)
        cost = Costs(files).of(lambda: open_store(root, files=files, read_only=read_only).close())
        for name in ("names listed", "bytes read"):
            del cost[name]
        return cost

    for read_only in (False, True):
        assert cost_of_open(3, read_only=read_only) == cost_of_open(50, read_only=read_only)


def test_deletions_leave_checkpoints_to_one_later_write(root: Path) -> None:
    """Each deletion would write the lines of all other topics again."""
    files = CountedFiles()
    with open_store(root, files=files) as store:
        for number in range(5):
            store.create_topic(f"topic-{number}", partitions=1)
            append(store, f"topic-{number}", [b"a"])
        store.maintain()
        costs = [Costs(files).of(store.delete_topic, f"topic-{number}") for number in range(5)]
        assert [cost["bytes written"] for cost in costs] == [costs[0]["bytes written"]] * 5
    for name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS):
        assert (root / name).read_text() == "0\n0\n"


def test_store_of_release_0_1_is_converted_at_first_change(tmp_path: Path) -> None:
    from fuzz.mutation import seal_frame

    with open_store(tmp_path / "store") as store:
        made = store.create_topic("orders", partitions=1)
        append(store, "orders", [b"a"])
    line = f'{{"topic": "orders", "id": "{made.topic_id}", "partitions": [0], "config": {{"retention.ms": 5}}}}\n'
    old = seal_frame(b"seeklog-topics 1\n" + line.encode())
    (tmp_path / "store" / names.TOPICS).write_bytes(old)

    with seeklog.open(tmp_path / "store", files=QuickFiles(), background=False) as store:
        assert store.describe_topic("orders").configured == {"retention.ms": 5}
        assert (tmp_path / "store" / names.TOPICS).read_bytes() == old
        store.create_topic("payments", partitions=1)
    assert (tmp_path / "store" / names.TOPICS).read_bytes().startswith(b"seeklog-topics 2 ")
    with open_store(tmp_path / "store", read_only=True) as store:
        assert store.topics() == ["orders", "payments"]
        assert store.describe_topic("orders").configured == {"retention.ms": 5}
