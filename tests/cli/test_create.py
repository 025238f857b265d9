from __future__ import annotations

from pathlib import Path

import pytest

import seeklog
from cli.workbench import Run


def test_a_topic_is_made_with_its_configuration(run: Run, tmp_path: Path) -> None:
    ran = run("create", "data", "orders", "-p", 3, "--set", "retention.ms=1000")

    assert (ran.code, ran.out, ran.err) == (0, b"", "created topic orders with 3 partitions in data\n")
    with seeklog.open(tmp_path / "data", read_only=True) as store:
        described = store.describe_topic("orders")
    assert (len(described.partitions), described.config.retention_ms) == (3, 1000)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["orders", "--set", "retention.mss=1"], "did you mean retention.ms?"),
        (["orders", "--set", "foo=1"], "known settings: segment.bytes, segment.ms, "),
        (["orders", "--set", "compression.type=foo"], "compression.type must be one of none, gzip"),
        (["orders", "--set", "retention.ms"], "--set 'retention.ms' is not NAME=VALUE"),
        (["or/ders"], "or/ders"),
        (["orders", "-p", "0"], "0 is not in the range"),
        (["__consumer_offsets"], "Kafka's own"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(run: Run, tmp_path: Path, words: list[str], told: str) -> None:
    ran = run("create", "data", *words)

    assert (ran.code, ran.out) == (2, b"")
    assert told in ran.err
    assert not (tmp_path / "data").exists()


def test_a_topic_that_is_there_is_not_touched(run: Run, store: Path) -> None:
    ran = run("create", store, "orders")
    assert (ran.code, "seeklog config" in ran.err) == (1, True)
    assert run("create", store, "orders", "--if-not-exists").code == 0
