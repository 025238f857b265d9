"""Kafka's offset checkpoints in the root: their text, how they are updated, and their effect on partitions."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from log.workbench import CountingFiles, QuickFiles
from seeklog import Store, TopicPartition, names
from seeklog.config import INT64_MAX
from seeklog.errors import SeeklogError
from seeklog.log import take_snapshot
from seeklog.log.side.root_offsets import RootLine, RootOffsets, decode_offsets, encode_offsets
from store.workbench import append, open_file_count, open_store

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
FILES = (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)


def test_checkpoint_files_have_kafkas_bytes() -> None:
    assert encode_offsets({B0: 7, A1: 0, A0: 1042}) == b"0\n3\na 0 1042\na 1 0\nb 0 7\n"
    assert encode_offsets({}) == b"0\n0\n"


def test_partitions_are_in_numeric_order() -> None:
    lines = encode_offsets({TopicPartition("a", number): 0 for number in (10, 9, 2, 100)}).splitlines()

    assert [line.split()[1] for line in lines[2:]] == [b"2", b"9", b"10", b"100"]


def test_what_was_encoded_is_decoded() -> None:
    rng = random.Random(3)
    offsets = {
        TopicPartition(rng.choice("abc.-_") * rng.randint(1, 9), rng.randint(0, 99)): rng.randint(0, 2**63 - 1)
        for _ in range(100)
    }

    assert decode_offsets(encode_offsets(offsets)) == offsets
    assert decode_offsets(encode_offsets({})) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0",
        b"0\n",
        b"1\n0\n",
        b"0\n1\n",
        b"0\n0\na 0 5\n",
        b"0\n2\na 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 5 6\n",
        b"0\n1\na x 5\n",
        b"0\n1\na 0 x\n",
        b"x\n1\na 0 5\n",
        b"0\nx\na 0 5\n",
        b"0\n1\n\xff 0 5\n",
        b"\0" * 40,
    ],
)
def test_invalid_checkpoint_is_ignored(data: bytes) -> None:
    assert decode_offsets(data) is None


def test_truncated_checkpoint_gives_no_wrong_offsets() -> None:
    """A truncated number is another number, so such a file must not be trusted."""
    whole = encode_offsets({A0: 1042, A1: 977})
    for size in range(len(whole) - 1):
        cut = decode_offsets(whole[:size])
        if cut is not None:
            assert size > len(whole) - 5, "only the last number may be cut"


def test_line_ends_of_kafka_are_read() -> None:
    assert decode_offsets(b"0\r\n1\r\na 0 5\r\n") == {A0: 5}


# ---------------------------------------------------------------- three files


def test_missing_checkpoints_are_ignored(tmp_path: Path) -> None:
    offsets = RootOffsets.read(QuickFiles(), str(tmp_path))

    assert offsets == RootOffsets({}, {}, {})
    assert offsets.of(A0) is None


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = RootOffsets({A0: 5, A1: 6}, {A0: 1}, {A0: 4, B0: 9})
    written.write(QuickFiles(), str(tmp_path))

    assert RootOffsets.read(QuickFiles(), str(tmp_path)) == written
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


def test_each_checkpoint_is_synced_before_rename(tmp_path: Path) -> None:
    files = CountingFiles()
    RootOffsets({}, {}, {}).write(files, str(tmp_path))

    for name in FILES:
        assert files.diary.index(("sync", f"{name}.tmp")) < files.diary.index(("rename", name))
    assert files.diary[-1] == ("sync", "directory")


def test_damaged_checkpoint_is_ignored_and_others_are_used(tmp_path: Path) -> None:
    RootOffsets({A0: 5}, {A0: 1}, {A0: 4}).write(QuickFiles(), str(tmp_path))
    (tmp_path / names.LOG_START_OFFSETS).write_bytes(b"damaged")

    assert RootOffsets.read(QuickFiles(), str(tmp_path)) == RootOffsets({A0: 5}, {}, {A0: 4})


def test_root_checkpoints_give_foreign_checkpoint() -> None:
    found = RootOffsets({A0: 5}, {A0: 1}, {A0: 4}).of(A0)

    assert found is not None
    assert (found.recovery_point, found.log_start_offset, found.high_watermark) == (5, 1, 4)
    # A broker's offsets may have gaps.
    assert found.foreign
    assert found.contiguous_from == INT64_MAX


@pytest.mark.parametrize("place", range(3))
def test_one_checkpoint_with_partition_is_enough(place: int) -> None:
    tables = [{}, {}, {}]  # type: list[dict[TopicPartition, int]]
    tables[place] = {A0: 7}
    found = RootOffsets(*tables).of(A0)

    assert found is not None
    assert [found.recovery_point, found.log_start_offset, found.high_watermark] == [
        7 if each == place else 0 for each in range(3)
    ]


def test_negative_offsets_are_ignored() -> None:
    found = RootOffsets({A0: -1}, {A0: -5}, {A0: -1}).of(A0)

    assert found is not None
    assert (found.recovery_point, found.log_start_offset, found.high_watermark) == (0, 0, 0)


def test_update_keeps_other_lines_and_drops_missing_partitions() -> None:
    offsets = RootOffsets({A0: 5, B0: 6}, {B0: 1}, {A1: 4})

    offsets.update({A0: RootLine(8, 2, 7)}, existing=[A0, A1])

    assert offsets == RootOffsets({A0: 8}, {A0: 2}, {A0: 7, A1: 4})


def test_only_compacted_partitions_have_cleaned_offset(tmp_path: Path) -> None:
    offsets = RootOffsets({}, {}, {}, {A1: 3, B0: 9})

    assert offsets.update({A0: RootLine(8, 2, 7, 5), A1: RootLine(4, 0, 4)}, existing=[A0, A1, B0])
    assert offsets.cleaned == {A0: 5, B0: 9}
    offsets.write(QuickFiles(), str(tmp_path))
    assert (tmp_path / names.CLEANED_OFFSETS).read_bytes() == b"0\n2\na 0 5\nb 0 9\n"
    # No value is left, and the existing file must not keep the old ones.
    assert offsets.update({}, existing=[])
    offsets.write(QuickFiles(), str(tmp_path))
    assert (tmp_path / names.CLEANED_OFFSETS).read_bytes() == b"0\n0\n"


# ---------------------------------------------------------------- in a store


def root_offsets(root: Path) -> RootOffsets:
    return RootOffsets.read(QuickFiles(), str(root))


def test_maintenance_writes_checkpoints_of_its_partitions(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=2)
        append(store, "a", [b"x"] * 5, partition=1)
        store.maintain()

        # No writer has opened the other partition.
        assert root_offsets(tmp_path) == RootOffsets({A1: 5}, {A1: 0}, {A1: 5})


def test_close_writes_root_checkpoints(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=2)
        append(store, "a", [b"x"] * 5)
        append(store, "a", [b"x"] * 3, partition=1)

    assert root_offsets(tmp_path) == RootOffsets({A0: 5, A1: 3}, {A0: 0, A1: 0}, {A0: 5, A1: 3})


def test_values_of_another_store_stay_in_checkpoints(tmp_path: Path) -> None:
    with open_store(tmp_path) as first, open_store(tmp_path) as second:
        first.create_topic("a", partitions=2)
        append(first, "a", [b"x"] * 5)
        append(second, "a", [b"x"] * 3, partition=1)
        first.maintain()
        second.maintain()

        assert root_offsets(tmp_path).recovery_points == {A0: 5, A1: 3}


def test_deleting_topic_removes_its_lines(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for name in ("a", "b"):
            store.create_topic(name, partitions=1)
            append(store, name, [b"x"])
        store.maintain()
        store.delete_topic("a")
        store.maintain()

        assert root_offsets(tmp_path).recovery_points == {B0: 1}


def test_recreated_topic_does_not_inherit_offsets_of_deleted_one(tmp_path: Path) -> None:
    """A broker that takes over would apply the start offset of the old topic to the new one."""
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=1)
        append(store, "a", [b"x"] * 5)
        with store.writer("a", 0) as log:
            log.delete_before(5)
        store.delete_topic("a")
        store.create_topic("a", partitions=1)
        store.maintain()

        assert root_offsets(tmp_path).log_start_offsets.get(A0, 0) == 0
        assert root_offsets(tmp_path).recovery_points.get(A0, 0) == 0


def test_deleted_unwritten_topic_leaves_no_lines_to_recreated_one(tmp_path: Path) -> None:
    """The creation removes them, or else the close of the store that deleted the topic."""
    for recreates in (True, False):
        with open_store(tmp_path) as store:
            store.create_topic("a", partitions=1)
            append(store, "a", [b"x"] * 5)
        with open_store(tmp_path) as store:
            store.delete_topic("a")
            if recreates:
                store.create_topic("a", partitions=1)
                assert root_offsets(tmp_path) == RootOffsets({}, {}, {})
                store.delete_topic("a")
        assert root_offsets(tmp_path) == RootOffsets({}, {}, {})


@pytest.mark.parametrize("reads", [False, True])
def test_offsets_of_topic_recreated_elsewhere_are_not_written(tmp_path: Path, reads: bool) -> None:
    """The log was closed for room, so its offsets wait for the next update of the root's checkpoints."""
    with open_store(tmp_path, max_open_files=8) as store, open_store(tmp_path) as other:
        store.create_topic("a", partitions=1)
        store.create_topic("b", partitions=6)
        append(store, "a", [b"x"] * 5)
        for partition in range(6):
            append(store, "b", [b"x"], partition=partition)
        other.delete_topic("a")
        other.create_topic("a", partitions=1)
        if reads:
            assert store.log("a", 0).log_end_offset == 0
        store.maintain()

        assert root_offsets(tmp_path).recovery_points.get(A0, 0) == 0


