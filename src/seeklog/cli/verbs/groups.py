"""`seeklog groups`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.consent import consent_options
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import utc_option
from seeklog.errors import GroupInUse, UsageError

if TYPE_CHECKING:
    from seeklog.store import Store

LISTED = (
    Column("group"),
    Column("members", is_right=True),
    Column("topics", shown=lambda topics: ", ".join(topics)),
    Column("partitions", is_right=True),
    Column("lag", shown=amounts.count, is_right=True),
    Column("committed_at", "last commit"),
)
DESCRIBED = (
    Column("topic"),
    Column("partition", is_right=True),
    Column("committed", shown=amounts.count, is_right=True),
    Column("end", shown=amounts.count, is_right=True),
    Column("lag", shown=amounts.count, is_right=True),
    Column("committed_at", "last commit"),
    Column("metadata"),
    Column("member"),
)


@verb
@opening.directory
@opening.optional_group
@click.option("--delete", "is_doomed", is_flag=True, help="Delete the group with its offsets.")
@consent_options
@utc_option
@formats
def groups(
    terminal: Terminal,
    directory: str,
    group: str | None,
    is_doomed: bool,
    is_dry: bool,
    is_agreed: bool,
    utc: bool,
    row_format: str | None,
    as_json: bool,
) -> None:
    """List the consumer groups of a store, or show one: its offsets, how far it is behind, and who reads.

    With --delete the group goes, with all that it has committed; asks first. A group that has members stays.
    """
    if is_doomed:
        _delete(terminal, directory, group, is_dry=is_dry, is_agreed=is_agreed)
        return
    with opening.open_to_read(directory) as store:
        rows = _listed(store, utc) if group is None else _described(store, group, utc)
        columns = LISTED if group is None else DESCRIBED
        if group is None and not store.groups():
            terminal.say("no group has committed anything here")
            return
        write_rows(terminal, columns, rows, row_format=row_format, as_json=as_json)


def _listed(store: Store, utc: bool) -> Iterator[dict[str, Any]]:
    for name in store.groups():
        described = store.describe_group(name)
        commits = [each.commit_timestamp_ms for each in described.committed.values()]
        yield {
            "group": name,
            "members": len(described.members),
            "topics": sorted({partition.topic for partition in described.committed}),
            "partitions": len(described.committed),
            "lag": sum(each.lag for each in store.lag(name)),
            "committed_at": amounts.moment(max(commits, default=None), utc=utc),
        }


def _described(store: Store, group: str, utc: bool) -> Iterator[dict[str, Any]]:
    committed = {(at.topic, at.partition): each for at, each in store.describe_group(group).committed.items()}
    for lag in store.lag(group):
        one = committed.get((lag.topic, lag.partition))
        yield {
            "topic": lag.topic,
            "partition": lag.partition,
            "committed": lag.committed,
            "start": lag.log_start_offset,
            "end": lag.high_watermark,
            "lag": lag.lag,
            "committed_at": None if one is None else amounts.moment(one.commit_timestamp_ms, utc=utc),
            "metadata": None if one is None else one.metadata or None,
            "member": lag.member_id,
        }


def _delete(terminal: Terminal, directory: str, group: str | None, *, is_dry: bool, is_agreed: bool) -> None:
    if group is None:
        raise UsageError("--delete takes the name of a group")
    opening.check_can_be_written(directory)
    with opening.open_to_read(directory) as store:
        described = store.describe_group(group)
    check_idle(group, len(described.members))
    what = f"group {group} with its offsets in {len(described.committed)} partitions"
    if is_dry:
        terminal.tell(f"would delete {what}")
        return
    terminal.confirm(f"Delete {what}?", is_agreed=is_agreed)
    with opening.open_to_write(directory) as store:
        store.delete_group(group)
    terminal.say(f"deleted {what}")


def check_idle(group: str, members: int) -> None:
    """Refuse before anything is asked what would be refused afterwards."""
    if members:
        raise GroupInUse(f"{group} has {members} members that consume; stop them first")
