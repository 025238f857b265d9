"""`seeklog pipeline`."""

from __future__ import annotations

from typing import Any

import click

from seeklog.cli import completing, options, storage_option
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_copy
from seeklog.cli.show.terminal import UNCHANGED, Terminal
from seeklog.errors import UsageError

JOBS = ("verify", "reindex", "compact", "stats", "archive", "to-lake", "import", "payments")
_WITH_OUTPUT = {"archive": "a directory or a URL", "to-lake": "a directory", "payments": "a directory"}


@verb
@click.argument("job", metavar="JOB", type=click.Choice(JOBS))
@options.location
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    shell_complete=completing.topics,
    help="Only this topic. Repeatable. Default: all topics.",
)
@click.option(
    "--output",
    "-o",
    metavar="TARGET",
    shell_complete=completing.directories,
    help="archive, to-lake, payments: the output directory or URL.",
)
@click.option("--from", "location", metavar="PATH", help="import: the input, a file, a directory or a URL.")
@click.option("--source", default="parquet", show_default=True, help="import: the Spark format of the input.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="import: an option of the Spark format. Repeatable.",
)
@click.option("--key", metavar="SQL", help="import: expression for the key, such as a column name.")
@click.option("--value", metavar="SQL", help="import: expression for the value. Default: JSON of all other columns.")
@click.option("--timestamp", metavar="SQL", help="import: expression for the timestamp.")
@click.option(
    "--partitions",
    "create_partitions",
    type=click.IntRange(1),
    metavar="N",
    help="import: create the topic with this many partitions.",
)
@click.option("--id", "import_id", help="import: a name for this import; repeated runs append it once.")
@click.option("--all", "include_active", is_flag=True, help="archive: include active segments and offsets of groups.")
@click.option("--yes", "-y", "is_agreed", is_flag=True, help="compact: do not ask for confirmation.")
@options.rows
def pipeline(
    terminal: Terminal,
    job: str,
    directory: str,
    topics: tuple[str, ...],
    output: str | None,
    include_active: bool,
    is_agreed: bool,
    **imported: Any,
) -> int | None:
    """Run a Spark job over a store.

    \b
    verify     check every batch, index entry and seal
    reindex    rebuild wrong indexes
    compact    keep the latest record of each key; asks first
    stats      sizes, compression, throughput, key skew, disorder
    archive    copy sealed segments to -o TARGET, or with --all a backup
    to-lake    copy sealed segments to Parquet files in -o TARGET
    import     append the rows of --from to a topic
    payments   the example pipeline; writes tables and plots to -o TARGET

    Requires Java 17 or newer and pip install "seeklog[spark]", and takes some seconds to start. The commands verify,
    reindex, compact and archive do the same on one core, without Spark.
    """
    from seeklog.cli import spark_jobs

    if (output is None) == (job in _WITH_OUTPUT):
        raise UsageError(f"{job} needs -o, {_WITH_OUTPUT.get(job)}" if output is None else f"{job} takes no -o")
    if include_active and job != "archive":
        raise UsageError(f"{job} takes no --all")
    storage_options = storage_option.of(directory, output or "")
    if storage_options is not None and job not in ("verify", "archive"):
        raise UsageError(f"{job} takes no --storage-option")
    if job == "import":
        if imported["location"] is None or len(topics) != 1:
            raise UsageError("import needs --from PATH and one --topic")
        with terminal.progress(
            "the import", stopped=f"before you run it again, check whether {topics[0]} has its records"
        ):
            spark_jobs.load_into(terminal, directory, topics[0], **imported)
        return None
    if any(value not in (None, ()) for name, value in imported.items() if name != "source"):
        raise UsageError(f"{job} does not take the options of import")
    if job == "payments" and len(topics) > 1:
        raise UsageError("payments takes one --topic")
    # Checked before the JVM starts, which takes seconds.
    chosen = list(topics) or (["payments"] if job == "payments" else None)
    with open_to_copy(directory, target=output or "") as store:
        for topic in chosen or ():
            store.topic(topic)  # raises TopicNotFound
    if job == "compact":
        compacted = ", ".join(chosen) if chosen else "all compacted topics"
        terminal.confirm(f"Remove all but the latest record of each key in {compacted}?", is_agreed=is_agreed)
    left = UNCHANGED if job in ("verify", "stats") else "run it again to continue"
    with terminal.progress(f"the job {job}", stopped=left):
        if job == "payments":
            return spark_jobs.payments(terminal, directory, (chosen or [""])[0], str(output))
        if job == "archive":
            spark_jobs.archive(
                terminal,
                directory,
                str(output),
                topics=chosen,
                storage_options=storage_options,
                include_active=include_active,
            )
            return None
        more = {} if storage_options is None else {"storage_options": storage_options}
        spark_jobs.run(job, terminal, directory, chosen, output=output, **more)
    return None
