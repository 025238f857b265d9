"""`pipeline`, and `reindex --spark`. The tests share JVMs, which take seconds to start."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest

import seeklog
from cli.workbench import SOURCE, Run


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["stats", "nowhere"], 4, "there is no store at nowhere"),
        (["stats", "data", "-t", "ordres"], 4, "did you mean 'orders'?"),
        (["stats", "data", "-o", "out"], 2, "stats takes no -o"),
        (["to-lake", "data"], 2, "to-lake needs -o, a directory"),
        (["payments", "data", "-o", "out"], 4, "there is no topic 'payments'"),
        (["import", "data"], 2, "import needs --from PATH and one --topic"),
        (["stats", "data", "--key", "id"], 2, "stats does not take the options of import"),
        (["status", "data"], 2, "'status' is not one of"),
        (["compact", "data"], 2, "Pass --yes"),
        (["payments", "data", "-o", "out", "-t", "orders", "-t", "refunds"], 2, "payments takes one --topic"),
    ],
)
def test_invalid_call_is_reported_before_spark_starts(
    run: Run, store: Path, arguments: list[str], code: int, message: str
) -> None:
    # Without Java, starting Spark would fail.
    ran = run("pipeline", *arguments, env={"JAVA_HOME": "/nowhere", "PATH": "/nowhere"})

    assert (ran.code, ran.out) == (code, b"")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_missing_pyspark_is_reported_with_the_remedy(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "without" / "pyspark").mkdir(parents=True)
    (tmp_path / "without" / "pyspark" / "__init__.py").write_text("raise ModuleNotFoundError(name='pyspark')\n")
    hidden = os.pathsep.join([str(tmp_path / "without"), SOURCE])

    for arguments in (["pipeline", "stats", store], ["reindex", store, "--spark"]):
        ran = run(*arguments, env={"PYTHONPATH": hidden})
        assert (ran.code, ran.out) == (2, b"")
        assert ran.err == 'seeklog: Spark is not installed; run: pip install "seeklog[spark]"\n'


def test_missing_example_pipeline_is_reported(run: Run, store: Path, tmp_path: Path) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.create_topic("payments", partitions=1)
    package = tmp_path / "elsewhere" / "lib" / "site"
    package.mkdir(parents=True)
    (package / "seeklog").symlink_to(Path(SOURCE) / "seeklog")

    ran = run("pipeline", "payments", store, "-o", "out", env={"PYTHONPATH": str(package)})

    assert (ran.code, ran.out) == (2, b"")
    assert "the payments pipeline is an example" in ran.err


def test_jobs_run_without_output_from_spark(run: Run, store: Path) -> None:
    ran = run("pipeline", "stats", store, "-t", "orders")

    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in ran.lines]
    assert [(row["topic"], row["partition"], row["records"]) for row in rows] == [("orders", 0, 10), ("orders", 1, 10)]
    assert all(line.startswith("stats: ") for line in ran.err.splitlines())


@pytest.mark.slow
def test_verify_and_reindex_on_spark_exit_with_3_on_damage(run: Run, store: Path) -> None:
    index = next((store / "orders-0").glob("*.index"))
    index.unlink()
    mended = run("reindex", store, "orders", "--spark")
    assert mended.code == 0, mended.err
    assert "rebuilt" in mended.text
    assert index.exists()

    log = next((store / "orders-1").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    found = run("pipeline", "verify", store)
    assert found.code == 3, found.err
    assert log.name in found.text


@pytest.mark.slow
def test_payments_pipeline_runs(run: Run, tmp_path: Path) -> None:
    generate = importlib.import_module("pipelines.payments.generate")
    generate.generate(tmp_path / "data", count=500)

    ran = run("pipeline", "payments", "data", "-o", "out")

    assert ran.code == 0, ran.err
    assert "records in the topic" in ran.text
    assert len(list((tmp_path / "out" / "plots").glob("*.png"))) == 3
