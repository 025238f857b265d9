"""Small logs on a simulated disk, and the reads of each damaged copy."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from crash.recorder import (
    NEW_DISK,
    PATH,
    Content,
    open_log,
    open_reader,
    producer_problem,
    producers_of,
    read_everything,
)
from crash.sim import Disk, SimFiles
from log.workbench import START_MS, FakeClock
from seeklog import Log, LogConfig, Record, names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from seeklog.files import Files

# Three records of about 100 bytes per segment, and an index entry for each batch except the first.
CONFIG: Final = LogConfig(flush="os", segment_bytes=400, index_interval_bytes=50, retention_ms=-1)


@dataclass(frozen=True, slots=True)
class Answers:
    """Everything a caller can read from a log."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    records: tuple[tuple[int, Content], ...]
    by_offset: tuple[tuple[int, Content], ...]
    """Each record again, sought one by one."""
    by_time: tuple[int | None, ...]
    """The offsets that each record's time, and the millisecond after it, lead to."""
    by_key: tuple[tuple[bytes, int | None], ...]
    """Each key, and the offset of its newest record."""
    backwards: tuple[int, ...]
    """The offsets that a scan from the end gives."""
    epoch_ends: tuple[tuple[int, int], ...]
    """Where each leader epoch up to the newest ends."""
    producers: tuple[tuple[int, int], ...]
    """Each producer and the last offset of its last batch; a reader knows none."""
    problem: str = ""
    """How what is known of producers contradicts their batches."""
    cut_bytes: int = field(default=0, compare=False)
    """How much the open has cut off, as it reports it."""

    @property
    def times(self) -> list[int]:
        return [content.timestamp_ms + later for _, content in self.records for later in (0, 1)]

    def visible_to(self, high_watermark: int) -> Answers:
        """Return the answers of the same log with a lower high watermark."""
        return replace(self, high_watermark=high_watermark).ended_at(self.log_end_offset)

    def ended_at(self, end: int) -> Answers:
        """Return the answers of a shorter log, as far as they follow from its records."""
        records = tuple(each for each in self.records if each[0] < end)
        watermark = min(self.high_watermark, end)
        visible = [each for each in records if each[0] < watermark]
        newest = {content.key: offset for offset, content in visible}
        return replace(
            self,
            log_end_offset=end,
            high_watermark=watermark,
            records=records,
            by_offset=tuple(each for each in self.by_offset if each[0] < end),
            by_time=tuple(
                next((offset for offset, content in visible if content.timestamp_ms >= time), None)
                for time in self.times
            ),
            by_key=tuple((key, newest.get(key)) for key, _ in self.by_key),
            backwards=tuple(offset for offset, _ in reversed(visible)),
        )


def ask(log: Log, *, expected: Answers | None = None) -> Answers:
    """Read everything from a log. Times, keys, and offsets to seek are those of the undamaged log, if given."""
    records = tuple((record.offset, Content.of(record)) for record in read_everything(log))
    sought = expected.records if expected is not None else records
    by_offset = []
    for offset, _ in sought:
        if log.log_start_offset <= offset < log.log_end_offset:
            record = next(iter(log.read_uncommitted(offset, max_records=1)))
            by_offset.append((record.offset, Content.of(record)))
    times = [content.timestamp_ms + later for _, content in sought for later in (0, 1)]
    keys = sorted({content.key for _, content in sought if content.key is not None})
    newest = [(key, log.latest_for_key(key)) for key in keys]
    epochs = range(len(expected.epoch_ends) if expected is not None else log.leader_epoch + 1)
    producers = producers_of(log)
    return Answers(
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        leader_epoch=log.leader_epoch,
        records=records,
        by_offset=tuple(by_offset),
        by_time=tuple(log.offset_at_time(time) for time in times),
        by_key=tuple((key, None if found is None else found.offset) for key, found in newest),
        backwards=tuple(record.offset for record in log.scan_reverse()),
        epoch_ends=tuple(log.end_offset_for_epoch(epoch) for epoch in epochs),
        producers=tuple(sorted(producers.items())),
        problem=producer_problem(log, producers),
        cut_bytes=log.recovery.cut_bytes,
    )


def ask_disk(disk: Disk, *, config: LogConfig = CONFIG, read_only: bool, expected: Answers | None = None) -> Answers:
    """Open a copy of a disk and read everything."""
    with open_on(SimFiles(disk), config=config, read_only=read_only) as log:
        return ask(log, expected=expected)


def make_disk(fill: Callable[[Log, FakeClock], object], *, config: LogConfig = CONFIG, start: Disk = NEW_DISK) -> Disk:
    """Return the disk of a log that was filled by `fill` and closed cleanly."""
    sim = SimFiles(start)
    clock = FakeClock()
    with Log(PATH, config=config, files=sim, clock=clock, background=False) as log:
        fill(log, clock)
    return without_lock(sim.disk())


def make_unclean_disk(
    fill: Callable[[Log, FakeClock], object], *, config: LogConfig = CONFIG, start: Disk = NEW_DISK
) -> Disk:
    """Return the disk of a log that was filled by `fill` and whose process was then killed."""
    sim = SimFiles(start)
    clock = FakeClock(START_MS + 1_000_000)
    log = Log(PATH, config=config, files=sim, clock=clock, background=False)
    fill(log, clock)
    sim.process_crash()
    return without_lock(sim.disk())


def without_lock(disk: Disk) -> Disk:
    """Return the disk without its lock file, whose content does not matter."""
    return Disk(disk.directories, {path: data for path, data in disk.files.items() if path != in_log(names.LOCK)})


def fill_three_segments(log: Log, clock: FakeClock) -> None:
    """Append nine records with keys, headers, and increasing timestamps, in batches of one and two."""
    for number in range(6):
        clock.advance(10)
        records = [
            Record(
                f"value {number}.{index}".encode() * 3,
                key=f"key {number}".encode(),
                headers=(("trace", b"x"), ("none", None)) if number % 2 else (),
                timestamp_ms=clock.now_ms() + index,
            )
            for index in range(1 + number % 2)
        ]
        log.append_many(records)


def in_log(name: str) -> str:
    """Return the path of a file of the log."""
    return posixpath.join(PATH, name)


def files_with(disk: Disk, *suffixes: str) -> list[str]:
    """Return the paths of the log's files with this suffix, in order."""
    return sorted(path for path in disk.files if path.endswith(suffixes))


def evidence(disk: Disk) -> dict[str, bytes]:
    """Return the bytes quarantined by recovery, by file name."""
    return {posixpath.basename(path): disk.files[path] for path in files_with(disk, names.TORN)}


def open_on(files: Files, *, config: LogConfig = CONFIG, read_only: bool = False) -> Any:
    """Open the log on any disk, for writing or for reading."""
    return open_reader(files, config) if read_only else open_log(files, config)


def contents(records: Sequence[Record]) -> list[Content]:
    """Return records without their offsets."""
    return [Content.of(record) for record in records]
