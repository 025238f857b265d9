"""Findings of the fuzzers, kept as tests: bytes with a right checksum and a wrong meaning."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fuzz.mutation import seal_frame
from fuzz.target import load_targets
from fuzz.targets import texts
from record.batches import INT32_MAX, SMALL_ROWS, Sketch, seal, with_field
from record.twins import KERNEL, compact
from seeklog.errors import CorruptBatch, CorruptionError, SeeklogError
from seeklog.log.side.epochs import decode_epochs
from seeklog.log.side.root_offsets import decode_offsets
from seeklog.log.transaction import decode_transaction
from seeklog.record.decode import check_keyed
from seeklog.record.encode import stamp, stamp_append_time

TARGETS = load_targets()
NAME = texts.STAGED
DEEP = b"[" * 100_000


def with_line(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return a framed text with its line of JSON changed, and a right CRC."""
    first, line, _ = data.split(b"\n", 2)
    fields = json.loads(line)
    change(fields)
    return seal_frame(first + b"\n" + json.dumps(fields).encode() + b"\n")


def transaction(change: Callable[[Any], Any]) -> bytes:
    return with_line(next(texts.transaction_seeds()), change)


@pytest.mark.id("staged-file-names")
@pytest.mark.parametrize("name", ["../../victim", "/etc/passwd", "seeklog-staged-x", "", None, 5, ["a"]])
def test_transaction_names_only_staged_files(name: object) -> None:
    """The files that it names are removed when it is finished."""

    def change(fields: Any) -> None:
        fields["parts"][0]["files"][0][0] = name

    with pytest.raises(CorruptionError, match="does not parse"):
        decode_transaction(transaction(change), path="file")


@pytest.mark.parametrize(
    "fields",
    [
        {"app": True},
        {"app": "\ud800"},
        {"version": "12"},
        {"version": 2**63},
        {"state": "maybe"},
        {"kept": 1},
        {"parts": [{"partition": "../x-0", "topic_id": "x", "base_offset": 0, "files": []}]},
        {"parts": [{"partition": 7, "topic_id": "x", "base_offset": 0, "files": []}]},
        {"parts": [{"partition": "x-0", "topic_id": None, "base_offset": 0, "files": []}]},
        {"parts": [{"partition": "x-0", "topic_id": "x", "base_offset": -1, "files": []}]},
        {"parts": [{"partition": "x-0", "topic_id": "x", "base_offset": 0, "files": [[NAME, 9, 1, 1, [5]]]}]},
        {"parts": [{"partition": "x-0", "topic_id": "x", "base_offset": 0, "files": [[NAME, 9, 1, 1, [9, 9]]]}]},
        {"parts": 5},
    ],
)
def test_transaction_that_no_writer_writes_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(CorruptionError, match="does not parse"):
        decode_transaction(transaction(lambda found: found.update(fields)), path="file")


@pytest.mark.parametrize("name", ["catalog", "transaction", "identity", "lake_manifest", "archive_manifest"])
def test_json_nested_too_deep_is_damage(name: str) -> None:
    first = next(iter(TARGETS[name].seeds())).split(b"\n", 1)[0]
    data = DEEP if name == "archive_manifest" else seal_frame(first + b"\n" + DEEP + b"\n")

    with pytest.raises(SeeklogError, match="does not parse"):
        TARGETS[name].check(data)


@pytest.mark.parametrize("fields", [{"id": float("inf")}, {"id": 2**63}, {"id": -1}, {"epoch": 2**15}, {"id": "5"}])
def test_impossible_producer_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(CorruptionError, match="does not parse"):
        texts.read_identity(with_line(next(texts.identity_seeds()), lambda found: found.update(fields)))


@pytest.mark.parametrize("partitions", [[2**31], [2**63], [-1], [0, 0], [True], ["0"]])
def test_impossible_partition_number_is_refused(partitions: list[Any]) -> None:
    def change(fields: Any) -> None:
        fields["partitions"] = partitions

    line = with_line(next(texts.catalog_seeds()).split(b'{"topic": "payments"')[0], change)

    with pytest.raises(CorruptionError, match="not a list of partitions"):
        texts.read_catalog(line)


@pytest.mark.parametrize("time_ms", [2**63, 2**64, -(2**63) - 1, None, 1.5])
@pytest.mark.parametrize("word", ["min_timestamp_ms", "max_timestamp_ms"])
def test_lake_file_with_a_time_out_of_range_is_refused(word: str, time_ms: Any) -> None:
    *_, data = texts.lake_seeds()
    first, *lines, _ = data.splitlines(keepends=True)
    fields = json.loads(lines[-1])
    fields["files"][0][word] = time_ms

    with pytest.raises(CorruptionError, match="does not parse"):
        texts.read_lake(seal_frame(b"".join([first, *lines[:-1], json.dumps(fields).encode() + b"\n"])))


@pytest.mark.parametrize(
    "setting", [b"recovery_point 9223372036854775808", b"recovery_point -1", b"epochs 2147483648 0"]
)
def test_checkpoint_with_a_number_out_of_range_is_refused(setting: bytes) -> None:
    *_, data = texts.checkpoint_seeds()
    word = setting.split()[0]
    lines = [setting if line.startswith(word) else line for line in data.rpartition(b"crc32c")[0].splitlines()]

    with pytest.raises(CorruptionError, match="does not parse"):
        texts.read_checkpoint(seal_frame(b"".join(line + b"\n" for line in lines)))


def test_checkpoints_of_kafka_with_numbers_out_of_range_are_ignored() -> None:
    assert decode_epochs(b"0\n1\n2147483648 0\n") is None
    assert decode_epochs(b"0\n1\n0 9223372036854775808\n") is None
    assert decode_offsets(b"0\n1\npayments 2147483648 0\n") is None
    assert decode_offsets(b"0\n1\npayments 0 9223372036854775808\n") is None


@pytest.mark.id("compaction-bounds-record-count")
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compaction_bounds_the_record_count_of_a_compressed_batch(codec: int) -> None:
    """Room for 2**31 records would be 137 GB."""
    raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()
    claimed = seal(with_field(with_field(raw, "last_delta", INT32_MAX), "record_count", INT32_MAX))

    with pytest.raises(CorruptBatch, match="records cannot fit"):
        compact(KERNEL, claimed)


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 48, 10_000, INT32_MAX])
def test_writes_into_batches_stay_inside_them(length: int) -> None:
    raw = with_field(Sketch(SMALL_ROWS, base_offset=40).encode(), "batch_length", length)

    for write in (
        lambda: stamp(raw, 5, 1),
        lambda: stamp_append_time(raw, 5),
        lambda: check_keyed(raw, 1 << 20),
    ):
        with pytest.raises(CorruptBatch, match="no whole batch"):
            write()
