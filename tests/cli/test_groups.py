"""`groups`, `lag` and `reset`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.disk import bytes_of
from cli.workbench import Run
from seeklog.names import TopicPartition


@pytest.fixture
def billed(store: Path) -> Path:
    """The store, with a group that has read a part of `orders`."""
    with seeklog.open(store, background=False) as opened:
        opened.commit_offsets("billing", {TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 7})
    return store


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def committed(store: Path) -> dict[int, int]:
    with seeklog.open(store, read_only=True) as opened:
        return {at.partition: offset for at, offset in opened.describe_group("billing").offsets.items()}


def test_groups_are_listed(run: Run, billed: Path) -> None:
    ran = run("groups", billed)

    (row,) = rows(ran.text)
    assert row.pop("committed_at").endswith("Z")
    assert row == {"group": "billing", "members": 0, "topics": ["orders"], "partitions": 2, "lag": 9}


def test_group_is_described(run: Run, billed: Path) -> None:
    first, second = rows(run("groups", billed, "billing").text)

    assert (first["partition"], first["committed"], first["end"], first["lag"]) == (0, 4, 10, 6)
    assert (second["partition"], second["committed"], second["end"], second["lag"]) == (1, 7, 10, 3)


def test_lag_on_a_terminal_is_a_table_with_a_total(run_on_terminal: Run, billed: Path) -> None:
    ran = run_on_terminal("lag", billed, "--no-color")

    assert ran.code == 0
    assert ran.lines == [
        "GROUP    TOPIC   PARTITION  COMMITTED  END  LAG  MEMBER",
        "billing  orders          0          4   10    6",
        "billing  orders          1          7   10    3",
        "9 records behind in 2 partitions",
    ]


def test_store_without_groups_has_no_lag(run: Run, store: Path) -> None:
    ran = run("lag", store)

    assert (ran.code, ran.out, ran.err) == (0, b"", "0 records behind in 0 partitions\n")


@pytest.mark.parametrize("arguments", [["groups"], ["lag"], ["groups", "--delete", "--yes"]])
def test_unknown_group_gets_a_suggestion(run: Run, billed: Path, arguments: list[str]) -> None:
    ran = run(arguments[0], billed, "biling", *arguments[1:])

    assert (ran.code, ran.out) == (4, b"")
    assert "did you mean 'billing'?" in ran.err


def test_group_is_deleted_after_yes(run: Run, billed: Path) -> None:
    before = bytes_of(billed)
    dry = run("groups", billed, "billing", "--delete", "--dry-run")
    assert (dry.code, dry.err) == (0, "would delete group billing and its offsets in 2 partitions\n")
    assert run("groups", billed, "billing", "--delete").code == 2
    assert bytes_of(billed) == before

    assert run("groups", billed, "billing", "--delete", "--yes").code == 0
    assert run("groups", billed).out == b""


def test_delete_needs_a_name(run: Run, billed: Path) -> None:
    assert run("groups", billed, "--delete", "--yes").code == 2


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--to", "-3"], {0: 7, 1: 7}),
        (["--to", "start"], {0: 0, 1: 0}),
        (["--to", "end"], {0: 10, 1: 10}),
        # Records are a minute apart; even numbers are in partition 0.
        (["--to", "@2026-01-01T00:05", "--utc"], {0: 3, 1: 2}),
        (["--to", "@now"], {0: 10, 1: 10}),
        (["--to", "9", "-p", "1"], {0: 4, 1: 9}),
    ],
)
def test_group_is_reset_to_a_point(run: Run, billed: Path, arguments: list[str], found: dict[int, int]) -> None:
    ran = run("reset", billed, "billing", "orders", *arguments, "--yes")

    assert ran.code == 0
    assert committed(billed) == found


def test_dry_reset_shows_old_and_new_offsets(run: Run, billed: Path) -> None:
    before = bytes_of(billed)

    ran = run("reset", billed, "billing", "orders", "--to", "-3", "--dry-run")

    assert (ran.code, ran.err) == (0, "would set the offsets of group billing in 1 partition of orders\n")
    assert rows(ran.text) == [
        {"topic": "orders", "partition": 0, "old": 4, "new": 7, "end": 10, "lag": 3},
        {"topic": "orders", "partition": 1, "old": 7, "new": 7, "end": 10, "lag": 3},
    ]
    assert bytes_of(billed) == before


def test_reset_asks(run: Run, run_on_terminal: Run, billed: Path) -> None:
    assert run("reset", billed, "billing", "orders", "--to", "start").code == 2
    assert run_on_terminal("reset", billed, "billing", "orders", "--to", "start", typed="\n").code == 1
    assert committed(billed) == {0: 4, 1: 7}

    assert run_on_terminal("reset", billed, "billing", "orders", "--to", "start", typed="yes\n").code == 0
    assert committed(billed) == {0: 0, 1: 0}


def test_reset_creates_a_group_that_never_committed(run: Run, store: Path) -> None:
    ran = run("reset", store, "billing", "orders", "--to", "-3", "--yes")

    assert (ran.code, ran.err.splitlines()[-1]) == (0, "created group billing with offsets in 2 partitions of orders")
    assert [row["old"] for row in rows(ran.text)] == [None, None]
    assert committed(store) == {0: 7, 1: 7}


def test_dry_reset_of_a_new_group_names_the_nearest_and_writes_nothing(run: Run, billed: Path) -> None:
    before = bytes_of(billed)

    ran = run("reset", billed, "biling", "orders", "--to", "start", "--dry-run")

    assert (ran.code, len(ran.lines)) == (0, 2)
    assert ran.err.splitlines() == [
        f"there is no group 'biling' in {billed}; did you mean 'billing'?",
        "would create group biling with offsets in 2 partitions of orders",
    ]
    assert bytes_of(billed) == before


def test_reset_refuses_an_invalid_group_name_before_it_asks(run: Run, store: Path) -> None:
    ran = run("reset", store, "", "orders", "--to", "start", "--dry-run")

    assert (ran.code, ran.out) == (2, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["orders", "--to", "5"], 2, "choose one with --partition"),
        (["orders", "--to", "11", "-p", "1"], 4, "orders-1 has no offset 11; valid offsets are 0 to 10"),
        (["orders", "--to", "start", "-p", "2"], 4, "topic 'orders' has no partition 2; its partitions: 0, 1"),
        (["orders", "--to", "soon"], 2, "is not a point in a log"),
        (["orders", "--to", "@soon"], 2, "@soon is not a time"),
        (["orders"], 2, "Missing option '--to'"),
        (["order", "--to", "start"], 4, "did you mean 'orders'?"),
    ],
)
def test_refused_reset_changes_nothing(run: Run, billed: Path, arguments: list[str], code: int, message: str) -> None:
    ran = run("reset", billed, "billing", *arguments, "--yes")

    assert (ran.code, ran.out) == (code, b"")
    assert message in ran.err
    assert committed(billed) == {0: 4, 1: 7}


def test_group_with_active_members_is_not_changed(run: Run, billed: Path) -> None:
    with (
        seeklog.open(billed, background=False) as opened,
        opened.consumer(["orders"], group="billing") as consumer,
    ):
        consumer.poll(timeout_ms=0)

        for arguments in (
            ["reset", billed, "billing", "orders", "--to", "end"],
            ["groups", billed, "billing", "--delete"],
        ):
            ran = run(*arguments, "--yes")
            assert (ran.code, ran.out) == (5, b"")
            assert "group billing has 1 active member; stop them first" in ran.err
        member = rows(run("lag", billed).text)[0]["member"]
        assert member is not None


def test_escape_sequence_in_a_name_is_neutralised(run_on_terminal: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.commit_offsets("bill\u202egni", {TopicPartition("orders", 0): 1})

    ran = run_on_terminal("groups", store, "--no-color")

    assert "bill\\u202egni" in ran.text
    assert "\u202e" not in ran.text


def test_store_without_groups_is_reported(run: Run, store: Path) -> None:
    ran = run("groups", store)

    assert (ran.code, ran.out, ran.err) == (0, b"", "no group has committed offsets in this store\n")
