"""`seeklog report`."""

from __future__ import annotations

import os

import click

from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Damaged
from seeklog.cli.opening import open_to_read
from seeklog.cli.show import amounts
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.log.check import Severity


@verb
@options.location
@click.argument("topics", metavar="[TOPIC]…", nargs=-1)
@click.option(
    "--output",
    "-o",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Write the page to FILE; - is stdout.",
)
@click.option(
    "--no-check", "is_quick", is_flag=True, help="Skip the check for damage; read only headers and some records."
)
@click.option(
    "--records",
    "max_records",
    type=click.IntRange(0),
    metavar="N",
    default=2_000_000,
    show_default=True,
    help="Sample at most this many records for sizes, keys and disorder.",
)
@options.utc
def report(
    terminal: Terminal, directory: str, topics: tuple[str, ...], output: str, is_quick: bool, max_records: int
) -> None:
    """Write an HTML page about a store: its segments, throughput, sizes, keys, compression, disorder, lag and damage.

    The page is a single file and loads nothing else. Without TOPIC, it covers the twenty largest topics. The store is
    only read; other processes may write to it meanwhile. Damage is shown on the page, and the exit code is 3.
    """
    from seeklog.cli.report.gather import gather
    from seeklog.cli.report.page import page
    from seeklog.cli.show.outfile import whole_file

    _check_output(output, directory)
    bar = terminal.progress("reading", unit="bytes", stopped=f"{output} was not written")
    with open_to_read(directory) as store, bar as progress:
        facts = gather(
            store, name=directory, topics=topics, check=not is_quick, max_records=max_records, progress=progress
        )
    text = page(facts, utc=terminal.utc).encode()
    if output == "-":
        terminal.write_bytes(text)
    else:
        with whole_file(output, replaces=True) as file:
            file.write(text)
    size = sum(topic.size for topic in facts.topics)
    records = sum(topic.records for topic in facts.topics)
    terminal.say(
        f"{output}: {amounts.counted(len(facts.topics), 'topic')}, {amounts.counted(records, 'record')}, "
        f"{amounts.size(size)} in {amounts.span(progress.seconds)}"
    )
    damage = sum(finding.severity is Severity.ERROR for topic in facts.topics for finding in topic.findings)
    if damage:
        ranges = amounts.counted(damage, "damaged range")
        raise Damaged(f"{ranges}, shown in red on the page; for details run: seeklog verify {directory}")


def _check_output(output: str, directory: str) -> None:
    """Refuse an output path that cannot or must not be written, before anything is read."""
    from seeklog.cli.report.page import FIRST_LINE

    if output == "-":
        return
    if os.path.isdir(output):
        raise UsageError(f"{output} is a directory; name a file, such as {os.path.join(output, 'report.html')}")
    parent = os.path.dirname(os.path.abspath(output))
    if not os.path.isdir(parent):
        raise UsageError(f"the directory {parent} does not exist; create it, or name another file")
    if f"{parent}/".startswith(f"{os.path.abspath(directory)}/"):
        raise UsageError(f"{output} is inside the store, which may only contain partitions; name a file outside")
    if os.path.exists(output):
        with open(output, "rb") as file:
            if os.path.getsize(output) and file.read(len(FIRST_LINE)) != FIRST_LINE.encode():
                raise UsageError(
                    f"{output} exists and was not written by seeklog report; name another file, or remove it"
                )
