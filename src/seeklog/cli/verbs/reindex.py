"""`seeklog reindex`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.consent import dry_run_option
from seeklog.cli.exits import Damaged
from seeklog.cli.housekeeping import partitions_of
from seeklog.cli.partitions import chosen, partitions_option
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.names import TopicPartition

if TYPE_CHECKING:
    from seeklog.cli.indexes import Checked
    from seeklog.store import Store

COLUMNS = (
    Column("topic"),
    Column("partition", is_right=True),
    Column("segment", is_right=True),
    Column("problem"),
    Column("done"),
)


@verb
@opening.directory
@opening.optional_topic
@partitions_option
@dry_run_option
@click.option("--spark", "with_spark", is_flag=True, help="Have Spark's tasks do it, many segments at a time.")
@formats
def reindex(
    terminal: Terminal,
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    is_dry: bool,
    with_spark: bool,
    row_format: str | None,
    as_json: bool,
) -> None:
    """Hold the offset and time indexes of a topic, or of all, against their logs, and make those anew that are wrong.

    Every entry is checked. An index is only advice: no record can be lost with it, and none comes back by this; for
    damage in the log itself see seeklog verify. Partitions must not be written meanwhile.
    """
    opening.check_can_be_written(directory)
    if partitions and topic is None:
        raise UsageError("--partition takes a TOPIC")
    if with_spark:
        if is_dry or partitions:
            raise UsageError("--spark takes neither --dry-run nor --partition")
        from seeklog.cli.spark_jobs import reindex as reindex_with_spark

        reindex_with_spark(terminal, directory, [topic] if topic else None, row_format=row_format, as_json=as_json)
        return
    from seeklog.cli.indexes import rebuild

    with opening.open_to_read(directory) as store:
        root = store.location
        checked = _check(terminal, store, topic, partitions)
    wrong = [each for each in checked if each.problems]
    rows = {each.path: _row(each) for each in wrong}
    if not is_dry and wrong:
        with terminal.progress("reindexing", total=len(wrong), unit="segments") as bar:
            for outcome in rebuild(root, wrong):
                bar.advance()
                rows[outcome.checked.path] |= {"done": outcome.done}
                if outcome.done == "damaged":
                    rows[outcome.checked.path]["problem"] = outcome.detail
    write_rows(terminal, COLUMNS, rows.values(), row_format=row_format, as_json=as_json)
    hurt = sum(row["done"] == "damaged" for row in rows.values())
    counted = f"{len(checked)} segment{'' if len(checked) == 1 else 's'}"
    if not wrong:
        terminal.say(f"the indexes of {counted} are what their logs say")
    elif is_dry:
        terminal.say(f"would make the indexes of {len(wrong)} of {counted} anew")
    else:
        terminal.say(f"made the indexes of {len(wrong) - hurt} of {counted} anew")
    if hurt:
        raise Damaged(
            f"{hurt} of {counted} have a damaged log, and were left as they are; see seeklog verify {directory}"
        )


def _check(terminal: Terminal, store: Store, topic: str | None, wanted: tuple[int, ...]) -> list[Checked]:
    from seeklog.cli.indexes import check

    if topic is not None:
        todo = [TopicPartition(topic, number) for number in chosen(store, topic, wanted)]
    else:
        todo = partitions_of(store, None, internal=[names.CONSUMER_OFFSETS])
    configs = {name: store.topic(name).config for name in {each.topic for each in todo}}
    found: list[Checked] = []
    with terminal.progress("checking", total=len(todo), unit="partitions") as bar:
        for partition in todo:
            found += check(store, partition, configs[partition.topic])
            bar.advance()
    return found


def _row(each: Checked) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "segment": each.base_offset,
        "file": each.path,
        "problem": each.reason,
        "done": "nothing yet",
    }
