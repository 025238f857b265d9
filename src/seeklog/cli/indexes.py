"""Index files of a store: what is wrong with them, and making those anew.

A partition is worked on under its lock. The last segment of a log that seeklog has written is left to its own recovery,
which an open for writing does; a broker's directory stays one, with nothing of seeklog's in it but the new indexes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seeklog import names
from seeklog.cli import opening
from seeklog.files import Files, OsFiles
from seeklog.log import lock_directory, lock_out_broker
from seeklog.log.check import IndexProblem, renew_index, validate_index
from seeklog.names import TopicPartition
from seeklog.store import files_of
from seeklog.topics.layout import partition_path

if TYPE_CHECKING:
    from seeklog.config import LogConfig
    from seeklog.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One segment, and what is wrong with its indexes."""

    partition: TopicPartition
    config: LogConfig
    path: str
    base_offset: int
    is_last: bool
    problems: Sequence[IndexProblem]

    @property
    def reason(self) -> str:
        first = self.problems[0]
        entry = "" if first.entry is None else f"entry {first.entry}: "
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"{first.path.rpartition('/')[2]}: {entry}{first.reason}{more}"


def check(store: Store, partition: TopicPartition, config: LogConfig) -> Iterator[Checked]:
    """Yield each segment of a partition, having held its indexes against its log. Nothing changes."""
    directory = partition_path(store.location, partition)
    bases = _segments(files_of(store), directory)
    for base_offset in bases:
        path = f"{directory}/{names.segment_name(base_offset, names.LOG)}"
        yield Checked(
            partition=partition,
            config=config,
            path=path,
            base_offset=base_offset,
            is_last=base_offset == bases[-1],
            problems=validate_index(path, files=files_of(store)),
        )


def _segments(files: Files, directory: str) -> list[int]:
    found = filter(None, map(names.parse_segment_name, files.list(directory)))
    return sorted(base_offset for base_offset, suffix in found if suffix == names.LOG)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the indexes of one segment."""

    checked: Checked
    done: str
    detail: str


def rebuild(root: str, wrong: Sequence[Checked]) -> Iterator[Outcome]:
    """Make indexes anew, and yield what became of each. A partition that somebody writes is `LogLocked`."""
    files = OsFiles()
    with contextlib.ExitStack() as held:
        held.callback(lock_out_broker(files, root).close)
        for partition in dict.fromkeys(each.partition for each in wrong):
            yield from _rebuild(root, [each for each in wrong if each.partition == partition], files)


def _rebuild(root: str, wrong: Sequence[Checked], files: OsFiles) -> Iterator[Outcome]:
    directory = wrong[0].path.rpartition("/")[0]
    recovers = names.CHECKPOINT in files.list(directory)
    lock = lock_directory(files, directory)
    try:
        for each in wrong:
            if not (recovers and each.is_last):
                renewed = renew_index(each.path, config=each.config)
                yield Outcome(each, renewed.done, renewed.detail)
    finally:
        lock.close()
    for each in wrong:
        if recovers and each.is_last:
            with (
                opening.open_to_write(root) as store,
                store.writer(each.partition.topic, each.partition.partition),
            ):
                pass
            left = validate_index(each.path)
            yield Outcome(each, "damaged" if left else "rebuilt", left[0].reason if left else "by recovery")
