"""`seeklog lag`."""

from __future__ import annotations

from typing import Any

from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal

COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", is_right=True),
    Column("committed", shown=amounts.count, is_right=True),
    Column("end", shown=amounts.count, is_right=True),
    Column("lag", shown=amounts.count, is_right=True),
    Column("member"),
)


@verb
@opening.directory
@opening.optional_group
@formats
def lag(terminal: Terminal, directory: str, group: str | None, row_format: str | None, as_json: bool) -> None:
    """Show how far a group, or each of them, is behind: offsets between what it has committed and the end.

    A partition that a member reads and that has no commit yet counts from its start.
    """
    with opening.open_to_read(directory) as store:
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
    write_rows(terminal, COLUMNS, rows, row_format=row_format, as_json=as_json)
    behind = sum(row["lag"] for row in rows)
    terminal.say(f"{amounts.count(behind)} records behind in {len(rows)} partitions")
