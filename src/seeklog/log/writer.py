"""`Log`: one partition, to write to and to read from."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence

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
from seeklog.record.record import Record


class Log(LogReader):
    """An append-only sequence of records on disk, addressed by offset: a `LogReader` that also writes.

    Opens the log at `path`, or creates it. One process at a time has it: `LogLocked` names the other. Any thread may
    call any method; readers take no lock. Use it as a context manager, or call `close`.
    """

    _source: Partition
    _maintenance: Maintenance | None = None
    """The thread of a lone log."""

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
        directory = directory_of(path, files)
        files, clock = files or OsFiles(), clock or SystemClock()
        config = config or LogConfig()
        maintenance = None
        if background and host is not None:
            maintenance = host.maintenance
        elif background:
            # Its thread waits in real time, whatever clock stamps the records.
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
        """A reader of what this log has open. It ends with the log; closing it leaves the log open."""
        if self._reader.is_closed and not self._is_closed:
            self._reader = _SharedReader(self._partition, self.config)
        return self._reader

    @property
    def clock(self) -> Clock:
        """The clock that stamps records and rolls segments."""
        return self._partition.clock

    def check_usable(self) -> None:
        """Raise what an append would raise, if the log is closed or has failed."""
        self._partition.gate.check()

    def check_keys(self, records: Sequence[Record]) -> None:
        """Refuse records without a key if the log is compacted."""
        self._partition.encoder.check_keys(records)

    @property
    def has_failed(self) -> bool:
        """Whether a write or a sync has failed, so that it must be opened again to accept appends."""
        return self._partition.is_over and not self._is_closed

    # ------------------------------------------------------------ appending

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        producer: ProducerSequence | None = None,
    ) -> int:
        """Append one record and return its offset; how durable it then is, `LogConfig.flush` says.

        With a producer it is written once, as in `append_many`.
        """
        if producer is None:
            return self._partition.append(value, key, headers, timestamp_ms)
        record = Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        return self._partition.append_records([record], producer=producer).start

    def append_many(
        self, records: Iterable[Record], *, wait: bool = True, producer: ProducerSequence | None = None
    ) -> range:
        """Append records as one batch with one write, and return their offsets; all of them or none.

        With `wait=False` the sync that `flush="batch"` promises is left to a `flush` of the caller's.

        A `producer` numbers its records, so that each is in the log once: if it appends one of its last five batches
        again, nothing is written and the offsets are those of the first time. `OutOfOrderSequence` says that records
        are missing before these, `DuplicateSequence` that these were written longer ago, `ProducerFenced` that the
        producer has a higher epoch by now.
        """
        return self._partition.append_records(
            records if isinstance(records, list) else list(records), wait=wait, producer=producer
        )

    def next_sequence(self, producer_id: int) -> ProducerSequence | None:
        """Return what the next batch of a producer must begin with; None if the log does not know it.

        An application that numbers its records by itself learns from this, after a crash, which of them are written.
        """
        return self._partition.next_sequence(producer_id)

    def append_batches(self, raw: bytes | bytearray | memoryview) -> range:
        """Append whole v2 batches: CRCs are checked, base offsets and leader epoch are set, nothing decoded.

        Batches of producers are checked by their epochs and sequences: repeated ones are acknowledged, not written.
        """
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise UsageError(f"batches are bytes, not {type(raw).__name__}")
        return self._partition.append_batches(bytes(raw))

    def flush(self) -> None:
        """Make every appended record durable."""
        self._partition.flush()

    def give_back(self) -> None:
        """Make everything durable and let others write the log. It stays open; `borrow` it before the next change."""
        self._partition.give_back()

    def borrow(self) -> bool:
        """Write a log again that was given back, after what others have appended; `LogLocked` if another writes it.

        Returns False, and closes the log, if others did more than append: then open it again.
        """
        with translated(f"{self._partition.directory} cannot be written"):
            return self._partition.borrow()

    # ------------------------------------------------------------ what takes records away

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see everything below `offset`; only with `high_watermark="manual"`."""
        self._partition.advance_high_watermark(offset)

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that holds `offset` and everything after it; return the new end of the log."""
        with self._naming_unreadable(offset):
            return self._partition.remover.truncate_to(offset)

    def delete_before(self, offset: int) -> int:
        """Raise `log_start_offset` to `offset`; return how many segments that deleted."""
        return self._partition.remover.delete_before(offset)

    def retain(self) -> int:
        """Delete old segments by `retention_ms` and `retention_bytes`; return how many."""
        return self._partition.remover.retain()

    def roll(self) -> None:
        """Start a new segment. What is in the one before it may be compacted, or deleted, from then on."""
        self._partition.roll_now()

    def roll_if_due(self) -> bool:
        """Start a new segment if the last one spans `segment_ms`, or if retention keeps none of its records."""
        return self._partition.remover.roll_if_due()

    def make_key_indexes(self) -> int:
        """Make the key indexes that sealed segments lack, if `LogConfig.key_index` asks for it; return how many."""
        return self._partition.make_key_indexes()

    def compact(self, *, buffer_bytes: int = compaction.BUFFER_BYTES) -> Compacted:
        """Keep, of what is sealed, the latest record of each key; return what that did. Offsets do not change.

        Appends and readers go on meanwhile. `buffer_bytes` bounds the memory for keys: what does not fit in it takes
        more rounds. Only where `cleanup_policy` holds "compact".
        """
        return self._compact(buffer_bytes, only_if_due=False)

    def compact_if_due(self, *, buffer_bytes: int = compaction.BUFFER_BYTES) -> Compacted:
        """Compact if `min_cleanable_dirty_ratio` or `max_compaction_lag_ms` ask for it; else `rounds` is 0."""
        return self._compact(buffer_bytes, only_if_due=True)

    def _compact(self, buffer_bytes: int, *, only_if_due: bool) -> Compacted:
        if not self.config.compacts:
            raise UsageError(f'{self.path} is not compacted: its cleanup_policy is "{self.config.cleanup_policy}"')
        with translated(f"{self.path} cannot be compacted"):
            return compaction.compact(self._partition, buffer_bytes=buffer_bytes, only_if_due=only_if_due)

    # ------------------------------------------------------------ leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """Stamp batches with a new leader epoch from the end of the log on."""
        self._partition.begin_epoch(epoch)

    def close(self) -> None:
        """Sync everything and release the log. Closing twice is nothing."""
        self._is_closed = True
        self._reader.close()
        if self._maintenance is not None:
            self._maintenance.stop()
        self._partition.close()


class _SharedReader(LogReader):
    """Reads from the partition that a writing log has open."""

    def __init__(self, partition: Partition, config: LogConfig) -> None:
        self._attach(partition, config)

    def close(self) -> None:
        """Read no more. The log that has opened the partition keeps it."""
        self._is_closed = True


def append_part(log: Log, part: transaction.Part) -> None:
    """Append a partition's part of a transaction that is being committed: durable on return, its staging removed."""
    # While batches are staged and in the log, they must be the same: after a crash nothing else distinguishes them.
    with log._partition.remover.compacting():
        transaction.append_part(log._partition, part)
        transaction.close_part(log._partition, part)
