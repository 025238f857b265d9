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

`pip install "seeklog[cli]"` brings the command `seeklog`. Data goes to stdout and talk to stderr; lists are a table on
a terminal and JSON lines in a pipe. Every verb has `-h`, `-q`, `-v` and `--no-color`, and `NO_COLOR` is heeded.

`DIR` is a store: a directory of topics, a broker's data directory, or, to read, the URL of an archive. Where it is left
out `SEEKLOG_DIR` stands in, or `dir` in `~/.config/seeklog.toml`, which may also say `utc = true`, and nothing else. A
first word with a slash in it is always taken for a `DIR`.

## Places and times

| word | what it means |
|---|---|
| `1234` | an offset |
| `-100` | a hundred before the end |
| `start`, `end` | the ends of the log |
| `@2026-01-02T03:04`, `@2026-01-02` | the first record at or after a time: local or, with `--utc`, UTC |
| `@2026-01-02T03:04+01:00` | the same, in a zone |
| `@-15m`, `@-2h`, `@-7d` | so long ago |
| `@today`, `@yesterday`, `@now` | midnight of the day, or this moment |
| `@1700000000000` | milliseconds since 1970 |

## Exit codes

| code | when |
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
    Exit.OK: "done",
    Exit.FAILED: "it failed",
    Exit.USAGE: "the command line is wrong; nothing was done",
    Exit.DAMAGE: "damage was found",
    Exit.NOT_FOUND: "no such store, topic, group, key or offset",
    Exit.LOCKED: "another process writes it",
    Exit.INTERRUPTED: "Ctrl-C",
    Exit.PIPE_CLOSED: "who read its output has gone, as with `head`",
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
