"""`seeklog archive`."""

from __future__ import annotations

import click

from seeklog.cli import completing, opening
from seeklog.cli.app import verb
from seeklog.cli.option_types import parse_storage_options
from seeklog.cli.show import amounts
from seeklog.cli.show.terminal import Terminal


@verb
@opening.directory
@click.argument("target", metavar="TARGET", shell_complete=completing.directories)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=completing.topics)
@click.option(
    "--verify",
    type=click.Choice(["content", "size"]),
    default="content",
    show_default=True,
    help="How a copy is compared: read back whole, or by its size.",
)
@click.option("--allow-gaps", is_flag=True, help="Go on where offsets were deleted before they were archived.")
@click.option("--repair", is_flag=True, help="Copy files again that the archive has lost.")
@click.option(
    "--storage-option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="What fsspec needs for a URL: a key, an endpoint; may be repeated.",
)
def archive(
    terminal: Terminal,
    directory: str,
    target: str,
    topics: tuple[str, ...],
    verify: str,
    allow_gaps: bool,
    repair: bool,
    options: tuple[str, ...],
) -> None:
    """Copy the sealed segments of topics, by default of all, to a directory or a URL such as s3://bucket/path.

    Run again it copies what has come since. The store may be written meanwhile; the segment that is appended to is not
    copied. What is in the archive stays, also when retention deletes it here, and nothing of it is overwritten. Read it
    as any store: seeklog cat TARGET TOPIC.
    """
    storage_options = parse_storage_options(options)
    with (
        opening.open_to_read(directory) as store,
        terminal.progress("archiving", unit="bytes") as bar,
    ):
        done = store.archive(
            target,
            topics=topics or None,
            storage_options=storage_options or None,
            verify="size" if verify == "size" else "content",
            allow_gaps=allow_gaps,
            repair=repair,
            progress=bar.reach,
        )
    copied = f"{done.copied_segments} segment{'' if done.copied_segments == 1 else 's'}"
    terminal.say(
        f"copied {copied}, {amounts.size(done.copied_bytes)}, to {done.location} in {amounts.span(bar.seconds)}; "
        f"{done.kept_segments} were there already"
    )
