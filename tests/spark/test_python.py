"""Which Python Spark starts, with a session that seeklog did not tune."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import seeklog

SOURCE = Path(seeklog.__file__).parents[1]
SHOW = "import os, seeklog.spark; print(os.environ.get('PYSPARK_PYTHON'))"
COUNT = """
import seeklog.spark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("seeklog").option("subscribe", "orders").load("data").count())
"""


def run(program: str, *, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an environment in which nobody chose Spark's Python."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    paths = [str(SOURCE), *filter(None, [env.get("PYTHONPATH")])]
    env |= {"PYTHONPATH": os.pathsep.join(paths), **changes}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def test_import_lets_plain_session_find_source_without_activation(tmp_path: Path) -> None:
    """Goal: the `python3` on the path may be another Python, one without seeklog."""
    with seeklog.open(tmp_path / "data") as store, store.producer() as producer:
        store.create_topic("orders")
        producer.send("orders", b"x").result()
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    base = Path(sys.base_prefix) / "bin" / "python3"
    others_path = f'PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : "\\n" | grep -vxF "{SOURCE}" | paste -sd : -)'
    other.write_text(f'#!/bin/sh\n{others_path} exec "{base}" "$@"\n')
    other.chmod(0o755)

    done = run(COUNT, cwd=tmp_path, PATH=f"{other.parent}:{os.environ['PATH']}")

    assert "DATA_SOURCE_NOT_FOUND" not in done.stderr
    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TZ", "UTC", sys.executable),
        ("PYSPARK_PYTHON", "/usr/bin/theirs", "/usr/bin/theirs"),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.pyspark.python=/usr/bin/theirs pyspark-shell", "None"),
        ("PYSPARK_GATEWAY_PORT", "40000", "None"),
    ],
    ids=["undecided", "variable", "setting", "spark-submit"],
)
def test_import_chooses_python_only_where_nobody_did(tmp_path: Path, name: str, value: str, expected: str) -> None:
    done = run(SHOW, cwd=tmp_path, **{name: value})

    assert (done.stdout, done.stderr) == (f"{expected}\n", "")
