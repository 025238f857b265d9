"""`seeklog roll`."""

from __future__ import annotations

from typing import Any

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_plan, open_to_write
from seeklog.cli.selection import chosen
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import PARTITION, count_column, size_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.verbs.housekeeping import do_each
from seeklog.log import Log, LogReader, take_snapshot
from seeklog.names import TopicPartition

ROLLED = (
    *PARTITION,
    count_column("base_offset", "from offset"),
    count_column("next_offset", "up to"),
    size_column("size_bytes", "size"),
)


@verb
@options.directory
@options.topic
@options.partitions
@options.dry_run
@options.rows
def roll(terminal: Terminal, directory: str, topic: str, partitions: tuple[int, ...], is_dry: bool) -> int | None:
    """Close the active segment of each partition, and start a new one.

    A closed segment is sealed: it can be archived, compacted and deleted by retention. Shows the closed segments. Empty
    active segments are skipped. Partitions that another process is writing are skipped, too; the exit code is then 5.
    That process rolls them by segment.ms and segment.bytes.
    """
    names.check_not_internal(topic)
    with open_to_plan(directory) as store:
        wanted = [TopicPartition(topic, number) for number in chosen(store, topic, partitions)]
        if is_dry:
            rows = [{**at._asdict(), **row} for at in wanted if (row := _active(store.log(*at)))]
            write_rows(terminal, ROLLED, rows)
            terminal.say(f"would roll {amounts.counted(len(rows), 'segment')}")
            return None
    with open_to_write(directory) as store:
        done, locked = do_each(terminal, store, wanted, _roll, doing="rolling")
    rows = [{**at._asdict(), **row} for at, row in done.items() if row]
    write_rows(terminal, ROLLED, rows)
    terminal.say(f"rolled {amounts.counted(len(rows), 'segment')}")
    if locked is not None:
        raise locked
    return None


def _roll(log: Log) -> dict[str, Any]:
    """Close the active segment of a log, unless it is empty, and return it."""
    row = _active(log.reader)
    if row:
        log.roll()
    return row


def _active(log: LogReader) -> dict[str, Any]:
    """Return the active segment of a log, or nothing if it is empty."""
    segment = take_snapshot(log).view.segments[-1]
    if not segment.size:
        return {}
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size,
    }
