from __future__ import annotations

from pathlib import Path

import pytest

import seeklog
from cli.workbench import Run


def test_topic_is_created_with_its_configuration(run: Run, tmp_path: Path) -> None:
    ran = run("create", "data", "orders", "-p", 3, "--set", "retention.ms=1000")

    assert (ran.code, ran.out, ran.err) == (0, b"", "created topic orders with 3 partitions in data\n")
    with seeklog.open(tmp_path / "data", read_only=True) as store:
        described = store.describe_topic("orders")
    assert (len(described.partitions), described.config.retention_ms) == (3, 1000)


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_refused_create_leaves_no_files(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    ran = run("create", "data", *arguments)

    assert (ran.code, ran.out) == (2, b"")
    assert message in ran.err
    assert not (tmp_path / "data").exists()


def test_default_number_of_partitions_is_that_of_python(run: Run, tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "data", background=False) as store:
        store.create_topic("in-python")
    run("create", "data", "typed")
    run("append", "data", "appended", "--create", stdin=b"a\n")

    with seeklog.open(tmp_path / "data", read_only=True) as store:
        numbers = {name: len(store.describe_topic(name).partitions) for name in store.topics()}
    assert numbers == dict.fromkeys(("appended", "in-python", "typed"), 1)


def test_existing_topic_is_not_changed(run: Run, store: Path) -> None:
    ran = run("create", store, "orders")
    assert (ran.code, "seeklog config" in ran.err) == (1, True)
    assert run("create", store, "orders", "--if-not-exists").code == 0