def test_damaged_root_checkpoints_do_not_prevent_open(tmp_path: Path) -> None:
    """They are copies: each partition's own checkpoint is authoritative."""
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=1)
        append(store, "a", [b"x"] * 5)
    for name in FILES:
        (tmp_path / name).write_bytes(b"\xff\0damaged")

    with open_store(tmp_path) as store:
        assert store.log("a", 0).log_end_offset == 5
        append(store, "a", [b"x"])
    assert root_offsets(tmp_path).recovery_points == {A0: 6}


def test_root_checkpoints_do_not_override_checkpoint_of_partition(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=1)
        append(store, "a", [b"x"] * 5)
    RootOffsets({A0: 900}, {A0: 3}, {A0: 900}).write(QuickFiles(), str(tmp_path))

    for read_only in (True, False):
        with open_store(tmp_path, read_only=read_only) as store:
            log = store.log("a", 0)
            assert (log.log_start_offset, log.log_end_offset) == (0, 5)


def test_directory_as_checkpoint_raises_seeklog_error_and_leaks_no_file(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=1)
    (tmp_path / names.RECOVERY_POINTS).mkdir()
    gc.collect()  # other tests may have left garbage
    before = open_file_count()

    with pytest.raises(SeeklogError):
        open_store(tmp_path)
    assert open_file_count() == before


