from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.workbench import Run


@pytest.mark.parametrize(
    ("word", "offsets"),
    [
        ("5", [5, 5]),
        ("-1", [9, 9]),
        ("start", [0, 0]),
        ("@2026-01-01T00:03", [2, 1]),
        ("@1767225660000", [1, 0]),
    ],
)
def test_point_is_located_in_every_partition(run: Run, store: Path, word: str, offsets: list[int]) -> None:
    ran = run("seek", store, "orders", word)

    assert (ran.code, ran.err) == (0, "")
    rows = [json.loads(line) for line in ran.lines]
    assert [(row["partition"], row["offset"]) for row in rows] == list(enumerate(offsets))
    for row in rows:
        assert row["segment"] == "00000000000000000000.log"
        assert row["timestamp"].startswith("2026-01-01T00:")
        assert row["position"] >= 0
        assert row["scanned_bytes"] >= 0
        assert row["scanned_batches"] >= 0
        assert row["first_us"] >= 0
        assert row["again_us"] >= 0


@pytest.mark.parametrize("word", ["end", "10", "@2030-01-01"])
def test_end_of_the_log_has_an_offset_and_no_segment(run: Run, store: Path, word: str) -> None:
    row = json.loads(run("seek", store, "orders", word, "--partition", 1).text)

    assert (row["partition"], row["offset"], row["segment"]) == (1, 10, None)


def test_output_on_a_terminal_is_a_table(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("seek", store, "orders", "5", "--no-color")

    assert ran.code == 0
    assert ran.lines[0].split("  ")[0] == "PARTITION"
    assert ran.lines[1].split()[:4] == ["0", "5", "2026-01-01T00:10:00.000Z", "00000000000000000000.log"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["order", "5"], 4, "did you mean 'orders'?"),
        (["orders", "11"], 4, "orders-0: offset 11 is out of range: valid offsets are 0 to 9"),
        (["orders", "soon"], 2, "'soon' is not a point in a log"),
        (["orders", "--x"], 2, "'--x' is not a point in a log"),
        (["orders", "@soon"], 2, "@soon is not a time"),
        (["orders", "5", "--partition", 3], 4, "has no partition 3"),
        (["orders"], 2, "Missing argument 'POINT'"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, store: Path, arguments: list[Any], code: int, message: str
) -> None:
    ran = run("seek", store, *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, b"", 1)
    assert message in ran.err
