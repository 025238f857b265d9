"""Logs to damage: of each codec, closed or killed, compacted, with a manual watermark."""

from __future__ import annotations

import functools
import posixpath
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from crash.recorder import PATH
from crash.sim import SimFiles
from faults.damage import Harm, Verdict, changes, difference
from faults.disks import (
    Answers,
    ask,
    evidence,
    files_with,
    in_log,
    make_disk,
    make_unclean_disk,
    open_on,
    without_lock,
)
from faults.flips import flipped
from faults.peer_flips import BATCH
from log.workbench import FakeClock
from seeklog import Log, LogConfig, ProducerSequence, Record, names
from seeklog.log.check import repair
from seeklog.log.side.checkpoint import decode_checkpoint
from seeklog.record.batch import encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash.sim import Disk

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# Two or three batches per segment, and an index entry for each except the first.
RICH: Final = LogConfig(flush="os", segment_bytes=600, index_interval_bytes=50, retention_ms=-1, key_index="seal")
PRODUCER_ID: Final = 7


@dataclass(slots=True)
class LogVictim:
    """One log, and the reads of it."""

    name: str
    disk: Disk
    config: LogConfig = RICH
    recovery_point: int = field(init=False)
    high_watermark: int = field(init=False)
    """As the checkpoint has it."""
    _expected: dict[bool, Answers] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        checkpoint = decode_checkpoint(self.disk.files[in_log(names.CHECKPOINT)], path="")
        self.recovery_point, self.high_watermark = checkpoint.recovery_point, checkpoint.high_watermark

    def expected(self, *, read_only: bool) -> Answers:
        if read_only not in self._expected:
            with self.open(SimFiles(self.disk), read_only=read_only) as log:
                answers = self.ask(log, expected=None)
            # The answers of an undamaged log follow from its records, which also gives those of a shorter log.
            assert answers.ended_at(answers.log_end_offset) == answers, difference(
                answers, answers.ended_at(answers.log_end_offset)
            )
            self._expected[read_only] = answers
        return self._expected[read_only]

    def open(self, files: SimFiles, *, read_only: bool) -> Any:
        return open_on(files, config=self.config, read_only=read_only)

    def ask(self, opened: Log, *, expected: Answers | None) -> Answers:
        return ask(opened, expected=expected)

    def changes(self, before: Disk, after: Disk, *, path: str, was_opened: bool) -> str:
        return changes(before, after, was_opened=was_opened)

    def verdict(self, found: Answers, harm: Harm) -> Verdict:
        expected: Answers = harm.expected
        if harm.path == in_log(names.WATERMARK) and any(names.WATERMARK in warning for warning in harm.heard):
            # Readers see the log up to its checkpoint until a writer publishes the watermark again.
            expected = expected.visible_to(self.high_watermark)
            if found == expected:
                return Verdict("behind")
        shorter = expected.ended_at(found.log_end_offset)
        if found.log_end_offset == expected.log_end_offset or _comparable(found) != _comparable(shorter):
            return Verdict("SILENT", difference(found, shorter))
        if found.log_end_offset < self.recovery_point:
            return Verdict("SILENT", f"ends at {found.log_end_offset}, below the recovery point {self.recovery_point}")
        missing = "" if harm.read_only else _evidence_missing(harm.before, harm.after, found.cut_bytes)
        return Verdict("SILENT", missing) if missing else Verdict("cut")


def _comparable(answers: Answers) -> Answers:
    """Remove the answers that a shorter log may have lost with its end; `ask` checks producers itself."""
    return replace(answers, leader_epoch=0, epoch_ends=(), producers=())


def _evidence_missing(before: Disk, after: Disk, cut_bytes: int) -> str:
    """Return cut bytes that are not quarantined or not reported."""
    kept = evidence(after)
    cut = 0
    for path in files_with(before, names.LOG):
        data, left = before.files[path], after.files.get(path, b"")
        if data == left:
            continue
        name = names.torn_name(int(posixpath.basename(path)[:20]), len(left))
        if not data.startswith(left) or kept.get(name) != data[len(left) :]:
            return f"what was cut off {posixpath.basename(path)} is not kept"
        cut += len(data) - len(left)
    return "" if cut == cut_bytes else f"{cut} bytes were cut, {cut_bytes} reported"


# ------------------------------------------------------------ what is in them


def batch_of(number: int, clock: FakeClock, count: int) -> list[Record]:
    """Return records with repeated keys, headers, and increasing timestamps."""
    clock.advance(10)
    return [
        Record(
            f"value {number}.{index} ".encode() * 4,
            # Some keys occur once, so that a lookup must search earlier segments.
            key=f"key {number + 100 if number % 4 == 2 and not index else (number + index) % 4}".encode(),
            headers=(("trace", b"x"), ("none", None)) if number % 3 == 1 else (),
            timestamp_ms=clock.now_ms() + index,
        )
        for index in range(count)
    ]


