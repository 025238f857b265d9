"""Verbs that make room: `seeklog retain`, `compact` and `truncate`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_plan, open_to_write
from seeklog.cli.options import Consent
from seeklog.cli.selection import offsets_at, partitions_of
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import PARTITION, Column, count_column, size_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import parse_place
from seeklog.errors import LogLocked, UsageError
from seeklog.log import BUFFER_BYTES
from seeklog.names import TopicPartition

if TYPE_CHECKING:
    from seeklog.log import Cleanable, Compacted, Log, Removal
    from seeklog.store import Store

Done = TypeVar("Done")


REMOVED = (
    *PARTITION,
    count_column("first_offset", "from offset"),
    count_column("next_offset", "up to"),
    count_column("segments", "segments"),
    size_column("size_bytes", "size"),
)
DIRTY = (
    *PARTITION,
    count_column("first_dirty_offset", "from offset"),
    count_column("next_offset", "up to"),
    size_column("dirty_bytes", "not compacted"),
    size_column("clean_bytes", "compacted"),
    Column("dirty_ratio", "ratio", shown=lambda ratio: f"{ratio:.0%}", is_right=True),
    Column("due", shown=lambda is_due: "yes" if is_due else "no"),
)
COMPACTED = (
    *PARTITION,
    count_column("records_before", "records"),
    count_column("records_after", "kept"),
    count_column("segments_before", "segments"),
    count_column("segments_after", "left"),
    size_column("bytes_before", "size"),
    size_column("bytes_after", "after"),
)


@verb
@options.directory
@options.optional_topic
@options.consent
@options.rows
def retain(terminal: Terminal, directory: str, topic: str | None, consent: Consent, row_format: str | None) -> None:
    """Delete what a topic, or each of them, no longer keeps by its retention.ms and retention.bytes.

    Shows what goes, and asks. Whole segments go, the last one too if all of it is too old. A program that has the store
    open does this by itself every five minutes; this is for a store that nobody has open.
    """
    if topic is not None:
        names.check_not_internal(topic)
    with open_to_plan(directory) as store:
        plans = {at: store.log(at.topic, at.partition).plan_retention() for at in partitions_of(store, topic)}
    plans = _show_removals(terminal, plans, row_format)
    if not plans:
        terminal.say("nothing is too old or too much")
    elif consent.to(terminal, f"delete {_told(plans)}"):
        with open_to_write(directory) as store:
            done, locked = _do_each(terminal, store, plans, _retain)
        terminal.say(f"deleted {_told(done)}")
        if locked is not None:
            raise locked


def _retain(log: Log) -> Removal:
    plan = log.plan_retention()
    log.roll_if_due()
    log.retain()
    return plan


@verb
@options.directory
@options.topic
@click.option("--before", "before", metavar="PLACE", help="Delete what lies before an offset, -N, start, end or @TIME.")
@click.option("--to", "to", metavar="PLACE", help="Cut the log there: the batch that holds it and all behind it go.")
@options.partitions
@options.consent
@options.utc
@options.rows
def truncate(
    terminal: Terminal,
    directory: str,
    topic: str,
    before: str | None,
    to: str | None,
    partitions: tuple[int, ...],
    consent: Consent,
    utc: bool,
    row_format: str | None,
) -> None:
    """Delete the oldest records of a topic, or cut off the newest.

    Shows what goes, and asks. With --before the records are gone at once, and the bytes of segments that lie wholly
    before the place. With --to the log ends there, and the next record gets that offset again: groups and copies that
    have read further do not notice. All partitions are done, or none if another process writes one.
    """
    names.check_not_internal(topic)
    if (before is None) == (to is None):
        raise UsageError("say either --before or --to")
    wanted = parse_place(before or to or "", utc=utc)
    with open_to_plan(directory) as store:
        offsets = offsets_at(store, topic, partitions, wanted)
        plans = {}
        for number, offset in offsets.items():
            log = store.log(topic, number)
            plan = log.plan_delete_before(offset) if to is None else log.plan_truncate_to(offset)
            plans[TopicPartition(topic, number)] = plan
    plans = _show_removals(terminal, plans, row_format)
    if not plans:
        terminal.say("there is nothing to delete")
    elif consent.to(terminal, f"delete {_told(plans)}"):
        with open_to_write(directory) as store, contextlib.ExitStack() as held:
            logs = [(at, held.enter_context(store.writer(at.topic, at.partition))) for at in plans]
            for at, writer in logs:
                if to is None:
                    writer.delete_before(offsets[at.partition])
                else:
                    writer.truncate_to(offsets[at.partition])
        terminal.say(f"deleted {_told(plans)}")


def _show_removals(
    terminal: Terminal, plans: Mapping[TopicPartition, Removal], row_format: str | None
) -> dict[TopicPartition, Removal]:
    """Show the removals, and return the plans that remove anything."""
    plans = {at: plan for at, plan in plans.items() if not plan.is_empty}
    rows = [
        at._asdict()
        | {
            "first_offset": plan.first_offset,
            "next_offset": plan.next_offset,
            "segments": plan.segment_count,
            "size_bytes": plan.size_bytes,
        }
        for at, plan in plans.items()
    ]
    write_rows(terminal, REMOVED, rows, row_format=row_format)
    return plans


def _told(removals: Mapping[TopicPartition, Removal]) -> str:
    """Return a summary of removals."""
    # Not records: compaction may have left fewer.
    offsets = sum(each.next_offset - each.first_offset for each in removals.values())
    segments = sum(each.segment_count for each in removals.values())
    size = sum(each.size_bytes for each in removals.values())
    return (
        f"{amounts.counted(offsets, 'offset')} of {amounts.counted(len(removals), 'partition')}: "
        f"{amounts.counted(segments, 'whole segment')}, {amounts.size(size)}"
    )


@verb
@options.directory
@options.optional_topic
@click.option(
    "--buffer",
    "buffer_bytes",
    type=click.IntRange(1),
    default=BUFFER_BYTES,
    help="Bytes of memory for keys; with fewer it takes more rounds. By default 128 MB.",
)
@options.consent
@options.rows
def compact(
    terminal: Terminal,
    directory: str,
    topic: str | None,
    buffer_bytes: int,
    consent: Consent,
    row_format: str | None,
) -> None:
    """Keep the latest record of each key in a topic, or in all whose cleanup.policy holds compact, and drop older ones.

    Asks first. Offsets do not change. The last segment of a partition, which is appended to, is not touched; so what
    was just written stays. With --dry-run it is told how much was never compacted, and whether it is due by
    min.cleanable.dirty.ratio. A program that has the store open does this by itself.
    """
    with open_to_plan(directory) as store:
        if topic is not None:
            _check_compacts(store, topic)
        partitions = partitions_of(
            store, topic, internal=[names.CONSUMER_OFFSETS], wants=lambda config: config.compacts
        )
        logs = {at: store.log(at.topic, at.partition) for at in partitions}
        found = {at: log.cleanable() for at, log in logs.items()}
        rows = [_dirty_row(at, found[at], is_due=found[at].is_due(log.config)) for at, log in logs.items()]
    dirty = [at for at, cleanable in found.items() if cleanable.dirty_bytes]
    if consent.is_dry:
        write_rows(terminal, DIRTY, rows, row_format=row_format)
    if not dirty:
        why = "" if consent.is_dry else ": what is sealed is compacted, and the last segments are not touched"
        terminal.say(f"there is nothing to compact{why}")
        return
    size = amounts.size(sum(found[at].dirty_bytes for at in dirty))
    if not consent.to(
        terminal, f"compact {amounts.counted(len(dirty), 'partition')} with {size} that were never compacted"
    ):
        return
    with open_to_write(directory) as store, terminal.progress("compacting", total=len(dirty), unit="partitions") as bar:

        def work(log: Log) -> Compacted:
            done = log.compact(buffer_bytes=buffer_bytes)
            bar.advance()
            return done

        done, locked = _do_each(terminal, store, dirty, work)
    write_rows(terminal, COMPACTED, [_compacted_row(*each) for each in done.items()], row_format=row_format)
    records = sum(each.removed_records for each in done.values())
    freed = sum(each.bytes_before - each.bytes_after for each in done.values())
    terminal.say(f"dropped {amounts.count(records)} records; {amounts.size(max(0, freed))} less")
    if locked is not None:
        raise locked


def _check_compacts(store: Store, topic: str) -> None:
    policy = store.describe_topic(topic).config
    if not policy.compacts:
        raise UsageError(
            f"{topic} is not compacted: its cleanup.policy is {policy.cleanup_policy}; "
            f"set it first: seeklog config {store.location} {topic} --set cleanup.policy=compact"
        )


def _dirty_row(at: TopicPartition, cleanable: Cleanable, *, is_due: bool) -> dict[str, Any]:
    return at._asdict() | {
        "first_dirty_offset": cleanable.first_dirty_offset,
        "next_offset": cleanable.first_uncleanable_offset,
        "dirty_bytes": cleanable.dirty_bytes,
        "clean_bytes": cleanable.clean_bytes,
        "dirty_ratio": round(cleanable.dirty_ratio, 4),
        "due": is_due,
    }


def _compacted_row(at: TopicPartition, done: Compacted) -> dict[str, Any]:
    # The number of rounds is in JSON alone.
    values = ("rounds", *(column.name for column in COMPACTED[len(PARTITION) :]))
    return at._asdict() | {name: getattr(done, name) for name in values}


def _do_each(
    terminal: Terminal, store: Store, partitions: Iterable[TopicPartition], work: Callable[[Log], Done]
) -> tuple[dict[TopicPartition, Done], LogLocked | None]:
    """Do work on partitions one after the other, each held meanwhile.

    A partition that another process writes is left out and reported. Return the first such error, too.
    """
    done: dict[TopicPartition, Done] = {}
    locked: LogLocked | None = None
    for at in partitions:
        try:
            with store.writer(at.topic, at.partition) as log:
                done[at] = work(log)
        except LogLocked as error:
            locked = locked or error
            terminal.say(f"{neutral(str(at))} is left out: {error.owner} writes it")
    return done, locked
