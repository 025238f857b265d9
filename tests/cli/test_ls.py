from __future__ import annotations

import json
from pathlib import Path

import seeklog
from cli.segmented import flip
from cli.workbench import MORNING_MS, Run


def test_topics_in_a_pipe_are_json_lines(run: Run, store: Path) -> None:
    ran = run("ls", store)

    assert ran.code == 0
    orders, refunds = map(json.loads, ran.lines)
    assert orders | {"size_bytes": 0} == {
        "topic": "orders",
        "partitions": 2,
        "records": 20,
        "size_bytes": 0,
        "first": "2026-01-01T00:00:00.000Z",
        "newest": "2026-01-01T00:19:00.000Z",
    }
    assert (refunds["topic"], refunds["records"], refunds["first"]) == ("refunds", 0, None)


def test_newest_is_the_largest_timestamp_wherever_it_is(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as opened, opened.writer("orders", 1) as log:
        log.append(b"from a clock that runs fast", timestamp_ms=MORNING_MS + 3_600_000)
        log.append(b"from one that is right", timestamp_ms=MORNING_MS + 1_260_000)

    orders, _ = map(json.loads, run("ls", store).lines)

    assert (orders["first"], orders["newest"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00.000Z")


def test_format_json_is_one_list(run: Run, store: Path) -> None:
    ran = run("ls", store, "--format", "json")

    assert [row["topic"] for row in json.loads(ran.text)] == ["orders", "refunds"]


def test_topics_on_a_terminal_are_a_table(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("ls", store, "--no-color")

    assert ran.code == 0
    assert [line.split()[:3] for line in ran.lines] == [
        ["TOPIC", "PARTITIONS", "RECORDS"],
        ["orders", "2", "20"],
        ["refunds", "1", "0"],
    ]


def test_missing_directory_is_not_created(run: Run, tmp_path: Path) -> None:
    ran = run("ls", "nowhere")

    assert (ran.code, ran.out) == (4, b"")
    assert ran.err == "seeklog: there is no store at nowhere; create one with: seeklog create nowhere TOPIC\n"
    assert not (tmp_path / "nowhere").exists()


def test_partition_instead_of_store_is_reported(run: Run, store: Path) -> None:
    ran = run("ls", store / "orders-0")

    assert ran.code == 4
    assert f"is partition 0 of orders; name its store: {store}" in ran.err


def test_damaged_topic_does_not_hide_the_others(run: Run, store: Path) -> None:
    flip(store / "orders-1" / "00000000000000000000.log", 80)

    ran = run("ls", store)

    assert ran.code == 3
    orders, refunds = map(json.loads, ran.lines)
    assert (orders["records"], orders["first"], orders["newest"]) == (20, None, None)
    assert refunds["topic"] == "refunds"
    assert ran.err.count("\n") == 1
    assert "orders-1/00000000000000000000.log, byte 0" in ran.err
    assert "seeklog verify" in ran.err


def test_compacted_records_are_not_counted(run: Run, tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "data", background=False) as store:
        store.create_topic("customers", partitions=1, config={"cleanup.policy": "compact", "segment.bytes": 2000})
        with store.writer("customers", 0) as log:
            for number in range(300):
                log.append(b"x", key=b"k%d" % (number % 7))
    assert run("compact", "data", "--yes").code == 0

    (listed,) = map(json.loads, run("ls", "data").lines)

    assert listed["records"] == len(run("cat", "data", "customers").lines) < 300
