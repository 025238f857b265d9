"""Errors common to all commands: one line, the right exit code, and no change on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import seeklog
from cli.workbench import Run, surroundings
from seeklog.cli.catalogue import VERBS

# A call of each command on a store; T is the topic.
READS = {
    "ls": ["ls", "data"],
    "info": ["info", "data", "T"],
    "cat": ["cat", "data", "T"],
    "tail": ["tail", "data", "T"],
    "seek": ["seek", "data", "T", "start"],
    "key": ["key", "data", "T", "customer_1"],
    "export": ["export", "data", "T", "-o", "out.jsonl"],
    "sql": ["sql", "data", "select count(*) from orders"],
    "dump": ["dump", "data/T-0"],
    "verify": ["verify", "data", "T"],
    "report": ["report", "data", "T", "-o", "report.html"],
    "groups": ["groups", "data"],
    "lag": ["lag", "data"],
}
WRITES = {
    "delete": ["delete", "data", "T", "--yes"],
    "config": ["config", "data", "T", "--set", "retention.ms=1"],
    "append": ["append", "data", "T"],
    "repair": ["repair", "data", "T", "--yes"],
    "reindex": ["reindex", "data", "T"],
    "retain": ["retain", "data", "T", "--yes"],
    "compact": ["compact", "data", "T", "--yes"],
    "truncate": ["truncate", "data", "T", "--before", "end", "--yes"],
    "roll": ["roll", "data", "T"],
    "archive": ["archive", "data", "cold", "T"],
    "restore": ["restore", "data", "back"],
    "reset": ["reset", "data", "billing", "T", "--to", "start", "--yes"],
    "pipeline": ["pipeline", "verify", "data"],
    "handover": ["handover", "data", "--to-kafka", "--yes"],
}
# These create their input, or have none.
ON_NOTHING = {"create", "demo", "bench", "completion"}
CALLS = READS | WRITES
WITH_TOPIC = [name for name, arguments in CALLS.items() if "T" in " ".join(arguments) and name != "dump"]


def called(name: str, *, topic: str = "orders") -> list[str]:
    return [word.replace("T", topic) if word in ("T", "data/T-0") else word for word in CALLS[name]]


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and ".lock" not in file.name
    }


def test_every_command_is_covered() -> None:
    assert set(CALLS) | ON_NOTHING == set(VERBS)


@pytest.mark.parametrize("name", CALLS)
def test_missing_directory_is_reported(run: Run, tmp_path: Path, name: str) -> None:
    ran = run(*called(name))

    assert (ran.code, ran.out) == (4, b""), ran.err
    assert ran.err.startswith("seeklog: ")
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", CALLS)
def test_file_instead_of_directory_is_reported(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "data").write_text("a shopping list")

    ran = run(*called(name))

    assert (ran.code in (1, 2, 3, 4), ran.out) == (True, b""), ran.err
    assert ran.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert (tmp_path / "data").read_text() == "a shopping list"


@pytest.mark.parametrize("name", WITH_TOPIC)
def test_unknown_topic_gets_a_suggestion(run: Run, store: Path, name: str) -> None:
    if name == "reset":
        with seeklog.open(store, background=False) as opened:
            opened.commit_offsets("billing", {seeklog.TopicPartition("orders", 0): 4})
    before = contents(store.parent)

    ran = run(*called(name, topic="order"))

    assert (ran.code, ran.out) == (4, b""), ran.err
    assert ran.err.count("\n") == 1
    assert "did you mean 'orders'?" in ran.err
    assert contents(store.parent) == before


@pytest.mark.parametrize("name", WITH_TOPIC)
def test_escape_sequence_in_a_name_is_neutralised(run_on_terminal: Run, store: Path, name: str) -> None:
    ran = run_on_terminal(*called(name, topic="x\x1b]0;gotcha\x07\u202e"), "--no-color")

    assert ran.code in (2, 4)
    assert b"\x1b]0;" not in ran.out
    assert "\u202e".encode() not in ran.out


@pytest.mark.parametrize("name", READS)
def test_readers_work_beside_a_writer(run: Run, store: Path, name: str) -> None:
    with seeklog.open(store, background=False) as opened, opened.writer("orders", 0) as log:
        log.append(b'{"id": 99}', key=b"customer_1")

        ran = run(*called(name))

    assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", ["delete", "retain", "truncate", "append"])
def test_partition_open_in_another_process_is_locked(run: Run, store: Path, name: str) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.alter_topic("orders", {"retention.ms": 0})
    with seeklog.open(store, background=False) as opened, opened.writer("orders", 0):
        arguments = [*called(name), "--partition", "0"] if name == "append" else called(name)
        ran = run(*arguments, stdin="x\n")

    assert ran.code == 5, ran.err
    assert "open for writing" in ran.err
    assert str(os.getpid()) in ran.err


@pytest.mark.parametrize("name", ["cat", "tail", "export", "sql", "verify", "dump", "report", "key"])
def test_damage_is_always_reported(run: Run, store: Path, name: str) -> None:
    for segment in store.glob("orders-*/*.log"):
        data = bytearray(segment.read_bytes())
        data[-10] ^= 1
        segment.write_bytes(data)
    arguments = [*called(name)]
    if name == "sql":
        arguments[2] = "select sum(octet_length(value)) from orders"

    ran = run(*arguments)

    assert ran.code == 3, (ran.out, ran.err)
    assert b".log" in ran.out + ran.err.encode() or "seeklog verify" in ran.err


def test_closed_stdin_is_reported(store: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m seeklog.cli append data orders <&-"],
        capture_output=True,
        cwd=store.parent,
        env=surroundings(store.parent),
        check=False,
    )

    assert done.returncode in (1, 2)
    assert done.stderr.count(b"\n") == 1
    assert b"stdin" in done.stderr


def test_directory_as_input_is_reported(run: Run, store: Path) -> None:
    ran = run("append", store, "orders", ".")

    assert (ran.code, ran.out) == (1, b"")
    assert ran.err.count("\n") == 1
