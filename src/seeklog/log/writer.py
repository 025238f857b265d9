"""`Log`: one partition, opened for reading and writing."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from seeklog.arguments import check_flags, check_offset, check_whole_number
from seeklog.clock import Clock, SystemClock
from seeklog.config import LogConfig
from seeklog.errors import UsageError
from seeklog.files import Files, OsFiles, translated
from seeklog.log import transaction
from seeklog.log.background import Maintenance
from seeklog.log.clean import compaction
from seeklog.log.clean.compaction import Compacted
from seeklog.log.directory import directory_of, opening
from seeklog.log.host import Host
from seeklog.log.partition import Partition
from seeklog.log.producers import ProducerSequence
from seeklog.log.reader import LogReader
from seeklog.log.side.root_offsets import inherited_by
from seeklog.record import Bytes, Headers
from seeklog.record.growing import GrowingBatch
from seeklog.record.record import Record


class Log(LogReader):
    """An append-only sequence of records on disk, each addressed by its offset: a `LogReader` that also writes.

    Opens the log at `path`, or creates it. A log has one writer at a time: a second one gets `LogLocked`, which names
    the process of the first. Any thread may call any method, and reads take no lock. Use it as a context manager, or
    call `close`.
    """

    _source: Partition
    _maintenance: Maintenance | None = None
    """The background thread of a log that is not part of a store."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: LogConfig | None = None,
        clock: Clock | None = None,
        files: Files | None = None,
        background: bool = True,
        host: Host | None = None,
    ) -> None:
        check_flags(background=background)
        directory = directory_of(path, files)
        files, clock = files or OsFiles(), clock or SystemClock()
        config = config or LogConfig()
        maintenance = None
        if background and host is not None:
            maintenance = host.maintenance
        elif background:
            # The thread waits in real time, whatever clock stamps the records.
            maintenance = self._maintenance = Maintenance(SystemClock())
            weakref.finalize(self, maintenance.end)
        with opening(directory):
            inherited = host.inherited if host is not None else inherited_by(files, directory, clock=clock)
            self._partition = Partition(
                directory,
                config=config,
                files=files,
                clock=clock,
                maintenance=maintenance,
                inherited=inherited,
                host=host,
            )
        self._attach(self._partition, config)
        self._reader = _SharedReader(self._partition, config)

    @property
    def reader(self) -> LogReader:
        """A reader over the files that this log has open. It ends with the log; closing it leaves the log open."""
        if self._reader.is_closed and not self._is_closed:
            self._reader = _SharedReader(self._partition, self.config)
        return self._reader

    @property
    def clock(self) -> Clock:
        return self._partition.clock

    def check_usable(self) -> None:
        """Raise what an append would raise if the log is closed or has failed."""
        self._partition.gate.check()

    def check_keys(self, records: Sequence[Record]) -> None:
        """Raise `InvalidRecord` if the log is compacted and a record has no key."""
        self._partition.encoder.check_keys(records)

    @property
    def open_file_count(self) -> int:
        """How many files the log has open to write, with its lock. Files open for reading are not among them."""
        return self._partition.open_file_count

    @property
    def has_failed(self) -> bool:
        """Whether a write or a sync failed. A failed log must be reopened before it accepts appends."""
        return self._partition.is_over and not self._partition.is_returned and not self._is_closed

    @property
    def is_returned(self) -> bool:
        """Whether other processes may be writing the log, until it is borrowed again."""
        return self._partition.is_returned

    @property
    def has_ever_failed(self) -> bool:
        """Whether a write or a sync failed, even if the log is closed by now. Its offsets may then be wrong."""
        return self._partition.gate.has_failed

    # ------------------------------------------------------------ appending

    def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        producer: ProducerSequence | None = None,
    ) -> int:
        """Append one record and return its offset. `LogConfig.flush` decides when the record is durable.

        With a `producer` the record is appended only once, as in `append_many`.
        """
        if producer is None:
            return self._partition.append(value, key, headers, timestamp_ms)
        record = Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        return self._partition.append_records([record], producer=producer).start

    def append_many(
        self, records: Iterable[Record], *, wait: bool = True, producer: ProducerSequence | None = None
    ) -> range:
        """Append records as one batch in one write: all of them or none. Return their offsets.

        `wait=False` skips the sync that `flush="batch"` promises; the records are durable after the next `flush`.

        A `producer` numbers its records, so that each is in the log only once. If a batch repeats one of the last five
        batches of the producer, nothing is written, and the offsets of the first time are returned. Raises
        `OutOfOrderSequence` if records before these are missing, `DuplicateSequence` if the batch repeats an older one,
        and `ProducerFenced` if the producer already has a higher epoch.
        """
        if wait is not True:
            check_flags(wait=wait)
        return self._partition.append_records(
            records if isinstance(records, list) else list(records), wait=wait, producer=producer
        )

    def append_encoded(
        self, batches: Sequence[GrowingBatch], *, wait: bool = True, producer: ProducerSequence | None = None
    ) -> range:
        """Append as many encoded batches as one write may take, at least the first. Return their records' offsets.

        An error is that of the first batch alone, unless the write failed. Arguments are those of `append_many`.
        """
        if wait is not True:
            check_flags(wait=wait)
        return self._partition.append_encoded(batches, wait=wait, producer=producer)

    def next_sequence(self, producer_id: int) -> ProducerSequence | None:
        """Return the epoch and sequence of a producer's next batch; None if the log does not know the producer.

        After a crash, an application that numbers its own records learns here which of them were appended.
        """
        return self._partition.next_sequence(producer_id)

    def append_batches(self, raw: bytes | bytearray | memoryview, *, wait: bool = True) -> range:
        """Append whole v2 batches. CRCs are checked, base offsets and leader epoch are set, and no record is decoded.

        Producer epochs and sequences are checked, and a repeated batch is acknowledged without being written again.
        `wait=False` skips the sync that `flush="batch"` promises; the records are durable after the next `flush`.
        """
        if wait is not True:
            check_flags(wait=wait)
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise UsageError(f"batches must be bytes, not {type(raw).__name__}")
        return self._partition.append_batches(bytes(raw), wait=wait)

    def flush(self) -> None:
        """Make every appended record durable."""
        self._partition.flush()

    def give_back(self) -> None:
        """Make everything durable and let other processes write the log. Call `borrow` before the next change."""
        self._partition.turns.give_back()

    def pass_on(self) -> None:
        """Do as `give_back` does, but leave the sync that `LogConfig.flush` demands later to the next holder.

        If no process has it by then, this log is borrowed for the sync.
        """
        self._partition.turns.give_back(syncs=False)

    def sync_returned(self) -> None:
        """Make every record durable that was appended before the log was returned.

        Raises `LogLocked` while another process has the log.
        """
        with translated(f"{self._partition.directory} cannot be synced"):
            self._partition.turns.sync_returned()

    def borrow(self) -> bool:
        """Continue to write a returned log, after other writers' records. Raises `LogLocked` while another has it.

        Returns False and closes the log if another process did more than append: then open it again.
        """
        with translated(f"{self._partition.directory} cannot be written"):
            return self._partition.turns.borrow()

    def metrics(self) -> dict[str, Any]:
        """Return what this log has counted since it was opened. Reads memory alone, and takes no lock.

        The keys are those of the sections `log`, `retention` and `compaction` in docs/metrics.md.
        """
        return self._partition.metrics.as_dict()

    # ------------------------------------------------------------ removing records

    def advance_high_watermark(self, offset: int) -> None:
        """Make every record below `offset` visible to readers. Needs `high_watermark="manual"`."""
        self._partition.advance_high_watermark(check_offset(offset))

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds `offset` and every batch after it. Return the new log end offset."""
        offset = check_offset(offset)
        with self._naming_unreadable(offset):
            return self._partition.remover.truncate_to(offset)

    def delete_before(self, offset: int) -> int:
        """Raise `log_start_offset` to `offset`. Return how many segments were deleted."""
        return self._partition.remover.delete_before(check_offset(offset))

    def retain(self) -> int:
        """Delete old segments by `retention_ms` and `retention_bytes`. Return how many."""
        return self._partition.remover.retain()

    def roll(self) -> None:
        """Start a new segment. The previous one may be compacted or deleted from then on."""
        self._partition.roll_now()

    def roll_if_due(self) -> bool:
        """Start a new segment if the active one spans `segment_ms`, or if retention keeps none of its records."""
        return self._partition.remover.roll_if_due()

    def make_key_indexes(self) -> int:
        """Build the key indexes that sealed segments lack, if `LogConfig.key_index` asks for them. Return how many."""
        return self._partition.make_key_indexes()

    def compact(self, *, buffer_bytes: int = compaction.BUFFER_BYTES) -> Compacted:
        """Keep only the latest record of each key in the sealed segments. Offsets do not change. Return what was done.

        Other threads may append and read. `buffer_bytes` bounds the memory for keys: with more keys, compaction takes
        more rounds. Needs a `cleanup_policy` that contains "compact".
        """
        return self._compact(buffer_bytes, only_if_due=False)

    def compact_if_due(self, *, buffer_bytes: int = compaction.BUFFER_BYTES) -> Compacted:
        """Compact if `min_cleanable_dirty_ratio` or `max_compaction_lag_ms` requires it; otherwise `rounds` is 0."""
        return self._compact(buffer_bytes, only_if_due=True)

    def _compact(self, buffer_bytes: int, *, only_if_due: bool) -> Compacted:
        if not self.config.compacts:
            raise UsageError(
                f'{self.path} is not compacted: its cleanup.policy is "{self.config.cleanup_policy}"; '
                'set it to "compact" first'
            )
        check_whole_number("buffer_bytes", buffer_bytes, minimum=compaction.MIN_BUFFER_BYTES)
        with translated(f"{self.path} cannot be compacted"):
            return compaction.compact(self._partition, buffer_bytes=buffer_bytes, only_if_due=only_if_due)

    # ------------------------------------------------------------ leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """Stamp a new, higher leader epoch on batches from the log end offset on. Durable on return."""
        self._partition.begin_epoch(check_offset(epoch, name="epoch"))

    def close(self) -> None:
        """Sync everything and release the log. Closing a closed log does nothing."""
        self._is_closed = True
        self._reader.close()
        if self._maintenance is not None:
            self._maintenance.stop()
        self._partition.close()


class _SharedReader(LogReader):
    def __init__(self, partition: Partition, config: LogConfig) -> None:
        self._attach(partition, config)

    def close(self) -> None:
        """Stop reading. The `Log` keeps the partition open."""
        self._is_closed = True


def append_part(log: Log, part: transaction.Part) -> None:
    """Append one partition's part of a committed transaction durably, and remove its staged files."""
    # No compaction in between: after a crash, only identical batches tell which staged ones are already in the log.
    with log._partition.remover.compacting():
        transaction.append_part(log._partition, part)
        transaction.close_part(log._partition, part)
