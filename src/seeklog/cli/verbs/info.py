"""`seeklog info`."""

from __future__ import annotations

import click

from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit
from seeklog.cli.show.about import write_about
from seeklog.cli.show.log_map import Ink, draw_map, has_unicode
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.targets import Target, find_targets
from seeklog.errors import TopicNotFound
from seeklog.log.check import Severity, take_portrait


@verb
@options.location
@click.argument("topic", metavar="[TOPIC]", required=False)
@click.option("--partition", "-p", type=click.IntRange(0), metavar="N", help="Only this partition.")
@click.option("--map", "as_map", is_flag=True, help="Draw segments, index points, offsets, times and damage.")
@click.option("--by", type=click.Choice(("bytes", "offsets")), default="bytes", help="Scale of the map.")
@click.option("--quick", is_flag=True, help="With --map: skip the check for damage, which reads every byte.")
@click.option("--ascii", "is_ascii", is_flag=True, help="With --map: use ASCII characters only.")
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
) -> int | None:
    """Describe a store or a topic: segments, offsets, recovery point, configuration and the lag of groups.

    DIR is a store, a broker's data directory, an archive or its URL, or the directory of one partition. --map draws
    the log of each partition and marks LS, the log start offset; RP, the recovery point, below which all records are
    durable; HW, the high watermark, where readers stop; and LE, the log end offset. Unless --quick is given, --map
    reads every byte, and the exit code is 3 if it finds damage.
    """
    targets = find_targets([directory] if topic is None else [directory, topic])
    if partition is not None:
        numbers = sorted(target.location.partition for target in targets if target.location.partition is not None)
        if targets and partition not in numbers:
            known = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise TopicNotFound(f"{topic or 'the store'} has no partition {partition}; its partitions: {known}")
        targets = [target for target in targets if target.location.partition == partition]
    if as_map:
        return _draw(terminal, targets, by=by, is_checked=not quick, is_ascii=is_ascii, utc=terminal.utc)
    write_about(terminal, directory, targets, topic=topic)
    return None


def _draw(
    terminal: Terminal, targets: list[Target], *, by: str, is_checked: bool, is_ascii: bool, utc: bool
) -> int | None:
    ink = Ink(is_ascii=is_ascii or not has_unicode(), has_colors=terminal.has_colors)
    is_damaged = False
    with terminal.progress("checking", unit="bytes") as shown:
        for number, target in enumerate(targets):
            portrait = take_portrait(
                target.location.directory,
                config=target.location.config,
                inherited=target.location.inherited,
                files=target.files,
                is_checked=is_checked,
                advance=shown.advance,
            )
            is_damaged |= bool(portrait.problem) or any(
                finding.severity is Severity.ERROR for finding in portrait.findings
            )
            lines = draw_map(
                portrait, name=target.name, width=terminal.width, by_offsets=by == "offsets", utc=terminal.utc
            )
            terminal.write(("\n" if number else "") + "".join(f"{ink.render(line)}\n" for line in lines))
            if portrait.problem:
                terminal.report(f"seeklog: {neutral(portrait.problem)}")
    return Exit.DAMAGE if is_damaged else None
