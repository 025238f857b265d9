"""Workloads of the engine whose crash states are explored.

Each workload is a function of a `Recorder`. Sizes and choices are random from the recorder's seed, so that another seed
visits other states.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from crash.faulty import FaultyFiles
from crash.recorder import NEW_DISK
from crash.sim import Disk
from seeklog import LogConfig, Record, names
from seeklog.errors import DiskFull, LogFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash.recorder import Recorder

# Small, so that a few records give index entries, rolls, and seals.
SMALL: Final[dict[str, Any]] = {"segment_bytes": 1400, "index_interval_bytes": 100, "max_message_bytes": 5000}
WIDE: Final[dict[str, Any]] = {"segment_bytes": 100_000, "index_interval_bytes": 100}


@dataclass(frozen=True, slots=True)
class Workload:
    """A name, a configuration, and an action."""

    name: str
    config: LogConfig
    run: Callable[[Recorder], None]
    disk: Disk


WORKLOADS: Final[dict[str, Workload]] = {}


def workload(
    name: str, *, disk: Disk = NEW_DISK, **settings: object
) -> Callable[[Callable[[Recorder], None]], Callable[[Recorder], None]]:
    """Add a function to the table of workloads, with its configuration."""

    def enter(run: Callable[[Recorder], None]) -> Callable[[Recorder], None]:
        WORKLOADS[name] = Workload(name, LogConfig.from_mapping(settings), run, disk)
        return run

    return enter


@workload("create", flush="batch", **WIDE)
@workload("create at an offset", flush="os", initial_offset=1000, **WIDE)
def create(on: Recorder) -> None:
    on.open()
    on.close()
    on.open()
    on.append()
    on.close()


@workload("create with parents", flush="batch", disk=Disk.of({}), **WIDE)
def create_with_parents(on: Recorder) -> None:
    """The parent directory is new too, and its name must be durable."""
    on.open()
    on.append()
    on.close()


@workload("create after a kill", flush="batch", **WIDE)
@workload("create after a kill, with parents", flush="batch", disk=Disk.of({}), **WIDE)
def create_after_a_kill(on: Recorder) -> None:
    """A killed creation leaves names that are visible but not durable, which the next creation finds."""
    for at in range(1, on.chance.choice((2, 3, 12))):
        on.kill_during(on.open, at=at)
    on.open()
    on.append()
    on.close()


@workload("append, flush=os", flush="os", **WIDE)
@workload("append, flush=interval", flush="interval", **WIDE)
@workload("append, flush=batch", flush="batch", **WIDE)
def append(on: Recorder) -> None:
    on.open()
    for number in range(6):
        on.append(key=b"key" if number % 2 else None)
        if number == 2:
            on.flush()
    on.close()


@workload("append_many", flush="os", compression_type="gzip", **WIDE)
@workload("append_many, flush=batch", flush="batch", compression_type="lz4", **WIDE)
def append_many(on: Recorder) -> None:
    on.open()
    for count in (1, 7, 3, 12):
        on.append_many(count)
    on.flush()
    on.append_many(2)
    on.close()


@workload("append_batches", flush="os", **SMALL)
def append_batches(on: Recorder) -> None:
    on.open()
    for count in (1, 4, 2):
        records = [Record(on.chance.randbytes(30), timestamp_ms=on.clock.now_ms() + number) for number in range(count)]
        on.append_batches(records, records[:1])
    on.flush()
    on.close()


@workload("writer", flush="batch", **SMALL)
@workload("writer, flush=interval", flush="interval", **WIDE)
def writer(on: Recorder) -> None:
    """Group commit: many appends, one sync."""
    on.open()
    on.append_through_writer(9)
    on.append()
    on.append_through_writer(3)
    on.close()


@workload("roll", flush="os", **SMALL)
@workload("roll, flush=batch", flush="batch", **SMALL)
def roll(on: Recorder) -> None:
    on.open()
    for _ in range(10):
        on.append(on.chance.randbytes(on.chance.choice((150, 250, 900))))
    on.flush()
    on.append()
    on.close()


@workload("seal", flush="interval", **SMALL)
def seal(on: Recorder) -> None:
    """Rolls and clean closes in turn: every segment is sealed, and opened with its seal."""
    on.open()
    for _ in range(3):
        on.append_many(4)
        on.append(on.chance.randbytes(400))
        on.close()
        on.open()
    on.close()


@workload("checkpoint", flush="interval", flush_interval_ms=100, **WIDE)
def checkpoint(on: Recorder) -> None:
    """More than a second passes between flushes, so that each persists the recovery point."""
    on.open()
    for _ in range(4):
        on.append()
        on.clock.advance(1500)
        on.flush()
    on.append()
    on.kill()
    on.open()
    on.close()


@workload("delete_before", flush="os", **SMALL)
@workload("delete_before, flush=batch", flush="batch", **SMALL)
def delete_before(on: Recorder) -> None:
    on.open()
    for _ in range(18):
        on.append(on.chance.randbytes(240))
    on.delete_before(1)  # within the first segment: only the start moves
    on.append()
    on.delete_before(14)  # three segments at once
    on.append()
    on.delete_before(on.log.log_end_offset)
    on.append()
    on.close()


@workload("retention by size", flush="os", retention_bytes=1200, **SMALL)
@workload("retention by time", flush="batch", retention_ms=5000, **SMALL)
def retention(on: Recorder) -> None:
    on.open()
    for _ in range(14):
        on.append(on.chance.randbytes(240))
        on.clock.advance(1000)
    on.retain()
    on.append()
    on.clock.advance(60_000)
    on.retain()
    on.append()
    on.close()


@workload("truncate_to", flush="os", **SMALL)
@workload("truncate_to, flush=batch", flush="batch", **SMALL)
def truncate_to(on: Recorder) -> None:
    on.open()
    for _ in range(13):
        on.append(on.chance.randbytes(200))
    on.flush()
    on.append()
    on.truncate_to(12)  # within the active segment, below the recovery point
    on.append()
    on.append()
    on.truncate_to(2)  # into the first segment: two are removed completely
    on.append()
    on.flush()
    on.truncate_to(0)
    on.append()
    on.close()


@workload("truncate_to a half-deleted batch", flush="batch", **SMALL)
def truncate_to_a_half_deleted_batch(on: Recorder) -> None:
    """The batch is cut completely, including deleted records, none of which may return."""
    on.open()
    on.append_many(2)
    on.append_many(4)
    on.delete_before(4)
    on.truncate_to(5)
    on.append()
    on.close()


@workload("reopen", flush="os", **SMALL)
def reopen_again_and_again(on: Recorder) -> None:
    for count in (1, 3, 2):
        on.open()
        on.append_many(count)
        on.append()
        if on.chance.random() < 0.5:
            on.kill()
        else:
            on.close()


@workload("recovery after a kill", flush="os", **SMALL)
@workload("recovery after a kill, flush=batch", flush="batch", **SMALL)
def recovery_after_a_kill(on: Recorder) -> None:
    """A kill at a boundary of an append; then power may be lost at each boundary of the recovery."""
    on.open()
    on.append()
    on.append_many(3)
    for _ in range(3):
        on.kill_during(lambda: [on.append(on.chance.randbytes(300)) for _ in range(3)], at=on.chance.randrange(1, 12))
        on.open()
        on.append()
    on.close()


@workload("recovery of a hole", flush="os", **WIDE)
def recovery_of_a_hole(on: Recorder) -> None:
    """Records of one size: bytes cut after a gap would fit exactly after the records that fill the gap."""

    def append_three() -> None:
        for _ in range(3):
            on.append(on.chance.randbytes(60))

    on.is_observed = False
    on.open()
    on.append()
    on.close()
    on.open()
    on.lose_power_during(append_three, at=3, leaving="all but [write")
    on.open()
    on.is_observed = True
    on.append(on.chance.randbytes(60))
    on.append(on.chance.randbytes(60))
    on.close()


@workload("recovery of a recovery", flush="interval", **SMALL)
@workload("recovery of a recovery, flush=batch", flush="batch", **SMALL)
def recovery_of_a_recovery(on: Recorder) -> None:
    """Power is lost, again at each boundary of the recovery, and of the recovery after that."""
    on.open()
    on.append_many(4)
    on.flush()
    on.lose_power_during(lambda: [on.append(on.chance.randbytes(250)) for _ in range(5)], at=on.chance.randrange(1, 30))
    for at in range(1, 30):
        if not on.lose_power_during(on.open, at=at):
            break
    on.open()
    on.append()
    on.close()


@workload("producers", flush="os", **SMALL)
@workload("producers, flush=interval", flush="interval", **SMALL)
@workload("producers, flush=batch", flush="batch", **SMALL)
def producers(on: Recorder) -> None:
    """Snapshots at the start of segments and at a close; missing ones are rebuilt from the log."""
    on.open()
    for number in range(9):
        on.append_numbered(producer_id=7 + number % 2)
        if number % 3 == 2:
            on.append()
        if number == 4:
            on.flush()
    on.repeat(7)
    on.close()
    on.open()
    on.repeat(7)
    on.repeat(8)
    on.append_numbered(on.chance.randrange(1, 4))
    on.kill()
    on.open()
    on.repeat()
    on.append_numbered(producer_id=9)
    on.close()


@workload("producers of a killed process", flush="os", **SMALL)
@workload("producers of a killed process, flush=batch", flush="batch", **SMALL)
def producers_of_a_killed_process(on: Recorder) -> None:
    """A producer killed during an append continues at the log's sequence, without a gap."""
    on.open()
    on.append_numbered()
    on.close()
    on.open()
    for _ in range(3):
        on.kill_during(lambda: [on.append_numbered(3) for _ in range(4)], at=on.chance.randrange(1, 16))
        on.open()
        on.repeat()
        on.append_numbered()
    on.close()


