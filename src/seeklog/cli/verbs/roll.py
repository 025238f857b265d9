"""`seeklog roll`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_plan, open_to_write
from seeklog.cli.selection import chosen
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import PARTITION, count_column, size_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import LogLocked
from seeklog.log import LogReader, take_snapshot
from seeklog.names import TopicPartition

if TYPE_CHECKING:
    from seeklog.store import Store

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

    A closed segment is sealed: it can be archived, compacted and deleted by retention. Shows the segments. A partition
    whose active segment is empty is left alone. A partition that another process writes is skipped; the exit code is
    then 5, and the process that writes it rolls by segment.ms or segment.bytes.
    """
    names.check_not_internal(topic)
    with open_to_plan(directory) as store:
        wanted = [TopicPartition(topic, number) for number in chosen(store, topic, partitions)]
        if is_dry:
            rows = [row for at in wanted if (row := _active(at, store.log(*at)))]
            write_rows(terminal, ROLLED, rows)
            terminal.say(f"would roll {amounts.counted(len(rows), 'segment')}")
            return None
    with open_to_write(directory) as store:
        rows, locked = _roll_each(terminal, store, wanted)
    write_rows(terminal, ROLLED, rows)
    terminal.say(f"rolled {amounts.counted(len(rows), 'segment')}")
    if locked is not None:
        raise locked
    return None


def _roll_each(
    terminal: Terminal, store: Store, wanted: list[TopicPartition]
) -> tuple[list[dict[str, Any]], LogLocked | None]:
    """Roll the partitions that no other process writes. Return the rolled segments, and the first `LogLocked`."""
    rows: list[dict[str, Any]] = []
    locked: LogLocked | None = None
    for at in wanted:
        try:
            with store.writer(*at) as log:
                row = _active(at, log.reader)
                if row:
                    log.roll()
                    rows.append(row)
        except LogLocked as error:
            locked = locked or error
            terminal.say(f"{neutral(str(at))} skipped: {error.owner} writes it")
    return rows, locked


def _active(at: TopicPartition, log: LogReader) -> dict[str, Any]:
    """Return the active segment of a partition, or nothing if it is empty."""
    segment = take_snapshot(log).view.segments[-1]
    if not segment.size:
        return {}
    return at._asdict() | {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size,
    }
