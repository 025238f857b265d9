"""Spark's jobs for the command line: a session that keeps quiet, and the rows that a job returns.

What the JVM says goes where its stderr went when it was started: to nowhere, or with -v to the terminal. What a job
says of its progress is this process's, and stays.
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
from seeklog.cli.show.amounts import count
from seeklog.cli.show.neutral import neutral_bytes
from seeklog.cli.show.rows import Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import SeeklogError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkFailed(SeeklogError):
    """Spark did not start, or a job of it failed."""


def check_can_run() -> None:
    """Refuse before anything is begun if PySpark or Java is missing, with the way to get it."""
    try:
        importlib.import_module("pyspark")
    except ModuleNotFoundError:
        raise UsageError('Spark is not installed; run: pip install "seeklog[spark]"') from None
    from seeklog.spark.local.java import find_java

    find_java()


@contextlib.contextmanager
def session(terminal: Terminal) -> Iterator[SparkSession]:
    """Give a local session, and stop it in the end. An error of Spark's becomes one line."""
    check_can_run()
    from seeklog.spark.local.session import session as start

    with tempfile.TemporaryFile() as said:
        try:
            with contextlib.nullcontext() if terminal.is_verbose else _redirected(said.fileno()):
                spark = start("seeklog")
        except SeeklogError:
            raise
        except Exception as error:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines() or [str(error).partition("\n")[0]]
            raise SparkFailed(f"Spark did not start: {lines[-1].strip()}; -v shows its output") from error
    try:
        yield spark
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise SparkFailed(_in_short(error)) from error
    finally:
        spark.stop()


def _in_short(error: Exception) -> str:
    """Return the line that says what went wrong, out of what Spark says when a job fails."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = (line.partition(": ")[2] for line in lines if line.startswith("seeklog.errors."))
    return next(ours, lines[0] if lines else type(error).__name__)


@contextlib.contextmanager
def _redirected(target: int) -> Iterator[None]:
    """Have what is written to the stderr of this process, and of those that it starts, go elsewhere."""
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
    """Return what JSON can say of a value."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
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
    row_format: str | None,
    output: str | None = None,
) -> None:
    """Run the job of this name, write the rows that it returns, and raise what they say of damage."""
    with session(terminal) as spark:
        from seeklog.spark import jobs

        work = getattr(jobs, job.replace("-", "_"))
        target = () if output is None else (output,)
        frame: DataFrame = work(spark, directory, *target, topics=topics, progress=not terminal.is_quiet)
        if job == "archive":
            return  # it tells what it did itself
        rows = [{name: _plain(value) for name, value in row.asDict(recursive=True).items()} for row in frame.collect()]
        columns = [Column(name, shown=_shown, is_right=kind in _NUMBERS) for name, kind in frame.dtypes]
        write_rows(terminal, columns, rows, row_format=row_format)
    if job == "verify":
        hurt = sum(row["severity"] == "error" for row in rows)
        if hurt:
            raise Damaged(f"{hurt} errors; see what a repair would do: seeklog repair {directory} --dry-run")
    elif job == "reindex":
        hurt = sum(row["done"] in ("damaged", "refused") for row in rows)
        if hurt:
            raise Damaged(f"{hurt} of {len(rows)} segments were not reindexed; run: seeklog verify {directory}")
    elif job == "compact":
        left = [row for row in rows if row["done"] in ("locked", "refused")]
        if left:
            raise SparkFailed(f"{len(left)} of {len(rows)} partitions were not compacted: {left[0]['detail']}")


def load_into(terminal: Terminal, directory: str, topic: str, *, options: Sequence[str], **words: Any) -> None:
    """Append what is somewhere else to a topic; `words` are those of the job."""
    given = dict(parse_pair(text, option="--option") for text in options)
    with session(terminal) as spark:
        from seeklog.spark import jobs

        done = jobs.load_into(spark, directory, topic, options=given, **words)
    terminal.say(
        f"appended {count(done.records)} records to {topic}"
        if done.is_new
        else "already imported; nothing was appended"
    )


# ---------------------------------------------------------------- the payments pipeline


def payments(terminal: Terminal, directory: str, topic: str, output: str) -> int:
    """Run the pipeline of `pipelines/payments`, which is an example to copy and no part of the package."""
    _find_pipelines()
    with session(terminal):
        run: Any = importlib.import_module("pipelines.payments.__main__")
        try:
            # It takes the session that runs.
            return int(run.main(["run", directory, output, "--topic", topic]))
        except SystemExit as error:
            raise SparkFailed(str(error.code)) from error


def _find_pipelines() -> None:
    import seeklog

    for place in (Path.cwd(), Path(seeklog.__file__).parents[2]):
        if (place / "pipelines" / "payments" / "__main__.py").is_file():
            if str(place) not in sys.path:
                sys.path.append(str(place))
            # Spark's workers import it, too.
            paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
            os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*paths, str(place)]))
            return
    raise UsageError(
        "the payments pipeline is an example and not installed with seeklog; run this in a checkout of "
        "seeklog's source, next to the directory pipelines"
    )
