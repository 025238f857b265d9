from __future__ import annotations

import json
from pathlib import Path

import pytest

import seeklog
from cli.disk import bytes_of
from cli.workbench import Run


def configured(store: Path) -> dict[str, object]:
    with seeklog.open(store, read_only=True) as opened:
        return dict(opened.describe_topic("orders").configured)


def test_each_setting_is_shown_with_its_source(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.alter_topic("orders", {"retention.ms": 1000})

    rows = {row["name"]: row for row in map(json.loads, run("config", store, "orders").lines)}

    assert rows["retention.ms"] == {"name": "retention.ms", "value": 1000, "source": "topic"}
    assert rows["cleanup.policy"] == {"name": "cleanup.policy", "value": "delete", "source": "default"}
    assert "initial.offset" not in rows


def test_settings_are_set_and_reset(run: Run, store: Path) -> None:
    ran = run("config", store, "orders", "--set", "retention_ms=5", "--set", "segment.bytes=1000")
    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.splitlines() == [
        "orders: retention.ms is 5 (topic), was -1 (default)",
        "orders: segment.bytes is 1000 (topic), was 1073741824 (default)",
    ]

    ran = run("config", store, "orders", "--unset", "retention.ms")
    assert ran.err == "orders: retention.ms is -1 (default), was 5 (topic)\n"
    assert configured(store) == {"segment.bytes": 1000}


def test_a_topic_gets_more_partitions(run: Run, store: Path) -> None:
    ran = run("config", store, "orders", "--partitions", 5)

    assert (ran.code, ran.err) == (0, "orders: 5 partitions, was 2; new records of a key may go to another partition\n")
    with seeklog.open(store, read_only=True) as opened:
        assert len(opened.describe_topic("orders").partitions) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "retention.mss=1"], "did you mean retention.ms?"),
        (["--set", "retention.ms=soon"], "retention.ms must be a whole number"),
        (["--set", "retention.ms=1", "--set", "retention_ms=2"], "given twice"),
        (["--set", "retention.ms=1", "--unset", "retention.ms"], "given twice"),
        (["--unset", "retention"], "unknown setting"),
        (["--set", "retention.ms=1", "--partitions", "2"], "must be larger"),
        (["--set", "retention.ms"], "NAME=VALUE"),
    ],
)
def test_refused_change_changes_nothing(run: Run, store: Path, arguments: list[str], message: str) -> None:
    before = bytes_of(store)

    ran = run("config", store, "orders", *arguments)

    assert (ran.code, ran.out) == (2, b"")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert bytes_of(store) == before
