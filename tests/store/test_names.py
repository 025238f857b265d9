"""Names: valid topic names, the names in a store's root, and hostile names, none of which reaches the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from log.workbench import open_log
from seeklog import Store, TopicPartition, names
from seeklog.errors import InvalidName, UsageError
from store.hostile_names import HOSTILE
from store.workbench import append, open_store, partition_directories, read, snapshot, strangers

STRANGE_TYPES = [None, b"payments", 5, 1.0, True, ("a",), Path("payments")]
EDGES = [
    "a",
    "Z",
    "0",
    "_",
    "-",
    "--",
    "-0",
    "a-0",
    "a-0-1",
    "...",
    ".a",
    "a.",
    "_a",
    ".lock",
    "seeklog-topics",
    "meta.properties",
    "00000000000000000000.log",
    "recovery-point-offset-checkpoint",
    f"a.{'0' * 32}-delete",
    "Payments",
    "a" * 249,
    "-" * 249,
    "." * 249,
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("payments", partitions=2)
        append(store, "payments", [b"0", b"1"])
        yield store


def test_hostile_names_are_many_and_distinct() -> None:
    assert len(HOSTILE) == len(set(HOSTILE)) >= 40


@pytest.mark.id("hostile-names")
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:20]))
def test_hostile_name_is_refused_everywhere_and_nothing_changes(store: Store, name: str) -> None:
    before = snapshot(store.path.parent)

    for call in (
        lambda: store.create_topic(name),
        lambda: store.describe_topic(name),
        lambda: store.alter_topic(name, {"retention.ms": 5}),
        lambda: store.add_partitions(name, partitions=9),
        lambda: store.delete_topic(name),
        lambda: store.log(name, 0),
    ):
        with pytest.raises(InvalidName, match="cannot name a topic"):
            call()

    assert snapshot(store.path.parent) == before
    assert store.topics() == ["payments"]


@pytest.mark.parametrize("name", STRANGE_TYPES, ids=repr)
def test_name_that_is_not_text_is_refused(store: Store, name: object) -> None:
    before = snapshot(store.path)

    with pytest.raises(InvalidName, match="must be a str"):
        store.create_topic(name)  # type: ignore[arg-type]

    assert snapshot(store.path) == before


def test_error_about_long_name_truncates_it(store: Store) -> None:
    with pytest.raises(InvalidName) as caught:
        store.create_topic("a" * 100_000)

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", EDGES, ids=lambda name: name[:30])
def test_longest_legal_names_work_through_life_of_topic(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic(name, partitions=2)
        append(store, name, [b"x"], partition=1)
        store.add_partitions(name, partitions=3)
        store.alter_topic(name, {"retention.ms": 1000})
        store.maintain()
    with open_store(tmp_path / "store") as store:
        assert store.topics() == [name]
        assert read(store, name, 1) == [b"x"]
        assert partition_directories(store.path) == [f"{name}-{number}" for number in range(3)]
        assert strangers(store.path) == []

        store.delete_topic(name)

        assert store.topics() == []
        assert partition_directories(store.path) == []


def test_names_that_differ_only_in_case_are_two_topics(store: Store) -> None:
    store.create_topic("PAYMENTS", partitions=1)

    assert store.topics() == ["PAYMENTS", "payments"]
    assert read(store, "PAYMENTS") == []


def test_topics_named_like_partitions_of_others_stay_separate(store: Store) -> None:
    for name in ("payments-0", "payments-0-0", "payments-1"):
        store.create_topic(name, partitions=1)
        append(store, name, [name.encode()])

    store.delete_topic("payments")

    assert store.topics() == ["payments-0", "payments-0-0", "payments-1"]
    for name in store.topics():
        assert read(store, name) == [name.encode()]


@pytest.mark.parametrize("name", sorted(names.INTERNAL_TOPICS))
def test_internal_topics_cannot_be_created_or_changed_by_users(store: Store, name: str) -> None:
    """Goal: a broker's directory also has the log of its cluster, and losing that log loses the cluster."""
    before = snapshot(store.path)

    for call in (
        lambda: store.create_topic(name),
        lambda: store.alter_topic(name, {}),
        lambda: store.add_partitions(name, partitions=99),
        lambda: store.delete_topic(name),
    ):
        with pytest.raises(UsageError, match="Kafka's own"):
            call()

    assert snapshot(store.path) == before


# ---------------------------------------------------------------- names of directories


@pytest.mark.parametrize("number", [0, 1, 9, 10, 9999, 2**31 - 1])
@pytest.mark.parametrize("topic", ["a", "a-0", "-", "a" * 249])
def test_partition_directory_name_is_parsed(topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)

    assert names.parse_partition_name(str(partition)) == partition


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "a-",
        "-0",
        "a-x",
        "a-00",
        "a-01",
        "a--",
        "a-0x",
        "a-0\n",
        "a-+1",
        "a- 1",
        "a-\u0661",
        f"a-{2**31}",
        "a-99999999999",
        "a b-0",
        "a/b-0",
        "\u00e4-0",
        "a-0.deleted",
        f"a-0.{'0' * 32}-delete",
        f"a-0.{'0' * 32}-future",
        "seeklog-topics",
        "recovery-point-offset-checkpoint",
    ],
)
def test_other_names_are_not_parsed_as_partitions(name: str) -> None:
    assert names.parse_partition_name(name) is None


@pytest.mark.parametrize("topic", [".", "..", "a" * 250])
def test_directory_with_invalid_topic_name_is_not_a_partition(tmp_path: Path, topic: str) -> None:
    with open_store(tmp_path / "store"):
        pass
    with open_log(tmp_path / "store" / f"{topic}-0"):
        pass

    with open_store(tmp_path / "store") as store:
        assert store.topics() == []


@pytest.mark.parametrize("length", [1, 200, 213, 214, 215, 249])
def test_name_of_deleted_directory_fits_and_is_recognized(length: int) -> None:
    name = names.deleted_directory(TopicPartition("a" * length, 9999), "0123456789abcdef" * 2)

    assert len(name) <= 255
    assert names.is_deleted_directory(name)
    assert names.parse_partition_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "a-0",
        "a-delete",
        "a-0-delete",
        f"a.{'0' * 31}-delete",
        f".{'0' * 32}-delete",
        f"a.{'G' * 32}-delete",
        f"a.{'0' * 32}-delete\n",
        f"a.{'0' * 32}-delete-0",
    ],
)
def test_other_names_are_not_taken_for_deleted_directories(name: str) -> None:
    assert not names.is_deleted_directory(name)
