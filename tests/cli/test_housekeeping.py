"""`retain`, `truncate` and `compact` show what they would delete, ask, and delete exactly that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.disk import bytes_of
from cli.workbench import MORNING_MS, Run


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A store `data` with `orders`, two partitions of twenty expired small segments, and `fresh`."""
    path = tmp_path / "data"
    with seeklog.open(path, background=False) as made:
        made.create_topic("orders", partitions=2, config={"segment.bytes": 300, "retention.ms": 3_600_000})
        made.create_topic("fresh", partitions=1)
        for number in range(40):
            with made.writer("orders", number % 2) as log:
                log.append(b"x" * 80, key=b"k%d" % (number % 6), timestamp_ms=MORNING_MS + number * 60_000)
        with made.writer("fresh", 0) as log:
            log.append(b"new")
    return path


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def offsets(store: Path, topic: str = "orders") -> dict[int, tuple[int, int]]:
    with seeklog.open(store, read_only=True) as opened:
        return {
            each.partition: (each.log_start_offset, each.high_watermark)
            for each in opened.describe_topic(topic).partitions
        }


def size(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*.log"))


def test_expired_segments_are_shown_and_deleted(run: Run, many: Path) -> None:
    before = bytes_of(many)

    dry = run("retain", many, "--dry-run")
    assert bytes_of(many) == before
    assert [(row["topic"], row["partition"], row["first_offset"], row["next_offset"]) for row in rows(dry.text)] == [
        ("orders", 0, 0, 20),
        ("orders", 1, 0, 20),
    ]
    assert [row["causes"] for row in rows(dry.text)] == [["retention.ms=3600000"]] * 2
    shown = size(many)

    ran = run("retain", many, "--yes")
    assert (ran.code, ran.out) == (0, dry.out)
    assert ran.err == dry.err.replace("would delete", "deleted")
    assert offsets(many) == {0: (20, 20), 1: (20, 20)}
    assert offsets(many, "fresh") == {0: (0, 1)}
    assert shown - size(many) == sum(row["size_bytes"] for row in rows(dry.text))


def test_nothing_is_asked_if_nothing_expired(run: Run, many: Path) -> None:
    ran = run("retain", many, "fresh")

    assert (ran.code, ran.out, ran.err) == (0, b"", "no segment exceeds its retention\n")


@pytest.mark.parametrize(
    "arguments", [["retain"], ["truncate", "orders", "--before", "end"], ["truncate", "orders", "--to", "start"]]
)
def test_nothing_is_deleted_without_consent(run: Run, run_on_terminal: Run, many: Path, arguments: list[str]) -> None:
    before = bytes_of(many)

    ran = run(arguments[0], many, *arguments[1:])
    assert ran.code == 2
    assert "Pass --yes, or --dry-run to see what would be done" in ran.err
    asked = run_on_terminal(arguments[0], many, *arguments[1:], typed="no\n")
    assert asked.code == 1
    assert asked.lines[-1].endswith("? [y/N] seeklog: nothing was changed")
    assert bytes_of(many) == before


@pytest.mark.id("cut-of-a-topic")
@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--before", "end"], {0: (20, 20), 1: (20, 20)}),
        (["--before", "-5"], {0: (15, 20), 1: (15, 20)}),
        (["--before", "@2026-01-01T00:11", "--utc"], {0: (6, 20), 1: (5, 20)}),
        (["--before", "7", "--partition", "1"], {0: (0, 20), 1: (7, 20)}),
        (["--to", "-5"], {0: (0, 15), 1: (0, 15)}),
        (["--to", "start"], {0: (0, 0), 1: (0, 0)}),
        (["--to", "@2026-01-01T00:30Z", "-p", "0"], {0: (0, 15), 1: (0, 20)}),
    ],
)
def test_topic_is_truncated_at_a_point(
    run: Run, many: Path, arguments: list[str], left: dict[int, tuple[int, int]]
) -> None:
    before, whole = bytes_of(many), size(many)

    dry = run("truncate", many, "orders", *arguments, "--dry-run")
    assert (dry.code, bytes_of(many)) == (0, before)
    ran = run("truncate", many, "orders", *arguments, "--yes")

    assert (ran.code, ran.out) == (0, dry.out)
    assert offsets(many) == left
    assert whole - size(many) == sum(row["size_bytes"] for row in rows(dry.text))