@workload("producers and deletion", flush="os", **SMALL)
@workload("producers and deletion, flush=batch", flush="batch", **SMALL)
def producers_and_deletion(on: Recorder) -> None:
    """The records are deleted, and the state of their producers survives."""
    on.open()
    for _ in range(5):
        on.append_numbered(3)
    for _ in range(8):
        on.append(on.chance.randbytes(300))
    on.delete_before(9)
    on.append_numbered(producer_id=8)
    on.delete_before(on.log.log_end_offset)
    on.repeat()
    on.append()
    on.close()


@workload("producers and truncation", flush="os", **SMALL)
@workload("producers and truncation, flush=batch", flush="batch", **SMALL)
def producers_and_truncation(on: Recorder) -> None:
    """Snapshots after the new end must be removed before other batches get those offsets."""
    on.open()
    for number in range(9):
        on.append_numbered(producer_id=7 + number % 2)
    on.close()
    on.open()
    on.truncate_to(14)
    on.append_numbered(3)
    on.append_numbered(producer_id=8)
    on.flush()
    on.truncate_to(4)
    for _ in range(5):
        on.append_numbered(producer_id=9)
    on.append_numbered()
    on.truncate_to(0)
    on.append_numbered()
    on.close()


@workload("snapshots find no room", flush="batch", **SMALL)
def snapshots_find_no_room(on: Recorder) -> None:
    on.files = faulty = FaultyFiles(
        on.sim, methods={"write"}, error=errno.ENOSPC, fail_at=1, lasting=True, only=".snapshot.tmp"
    )
    on.open()
    for _ in range(8):
        on.append_numbered()
    faulty.heal()
    on.append_numbered()
    on.close()


