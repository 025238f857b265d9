"""Write the pages that are generated from the code: docs/cli.md and docs/configuration.md.

`python docs/reference.py` writes them. docs/check.py fails when they do not match the code.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from seeklog.cli.catalogue import GROUPS, Entry
from seeklog.cli.exits import Exit
from seeklog.config import LogConfig

DOCS = Path(__file__).resolve().parent
MADE = "<!-- generated from the code by docs/reference.py: edit the code, not this page -->"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with its text."""
    yield DOCS / "cli.md", "\n".join(_command_line())
    yield DOCS / "configuration.md", "\n".join(_configuration())


# ---------------------------------------------------------------- the command line


COMMAND_LINE = f"""\
# Command line

{MADE}

`pip install "seeklog[cli]"` installs the command `seeklog`. Data goes to stdout, messages go to stderr. Lists are
printed as a table on a terminal and as JSON lines in a pipe. Every command accepts `-h`, `-q`, `-v` and `--no-color`;
the environment variable `NO_COLOR` also turns colours off.

`DIR` is a store (a directory of topics), a broker's data directory or, for reading, the URL of an archive. If `DIR` is
omitted, `SEEKLOG_DIR` is used, or else `dir` in `~/.config/seeklog.toml`. The only other setting in that file is
`utc = true`. A first argument that contains a slash is always a `DIR`, unless it has several words, as a query has.

## Points and times

A POINT is a position in a log.

| point | meaning |
|---|---|
| `1234` | the offset 1234 |
| `-100` | 100 offsets before the end |
| `start`, `end` | the start or the end of the log |
| `@2026-01-02T03:04`, `@2026-01-02` | the first record at or after this time: local, or UTC with `--utc` |
| `@2026-01-02T03:04+01:00` | the same, with an explicit time zone |
| `@-15m`, `@-2h`, `@-7d` | 15 minutes, 2 hours, 7 days ago |
| `@today`, `@yesterday`, `@now` | midnight of that day, or the current time |
| `@1700000000000` | milliseconds since 1970 |

## Exit codes

| code | meaning |
|---|---|"""


def _command_line() -> Iterator[str]:
    yield COMMAND_LINE
    yield from (f"| {code.value} | {when} |" for code, when in _EXITS.items())
    yield ""
    for heading, entries in GROUPS.items():
        yield from (f"## {heading}", "")
        for entry in entries:
            yield from _verb(entry)


_EXITS = {
    Exit.OK: "success",
    Exit.FAILED: "failure",
    Exit.USAGE: "invalid command line; nothing was done",
    Exit.DAMAGE: "damage found",
    Exit.NOT_FOUND: "no such store, topic, group, key or offset",
    Exit.LOCKED: "the log or the group is in use by another process",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
    Exit.PIPE_CLOSED: "the reader of the output closed the pipe, as `head` does",
}


def _verb(entry: Entry) -> Iterator[str]:
    command: click.Command = getattr(import_module(entry.module), entry.name)
    context = click.Context(command, info_name=f"seeklog {entry.name}")
    yield from (f"### {entry.name}", "", "```text", f"$ {entry.example}", "```", "")
    yield from (inspect.cleandoc(command.help or "").replace("\b\n", ""), "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            within = click.Context(inner, info_name=name, parent=context)
            yield from (f"`{' '.join(_usage(inner, within))}`: {inspect.cleandoc(inner.help or '')}", "")
            yield from _options(inner, within)
        return
    yield from (f"`{' '.join(_usage(command, context))}`", "")
    yield from _options(command, context)


def _usage(command: click.Command, context: click.Context) -> list[str]:
    return [context.command_path, *command.collect_usage_pieces(context)]


_SHARED = {"is_quiet", "is_verbose", "is_plain", "--help"}


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = [
        record
        for param in command.get_params(context)
        if isinstance(param, click.Option)
        and not _SHARED & {param.name, *param.opts}
        and (record := param.get_help_record(context)) is not None
    ]
    if records:
        yield from ("| option | |", "|---|---|")
        yield from (f"| `{_cell(names)}` | {_cell(text)} |" for names, text in records)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# ---------------------------------------------------------------- the configuration


CONFIGURATION = f"""\
# Configuration

{MADE}

Settings have Kafka's names, with dots or underscores. A topic gets them from
`store.create_topic(name, config={{...}})`, `store.alter_topic`, `seeklog create --set NAME=VALUE` and `seeklog config`.
A setting that a topic does not have comes from the store, `seeklog.open(path, config={{...}})`, and otherwise is the
default. A single log takes a `LogConfig`.

`initial.offset`, `high.watermark` and `max.open.segments` are not settings of topics: the first two belong to a single
log, the last to a process. [Retention](retention.md) and [compaction](compaction.md) explain which records are deleted.

| setting | default | meaning |
|---|---|---|"""


def _configuration() -> Iterator[str]:
    yield CONFIGURATION
    meanings = _field_docs()
    for field in dataclasses.fields(LogConfig):
        yield f"| `{field.name.replace('_', '.')}` | `{field.default}` | {_cell(meanings[field.name])} |"
    yield ""


def _field_docs() -> dict[str, str]:
    """Return the docstring of each field of `LogConfig`, which Python itself does not keep."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(LogConfig)).body if isinstance(node, ast.ClassDef))
    docs = {}
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            docs[field.target.id] = str(ast.literal_eval(below.value))
    return docs


def main() -> int:
    for path, text in pages():
        path.write_text(text)
        print(f"written: {path.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
