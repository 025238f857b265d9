"""`seeklog info`."""

from __future__ import annotations

import click

from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit
from seeklog.cli.show.about import write_about
from seeklog.cli.show.log_map import Ink, draw_map, speaks_unicode
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.targets import Target, find_targets
from seeklog.errors import TopicNotFound
from seeklog.log.check import Severity, take_portrait


@verb
@options.directory
@click.argument("topic", metavar="[TOPIC]", required=False)
@click.option("--partition", "-p", type=click.IntRange(0), help="This one only.")
@click.option("--map", "as_map", is_flag=True, help="Draw segments, index points, offsets, times and damage.")
@click.option("--by", type=click.Choice(("bytes", "offsets")), default="bytes", help="What the map's width stands for.")
@click.option("--quick", is_flag=True, help="With --map: do not read every byte to look for damage.")
@click.option("--ascii", "is_ascii", is_flag=True, help="With --map: no characters beyond ASCII.")
@options.utc
@options.rows
def info(
    terminal: Terminal,
    directory: str,
    topic: str | None,
    partition: int | None,
    as_map: bool,
    by: str,
    quick: bool,
    is_ascii: bool,
    utc: bool,
    row_format: str | None,
) -> int | None:
    """Describe a store, or one topic: segments, offsets, promises, configuration and the lag of groups.

    DIR is a store, a broker's data directory, an archive or its URL, or the directory of one partition. --map draws
    each partition's log and marks LS, the log's start; RP, the recovery point: all before it was promised durable;
    HW, the high watermark: readers go up to it; LE, the log's end. It reads every byte, unless --quick is given, and
    exits with 3 where it finds damage.
    """
    targets = find_targets([directory] if topic is None else [directory, topic])
    if partition is not None:
        numbers = sorted(target.location.partition for target in targets if target.location.partition is not None)
        if targets and partition not in numbers:
            there = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise TopicNotFound(f"{topic or 'the store'} has no partition {partition}; there are {there}")
        targets = [target for target in targets if target.location.partition == partition]
    if as_map:
        return _draw(terminal, targets, by=by, is_checked=not quick, is_ascii=is_ascii, utc=utc)
    write_about(terminal, directory, targets, topic=topic, utc=utc, row_format=row_format)
    return None


def _draw(
    terminal: Terminal, targets: list[Target], *, by: str, is_checked: bool, is_ascii: bool, utc: bool
) -> int | None:
    ink = Ink(is_ascii=is_ascii or not speaks_unicode(), has_colors=terminal.has_colors)
    is_damaged = False
    with terminal.progress("looking at every byte", unit="bytes") as shown:
        for number, target in enumerate(targets):
            portrait = take_portrait(
                target.location.directory,
                config=target.location.config,
                inherited=target.location.inherited,
                files=target.files,
                is_checked=is_checked,
                advance=shown.advance,
            )
            is_damaged |= bool(portrait.problem) or any(each.severity is Severity.ERROR for each in portrait.findings)
            lines = draw_map(portrait, name=target.name, width=terminal.width, by_offsets=by == "offsets", utc=utc)
            terminal.write(("\n" if number else "") + "".join(f"{ink.render(line)}\n" for line in lines))
            if portrait.problem:
                terminal.tell(f"seeklog: {neutral(portrait.problem)}")
    return Exit.DAMAGE if is_damaged else None
