"""The declarative project has the same tables and topics as the queries."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("grpc")

from payments_oracle import read_topic
from payments_place import MAX_OFFSETS_PER_TRIGGER, Place
from pipelines.payments import transformations
from pipelines.payments.sdp import __main__ as launcher
from pyspark.pipelines.cli import load_pipeline_spec
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.sql import DataFrame, SparkSession


class Graph(GraphElementRegistry):
    """Records the definitions of a file."""

    def __init__(self) -> None:
        self.outputs: dict[str, Any] = {}
        self.flows: dict[str, Any] = {}

    def register_output(self, output: Any) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Any) -> None:
        self.flows[flow.target] = flow

    def register_auto_cdc_flow(self, flow: Any) -> None:
        raise NotImplementedError

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise NotImplementedError


@pytest.fixture
def graph(spark: SparkSession, undisturbed: Place) -> Iterator[Graph]:
    settings = {"spark.payments.store": str(undisturbed.store), "spark.payments.maxOffsetsPerTrigger": "1000"}
    active = SparkSession.active()  # as in the definitions
    for name, value in settings.items():
        active.conf.set(name, value)
    (path,) = (launcher.PROJECT / "transformations").glob("*.py")
    spec = importlib.util.spec_from_file_location("definitions", path)
    assert spec is not None
    assert spec.loader is not None
    found = Graph()
    with graph_element_registration_context(found):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    # A flow can read the table of another flow only when the pipeline runs.
    found.flows["merchant_windows"].func().createOrReplaceTempView("merchant_windows")
    yield found
    active.catalog.dropTempView("merchant_windows")
    for name in settings:
        active.conf.unset(name)


def test_declarative_tables_have_our_columns(spark: SparkSession, graph: Graph) -> None:
    for table, columns in {
        "payments": transformations.PAYMENTS_SCHEMA,
        "merchant_windows": transformations.WINDOWS_SCHEMA,
    }.items():
        frame: DataFrame = graph.flows[table].func()
        assert frame.isStreaming
        assert frame.schema.simpleString() == spark.createDataFrame([], columns).schema.simpleString()


def test_declarative_sinks_are_our_topics(graph: Graph) -> None:
    for sink, topic in {"dead_letters": "payments-dead-letters", "alerts": "payments-alerts"}.items():
        assert graph.outputs[sink].format == "seeklog"
        assert graph.outputs[sink].options["topic"] == topic
        assert graph.flows[sink].func().columns == ["key", "value", "headers", "timestamp"]


def test_the_launcher_fills_in_the_paths(tmp_path: Path) -> None:
    path = launcher.write_project(tmp_path / "output", store=tmp_path / "store", max_offsets_per_trigger=7)
    spec = load_pipeline_spec(path)
    assert spec.storage == (tmp_path / "output" / "storage").as_uri()
    assert spec.configuration["spark.payments.store"] == str(tmp_path / "store")
    assert spec.configuration["spark.payments.maxOffsetsPerTrigger"] == "7"
    (library,) = spec.libraries
    assert [found.name for found in path.parent.glob(library.include)] == ["payments.py"]


@pytest.mark.slow
def test_declarative_pipeline_gives_the_same_result(
    spark: SparkSession, undisturbed: Place, environment: dict[str, str], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    command = [
        *(sys.executable, "-m", "pipelines.payments.sdp", str(place.store), str(place.output)),
        *("--max-offsets-per-trigger", str(MAX_OFFSETS_PER_TRIGGER)),
    ]
    for _ in range(2):  # the second run has no new records
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        for table in ("payments", "merchant_windows"):
            # Spark reads the log of its file sink to find the valid files.
            found = spark.read.parquet(str(place.output / "tables" / table))
            expected = spark.read.parquet(str(undisturbed.output / table)).drop("batch")
            assert found.count() == expected.count()
            assert found.exceptAll(expected.select(found.columns)).isEmpty()
        ours = undisturbed.result()
        assert read_topic(place.store, "payments-dead-letters") == ours.dead_letters
        # A declarative pipeline uses the default rules, and the alerts of a batch have no order.
        many = 2000
        assert sorted(read_topic(place.store, "payments-alerts")) == sorted(
            alert for alert in ours.alerts if b"large-payment" in (alert[1] or b"") or _payments(alert) >= many
        )


def _payments(alert: Any) -> int:
    return int(json.loads(alert[1])["payments"])