def test_table_of_removals(run: Run, many: Path) -> None:
    ran = run("truncate", many, "orders", "--before", "-5", "--dry-run", "--format", "table")

    assert ran.lines == [
        "TOPIC   PARTITION  FROM OFFSET  UP TO  SEGMENTS     SIZE",
        "orders          0            0     15        15  2.23 KB",
        "orders          1            0     15        15  2.23 KB",
    ]
    assert ran.err == "would delete 30 offsets of 2 partitions: 30 whole segments, 4.45 KB\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["orders"], 2, "pass either --before or --to"),
        (["orders", "--before", "1", "--to", "2"], 2, "pass either --before or --to"),
        (["orders", "--before", "5"], 2, "choose one with --partition"),
        (["orders", "--before", "21", "-p", "0"], 4, "orders-0 has no offset 21"),
        (["orders", "--before", "@soon"], 2, "@soon is not a time"),
        (["orders", "--before", "yesterday"], 2, "is not a point in a log"),
        (["orders", "--before", "end", "-p", "9"], 4, "topic 'orders' has no partition 9"),
        (["order", "--before", "end"], 4, "did you mean 'orders'?"),
        (["__consumer_offsets", "--before", "end"], 2, "Kafka's own"),
    ],
)
def test_refused_truncation_changes_nothing(
    run: Run, many: Path, arguments: list[str], code: int, message: str
) -> None:
    before = bytes_of(many)

    ran = run("truncate", many, *arguments, "--yes")

    assert (ran.code, ran.out) == (code, b"")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert bytes_of(many) == before


def test_partition_open_in_another_process_is_skipped(run: Run, many: Path) -> None:
    with seeklog.open(many, background=False) as opened, opened.writer("orders", 1):
        cut = run("truncate", many, "orders", "--before", "end", "--yes")
        assert cut.code == 5
        assert cut.err.endswith("; close it there, then run it again\n")
        assert offsets(many) == {0: (0, 20), 1: (0, 20)}  # all or none

        retained = run("retain", many, "--yes")
        assert retained.code == 5
        assert "orders-1 skipped: process" in retained.err
        assert "deleted 20 offsets of 1 partition: " in retained.err
    assert offsets(many) == {0: (20, 20), 1: (0, 20)}


def test_topic_is_compacted(run: Run, many: Path) -> None:
    with seeklog.open(many, background=False) as opened:
        opened.alter_topic("orders", {"cleanup.policy": "compact"})
    before = bytes_of(many)

    dry = run("compact", many, "--dry-run")
    assert [(row["partition"], row["first_dirty_offset"], row["due"]) for row in rows(dry.text)] == [
        (0, 0, True),
        (1, 0, True),
    ]
    assert dry.err.startswith("would compact 2 partitions with ")
    assert bytes_of(many) == before
    assert run("compact", many).code == 2
    assert bytes_of(many) == before

    ran = run("compact", many, "orders", "--yes")
    assert ran.code == 0
    assert all(row["records_after"] < row["records_before"] for row in rows(ran.text))
    assert ran.err.startswith("removed ")
    assert size(many) < sum(len(data) for name, data in before.items() if name.endswith(".log"))
    again = run("compact", many, "orders")
    assert (again.code, again.out) == (0, b"")
    assert again.err.startswith("nothing to compact")


def test_uncompacted_topic_is_refused_with_the_setting(run: Run, many: Path) -> None:
    ran = run("compact", many, "orders", "--yes")

    assert (ran.code, ran.out) == (2, b"")
    assert f"seeklog config {many} orders --set cleanup.policy=compact" in ran.err


def test_damaged_segment_is_named_and_kept(run: Run, many: Path) -> None:
    with seeklog.open(many, background=False) as opened:
        opened.alter_topic("orders", {"cleanup.policy": "compact"})
    hurt = sorted((many / "orders-0").glob("*.log"))[2]
    data = bytearray(hurt.read_bytes())
    data[80] ^= 0xFF
    hurt.write_bytes(data)

    ran = run("compact", many, "orders", "--yes")

    assert ran.code == 3
    assert hurt.name in ran.err
    assert ran.err.splitlines()[-1].startswith("seeklog: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["delete", "orders", "--yes"],
        ["config", "orders"],
        ["config", "orders", "--set", "retention.ms=1"],
        ["groups"],
        ["lag"],
        ["reset", "group", "orders", "--to", "end"],
        ["retain", "--dry-run"],
        ["compact"],
        ["truncate", "orders", "--before", "end"],
    ],
)
def test_missing_directory_is_not_created(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    ran = run(arguments[0], "nowhere", *arguments[1:])

    assert (ran.code, ran.out) == (4, b"")
    assert ran.err == "seeklog: there is no store at nowhere; create one with: seeklog create nowhere TOPIC\n"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "arguments", [["delete", "orders"], ["retain"], ["compact"], ["truncate", "orders", "--to", "0"]]
)
def test_url_is_read_only(run: Run, arguments: list[str]) -> None:
    ran = run(arguments[0], "s3://bucket/store", *arguments[1:], "--yes")

    assert (ran.code, ran.out) == (2, b"")
    assert "is a URL, and URLs are read-only" in ran.err


@pytest.mark.parametrize(
    "arguments", [["delete", "ordres"], ["config", "ordres"], ["retain", "ordres"], ["compact", "ordres"]]
)
def test_unknown_topic_gets_a_suggestion(run: Run, many: Path, arguments: list[str]) -> None:
    ran = run(arguments[0], many, *arguments[1:])

    assert (ran.code, ran.out) == (4, b"")
    assert "there is no topic 'ordres' in " in ran.err
    assert "did you mean 'orders'?" in ran.err