@workload("manual high watermark", flush="batch", high_watermark="manual", **SMALL)
def manual_high_watermark(on: Recorder) -> None:
    on.open()
    on.append_many(3)
    on.advance_high_watermark(2)
    on.append(on.chance.randbytes(500))
    on.append(on.chance.randbytes(500))
    on.clock.advance(1500)
    on.advance_high_watermark(5)
    on.flush()
    on.append()
    on.kill()
    on.open()
    on.close()


@workload("a manual high watermark falls", flush="os", high_watermark="manual", **SMALL)
@workload("a manual high watermark falls, flush=batch", flush="batch", high_watermark="manual", **SMALL)
def manual_high_watermark_falls(on: Recorder) -> None:
    """After a truncation, or a power loss with the records below it."""
    on.open()
    on.append_many(3)
    on.append()
    on.append()
    on.advance_high_watermark(5)
    on.flush()
    on.truncate_to(3)
    on.append()
    on.append_many(2)
    on.flush()
    on.advance_high_watermark(4)
    on.lose_power_during(
        lambda: [on.append() and on.advance_high_watermark(on.log.log_end_offset) for _ in range(4)], at=99
    )
    on.open()
    on.append_many(3)
    on.flush()
    on.append()
    on.close()


@workload("leader epochs", flush="os", **SMALL)
@workload("leader epochs, flush=batch", flush="batch", **SMALL)
def leader_epochs(on: Recorder) -> None:
    on.open()
    on.begin_epoch(1)
    on.append_many(3)
    on.begin_epoch(4)
    on.append(on.chance.randbytes(500))
    on.append(on.chance.randbytes(500))
    on.begin_epoch(5)
    on.append()
    on.flush()
    on.truncate_to(4)
    on.begin_epoch(6)
    on.append()
    on.close()


