from __future__ import annotations

import json
from pathlib import Path

from cli.workbench import Run


def test_in_a_pipe_it_lists_topics_as_json_lines(run: Run, store: Path) -> None:
    ran = run("ls", store)

    assert ran.code == 0
    orders, refunds = map(json.loads, ran.lines)
    assert orders | {"size_bytes": 0} == {
        "topic": "orders",
        "partitions": 2,
        "records": 20,
        "size_bytes": 0,
        "oldest": "2026-01-01T00:00:00.000Z",
        "newest": "2026-01-01T00:19:00.000Z",
    }
    assert (refunds["topic"], refunds["records"], refunds["oldest"]) == ("refunds", 0, None)


def test_on_a_terminal_it_lists_topics_as_a_table(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("ls", store, "--no-color")

    assert ran.code == 0
    assert [line.split()[:3] for line in ran.lines] == [
        ["TOPIC", "PARTITIONS", "RECORDS"],
        ["orders", "2", "20"],
        ["refunds", "1", "0"],
    ]


def test_a_directory_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    ran = run("ls", "nowhere")

    assert (ran.code, ran.out) == (4, b"")
    assert ran.err == "seeklog: there is no store at nowhere; make one with: seeklog create nowhere TOPIC\n"
    assert not (tmp_path / "nowhere").exists()


def test_a_partition_is_told_from_a_store(run: Run, store: Path) -> None:
    ran = run("ls", store / "orders-0")

    assert ran.code == 4
    assert f"is partition 0 of orders; name its store: {store}" in ran.err
