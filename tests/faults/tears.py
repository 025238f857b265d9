"""Truncated files: every byte prefix of a last batch, and of side files."""

from __future__ import annotations

import functools
import posixpath
from typing import TYPE_CHECKING, Any, Final

from crash.recorder import Content, read_everything
from crash.sim import SimFiles
from faults.damage import Tally, judge, warnings_heard
from faults.disks import CONFIG, evidence, in_log, make_disk, make_unclean_disk, open_on
from log.workbench import START_MS
from seeklog import LogConfig, Record, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crash.sim import Disk
    from faults.damage import Victim
    from log.workbench import FakeClock
    from seeklog import Log

ONE_SEGMENT: Final = in_log(names.segment_name(0, names.LOG))
WHOLE_RECORDS: Final = 4  # two batches of two, durable before the last batch is appended


def records_of(count: int) -> list[Record]:
    return [
        Record(f"value {number} of {count}".encode(), key=b"key", timestamp_ms=START_MS + number)
        for number in range(count)
    ]


@functools.cache
def log_with_a_last_batch(codec: str, count: int) -> tuple[Disk, int]:
    """Return a log whose last batch was never synced, and the position of that batch."""
    config = LogConfig.from_mapping({"flush": "os", "compression_type": codec, "retention_ms": -1})

    def two_batches(log: Log, _: FakeClock) -> None:
        log.append_many(records_of(2))
        log.append_many(records_of(2))

    whole = make_disk(two_batches, config=config)
    torn = make_unclean_disk(lambda log, _: log.append_many(records_of(count)), config=config, start=whole)
    return torn, len(whole.files[ONE_SEGMENT])


def tail_objection(codec: str, count: int, cut: int, *, read_only: bool) -> str:
    """Open a log whose last batch has only `cut` bytes; return what is wrong with the result, or nothing."""
    disk, whole_size = log_with_a_last_batch(codec, count)
    log_bytes = disk.files[ONE_SEGMENT]
    torn = log_bytes[whole_size : whole_size + cut]
    is_whole = whole_size + cut == len(log_bytes)
    expected = [Content.of(record) for record in records_of(2) * 2 + (records_of(count) if is_whole else [])]
    sim = SimFiles(disk.with_file(ONE_SEGMENT, log_bytes[: whole_size + cut]))
    with warnings_heard() as heard, open_on(sim, config=CONFIG, read_only=read_only) as log:
        if log.log_end_offset != len(expected):
            return f"ends at {log.log_end_offset}"
        if [Content.of(record) for record in read_everything(log)] != expected:
            return "other records than were there"
        reported = log.recovery.cut_bytes, len(heard)
    if read_only:
        return f"a look has done {sim.pending[0]}" if sim.pending else ""
    is_cut = cut > 0 and not is_whole
    after = sim.disk()
    if reported != (cut if is_cut else 0, int(is_cut)):
        return f"(bytes cut, warnings) were reported as {reported}"
    if after.files[ONE_SEGMENT] != log_bytes[: whole_size + (cut if is_whole else 0)]:
        return "the file does not end with the last whole batch"
    kept = {names.torn_name(0, whole_size): torn} if is_cut else {}
    return "" if evidence(after) == kept else f"kept aside: {sorted(evidence(after))}"


def prefixes_of(disk: Disk, paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield every size that each file can be torn to."""
    for path in paths:
        for size in range(len(disk.files[path])):
            yield path, size


def try_tears(victim: Victim[Any, Any], tears: Iterable[tuple[str, int]], *, read_only: bool) -> Tally:
    """Judge a victim with one file cut to each of these sizes."""
    tally = Tally()
    for path, size in tears:
        disk = victim.disk.with_file(path, victim.disk.files[path][:size])
        mode = "read-only" if read_only else "for writing"
        where = f"{victim.name}, {mode}, {posixpath.basename(path)} torn to {size} bytes"
        tally.add(where, judge(victim, disk, path=path, read_only=read_only))
    return tally