def append_three_and_flush(on: Recorder) -> None:
    for _ in range(3):
        on.append()
    on.flush()


@workload("a sync fails", flush="batch", **SMALL)
@workload("a sync fails, flush=os", flush="os", **SMALL)
def a_sync_fails(on: Recorder) -> None:
    """The pages of a failed sync can still be read: recovery must write them again, not only sync."""
    on.open()
    on.append_many(3)
    on.flush()
    on.kill()
    on.files = faulty = FaultyFiles(on.sim)
    on.open()
    faulty.fail_at = faulty.calls + 1
    with pytest.raises(LogFailed):
        append_three_and_flush(on)
    on.kill()
    on.open()
    on.flush()
    on.append()
    on.close()


@workload("the disk is full", flush="os", **SMALL)
@workload("the disk is full, flush=batch", flush="batch", **SMALL)
def the_disk_is_full(on: Recorder) -> None:
    """A prefix of the write reached the full disk; the same log continues when there is room."""
    on.open()
    on.append_many(2)
    on.kill()
    on.files = faulty = FaultyFiles(on.sim, methods={"write"}, error=errno.ENOSPC, lasting=True, only=".log")
    on.open()
    for size in (10, 500):
        faulty.prefix = on.chance.choice((0, 1, 61, 70))
        faulty.fail_at = faulty.calls + 1
        with pytest.raises(DiskFull):
            on.append(on.chance.randbytes(size))
        on.forget_the_refused_append()
        faulty.heal()
        on.append()
        on.append(on.chance.randbytes(300))
    on.close()


@workload("sealing waits for room", flush="batch", **SMALL)
def sealing_waits_for_room(on: Recorder) -> None:
    """Segments roll while their seals cannot be written: the records are still durable."""
    on.files = faulty = FaultyFiles(
        on.sim, methods={"write"}, error=errno.ENOSPC, fail_at=1, lasting=True, only=".seal.tmp"
    )
    on.open()
    for _ in range(14):
        on.append(on.chance.randbytes(240))
    faulty.heal()
    on.append()
    on.close()


@workload("key indexes", flush="os", key_index="seal", **SMALL)
@workload("key indexes, at the first lookup", flush="batch", key_index="lazy", **SMALL)
def key_indexes(on: Recorder) -> None:
    """Side files are created, used, and removed with their segments, and created again with the same names."""
    on.open()
    for _ in range(2):
        for number in range(13):
            on.append(on.chance.randbytes(200), key=b"%d" % (number % 4))
        on.flush()
        on.log.latest_for_key(b"stranger")
        on.truncate_to(on.log.log_end_offset - 8)  # into a sealed segment, which becomes active again
        for number in range(9):
            on.append(on.chance.randbytes(200), key=b"%d" % (number % 3))
        on.flush()
        on.log.latest_for_key(b"stranger")
        on.delete_before(on.log.log_end_offset - 6)
    on.close()
    on.open()
    on.append(key=b"0")
    on.close()


@workload("compaction swap", flush="os", **SMALL)
def compaction_swap(on: Recorder) -> None:
    """A broker died during a swap; the open that completes it may be interrupted too."""
    swap(on, merged=1)


@workload("compaction swap of two", flush="os", **SMALL)
def compaction_swap_of_two(on: Recorder) -> None:
    """The cleaned segment replaces two, and their seals."""
    swap(on, merged=2)


