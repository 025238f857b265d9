"""`seeklog reindex`.

Each partition is locked while its indexes are rebuilt. The last segment of a log that seeklog wrote is left to
recovery, which runs when the log is opened for writing. A broker's directory gets new indexes and no other files.
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
from seeklog.cli.show.terminal import UNCHANGED, Terminal
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
@click.option("--spark", "with_spark", is_flag=True, help="Run as a Spark job, many segments in parallel.")
@options.rows
def reindex(
    terminal: Terminal, directory: str, topic: str | None, partitions: tuple[int, ...], is_dry: bool, with_spark: bool
) -> None:
    """Check the offset and time indexes of a topic, or of all topics, against the logs, and rebuild wrong ones.

    Every entry is checked. Indexes hold no data: a wrong index loses no records, and rebuilding it restores none. For
    damage in the log itself see seeklog verify. No other process may write the partitions meanwhile.
    """
    check_can_be_written(directory)
    if partitions and topic is None:
        raise UsageError("--partition needs a TOPIC")
    if with_spark:
        if is_dry or partitions:
            raise UsageError("--spark conflicts with --dry-run and --partition")
        from seeklog.cli.spark_jobs import run

        run("reindex", terminal, directory, [topic] if topic else None)
        return
    with open_to_read(directory) as store:
        root = store.location
        checked = _check_all(terminal, store, topic, partitions)
    wrong = [segment for segment in checked if segment.problems]
    rows = {segment.path: segment.row() for segment in wrong}
    if not is_dry and wrong:
        bar = terminal.progress(
            "reindexing", total=len(wrong), unit="segments", stopped="run it again to rebuild the others"
        )
        with bar:
            for segment, done, detail in _rebuild_all(root, wrong):
                bar.advance()
                rows[segment.path]["done"] = done
                if done == "damaged":
                    rows[segment.path]["problem"] = detail
    write_rows(terminal, COLUMNS, rows.values())
    damaged = sum(row["done"] == "damaged" for row in rows.values())
    segments = counted(len(checked), "segment")
    if not wrong:
        terminal.say(f"the indexes of {segments} match their logs")
    elif is_dry:
        terminal.say(f"would rebuild the indexes of {len(wrong)} of {segments}")
    else:
        terminal.say(f"rebuilt the indexes of {len(wrong) - damaged} of {segments}")
    if damaged:
        raise Damaged(f"the logs of {damaged} of {segments} are damaged; run: seeklog verify {directory}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A segment, and the problems of its indexes."""

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
            "done": "not rebuilt",
        }


def _check_all(terminal: Terminal, store: Store, topic: str | None, wanted: tuple[int, ...]) -> list[_Checked]:
    if topic is not None:
        todo = [TopicPartition(topic, number) for number in chosen(store, topic, wanted)]
    else:
        todo = partitions_of(store, None, internal=[names.CONSUMER_OFFSETS])
    configs = {name: store.topic(name).config for name in {partition.topic for partition in todo}}
    found: list[_Checked] = []
    with terminal.progress("checking", total=len(todo), unit="partitions", stopped=UNCHANGED) as bar:
        for partition in todo:
            found += _check(store, partition, configs[partition.topic])
            bar.advance()
    return found


def _check(store: Store, partition: TopicPartition, config: LogConfig) -> Iterator[_Checked]:
    """Compare the indexes of each segment of a partition with its log, and yield the results."""
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
    """Rebuild indexes; yield each segment with its outcome and a detail. A partition in use raises `LogLocked`."""
    with contextlib.closing(lock_out_broker(OsFiles(), root)):
        for partition, segments in groupby(wrong, key=lambda segment: segment.partition):
            yield from _rebuild(root, partition, list(segments))


def _rebuild(root: str, partition: TopicPartition, wrong: list[_Checked]) -> Iterator[tuple[_Checked, str, str]]:
    files = OsFiles()
    directory = wrong[0].path.rpartition("/")[0]
    is_recovered = wrong[-1].is_last and names.CHECKPOINT in files.list(directory)
    with contextlib.closing(lock_directory(files, directory)):
        for segment in wrong[:-1] if is_recovered else wrong:
            renewed = renew_index(segment.path, config=segment.config)
            yield segment, renewed.done, renewed.detail
    if is_recovered:
        last = wrong[-1]
        with open_to_write(root) as store, store.writer(partition.topic, partition.partition):
            pass  # opening the log recovers it
        left = validate_index(last.path)
        yield last, "damaged" if left else "rebuilt", left[0].reason if left else "by recovery"
