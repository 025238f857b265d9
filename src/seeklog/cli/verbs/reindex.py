"""`seeklog reindex`.

A partition is worked on under its lock. The last segment of a log that seeklog has written is left to its own recovery,
which an open for writing does; a broker's directory stays one, with nothing of seeklog's in it but the new indexes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Damaged
from seeklog.cli.opening import check_can_be_written, open_to_read, open_to_write
from seeklog.cli.selection import chosen, partitions_of
from seeklog.cli.show.amounts import counted
from seeklog.cli.show.rows import PARTITION, Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.files import OsFiles
from seeklog.log import lock_directory, lock_out_broker
from seeklog.log.check import IndexProblem, renew_index, validate_index
from seeklog.names import TopicPartition
from seeklog.topics.layout import partition_path

if TYPE_CHECKING:
    from seeklog.config import LogConfig
    from seeklog.store import Store

COLUMNS = (*PARTITION, Column("segment", is_right=True), Column("problem"), Column("done"))


@verb
@options.directory
@options.optional_topic
@options.partitions
@options.dry_run
@click.option("--spark", "with_spark", is_flag=True, help="Have Spark's tasks do it, many segments at a time.")
@options.rows
def reindex(
    terminal: Terminal,
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    is_dry: bool,
    with_spark: bool,
    row_format: str | None,
) -> None:
    """Hold the offset and time indexes of a topic, or of all, against their logs, and make those anew that are wrong.

    Every entry is checked. An index is only advice: no record can be lost with it, and none comes back by this; for
    damage in the log itself see seeklog verify. Partitions must not be written meanwhile.
    """
    check_can_be_written(directory)
    if partitions and topic is None:
        raise UsageError("--partition takes a TOPIC")
    if with_spark:
        if is_dry or partitions:
            raise UsageError("--spark takes neither --dry-run nor --partition")
        from seeklog.cli.spark_jobs import run

        run("reindex", terminal, directory, [topic] if topic else None, row_format=row_format)
        return
    with open_to_read(directory) as store:
        root = store.location
        checked = _check_all(terminal, store, topic, partitions)
    wrong = [each for each in checked if each.problems]
    rows = {each.path: each.row() for each in wrong}
    if not is_dry and wrong:
        with terminal.progress("reindexing", total=len(wrong), unit="segments") as bar:
            for each, done, detail in _rebuild_all(root, wrong):
                bar.advance()
                rows[each.path]["done"] = done
                if done == "damaged":
                    rows[each.path]["problem"] = detail
    write_rows(terminal, COLUMNS, rows.values(), row_format=row_format)
    hurt = sum(row["done"] == "damaged" for row in rows.values())
    segments = counted(len(checked), "segment")
    if not wrong:
        terminal.say(f"the indexes of {segments} are what their logs say")
    elif is_dry:
        terminal.say(f"would make the indexes of {len(wrong)} of {segments} anew")
    else:
        terminal.say(f"made the indexes of {len(wrong) - hurt} of {segments} anew")
    if hurt:
        raise Damaged(
            f"{hurt} of {segments} have a damaged log, and were left as they are; see seeklog verify {directory}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """One segment, and what is wrong with its indexes."""

    partition: TopicPartition
    config: LogConfig
    path: str
    base_offset: int
    is_last: bool
    problems: Sequence[IndexProblem]

    def row(self) -> dict[str, Any]:
        first = self.problems[0]
        entry = "" if first.entry is None else f"entry {first.entry}: "
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return self.partition._asdict() | {
            "segment": self.base_offset,
            "file": self.path,
            "problem": f"{first.path.rpartition('/')[2]}: {entry}{first.reason}{more}",
            "done": "nothing yet",
        }


def _check_all(terminal: Terminal, store: Store, topic: str | None, wanted: tuple[int, ...]) -> list[_Checked]:
    if topic is not None:
        todo = [TopicPartition(topic, number) for number in chosen(store, topic, wanted)]
    else:
        todo = partitions_of(store, None, internal=[names.CONSUMER_OFFSETS])
    configs = {name: store.topic(name).config for name in {each.topic for each in todo}}
    found: list[_Checked] = []
    with terminal.progress("checking", total=len(todo), unit="partitions") as bar:
        for partition in todo:
            found += _check(store, partition, configs[partition.topic])
            bar.advance()
    return found


def _check(store: Store, partition: TopicPartition, config: LogConfig) -> Iterator[_Checked]:
    """Yield each segment of a partition after comparing its indexes with its log. Nothing changes."""
    from seeklog.store import files_of

    directory, files = partition_path(store.location, partition), files_of(store)
    parsed = filter(None, map(names.parse_segment_name, files.list(directory)))
    bases = sorted(base_offset for base_offset, suffix in parsed if suffix == names.LOG)
    for base_offset in bases:
        path = f"{directory}/{names.segment_name(base_offset, names.LOG)}"
        yield _Checked(
            partition=partition,
            config=config,
            path=path,
            base_offset=base_offset,
            is_last=base_offset == bases[-1],
            problems=validate_index(path, files=files),
        )


def _rebuild_all(root: str, wrong: Sequence[_Checked]) -> Iterator[tuple[_Checked, str, str]]:
    """Rebuild indexes, and yield each with its outcome and a detail. A partition in use raises `LogLocked`."""
    with contextlib.closing(lock_out_broker(OsFiles(), root)):
        for partition, segments in groupby(wrong, key=lambda each: each.partition):
            yield from _rebuild(root, partition, list(segments))


def _rebuild(root: str, partition: TopicPartition, wrong: list[_Checked]) -> Iterator[tuple[_Checked, str, str]]:
    files = OsFiles()
    directory = wrong[0].path.rpartition("/")[0]
    is_recovered = wrong[-1].is_last and names.CHECKPOINT in files.list(directory)
    with contextlib.closing(lock_directory(files, directory)):
        for each in wrong[:-1] if is_recovered else wrong:
            renewed = renew_index(each.path, config=each.config)
            yield each, renewed.done, renewed.detail
    if is_recovered:
        last = wrong[-1]
        with open_to_write(root) as store, store.writer(partition.topic, partition.partition):
            pass  # the opening has recovered it
        left = validate_index(last.path)
        yield last, "damaged" if left else "rebuilt", left[0].reason if left else "by recovery"