# ---------------------------------------------------------------- cleaned offsets


WORDS = {"cleanup.policy": "compact", "segment.bytes": 500}


def put(store: Store, topic: str, count: int) -> None:
    for number in range(count):
        append(store, topic, [b"%d" % number + bytes(100)], key=b"%d" % (number % 3))


def test_close_writes_cleaned_offset_from_seals(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for name, words in (("a", WORDS), ("b", WORDS), ("c", {})):
            store.create_topic(name, partitions=1, config=words)
            put(store, name, 20)
        store.compact("a")
        active = take_snapshot(store.log("a", 0)).view.segments[-1].base_offset
    assert root_offsets(tmp_path).cleaned == {A0: active}
    with open_store(tmp_path) as store, store._table.writing(A0) as log:
        log.truncate_to(active // 2)
    assert root_offsets(tmp_path).cleaned.get(A0, 0) <= active // 2


def as_a_broker_left_it(root: Path, cleaned: int) -> None:
    """Remove seeklog's files from a store, and write the offsets that a broker's cleaner has reached."""
    for path in [*root.glob("*-0/*.seal"), *root.glob("*-0/seeklog-*")]:
        path.unlink()
    (root / names.CLEANED_OFFSETS).write_bytes(encode_offsets({A0: cleaned}))


@pytest.mark.parametrize("excess", [None, 0, 1])
def test_segments_cleaned_by_broker_are_not_due_again(tmp_path: Path, excess: int | None) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=1, config=WORDS)
        put(store, "a", 20)
        store.compact("a")
        log = store.log("a", 0)
        active, before = log._source.view.segments[-1].base_offset, list(log.scan())
    # An offset that no cleaner can have reached belongs to another log, and is ignored.
    as_a_broker_left_it(tmp_path, 0 if excess is None else active + excess)
    with open_store(tmp_path) as store:
        with store._table.writing(A0) as log:
            done = log.compact_if_due()
        assert done.rounds == (0 if excess == 0 else 1)
        assert list(store.log("a", 0).scan()) == before


def test_compaction_does_not_start_at_cleaned_offset_of_broker(tmp_path: Path) -> None:
    """A cleaned offset that is too high would drop a tombstone and leave the value it deletes."""
    with open_store(tmp_path) as store:
        store.create_topic("a", partitions=1, config=WORDS)
        put(store, "a", 20)
        active = take_snapshot(store.log("a", 0)).view.segments[-1].base_offset
    as_a_broker_left_it(tmp_path, active)
    with open_store(tmp_path) as store:
        with store._table.writing(A0) as log:
            assert log.compact_if_due().rounds == 0
        store.compact("a")
        keys = [record.key for record in store.log("a", 0).scan(end=active)]
        assert len(keys) == len(set(keys)) == 3