def swap(on: Recorder, *, merged: int) -> None:
    on.open()
    for _ in range(16):
        on.append(on.chance.randbytes(240))
    on.close()
    on.leave_swap_behind(merged=merged)
    on.open()
    on.append()
    on.close()


@workload("anything, flush=os", flush="os", retention_bytes=4000, **SMALL)
@workload("anything, flush=interval", flush="interval", retention_ms=20_000, **SMALL)
@workload("anything, flush=batch", flush="batch", retention_bytes=4000, **SMALL)
def anything(on: Recorder) -> None:
    """Calls in random order, with kills and power losses between and inside them."""
    chance = on.chance
    on.open()
    for _ in range(25):
        calls: list[Callable[[], object]] = [
            on.append,
            on.append,
            lambda: on.append(chance.randbytes(300)),
            lambda: on.append_many(chance.randrange(1, 4)),
            lambda: on.append_through_writer(3),
            on.flush,
            on.retain,
            lambda: on.clock.advance(1500),
            lambda: on.delete_before(on.log.high_watermark - min(3, on.log.high_watermark)),
            lambda: on.truncate_to(max(on.first_batch, on.log.log_end_offset - 3)),
            lambda: on.begin_epoch(on.log.leader_epoch + 1),
            lambda: on.append_numbered(chance.randrange(1, 4), producer_id=7 + chance.randrange(2)),
            on.append_numbered,
            on.repeat,
        ]
        call = chance.choice(calls)
        fate = chance.random()
        # The thread of the buffering writer must not end in the middle of a call.
        if fate < 0.08 and call is not calls[4]:
            on.lose_power_during(call, at=chance.randrange(1, 8))
        elif fate < 0.16 and call is not calls[4]:
            on.kill_during(call, at=chance.randrange(1, 8))
        elif fate < 0.2:
            call()
            on.close()
        else:
            call()
        if not on.is_open:
            on.open()
    on.close()


@workload("producers known by segments that are deleted", flush="os", **SMALL)
def producers_of_deleted_segments(on: Recorder) -> None:
    """A process that is killed after a roll leaves no snapshot for the segment, which is then deleted."""
    on.is_observed = False
    on.open()
    on.append_numbered(3)
    while len(on.log._source.view.segments) == 1:
        on.append(on.chance.randbytes(300))
    on.kill()
    on.open()
    on.is_observed = True
    on.delete_before(on.log._source.view.segments[-1].base_offset)
    on.append_numbered()
    on.close()


@workload("producers of an emptied log", flush="os", **SMALL)
@workload("producers of an emptied log, flush=batch", flush="batch", **SMALL)
def producers_of_an_emptied_log(on: Recorder) -> None:
    """Everything is deleted or truncated: the next roll removes the only segment with the state of producers."""
    on.open()
    on.append_numbered()
    on.append_numbered(producer_id=8)
    on.delete_before(2)
    on.truncate_to(2)
    on.append(on.chance.randbytes(on.config.segment_bytes - 100))
    on.repeat()
    on.append_numbered()
    on.delete_before(on.log.log_end_offset)
    on.append(on.chance.randbytes(on.config.segment_bytes - 100))
    on.kill()
    on.open()
    on.repeat()
    on.append_numbered()
    on.close()


@workload("compaction", flush="os", cleanup_policy="compact", **SMALL)
@workload("compaction, flush=batch", flush="batch", cleanup_policy="compact", **SMALL)
def compaction(on: Recorder) -> None:
    """Segments are rewritten and merged, in one round and in many; then appends continue."""
    on.is_observed = False
    on.open()
    for number in range(14):
        on.append(on.chance.randbytes(240), key=b"%d" % on.chance.randrange(4) if number % 5 else b"once %d" % number)
    on.flush()
    on.is_observed = True
    on.compact(buffer_bytes=on.chance.choice((1 << 20, 5 * 20)))
    on.append(key=b"0")
    on.close()
    on.open()
    on.append(on.chance.randbytes(900), key=b"1")
    on.append(on.chance.randbytes(900), key=b"2")
    on.compact()
    on.append(key=b"3")
    on.close()


