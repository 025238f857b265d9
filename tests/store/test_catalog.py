"""The catalog of topics: its bytes, every flipped bit and truncation, and a store with a damaged one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from log.workbench import CountingFiles, FailingFiles, QuickFiles
from seeklog import names
from seeklog.errors import CorruptionError, NotAccessible, SeeklogError
from seeklog.record.crc import crc32c
from seeklog.topics.catalog import Catalog, CatalogFile, Topic, decode_catalog, encode_catalog, new_topic_id
from seeklog.topics.layout import ADOPTED_CONFIG
from store.workbench import append, open_store, read, snapshot

ID = "5JdNGzCmQmupZbKTTsDZjQ"
CATALOG: Catalog = {
    topic.name: topic
    for topic in (
        Topic(name="a", topic_id=ID, partitions=(0,)),
        Topic(name="b", topic_id=ID, partitions=(1, 3), config={"retention.ms": -1, "cleanup.policy": "compact"}),
        Topic(name="coming", topic_id=ID, partitions=(), change="create", partitions_changing=(0, 1)),
        Topic(name="going", topic_id=ID, partitions=(0, 1), change="delete", partitions_changing=(0, 1)),
        Topic(name="growing", topic_id=ID, partitions=(0,), change="grow", partitions_changing=(1, 2)),
    )
}
ENCODED = encode_catalog(CATALOG)


def sealed(body: bytes) -> bytes:
    return body + b"crc32c %08x\n" % crc32c(body)


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("catalog", [{}, {"a": CATALOG["a"]}, CATALOG], ids=len)
def test_what_was_encoded_is_decoded(catalog: Catalog) -> None:
    assert decode_catalog(encode_catalog(catalog), path="p") == catalog


def test_the_bytes_are_the_documented_ones() -> None:
    assert encode_catalog({"b": CATALOG["b"]}) == sealed(
        b"seeklog-topics 1\n"
        b'{"topic": "b", "id": "5JdNGzCmQmupZbKTTsDZjQ", "partitions": [1, 3], '
        b'"config": {"retention.ms": -1, "cleanup.policy": "compact"}}\n'
    )


def test_lines_are_topics_in_order_of_names() -> None:
    backwards = dict(reversed(CATALOG.items()))

    first, *lines, last = encode_catalog(backwards).splitlines()

    assert first == b"seeklog-topics 1"
    assert [json.loads(line)["topic"] for line in lines] == ["a", "b", "coming", "going", "growing"]
    assert last.startswith(b"crc32c ")


def test_change_in_progress_is_noted_in_line_of_its_topic() -> None:
    lines = [json.loads(line) for line in ENCODED.splitlines()[1:-1]]

    assert [(line.get("change"), line.get("partitions_changing")) for line in lines] == [
        (None, None),
        (None, None),
        ("create", [0, 1]),
        ("delete", [0, 1]),
        ("grow", [1, 2]),
    ]


@pytest.mark.parametrize(
    ("name", "is_there", "count"), [("a", True, 1), ("b", True, 4), ("coming", False, 0), ("going", False, 2)]
)
def test_topic_being_created_or_deleted_does_not_exist_for_users(name: str, is_there: bool, count: int) -> None:
    assert (CATALOG[name].is_there, CATALOG[name].partition_count) == (is_there, count)


def test_growing_topic_exists_with_its_old_partitions() -> None:
    assert (CATALOG["growing"].is_there, CATALOG["growing"].partition_count) == (True, 1)


def test_every_flipped_bit_of_catalog_is_refused() -> None:
    for bit in range(8 * len(ENCODED)):
        flipped = bytearray(ENCODED)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode_catalog(bytes(flipped), path="p")


def test_every_truncation_of_catalog_is_refused() -> None:
    for size in range(len(ENCODED)):
        with pytest.raises(CorruptionError):
            decode_catalog(ENCODED[:size], path="p")


@pytest.mark.parametrize("behind", [b"\n", b"\0", b" ", ENCODED[-16:], ENCODED])
def test_bytes_after_catalog_are_refused(behind: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_catalog(ENCODED + behind, path="p")


def test_error_names_file_and_remedy() -> None:
    with pytest.raises(CorruptionError, match=r"(?s)/data/seeklog-topics: .*CRC.*Restore the file") as caught:
        decode_catalog(b"nothing", path="/data/seeklog-topics")

    assert caught.value.path == "/data/seeklog-topics"


def test_unknown_version_of_catalog_is_refused_as_such() -> None:
    with pytest.raises(CorruptionError, match="newer seeklog"):
        decode_catalog(sealed(b"seeklog-topics 2\n"), path="p")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"5",
        b"null",
        b"{}",
        b'{"topic": "a"}',
        b'{"topic": "a", "id": "x", "partitions": 5, "config": {}}',
        b'{"topic": "a", "id": "x", "partitions": null, "config": {}}',
        b"\xff",
    ],
)
def test_invalid_line_is_refused_although_crc_matches(line: bytes) -> None:
    with pytest.raises(CorruptionError, match="does not parse"):
        decode_catalog(sealed(b"seeklog-topics 1\n" + line + b"\n"), path="p")


@pytest.mark.parametrize(
    "entry",
    [
        {"topic": "../a"},
        {"topic": 5},
        {"topic": ""},
        {"partitions": "01"},
        {"partitions": [0, -1]},
        {"partitions": [1.5]},
        {"partitions": [1, 0]},
        {"config": 5},
        {"config": None},
        {"change": "explode"},
    ],
    ids=str,
)
def test_invalid_topic_is_refused_although_crc_matches(entry: dict[str, Any]) -> None:
    whole = {"topic": "a", "id": ID, "partitions": [0], "config": {}} | entry

    with pytest.raises(CorruptionError):
        decode_catalog(sealed(b"seeklog-topics 1\n" + json.dumps(whole).encode() + b"\n"), path="p")


def test_topic_ids_have_format_of_kafka_and_differ() -> None:
    ids = {new_topic_id() for _ in range(100)}

    assert len(ids) == 100
    assert all(len(each) == 22 and set(each) <= set(_BASE64URL) for each in ids)


_BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


# ---------------------------------------------------------------- in a store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.create_topic("payments", partitions=2, config={"retention.ms": 1000})
        store.create_topic("orders", partitions=1)
        append(store, "payments", [b"0", b"1"])
    return root


def test_missing_catalog_reads_as_none(tmp_path: Path) -> None:
    assert CatalogFile(QuickFiles(), str(tmp_path)).read() is None


def test_damaged_catalog_is_refused_by_every_open_without_change(root: Path) -> None:
    """Every eighth bit and every truncation; the tests above cover every bit of the bytes alone."""
    catalog = root / names.TOPICS
    whole = catalog.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 7)]
    for bit in range(0, 8 * len(whole), 9):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))

    for data in damaged:
        catalog.write_bytes(data)
        before = snapshot(root, locks=False)
        for read_only in (False, True):
            with pytest.raises(CorruptionError) as caught:
                open_store(root, read_only=read_only)
            assert caught.value.path == str(catalog)
        assert snapshot(root, locks=False) == before

    catalog.write_bytes(whole)
    with open_store(root) as store:
        assert store.topics() == ["orders", "payments"]
        assert read(store, "payments") == [b"0", b"1"]


def test_catalog_damaged_while_store_is_open_is_refused_at_next_read(root: Path) -> None:
    with open_store(root) as store:
        whole = (root / names.TOPICS).read_bytes()
        (root / names.TOPICS).write_bytes(whole[:-5])
        before = snapshot(root)

        for call in (
            store.topics,
            lambda: store.create_topic("new"),
            lambda: store.alter_topic("orders", {"retention.ms": 5}),
            lambda: store.add_partitions("orders", partitions=9),
        ):
            with pytest.raises(CorruptionError):
                call()
        assert snapshot(root) == before

        (root / names.TOPICS).write_bytes(whole)
        assert store.topics() == ["orders", "payments"]


def test_without_catalog_topics_are_found_by_their_directories(root: Path) -> None:
    with open_store(root) as store:
        topic_id = store.describe_topic("payments").topic_id
    (root / names.TOPICS).unlink()

    with open_store(root) as store:
        assert store.topics() == ["orders", "payments"]
        found = store.describe_topic("payments")
        assert found.topic_id == topic_id
        # The configuration is lost, so records are not deleted by age.
        assert dict(found.configured) == ADOPTED_CONFIG
        assert read(store, "payments") == [b"0", b"1"]


def test_directory_in_place_of_catalog_raises_seeklog_error(root: Path) -> None:
    (root / names.TOPICS).unlink()
    (root / names.TOPICS).mkdir()

    for read_only in (False, True):
        with pytest.raises(SeeklogError):
            open_store(root, read_only=read_only)


def test_catalog_is_synced_before_rename_and_directory_after(root: Path) -> None:
    files = CountingFiles()
    with open_store(root, files=files) as store:
        files.diary.clear()
        store.alter_topic("orders", {"retention.ms": 5})

        diary = [entry for entry in files.diary if names.TOPICS in entry[1] or entry == ("sync", "directory")]
        assert diary[-3:] == [("sync", "seeklog-topics.tmp"), ("rename", "seeklog-topics"), ("sync", "directory")]


@pytest.mark.parametrize("left", [b"", b"half of a catalog"])
def test_temporary_catalog_left_by_crash_is_ignored(root: Path, left: bytes) -> None:
    (root / (names.TOPICS + names.TEMPORARY)).write_bytes(left)

    with open_store(root) as store:
        assert store.topics() == ["orders", "payments"]
        store.create_topic("new", partitions=1)
        assert store.topics() == ["new", "orders", "payments"]


def test_failed_write_of_catalog_leaves_topics_unchanged(root: Path) -> None:
    files = FailingFiles("rename", names.TOPICS)
    with open_store(root, files=files) as store:
        before = store.describe_topic("orders")
        files.fails = True
        for call in (
            lambda: store.create_topic("new"),
            lambda: store.alter_topic("orders", {"retention.ms": 5}),
            lambda: store.add_partitions("orders", partitions=9),
            lambda: store.delete_topic("orders"),
        ):
            with pytest.raises(NotAccessible, match="cannot be changed") as caught:
                call()
            assert isinstance(caught.value.__cause__, OSError)
        files.fails = False

        assert store.topics() == ["orders", "payments"]
        assert store.describe_topic("orders") == before
        store.create_topic("new", partitions=1)
        store.delete_topic("orders")
        assert store.topics() == ["new", "payments"]
