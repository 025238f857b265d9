from __future__ import annotations

from pathlib import Path

import seeklog
from cli.disk import bytes_of
from cli.workbench import Run
from seeklog.names import TopicPartition


def topics(store: Path) -> list[str]:
    with seeklog.open(store, read_only=True) as opened:
        return opened.topics()


def test_topic_is_deleted_after_yes(run: Run, store: Path) -> None:
    ran = run("delete", store, "orders", "--yes")

    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.startswith("deleted topic orders: 2 partitions, 20 records, ")
    assert topics(store) == ["refunds"]


def test_dry_run_reports_and_keeps_the_topic(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.commit_offsets("billing", {TopicPartition("orders", 0): 3})
    before = bytes_of(store)

    ran = run("delete", store, "orders", "--dry-run")

    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.startswith("would delete topic orders: 2 partitions, 20 records, ")
    assert ran.err.endswith(", and the committed offsets of billing\n")
    assert bytes_of(store) == before


def test_without_a_terminal_nothing_is_deleted(run: Run, store: Path) -> None:
    ran = run("delete", store, "orders")

    assert ran.code == 2
    assert "Pass --yes, or --dry-run to see what would be done" in ran.err
    assert topics(store) == ["orders", "refunds"]


def test_user_is_asked(run_on_terminal: Run, store: Path) -> None:
    refused = run_on_terminal("delete", store, "orders", typed="n\n")
    assert (refused.code, topics(store)) == (1, ["orders", "refunds"])
    assert "Delete topic orders: 2 partitions, 20 records" in refused.text
    assert "nothing was changed" in refused.text

    assert run_on_terminal("delete", store, "orders", typed="y\n").code == 0
    assert topics(store) == ["refunds"]


def test_ctrl_c_at_the_question_deletes_nothing(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("delete", store, "orders", interrupt_after="[y/N]")

    assert (ran.code, topics(store)) == (130, ["orders", "refunds"])


def test_internal_topics_are_not_deleted(run: Run, store: Path) -> None:
    ran = run("delete", store, "__consumer_offsets", "--yes")

    assert (ran.code, ran.out) == (2, b"")
    assert "Kafka's own" in ran.err
