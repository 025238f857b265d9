"""The consumer group commands: `seeklog groups`, `lag` and `reset`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import in_a_line
from seeklog.cli.opening import open_to_plan, open_to_read, open_to_write
from seeklog.cli.options import Consent
from seeklog.cli.selection import offsets_at
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import PARTITION, Column, count_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import parse_point
from seeklog.errors import GroupInUse, GroupNotFound, UsageError
from seeklog.groups.groups import check_group_name
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
@options.location
@options.optional_group
@click.option("--delete", "deletes", is_flag=True, help="Delete the group and its committed offsets.")
@options.consent
@options.utc
@options.rows
def groups(terminal: Terminal, directory: str, group: str | None, deletes: bool, consent: Consent) -> None:
    """List the consumer groups of a store, or describe one: its committed offsets, lag and members.

    --delete deletes the group and its committed offsets; it asks first, and refuses a group with active members.
    """
    if deletes:
        _delete(terminal, directory, group, consent)
        return
    with open_to_read(directory) as store:
        if group is not None:
            write_rows(terminal, DESCRIBED, _described(store, group, terminal.utc))
        elif store.groups():
            write_rows(terminal, LISTED, _listed(store, terminal.utc))
        else:
            terminal.say("no group has committed offsets in this store")


def _listed(store: Store, utc: bool) -> Iterator[dict[str, Any]]:
    for name in store.groups():
        described = store.describe_group(name)
        commits = [commit.commit_timestamp_ms for commit in described.committed.values()]
        yield {
            "group": name,
            "members": len(described.members),
            "topics": sorted({partition.topic for partition in described.committed}),
            "partitions": len(described.committed),
            "lag": sum(part.lag for part in store.lag(name)),
            "committed_at": amounts.moment(max(commits, default=None), utc=utc),
        }


def _described(store: Store, group: str, utc: bool) -> Iterator[dict[str, Any]]:
    committed = store.describe_group(group).committed
    for lag in store.lag(group):
        commit = committed.get(TopicPartition(lag.topic, lag.partition))
        yield {
            "topic": lag.topic,
            "partition": lag.partition,
            "committed": lag.committed,
            "start": lag.log_start_offset,
            "end": lag.high_watermark,
            "lag": lag.lag,
            "committed_at": None if commit is None else amounts.moment(commit.commit_timestamp_ms, utc=utc),
            "metadata": None if commit is None else commit.metadata or None,
            "member": lag.member_id,
        }


def _delete(terminal: Terminal, directory: str, group: str | None, consent: Consent) -> None:
    if group is None:
        raise UsageError("--delete needs the name of a group")
    with open_to_plan(directory) as store:
        described = _describe_idle(store, group)
    summary = f"group {group} and its offsets in {amounts.counted(len(described.committed), 'partition')}"
    if consent.to(terminal, f"delete {summary}", is_answer=True):
        with open_to_write(directory) as store:
            store.delete_group(group)
        terminal.say(f"deleted {summary}")


def _describe_idle(store: Store, group: str) -> GroupDescription:
    """Describe a group; refuse it before the user is asked if it has members."""
    described = store.describe_group(group)
    if described.members:
        raise GroupInUse(
            f"group {group} has {amounts.counted(len(described.members), 'active member')}; stop them first"
        )
    return described


@verb
@options.location
@options.optional_group
@options.rows
def lag(terminal: Terminal, directory: str, group: str | None) -> None:
    """Show the lag of a group, or of all groups: the number of offsets from its committed offset to the end.

    A partition without a committed offset counts from its start if a member reads it.
    """
    with open_to_read(directory) as store:
        rows: list[dict[str, Any]] = [
            {
                "group": name,
                "topic": part.topic,
                "partition": part.partition,
                "committed": part.committed,
                "end": part.high_watermark,
                "lag": part.lag,
                "member": part.member_id,
            }
            for name in (store.groups() if group is None else [group])
            for part in store.lag(name)
        ]
    write_rows(terminal, BEHIND, rows)
    behind = sum(row["lag"] for row in rows)
    terminal.say(f"{amounts.counted(behind, 'record')} behind in {amounts.counted(len(rows), 'partition')}")


@verb
@options.directory
@options.group
@options.topic
@click.option("--to", "to", required=True, metavar="POINT", help="The new position: OFFSET, -N, start, end or @TIME.")
@options.partitions
@options.consent
@options.utc
@options.rows
def reset(
    terminal: Terminal, directory: str, group: str, topic: str, to: str, partitions: tuple[int, ...], consent: Consent
) -> None:
    """Set the committed offsets of a group in a topic. Shows the old and new offsets, and asks.

    The point is located in each partition: @-1h is the first record of the last hour, -100 is 100 offsets before the
    end. All members of the group must have stopped. A group that has never committed is created, so that its consumers
    begin there.
    """
    point = parse_point(to, utc=terminal.utc)
    check_group_name(group)
    missing: GroupNotFound | None = None
    old: Mapping[TopicPartition, int] = {}
    with open_to_plan(directory) as store:
        try:
            old = _describe_idle(store, group).offsets
        except GroupNotFound as error:
            missing = error
        new = {TopicPartition(topic, at): offset for at, offset in offsets_at(store, topic, partitions, point).items()}
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
    write_rows(terminal, CHANGED, rows)
    changed = sum(old.get(at) != offset for at, offset in new.items())
    if not changed:
        terminal.say(f"group {group} is already at these offsets; nothing was changed")
        return
    there = f"{amounts.counted(changed, 'partition')} of {topic}"
    if missing is None:
        change, done = f"set the offsets of group {group} in {there}", "set"
    else:
        # Names the nearest group: the name may be misspelt.
        terminal.say(in_a_line(str(missing)))
        change, done = f"create group {group} with offsets in {there}", "created"
    if consent.to(terminal, change):
        with open_to_write(directory) as store:
            store.commit_offsets(group, new)
        terminal.say(f"{done} {change.partition(' ')[2]}")
