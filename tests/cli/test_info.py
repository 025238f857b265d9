from __future__ import annotations

import json
from pathlib import Path

import pytest

import seeklog
from cli.segmented import flip, logs_of, make_segments, state_of
from cli.workbench import Run

UTF8 = {"LC_ALL": "C.UTF-8"}
GOLDEN = Path(__file__).parent / "golden"


def test_in_a_pipe_each_topic_is_a_complete_json_line(run: Run, store: Path) -> None:
    before = state_of(store)
    with seeklog.open(store, background=False) as opened:
        before = state_of(store)
        ran = run("info", store)
        topic_id = opened.describe_topic("orders").topic_id

    orders, refunds = map(json.loads, ran.lines)
    assert (orders["topic"], orders["topic_id"], orders["records"]) == ("orders", topic_id, 20)
    first = orders["partitions"][0]
    assert {name: first[name] for name in ("log_start_offset", "high_watermark", "log_end_offset", "state")} == {
        "log_start_offset": 0,
        "high_watermark": 10,
        "log_end_offset": 10,
        "state": "ok",
    }
    assert first["segments"][0]["first"] == "2026-01-01T00:00:00.000Z"
    assert refunds["records"] == 0
    assert state_of(store) == before


def test_configuration_names_the_source_of_each_setting(run: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")

    (orders,) = map(json.loads, run("info", "data", "orders").lines)

    arguments = {row["name"]: (row["value"], row["source"]) for row in orders["config"]}
    assert arguments["segment.bytes"] == (2000, "topic")
    assert arguments["compression.type"] == ("none", "default")


def test_lag_of_groups_is_summarised(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.commit_offsets("billing", {seeklog.TopicPartition("orders", 0): 4})

    (orders,) = map(json.loads, run("info", "data", "orders").lines)

    assert orders["groups"] == [{"group": "billing", "lag": 6, "members": 0}]


def test_on_a_terminal_segments_of_a_topic_are_a_table(run_on_terminal: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")

    ran = run_on_terminal("info", "data", "orders", "--no-color")

    assert ran.code == 0
    assert ran.lines[0].startswith("orders: 1 partition, 50 records, ")
    assert sum(" sealed " in line for line in ran.lines) == 2
    assert sum(" active " in line for line in ran.lines) == 1


def test_store_has_one_line_per_partition(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("info", "data", "--no-color")

    assert ran.lines[0].startswith("data: 2 topics, 3 partitions, ")
    assert [line.split()[:2] for line in ran.lines[3:]] == [["orders", "0"], ["orders", "1"], ["refunds", "0"]]


def test_damaged_partition_is_described_as_damaged(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    path = logs_of(partition)[-1]
    path.write_bytes(path.read_bytes()[:-5])

    (orders,) = map(json.loads, run("info", "data", "orders").lines)

    assert orders["partitions"][0]["state"].startswith("damaged: ")
    assert len(orders["partitions"][0]["segments"]) == 3


@pytest.mark.parametrize("width", [40, 80, 120])
def test_map_has_the_width_of_the_terminal(run_on_terminal: Run, tmp_path: Path, width: int) -> None:
    make_segments(tmp_path / "data")

    ran = run_on_terminal("info", "data", "--map", "--no-color", "--utc", env=UTF8 | {"COLUMNS": str(width)})

    assert ran.code == 0
    assert max(map(len, ran.lines)) == width
    assert ran.text == (GOLDEN / f"map-{width}.txt").read_text()


def test_map_is_ascii_without_utf8(run_on_terminal: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    flip(logs_of(partition)[1], 730)

    for arguments, env in (([], {"LC_ALL": "C"}), (["--ascii"], UTF8)):
        ran = run_on_terminal("info", "data", "--map", "--no-color", *arguments, env={"COLUMNS": "80"} | env)
        assert ran.code == 3
        assert ran.out.isascii()
        assert ran.text == (GOLDEN / "map-ascii.txt").read_text()


def test_damage_is_red_on_a_terminal_only(run: Run, run_on_terminal: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    flip(logs_of(partition)[1], 730)

    assert "\x1b[1;31m✗" in run_on_terminal("info", "data", "--map", env=UTF8).text
    assert b"\x1b" not in run("info", "data", "--map", env=UTF8).out
    assert b"\x1b" not in run_on_terminal("info", "data", "--map", env=UTF8 | {"NO_COLOR": "1"}).out


def test_log_with_more_segments_than_columns_is_one_box(run: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data", records=700)
    path = logs_of(tmp_path / "data" / "orders-0")[20]
    flip(path, 730)

    ran = run("info", "data", "--map", env=UTF8 | {"COLUMNS": "40"})

    assert ran.code == 3
    assert max(map(len, ran.lines)) <= 40
    assert "✗" in ran.lines[3]
    assert ran.lines[3].count("│") == 2


def test_quick_skips_the_check_for_damage(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    flip(logs_of(partition)[1], 730)

    assert run("info", "data", "--map", "--quick", env=UTF8).code == 0


def test_map_by_offsets_is_to_scale_in_offsets(run: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")

    ran = run("info", "data", "--map", "--by", "offsets", env=UTF8 | {"COLUMNS": "60"})

    assert ran.code == 0
    assert ran.lines[6].split() == [
        "0",
        *(str(int(path.stem)) for path in logs_of(tmp_path / "data/orders-0")[1:]),
        "50",
    ]


def test_unknown_partition_is_reported_in_one_line(run: Run, store: Path) -> None:
    ran = run("info", "data", "orders", "--partition", "7")

    assert (ran.code, ran.err) == (4, "seeklog: orders has no partition 7; its partitions: 0 to 1\n")


def test_unknown_topic_gets_a_suggestion(run: Run, store: Path) -> None:
    ran = run("info", "data", "ordres")

    assert (ran.code, ran.out) == (4, b"")
    assert ran.err == f"seeklog: there is no topic 'ordres' in {store}; did you mean 'orders'?\n"


def test_missing_directory_is_reported_in_one_line(run: Run) -> None:
    assert run("info", "nowhere").code == 4


def test_single_record_is_counted_in_singular(run: Run, store: Path) -> None:
    assert run("append", store, "refunds", stdin=b"a\n").code == 0

    assert "refunds-0  1 segment, 1 record, " in run("info", store, "refunds", "--map").text
    assert "1 record, " in run("info", store, "refunds", "--format", "table").text
