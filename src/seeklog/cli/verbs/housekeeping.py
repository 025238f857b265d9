"""The commands that delete records: `seeklog retain`, `compact` and `truncate`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import methodcaller
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
from seeklog.cli.times import parse_point
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
EXPIRED = (*REMOVED, Column("causes", "because", shown=", ".join))
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
def retain(terminal: Terminal, directory: str, topic: str | None, consent: Consent) -> None:
    """Delete the segments of a topic, or of all topics, that exceed retention.ms or retention.bytes.

    Shows the segments, and asks. Only whole segments are deleted, including the last one if all its records are too
    old. A process that has the store open for writing does this every five minutes; the command is for stores that no
    process has open.
    """
    if topic is not None:
        names.check_not_internal(topic)
    with open_to_plan(directory) as store:
        plans = {at: store.log(at.topic, at.partition).plan_retention() for at in partitions_of(store, topic)}
    plans = _show_removals(terminal, plans, columns=EXPIRED)
    if not plans:
        terminal.say("no segment exceeds its retention")
    elif consent.to(terminal, f"delete {_summary(plans)}"):
        with open_to_write(directory) as store:
            done, locked = do_each(terminal, store, plans, _retain, doing="deleting")
        terminal.say(f"deleted {_summary(done)}")
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
@click.option("--before", "before", metavar="POINT", help="Delete records before this offset, -N, start, end or @TIME.")
@click.option("--to", "to", metavar="POINT", help="Delete records from this point on, from the start of its batch.")
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
) -> None:
    """Delete the oldest or the newest records of a topic.

    Shows what would be deleted, and asks. --before hides the records at once and frees the segments that end before
    the point. --to ends the log at the point, and the next records reuse the deleted offsets; groups and copies that
    have read past the point do not notice. If another process writes one of the partitions, none is changed.
    """
    names.check_not_internal(topic)
    if (before is None) == (to is None):
        raise UsageError("pass either --before or --to")
    point = parse_point(before or to or "", utc=terminal.utc)
    with open_to_plan(directory) as store:
        offsets = offsets_at(store, topic, partitions, point)
        plans = {}
        for number, offset in offsets.items():
            log = store.log(topic, number)
            plan = log.plan_delete_before(offset) if to is None else log.plan_truncate_to(offset)
            plans[TopicPartition(topic, number)] = plan
    plans = _show_removals(terminal, plans)
    if not plans:
        terminal.say("nothing to delete")
    elif consent.to(terminal, f"delete {_summary(plans)}"):
        with open_to_write(directory) as store, contextlib.ExitStack() as held:
            logs = [(at, held.enter_context(store.writer(at.topic, at.partition))) for at in plans]
            # A point such as -100 is another one once a log was truncated: the same command may delete more.
            left = f"before you run it again, compare the offsets: seeklog info {directory} {topic}"
            bar = terminal.progress("truncating", total=len(logs), unit="partitions", stopped=left)
            with bar:
                for at, writer in bar.over(logs):
                    if to is None:
                        writer.delete_before(offsets[at.partition])
                    else:
                        writer.truncate_to(offsets[at.partition])
        terminal.say(f"deleted {_summary(plans)}")


def _show_removals(
    terminal: Terminal, plans: Mapping[TopicPartition, Removal], *, columns: Sequence[Column] = REMOVED
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
        | ({"causes": list(plan.causes)} if plan.causes else {})
        for at, plan in plans.items()
    ]
    write_rows(terminal, columns, rows)
    return plans


def _summary(removals: Mapping[TopicPartition, Removal]) -> str:
    # Offsets, because compaction may have left fewer records.
    offsets = sum(removal.next_offset - removal.first_offset for removal in removals.values())
    segments = sum(removal.segment_count for removal in removals.values())
    size = sum(removal.size_bytes for removal in removals.values())
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
    metavar="BYTES",
    default=BUFFER_BYTES,
    help="Memory for keys; with less, compaction takes more rounds. Default: 128 MB.",
)
@options.consent
@options.rows
def compact(terminal: Terminal, directory: str, topic: str | None, buffer_bytes: int, consent: Consent) -> None:
    """Compact a topic, or all topics whose cleanup.policy includes compact: keep only the latest record of each key.

    Asks first. Offsets do not change. The active segment of a partition is not compacted. --dry-run shows how much is
    not compacted yet, and whether compaction is due by min.cleanable.dirty.ratio. A process that has the store open
    for writing compacts it automatically.
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
        write_rows(terminal, DIRTY, rows)
    if not dirty:
        why = "" if consent.is_dry else ": all sealed segments are compacted"
        terminal.say(f"nothing to compact{why}")
        return
    size = amounts.size(sum(found[at].dirty_bytes for at in dirty))
    if not consent.to(terminal, f"compact {amounts.counted(len(dirty), 'partition')} with {size} not compacted yet"):
        return
    with open_to_write(directory) as store:
        work: Callable[[Log], Compacted] = methodcaller("compact", buffer_bytes=buffer_bytes)
        done, locked = do_each(terminal, store, dirty, work, doing="compacting")
    write_rows(terminal, COMPACTED, [_compacted_row(*item) for item in done.items()])
    records = sum(compacted.removed_records for compacted in done.values())
    freed = sum(compacted.bytes_before - compacted.bytes_after for compacted in done.values())
    terminal.say(f"removed {amounts.counted(records, 'record')}, freed {amounts.size(max(0, freed))}")
    if locked is not None:
        raise locked


def _check_compacts(store: Store, topic: str) -> None:
    policy = store.describe_topic(topic).config
    if not policy.compacts:
        raise UsageError(
            f"{topic} is not compacted: its cleanup.policy is {policy.cleanup_policy}; "
            f"set that first: seeklog config {store.location} {topic} --set cleanup.policy=compact"
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
    # Only JSON has the number of rounds.
    values = ("rounds", *(column.name for column in COMPACTED[len(PARTITION) :]))
    return at._asdict() | {name: getattr(done, name) for name in values}


def do_each(
    terminal: Terminal, store: Store, partitions: Collection[TopicPartition], work: Callable[[Log], Done], *, doing: str
) -> tuple[dict[TopicPartition, Done], LogLocked | None]:
    """Do work on each partition with its log open for writing; return the results and the first `LogLocked`.

    A partition that another process writes is reported and skipped.
    """
    done: dict[TopicPartition, Done] = {}
    locked: LogLocked | None = None
    bar = terminal.progress(doing, total=len(partitions), unit="partitions", stopped="run it again for the others")
    with bar:
        for at in bar.over(partitions):
            try:
                with store.writer(at.topic, at.partition) as log:
                    done[at] = work(log)
            except LogLocked as error:
                locked = locked or error
                terminal.say(f"{neutral(str(at))} skipped: {error.owner} writes it")
    return done, locked