def fill_rich(log: Log, clock: FakeClock) -> None:
    """Fill three segments with all kinds of side files: two leader epochs, a producer, keys, a raised start."""
    log.begin_epoch(2)
    place = ProducerSequence(producer_id=PRODUCER_ID, epoch=1, sequence=0)
    number = 0
    while log.segment_count < 3 or number % 4:
        if number == 3:
            log.begin_epoch(3)
        records = batch_of(number, clock, 1 + number % 3)
        if number % 2:
            log.append_many(records, producer=place)
            place = place.after(len(records))
        else:
            log.append_many(records)
        number += 1
    log.delete_before(1)


def append_tail(log: Log, clock: FakeClock) -> None:
    """Append two unsynced batches, one of them a producer's."""
    place = log.next_sequence(PRODUCER_ID)
    log.append_many(batch_of(20, clock, 2), producer=place)
    log.append_many(batch_of(21, clock, 1))


def fill_compacted(log: Log, clock: FakeClock) -> None:
    """Append repeated keys and an aborted transaction, and compact, which leaves gaps and a transaction index."""
    for number in range(6):
        log.append_many(batch_of(number, clock, 2))
        if number in (1, 4):  # unique keys, so that the gaps are between batches
            log.append(b"kept", key=f"only {number}".encode(), timestamp_ms=clock.now_ms() + 5)
    whose = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    log.append_batches(encode_batch(batch_of(6, clock, 1), base_sequence=0, **whose))  # type: ignore[arg-type]
    abort = Record(bytes(6), key=bytes(4), timestamp_ms=clock.now_ms())
    log.append_batches(encode_batch([abort], control=True, **whose))  # type: ignore[arg-type]
    for number in range(7, 11):
        log.append_many(batch_of(number, clock, 2))
    log.compact()
    for number in range(11, 14):
        log.append_many(batch_of(number, clock, 2))


# ------------------------------------------------------------ the logs


def closed_disk(fill: Callable[[Log, FakeClock], object], config: LogConfig) -> Disk:
    """Return the disk of a cleanly closed log with key indexes of its sealed segments."""
    return make_disk(lambda log, _: log.make_key_indexes(), config=config, start=make_disk(fill, config=config))


@functools.cache
def closed_log(codec: str) -> LogVictim:
    """Return a cleanly closed log, all of it below the recovery point."""
    config = with_codec(codec)
    return LogVictim(f"closed log, {codec}", closed_disk(fill_rich, config), config)


@functools.cache
def killed_log(codec: str) -> LogVictim:
    """Return a log whose process was killed, with its last two batches above the recovery point."""
    config = with_codec(codec)
    disk = make_unclean_disk(append_tail, config=config, start=closed_disk(fill_rich, config))
    return LogVictim(f"killed log, {codec}", disk, config)


def with_codec(codec: str) -> LogConfig:
    # Compressed batches are smaller: three segments of two or three batches in either case.
    return replace(RICH, compression_type=codec, segment_bytes=600 if codec == "none" else 420)


@functools.cache
def compacted_log(codec: str, *, index_interval_bytes: int = 50) -> LogVictim:
    """Return a log with valid gaps. With a sparser index a damaged base offset is harder to tell from a gap."""
    config = replace(
        with_codec(codec), cleanup_policy="compact", segment_bytes=700, index_interval_bytes=index_interval_bytes
    )
    name = f"compacted log, {codec}, an entry every {index_interval_bytes} bytes"
    return LogVictim(name, closed_disk(fill_compacted, config), config)


def fill_with_manual_watermark(log: Log, clock: FakeClock) -> None:
    for number in range(5):
        log.append_many(batch_of(number, clock, 1))
    log.advance_high_watermark(3)


@functools.cache
def log_with_watermark(is_closed: bool) -> LogVictim:
    """Return a log of which readers see only a part, because of a manual watermark."""
    config = replace(RICH, high_watermark="manual")
    make: Callable[..., Disk] = make_disk if is_closed else make_unclean_disk
    name = f"{'closed' if is_closed else 'killed'} log with a watermark by hand"
    return LogVictim(name, make(fill_with_manual_watermark, config=config), config)


@functools.cache
def log_of_one_batch() -> LogVictim:
    """Return a closed log with the batch that other clients get."""
    return LogVictim("log of one batch", make_disk(lambda log, _: log.append_batches(BATCH), config=RICH))


@functools.cache
def repaired_log() -> LogVictim:
    """Return a log that lost a batch and was repaired, with the quarantined bytes and the list of lost offsets."""
    disk = make_disk(fill_rich, config=RICH)
    path = files_with(disk, names.LOG)[0]
    sim = SimFiles(disk.with_file(path, flipped(disk.files[path], 8 * 200)))
    repair(PATH, files=sim, clock=FakeClock())
    return LogVictim("repaired log", without_lock(sim.disk()))
