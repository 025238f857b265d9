from __future__ import annotations

import json
from pathlib import Path

import pytest

import seeklog
from cli.disk import bytes_of
from cli.workbench import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with seeklog.open(path, background=False) as made:
        made.create_topic("orders", partitions=2)
        with made.writer("orders", 1) as log:
            log.append_many([seeklog.Record(b"a"), seeklog.Record(b"b"), seeklog.Record(b"c")])
    return path


def test_active_segments_are_rolled_and_can_be_archived(run: Run, data: Path) -> None:
    ran = run("roll", data, "orders")

    (row,) = map(json.loads, ran.lines)
    assert (row["topic"], row["partition"], row["base_offset"], row["next_offset"]) == ("orders", 1, 0, 3)
    assert ran.err == "rolled 1 segment\n"
    assert (data / "orders-1" / f"{0:020d}.seal").exists()
    assert run("archive", data, "cold").err.startswith("copied 1 segment, ")


def test_empty_segments_and_other_partitions_are_left_alone(run: Run, data: Path) -> None:
    before = bytes_of(data)

    assert run("roll", data, "orders", "-p", "0").err == "rolled 0 segments\n"
    assert run("roll", data, "orders", "-p", "7").code == 4

    run("roll", data, "orders")
    rolled = bytes_of(data)
    assert rolled != before
    assert run("roll", data, "orders").err == "rolled 0 segments\n"


def test_dry_run_shows_segments_and_changes_nothing(run: Run, data: Path) -> None:
    before = bytes_of(data)

    ran = run("roll", data, "orders", "--dry-run")

    assert (ran.code, ran.err, len(ran.lines)) == (0, "would roll 1 segment\n", 1)
    assert bytes_of(data) == before


def test_partition_of_another_writer_is_skipped(run: Run, data: Path) -> None:
    with seeklog.open(data, background=False) as other, other.writer("orders", 1):
        ran = run("roll", data, "orders")

    assert (ran.code, ran.out) == (5, b"")
    assert "orders-1 skipped: process " in ran.err
    assert not (data / "orders-1" / f"{3:020d}.log").exists()


def test_url_is_refused(run: Run) -> None:
    ran = run("roll", "s3://bucket/store", "orders")

    assert ran.code == 2
    assert "URLs are read-only" in ran.err
