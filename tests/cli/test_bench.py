from __future__ import annotations

import json
from pathlib import Path

from cli.workbench import Run

WORKS = 6


def test_each_measurement_has_a_rate_and_leaves_no_files(run: Run, tmp_path: Path, home: Path) -> None:
    ran = run("bench", tmp_path, "--records", 1000)

    rows = [json.loads(line) for line in ran.lines]
    assert (ran.code, len(rows)) == (0, WORKS)
    assert all(row["per_second"] > 0 and row["change"] is None for row in rows)
    assert all(row["p50_us"] <= row["p99_us"] for row in rows if row["p50_us"] is not None)
    assert ran.err.startswith("1,000 records of 100 bytes, in ")
    assert list(tmp_path.iterdir()) == []
    assert (home / ".local" / "state" / "seeklog" / "bench.json").exists()


def test_result_is_compared_with_last_run_of_same_size(run: Run, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    kept = tmp_path / "state" / "seeklog" / "bench.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"records": 1000, "figures": [{"benchmark": "scan", "per_second": 1.0}]}))

    rows = {row["benchmark"]: row for row in map(json.loads, run("bench", "-n", 1000, env=state).lines)}

    assert rows["scan"]["change"] > 0
    assert rows["append one, durable"]["change"] is None
    kept.write_text(json.dumps({"records": 5000, "figures": [{"benchmark": "scan", "per_second": 1.0}]}))
    rows = {row["benchmark"]: row for row in map(json.loads, run("bench", "-n", 1000, env=state).lines)}
    assert rows["scan"]["change"] is None


def test_unreadable_or_unwritable_last_run_is_not_an_error(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "state" / "seeklog" / "bench.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("no JSON")
    assert run("bench", "-n", 1000, env={"XDG_STATE_HOME": str(tmp_path / "state")}).code == 0

    (tmp_path / "file").write_text("")
    ran = run("bench", "-n", 1000, env={"XDG_STATE_HOME": str(tmp_path / "file")})
    assert ran.code == 0
    assert "cannot save the result for the next run: " in ran.err


def test_missing_directory_is_reported(run: Run) -> None:
    ran = run("bench", "nowhere", "-n", 1000)

    assert (ran.code, ran.out) == (4, b"")
    assert ran.err.count("\n") == 1
    assert run("bench", "-n", 10).code == 2


def test_bench_ignores_seeklog_dir(run: Run, store: Path) -> None:
    before = sorted(path.name for path in store.rglob("*"))

    assert run("bench", "-n", 1000, env={"SEEKLOG_DIR": str(store)}).code == 0

    assert sorted(path.name for path in store.rglob("*")) == before


def test_ctrl_c_leaves_no_files(run_on_terminal: Run, tmp_path: Path) -> None:
    ran = run_on_terminal("bench", tmp_path, "-v", interrupt_after="durable appends")

    assert ran.code == 130
    assert list(tmp_path.iterdir()) == []
