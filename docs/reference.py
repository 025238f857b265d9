"""Write the pages that are generated from the code: docs/cli.md, docs/configuration.md and docs/metrics.md.

`python docs/reference.py` writes them. docs/check.py fails when they do not match the code.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import click

from seeklog.cli.catalogue import GROUPS, Entry
from seeklog.cli.exits import Exit
from seeklog.config import LogConfig
from seeklog.metrics import BOUNDS_S, OF_GROUP, OF_PARTITION, OF_TOPIC, TOTALS, Section

DOCS = Path(__file__).resolve().parent
MADE = "<!-- generated from the code by docs/reference.py: edit the code, not this page -->"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with its text."""
    yield DOCS / "cli.md", "\n".join(_command_line())
    yield DOCS / "configuration.md", "\n".join(_configuration())
    yield DOCS / "metrics.md", "\n".join(_metrics())


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
| `@1700000000000` | milliseconds since 1970; seconds, microseconds and nanoseconds of these years are refused |

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
    Exit.INTERRUPTED: "interrupted by Ctrl-C; a long command prints how far it got, and how to continue",
    Exit.PIPE_CLOSED: "the reader of the output closed the pipe, as `head` does",
}


def _verb(entry: Entry) -> Iterator[str]:
    command: click.Command = getattr(import_module(entry.module), entry.name)
    context = click.Context(command, info_name=f"seeklog {entry.name}")
    yield from (f"### {entry.name}", "", "```text", f"$ {entry.example}", "```", "")
    # Click does not wrap a paragraph that begins with a backspace.
    help_text = re.sub(r"\x08\n((?:.+\n)*.+)", r"```text\n\1\n```", inspect.cleandoc(command.help or ""))
    yield from (help_text, "")
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


# ---------------------------------------------------------------- the metrics


METRICS = f"""\
# Metrics

{MADE}

`store.metrics()` returns a plain dict of what the store has counted since this process opened it: appends, syncs,
deletions, compactions, open files, producers, consumers, commits. `json.dumps` takes it. It is read from memory,
so it never waits for a disk, and its size does not depend on the number of topics.

```python
import json

import seeklog

store = seeklog.open("data", config={{"flush": "batch"}})
store.create_topic("orders", partitions=2)
with store.producer() as producer:
    for number in range(1000):
        producer.send("orders", b"%d" % number, key=b"%d" % (number % 7))

metrics = store.metrics()
assert metrics["log"]["records_in"] == metrics["producer"]["records_sent"] == 1000
assert metrics["log"]["flush_seconds"]["p99"] < 60
json.dumps(metrics)
```

A **counter** only grows; compute rates from the difference of two calls. A **gauge** is the value at the call. A
**histogram** is a dict:

| key | is |
|---|---|
| `count`, `sum`, `max` | how often it happened, the seconds of all together, and of the longest |
| `p50`, `p99` | the median and the 99th percentile: upper bounds, at most twice the exact value |
| `buckets` | `[bound, count]` of each bucket that is not empty: durations below `bound`, and not below half of it |

The first bucket ends at 10 µs, the last at {BOUNDS_S[-1]:.0f} s; the bucket of longer durations has the bound `None`.

## Details

```python
detailed = store.metrics(by_topic=True, by_partition=True, by_group=True)
assert detailed["by_topic"]["orders"]["log"]["records_in"] == 1000
offsets = [detailed["by_partition"][f"orders-{{number}}"]["offsets"] for number in range(2)]
assert sum(each["log_end_offset"] for each in offsets) == 1000
assert detailed["by_group"] == {{}}
```

- `by_topic=True` and `by_partition=True` add the sections `log`, `retention` and `compaction` of each topic or
  partition that this process has opened for writing. Partitions that are open for writing at the moment also have a
  section `offsets`. They are read from memory, too.
- `by_group=True` adds the lag of every group, from its committed offsets. It reads the end of each of these
  partitions, as `store.lag` does.

A topic that is deleted stays in the totals, so that they never fall, and one that is recreated continues its numbers.
A log closed to make room for another one keeps its numbers. What other processes append is not counted here: ask
them. After a fork, the child counts from zero.

`Log.metrics()` of a single log returns the sections `log`, `retention` and `compaction`; `producer.metrics()` and
`consumer.metrics()` return the section of that client alone.

## Prometheus

`prometheus_text` renders what any of these methods of a store or a log return. A web application can return it from
its own route `/metrics`; a program without one can write it where the node exporter's textfile collector looks:

```python
from pathlib import Path

from seeklog.metrics import prometheus_text

text = prometheus_text(store.metrics(by_topic=True))
assert "seeklog_log_records_in_total 1000\\n" in text
assert 'seeklog_topic_log_records_in_total{{topic="orders"}} 1000\\n' in text
Path("seeklog.prom.new").write_text(text)
Path("seeklog.prom.new").rename("seeklog.prom")
store.close()
```

Totals have names such as `seeklog_log_flush_seconds`, counters end with `_total`. Details have names of their own,
`seeklog_topic_…`, `seeklog_partition_…` and `seeklog_group_…`, with the labels `topic`, `partition` and `group`: a
sum over a label is not mixed with the total.

## Cost

An append is not counted at all. The state of a segment counts its batches, records and bytes in any case, for the
indexes and the seal, and the log only remembers where it began to count. Durations are measured for a sync, a batch
of a producer, a commit or a compaction, not for a record. `python -m bench --only metrics` measures what remains.

## Keys
"""

_METRICS_OF = (
    ("Totals", TOTALS, "`store.metrics()` has all of them."),
    (
        "Of a topic or a partition",
        {name: section for name, section in OF_PARTITION.items() if name not in OF_TOPIC},
        "Beside `log`, `retention` and `compaction`, a partition that is open for writing has:",
    ),
    ("Of a group", OF_GROUP, "Each group of `by_group` has:"),
)


def _metrics() -> Iterator[str]:
    yield METRICS
    for heading, sections, words in _METRICS_OF:
        yield from (f"### {heading}", "", words, "")
        yield from _keys(sections)


def _keys(sections: Mapping[str, type[Section]]) -> Iterator[str]:
    yield from ("| key | kind | meaning | in Kafka |", "|---|---|---|---|")
    for name, section in sections.items():
        for key, definition in section.definitions.items():
            kafka = f"`{definition.kafka}`" if definition.kafka else ""
            yield f"| `{name}.{key}` | {definition.kind} | {_cell(definition.meaning)} | {kafka} |"
    yield ""


def main() -> int:
    for path, text in pages():
        path.write_text(text)
        print(f"written: {path.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
