"""Spark jobs for the command line: a quiet session, and the rows that a job returns.

The output of the JVM is discarded, or goes to the terminal with -v. The progress of a job is printed by this process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seeklog.cli.exits import Damaged
from seeklog.cli.options import parse_pair
from seeklog.cli.show.amounts import count, counted
from seeklog.cli.show.coverage import write_coverage
from seeklog.cli.show.neutral import neutral_bytes
from seeklog.cli.show.rows import Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import SeeklogError, UsageError, import_failed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkFailed(SeeklogError):
    """Spark did not start, or a job failed."""


def check_can_run() -> None:
    """Raise an error with the remedy if PySpark or Java is missing."""
    try:
        importlib.import_module("pyspark")
    except ImportError as error:
        missing = 'Spark is not installed; run: pip install "seeklog[spark]"'
        raise import_failed(error, "pyspark", missing=missing) from None
    from seeklog.spark.local.java import find_java

    find_java()


@contextlib.contextmanager
def session(terminal: Terminal) -> Iterator[SparkSession]:
    """Yield a local session, and stop it at the end. Errors of Spark become `SparkFailed` with one line."""
    check_can_run()
    from seeklog.spark.local.session import session as start

    with tempfile.TemporaryFile() as output:
        try:
            with contextlib.nullcontext() if terminal.is_verbose else _redirected(output.fileno()):
                spark = start("seeklog")
        except SeeklogError:
            raise
        except Exception as error:
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines() or [str(error).partition("\n")[0]]
            raise SparkFailed(f"Spark did not start: {lines[-1].strip()}; -v shows its output") from error
    try:
        yield spark
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise SparkFailed(_main_line(error)) from error
    finally:
        spark.stop()


def _main_line(error: Exception) -> str:
    """Return the line with the cause from the long message of a failed job."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = (line.partition(": ")[2] for line in lines if line.startswith("seeklog.errors."))
    return next(ours, lines[0] if lines else type(error).__name__)


@contextlib.contextmanager
def _redirected(target: int) -> Iterator[None]:
    """Redirect stderr of this process and of the processes that it starts."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(target, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_NUMBERS = ("int", "bigint", "double")


def _plain(value: Any) -> Any:
    """Return a value as JSON can represent it."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return neutral_bytes(bytes(value))
    return value


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        return count(value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list):
        return f"({len(value)})" if value else ""
    return str(value)


# ---------------------------------------------------------------- the jobs


def run(
    job: str,
    terminal: Terminal,
    directory: str,
    topics: Sequence[str] | None,
    *,
    output: str | None = None,
    **settings: Any,
) -> None:
    """Run a job, write the rows that it returns, and raise the errors that they report."""
    with session(terminal) as spark:
        from seeklog.spark import jobs

        work = getattr(jobs, job.replace("-", "_"))
        target = () if output is None else (output,)
        frame: DataFrame = work(spark, directory, *target, topics=topics, progress=not terminal.is_quiet, **settings)
        rows = [{name: _plain(value) for name, value in row.asDict(recursive=True).items()} for row in frame.collect()]
        columns = [Column(name, shown=_shown, is_right=kind in _NUMBERS) for name, kind in frame.dtypes]
        write_rows(terminal, columns, rows)
    if job == "verify":
        errors = sum(row["severity"] == "error" for row in rows)
        if errors:
            raise Damaged(
                f"{counted(errors, 'error')}; see what a repair would do: seeklog repair {directory} --dry-run"
            )
    elif job == "reindex":
        left = sum(row["done"] in ("damaged", "refused") for row in rows)
        if left:
            raise Damaged(f"{left} of {counted(len(rows), 'segment')} not reindexed; run: seeklog verify {directory}")
    elif job == "compact":
        refused = [row for row in rows if row["done"] in ("locked", "refused")]
        if refused:
            raise SparkFailed(
                f"{len(refused)} of {counted(len(rows), 'partition')} not compacted: {refused[0]['detail']}"
            )


def archive(terminal: Terminal, directory: str, target: str, **settings: Any) -> None:
    """Archive a store, and show what is not in the archive; `settings` are passed to the job."""
    with session(terminal) as spark:
        from seeklog.spark import jobs

        done = jobs.archive(spark, directory, target, progress=not terminal.is_quiet, **settings)
    write_coverage(terminal, done)


def load_into(terminal: Terminal, directory: str, topic: str, *, options: Sequence[str], **settings: Any) -> None:
    """Append external data to a topic; `settings` are passed to the job."""
    given = dict(parse_pair(text, option="--option") for text in options)
    with session(terminal) as spark:
        from seeklog.spark import jobs

        done = jobs.load_into(spark, directory, topic, options=given, **settings)
    terminal.say(
        f"appended {counted(done.records, 'record')} to {topic}"
        if done.is_new
        else "already imported; nothing was appended"
    )


# ---------------------------------------------------------------- the payments pipeline


def payments(terminal: Terminal, directory: str, topic: str, output: str) -> int:
    """Run the example pipeline `pipelines/payments`, which is not part of the package."""
    _find_pipelines()
    with session(terminal):
        run: Any = importlib.import_module("pipelines.payments.__main__")
        try:
            # It uses the running session.
            return int(run.main(["run", directory, output, "--topic", topic]))
        except SystemExit as error:
            raise SparkFailed(str(error.code)) from error


def _find_pipelines() -> None:
    import seeklog

    for root in (Path.cwd(), Path(seeklog.__file__).parents[2]):
        if (root / "pipelines" / "payments" / "__main__.py").is_file():
            if str(root) not in sys.path:
                sys.path.append(str(root))
            # Spark's workers import it, too.
            paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
            os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*paths, str(root)]))
            return
    raise UsageError(
        "the payments pipeline is an example and not installed with seeklog; run this in a checkout of "
        "seeklog's source, next to the directory pipelines"
    )
