"""`seeklog pipeline`."""

from __future__ import annotations

from typing import Any

import click

from seeklog.cli import completing, options
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_read
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError

JOBS = ("verify", "reindex", "compact", "stats", "archive", "to-lake", "import", "payments")
_WITH_OUTPUT = {"archive": "a directory or a URL", "to-lake": "a directory", "payments": "a directory"}


@verb
@click.argument("job", metavar="JOB", type=click.Choice(JOBS))
@options.directory
@click.option(
    "--topic", "-t", "topics", multiple=True, shell_complete=completing.topics, help="Only this topic; may be repeated."
)
@click.option(
    "--output",
    "-o",
    metavar="TARGET",
    shell_complete=completing.directories,
    help="Where archive, to-lake, payments put it.",
)
@click.option("--from", "location", metavar="PATH", help="import: what to read, a file, a directory or a URL.")
@click.option("--source", default="parquet", show_default=True, help="import: the format, as Spark calls it.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="import: an option of that format.")
@click.option("--key", metavar="SQL", help="import: the key, such as the name of a column.")
@click.option("--value", metavar="SQL", help="import: the value; by default the JSON of all other columns.")
@click.option("--timestamp", metavar="SQL", help="import: the time of a record.")
@click.option("--partitions", "create_partitions", type=click.IntRange(1), help="import: make the topic, with so many.")
@click.option("--id", "import_id", help="import: a name under which it is appended once, however often it is run.")
@click.option("--yes", "-y", "is_agreed", is_flag=True, help="compact: do it without asking.")
@options.rows
def pipeline(
    terminal: Terminal,
    job: str,
    directory: str,
    topics: tuple[str, ...],
    output: str | None,
    is_agreed: bool,
    row_format: str | None,
    **imported: Any,
) -> int | None:
    """Run a job of Spark's over a store.

    \b
    verify     check every batch, index entry and seal
    reindex    make the indexes what the logs say
    compact    keep the latest record of each key; asks
    stats      sizes, compression, throughput, key skew, disorder
    archive    copy sealed segments to -o TARGET
    to-lake    copy sealed segments to Parquet files in -o TARGET
    import     append what --from holds to a topic
    payments   the example pipeline, with its tables and plots in -o TARGET

    It takes Java 17 and pip install "seeklog[spark]", and some seconds to start. Where a verb of the same name is, it
    does the same without Spark, on one core.
    """
    from seeklog.cli import spark_jobs

    if (output is None) == (job in _WITH_OUTPUT):
        needs = f"{job} takes -o, {_WITH_OUTPUT.get(job)}" if output is None else f"{job} takes no -o"
        raise UsageError(needs)
    if job == "import":
        if imported["location"] is None or len(topics) != 1:
            raise UsageError("import takes --from PATH, and one --topic")
        spark_jobs.load_into(terminal, directory, topics[0], **imported)
        return None
    if any(value not in (None, ()) for name, value in imported.items() if name != "source"):
        raise UsageError(f"{job} takes none of the options of import")
    if job == "payments" and len(topics) > 1:
        raise UsageError("payments takes one --topic")
    # A JVM takes seconds to start: what is not there is told before.
    chosen = list(topics) or (["payments"] if job == "payments" else None)
    with open_to_read(directory) as store:
        for topic in chosen or ():
            store.topic(topic)  # refuses a name that is not there
    if job == "compact":
        what = ", ".join(chosen) if chosen else "all topics that are compacted"
        terminal.confirm(f"Drop all but the latest record of each key in {what}?", is_agreed=is_agreed)
    if job == "payments":
        return spark_jobs.payments(terminal, directory, (chosen or [""])[0], str(output))
    spark_jobs.run(job, terminal, directory, chosen, output=output, row_format=row_format)
    return None
