"""The pipeline from the command line: `python -m pipelines.payments generate | run | summary`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.payments import generate
from pipelines.payments.rules import Rules, Topics
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.verb(options)
    except SeeklogError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 1
    return 0


def _in_short(error: Exception) -> str:
    """Return the line that says what went wrong, out of what a query says when it fails."""
    lines = str(error).splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("seeklog.errors.")), lines[0])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipelines.payments", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    make = verbs.add_parser("generate", help="append made-up payments to a topic of a store")
    make.set_defaults(verb=_generate)
    make.add_argument("store", type=Path)
    make.add_argument("--count", type=int, default=100_000)
    make.add_argument("--seed", type=int, default=generate.SEED)
    make.add_argument("--per-second", type=float, default=generate.PER_SECOND, help="how dense they are in time")

    go = verbs.add_parser("run", help="process what is new, then print the summary and draw the plots")
    go.set_defaults(verb=_run)
    show = verbs.add_parser("summary", help="print the summary and draw the plots again")
    show.set_defaults(verb=_summary)
    for verb in (go, show):
        verb.add_argument("store", type=Path)
        verb.add_argument("output", type=Path, help="a directory for tables, checkpoints and plots")
        verb.add_argument("--many-payments", type=int, default=Rules.many_payments, help="a window worth an alert")
    go.add_argument("--max-offsets-per-trigger", type=int, default=25_000)
    go.add_argument("--no-summary", action="store_true")

    for verb in (make, go, show):
        verb.add_argument("--topic", default=Topics.payments)
    return parser


def _generate(options: argparse.Namespace) -> None:
    count = generate.generate(
        options.store, count=options.count, seed=options.seed, per_second=options.per_second, topic=options.topic
    )
    print(f"{count:,} records appended to {options.topic} in {options.store}")


def _run(options: argparse.Namespace) -> None:
    from pyspark.errors import StreamingQueryException

    from pipelines.payments.run import run

    with _session() as spark:
        began = time.perf_counter()
        try:
            run(
                spark,
                store=options.store,
                output=options.output,
                max_offsets_per_trigger=options.max_offsets_per_trigger,
                rules=_rules(options),
                topics=_topics(options),
            )
        except StreamingQueryException as error:
            raise SystemExit(f"payments: {_in_short(error)}") from None
        print(f"done in {time.perf_counter() - began:.1f} s")
        if not options.no_summary:
            _show(spark, options)


def _summary(options: argparse.Namespace) -> None:
    with _session() as spark:
        _show(spark, options)


def _show(spark: SparkSession, options: argparse.Namespace) -> None:
    from pipelines.payments.plots import write_plots
    from pipelines.payments.summary import describe, summarise

    summary = summarise(
        spark, store=options.store, output=options.output, rules=_rules(options), topics=_topics(options)
    )
    print()
    print(describe(summary))
    print()
    for path in write_plots(summary, options.output / "plots"):
        print(f"drawn: {path}")


def _rules(options: argparse.Namespace) -> Rules:
    return Rules(many_payments=options.many_payments)


def _topics(options: argparse.Namespace) -> Topics:
    return Topics(
        payments=options.topic, dead_letters=f"{options.topic}-dead-letters", alerts=f"{options.topic}-alerts"
    )


@contextmanager
def _session() -> Iterator[SparkSession]:
    from seeklog.spark import session

    spark = session("payments")
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
