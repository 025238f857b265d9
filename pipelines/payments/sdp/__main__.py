"""Runs the declarative pipeline: `python -m pipelines.payments.sdp STORE OUTPUT`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from pipelines.payments.rules import Topics
from pipelines.payments.run import MAX_OFFSETS_PER_TRIGGER, create_topics
from seeklog.errors import SeeklogError
from seeklog.spark.local.session import MEMORY, prepare

PROJECT = Path(__file__).resolve().parent
ROOT = PROJECT.parents[2]
SPEC = "spark-pipeline.yml"
MASTER = "local[2]"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.payments.sdp", description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("output", type=Path, help="the directory for the project, its tables, catalog and checkpoints")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=MAX_OFFSETS_PER_TRIGGER)
    parser.add_argument("--dry-run", action="store_true", help="only check the graph of tables and sinks")
    options = parser.parse_args(arguments)
    try:
        create_topics(options.store, Topics())
    except SeeklogError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 1
    spec = write_project(
        options.output.absolute(), store=options.store, max_offsets_per_trigger=options.max_offsets_per_trigger
    )
    return run_project(spec, dry_run=options.dry_run)


def write_project(output: Path, *, store: Path, max_offsets_per_trigger: int) -> Path:
    """Copy the project, fill in its paths, and return the path of its spec."""
    copy = output / "project"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "transformations", copy / "transformations", ignore=ignored, dirs_exist_ok=True)
    spec = yaml.safe_load((PROJECT / SPEC).read_text())
    spec["storage"] = (output / "storage").as_uri()
    spec["configuration"]["spark.payments.store"] = str(store.absolute())
    spec["configuration"]["spark.payments.maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    (copy / SPEC).write_text(yaml.safe_dump(spec, sort_keys=False))
    # Settings are in a file, because Spark 4.3 passes on only the last few of many `--conf` arguments.
    settings = {
        # The in-memory catalog would lose the tables after a run. This one is in the working directory of Spark.
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (output / "tables").as_uri(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    (copy / "conf").mkdir(exist_ok=True)
    (copy / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return copy / SPEC


def run_project(spec: Path, *, dry_run: bool) -> int:
    """Run the project in a new Spark process and return its exit code."""
    prepare(MASTER, MEMORY)  # sets JAVA_HOME and SPARK_HOME
    paths = [ROOT, *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))]
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(path.absolute()) for path in paths)),
        "SPARK_CONF_DIR": str(spec.parent / "conf"),
    }
    catalog = spec.parents[1] / "catalog"
    catalog.mkdir(exist_ok=True)
    mode = "dry-run" if dry_run else "run"
    command = [f"{environment['SPARK_HOME']}/bin/spark-pipelines", mode, "--spec", str(spec), "--remote", MASTER]
    return subprocess.run(command, env=environment, cwd=catalog, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
