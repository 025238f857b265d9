"""Runs the declarative pipeline: `python -m pipelines.payments.sdp STORE OUTPUT`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import yaml

from pipelines.payments.rules import Topics
from pipelines.payments.run import MAX_OFFSETS_PER_TRIGGER, make_topics
from seeklog.errors import SeeklogError

PROJECT = Path(__file__).resolve().parent
ROOT = PROJECT.parents[2]
SPEC = "spark-pipeline.yml"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.payments.sdp", description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("output", type=Path, help="a directory for the project, its tables, catalog and checkpoints")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=MAX_OFFSETS_PER_TRIGGER)
    parser.add_argument("--dry-run", action="store_true", help="only check that the graph of tables and sinks is sound")
    options = parser.parse_args(arguments)
    try:
        make_topics(options.store, Topics())
    except SeeklogError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 1
    output = options.output.absolute()
    spec = write_project(output, store=options.store, max_offsets_per_trigger=options.max_offsets_per_trigger)
    return run_project(spec, output=output, dry_run=options.dry_run)


def write_project(output: Path, *, store: Path, max_offsets_per_trigger: int) -> Path:
    """Copy the project with its paths filled in, and return where its spec is."""
    copy = output / "project"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "transformations", copy / "transformations", ignore=ignored, dirs_exist_ok=True)
    spec = yaml.safe_load((PROJECT / SPEC).read_text())
    spec["storage"] = (output / "storage").as_uri()
    spec["configuration"]["spark.payments.store"] = str(store.absolute())
    spec["configuration"]["spark.payments.maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    (copy / SPEC).write_text(yaml.safe_dump(spec, sort_keys=False))
    return copy / SPEC


def run_project(spec: Path, *, output: Path, dry_run: bool) -> int:
    """Run the project in a Spark of its own and return its exit code."""
    # Spark's own script finds the modules of the pipeline, and those that read the store, on this path only.
    paths = [str(ROOT), *sys.path]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent)),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path for path in paths if path)),
    }
    command = [
        f"{environment['SPARK_HOME']}/bin/spark-pipelines",
        "dry-run" if dry_run else "run",
        *("--spec", str(spec)),
        *("--remote", "local[2]"),
        # Tables outlive a run only in a catalog that does; this one is a directory.
        *("--conf", "spark.sql.catalogImplementation=hive"),
        *("--conf", f"spark.sql.warehouse.dir={(output / 'tables').as_uri()}"),
        *("--conf", "spark.ui.showConsoleProgress=false"),
        *("--conf", f"spark.driver.extraJavaOptions=-Dderby.system.home={output / 'catalog'}"),
    ]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
