"""`seeklog dump`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit
from seeklog.cli.show import amounts
from seeklog.cli.show.dissection import Wish, dissect_log, is_log
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import json_line
from seeklog.cli.show.side_files import dissect_side, is_dumpable
from seeklog.cli.show.terminal import Terminal
from seeklog.config import INT64_MAX
from seeklog.errors import NotALog, UsageError

_COLORS = {"damage": "1;31", "gap": "33", "summary": "1"}


@verb
@click.argument("directory", metavar="FILE…|DIR…", nargs=-1, required=True)
@click.option("--records", is_flag=True, help="Show records.")
@click.option("--index", "with_index", is_flag=True, help="Show index entries, each checked against the log.")
@click.option("--hex", "as_hex", is_flag=True, help="Show the bytes of each batch, with the fields of its header.")
@click.option("--from", "start", type=click.IntRange(0), default=0, metavar="OFFSET", help="First offset.")
@click.option("--to", "stop", type=click.IntRange(0), metavar="OFFSET", help="Stop before this offset.")
@click.option("--deep", is_flag=True, help="Short for --records --index.")
@click.option("--summary", "is_short", is_flag=True, help="Show only damage and one line per file.")
@options.utc
@options.formats("text", "jsonl", default="text")
def dump(
    terminal: Terminal,
    directory: tuple[str, ...],
    records: bool,
    with_index: bool,
    as_hex: bool,
    start: int,
    stop: int | None,
    deep: bool,
    is_short: bool,
) -> int | None:
    """Show the contents of log files: batches, records, index entries, producers, seals and checkpoints.

    Reads the .log, .index, .timeindex, .txnindex, .snapshot and checkpoint files of any Kafka broker, seeklog's own
    files, and directories of them. After damage it continues with the next intact batch; the exit code is then 3.
    """
    if stop is not None and stop <= start:
        raise UsageError(f"--to {stop} must be above --from {start}")
    wish = Wish(
        records=records or deep, hex=as_hex, start=start, stop=INT64_MAX if stop is None else stop, utc=terminal.utc
    )
    paths = [path for argument in directory for path in _files(argument, with_index=with_index or deep)]
    as_lines = terminal.row_format == "jsonl"
    damages = 0
    for path in paths:
        if not as_lines:
            terminal.write(f"{neutral(path)}\n")
        for part in _parts(path, wish):
            damages += part["type"] == "damage" or part.get("is_proved") is False
            if not is_short or part["type"] in ("damage", "summary"):
                line = json_line({"file": path} | part) if as_lines else _line(part, colors=terminal.has_colors)
                terminal.write(line + "\n")
    terminal.say(f"read {amounts.counted(len(paths), 'file')}: {_found(damages)}")
    return Exit.DAMAGE if damages else None


def _found(damages: int) -> str:
    return amounts.counted(damages, "damaged range") if damages else "no damage"


def _parts(path: str, wish: Wish) -> Iterator[dict[str, Any]]:
    found = None if is_log(os.path.basename(path)) else dissect_side(path, utc=wish.utc)
    return dissect_log(path, wish) if found is None else found


def _files(argument: str, *, with_index: bool) -> Iterator[str]:
    """Yield a file, or the files of a directory and of the partitions in it."""
    if os.path.isfile(argument):
        yield argument
        return
    if not os.path.isdir(argument):
        raise NotALog(f"{argument} does not exist; name a log file or a directory")
    found = [f"{argument.rstrip('/')}/{name}" for name in sorted(os.listdir(argument))]
    files = [
        path for path in found if os.path.isfile(path) and is_dumpable(os.path.basename(path), with_index=with_index)
    ]
    inside = [path for path in found if os.path.isdir(path) and names.parse_partition_name(os.path.basename(path))]
    yield from files
    for path in inside:
        yield from _files(path, with_index=with_index)
    if not files and not inside:
        raise NotALog(f"{argument} contains no log files; name the directory of a partition or of a store")


# ---------------------------------------------------------------- as text


def _line(part: dict[str, Any], *, colors: bool) -> str:
    kind = part["type"]
    text = neutral(_SHAPES.get(kind, _plain)(part))
    style = _COLORS["damage"] if part.get("is_proved") is False else _COLORS.get(kind)
    return f"  \x1b[{style}m{text}\x1b[0m" if colors and style else f"  {text}"


def _batch(part: dict[str, Any]) -> str:
    first = part["base_offset"]
    if part["magic"] != 2:
        return f"offset {first}  @{part['position']}  {part['size']} B  magic {part['magic']}: {part['detail']}"
    facts = [
        f"offset {first}" + (f"-{part['last_offset']}" if part["last_offset"] != first else ""),
        f"@{part['position']}",
        f"{part['size']} B",
        amounts.counted(part["records"], "record"),
        part["codec"] + (f" ratio {part['ratio']}" if part["codec"] != "none" and part["ratio"] else ""),
        f"crc {part['crc']} ok",
        f"epoch {part['leader_epoch']}",
        f"{'append time' if part['timestamp_type'] == 'LogAppendTime' else 'time'} {part['max_timestamp'] or 'none'}",
    ]
    if part["late_ms"]:
        facts.append(f"{amounts.span(part['late_ms'] / 1000)} late")
    if part["producer_id"] >= 0:
        facts.append(f"producer {part['producer_id']}/{part['producer_epoch']} seq {part['base_sequence']}")
    if part["is_transactional"]:
        facts.append("transactional")
    if part["is_control"]:
        facts.append(f"control: {part.get('marker') or 'unknown'}")
    if "delete_horizon" in part:
        facts.append(f"delete horizon {part['delete_horizon']}")
    return "  ".join(facts)


def _record(part: dict[str, Any]) -> str:
    rest = {name: value for name, value in part.items() if name not in ("type", "offset")}
    return f"  {part['offset']}  {json_line(rest)}"


def _damage(part: dict[str, Any]) -> str:
    where = "" if part["position"] is None else f" at byte {part['position']}"
    size = f", {part['size']} B" if "size" in part else ""
    return f"DAMAGE{where}{size}: {part['kind']}: {part['detail']}"


def _entry(part: dict[str, Any]) -> str:
    where = f"@{part['position']}" if "position" in part else str(part["timestamp"])
    proof = {None: "no log to check it", True: "ok", False: f"WRONG: {part.get('detail')}"}[part["is_proved"]]
    return f"entry {part['entry']}  offset {part['offset']}  {where}  {proof}"


def _summary(part: dict[str, Any]) -> str:
    facts = [amounts.size(part["size"])]
    if "batches" in part:
        facts += [amounts.counted(part["batches"], "batch", "batches"), amounts.counted(part["records"], "record")]
        if part["old_batches"]:
            facts.append(f"{part['old_batches']:,} in an old format")
        if part["first_offset"] is not None:
            facts.append(f"offsets {part['first_offset']} to {part['next_offset'] - 1}")
        facts += [f"{count} {codec}" for codec, count in part["codecs"].items()]
        if part["ratio"] is not None and part["ratio"] != 1:
            facts.append(f"ratio {part['ratio']}")
        facts += [amounts.counted(part[name], *nouns) for name, nouns in _COUNTED.items() if part[name]]
    elif "entries" in part:
        facts.append(amounts.counted(part["entries"], "entry", "entries"))
    return f"= {', '.join(facts)}, {_found(part['damages'])}"


def _plain(part: dict[str, Any]) -> str:
    return f"{part['type']}  " + "  ".join(f"{name} {value}" for name, value in part.items() if name != "type")


_COUNTED = {
    "missing_offsets": ("missing offset",),
    "late_batches": ("batch out of order", "batches out of order"),
    "producers": ("producer",),
}
_SHAPES: dict[str, Callable[[dict[str, Any]], str]] = {
    "batch": _batch,
    "record": _record,
    "field": "  {position:08x}  {bytes:<24}  {name:<18} {value}".format_map,
    "bytes": "  {position:08x}  {bytes:<48} {text}".format_map,
    "damage": _damage,
    "gap": "gap: offsets {from} to {to} are missing".format_map,
    "entry": _entry,
    "summary": _summary,
}
