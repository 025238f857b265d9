"""`seeklog archive` and `seeklog restore`."""

from __future__ import annotations

import click

from seeklog.cli import completing, options, storage_option
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_copy
from seeklog.cli.show import amounts
from seeklog.cli.show.coverage import write_coverage
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.terminal import UNCHANGED, Terminal
from seeklog.topics.description import Restored


@verb
@options.location
@click.argument("target", metavar="TARGET", shell_complete=completing.directories)
@click.argument("topics", metavar="[TOPIC]…", nargs=-1, shell_complete=completing.topics)
@click.option(
    "--all",
    "include_active",
    is_flag=True,
    help="Make a backup: include active segments, up to the recovery point, and the offsets of groups.",
)
@click.option(
    "--verify",
    type=click.Choice(["content", "size"]),
    default="content",
    show_default=True,
    help="Verify each copy by reading it back, or by its size.",
)
@click.option("--allow-gaps", is_flag=True, help="Continue if offsets were deleted before they were archived.")
@click.option("--repair", is_flag=True, help="Copy files that are missing from the archive again.")
@options.utc
@options.rows
def archive(
    terminal: Terminal,
    directory: str,
    target: str,
    topics: tuple[str, ...],
    include_active: bool,
    verify: str,
    allow_gaps: bool,
    repair: bool,
) -> None:
    """Copy topics, by default all of them, to an archive: a directory, or a URL such as s3://bucket/path.

    Only sealed segments are copied. With --all the archive is a backup: it also gets the records of active segments and
    the offsets of groups. Other processes may write to the store meanwhile. Run the command again to add new segments;
    it prints how many records of each partition are still missing from the archive.

    Segments stay in the archive when retention deletes them from the store. Read an archive like a store, with seeklog
    cat TARGET TOPIC, or turn it back into one with seeklog restore TARGET DIR.
    """
    left = "what was copied is not part of the archive yet; run it again to continue"
    with (
        open_to_copy(directory, target=target) as store,
        terminal.progress("archiving", unit="bytes", stopped=left) as bar,
    ):
        done = store.archive(
            target,
            topics=topics or None,
            storage_options=storage_option.of_url(target),
            verify="size" if verify == "size" else "content",
            allow_gaps=allow_gaps,
            repair=repair,
            include_active=include_active,
            progress=bar.reach,
        )
    terminal.say(
        f"copied {amounts.counted(done.copied_segments, 'segment')}, {amounts.size(done.copied_bytes)}, to "
        f"{done.location} in {amounts.span(bar.seconds)}; {done.kept_segments} were archived before"
    )
    write_coverage(terminal, done)


@verb
@click.argument("location", metavar="ARCHIVE", shell_complete=completing.directories)
@click.argument("target", metavar="DIR", shell_complete=completing.directories)
@click.argument("topics", metavar="[TOPIC]…", nargs=-1)
@options.storage
@options.dry_run
def restore(terminal: Terminal, location: str, target: str, topics: tuple[str, ...], is_dry: bool) -> None:
    """Restore topics, by default all of them, from an archive to a new store in DIR.

    ARCHIVE is a directory or a URL. DIR must be empty or not exist. Topics keep their ids and settings, records keep
    their offsets, and groups keep their committed offsets. New records get the offsets after the restored ones.

    Every byte is checked before DIR becomes a store. To continue an interrupted restore, run the command again. With
    --dry-run, it checks that no file is missing from the archive, and writes nothing.
    """
    from seeklog.store.restoring import restore as restore_to

    left = UNCHANGED if is_dry else f"{neutral(target)} is not a store yet; run it again to continue"
    with terminal.progress("restoring", unit="bytes", stopped=left) as bar:
        done = restore_to(
            location,
            target,
            topics=topics or None,
            storage_options=storage_option.of(location),
            dry_run=is_dry,
            progress=bar.reach,
        )
    doing = "would restore" if is_dry else "restored"
    took = "" if is_dry else f" in {amounts.span(bar.seconds)}"
    (terminal.report if is_dry else terminal.say)(
        f"{doing} {amounts.counted(len(done.topics), 'topic')}, {amounts.counted(done.partitions, 'partition')}, "
        f"{amounts.counted(done.segments, 'segment')}, {amounts.counted(done.records, 'record')}, "
        f"{amounts.size(done.bytes)}, to {neutral(done.directory)}{took}"
    )
    _report_lacks(terminal, done)


def _report_lacks(terminal: Terminal, done: Restored) -> None:
    for gap in done.gaps:
        terminal.say(
            f"{gap.topic}-{gap.partition} lacks offsets {gap.first_offset} to {gap.next_offset - 1}: they were deleted "
            "before they were archived"
        )
    for moved in done.moved_offsets:
        terminal.say(
            f"group {neutral(moved.group)} continues in {moved.topic}-{moved.partition} at {moved.now}, not "
            f"{moved.was}: the records between are not in the archive"
        )
    for app in done.torn_transactions:
        terminal.say(f"the last transaction of {neutral(app)} is only partly in the archive; it is not appended again")
