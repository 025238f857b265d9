"""Verbs about consumer groups: `seeklog groups`, `lag` and `reset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_plan, open_to_read, open_to_write
from seeklog.cli.options import Consent
from seeklog.cli.selection import offsets_at
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import PARTITION, Column, count_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import parse_place
from seeklog.errors import GroupInUse, UsageError
from seeklog.names import TopicPartition

if TYPE_CHECKING:
    from seeklog.groups.description import GroupDescription
    from seeklog.store import Store

_END_AND_LAG = (count_column("end"), count_column("lag"))
_COMMITTED = (*PARTITION, count_column("committed"), *_END_AND_LAG)
_LAST_COMMIT = Column("committed_at", "last commit")
LISTED = (
    Column("group"),
    Column("members", is_right=True),
    Column("topics", shown=lambda topics: ", ".join(topics)),
    Column("partitions", is_right=True),
    count_column("lag"),
    _LAST_COMMIT,
)
DESCRIBED = (*_COMMITTED, _LAST_COMMIT, Column("metadata"), Column("member"))
BEHIND = (Column("group"), *_COMMITTED, Column("member"))
CHANGED = (*PARTITION, count_column("old"), count_column("new"), *_END_AND_LAG)


@verb
@options.directory
@options.optional_group
@click.option("--delete", "is_doomed", is_flag=True, help="Delete the group with its offsets.")
@options.consent
@options.utc
@options.rows
def groups(
    terminal: Terminal,
    directory: str,
    group: str | None,
    is_doomed: bool,
    consent: Consent,
    utc: bool,
    row_format: str | None,
) -> None:
    """List the consumer groups of a store, or show one: its offsets, how far it is behind, and who reads.

    With --delete the group goes, with all that it has committed; asks first. A group that has members stays.
    """
    if is_doomed:
        _delete(terminal, directory, group, consent)
        return
    with open_to_read(directory) as store:
        if group is not None:
            write_rows(terminal, DESCRIBED, _described(store, group, utc), row_format=row_format)
        elif store.groups():
            write_rows(terminal, LISTED, _listed(store, utc), row_format=row_format)
        else:
            terminal.say("no group has committed anything here")


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
    committed = store.describe_group(group).committed
    for lag in store.lag(group):
        one = committed.get(TopicPartition(lag.topic, lag.partition))
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


def _delete(terminal: Terminal, directory: str, group: str | None, consent: Consent) -> None:
    if group is None:
        raise UsageError("--delete takes the name of a group")
    with open_to_plan(directory) as store:
        described = _describe_idle(store, group)
    what = f"group {group} with its offsets in {len(described.committed)} partitions"
    if consent.to(terminal, f"delete {what}", is_answer=True):
        with open_to_write(directory) as store:
            store.delete_group(group)
        terminal.say(f"deleted {what}")


def _describe_idle(store: Store, group: str) -> GroupDescription:
    """Describe a group, or refuse it if it has members, before the user is asked."""
    described = store.describe_group(group)
    if described.members:
        raise GroupInUse(f"{group} has {len(described.members)} members that consume; stop them first")
    return described


@verb
@options.directory
@options.optional_group
@options.rows
def lag(terminal: Terminal, directory: str, group: str | None, row_format: str | None) -> None:
    """Show how far a group, or each of them, is behind: offsets between what it has committed and the end.

    A partition that a member reads and that has no commit yet counts from its start.
    """
    with open_to_read(directory) as store:
        rows: list[dict[str, Any]] = [
            {
                "group": name,
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.high_watermark,
                "lag": each.lag,
                "member": each.member_id,
            }
            for name in (store.groups() if group is None else [group])
            for each in store.lag(name)
        ]
    write_rows(terminal, BEHIND, rows, row_format=row_format)
    behind = sum(row["lag"] for row in rows)
    terminal.say(f"{amounts.count(behind)} records behind in {len(rows)} partitions")


@verb
@options.directory
@options.group
@options.topic
@click.option("--to", "to", required=True, metavar="PLACE", help="An offset, -N, start, end or @TIME, such as @-15m.")
@options.partitions
@options.consent
@options.utc
@options.rows
def reset(
    terminal: Terminal,
    directory: str,
    group: str,
    topic: str,
    to: str,
    partitions: tuple[int, ...],
    consent: Consent,
    utc: bool,
    row_format: str | None,
) -> None:
    """Set where a group reads on in a topic; shows old and new offsets, and asks.

    The place is found in each partition: @-1h is the first record of the last hour, -100 a hundred before the end. The
    members of the group must have stopped.
    """
    wanted = parse_place(to, utc=utc)
    with open_to_plan(directory) as store:
        old = _describe_idle(store, group).offsets
        new = {TopicPartition(topic, at): offset for at, offset in offsets_at(store, topic, partitions, wanted).items()}
        rows = [
            {
                "topic": topic,
                "partition": at.partition,
                "old": old.get(at),
                "new": offset,
                "end": (end := store.log(topic, at.partition).high_watermark),
                "lag": end - offset,
            }
            for at, offset in new.items()
        ]
    write_rows(terminal, CHANGED, rows, row_format=row_format)
    changed = sum(old.get(at) != offset for at, offset in new.items())
    if not changed:
        terminal.say(f"{group} is there already; nothing was changed")
        return
    what = f"{group} in {amounts.counted(changed, 'partition')} of {topic}"
    if consent.to(terminal, f"set {what}"):
        with open_to_write(directory) as store:
            store.commit_offsets(group, new)
        terminal.say(f"set {what}")