@workload("truncate_to what was compacted", flush="os", cleanup_policy="compact", **SMALL)
@workload("truncate_to what was compacted, flush=batch", flush="batch", cleanup_policy="compact", **SMALL)
def truncate_to_what_was_compacted(on: Recorder) -> None:
    """Offsets may be missing after compaction, but not those of later appends."""
    on.is_observed = False
    on.open()
    for number in range(16):
        on.append(on.chance.randbytes(240), key=b"%d" % (number % 3) if number % 5 else b"once %d" % number)
    on.flush()
    on.compact()
    on.is_observed = True
    on.truncate_to(on.chance.choice((0, 3, 7)))
    for number in range(7):  # over a roll
        on.append(on.chance.randbytes(240), key=b"new %d" % number)
    on.close()


@workload("compaction after a kill", flush="os", cleanup_policy="compact", **SMALL)
def compaction_after_a_kill(on: Recorder) -> None:
    """A kill at a boundary of a compaction; then power may be lost at each boundary of the open that completes it."""
    on.is_observed = False
    on.open()
    for _ in range(12):
        on.append(on.chance.randbytes(240), key=b"%d" % on.chance.randrange(3))
    on.flush()
    on.kill_during(on.compact, at=on.chance.randrange(1, 40))
    on.is_observed = True
    on.open()
    on.append(key=b"0")
    on.compact()
    on.close()


@workload("compaction of a compacted log, killed at a rename", flush="batch", cleanup_policy="compact", **SMALL)
def compaction_killed_at_a_rename(on: Recorder) -> None:
    """The next open finds a new segment that is not durable, and must keep the segments that it replaces.

    Gaps are valid there, so no other check would notice a loss.
    """
    on.is_observed = False
    on.open()
    for number in range(36):
        # First many records are left, then so few that segments are merged.
        on.append(on.chance.randbytes(240), key=b"%d" % (number % 16 if number % 4 else 0))
        if number == 14:
            on.compact()
    on.kill_at_rename(on.compact, to=names.LOG + names.SWAP, nth=on.chance.randrange(1, 3))
    on.is_observed = True
    on.open()
    on.append(key=b"0")
    on.close()


@workload("retention killed at a rename", flush="batch", **SMALL)
def retention_killed_at_a_rename(on: Recorder) -> None:
    """The same for the checkpoint with the log start offset, and for one that promises less than before."""
    on.is_observed = False
    on.open()
    for _ in range(14):
        on.append(on.chance.randbytes(240))
    cut = on.chance.random() < 0.5
    action = (lambda: on.truncate_to(8)) if cut else (lambda: on.delete_before(8))
    on.kill_at_rename(action, to=names.CHECKPOINT)
    on.is_observed = True
    on.open()
    on.append()
    on.close()


@workload("truncate_to the end of a transaction", flush="os", cleanup_policy="compact", **SMALL)
def truncate_to_the_end_of_a_transaction(on: Recorder) -> None:
    """The markers of aborted transactions are removed, together with the transaction index."""
    on.is_observed = False
    on.open()
    for number in range(6):
        on.append_transaction(b"%d" % number, b"once %d" % number, commits=number % 2 == 1, producer_id=7 + number)
    on.append(on.chance.randbytes(1300), key=b"roll")
    on.compact()
    on.is_observed = True
    on.truncate_to(on.chance.choice((8, 12)))
    on.append_transaction(b"0", b"new", commits=True)
    on.truncate_to(1)
    on.append_transaction(b"0", b"newer", commits=True)
    on.close()


@workload("compaction of transactions", flush="os", cleanup_policy="compact", delete_retention_ms=1000, **SMALL)
def compaction_of_transactions(on: Recorder) -> None:
    """Aborted records are removed, then their markers and index; each of the three compactions may be interrupted."""
    on.is_observed = False
    on.open()
    for number in range(8):
        key = b"%d" % on.chance.randrange(3)
        on.append_transaction(key, b"once %d" % number, commits=number % 2 == 0, producer_id=7 + number % 3)
        on.append(on.chance.randbytes(100), key=key)
    on.flush()
    on.is_observed = True
    chosen = on.chance.randrange(4)
    for number in range(3):
        if number == chosen:
            on.kill_during(on.compact, at=on.chance.randrange(1, 30))
            on.open()
        on.compact()
        on.clock.advance(2000)
        on.append(on.chance.randbytes(900), key=b"0")
        on.append(on.chance.randbytes(900), key=b"1")
    on.close()
