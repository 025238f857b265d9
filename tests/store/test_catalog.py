"""The catalog of topics: its bytes, every flipped bit, truncation and torn change, and a store with a damaged one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import CountingFiles, FailingFiles, QuickFiles
from seeklog import names
from seeklog.errors import CorruptionError, NotAccessible, SeeklogError
from seeklog.record.crc import crc32c
from seeklog.topics.catalog import (
    Catalog,
    Change,
    Topic,
    being_deleted,
    decode_catalog,
    decode_contents,
    deleted,
    deleting,
    deletion_mark,
    encode_catalog,
    encode_change,
    new_topic_id,
    opened,
    put,
)
from seeklog.topics.catalog_file import CatalogFile
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
        Topic(name="new", topic_id=ID, partitions=(0, 1), unopened=(0, 1)),
    )
}
# The last one contains both characters with a single bit set, and is longer than a sector.
CHANGES: list[Change] = [
    put(Topic(name="c", topic_id=ID, partitions=(0, 1, 2), unopened=(1, 2))),
    deleting("a"),
    deleted("a"),
    opened({"c": (1,), "new": (0,)}),
    put(Topic(name="d", topic_id=f"@ {'x' * 600}", partitions=(0,))),
]
SNAPSHOT = encode_catalog(CATALOG, min_room=0)
ENCODED = (SNAPSHOT.rstrip(b"\0") + b"".join(map(encode_change, CHANGES))).ljust(len(SNAPSHOT), b"\0")


def sealed(body: bytes, *, size: int = 0) -> bytes:
    return (body + b"crc32c %08x\n" % crc32c(body)).ljust(size, b"\0")


def values(catalog: Catalog) -> list[tuple[Topic, tuple[int, ...]]]:
    """Return everything in a catalog: two entries compare equal even if other partitions are unopened."""
    return [(topic, topic.unopened) for _, topic in sorted(catalog.items())]


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("catalog", [{}, {"a": CATALOG["a"]}, CATALOG], ids=len)
def test_what_was_encoded_is_decoded(catalog: Catalog) -> None:
    assert values(decode_catalog(encode_catalog(catalog), path="p")) == values(catalog)


def test_the_bytes_are_the_documented_ones() -> None:
    assert encode_catalog({"b": CATALOG["b"]}) == sealed(
        b"seeklog-topics 2 16384\n"
        b'{"topic": "b", "id": "5JdNGzCmQmupZbKTTsDZjQ", "partitions": [1, 3], '
        b'"config": {"retention.ms": -1, "cleanup.policy": "compact"}}\n',
        size=16384,
    )
    text = b'{"opened":{"c":[1],"new":[0]}}'
    assert encode_change(CHANGES[3]) == b"00000031:%08x:%s\n" % (crc32c(text), text)


def test_changes_are_applied_in_order() -> None:
    expected = {name: topic for name, topic in CATALOG.items() if name != "a"}
    expected["new"] = Topic(name="new", topic_id=ID, partitions=(0, 1), unopened=(1,))
    expected["c"] = Topic(name="c", topic_id=ID, partitions=(0, 1, 2), unopened=(2,))
    expected["d"] = Topic(name="d", topic_id=f"@ {'x' * 600}", partitions=(0,))

    assert values(decode_catalog(ENCODED, path="p")) == values(expected)
    assert decode_contents(ENCODED, path="p").is_whole


def test_catalog_of_release_0_1_is_decoded() -> None:
    old = sealed(
        b"seeklog-topics 1\n" + b"".join(json.dumps(put(topic)).encode() + b"\n" for topic in CATALOG.values())
    )

    assert values(decode_catalog(old, path="p")) == values(CATALOG)
    for bit in range(8 * len(old)):
        flipped = bytearray(old)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode_catalog(bytes(flipped), path="p")
    for size in range(len(old)):
        with pytest.raises(CorruptionError):
            decode_catalog(old[:size], path="p")


def test_deletion_noted_in_a_catalog_of_release_0_1_is_decoded() -> None:
    entries = {"a": CATALOG["a"], "b": CATALOG["b"]}
    body = b"seeklog-topics 1\n" + b"".join(json.dumps(put(topic)).encode() + b"\n" for topic in entries.values())
    old = sealed(body)
    marked = bytearray(old)
    position = deletion_mark(old, "b")
    assert position == old.index(b'"b"') - 1
    marked[position] = ord("\t")

    assert values(decode_catalog(bytes(marked), path="p")) == values(
        {"a": CATALOG["a"], "b": being_deleted(CATALOG["b"])}
    )
    for data in (old, bytes(marked)):
        for index in set(range(len(data))) - {deletion_mark(old, name) for name in entries}:
            for damage in (data[index] ^ 1 << index % 8, ord("\t"), ord(" ")):
                if data[index] != damage:
                    with pytest.raises(CorruptionError):
                        decode_catalog(data[:index] + bytes([damage]) + data[index + 1 :], path="p")
    assert deletion_mark(SNAPSHOT, "b") is None


def test_lines_are_topics_in_order_of_names() -> None:
    backwards = dict(reversed(CATALOG.items()))

    first, *lines, last = encode_catalog(backwards).rstrip(b"\0").splitlines()

    assert first == b"seeklog-topics 2 16384"
    assert [json.loads(line)["topic"] for line in lines] == ["a", "b", "coming", "going", "growing", "new"]
    assert last.startswith(b"crc32c ")


def test_change_in_progress_is_noted_in_line_of_its_topic() -> None:
    lines = [json.loads(line) for line in SNAPSHOT.splitlines()[1:-2]]

    assert [(line.get("change"), line.get("partitions_changing")) for line in lines] == [
        (None, None),
        (None, None),
        ("create", [0, 1]),
        ("delete", [0, 1]),
        ("grow", [1, 2]),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("name", "is_there", "count"), [("a", True, 1), ("b", True, 4), ("coming", False, 0), ("going", False, 2)]
)
def test_topic_being_created_or_deleted_does_not_exist_for_users(name: str, is_there: bool, count: int) -> None:
    assert (CATALOG[name].is_there, CATALOG[name].partition_count) == (is_there, count)


def test_growing_topic_exists_with_its_old_partitions() -> None:
    assert (CATALOG["growing"].is_there, CATALOG["growing"].partition_count) == (True, 1)


@pytest.mark.parametrize("count", range(len(CHANGES) + 1))
def test_every_flipped_bit_of_catalog_is_refused(count: int) -> None:
    """The last change, too: that it was not written completely must not be an excuse for it."""
    written = SNAPSHOT.rstrip(b"\0") + b"".join(map(encode_change, CHANGES[:count]))
    for bit in range(8 * len(written)):
        flipped = bytearray(written.ljust(len(SNAPSHOT), b"\0"))
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode_catalog(bytes(flipped), path="p")


def test_flipped_bits_after_the_last_change_are_ignored() -> None:
    # Seven is coprime to eight, so each bit of a byte is flipped somewhere.
    for bit in range(8 * len(ENCODED.rstrip(b"\0")), 8 * len(ENCODED), 7):
        flipped = bytearray(ENCODED)
        flipped[bit // 8] ^= 1 << bit % 8
        assert values(decode_catalog(bytes(flipped), path="p")) == values(decode_catalog(ENCODED, path="p"))
        assert not decode_contents(bytes(flipped), path="p").is_whole


def torn(change: bytes, *, position: int) -> Iterator[bytes]:
    """Yield what a power loss may leave of a change: each prefix, and each set of sectors that are not all."""
    for size in range(len(change)):
        yield change[:size].ljust(len(change), b"\0")
    sectors = sorted({0, *(at - position for at in range(512, 1 << 16, 512) if position < at < position + len(change))})
    for chosen in itertools.product([False, True], repeat=len(sectors)):
        if not all(chosen):
            parts = zip(sectors, [*sectors[1:], len(change)], chosen, strict=True)
            yield b"".join(change[low:high] if kept else bytes(high - low) for low, high, kept in parts)


@pytest.mark.parametrize("shift", [0, 9, 17, 100, 200])
@pytest.mark.parametrize("count", range(len(CHANGES)))
def test_every_torn_change_is_left_out(count: int, shift: int) -> None:
    """Goal: a power loss while a change is written never prevents opening, wherever the sectors begin."""
    before = {**CATALOG, "e": Topic(name="e" * (1 + shift), topic_id=ID, partitions=(0,))}
    start = encode_catalog(before, min_room=0).rstrip(b"\0") + b"".join(map(encode_change, CHANGES[:count]))
    whole = start.ljust(len(encode_catalog(before, min_room=0)), b"\0")
    expected = values(decode_catalog(whole, path="p"))

    for left in torn(encode_change(CHANGES[count]), position=len(start)):
        found = decode_contents((start + left).ljust(len(whole), b"\0"), path="p")
        assert values(found.catalog) == expected
        assert found.is_whole == (not left.strip(b"\0"))


def test_error_names_byte_of_damaged_change() -> None:
    position = len(SNAPSHOT.rstrip(b"\0")) + len(encode_change(CHANGES[0]))
    damaged = bytearray(ENCODED)
    damaged[position + 30] ^= 1

    with pytest.raises(CorruptionError, match="a change of the catalog fails its CRC") as caught:
        decode_catalog(bytes(damaged), path="p")
    assert caught.value.position == position


@pytest.mark.parametrize(
    "change",
    [{"deleting": "x"}, {"deleted": "x"}, {"deleted": []}, {"opened": {"x": [0]}}, {"opened": 5}, {"exploded": "a"}],
    ids=str,
)
def test_change_that_no_store_writes_is_refused(change: Change) -> None:
    data = (SNAPSHOT.rstrip(b"\0") + encode_change(change)).ljust(len(SNAPSHOT), b"\0")

    with pytest.raises(CorruptionError, match="invalid"):
        decode_catalog(data, path="p")


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
        decode_catalog(sealed(b"seeklog-topics 3\n"), path="p")


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


def test_missing_catalog_is_not_read(tmp_path: Path) -> None:
    assert not CatalogFile(QuickFiles(), str(tmp_path)).read()


def test_damaged_catalog_is_refused_by_every_open_without_change(root: Path) -> None:
    """Every ninth bit and some truncations; the tests above cover every bit of the bytes alone."""
    catalog = root / names.TOPICS
    whole = catalog.read_bytes()
    written = len(whole.rstrip(b"\0"))
    damaged = [whole[:size] for size in [*range(0, written, 7), written, len(whole) - 1]]
    for bit in range(0, 8 * written, 9):
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


def test_full_catalog_is_synced_before_rename_and_directory_after(root: Path) -> None:
    files = CountingFiles()
    with open_store(root, files=files) as store:
        while ("rename", "seeklog-topics") not in files.diary:
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
    files = FailingFiles("write", names.TOPICS)
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
