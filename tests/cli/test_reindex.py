from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.disk import bytes_of
from cli.workbench import MORNING_MS, Run


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """A store `data` with `orders`, two partitions of several segments with index entries."""
    path = tmp_path / "data"
    with seeklog.open(path, background=False) as made:
        config = {"segment.bytes": 1000, "index.interval.bytes": 200, "retention.ms": -1}
        made.create_topic("orders", partitions=2, config=config)
        for number in range(80):
            with made.writer("orders", number % 2) as log:
                log.append(b"x" * 80, timestamp_ms=MORNING_MS + number * 60_000)
    return path


def hurt(store: Path) -> list[Path]:
    """Damage an index of a sealed segment, and remove another one and the time index of the last segment."""
    indexes = sorted((store / "orders-0").glob("*.index"))
    data = bytearray(indexes[0].read_bytes())
    data[7] ^= 1
    indexes[0].write_bytes(data)
    indexes[1].unlink()
    last = sorted((store / "orders-1").glob("*.timeindex"))[-1]
    last.write_bytes(b"junk")
    return [indexes[0], indexes[1], last]


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_correct_indexes_are_not_changed(run: Run, indexed: Path) -> None:
    before = bytes_of(indexed)

    ran = run("reindex", indexed)

    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.endswith(" segments match their logs\n")
    assert bytes_of(indexed) == before


def test_wrong_indexes_are_reported_and_rebuilt(run: Run, indexed: Path) -> None:
    whole = bytes_of(indexed)
    files = hurt(indexed)
    before = bytes_of(indexed)

    dry = run("reindex", indexed, "--dry-run")
    assert (dry.code, bytes_of(indexed)) == (0, before)
    found = rows(dry.text)
    assert [row["partition"] for row in found] == [0, 0, 1]
    assert "no batch starts at byte" in found[0]["problem"] or "offset" in found[0]["problem"]
    assert "an index is missing" in found[1]["problem"]
    assert dry.err.startswith("would rebuild the indexes of 3 of ")

    ran = run("reindex", indexed)
    assert ran.code == 0
    assert [row["done"] for row in rows(ran.text)] == ["rebuilt"] * 3
    for path in files[:2]:
        assert path.read_bytes() == whole[str(path.relative_to(indexed))]
    assert run("reindex", indexed).out == b""


def test_only_the_chosen_partition_is_rebuilt(run: Run, indexed: Path) -> None:
    files = hurt(indexed)

    ran = run("reindex", indexed, "orders", "--partition", 1)

    assert [row["partition"] for row in rows(ran.text)] == [1]
    assert not files[1].exists()


def test_damaged_log_is_reported_and_not_changed(run: Run, indexed: Path) -> None:
    log = sorted((indexed / "orders-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)

    ran = run("reindex", indexed)

    assert ran.code == 3
    assert [row["done"] for row in rows(ran.text)] == ["damaged"]
    assert "run: seeklog verify" in ran.err
    assert log.read_bytes() == bytes(data)


def test_log_open_in_another_process_is_not_changed(run: Run, indexed: Path) -> None:
    hurt(indexed)
    with seeklog.open(indexed, background=False) as opened, opened.writer("orders", 0):
        before = bytes_of(indexed)

        ran = run("reindex", indexed)

        assert ran.code == 5
        assert ran.err.endswith("; close it there, then run it again\n")
        assert bytes_of(indexed) == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 4, "there is no store at nowhere"),
        (["data", "ordres"], 4, "did you mean 'orders'?"),
        (["data", "orders", "-p", "7"], 4, "topic 'orders' has no partition 7"),
        (["data", "-p", "0"], 2, "--partition needs a TOPIC"),
        (["data", "--spark", "--dry-run"], 2, "--spark conflicts with"),
        (["s3://bucket/data"], 2, "read-only"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, indexed: Path, arguments: list[str], code: int, message: str
) -> None:
    ran = run("reindex", *arguments)

    assert (ran.code, ran.out) == (code, b"")
    assert message in ran.err
    assert ran.err.count("\n") == 1
