"""The data source in Spark Connect, whose client sends plans to a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc")

from spark.conftest import SOURCES
from spark.workbench import make_store

# Run in another process, because a process has either a classic session or one of Connect. The session is always
# stopped: an open client keeps its process from ending.
CHILD = """
import sys
from pyspark.sql import SparkSession
path = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
try:
    frame = spark.read.format("seeklog").option("path", path).option("subscribe", "a").load()
    print("columns", ",".join(frame.columns))
    print("count", frame.count())
    print("filtered", frame.filter("offset < 10").count(), frame.count())
    print("last", max(row.offset for row in frame.collect()))
    spark.sql(f"CREATE TABLE t USING seeklog OPTIONS (path '{path}', subscribe 'a')")
    print("table", spark.sql("SELECT count(*) FROM t").first()[0])
    offsets = spark.read.format("seeklog").option("path", path).option("table", "offsets").load()
    print("offsets", offsets.agg({"record_count": "sum"}).first()[0])
    from seeklog.spark import jobs
    copied = jobs.to_lake(spark, path, path + ".lake", progress=False).agg({"records": "sum"}).first()[0]
    whole = jobs.read_lake(spark, path, path + ".lake", topics=["a"])
    print("lake", 0 < copied < 50, whole.count(), len({(row.partition, row.offset) for row in whole.collect()}))
    print("import", jobs.load_into(whole.select("key", "value"), path, "a", key="key", value="value").records)
    print("stats", jobs.stats(spark, path, progress=False).agg({"records": "sum"}).first()[0])
    try:
        spark.read.format("seeklog").option("path", path).option("subscribe", "none").load().count()
    except Exception as error:
        print("error", "seeklog.errors.TopicNotFound: there is no topic 'none' in" in str(error))
finally:
    spark.stop()
"""


@pytest.mark.usefixtures("connect_alone")
def test_connect_session_reads_like_a_classic_session(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"a": [30, 20]}, segment_bytes=500)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYSPARK_PYTHON": sys.executable}
    for word in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(word, None)

    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        env=environment,
        cwd=tmp_path,  # the server leaves files there
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.stdout.splitlines() == [
        "columns key,value,topic,partition,offset,timestamp,timestampType",
        "count 50",
        "filtered 20 50",
        "last 29",
        "table 50",
        "offsets 50",
        "lake True 50 50",
        "import 50",
        "stats 100",
        "error True",
    ], done.stderr
    assert done.returncode == 0
