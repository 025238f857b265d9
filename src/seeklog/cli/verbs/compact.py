"""`seeklog compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.consent import consent_options
from seeklog.cli.housekeeping import do_each, partitions_of
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.log import BUFFER_BYTES, Cleanable, Compacted

if TYPE_CHECKING:
    from seeklog.log import Log
    from seeklog.names import TopicPartition
    from seeklog.store import Store


def _share(value: Any) -> str:
    return f"{value:.0%}"


DIRTY = (
    Column("topic"),
    Column("partition", is_right=True),
    Column("first_dirty_offset", "from offset", shown=amounts.count, is_right=True),
    Column("next_offset", "up to", shown=amounts.count, is_right=True),
    Column("dirty_bytes", "not compacted", shown=amounts.size, is_right=True),
    Column("clean_bytes", "compacted", shown=amounts.size, is_right=True),
    Column("dirty_ratio", "ratio", shown=_share, is_right=True),
    Column("due", shown=lambda is_due: "yes" if is_due else "no"),
)
DONE = (
    Column("topic"),
    Column("partition", is_right=True),
    Column("records_before", "records", shown=amounts.count, is_right=True),
    Column("records_after", "kept", shown=amounts.count, is_right=True),
    Column("segments_before", "segments", shown=amounts.count, is_right=True),
    Column("segments_after", "left", shown=amounts.count, is_right=True),
    Column("bytes_before", "size", shown=amounts.size, is_right=True),
    Column("bytes_after", "after", shown=amounts.size, is_right=True),
)


@verb
@opening.directory
@opening.optional_topic
@click.option(
    "--buffer",
    "buffer_bytes",
    type=click.IntRange(1),
    default=BUFFER_BYTES,
    help="Bytes of memory for keys; with fewer it takes more rounds. By default 128 MB.",
)
@consent_options
@formats
def compact(
    terminal: Terminal,
    directory: str,
    topic: str | None,
    buffer_bytes: int,
    is_dry: bool,
    is_agreed: bool,
    row_format: str | None,
    as_json: bool,
) -> None:
    """Keep the latest record of each key in a topic, or in all whose cleanup.policy holds compact, and drop older ones.

    Asks first. Offsets do not change. The last segment of a partition, which is appended to, is not touched; so what
    was just written stays. With --dry-run it is told how much was never compacted, and whether it is due by
    min.cleanable.dirty.ratio. A program that has the store open does this by itself.
    """
    opening.check_can_be_written(directory)
    with opening.open_to_read(directory) as store:
        if topic is not None:
            _check_compacts(store, topic)
        partitions = partitions_of(
            store, topic, internal=[names.CONSUMER_OFFSETS], wants=lambda config: config.compacts
        )
        found = {each: _dirty(store, each) for each in partitions}
    dirty = {each: cleanable for each, (cleanable, _) in found.items() if cleanable.dirty_bytes}
    size = amounts.size(sum(cleanable.dirty_bytes for cleanable in dirty.values()))
    what = f"{len(dirty)} partition{'' if len(dirty) == 1 else 's'} with {size} that were never compacted"
    if is_dry:
        write_rows(
            terminal, DIRTY, [_dirty_row(*each) for each in found.items()], row_format=row_format, as_json=as_json
        )
        terminal.say(f"would compact {what}" if dirty else "there is nothing to compact")
        return
    if not dirty:
        terminal.say("there is nothing to compact: what is sealed is compacted, and the last segments are not touched")
        return
    terminal.confirm(f"Compact {what}?", is_agreed=is_agreed)
    with (
        opening.open_to_write(directory) as store,
        terminal.progress("compacting", total=len(dirty), unit="partitions") as bar,
    ):

        def work(log: Log) -> Compacted:
            done = log.compact(buffer_bytes=buffer_bytes)
            bar.advance()
            return done

        done, locked = do_each(terminal, store, dirty, work)
    write_rows(terminal, DONE, [_done_row(*each) for each in done.items()], row_format=row_format, as_json=as_json)
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


def _dirty(store: Store, partition: TopicPartition) -> tuple[Cleanable, bool]:
    log = store.log(partition.topic, partition.partition)
    cleanable = log.cleanable()
    return cleanable, cleanable.is_due(log.config)


def _dirty_row(partition: TopicPartition, found: tuple[Cleanable, bool]) -> dict[str, Any]:
    cleanable, is_due = found
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "first_dirty_offset": cleanable.first_dirty_offset,
        "next_offset": cleanable.first_uncleanable_offset,
        "dirty_bytes": cleanable.dirty_bytes,
        "clean_bytes": cleanable.clean_bytes,
        "dirty_ratio": round(cleanable.dirty_ratio, 4),
        "due": is_due,
    }


def _done_row(partition: TopicPartition, done: Compacted) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "rounds": done.rounds,
        "records_before": done.records_before,
        "records_after": done.records_after,
        "segments_before": done.segments_before,
        "segments_after": done.segments_after,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
    }
