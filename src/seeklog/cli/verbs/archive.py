"""`seeklog archive`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from seeklog.cli import completing, options
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_read
from seeklog.cli.show import amounts
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError


@verb
@options.directory
@click.argument("target", metavar="TARGET", shell_complete=completing.directories)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=completing.topics)
@click.option(
    "--verify",
    type=click.Choice(["content", "size"]),
    default="content",
    show_default=True,
    help="Verify each copy by reading it back, or by its size.",
)
@click.option("--allow-gaps", is_flag=True, help="Continue if offsets were deleted before they were archived.")
@click.option("--repair", is_flag=True, help="Copy files again that are missing in the archive.")
@click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of fsspec for the URL, such as a key. Repeatable.",
)
def archive(
    terminal: Terminal,
    directory: str,
    target: str,
    topics: tuple[str, ...],
    verify: str,
    allow_gaps: bool,
    repair: bool,
    storage_options: tuple[str, ...],
) -> None:
    """Copy the sealed segments of topics, by default of all topics, to a directory or a URL such as s3://bucket/path.

    Later runs copy new segments only. Other processes may write the store meanwhile; active segments are not copied.
    The archive keeps segments that retention deletes from the store, and is never overwritten. Read it like a store:
    seeklog cat TARGET TOPIC.
    """
    parsed = _parse_storage_options(storage_options)
    with open_to_read(directory) as store, terminal.progress("archiving", unit="bytes") as bar:
        done = store.archive(
            target,
            topics=topics or None,
            storage_options=parsed or None,
            verify="size" if verify == "size" else "content",
            allow_gaps=allow_gaps,
            repair=repair,
            progress=bar.reach,
        )
    terminal.say(
        f"copied {amounts.counted(done.copied_segments, 'segment')}, {amounts.size(done.copied_bytes)}, to "
        f"{done.location} in {amounts.span(bar.seconds)}; {done.kept_segments} were archived before"
    )


def _parse_storage_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Return the options for fsspec: text, except for true, false, and JSON in braces or brackets."""
    found: dict[str, Any] = {}
    for text in pairs:
        name, value = options.parse_pair(text, option="--storage-option")
        is_json = value in ("true", "false") or value[:1] in ("{", "[")
        try:
            found[name] = json.loads(value) if is_json else value
        except ValueError:
            # The value may be a secret.
            raise UsageError(f"--storage-option {name}: a value in braces or brackets must be JSON") from None
    return found
